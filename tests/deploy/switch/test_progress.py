"""How fast a switch goes on, and how long it takes."""

from datetime import timedelta
from typing import Any

import pytest

from deploy.switch.status import compute_pace
from policies.switching.state import LedgerStage, SwitchStage
from tests.deploy.switch.decisions import NOW, record

L, S = LedgerStage, SwitchStage
HALF = {L.BUILT: 40, L.BUILD_FAILED: 10, L.COPYING: 16, L.PENDING: 34}


def at(seconds: float, **fields: Any) -> Any:
    return record(sequence=100 + int(seconds), decided_at=NOW + timedelta(seconds=seconds), **fields)


@pytest.mark.parametrize(
    ("stage", "ledgers", "percent"),
    [
        (S.BUILD, HALF, 50.0),
        (S.PROMOTE, {L.PROMOTED: 30, L.PROMOTED_VIA_ROLLOVER: 10, L.PROMOTE_DEFERRED: 10, L.PROMOTING: 50}, 50.0),
        (S.CLEANUP, {L.CLEANED: 60, L.PROMOTED: 25, L.DELETE_INTENT: 15}, 60.0),
        (S.ROLLBACK, {L.REVERTED: 75, L.PROMOTED: 25}, 75.0),
    ],
)
def test_what_a_stage_has_to_do_is_counted(stage: SwitchStage, ledgers: dict[LedgerStage, int], percent: float) -> None:
    pace = compute_pace(at(10, verdict=stage, ledgers=ledgers, stage_since=NOW), (), NOW)
    assert pace is not None
    assert pace.percent == percent


@pytest.mark.parametrize("stage", [S.TRIGGERED, S.HOLD, S.DONE, S.LIVE_DUAL_READ])
def test_a_stage_that_works_on_no_ledgers_has_no_pace(stage: SwitchStage) -> None:
    assert compute_pace(at(10, verdict=stage, ledgers=HALF), (), NOW) is None


def test_the_rate_is_that_of_the_last_minute() -> None:
    slow = [at(n, ledgers={L.BUILT: n, L.PENDING: 100 - n}) for n in range(0, 41, 10)]
    now = at(50, ledgers={L.BUILT: 60, L.PENDING: 40})
    pace = compute_pace(now, slow, now.decided_at)
    assert pace is not None
    assert (pace.ledgers_per_second, pace.seconds_left) == (60 / 50, 40 / (60 / 50))
    later = compute_pace(now, slow, NOW + timedelta(seconds=95))
    assert later is not None
    assert later.ledgers_per_second == 2.0, "only the record at 40 s is of the last minute"


def test_without_earlier_records_it_is_that_since_the_stage_began() -> None:
    pace = compute_pace(at(25, ledgers=HALF, stage_since=NOW), (), NOW)
    assert pace is not None
    assert (pace.ledgers_per_second, pace.seconds_left) == (2.0, 25.0)


def test_records_of_another_stage_or_attempt_are_no_measure() -> None:
    others = [at(1, verdict=S.PROMOTE, ledgers=HALF), at(2, attempt=2, ledgers=HALF)]
    pace = compute_pace(at(25, ledgers=HALF, stage_since=NOW), others, NOW)
    assert pace is not None
    assert pace.ledgers_per_second == 2.0


@pytest.mark.parametrize(
    ("seconds", "since"),
    [(30.0, None), (66.0, 5), (600.0, 5)],
    ids=["for less than the rate is measured", "for longer", "for ten minutes"],
)
def test_a_stalled_stage_has_the_time_of_its_last_progress(seconds: float, since: float | None) -> None:
    """Records are published for other changes, too, and none at all while nothing changes."""
    before, reached, later = at(0, ledgers={L.PENDING: 100}), at(5, ledgers=HALF), at(20, ledgers=HALF, blocked="x")
    pace = compute_pace(later, (before, reached), NOW + timedelta(seconds=seconds))
    assert pace is not None
    assert pace.stalled_since == (None if since is None else NOW + timedelta(seconds=since))
    assert (pace.ledgers_per_second > 0, pace.seconds_left is None) == (since is None, since is not None)


def test_a_stage_that_never_began_is_stalled_since_it_was_reached() -> None:
    pace = compute_pace(at(25, ledgers={L.PENDING: 3}, stage_since=NOW), (), NOW + timedelta(seconds=90))
    assert pace is not None
    assert pace.stalled_since == NOW


def test_what_stands_still_has_no_end() -> None:
    pace = compute_pace(at(25, ledgers=HALF), (at(5, ledgers=HALF),), NOW)
    assert pace is not None
    assert (pace.ledgers_per_second, pace.seconds_left) == (0.0, None)
