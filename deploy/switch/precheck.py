"""The commands `headgate switch precheck` and `plan`: read live data once and judge it. They write nothing."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from connectors.bookkeeper.cluster import now_ms
from connectors.switching.clusters import ClusterSessions
from connectors.switching.readings import check_switch
from connectors.zookeeper.session import NotConnectedError, UnreadError, describe_zookeeper_error
from deploy.console.terminal import SafeConsole
from deploy.settings.application import Settings
from policies.observations import Outcome
from policies.switching.ledgers import HitClass, LedgerKind, LedgerState, find_owner, with_ledger
from policies.switching.precheck import PrecheckSnapshot, ids_to_import
from policies.switching.readings import SwitchPrecheck
from policies.units import UserError, counted, human_bytes, human_seconds

# The clusters of a switch: those that the settings name, and their identity as read at their address.


def open_sessions(settings: Settings, cluster: str) -> ClusterSessions:
    """Open the ZooKeeper of a cluster's brokers, and of the BookKeeper clusters that they may write to.

    Raises UserError if the settings do not have them.
    """
    watched = settings.watched(cluster)
    if watched.bookkeeper is None or watched.zookeeper is None:
        raise UserError(f"clusters.{cluster}.bookkeeper: is not set, so there are no clusters to switch between")
    return ClusterSessions(cluster, watched.zookeeper, watched.bookkeeper)


def identify_cluster(settings: Settings, cluster: str, name: str) -> dict[str, str]:
    """Return the arguments of `register`: name, address and identity of a BookKeeper cluster.

    The identity is read at the address, because a name alone never suffices to register a cluster.

    Raises UserError if the settings do not have its address, or no supported BookKeeper cluster is there.
    """
    with open_sessions(settings, cluster) as sessions:
        try:
            return sessions.identify(name)
        except (NotConnectedError, UnreadError) as error:
            block = f"clusters.{cluster}.bookkeeper.clusters.{name}"
            raise UserError(f"{block}: cannot be read: {describe_zookeeper_error(error)}") from None


# Formats a precheck's report, made by the command line or published by the loop: verdict, readings, findings.

SHOWN = 10
"""The most failed readings that are shown; the others are counted."""

_COLOURS = {HitClass.OURS_COMPLETE: "green", HitClass.OURS_PARTIAL: "yellow", HitClass.FOREIGN: "bold red"}
_UNKNOWN = Text("unknown", "bold red")


def report_lines(
    reading: SwitchPrecheck, seen: PrecheckSnapshot | None = None, *, explained: bool = True
) -> Iterator[RenderableType]:
    """Format a report.

    Args:
        seen: the readings of the report; None if the loop published it.
        explained: add the remedy of each finding.
    """
    if reading.outcome is not Outcome.OK:
        why = f"{reading.outcome.value}: {reading.detail}" if reading.detail else reading.outcome.value
        yield Text(f"The precheck of {reading.target} could not be made: {why}", "bold red")
        return
    yield from verdict_lines(reading)
    if seen is not None:
        yield _table_clusters(seen)
    ids = (reading.source_next_id, reading.target_next_id)
    source_id, target_id = ("unknown" if each is None else each for each in ids)
    yield Text(f"next ledger ids: {source_id} in {reading.source}, {target_id} in {reading.target}")
    found = f"{counted(reading.to_import, 'ledger')} to import; the greatest id is {reading.greatest_id}"
    is_whole = seen is None or seen.references_complete
    yield Text(found) if is_whole else Text.assemble(("at least: ", "bold red"), found)
    yield from staying_lines(reading)
    if seen is not None and seen.existing is None:
        yield Text(f"what exists in {reading.target} is unknown", "bold red")
    elif reading.hits:
        text = Text(f"in {reading.target} exist")
        for hit, hits in reading.hits.items():  # ledgers at ids to import, by class
            text.append(f"  {hit.value} ").append(str(hits.count), _COLOURS[hit] if hits.count else "dim")
        yield text
    yield from finding_lines(reading)
    for remedy, reason in {each.remedy: each.reason for each in reading.findings if each.remedy and explained}.items():
        yield Padding(Text.assemble((f"{reason.value}: ", "bold cyan"), (remedy, "cyan")), (1, 0, 0, 2))
    problems = () if seen is None else seen.problems
    for problem in problems[:SHOWN]:
        yield Text.assemble(("not read", "bold yellow"), ": ", problem)
    if len(problems) > SHOWN:
        yield Text(f"and {len(problems) - SHOWN} more that could not be read", "yellow")
    yield Text(f"digest {reading.digest}, counts for {human_seconds(reading.valid_ms / 1000)}", "dim")


def verdict_lines(reading: SwitchPrecheck) -> Iterator[Text]:
    """Format the verdict, and a warning if the target is ready only because the settings bypass a finding."""
    way = f"{reading.source} to {reading.target}"
    if reading.ready:
        yield Text(f"READY: {way}", "bold green")
    else:
        reasons = dict.fromkeys(finding.reason for finding in reading.findings)
        yield Text(f"NOT READY: {way}: {', '.join(reasons)}", "bold red")
    if reading.bypassed:
        why = "ids may collide, and policies.switching.skip_idgen_precheck allows that; for labs only"
        yield Text.assemble(("PRECHECK BYPASSED", "bold red"), f": {why}")


def finding_lines(reading: SwitchPrecheck) -> Iterator[Text]:
    """Format the findings with their numbers."""
    for finding in reading.findings:
        yield Text.assemble((finding.reason.value, "bold red"), ": ", finding.detail)


def _table_clusters(seen: PrecheckSnapshot) -> Table:
    pair = (seen.source, seen.target)
    table = Table("", f"source {seen.source.name}", f"target {seen.target.name}")
    for label, name in (("instance", "instance_id"), ("root", "root"), ("layout", "layout")):
        table.add_row(label, *(getattr(each, name) or _UNKNOWN for each in pair))
    ceilings = (str(each.generator.ceiling) if each.generator else _UNKNOWN for each in pair)
    table.add_row("may give ids up to", *ceilings)
    return table


def staying_lines(reading: SwitchPrecheck) -> Iterator[Text]:
    """Count the ledgers that stay, and list the znodes that were not read."""
    counts = [f"{each.count} {each.kind.value} in {each.cluster or 'any of the clusters'}" for each in reading.staying]
    if counts:
        yield Text(f"ledgers that stay: {', '.join(counts)}")
    for path in reading.left_out:
        yield Text.assemble(("left out by the settings", "bold yellow"), ": ", path)


def run_precheck(settings: Settings, cluster: str, target: str, *, as_json: bool, explained: bool) -> bool:
    """Check whether a broker cluster may switch to a BookKeeper cluster, and print the report.

    Returns:
        Whether the target is ready.

    Raises:
        UserError: the settings do not have the clusters' addresses, or not usable ones.
    """
    report, seen = check(settings, cluster, target)
    if as_json:
        rules, checked_ms = settings.policies.switching.for_cluster(cluster), now_ms()
        plain = {
            **report.model_dump(mode="json", exclude={"outcome", "detail", "to_import", "valid_ms"}),
            "ids_to_import": sorted(ids_to_import(seen, rules)),
            "checked_ms": checked_ms,
            "expires_ms": checked_ms + report.valid_ms,
            "references": len(seen.references),
            "problems": seen.problems,
        }
        typer.echo(json.dumps(plain))
    else:
        console = SafeConsole()
        for line in report_lines(report, seen, explained=explained):
            console.print(line, highlight=False)
    return report.ready


def check(settings: Settings, cluster: str, target: str) -> tuple[SwitchPrecheck, PrecheckSnapshot]:
    """Read both clusters and all references, and judge them. Raises as `run_precheck` does."""
    rules = settings.policies.switching.for_cluster(cluster)
    with open_sessions(settings, cluster) as sessions:
        return check_switch(sessions, target, rules)


# The command `headgate switch plan`: previews a switch and its duration from live data.
#
# It runs a precheck and reads the size of each ledger to copy. It needs no running loop.

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
    closed = [facts[i] for i in copied if i in facts and facts[i].state is LedgerState.CLOSED]
    length_bytes = sum(ledger.length_bytes for ledger in closed)
    bytes_per_second = min(BYTES_PER_SECOND, limits.copy_bytes_per_second or BYTES_PER_SECOND)
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
        "build_seconds": max(len(copied) / LEDGERS_PER_SECOND, length_bytes / bytes_per_second),
        "promote_seconds": len(kinds) / LEDGERS_PER_SECOND,
        "rates": {"ledgers_per_second": LEDGERS_PER_SECOND, "bytes_per_second": bytes_per_second},
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
    yield table
    yield from staying_lines(report)
    for problem in plan["problems"]:
        yield Text.assemble(("not read", "bold yellow"), ": ", problem)
