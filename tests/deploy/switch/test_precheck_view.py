"""What is shown of a precheck's report that the loop made."""

from io import StringIO

from rich.console import Console

from deploy.switch.precheck import report_lines
from policies.observations import Outcome
from policies.switching.ledgers import FindingReason
from policies.switching.readings import FindingReading, SwitchPrecheck
from tests.deploy.switch.decisions import report


def shown(reading: SwitchPrecheck) -> list[str]:
    out = StringIO()
    for line in report_lines(reading):
        Console(file=out, width=200).print(line, highlight=False)
    return [line.strip() for line in out.getvalue().splitlines() if line.strip()]


def test_the_report_shows_what_was_found_and_what_to_do() -> None:
    finding = FindingReading(reason=FindingReason.FOREIGN_ID, detail="ledger 5 is there", remedy="Take another.")
    lines = shown(report(ready=False, to_import=1, greatest_id=7, source_next_id=8, findings=(finding, finding)))
    assert lines[0] == "NOT READY: old to new: foreign_id"
    assert lines[1:3] == ["next ledger ids: 8 in old, unknown in new", "1 ledger to import; the greatest id is 7"]
    assert lines.count("foreign_id: ledger 5 is there") == 2
    assert lines.count("foreign_id: Take another.") == 1
    assert lines[-1] == f"digest {'d' * 64}, counts for 10 min"
    assert shown(report())[0] == "READY: old to new"


def test_a_precheck_that_could_not_be_made_says_why() -> None:
    failed = report(outcome=Outcome.UNREACHABLE, detail="zk-1 is down", ready=False)
    assert shown(failed) == ["The precheck of new could not be made: unreachable: zk-1 is down"]
