"""Runs one switch command from start to end: shows the preview, asks, sends the command and prints the result."""

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer
from pydantic import ValidationError
from rich.console import Console, RenderableType
from rich.text import Text

from deploy.inspection.requests import actor, option_error
from deploy.settings.application import Settings
from deploy.switch.loop_client import (
    ExitStatus,
    LoopClient,
    NoDecisionError,
    Received,
    decision_line,
    result_lines,
    undecided,
)
from deploy.switch.precheck import report_lines
from policies.decisions import Mode
from policies.observations import Outcome
from policies.switching.decisions import SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import CommandArgs, CommandName, SwitchCommand, SwitchPrecheck
from policies.switching.state import ENDED
from policies.units import UserError


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
