"""Output of a running loop, its steps and decisions: sentences on a terminal, log events elsewhere."""

import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime

import structlog
from rich.console import Console
from rich.text import Text

from deploy.commands.console import indent_body, sentence_console
from deploy.commands.times import local_clock
from policies.decisions import Alert, AlertStatus, Decision
from policies.printable import printable_line
from policies.units import format_instant

_log = structlog.get_logger("headgate")

_IN_FORCE_LINES = 20
"""Limit for earlier decisions printed at the start, alerts first: a cluster may have thousands of namespaces."""

ALERT_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
"""The style of an alert by its severity."""


class Terminal:
    """Prints the lines of `headgate up` and `headgate run`.

    Args:
        console: the console to print to; by default standard output.
        clock: a monotonic clock in seconds, for the time since the start.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or sentence_console()
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._latest: dict[tuple[str, str], Decision] = {}
        self._ready = False

    def step(self, what: str) -> None:
        """Print a step with the seconds since the start."""
        self._print(Text(f"{self._clock() - self._started:6.1f} s  ", "dim"), Text(what))

    def ready(self) -> None:
        """Print that everything runs, and the decisions that are already in force."""
        self.step("ready; Ctrl-C stops" if has_keyboard() else "ready")
        with self._lock:
            self._ready, latest = True, list(self._latest.values())
        in_force = sorted(
            (d for d in latest if not (isinstance(d, Alert) and d.status is AlertStatus.RESOLVED)),
            key=lambda d: not isinstance(d, Alert),
        )
        for decision in in_force[:_IN_FORCE_LINES]:
            self._show(decision)
        if (more := len(in_force) - _IN_FORCE_LINES) > 0:
            self.step(f"{more} more decisions are in force")

    def decision(self, decision: Decision, caught_up: bool) -> None:  # noqa: ARG002 - history counts once `ready` is called
        """Print a decision if it differs from the one in force before. Heartbeats are not printed."""
        key = (decision.event_type, decision.record_key())
        with self._lock:
            before = self._latest.get(key)
            self._latest[key] = decision
            news = self._ready and (before is None or before.says() != decision.says())
        if news:
            self._show(decision)

    def _show(self, decision: Decision) -> None:
        name, style = _name(decision)
        # The sentence of a resolved alert begins with its name.
        is_over = isinstance(decision, Alert) and decision.status is AlertStatus.RESOLVED
        head = (("resolved:", style), " ") if is_over else ((name, style), "  ")
        sentence = Text.assemble(*head, printable_line(decision.explanation))
        self._print(self._show_time(decision.decided_at), sentence)

    def _show_time(self, instant: datetime) -> Text:
        clock = local_clock(instant) if self._console.is_terminal else format_instant(instant)[11:19]
        return Text(f"{clock}  ", "dim")

    def _print(self, head: Text, body: Text) -> None:
        with self._lock:
            self._console.print(indent_body(self._console, head, body))


class LoggedProgress(Terminal):
    """The same as log events, where standard output is no terminal: a container has one format for everything."""

    def step(self, what: str) -> None:
        """Log a step."""
        _log.info(what)

    def _show(self, decision: Decision) -> None:
        name, _ = _name(decision)
        _log.info(decision.explanation, decision=name, cluster=decision.cluster, subject=decision.subject)


def show_progress() -> Terminal:
    """Return the output for standard output as it is."""
    return Terminal() if sys.stdout.isatty() else LoggedProgress()


def has_keyboard() -> bool:
    """Whether a person at a terminal started this process; systemd and containers connect none of these streams."""
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _name(decision: Decision) -> tuple[str, str]:
    """Return the name of a decision or alert, and its style."""
    if not isinstance(decision, Alert):
        return f"{decision.policy} {decision.verdict}", "bold"
    if decision.status is AlertStatus.RESOLVED:
        return f"resolved: {decision.alert}", "green"
    return f"{decision.severity.value}: {decision.alert}", ALERT_STYLES[decision.severity.value]
