"""Sends switch commands to the running loop, and receives the decisions about them."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any, Self, TypeVar

from rich.console import RenderableType
from rich.text import Text

from connectors.kafka.tail import Record, Tail, read_past
from deploy.inspection.requests import send
from deploy.settings.application import Settings
from policies.decisions import Mode, deterministic_id
from policies.registry import observed_topic
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import SwitchCommand, SwitchPrecheck
from policies.wire import BadRecordError, Event, EventReader

# The result of a command: accepted or rejected, the exit status, and the text or JSON to print.

SHOWN = 10
"""The most decisions that are shown; the others are counted."""

_BAD = frozenset({SwitchVerdict.REJECT, SwitchVerdict.HALT, SwitchVerdict.BLOCKED, SwitchVerdict.REMAP_REQUIRED})


class ExitStatus(IntEnum):
    """The exit status of a command; a user's mistake has 2."""

    ACCEPTED = 0
    REJECTED = 1
    NO_DECISION = 3


def event_id(command: SwitchCommand) -> str:
    """Return the event id of a command: a repeated key is the same command, and so the same event."""
    return deterministic_id("switch-command", command.cluster, command.idempotency_key)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """All decisions about one command."""

    command: SwitchCommand
    decisions: tuple[SwitchDecision, ...]
    """The decisions by ascending sequence; at least one."""
    earlier: bool = False
    """Whether a command with this key was decided before."""

    @property
    def refusal(self) -> SwitchDecision | None:
        """The decision that rejects the command; None if it was accepted.

        One command may cause other rejections, such as that of a broker's late report.
        """
        for each in self.decisions:
            rejects = each.verdict is SwitchVerdict.REJECT or each.code is not None
            if each.verdict is SwitchVerdict.HALT or (rejects and each.subject == self.command.subject()):
                return each
        return None

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status of the command line."""
        return ExitStatus.ACCEPTED if self.refusal is None else ExitStatus.REJECTED

    def plain(self) -> dict[str, Any]:
        """Return the result for a program."""
        refusal = self.refusal
        return {
            **undecided(self.command),
            "accepted": refusal is None,
            "code": refusal.code.value if refusal is not None and refusal.code is not None else None,
            "earlier": self.earlier,
            "decisions": [d.model_dump(mode="json") for d in self.decisions],
        }


def undecided(command: SwitchCommand) -> dict[str, Any]:
    """Return a command without a decision, for a program."""
    return {
        "cluster": command.cluster,
        "command": command.command.value,
        "idempotency_key": command.idempotency_key,
        "dry_run": command.dry_run,
        "accepted": None,
        "code": None,
        "decisions": [],
    }


def find_result(
    command: SwitchCommand, decisions: Iterable[SwitchDecision], *, earlier: bool = False
) -> CommandResult | None:
    """Return the result of a command from these decisions, by their subject or evidence; None if none follows."""
    subject, event = command.subject(), event_id(command)
    found = {d.decision_id: d for d in decisions if d.subject == subject or event in d.evidence}
    return CommandResult(command, tuple(sorted(found.values(), key=lambda d: d.sequence)), earlier) if found else None


def result_lines(result: CommandResult) -> Iterator[RenderableType]:
    """Format the result for an operator: the rejection or the decisions, then the key of the command."""
    if result.earlier:
        yield Text("A command with this key was decided before:", "yellow")
    if result.refusal is not None:
        yield decision_line(result.refusal)
    else:
        yield from map(decision_line, result.decisions[:SHOWN])
        if len(result.decisions) > SHOWN:
            yield Text(f"and {len(result.decisions) - SHOWN} more decisions", "dim")
        if any(d.mode is Mode.SHADOW and d.verdict in ORDERS for d in result.decisions):
            yield Text("policies.switching.mode is shadow: no executor carries out these orders", "yellow")
    last = result.decisions[-1]
    yield Text(f"{result.command.command.value} {result.command.idempotency_key}, epoch {last.epoch}", "dim")


def decision_line(decision: SwitchDecision) -> Text:
    """Format one decision: its verdict and its explanation."""
    name = "REJECTED" if decision.verdict is SwitchVerdict.REJECT else decision.verdict.value
    code = f" {decision.code.value}" if decision.code is not None else ""
    colour = "bold red" if code or decision.verdict in _BAD else "bold"
    return Text.assemble((f"{name}{code}", colour), ": ", decision.explanation)


CLIENT_ID = "headgate-switch"

_AFTERMATH_SECONDS = 0.5
"""A command may lead to several decisions of one batch, which may come in several fetches."""
_LONGEST_AFTERMATH_SECONDS = 2.0
_LEDGERS = "/ledgers/"

_READER: EventReader[Any] = EventReader((SwitchDecision, SwitchRecord, SwitchPrecheck))

Value = TypeVar("Value")


class NoDecisionError(Exception):
    """No decision arrived in time.

    Args:
        message: names the missing decision and the likely cause.
    """

    def __init__(self, message: str, command: SwitchCommand) -> None:
        super().__init__(message)
        self.command = command


Received = Event[SwitchDecision | SwitchRecord | SwitchPrecheck]
"""A decision or report, with the id of its event."""


class LoopClient:
    """A client of the running loop, for one broker cluster; use it as a context manager, from one thread.

    Args:
        timeout_seconds: how long to wait for a decision.
        with_past: also receive all decisions in force from before the connection.

    Raises:
        UserError: the loop's Kafka is not known.
    """

    def __init__(self, settings: Settings, cluster: str, timeout_seconds: float, *, with_past: bool = False) -> None:
        self._connection = settings.loop_kafka()
        self._cluster = cluster
        self.timeout_seconds = timeout_seconds
        self._commands = settings.topics.topic(observed_topic(SwitchCommand))
        self._histories: dict[str, timedelta | None] = {
            settings.topics.topic(SwitchDecision.topic): None if with_past else timedelta(0),
            settings.topics.topic(observed_topic(SwitchPrecheck)): timedelta(0),
        }
        self.received: list[Received] = []
        """All decisions and reports so far, in their order."""
        self._asked = b""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._tail = stack.enter_context(Tail(self._connection, self._histories, CLIENT_ID))
            for record in read_past(self._tail):  # from then on no decision is missed
                self._take(record)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def record(self) -> SwitchRecord | None:
        """Return the latest record of the switch; None if none was received (needs `with_past`)."""
        return max(self.records(), key=lambda r: r.sequence, default=None)

    def records(self) -> list[SwitchRecord]:
        """Return all records of the switch, in the order received."""
        return [r.data for r in self.received if isinstance(r.data, SwitchRecord)]

    def execute(self, command: SwitchCommand) -> CommandResult:
        """Send a command, and return its result.

        With `with_past`, a command with an earlier key is not sent again while its result is still in the topic.

        Raises NoDecisionError if no decision arrived in time, UserError if the command could not be sent.
        """
        earlier = self._find_result(command, earlier=True)
        if earlier is not None:
            return earlier
        asked = event_id(command)
        self._asked = asked.encode()
        send(self._connection, self._commands, {asked: command})
        otherwise = (
            f"No decision within {self.timeout_seconds:g} s: the query (`headgate run` or `headgate decide`) may not "
            "be running. The command waits for it in Kafka. To get the result later, repeat the command with "
            f"--idempotency-key {command.idempotency_key}: that does not run it twice."
        )
        result = self.wait_for(lambda: self._find_result(command), otherwise, command)
        until = time.monotonic() + _LONGEST_AFTERMATH_SECONDS
        while self.poll(_AFTERMATH_SECONDS) and time.monotonic() < until:
            pass
        return self._find_result(command) or result

    def wait_for(self, find: Callable[[], Value | None], otherwise: str, command: SwitchCommand) -> Value:
        """Poll until `find` returns a value.

        Raises:
            NoDecisionError: it returned none in time; the message is `otherwise`.
        """
        until = time.monotonic() + self.timeout_seconds
        while (found := find()) is None:
            if time.monotonic() > until:
                problem = f" ({self._tail.problem})" if self._tail.problem else ""
                raise NoDecisionError(f"{otherwise}{problem}", command)
            self.poll(0.2)
        return found

    def _find_result(self, command: SwitchCommand, *, earlier: bool = False) -> CommandResult | None:
        decisions = (r.data for r in self.received if isinstance(r.data, SwitchDecision))
        return find_result(command, decisions, earlier=earlier)

    def poll(self, timeout_seconds: float) -> bool:
        """Receive the next records, waiting at most this long. Returns whether there were any."""
        records = self._tail.poll(timeout_seconds)
        for record in records:
            self._take(record)
        return bool(records)

    def _take(self, record: Record) -> None:
        """Keep a record of the cluster.

        Decisions about single ledgers may be very many: only those that name the command as their evidence are decoded.
        """
        key = (record.key or b"").decode(errors="replace")
        is_asked = bool(self._asked) and self._asked in (record.value or b"")
        is_other_ledger = key.startswith(f"{self._cluster}{_LEDGERS}") and not is_asked
        if is_other_ledger or not f"{key}/".startswith(f"{self._cluster}/"):
            return
        event = _decode(record)
        if event is not None and event.data.cluster == self._cluster:
            self.received.append(event)


def _decode(record: Record) -> Received | None:
    """Decode a record; None for records of other policies, which share the topics."""
    try:
        return _READER.read(record.value) if record.value is not None else None
    except BadRecordError:
        return None
