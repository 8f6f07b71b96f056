"""The result of a command: accepted or rejected, the exit status, and the text or JSON to print."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from policies.decisions import Mode, deterministic_id
from policies.switching.decisions import ORDERS, RejectCode, SwitchDecision, SwitchVerdict
from policies.switching.readings import SwitchCommand

SHOWN = 10
"""The most decisions that are shown; the others are counted."""

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
    """The exit status of a command; a user's mistake has 2."""

    ACCEPTED = 0
    REJECTED = 1
    NO_DECISION = 3


def event_id(command: SwitchCommand) -> str:
    """Return the event id of a command: a repeated key is the same command, and so the same event."""
    return deterministic_id("switch-command", command.cluster, command.idempotency_key)


def concerns(command: SwitchCommand, decision: SwitchDecision) -> bool:
    """Whether a decision follows from a command, by its subject or its evidence."""
    return decision.subject == command.subject() or event_id(command) in decision.evidence


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
        """The decision that rejects the command; None if it was accepted."""
        return next((d for d in self.decisions if _refuses(self.command, d)), None)

    @property
    def code(self) -> RejectCode | None:
        """The code of its rejection; None if it was accepted."""
        return self.refusal.code if self.refusal is not None else None

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status of the command line."""
        return ExitStatus.ACCEPTED if self.refusal is None else ExitStatus.REJECTED

    def plain(self) -> dict[str, Any]:
        """Return the result for a program."""
        return {
            **undecided(self.command),
            "accepted": self.refusal is None,
            "code": self.code.value if self.code is not None else None,
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


def _refuses(command: SwitchCommand, decision: SwitchDecision) -> bool:
    # One command may cause other rejections, such as that of a broker's late report.
    own = decision.subject == command.subject()
    rejects = own and (decision.verdict is SwitchVerdict.REJECT or decision.code is not None)
    return rejects or decision.verdict is SwitchVerdict.HALT


def find_result(
    command: SwitchCommand, decisions: Iterable[SwitchDecision], *, earlier: bool = False
) -> CommandResult | None:
    """Return the result of a command from these decisions; None if none follows from it."""
    found = {d.decision_id: d for d in decisions if concerns(command, d)}
    if not found:
        return None
    return CommandResult(command, tuple(sorted(found.values(), key=lambda d: d.sequence)), earlier)


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
    refused = decision.code is not None
    colour = "bold red" if refused else _COLOURS.get(decision.verdict, "bold")
    name = "REJECTED" if decision.verdict is SwitchVerdict.REJECT else decision.verdict.value
    code = f" {decision.code.value}" if decision.code is not None else ""
    return Text.assemble((f"{name}{code}", colour), ": ", decision.explanation)
