"""Formats the precheck report that the loop made, which `headgate switch start` shows before it asks."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from deploy.switch.precheck_view import bypass_lines, finding_line, hits_line, remedy_lines, staying_lines, verdict_line
from policies.observations import Outcome
from policies.switching.readings import SwitchPrecheck
from policies.units import counted, human_seconds


def reading_lines(reading: SwitchPrecheck) -> Iterator[RenderableType]:
    """The report as it was published, with what to do about each reason."""
    if reading.outcome is not Outcome.OK:
        yield Text(f"The precheck of {reading.target} could not be made: {why_unread(reading)}", "bold red")
        return
    reasons = dict.fromkeys(finding.reason for finding in reading.findings)
    yield verdict_line(reading.source, reading.target, reasons, ready=reading.ready)
    yield from bypass_lines(bypassed=reading.bypassed)
    yield Text(
        f"next ledger ids: {_known(reading.source_next_id)} in {reading.source}, "
        f"{_known(reading.target_next_id)} in {reading.target}"
    )
    yield Text(f"{counted(reading.to_import, 'ledger')} to import; the greatest id is {reading.greatest_id}")
    yield from staying_lines(reading.staying, reading.left_out)
    if reading.hits:
        yield hits_line(reading.target, {hit: hits.count for hit, hits in reading.hits.items()})
    for finding in reading.findings:
        yield finding_line(finding.reason, finding.detail)
    yield from remedy_lines((finding.reason, finding.remedy) for finding in reading.findings if finding.remedy)
    yield Text(f"digest {reading.digest}, counts for {human_seconds(reading.valid_ms / 1000)}", "dim")


def why_unread(reading: SwitchPrecheck) -> str:
    """Why there is no report, in a few words."""
    return f"{reading.outcome.value}: {reading.detail}" if reading.detail else reading.outcome.value


def _known(ledger_id: int | None) -> str:
    return "unknown" if ledger_id is None else str(ledger_id)
