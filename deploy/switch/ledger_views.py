"""Lists single ledgers of a switch: those that failed, and those that a clean-up would delete.

The decided topic has the latest decision about each ledger; only the listed ones are kept in memory.
"""

import json
from collections.abc import Iterable, Iterator

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from deploy.commands.console import indent_body, sentence_console
from deploy.settings.application import Settings
from deploy.switch.loop_client import LoopClient, Wanted
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchReason, SwitchRecord
from policies.switching.state import FAILED, LedgerStage
from policies.units import counted

_READ_SECONDS = 1.0
_LEFT = frozenset({SwitchReason.RETRIES_EXHAUSTED, SwitchReason.NOT_READY, SwitchReason.WIDE_CHANGE})


def has_failed(decision: SwitchDecision) -> bool:
    """Whether the latest decision about a ledger leaves it behind, or gives up its order."""
    if decision.ledger is None or decision.verdict in ORDERS:
        return False
    return decision.ledger.stage in FAILED or decision.reason in _LEFT


def is_to_clean(decision: SwitchDecision) -> bool:
    """Whether a ledger is attributed to the target, and still exists in the source."""
    return decision.ledger is not None and decision.ledger.stage in (LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT)


def select_ledgers(decisions: Iterable[SwitchDecision], record: SwitchRecord | None) -> list[SwitchDecision]:
    """Return the decisions about ledgers of the present switch, by id. The topic may have those of earlier switches."""
    way = (record.source, record.target) if record is not None else None
    found = ((d.ledger.ledger_id, d) for d in decisions if d.ledger and way in (None, (d.source, d.target)))
    return [decision for _, decision in sorted(found, key=lambda pair: (pair[0], pair[1].subject))]


def show_failed(settings: Settings, cluster: str, *, as_json: bool) -> None:
    """Print the ledgers that failed, with the reasons. Raises as `show_ledgers` does."""
    show_ledgers(settings, cluster, has_failed, "No ledger failed.", as_json=as_json)


def show_ledgers(settings: Settings, cluster: str, wanted: Wanted, otherwise: str, *, as_json: bool) -> None:
    """Print all selected ledgers of a broker cluster's present switch.

    Raises:
        UserError: the loop's Kafka is not known, or does not answer.
    """
    with LoopClient(settings, cluster, _READ_SECONDS, with_past=True, ledgers=wanted) as loop:
        found = select_ledgers(loop.ledgers.values(), loop.record())
    if as_json:
        for decision in found:
            typer.echo(json.dumps(plain_ledger(decision)))
        return
    console = sentence_console()
    for line in ledger_lines(found, otherwise, console):
        console.print(line, soft_wrap=isinstance(line, Text))  # a path with a line break cannot be copied


def ledger_lines(decisions: list[SwitchDecision], otherwise: str, console: Console) -> Iterator[RenderableType]:
    """Format each ledger with what happened to it and its znodes, and their number; `otherwise` if there is none."""
    for each in decisions:
        plain = plain_ledger(each)
        yield Text.assemble((f"{plain['ledger']}", "bold"), f" {plain['kind']}: {plain['stage']}, {plain['reason']}")
        yield indent_body(console, Text("    "), Text(f"{plain['detail']}"))
        for path in each.ledger.paths if each.ledger else ():
            yield Text(f"    {path}")
    yield Text(counted(len(decisions), "ledger") if decisions else otherwise)


def plain_ledger(decision: SwitchDecision) -> dict[str, object]:
    """Return a ledger and its latest decision, for a program."""
    ledger = decision.ledger
    assert ledger is not None  # noqa: S101 - only decisions about ledgers come here
    return {
        "ledger": ledger.ledger_id,
        "target_id": ledger.target_id,
        "kind": ledger.kind.value,
        "stage": ledger.stage.value,
        "reason": decision.reason.value,
        "detail": decision.explanation,
        "paths": list(ledger.paths),
    }
