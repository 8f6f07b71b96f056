"""A verdict on a bookie is taken over only while its inputs are the same and time alone changes nothing."""

from policies.bookie_disks.fold import fold
from policies.bookie_disks.judge import judge_bookies
from policies.bookie_disks.state import BookieDisksCluster
from policies.units import to_millis
from tests.policies.bookie_disks.scenario import all_disks, disks, settings
from tests.policies.virtual_run import at

SETTINGS = settings()
KNOWN = fold(BookieDisksCluster(), all_disks(0, b1=50, b2=60))


def judged(known: BookieDisksCluster, seconds: float, before: dict[str, object] | None = None) -> dict[str, object]:
    return dict(judge_bookies(known, SETTINGS, to_millis(at(seconds)), (), before or {}))  # type: ignore[arg-type]


def test_only_the_bookie_that_was_read_is_judged_again() -> None:
    before = judged(KNOWN, 1)
    after = judged(fold(KNOWN, [disks(2, "b2", 59)]), 2, before)
    assert after["b1"] is before["b1"]
    assert after["b2"] is not before["b2"]


def test_a_verdict_ends_with_the_validity_of_its_reading() -> None:
    before = judged(KNOWN, 1)
    assert judged(KNOWN, 299, before)["b1"] is before["b1"]
    assert judged(KNOWN, 300, before)["b1"] is not before["b1"]
