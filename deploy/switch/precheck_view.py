"""Formats a precheck's report, made by the command line or published by the loop: verdict, readings, findings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from connectors.switching.precheck_snapshot import SnapshotResult
from policies.observations import Outcome
from policies.switching.clusters import ClusterSnapshot
from policies.switching.ledgers import NO_LEDGER, HitClass
from policies.switching.precheck.findings import FindingReason, find_remedy
from policies.switching.precheck.report import PrecheckReport
from policies.switching.precheck.snapshot import PrecheckSnapshot
from policies.switching.readings import StayingReading, SwitchPrecheck
from policies.switching.references import LedgerKind, StayingLedgers
from policies.units import counted, format_second, from_millis, human_seconds

SHOWN = 10
"""The most failed readings that are shown; the others are counted."""

_COLOURS = {HitClass.OURS_COMPLETE: "green", HitClass.OURS_PARTIAL: "yellow", HitClass.FOREIGN: "bold red"}
_UNKNOWN = Text("unknown", "bold red")


def report_lines(report: PrecheckReport, taken: SnapshotResult, *, explained: bool) -> Iterator[RenderableType]:
    """Format a report with its readings.

    Args:
        explained: add the remedy of each finding.
    """
    yield verdict_line(report.source, report.target, report.reasons, ready=report.ready)
    yield from bypass_lines(bypassed=report.bypassed)
    yield _clusters(taken.snapshot)
    yield _references(taken.snapshot, report)
    yield from staying_lines(report.staying, report.left_out)
    yield _hits(taken.snapshot, report)
    for finding in report.findings:
        yield finding_line(finding.reason, finding.detail)
    if explained:
        yield from _remedy_lines((finding.reason, find_remedy(finding)) for finding in report.findings)
    for problem in taken.problems[:SHOWN]:
        yield Text.assemble(("not read", "bold yellow"), ": ", problem)
    if len(taken.problems) > SHOWN:
        yield Text(f"and {len(taken.problems) - SHOWN} more that could not be read", "yellow")
    yield Text(f"digest {report.digest}, counts until {format_second(from_millis(report.expires_ms))}", "dim")


def verdict_line(source: str, target: str, reasons: Iterable[FindingReason], *, ready: bool) -> Text:
    """Format the verdict: the clusters, and the reasons if the target is not ready."""
    way = f"{source} to {target}"
    if ready:
        return Text(f"READY: {way}", "bold green")
    return Text(f"NOT READY: {way}: {', '.join(reasons)}", "bold red")


def bypass_lines(*, bypassed: bool) -> Iterator[Text]:
    """Warn that a report is ready only because the settings bypass a finding."""
    if bypassed:
        why = "ids may collide, and policies.switching.skip_idgen_precheck allows that; for labs only"
        yield Text.assemble(("PRECHECK BYPASSED", "bold red"), f": {why}")


def finding_line(reason: FindingReason, detail: str) -> Text:
    """Format a finding with its numbers."""
    return Text.assemble((reason.value, "bold red"), ": ", detail)


def _clusters(seen: PrecheckSnapshot) -> Table:
    table = Table("", f"source {seen.source.name}", f"target {seen.target.name}")
    columns = [_facts(cluster) for cluster in (seen.source, seen.target)]
    for name in columns[0]:
        table.add_row(name, *(column[name] or _UNKNOWN for column in columns))
    return table


def _facts(cluster: ClusterSnapshot) -> dict[str, str | None]:
    generator = cluster.generator
    return {
        "instance": cluster.instance_id,
        "root": cluster.root,
        "layout": cluster.layout,
        "next ledger id": None if generator is None else str(generator.next_id),
        "may give ids up to": None if generator is None else str(generator.ceiling),
    }


def _references(seen: PrecheckSnapshot, report: PrecheckReport) -> Text:
    kinds = Counter(each.kind for each in seen.references)
    without = sum(each.ledger_id == NO_LEDGER for each in seen.references)
    found = (
        f"{kinds[LedgerKind.SCHEMA]} schema positions and {kinds[LedgerKind.CURSOR]} cursors ({without} without a "
        f"ledger) name {len(report.ids_to_import)} ledgers to import; the greatest id is {report.greatest_id}"
    )
    return Text(found) if seen.references_complete else Text.assemble(("at least: ", "bold red"), found)


def _hits(seen: PrecheckSnapshot, report: PrecheckReport) -> Text:
    if seen.existing is None:
        return Text(f"what exists in {report.target} is unknown", "bold red")
    return _hits_line(report.target, {hit: hits.count for hit, hits in report.hits.items()})


def _hits_line(target: str, counts: Mapping[HitClass, int]) -> Text:
    """Count the ledgers that exist in the target, by class."""
    text = Text(f"in {target} exist")
    for hit, count in counts.items():
        text.append(f"  {hit.value} ")
        text.append(str(count), _COLOURS[hit] if count else "dim")
    return text


def staying_lines(staying: Iterable[StayingLedgers | StayingReading], left_out: Iterable[str]) -> Iterator[Text]:
    """Count the ledgers that stay, and list the znodes that were not read."""
    counts = [f"{each.count} {each.kind.value} in {each.cluster or 'any of the clusters'}" for each in staying]
    if counts:
        yield Text(f"ledgers that stay: {', '.join(counts)}")
    for path in left_out:
        yield Text.assemble(("left out by the settings", "bold yellow"), ": ", path)


def _remedy_lines(remedies: Iterable[tuple[FindingReason, str]]) -> Iterator[RenderableType]:
    by_remedy = {remedy: reason for reason, remedy in remedies}
    for remedy, reason in by_remedy.items():
        yield Padding(Text.assemble((f"{reason.value}: ", "bold cyan"), (remedy, "cyan")), (1, 0, 0, 2))


def published_report_lines(reading: SwitchPrecheck) -> Iterator[RenderableType]:
    """Format a report that the loop published, with the remedy of each finding."""
    if reading.outcome is not Outcome.OK:
        why = f"{reading.outcome.value}: {reading.detail}" if reading.detail else reading.outcome.value
        yield Text(f"The precheck of {reading.target} could not be made: {why}", "bold red")
        return
    reasons = dict.fromkeys(finding.reason for finding in reading.findings)
    yield verdict_line(reading.source, reading.target, reasons, ready=reading.ready)
    yield from bypass_lines(bypassed=reading.bypassed)
    source_id, target_id = (
        "unknown" if ledger_id is None else str(ledger_id)
        for ledger_id in (reading.source_next_id, reading.target_next_id)
    )
    yield Text(f"next ledger ids: {source_id} in {reading.source}, {target_id} in {reading.target}")
    yield Text(f"{counted(reading.to_import, 'ledger')} to import; the greatest id is {reading.greatest_id}")
    yield from staying_lines(reading.staying, reading.left_out)
    if reading.hits:
        yield _hits_line(reading.target, {hit: hits.count for hit, hits in reading.hits.items()})
    for finding in reading.findings:
        yield finding_line(finding.reason, finding.detail)
    yield from _remedy_lines((finding.reason, finding.remedy) for finding in reading.findings if finding.remedy)
    yield Text(f"digest {reading.digest}, counts for {human_seconds(reading.valid_ms / 1000)}", "dim")
