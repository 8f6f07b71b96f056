"""What is done about one quota: tables of cases, and an actuator that is interrupted anywhere."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_space.publication import LimitVerdict
from policies.throttle.quota_plan import (
    QuotaPlan,
    QuotaReason,
    QuotaRecord,
    QuotaSituation,
    WantedQuota,
    may_be_ours,
    plan,
)
from policies.throttle.quota_state import Original
from tests.cases import for_each

FLOOR = 1000
BASE = 100_000
UNHELD = None
HELD = QuotaRecord(held=True, baseline=None, base=BASE, rates=(50_000,))

rates = st.one_of(st.none(), st.integers(1, 10 * BASE))
factors = st.floats(0.0, 1.0)


def situation(**given: Any) -> QuotaSituation:
    defaults = {
        "wanted": WantedQuota(0.5, QuotaReason.DECIDED),
        "record": UNHELD,
        "found": None,
        "base": BASE,
        "floor": FLOOR,
    }
    it = QuotaSituation(**{**defaults, **given})
    held = it.record is not None and it.record.held
    original = Original(it.record.baseline, it.found) if it.record and held and it.found in it.record.rates else None
    return replace(it, recorded=it.recorded or original)


def decided(factor: float) -> WantedQuota:
    return WantedQuota(factor, QuotaReason.DECIDED)


CASES: list[Any] = [
    # id, situation, verdict, reason, rate
    ("a factor sets its share", {}, "set", "decided", 50_000),
    ("the floor holds", {"wanted": decided(0.0)}, "set", "decided", FLOOR),
    ("one keeps what is there", {"wanted": decided(1.0), "found": 7}, "keep", "decided", 7),
    ("one restores none", {"wanted": decided(1.0), "record": HELD, "found": 50_000}, "restore", "decided", None),
    (
        "one restores the earlier quota",
        {"wanted": decided(1.0), "record": replace(HELD, baseline=77_777), "found": 50_000},
        "restore", "decided", 77_777,
    ),
    ("what is in place is kept", {"record": HELD, "found": 50_000}, "keep", "decided", 50_000),
    ("without a base the quota is it", {"base": None, "found": 80_000}, "set", "decided", 40_000),
    ("neither is refused", {"base": None}, "refuse", "no_base", None),
    ("a stop needs neither", {"base": None, "wanted": decided(0.0)}, "set", "decided", FLOOR),
    ("what Strimzi's User Operator deletes is set again, and its original stays",
     {"record": replace(HELD, baseline=80_000)}, "set", "missing", 50_000),
    ("what appeared during the throttle goes with its owner's removal",
     {"base": None, "record": replace(HELD, baseline=80_000, base=None), "is_original_new": True},
     "refuse", "no_base", None),
    ("a tighter quota is kept", {"found": 40_000}, "keep", "tighter", 40_000),
    ("a step goes no lower than may be set now", {"least": 70_000, "found": 90_000}, "set", "stepping", 70_000),
    (
        "nor higher than what is there",
        {"least": 70_000, "record": replace(HELD, rates=(60_000,)), "found": 60_000}, "keep", "stepping", 60_000,
    ),
    ("a looser quota is lowered", {"found": 60_000}, "set", "decided", 50_000),
    ("a quota below the floor is kept", {"wanted": decided(0.0), "found": 10}, "keep", "tighter", 10),
    ("what is missing is set again", {"record": HELD}, "set", "missing", 50_000),
    ("a change by hand is overruled", {"record": HELD, "found": 90_000}, "set", "changed_by_hand", 50_000),
    ("a tighter one is not", {"record": HELD, "found": 30_000}, "keep", "tighter", 30_000),
    ("at one it stays", {"wanted": decided(1.0), "record": HELD, "found": 90_000}, "keep", "changed_by_hand", 90_000),
    (
        "the base outlives its quota",
        {"base": None, "record": QuotaRecord(held=True, baseline=80_000, base=80_000, rates=(40_000,)), "found": None},
        "set", "missing", 40_000,
    ),
    ("shadow keeps and tells", {"wanted": WantedQuota(0.5, QuotaReason.SHADOW)}, "keep", "shadow", 50_000),
    ("shadow tells that a base is missing", {"wanted": WantedQuota(0.5, QuotaReason.SHADOW), "base": None}, "refuse",
     "no_base", None),
    ("a rate that a past throttle had is not missing", {"record": replace(HELD, held=False)}, "set", "decided", 50_000),
    (
        "shadow takes back what was set",
        {"wanted": WantedQuota(0.5, QuotaReason.SHADOW), "record": HELD, "found": 50_000},
        "restore", "shadow", None,
    ),
    (
        "release puts back",
        {"wanted": WantedQuota(1.0, QuotaReason.RELEASED), "record": HELD, "found": 50_000, "base": None},
        "restore", "released", None,
    ),
    ("stale is told", {"wanted": WantedQuota(0.2, QuotaReason.STALE)}, "set", "stale", 20_000),
    ("no beginning with an obstacle", {"obstacle": QuotaReason.QUOTA_CALLBACK}, "refuse", "quota_callback", 50_000),
    (
        "but not from going on",
        {"obstacle": QuotaReason.EXCLUDED_USER, "record": HELD, "found": 50_000, "wanted": decided(0.3)},
        "set", "decided", 30_000,
    ),
    (
        "nor from ending",
        {"obstacle": QuotaReason.QUOTA_CALLBACK, "record": HELD, "found": 50_000, "wanted": decided(1.0)},
        "restore", "decided", None,
    ),
    ("a record that is gone is set again", {"record": HELD, "found": 50_000, "recorded": Original(7, 7)}, "set",
     "decided", 50_000),
    ("what may be ours without a record is no original", {"found": 1000, "is_unknown": True}, "refuse",
     "unknown_original", 1000),
    ("nor at one", {"found": 1000, "is_unknown": True, "wanted": decided(1.0)}, "refuse", "unknown_original", 1000),
    (
        "unless an operator has confirmed it",
        {
            "found": 1000, "is_unknown": True, "wanted": decided(1.0),
            "record": QuotaRecord(held=False, baseline=1000, base=None), "recorded": Original(1000, 1000),
        },
        "keep", "decided", 1000,
    ),
]  # fmt: skip


@for_each(("given_", "verdict", "reason", "rate"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_is_done(given_: dict[str, Any], verdict: str, reason: str, rate: int | None) -> None:
    planned = plan(situation(**given_))
    assert (planned.verdict.value, planned.reason.value, planned.rate) == (verdict, reason, rate)


@for_each(
    ("found", "base", "factors", "expected"),
    [
        pytest.param(FLOOR, None, (), True, id="the floor"),
        pytest.param(50_000, BASE, (0.5,), True, id="the base times a known factor"),
        pytest.param(50_000, BASE, (0.4,), False, id="times no known factor"),
        pytest.param(BASE, BASE, (1.0,), False, id="the base itself"),
        pytest.param(50_000, None, (0.5,), False, id="no base"),
        pytest.param(None, BASE, (0.5,), False, id="no quota"),
    ],
)
def test_which_quotas_may_be_ours(
    found: int | None, base: int | None, factors: tuple[float, ...], expected: bool
) -> None:
    assert may_be_ours(found, base, FLOOR, factors) is expected


def test_a_change_by_hand_becomes_what_is_put_back() -> None:
    planned = plan(situation(record=HELD, found=90_000))
    assert planned.record is not None
    assert planned.record.baseline == 90_000
    again = plan(situation(record=planned.record, found=planned.rate, wanted=decided(1.0)))
    assert (again.verdict, again.rate) == (LimitVerdict.RESTORE, 90_000)


@given(found=rates, base=rates, low=factors, high=factors)
def test_the_rate_is_monotone_in_the_factor_and_never_looser_than_before(
    found: int | None, base: int | None, low: float, high: float
) -> None:
    low, high = sorted((low, high))
    lower, higher = (plan(situation(found=found, base=base, wanted=decided(factor))) for factor in (low, high))
    if LimitVerdict.REFUSE in (lower.verdict, higher.verdict):
        assert base is None
        assert found is None
        return
    assert _or_unlimited(lower.rate) <= _or_unlimited(higher.rate) <= _or_unlimited(found)


@given(found=rates, base=rates, factor=factors, floor=st.integers(1, BASE))
def test_no_rate_is_set_below_the_floor(found: int | None, base: int | None, factor: float, floor: int) -> None:
    planned = plan(situation(found=found, base=base, floor=floor, wanted=decided(factor)))
    if planned.verdict is LimitVerdict.SET:
        assert planned.rate is not None
        assert planned.rate >= floor


class World:
    """Kafka's quota with its record, which change together, and an actuator that may be killed before or after that."""

    def __init__(self, quota: int | None, base: int | None) -> None:
        self.quota, self.base = quota, base
        self.original: Original | None = None
        self.record: QuotaRecord | None = None

    def attempt(self, wanted: WantedQuota, *, is_killed: bool) -> QuotaPlan:
        known = self.record
        if known is None and self.original is not None:
            known = QuotaRecord(held=True, baseline=self.original.baseline, base=None, rates=(self.original.latest,))
        planned = plan(QuotaSituation(wanted, known, self.quota, self.base, FLOOR, self.original))
        if planned.verdict.acts:
            self.quota, self.original = planned.rate, None
            if planned.holds and planned.record is not None and planned.rate is not None:
                self.original = Original(planned.record.baseline, planned.rate)
        self.record = None if is_killed else planned.record
        return planned


reasons = st.sampled_from([QuotaReason.DECIDED, QuotaReason.STALE, QuotaReason.SHADOW, QuotaReason.RELEASED])
wants = st.builds(WantedQuota, factors, reasons)
steps = st.lists(st.tuples(wants, st.booleans()), max_size=12)


@given(quota=rates, base=st.integers(FLOOR, 2 * BASE), steps=steps)
def test_killed_any_number_of_times_it_restores_exactly_and_leaves_no_record(
    quota: int | None, base: int, steps: list[tuple[WantedQuota, bool]]
) -> None:
    world = World(quota, base)
    for wanted, is_killed in steps:
        world.attempt(wanted, is_killed=is_killed)
    for _ in range(2):
        world.attempt(decided(1.0), is_killed=False)
    assert (world.quota, world.original) == (quota, None)
    assert world.record is None or not world.record.held


@given(quota=rates, base=st.integers(FLOOR, 2 * BASE), steps=steps, by_hand=st.integers(20 * BASE, 30 * BASE))
def test_what_an_operator_sets_meanwhile_is_what_stays_in_the_end(
    quota: int | None, base: int, steps: list[tuple[WantedQuota, bool]], by_hand: int
) -> None:
    world = World(quota, base)
    for wanted, is_killed in steps:
        world.attempt(wanted, is_killed=is_killed)
    world.quota = by_hand
    for wanted, is_killed in steps:
        world.attempt(wanted, is_killed=is_killed)
    for _ in range(2):
        world.attempt(decided(1.0), is_killed=False)
    assert world.quota == by_hand


def _or_unlimited(rate: int | None) -> float:
    return float("inf") if rate is None else rate
