"""One command of a switch from beginning to end: what it shows, asks, sends, and how it ends."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from deploy.settings import Settings
from deploy.switch.answer import Answer, Ended, answer_lines, decision_line, unanswered
from deploy.switch.commands import Asking, Conversation, Heard, NoAnswerError
from deploy.switch.report import reading_lines
from policies.decisions import Mode
from policies.errors import UserError
from policies.observations import Outcome
from policies.switching.decisions import SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.readings import CommandName, SwitchCommand, SwitchPrecheck
from policies.switching.state import ENDED


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a person sits, or a program."""

    console: Console
    as_json: bool
    yes: bool = False
    """Whether every question is answered beforehand."""

    def must_be_able_to_ask(self) -> None:
        """Before anything is sent.

        Raises:
            UserError: nobody is there to answer.
        """
        if not self.yes and not sys.stdin.isatty():
            raise UserError("--yes: nobody can be asked here, as standard input is no terminal: give --yes to agree")

    def show(self, lines: Iterable[RenderableType]) -> None:
        """To a person."""
        if not self.as_json:
            for line in lines:
                self.console.print(line, highlight=False)

    def agrees(self, question: str) -> bool:
        """Ask, on standard error: a program reads the other one."""
        return self.yes or typer.confirm(question, err=True)

    def end(self, answer: Answer, **more: Any) -> Ended:
        """Tell what was decided."""
        self.show(answer_lines(answer))
        self.write({**answer.plain(), **more})
        return answer.ended

    def write(self, plain: dict[str, Any]) -> None:
        """To a program."""
        if self.as_json:
            typer.echo(json.dumps(plain))


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A person or program at a desk gives commands to the loop that the settings name."""

    settings: Settings
    asking: Asking
    desk: Desk
    timeout_seconds: float

    def give(self, name: CommandName, /, **args: Any) -> Ended:
        """Send one command, and tell what was decided. Raises as `Conversation.ask` does."""
        command = self.asking.command(name, **args)
        with self._conversation() as talk:
            return self._tell(lambda: self.desk.end(talk.ask(command)))

    def agreed(self, *, given: bool) -> "Dialogue":
        """The same, with every question answered beforehand if so given."""
        return replace(self, desk=replace(self.desk, yes=given))

    def clean_up(self, *, execute: bool) -> Ended:
        """List what would be deleted; to execute it, ask, and have it deleted."""
        if self.asking.dry_run or not execute:
            return replace(self, asking=replace(self.asking, dry_run=True)).give(CommandName.CLEANUP)
        self.desk.must_be_able_to_ask()
        command = self.asking.command(CommandName.CLEANUP)
        with self._conversation() as talk:
            return self._tell(lambda: self._clean_up(talk, command))

    def _clean_up(self, talk: Conversation, command: SwitchCommand) -> Ended:
        if not self.desk.yes:
            listed = talk.ask(replace(self.asking, dry_run=True, key=None).command(CommandName.CLEANUP))
            self.desk.show(decision_line(decision) for decision in listed.decisions)
            if listed.refusal is not None:
                self.desk.write(listed.plain())
                return Ended.REJECTED
            if not self.desk.agrees("Delete these ledgers? This cannot be undone."):
                return self._withdrawn(command, "Nothing is deleted.")
        return self.desk.end(talk.ask(command))

    def start(self, target: str, digest: str | None) -> Ended:
        """Start a switch: on a report that was read before, or else on one that is made now and shown."""
        command = self.asking.command(CommandName.START, digest=digest, target=target)
        if digest is not None:
            with self._conversation() as talk:
                return self._tell(lambda: self.desk.end(talk.ask(command)))
        if not self.asking.dry_run:
            self.desk.must_be_able_to_ask()
        with self._conversation(recall=True) as talk:
            return self._tell(lambda: self._start(talk, command, target))

    def _start(self, talk: Conversation, command: SwitchCommand, target: str) -> Ended:
        record = talk.record()
        if record is not None and is_driven_on(record, target):
            self.desk.show([Text(f"The switch to {target} is at {record.verdict.value}: it is driven on.")])
            if not self._agrees(f"Drive the switch of {self.asking.cluster} to {target} on?"):
                return self._withdrawn(command, "Nothing is started.")
            return self.desk.end(talk.ask(command))
        checking = replace(self.asking, key=None, dry_run=False).command(CommandName.PRECHECK, target=target)
        ordered = talk.ask(checking)
        if ordered.refusal is not None:
            return self.desk.end(ordered)
        report, said = self._report(talk, ordered)
        return self._start_on(talk, command, report, said)

    def _start_on(
        self, talk: Conversation, command: SwitchCommand, report: SwitchPrecheck | None, said: SwitchDecision | None
    ) -> Ended:
        shown = {"precheck": None if report is None else report.model_dump(mode="json")}
        if report is not None:
            self.desk.show(reading_lines(report))
        if report is None or said is None or said.verdict is SwitchVerdict.REJECT or not report.ready:
            if said is not None and said.verdict is SwitchVerdict.REJECT:
                self.desk.show([decision_line(said)])
            self.desk.write({**unanswered(command), **shown, "accepted": False})
            return Ended.REJECTED
        if not self._agrees(f"Switch the brokers of {command.cluster} from {report.source} to {report.target}?"):
            return self._withdrawn(command, "Nothing is started.", **shown)
        return self.desk.end(talk.ask(command.model_copy(update={"precheck_digest": report.digest})), **shown)

    def _report(self, talk: Conversation, ordered: Answer) -> tuple[SwitchPrecheck | None, SwitchDecision | None]:
        order, target = ordered.decisions[-1], ordered.command.args.target
        if order.mode is Mode.SHADOW:
            raise UserError(
                "policies.switching.mode is shadow: nobody carries a precheck out, and a switch would not start; "
                "`headgate switch precheck` makes a report of its own."
            )
        self.desk.show([Text(f"{order.explanation}: the executor is asked for a report …", "dim")])
        otherwise = (
            f"No report came within {self.timeout_seconds:g} s: the executor (`headgate run` or `headgate act`) may "
            "not be running, or it needs longer: see --timeout. `headgate switch precheck` makes a report of its own."
        )
        return talk.await_(lambda: find_report(talk.heard, order, target or ""), otherwise, ordered.command)

    def _agrees(self, question: str) -> bool:
        return self.asking.dry_run or self.desk.agrees(question)

    def _withdrawn(self, command: SwitchCommand, sentence: str, **more: Any) -> Ended:
        self.desk.show([Text(sentence)])
        self.desk.write({**unanswered(command), **more})
        return Ended.REJECTED

    def _conversation(self, *, recall: bool = False) -> Conversation:
        # A key that somebody chose may have been used before, and the answer to it may still be known.
        recall = recall or self.asking.key is not None
        return Conversation(self.settings, self.asking.cluster, self.timeout_seconds, recall=recall)

    def _tell(self, talk: Callable[[], Ended]) -> Ended:
        try:
            return talk()
        except NoAnswerError as error:
            typer.echo(str(error), err=True)
            self.desk.write(unanswered(error.command))
            return Ended.NO_ANSWER


def is_driven_on(record: SwitchRecord, target: str) -> bool:
    """Whether a switch to this target is under way: to start it again means to drive it on, without a precheck."""
    return record.target == target and record.attempt > 0 and record.verdict not in ENDED


def find_report(
    heard: Iterable[Heard], order: SwitchDecision, target: str
) -> tuple[SwitchPrecheck | None, SwitchDecision | None] | None:
    """The report that followed an order, and what the policy said of it; null while it has not come.

    A precheck that could not be made is told by its reading alone: the policy says nothing of it.
    """
    seen = list(heard)
    readings = {h.id: h.what for h in seen if isinstance(h.what, SwitchPrecheck) and h.what.target == target}
    for each in seen:
        said = each.what
        if not isinstance(said, SwitchDecision) or said.verdict is SwitchVerdict.RUN_PRECHECK:
            continue
        if said.subject == order.subject and said.sequence > order.sequence:
            report = next((readings[i] for i in said.evidence if i in readings), None)
            if report is not None or said.verdict is SwitchVerdict.REJECT:
                return report, said
    unmade = next((r for r in readings.values() if r.outcome is not Outcome.OK), None)
    return (unmade, None) if unmade is not None else None
