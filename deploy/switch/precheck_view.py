"""Formats the precheck's report: first whether the switch is ready, then what was found, then why it is not ready."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from connectors.switching.precheck_snapshot import SnapshotResult
from policies.switching.clusters import ClusterSnapshot
from policies.switching.ledgers import NO_LEDGER, HitClass
from policies.switching.precheck.findings import FindingReason, find_remedy
from policies.switching.precheck.report import PrecheckReport
from policies.switching.precheck.snapshot import PrecheckSnapshot
from policies.switching.readings import StayingReading
from policies.switching.references import LedgerKind, StayingLedgers

SHOWN = 10
"""So many problems of reading are shown, and the others counted."""

_COLOURS = {HitClass.OURS_COMPLETE: "green", HitClass.OURS_PARTIAL: "yellow", HitClass.FOREIGN: "bold red"}
_UNKNOWN = Text("unknown", "bold red")


def report_lines(report: PrecheckReport, taken: SnapshotResult, *, explained: bool) -> Iterator[RenderableType]:
    """The report, as a person reads it at a glance.

    Args:
        report: what the precheck found.
        taken: what it rests on.
        explained: say what to do about each reason.
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
        yield from remedy_lines((finding.reason, find_remedy(finding)) for finding in report.findings)
    yield from _problems(taken.problems)
    yield Text(f"digest {report.digest}, counts until {_time(report.expires_ms)}", "dim")


def verdict_line(source: str, target: str, reasons: Iterable[FindingReason], *, ready: bool) -> Text:
    """Whether it is ready, from which cluster to which, and why not."""
    way = f"{source} to {target}"
    if ready:
        return Text(f"READY: {way}", "bold green")
    return Text(f"NOT READY: {way}: {', '.join(reasons)}", "bold red")


def bypass_lines(*, bypassed: bool) -> Iterator[Text]:
    """That a report says ready only because the settings do."""
    if bypassed:
        why = "ids may collide, and policies.switching.skip_idgen_precheck passes that over; for labs only"
        yield Text.assemble(("PRECHECK BYPASSED", "bold red"), f": {why}")


def finding_line(reason: FindingReason, detail: str) -> Text:
    """One reason why not, with its numbers."""
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
    counted = Counter(each.kind for each in seen.references)
    without = sum(each.ledger_id == NO_LEDGER for each in seen.references)
    found = (
        f"{counted[LedgerKind.SCHEMA]} schema positions and {counted[LedgerKind.CURSOR]} cursors ({without} without a "
        f"ledger) name {len(report.ids_to_import)} ledgers to import; the greatest id is {report.greatest_id}"
    )
    return Text(found) if seen.references_complete else Text.assemble(("at least: ", "bold red"), found)


def _hits(seen: PrecheckSnapshot, report: PrecheckReport) -> Text:
    if seen.existing is None:
        return Text(f"what exists in {report.target} is unknown", "bold red")
    return hits_line(report.target, {hit: hits.count for hit, hits in report.hits.items()})


def hits_line(target: str, counts: Mapping[HitClass, int]) -> Text:
    """How many ledgers exist in the target, by what they are to us."""
    text = Text(f"in {target} exist")
    for hit, count in counts.items():
        text.append(f"  {hit.value} ")
        text.append(str(count), _COLOURS[hit] if count else "dim")
    return text


def staying_lines(staying: Iterable[StayingLedgers | StayingReading], left_out: Iterable[str]) -> Iterator[Text]:
    """What else names ledgers, and what was not even read."""
    counts = [f"{each.count} {each.kind.value} in {each.cluster or 'any of the clusters'}" for each in staying]
    if counts:
        yield Text(f"ledgers that stay: {', '.join(counts)}")
    for path in left_out:
        yield Text.assemble(("left out, as the settings say", "bold yellow"), ": ", path)


def remedy_lines(remedies: Iterable[tuple[FindingReason, str]]) -> Iterator[RenderableType]:
    """What to do about reasons, each remedy once."""
    by_remedy = {remedy: reason for reason, remedy in remedies}
    for remedy, reason in by_remedy.items():
        yield Padding(Text.assemble((f"{reason.value}: ", "bold cyan"), (remedy, "cyan")), (1, 0, 0, 2))


def _problems(problems: Sequence[str]) -> Iterator[Text]:
    for problem in problems[:SHOWN]:
        yield Text.assemble(("not read", "bold yellow"), ": ", problem)
    if len(problems) > SHOWN:
        yield Text(f"and {len(problems) - SHOWN} more that could not be read", "yellow")


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
