"""The loop's answer to a command: accepted or refused, the exit status, and the text or JSON to print."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from policies.decisions import Mode, deterministic_id
from policies.switching.decisions import ORDERS, RejectCode, SwitchDecision, SwitchVerdict
from policies.switching.readings import SwitchCommand

SHOWN = 10
"""So many decisions are shown, and the others counted."""

_COLOURS: Mapping[SwitchVerdict, str] = {
    SwitchVerdict.REJECT: "bold red",
    SwitchVerdict.HALT: "bold red",
    SwitchVerdict.BLOCKED: "bold red",
    SwitchVerdict.DEGRADED: "bold red",
    SwitchVerdict.REMAP_REQUIRED: "bold yellow",
    SwitchVerdict.PREVIEW: "cyan",
    SwitchVerdict.ADVANCE: "green",
}


class ExitStatus(IntEnum):
    """How the command line ends; a user's mistake ends it with 2."""

    ACCEPTED = 0
    REJECTED = 1
    NO_DECISION = 3


def event_id(command: SwitchCommand) -> str:
    """The id of the event that a command is: the same key is the same command, and so the same event."""
    return deterministic_id("switch-command", command.cluster, command.idempotency_key)


def concerns(command: SwitchCommand, decision: SwitchDecision) -> bool:
    """Whether a decision follows from a command: it names it as its subject or as its evidence."""
    return decision.subject == command.subject() or event_id(command) in decision.evidence


@dataclass(frozen=True, slots=True)
class CommandResult:
    """All that was decided about one command."""

    command: SwitchCommand
    decisions: tuple[SwitchDecision, ...]
    """In the order of their sequence; at least one."""
    earlier: bool = False
    """Whether it was decided before: a command with this key had been sent already."""

    @property
    def refusal(self) -> SwitchDecision | None:
        """The decision that says why not; None for a command that was accepted."""
        return next((d for d in self.decisions if _refuses(self.command, d)), None)

    @property
    def code(self) -> RejectCode | None:
        """Of its rejection."""
        return self.refusal.code if self.refusal is not None else None

    @property
    def exit_status(self) -> ExitStatus:
        """How the command line ends."""
        return ExitStatus.ACCEPTED if self.refusal is None else ExitStatus.REJECTED

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            **undecided(self.command),
            "accepted": self.refusal is None,
            "code": self.code.value if self.code is not None else None,
            "earlier": self.earlier,
            "decisions": [d.model_dump(mode="json") for d in self.decisions],
        }


def undecided(command: SwitchCommand) -> dict[str, Any]:
    """For programs, what is known before anything was decided."""
    return {
        "cluster": command.cluster,
        "command": command.command.value,
        "idempotency_key": command.idempotency_key,
        "dry_run": command.dry_run,
        "accepted": None,
        "code": None,
        "decisions": [],
    }


def _refuses(command: SwitchCommand, decision: SwitchDecision) -> bool:
    # One command may set off others' rejections, such as that of a broker's late report.
    own = decision.subject == command.subject()
    rejects = own and (decision.verdict is SwitchVerdict.REJECT or decision.code is not None)
    return rejects or decision.verdict is SwitchVerdict.HALT


def result_of(
    command: SwitchCommand, decisions: Iterable[SwitchDecision], *, earlier: bool = False
) -> CommandResult | None:
    """What was decided about a command, among these decisions; None while nothing is."""
    found = {d.decision_id: d for d in decisions if concerns(command, d)}
    if not found:
        return None
    return CommandResult(command, tuple(sorted(found.values(), key=lambda d: d.sequence)), earlier)


def result_lines(result: CommandResult) -> Iterator[RenderableType]:
    """The result, as a person reads it at a glance: first whether, then what, then how to name it."""
    if result.earlier:
        yield Text("A command with this key was decided before:", "yellow")
    if result.refusal is not None:
        yield decision_line(result.refusal)
    else:
        yield from _decision_lines(result.decisions)
    last = result.decisions[-1]
    yield Text(f"{result.command.command.value} {result.command.idempotency_key}, epoch {last.epoch}", "dim")


def _decision_lines(decisions: Sequence[SwitchDecision]) -> Iterator[Text]:
    for decision in decisions[:SHOWN]:
        yield decision_line(decision)
    if len(decisions) > SHOWN:
        yield Text(f"and {len(decisions) - SHOWN} more decisions", "dim")
    if any(d.mode is Mode.SHADOW and d.verdict in ORDERS for d in decisions):
        yield Text("policies.switching.mode is shadow: nobody carries these orders out", "yellow")


def decision_line(decision: SwitchDecision) -> Text:
    """One decision: what it is, and its sentence."""
    refused = decision.code is not None
    colour = "bold red" if refused else _COLOURS.get(decision.verdict, "bold")
    name = "REJECTED" if decision.verdict is SwitchVerdict.REJECT else decision.verdict.value
    code = f" {decision.code.value}" if decision.code is not None else ""
    return Text.assemble((f"{name}{code}", colour), ": ", decision.explanation)
