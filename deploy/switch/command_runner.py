"""Runs one switch command from start to end: shows the preview, asks, sends the command and prints the result."""

import json
import sys
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from deploy.settings.application import Settings
from deploy.switch.loop_client import (
    CommandOptions,
    CommandResult,
    ExitStatus,
    LoopClient,
    NoDecisionError,
    Received,
    decision_line,
    result_lines,
    undecided,
)
from deploy.switch.plan import is_to_clean, show_ledgers
from deploy.switch.precheck import report_lines
from policies.decisions import Mode
from policies.observations import Outcome
from policies.switching.decisions import SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import SwitchCommand, SwitchPrecheck
from policies.switching.state import ENDED
from policies.units import UserError


@dataclass(frozen=True, slots=True)
class CommandConsole:
    """The console of a command: a terminal with an operator, or a program that reads JSON."""

    console: Console
    as_json: bool
    yes: bool = False
    """Whether every question is answered with yes in advance."""

    def require_terminal(self) -> None:
        """Check that an operator can answer, before anything is sent.

        Raises:
            UserError: standard input is no terminal, and there is no `--yes`.
        """
        if not self.yes and not sys.stdin.isatty():
            raise UserError("--yes: nobody can be asked here, as standard input is no terminal: give --yes to agree")

    def show(self, lines: Iterable[RenderableType]) -> None:
        """Print lines for an operator."""
        if not self.as_json:
            for line in lines:
                self.console.print(line, highlight=False)

    def confirm(self, question: str) -> bool:
        """Ask on standard error, because a program reads standard output."""
        return self.yes or typer.confirm(question, err=True)

    def print_result(self, result: CommandResult, **more: Any) -> ExitStatus:
        """Print the result of a command."""
        self.show(result_lines(result))
        self.print_json({**result.plain(), **more})
        return result.exit_status

    def print_json(self, plain: dict[str, Any]) -> None:
        """Print a value for a program."""
        if self.as_json:
            typer.echo(json.dumps(plain))


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs commands on the loop that the settings name, for an operator or a program."""

    settings: Settings
    options: CommandOptions
    console: CommandConsole
    timeout_seconds: float

    def with_consent(self, *, given: bool) -> "CommandRunner":
        """Return a runner whose questions are answered in advance, if so given."""
        return replace(self, console=replace(self.console, yes=given))

    def run(self, name: str, /, **args: Any) -> ExitStatus:
        """Send one command and print its result. Raises as `LoopClient.execute` does."""
        command = self.options.command(name, **args)
        return self._use_loop(lambda loop: self.console.print_result(loop.execute(command)))

    def confirm_and_run(self, question: str, name: str, /, **args: Any) -> ExitStatus:
        """Show the result of a dry run, ask, and send the command. Raises as `LoopClient.execute` does."""
        if self.options.dry_run:
            return self.run(name, **args)
        command = self.options.command(name, **args)
        self.console.require_terminal()
        return self._use_loop(lambda loop: self._confirm_and_run(loop, command, question))

    def _confirm_and_run(self, loop: LoopClient, command: SwitchCommand, question: str) -> ExitStatus:
        if not self.console.yes:
            trial = command.model_copy(update={"dry_run": True, "idempotency_key": str(uuid.uuid4())})
            preview = loop.execute(trial)
            self.console.show(decision_line(decision) for decision in preview.decisions)
            if preview.refusal is not None:
                self.console.print_json(preview.plain())
                return ExitStatus.REJECTED
            if not self.console.confirm(question):
                return self._withdraw(command, "Nothing is changed.")
        return self.console.print_result(loop.execute(command))

    def clean_up(self, *, execute: bool) -> ExitStatus:
        """List the ledgers to delete; with `execute`, ask and delete them."""
        if self.options.dry_run or not execute:
            return replace(self, options=replace(self.options, dry_run=True)).run("cleanup")
        return self.confirm_and_run("Delete these ledgers? This cannot be undone.", "cleanup")

    def list_ledgers_to_clean(self) -> ExitStatus:
        """Print every ledger that a clean-up would delete, by the decisions so far."""
        otherwise = "Nothing is promoted, so there is nothing to delete."
        show_ledgers(self.settings, self.options.cluster, is_to_clean, otherwise, as_json=self.console.as_json)
        return ExitStatus.ACCEPTED

    def start(self, target: str, digest: str | None) -> ExitStatus:
        """Start a switch on the report with this digest, or else on a report that is made now and shown."""
        command = self.options.command("start", digest=digest, target=target)
        if digest is not None:
            return self._use_loop(lambda loop: self.console.print_result(loop.execute(command)))
        if not self.options.dry_run:
            self.console.require_terminal()
        return self._use_loop(lambda loop: self._start(loop, command, target), with_past=True)

    def _start(self, loop: LoopClient, command: SwitchCommand, target: str) -> ExitStatus:
        record = loop.record()
        if record is not None and is_driven_on(record, target):
            self.console.show([Text(f"The switch to {target} is at {record.verdict.value}: it is driven on.")])
            if not self._confirm(f"Drive the switch of {self.options.cluster} to {target} on?"):
                return self._withdraw(command, "Nothing is started.")
            return self.console.print_result(loop.execute(command))
        if record is not None and record.attempt > 0 and record.verdict not in ENDED:
            return self.console.print_result(loop.execute(command))  # refused: the advice of a precheck would be wrong
        checking = replace(self.options, key=None, dry_run=False).command("precheck", target=target)
        ordered = loop.execute(checking)
        if ordered.refusal is not None:
            return self.console.print_result(ordered)
        report, decision = self._await_report(loop, ordered)
        return self._start_on_report(loop, command, report, decision)

    def _start_on_report(
        self, loop: LoopClient, command: SwitchCommand, report: SwitchPrecheck | None, decision: SwitchDecision | None
    ) -> ExitStatus:
        shown = {"precheck": None if report is None else report.model_dump(mode="json")}
        if report is not None:
            self.console.show(report_lines(report))
        if report is None or decision is None or decision.verdict is SwitchVerdict.REJECT or not report.ready:
            if decision is not None and decision.verdict is SwitchVerdict.REJECT:
                self.console.show([decision_line(decision)])
            self.console.print_json({**undecided(command), **shown, "accepted": False})
            return ExitStatus.REJECTED
        if not self._confirm(f"Switch the brokers of {command.cluster} from {report.source} to {report.target}?"):
            return self._withdraw(command, "Nothing is started.", **shown)
        return self.console.print_result(
            loop.execute(command.model_copy(update={"precheck_digest": report.digest})), **shown
        )

    def _await_report(
        self, loop: LoopClient, ordered: CommandResult
    ) -> tuple[SwitchPrecheck | None, SwitchDecision | None]:
        order, target = ordered.decisions[-1], ordered.command.args.target
        if order.mode is Mode.SHADOW:
            raise UserError(
                "policies.switching.mode is shadow: no executor carries out a precheck, and a switch would not start. "
                "`headgate switch precheck` makes a report of its own."
            )
        self.console.show([Text(f"{order.explanation}: the executor is asked for a report …", "dim")])
        otherwise = (
            f"No report came within {self.timeout_seconds:g} s: the executor (`headgate run` or `headgate act`) may "
            "not be running, or it needs longer: see --timeout. `headgate switch precheck` makes a report of its own."
        )
        return loop.wait_for(lambda: find_report(loop.received, order, target or ""), otherwise, ordered.command)

    def _confirm(self, question: str) -> bool:
        return self.options.dry_run or self.console.confirm(question)

    def _withdraw(self, command: SwitchCommand, sentence: str, **more: Any) -> ExitStatus:
        self.console.show([Text(sentence)])
        self.console.print_json({**undecided(command), **more})
        return ExitStatus.REJECTED

    def _use_loop(self, action: Callable[[LoopClient], ExitStatus], *, with_past: bool = False) -> ExitStatus:
        # A key that the operator chose may have been used before, and its result may still be in the topic.
        with_past = with_past or self.options.key is not None
        with LoopClient(self.settings, self.options.cluster, self.timeout_seconds, with_past=with_past) as loop:
            try:
                return action(loop)
            except NoDecisionError as error:
                typer.echo(str(error), err=True)
                self.console.print_json(undecided(error.command))
                return ExitStatus.NO_DECISION


def is_driven_on(record: SwitchRecord, target: str) -> bool:
    """Whether a switch to this target is live: `start` then drives it on, without a precheck."""
    return record.target == target and record.attempt > 0 and record.verdict not in ENDED


def find_report(
    received: Iterable[Received], order: SwitchDecision, target: str
) -> tuple[SwitchPrecheck | None, SwitchDecision | None] | None:
    """Return the report that followed an order, and the decision on it; None until it arrives.

    A precheck that failed has only a reading: the policy makes no decision on it.
    """
    all_received = list(received)
    readings = {r.id: r.data for r in all_received if isinstance(r.data, SwitchPrecheck) and r.data.target == target}
    for each in all_received:
        decision = each.data
        if not isinstance(decision, SwitchDecision) or decision.verdict is SwitchVerdict.RUN_PRECHECK:
            continue
        if decision.subject == order.subject and decision.sequence > order.sequence:
            report = next((readings[i] for i in decision.evidence if i in readings), None)
            if report is not None or decision.verdict is SwitchVerdict.REJECT:
                return report, decision
    failed = next((r for r in readings.values() if r.outcome is not Outcome.OK), None)
    return (failed, None) if failed is not None else None
