"""What commands print: sentences and tables on a terminal, log events elsewhere, and commands to paste."""

import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import structlog
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from connectors.redaction import without_secrets
from deploy.console.options import SETTINGS_VARIABLE
from policies.decisions import Alert, AlertStatus, Decision
from policies.units import format_instant, printable, printable_line

# Shows instants as local times.

_SHOWN = re.compile(r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z| UTC)(?!\w)")
"""An instant as sentences and events write it, always in UTC."""


def show_local(text: str) -> str:
    """Return a text for a terminal: each instant in this machine's zone, with the zone's name."""
    return _SHOWN.sub(_show_instant, text)


def _show_instant(found: re.Match[str]) -> str:
    try:
        instant = datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00").astimezone()
    except (ValueError, OverflowError):
        return found[0]
    return f"{instant:%Y-%m-%d %H:%M:%S %Z}"


def local_clock(instant: datetime) -> str:
    """Return an instant's local time of day with its zone, such as `14:45:03 CET`."""
    return f"{instant.astimezone():%H:%M:%S %Z}"


# Makes the commands in messages ready to be pasted: with the settings file of this call.

_COMMAND = re.compile(r"(`|^)(headgate (?!check|demo|docs|up|import-strimzi|-)[a-z][^`\n]*?)(`|$)", re.MULTILINE)
"""A command of Headgate that takes settings: in backquotes, or alone on its line."""
_WITH_SETTINGS = re.compile(r" (-s|--settings)\b")

_given: list[str] = []
"""The settings file of this process, as it was typed; empty without one."""


def note_settings_file(file: Path | None) -> None:
    """Remember the settings file that the user named; a variable of the environment needs no repetition."""
    _given[:] = [] if file is None or str(file) == os.environ.get(SETTINGS_VARIABLE) else [str(file)]


def complete_commands(text: str) -> str:
    """Return a text whose commands of Headgate name the settings file, too."""
    return _COMMAND.sub(_add_file, text) if _given else text


def _add_file(found: re.Match[str]) -> str:
    before, command, after = found.groups()
    if _WITH_SETTINGS.search(command) or bool(before) != bool(after):
        return found[0]
    return f"{before}{command} -s {shlex.quote(_given[0])}{after}"


# Terminal output: text from elsewhere (names, markup, control characters) is always plain, and times are local.

USER_ERROR = 2
"""Status of a process that a UserError ends."""


class SafeConsole(Console):
    """A console that escapes control characters in all content; its own styles and cursor movements stay.

    On a terminal, instants in any text are local times; in a file or pipe they stay in UTC.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to write."""
        if self.is_terminal and isinstance(renderable, str):
            renderable = show_local(renderable)
        elif self.is_terminal and isinstance(renderable, Text) and (local := show_local(renderable.plain)):
            renderable = renderable.copy()
            renderable.plain = local
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def sentence_console(*, stderr: bool = False) -> SafeConsole:
    """Return a console for sentences: a terminal wraps them; in a file or pipe each is one line, for `grep`."""
    console = SafeConsole(stderr=stderr, highlight=False)
    console.soft_wrap = not console.is_terminal
    return console


def print_error(error: BaseException) -> None:
    """Print the error that ends this process, as one sentence."""
    sentence_console(stderr=True).print(shown_error(str(error)), style="red", markup=False)


def indent_body(console: Console, head: Text, body: Text) -> RenderableType:
    """Return a head and a sentence, whose wrapped lines are indented to its first word."""
    if console.soft_wrap:
        return Text.assemble(head, body)
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(head, body)
    return grid


def shown_error(text: str) -> str:
    """Return an error's text for printing, without known secrets and control characters."""
    return printable(without_secrets(complete_commands(text)))


# Logging: one line an event, as text on a terminal and as JSON elsewhere.
#
# A command that runs until it is stopped writes everything to standard output if that is no terminal, so that a
# container has one stream in one format. All other commands log to standard error, beside their answer.

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]

_QUIET = {
    # kafka-python logs each attempt of a retry, and at DEBUG the bytes of requests, including passwords. The collectors
    # log the results. So it stays quiet at every log level.
    "kafka": logging.CRITICAL,
    "headgate.librdkafka": logging.ERROR,
    "connectors.kafka.tail": logging.NOTSET,
    "py4j": logging.ERROR,
    "pyspark": logging.ERROR,
}

_TOLD_AT_THE_END = {"headgate.librdkafka": logging.CRITICAL, "connectors.kafka.tail": logging.ERROR}
"""For commands with an answer, only errors are logged: the command prints its own problem at its end."""


def _clean_value(name: str, value: Any) -> Any:
    match value:
        case str():
            return shown_error(value) if name == "exception" else printable_line(shown_error(value))
        case list() | tuple():
            return [_clean_value("", each) for each in value]
        case dict():
            return {printable_line(shown_error(str(key))): _clean_value("", each) for key, each in value.items()}
        case bool() | int() | float() | None:
            return value
    return printable_line(shown_error(str(value)))


def _localize(event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return an event for a terminal, with its time and the instants in its values in this machine's zone."""
    shown = {name: show_local(value) if isinstance(value, str) else value for name, value in event.items()}
    return {**shown, "timestamp": local_clock(datetime.fromisoformat(event["timestamp"]))}


def set_up_logging(
    *,
    verbose: bool = False,
    to: TextIO | None = None,
    answers: bool = False,
    runs: bool = False,
    level: str = "info",
    form: str = "auto",
) -> None:
    """Send structlog's events and the standard library's records the same way.

    Args:
        level: the least severe level of the lines, if not `verbose`.
        form: a `LogFormat`.
        verbose: log at DEBUG.
        to: a file instead of a standard stream.
        answers: the command prints an answer and ends, so only errors are logged.
        runs: the command runs until it is stopped.
    """
    stream = to or (sys.stdout if runs and not sys.stdout.isatty() else sys.stderr)
    people = stream.isatty() and form != "json"
    text = structlog.dev.ConsoleRenderer(
        colors=people, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
    )
    render: structlog.typing.Processor = text if people or form == "text" else structlog.processors.JSONRenderer()

    def render_line(logger: Any, method: str, event: structlog.typing.EventDict) -> str:
        # Escape control characters, and mask secrets that libraries quote; each event is one line, but tracebacks.
        clean = {name: _clean_value(name, value) for name, value in event.items()}
        return str(render(logger, method, _localize(clean) if people else clean))

    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            render_line,
        ],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else level.upper(), force=True)
    for name, least in {**_QUIET, **(_TOLD_AT_THE_END if answers else {})}.items():
        logging.getLogger(name).setLevel(least)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


# The output of a running loop: its steps and decisions.

_log = structlog.get_logger("headgate")

_IN_FORCE_LINES = 20
"""Limit for earlier decisions printed at the start, alerts first: a cluster may have thousands of namespaces."""

ALERT_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
"""The style of an alert by its severity."""


class Terminal:
    """Prints the lines of `headgate up` and `headgate run`, by default to standard output."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._console = console or sentence_console()
        self._clock = clock
        self._lock = threading.Lock()
        self._latest: dict[tuple[str, str], Decision] = {}
        self._ready = False

    def step(self, what: str) -> None:
        """Print a step with its time."""
        self._print(self._show_time(self._clock()), Text(what))

    def ready(self) -> None:
        """Print that everything runs, and the decisions that are already in force."""
        # A person at a terminal started this process; systemd and containers connect none of these streams.
        has_keyboard = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
        self.step("ready; Ctrl-C stops" if has_keyboard else "ready")
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

    def decision(self, decision: Decision) -> None:
        """Print a decision if it differs from the one in force before; history waits for `ready`."""
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


def _name(decision: Decision) -> tuple[str, str]:
    """Return the name of a decision or alert, and its style."""
    if not isinstance(decision, Alert):
        return f"{decision.policy} {decision.verdict}", "bold"
    if decision.status is AlertStatus.RESOLVED:
        return f"resolved: {decision.alert}", "green"
    return f"{decision.severity.value}: {decision.alert}", ALERT_STYLES[decision.severity.value]
