"""The next operation on one limit: whose it is, what is put back, and that throttling never loosens."""

from typing import Any

import pytest

from policies.bookie_disks.publish_plan import (
    RELEASED_SHARE,
    FoundLimit,
    PublishReason,
    PublishRecord,
    WantedShare,
    plan_publish,
)
from tests.cases import for_each

BASE, FLOOR = 1000, 50
NO_LIMIT, THEIRS = FoundLimit(None, None), FoundLimit(800, '{"rate": 800}')
RECORD = PublishRecord(THEIRS, (500,))
OURS, BY_HAND = FoundLimit(500, '{"rate": 500}'), FoundLimit(700, '{"rate": 700}')
HALF = WantedShare(0.5, PublishReason.DECIDED)
ALL = WantedShare(1.0, PublishReason.DECIDED)


@for_each(
    ("wanted", "record", "found", "expected"),
    [
        pytest.param(HALF, None, NO_LIMIT, ("set", "decided", 500, NO_LIMIT), id="a share of the base is set"),
        pytest.param(HALF, RECORD, OURS, ("keep", "decided", 500, THEIRS), id="it is there"),
        pytest.param(HALF, RECORD, THEIRS, ("set", "decided", 500, THEIRS), id="the original limit is there again"),
        pytest.param(
            HALF, RECORD, BY_HAND, ("set", "changed_by_hand", 500, BY_HAND), id="another limit is the new original one"
        ),
        pytest.param(
            WantedShare(0.8, PublishReason.DECIDED), None, THEIRS, ("keep", "tighter", 800, None),
            id="a limit of the same rate stays",
        ),
        pytest.param(
            WantedShare(0.8, PublishReason.DECIDED), RECORD, OURS, ("restore", "tighter", 800, None),
            id="an original limit of the same rate is put back",
        ),
        pytest.param(
            WantedShare(0.79, PublishReason.DECIDED), None, THEIRS, ("set", "decided", 790, THEIRS),
            id="a looser limit is lowered",
        ),
        pytest.param(
            WantedShare(0.0, PublishReason.DECIDED), None, NO_LIMIT, ("set", "decided", FLOOR, NO_LIMIT), id="the floor"
        ),
        pytest.param(ALL, None, THEIRS, ("keep", "decided", 800, None), id="at one nothing is set"),
        pytest.param(ALL, RECORD, OURS, ("restore", "decided", 800, None), id="at one the original is put back"),
        pytest.param(RELEASED_SHARE, RECORD, THEIRS, ("restore", "released", 800, None), id="only the record is left"),
        pytest.param(ALL, RECORD, BY_HAND, ("restore", "changed_by_hand", 700, None), id="a change by hand stays"),
    ],
)  # fmt: skip
def test_what_is_done(
    wanted: WantedShare, record: PublishRecord | None, found: FoundLimit, expected: tuple[Any, ...]
) -> None:
    planned = plan_publish(wanted, record, found, BASE, FLOOR)
    kept = planned.record.original if planned.record is not None else None
    assert (planned.verdict.value, planned.reason.value, planned.rate, kept) == expected


def test_without_a_base_the_original_limit_is_it() -> None:
    assert plan_publish(HALF, None, THEIRS, None, FLOOR).rate == 400
    assert plan_publish(HALF, None, NO_LIMIT, None, FLOOR).reason is PublishReason.NO_BASE


def test_the_rates_that_may_be_in_force_are_remembered() -> None:
    first = plan_publish(HALF, None, NO_LIMIT, BASE, FLOOR)
    second = plan_publish(WantedShare(0.3, PublishReason.DECIDED), first.record, OURS, BASE, FLOOR)
    assert second.record is not None
    assert (second.record.rates, second.highest_rate, first.highest_rate) == ((300, 500), 500, None)
