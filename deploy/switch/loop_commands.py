"""Runs the commands of a switch on the running loop: shows a preview, asks, sends the command and prints its result."""

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum
from typing import Any, Self, TypeVar

import typer
from pydantic import ValidationError
from rich.console import Console, RenderableType
from rich.text import Text

from connectors.kafka.tail import Record, Tail, read_past
from deploy.inspection.requests import actor, option_error, send
from deploy.settings.application import Settings
from deploy.switch.precheck import report_lines
from policies.decisions import Mode, deterministic_id
from policies.observations import Outcome
from policies.registry import observed_topic
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import CommandArgs, CommandName, SwitchCommand, SwitchPrecheck
from policies.switching.state import ENDED
from policies.units import UserError
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


# A client of the loop, which sends commands and receives the decisions about them.

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


# Runs one command from start to end.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRunner:
    """Runs commands on the loop that the settings name, for an operator at a terminal or a program that reads JSON."""

    settings: Settings
    cluster: str
    console: Console
    timeout_seconds: float = 60.0
    actor: str | None = None
    """Default: the user and the host."""
    reason: str = ""
    key: str | None = None
    """Default: a new one."""
    expected_epoch: int | None = None
    dry_run: bool = False
    as_json: bool = False
    yes: bool = False
    """Whether every question is answered with yes in advance."""

    def make_command(self, name: str, /, digest: str | None = None, **args: Any) -> SwitchCommand:
        """Make the command with this name.

        Raises UserError if an option is longer or larger than the wire format allows.
        """
        try:
            return SwitchCommand(
                cluster=self.cluster,
                outcome=Outcome.OK,
                command=CommandName(name),
                args=CommandArgs(**args),
                actor=self.actor or actor(),
                reason=self.reason,
                idempotency_key=str(uuid.uuid4()) if self.key is None else self.key,
                dry_run=self.dry_run,
                expected_epoch=self.expected_epoch,
                precheck_digest=digest,
            )
        except ValidationError as error:
            raise option_error(error) from None

    def run(self, name: str, /, **args: Any) -> ExitStatus:
        """Send one command and print its result. Raises as `LoopClient.execute` does."""
        command = self.make_command(name, **args)
        return self._use_loop(lambda loop: self._execute(loop, command))

    def confirm_and_run(self, question: str, name: str, /, **args: Any) -> ExitStatus:
        """Show the result of a dry run, ask, and send the command. Raises as `LoopClient.execute` does."""
        if self.dry_run:
            return self.run(name, **args)
        command = self.make_command(name, **args)
        self._require_terminal()
        return self._use_loop(lambda loop: self._preview_and_run(loop, command, question))

    def _preview_and_run(self, loop: LoopClient, command: SwitchCommand, question: str) -> ExitStatus:
        if not self.yes:
            trial = command.model_copy(update={"dry_run": True, "idempotency_key": str(uuid.uuid4())})
            preview = loop.execute(trial)
            self._show(map(decision_line, preview.decisions))
            if preview.refusal is not None:
                self._print_json(preview.plain())
                return ExitStatus.REJECTED
            if not self._confirm(question):
                return self._withdraw(command, "Nothing is changed.")
        return self._execute(loop, command)

    def clean_up(self, *, execute: bool) -> ExitStatus:
        """List the ledgers to delete; with `execute`, ask and delete them."""
        if self.dry_run or not execute:
            return replace(self, dry_run=True).run("cleanup")
        return self.confirm_and_run("Delete these ledgers? This cannot be undone.", "cleanup")

    def start(self, target: str, digest: str | None) -> ExitStatus:
        """Start a switch on the report with this digest, or else on a report that is made now and shown."""
        if digest is not None:
            return self.run("start", digest=digest, target=target)
        command = self.make_command("start", target=target)
        if not self.dry_run:
            self._require_terminal()
        return self._use_loop(lambda loop: self._start(loop, command, target), with_past=True)

    def _start(self, loop: LoopClient, command: SwitchCommand, target: str) -> ExitStatus:
        record = loop.record()
        if record is not None and is_under_way(record):
            if record.target == target:
                self._show([Text(f"The switch to {target} is at {record.verdict.value}: it is driven on.")])
                if not self._confirm(f"Drive the switch of {command.cluster} to {target} on?"):
                    return self._withdraw(command, "Nothing is started.")
            return self._execute(loop, command)  # to another target it is refused, and needs no precheck for that
        checking = replace(self, key=None, dry_run=False).make_command("precheck", target=target)
        ordered = loop.execute(checking)
        if ordered.refusal is not None:
            return self._print_result(ordered.plain(), result_lines(ordered), ordered.exit_status)
        report, refusal = self._await_report(loop, ordered.decisions[-1], checking)
        shown = {"precheck": None if report is None else report.model_dump(mode="json")}
        if report is not None:
            self._show(report_lines(report))
        if report is None or refusal is not None or not report.ready:
            plain = {**undecided(command), **shown, "accepted": False}
            return self._print_result(plain, [decision_line(refusal)] if refusal else [], ExitStatus.REJECTED)
        if not self._confirm(f"Switch the brokers of {command.cluster} from {report.source} to {report.target}?"):
            return self._withdraw(command, "Nothing is started.", **shown)
        return self._execute(loop, command.model_copy(update={"precheck_digest": report.digest}), **shown)

    def _await_report(
        self, loop: LoopClient, order: SwitchDecision, checking: SwitchCommand
    ) -> tuple[SwitchPrecheck | None, SwitchDecision | None]:
        if order.mode is Mode.SHADOW:
            raise UserError(
                "policies.switching.mode is shadow: no executor carries out a precheck, and a switch would not start. "
                "`headgate switch precheck` makes a report of its own."
            )
        self._show([Text(f"{order.explanation}: the executor is asked for a report …", "dim")])
        otherwise = (
            f"No report came within {self.timeout_seconds:g} s: the executor (`headgate run` or `headgate act`) may "
            "not be running, or it needs longer: see --timeout. `headgate switch precheck` makes a report of its own."
        )
        target = checking.args.target or ""
        return loop.wait_for(lambda: find_report(loop.received, order, target), otherwise, checking)

    def _execute(self, loop: LoopClient, command: SwitchCommand, **more: Any) -> ExitStatus:
        result = loop.execute(command)
        return self._print_result({**result.plain(), **more}, result_lines(result), result.exit_status)

    def _withdraw(self, command: SwitchCommand, sentence: str, **more: Any) -> ExitStatus:
        return self._print_result({**undecided(command), **more}, [Text(sentence)], ExitStatus.REJECTED)

    def _print_result(
        self, plain: dict[str, Any], lines: Iterable[RenderableType], exit_status: ExitStatus
    ) -> ExitStatus:
        self._show(lines)
        self._print_json(plain)
        return exit_status

    def _require_terminal(self) -> None:
        """Check that an operator can answer, before anything is sent."""
        if not self.yes and not sys.stdin.isatty():
            raise UserError("--yes: nobody can be asked here, as standard input is no terminal: give --yes to agree")

    def _confirm(self, question: str) -> bool:
        """Ask on standard error, because a program reads standard output."""
        return self.dry_run or self.yes or typer.confirm(question, err=True)

    def _show(self, lines: Iterable[RenderableType]) -> None:
        """Print lines for an operator."""
        for line in () if self.as_json else lines:
            self.console.print(line, highlight=False)

    def _print_json(self, plain: dict[str, Any]) -> None:
        """Print a value for a program."""
        if self.as_json:
            typer.echo(json.dumps(plain))

    def _use_loop(self, action: Callable[[LoopClient], ExitStatus], *, with_past: bool = False) -> ExitStatus:
        # A key that the operator chose may have been used before, and its result may still be in the topic.
        with_past = with_past or self.key is not None
        with LoopClient(self.settings, self.cluster, self.timeout_seconds, with_past=with_past) as loop:
            try:
                return action(loop)
            except NoDecisionError as error:
                typer.echo(str(error), err=True)
                self._print_json(undecided(error.command))
                return ExitStatus.NO_DECISION


def is_under_way(record: SwitchRecord) -> bool:
    """Whether a switch has begun and not ended: `start` to its target then drives it on, without a precheck."""
    return record.attempt > 0 and record.verdict not in ENDED


def find_report(
    received: Sequence[Received], order: SwitchDecision, target: str
) -> tuple[SwitchPrecheck | None, SwitchDecision | None] | None:
    """Return the report that followed an order, and the decision that rejects it, if any; None until it arrives.

    A precheck that failed has only a reading: the policy makes no decision on it.
    """
    readings = {r.id: r.data for r in received if isinstance(r.data, SwitchPrecheck) and r.data.target == target}
    for decision in (each.data for each in received if isinstance(each.data, SwitchDecision)):
        if decision.subject == order.subject and decision.sequence > order.sequence:
            report = next((readings[i] for i in decision.evidence if i in readings), None)
            refusal = decision if decision.verdict is SwitchVerdict.REJECT else None
            if report is not None or refusal is not None:
                return report, refusal
    failed = next((reading for reading in readings.values() if reading.outcome is not Outcome.OK), None)
    return (failed, None) if failed is not None else None
