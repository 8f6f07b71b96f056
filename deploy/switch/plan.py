"""Lists single ledgers of a switch: those that failed, and those that a clean-up would delete.

The decided topic has the latest decision about each ledger.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from connectors.decided import DecisionsInForce
from connectors.switching.registration import SwitchExecution
from connectors.zookeeper.session import NotConnectedError, UnreadError
from deploy.console.terminal import SafeConsole, indent_body, sentence_console
from deploy.inspection.commands import InForceReader
from deploy.settings.application import Settings
from deploy.switch.precheck import check, finding_lines, open_sessions, staying_lines, verdict_lines
from policies.observations import Outcome
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchReason, SwitchRecord
from policies.switching.ledgers import LedgerKind, LedgerState, find_owner, with_ledger
from policies.switching.precheck import PrecheckSnapshot, ids_to_import
from policies.switching.readings import SwitchPrecheck
from policies.switching.state import FAILED, LedgerStage
from policies.units import UserError, counted, human_bytes, human_seconds

# The command `headgate switch plan`: previews a switch and its duration from live data.
#
# It runs a precheck and reads the size of each ledger to copy. It writes nothing, and needs no running loop.

LEDGERS_PER_SECOND = 150.0
BYTES_PER_SECOND = 70e6
"""Rates that were measured on two busy cores, rounded down."""

Plan = dict[str, Any]
"""A preview of a switch, as JSON has it."""


def show_plan(settings: Settings, cluster: str, target: str, *, as_json: bool) -> bool:
    """Print a preview of a switch. Returns whether the target is ready. Raises UserError as the precheck does."""
    report, seen = check(settings, cluster, target)
    plan = make_plan(settings, report, seen)
    if as_json:
        typer.echo(json.dumps(plan))
    else:
        console = SafeConsole()
        for line in plan_lines(plan, report):
            console.print(line, highlight=False)
    return report.ready


def make_plan(settings: Settings, report: SwitchPrecheck, seen: PrecheckSnapshot) -> Plan:
    """Make the preview from a precheck."""
    limits = settings.policies.switching.for_cluster(report.cluster)
    moved = (each for each in with_ledger(seen.references) if find_owner(each, seen.bootstrap) == report.source)
    kinds = {each.ledger_id: each.kind for each in moved}
    schemas = {ledger_id for ledger_id, kind in kinds.items() if kind is LedgerKind.SCHEMA}
    copied = ids_to_import(seen, limits) | schemas
    with open_sessions(settings, report.cluster) as sessions:
        try:
            facts = sessions.find_ledgers(report.source, copied).facts
        except (UnreadError, NotConnectedError, UserError):
            facts = {}
        execution = settings.watched(report.cluster).switching or SwitchExecution()
        live = sessions.read_brokers(execution.brokers_path)
    if live.outcome is not Outcome.OK:
        typer.echo(f"not read: {execution.brokers_path}: {live.detail}", err=True)
    closed = [facts[i] for i in copied if i in facts and facts[i].state is LedgerState.CLOSED]
    length_bytes = sum(ledger.length_bytes for ledger in closed)
    bytes_per_second = min(BYTES_PER_SECOND, limits.copy_bytes_per_second or BYTES_PER_SECOND)
    build_seconds = max(len(copied) / LEDGERS_PER_SECOND, length_bytes / bytes_per_second)
    promote_seconds = len(kinds) / LEDGERS_PER_SECOND
    return {
        "cluster": report.cluster,
        "source": report.source,
        "target": report.target,
        "ready": report.ready,
        "count": len(kinds),
        "ledgers": dict(sorted(Counter(kind.value for kind in kinds.values()).items())),
        "bytes": length_bytes,
        # Open ledgers are copied once their topic's owner rolls them over or unloads the topic.
        "open_ledgers": sum(i in facts and facts[i].state is not LedgerState.CLOSED for i in copied),
        "unread": sum(i not in facts for i in copied),
        "brokers": live.brokers if live.outcome is Outcome.OK else None,
        "build_seconds": build_seconds,
        "promote_seconds": promote_seconds,
        "rates": {"ledgers_per_second": LEDGERS_PER_SECOND, "bytes_per_second": bytes_per_second},
        "estimated_seconds": build_seconds + promote_seconds,
        "rollback_window_seconds": limits.rollback_window.total_seconds(),
        "cleanup_after_seconds": max(limits.cleanup_after, limits.rollback_window).total_seconds(),
        "digest": report.digest,
        "problems": seen.problems,
    }


def plan_lines(plan: Plan, report: SwitchPrecheck) -> Iterator[RenderableType]:
    """Format the plan."""
    yield from verdict_lines(report)
    yield from finding_lines(report)
    table, rates = Table("what", "how much", "estimated"), plan["rates"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in plan["ledgers"].items()) or "none"
    table.add_row("ledgers to move", f"{plan['count']} ({kinds})", "")
    table.add_row("to copy", human_bytes(plan["bytes"]), human_seconds(plan["build_seconds"]))
    table.add_row("to attribute", counted(plan["count"], "ledger"), human_seconds(plan["promote_seconds"]))
    if plan["open_ledgers"]:
        table.add_row("still written to", counted(plan["open_ledgers"], "ledger"), "once their owner rolled them over")
    if plan["unread"]:
        table.add_row("not readable", counted(plan["unread"], "ledger"), "they stay behind")
    speed = f"{rates['ledgers_per_second']:g} ledgers, {human_bytes(rates['bytes_per_second'])} a second"
    table.add_row("rate", speed, "measured on two busy cores")
    live = "not known" if plan["brokers"] is None else str(len(plan["brokers"]))
    table.add_row("live brokers", live, "they follow at once")
    for what, name in (("rollback until", "rollback_window_seconds"), ("clean-up from", "cleanup_after_seconds")):
        table.add_row(what, f"{human_seconds(plan[name])} after going live", "")
    yield table
    yield from staying_lines(report)
    for problem in plan["problems"]:
        yield Text.assemble(("not read", "bold yellow"), ": ", problem)


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


def show_ledgers(
    settings: Settings, cluster: str, wanted: Callable[[SwitchDecision], bool], otherwise: str, *, as_json: bool
) -> None:
    """Print all selected ledgers of a broker cluster's present switch.

    Raises UserError if the loop's Kafka is not known, or does not answer.
    """
    in_force = DecisionsInForce(lambda name: name == cluster, policy="switching")
    with InForceReader(settings.loop_kafka(), settings.topics.prefix, in_force) as reader:
        decisions = list(reader.now().decisions())
    record = next((each for each in decisions if isinstance(each, SwitchRecord)), None)
    found = select_ledgers((each for each in decisions if isinstance(each, SwitchDecision) and wanted(each)), record)
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
