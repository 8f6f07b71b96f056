"""Formats a precheck's report, made by the command line or published by the loop: verdict, readings, findings."""

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from connectors.switching.precheck_snapshot import SnapshotResult
from policies.observations import Outcome
from policies.switching.clusters import ClusterSnapshot
from policies.switching.ledgers import NO_LEDGER, HitClass
from policies.switching.precheck.snapshot import PrecheckSnapshot
from policies.switching.readings import SwitchPrecheck
from policies.switching.references import LedgerKind
from policies.units import counted, human_seconds

SHOWN = 10
"""The most failed readings that are shown; the others are counted."""

_COLOURS = {HitClass.OURS_COMPLETE: "green", HitClass.OURS_PARTIAL: "yellow", HitClass.FOREIGN: "bold red"}
_UNKNOWN = Text("unknown", "bold red")


def report_lines(
    reading: SwitchPrecheck, taken: SnapshotResult | None = None, *, explained: bool = True
) -> Iterator[RenderableType]:
    """Format a report.

    Args:
        taken: the readings of the report; None if the loop published it.
        explained: add the remedy of each finding.
    """
    if reading.outcome is not Outcome.OK:
        why = f"{reading.outcome.value}: {reading.detail}" if reading.detail else reading.outcome.value
        yield Text(f"The precheck of {reading.target} could not be made: {why}", "bold red")
        return
    yield from verdict_lines(reading)
    yield from _published_facts(reading) if taken is None else _read_facts(taken.snapshot, reading)
    yield from staying_lines(reading)
    if taken is not None and taken.snapshot.existing is None:
        yield Text(f"what exists in {reading.target} is unknown", "bold red")
    elif reading.hits:
        yield _hits(reading)
    yield from finding_lines(reading)
    if explained:
        yield from _remedies(reading)
    if taken is not None:
        yield from _problems(taken)
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


def _published_facts(reading: SwitchPrecheck) -> Iterator[Text]:
    source_id, target_id = (
        "unknown" if ledger_id is None else str(ledger_id)
        for ledger_id in (reading.source_next_id, reading.target_next_id)
    )
    yield Text(f"next ledger ids: {source_id} in {reading.source}, {target_id} in {reading.target}")
    yield Text(f"{counted(reading.to_import, 'ledger')} to import; the greatest id is {reading.greatest_id}")


def _read_facts(seen: PrecheckSnapshot, reading: SwitchPrecheck) -> Iterator[RenderableType]:
    yield _clusters(seen)
    kinds = Counter(each.kind for each in seen.references)
    without = sum(each.ledger_id == NO_LEDGER for each in seen.references)
    found = (
        f"{kinds[LedgerKind.SCHEMA]} schema positions and {kinds[LedgerKind.CURSOR]} cursors ({without} without a "
        f"ledger) name {reading.to_import} ledgers to import; the greatest id is {reading.greatest_id}"
    )
    yield Text(found) if seen.references_complete else Text.assemble(("at least: ", "bold red"), found)


def _problems(taken: SnapshotResult) -> Iterator[Text]:
    for problem in taken.problems[:SHOWN]:
        yield Text.assemble(("not read", "bold yellow"), ": ", problem)
    if len(taken.problems) > SHOWN:
        yield Text(f"and {len(taken.problems) - SHOWN} more that could not be read", "yellow")


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


def _hits(reading: SwitchPrecheck) -> Text:
    """Count the ledgers that exist in the target, by class."""
    text = Text(f"in {reading.target} exist")
    for hit, hits in reading.hits.items():
        text.append(f"  {hit.value} ")
        text.append(str(hits.count), _COLOURS[hit] if hits.count else "dim")
    return text


def staying_lines(reading: SwitchPrecheck) -> Iterator[Text]:
    """Count the ledgers that stay, and list the znodes that were not read."""
    counts = [f"{each.count} {each.kind.value} in {each.cluster or 'any of the clusters'}" for each in reading.staying]
    if counts:
        yield Text(f"ledgers that stay: {', '.join(counts)}")
    for path in reading.left_out:
        yield Text.assemble(("left out by the settings", "bold yellow"), ": ", path)


def _remedies(reading: SwitchPrecheck) -> Iterator[RenderableType]:
    for remedy, reason in {each.remedy: each.reason for each in reading.findings if each.remedy}.items():
        yield Padding(Text.assemble((f"{reason.value}: ", "bold cyan"), (remedy, "cyan")), (1, 0, 0, 2))
