"""What `headgate switch precheck` shows: first whether it is ready, then what was found, then why not."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from connectors.bookkeeper.snapshot import Look
from policies.switching.ledgers import NO_LEDGER, Hit
from policies.switching.precheck import Cluster, Report, Snapshot
from policies.switching.references import Kind
from policies.switching.remedies import explain

SHOWN = 10
"""So many problems of reading are shown, and the others counted."""

_COLOURS = {Hit.OURS_COMPLETE: "green", Hit.OURS_PARTIAL: "yellow", Hit.FOREIGN: "bold red"}
_UNKNOWN = Text("unknown", "bold red")


def report_lines(report: Report, look: Look, *, explained: bool) -> Iterator[RenderableType]:
    """The report, as a person reads it at a glance.

    Args:
        report: the answer.
        look: what it rests on.
        explained: say what to do about each reason.
    """
    yield _verdict(report)
    yield _clusters(look.snapshot)
    yield _references(look.snapshot, report)
    yield _hits(look.snapshot, report)
    for finding in report.findings:
        yield Text.assemble((finding.reason.value, "bold red"), ": ", finding.detail)
    if explained:
        yield from _remedies(report)
    yield from _problems(look.problems)
    yield Text(f"digest {report.digest}, counts until {_time(report.expires_ms)}", "dim")


def _verdict(report: Report) -> Text:
    way = f"{report.source} to {report.target}"
    if report.ready:
        return Text(f"READY: {way}", "bold green")
    return Text(f"NOT READY: {way}: {', '.join(report.reasons)}", "bold red")


def _clusters(seen: Snapshot) -> Table:
    table = Table("", f"source {seen.source.name}", f"target {seen.target.name}")
    columns = [_facts(cluster) for cluster in (seen.source, seen.target)]
    for name in columns[0]:
        table.add_row(name, *(column[name] or _UNKNOWN for column in columns))
    return table


def _facts(cluster: Cluster) -> dict[str, str | None]:
    generator = cluster.generator
    return {
        "instance": cluster.instance_id,
        "root": cluster.root,
        "layout": cluster.layout,
        "next ledger id": None if generator is None else str(generator.next_id),
        "may give ids up to": None if generator is None else str(generator.ceiling),
    }


def _references(seen: Snapshot, report: Report) -> Text:
    counted = Counter(each.kind for each in seen.references)
    without = sum(each.ledger_id == NO_LEDGER for each in seen.references)
    found = (
        f"{counted[Kind.SCHEMA]} schema positions and {counted[Kind.CURSOR]} cursors ({without} without a ledger) name "
        f"{len(report.ids_to_import)} ledgers to import; the greatest id is {report.greatest_id}"
    )
    return Text(found) if seen.references_complete else Text.assemble(("at least: ", "bold red"), found)


def _hits(seen: Snapshot, report: Report) -> Text:
    if seen.existing is None:
        return Text(f"what exists in {report.target} is unknown", "bold red")
    text = Text(f"in {report.target} exist")
    for hit, hits in report.hits.items():
        text.append(f"  {hit.value} ")
        text.append(str(hits.count), _COLOURS[hit] if hits.count else "dim")
    return text


def _remedies(report: Report) -> Iterator[RenderableType]:
    """What to do, each once."""
    by_remedy = {explain(finding): finding.reason for finding in report.findings}
    for remedy, reason in by_remedy.items():
        yield Padding(Text.assemble((f"{reason.value}: ", "bold cyan"), (remedy, "cyan")), (1, 0, 0, 2))


def _problems(problems: Sequence[str]) -> Iterator[Text]:
    for problem in problems[:SHOWN]:
        yield Text.assemble(("not read", "bold yellow"), ": ", problem)
    if len(problems) > SHOWN:
        yield Text(f"and {len(problems) - SHOWN} more that could not be read", "yellow")


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
