"""The next operation on one limit: whose it is, and which document is put back; `plan_level` has the rest."""

from typing import Any

import pytest

from policies.bookie_disks.readings import FoundLimit, PublishRecord, plan_publish
from policies.free_space.levels import LimitReason, WantedFactor
from tests.cases import for_each

BASE, FLOOR = 1000, 50
NO_LIMIT, THEIRS = FoundLimit(None, None), FoundLimit(800, '{"rate": 800}')
RECORD = PublishRecord(THEIRS, (500,))
OURS, BY_HAND = FoundLimit(500, '{"rate": 500}'), FoundLimit(700, '{"rate": 700}')
HALF = WantedFactor(0.5, LimitReason.DECIDED)
ALL = WantedFactor(1.0, LimitReason.DECIDED)


@for_each(
    ("wanted", "record", "found", "expected"),
    [
        pytest.param(HALF, None, NO_LIMIT, ("set", "decided", 500, NO_LIMIT), id="a share of the base is set"),
        pytest.param(HALF, RECORD, OURS, ("keep", "decided", 500, THEIRS), id="it is there"),
        pytest.param(HALF, RECORD, THEIRS, ("set", "missing", 500, THEIRS), id="the original limit is there again"),
        pytest.param(HALF, RECORD, BY_HAND, ("set", "changed_by_hand", 500, BY_HAND), id="another is the original now"),
        pytest.param(HALF, RECORD, NO_LIMIT, ("set", "changed_by_hand", 500, NO_LIMIT), id="so is none"),
        pytest.param(ALL, RECORD, OURS, ("restore", "decided", 800, None), id="at one the original is put back"),
        pytest.param(ALL, RECORD, THEIRS, ("restore", "decided", 800, None), id="only the record is left"),
        pytest.param(ALL, RECORD, BY_HAND, ("restore", "changed_by_hand", 700, None), id="a change by hand stays"),
    ],
)
def test_what_is_done(
    wanted: WantedFactor, record: PublishRecord | None, found: FoundLimit, expected: tuple[Any, ...]
) -> None:
    planned = plan_publish(wanted, record, found, BASE, FLOOR)
    kept = planned.to_write.original if planned.to_write is not None else None
    assert (planned.verdict.value, planned.reason.value, planned.rate, kept) == expected
    assert planned.original == (THEIRS if record is not None and found in (OURS, THEIRS) else found)


def test_without_a_base_and_a_limit_not_even_a_stop_is_set() -> None:
    for factor in (0.0, 0.5):
        wanted = WantedFactor(factor, LimitReason.DECIDED)
        assert plan_publish(wanted, None, NO_LIMIT, None, FLOOR).reason is LimitReason.NO_BASE


def test_the_rates_that_may_be_in_force_are_remembered() -> None:
    first = plan_publish(HALF, None, NO_LIMIT, BASE, FLOOR)
    second = plan_publish(WantedFactor(0.3, LimitReason.DECIDED), first.to_write, OURS, BASE, FLOOR)
    assert second.to_write is not None
    assert (second.to_write.rates, second.highest_rate, first.highest_rate) == ((300, 500), 500, None)
