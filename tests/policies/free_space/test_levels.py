"""What is done about one level: tables of cases, and an actuator that is interrupted anywhere."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decisions import Mode
from policies.free_space.levels import (
    FactorDecision,
    LevelPlan,
    LevelRecord,
    LevelSituation,
    LimitReason,
    LimitVerdict,
    Original,
    WantedFactor,
    plan_level,
)
from tests.cases import for_each
from tests.policies.scenario import HARD, decide, throttle

FLOOR = 1000
BASE = 100_000
HELD = LevelRecord(held=True, baseline=None, base=BASE, rates=(50_000,))

rates = st.one_of(st.none(), st.integers(1, 10 * BASE))
factors = st.floats(0.0, 1.0)


def situation(**given: Any) -> LevelSituation:
    defaults = {"wanted": decided(0.5), "record": None, "found": None, "base": BASE, "floor": FLOOR}
    it = LevelSituation(**{**defaults, **given})
    held = it.record is not None and it.record.held
    original = Original(it.record.baseline, it.found) if it.record and held and it.found in it.record.rates else None
    return replace(it, recorded=it.recorded or original)


def decided(factor: float) -> WantedFactor:
    return WantedFactor(factor, LimitReason.DECIDED)


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
     {"base": None, "record": replace(HELD, baseline=80_000, base=None), "is_removal_meant": True},
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
        {"base": None, "record": LevelRecord(held=True, baseline=80_000, base=80_000, rates=(40_000,)), "found": None},
        "set", "missing", 40_000,
    ),
    ("shadow keeps and tells", {"wanted": WantedFactor(0.5, LimitReason.SHADOW)}, "keep", "shadow", 50_000),
    ("shadow tells that a base is missing", {"wanted": WantedFactor(0.5, LimitReason.SHADOW), "base": None}, "refuse",
     "no_base", None),
    ("a rate that a past throttle had is not missing", {"record": replace(HELD, held=False)}, "set", "decided", 50_000),
    (
        "shadow takes back what was set",
        {"wanted": WantedFactor(0.5, LimitReason.SHADOW), "record": HELD, "found": 50_000},
        "restore", "shadow", None,
    ),
    (
        "release puts back",
        {"wanted": WantedFactor(1.0, LimitReason.RELEASED), "record": HELD, "found": 50_000, "base": None},
        "restore", "released", None,
    ),
    ("stale is told", {"wanted": WantedFactor(0.2, LimitReason.STALE)}, "set", "stale", 20_000),
    ("an obstacle to nothing", {"obstacle": LimitReason.QUOTA_CALLBACK, "found": 40_000}, "keep", "tighter", 40_000),
    ("no beginning with an obstacle", {"obstacle": LimitReason.QUOTA_CALLBACK}, "refuse", "quota_callback", 50_000),
    (
        "but not from going on",
        {"obstacle": LimitReason.EXCLUDED_USER, "record": HELD, "found": 50_000, "wanted": decided(0.3)},
        "set", "decided", 30_000,
    ),
    (
        "nor from ending",
        {"obstacle": LimitReason.QUOTA_CALLBACK, "record": HELD, "found": 50_000, "wanted": decided(1.0)},
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
            "record": LevelRecord(held=False, baseline=1000, base=None), "recorded": Original(1000, 1000),
        },
        "keep", "decided", 1000,
    ),
]  # fmt: skip


@for_each(("given_", "verdict", "reason", "rate"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_is_done(given_: dict[str, Any], verdict: str, reason: str, rate: int | None) -> None:
    planned = plan_level(situation(**given_))
    assert (planned.verdict.value, planned.reason.value, planned.rate) == (verdict, reason, rate)


def test_what_was_there_before_is_no_rate_of_headgates() -> None:
    planned = plan_level(situation(wanted=decided(1.0), record=replace(HELD, baseline=77_777), found=50_000))
    assert planned.record == LevelRecord(held=False, baseline=77_777, base=BASE, rates=(50_000,))


def test_a_change_by_hand_becomes_what_is_put_back() -> None:
    planned = plan_level(situation(record=HELD, found=90_000))
    assert planned.record is not None
    assert planned.record.baseline == 90_000
    again = plan_level(situation(record=planned.record, found=planned.rate, wanted=decided(1.0)))
    assert (again.verdict, again.rate) == (LimitVerdict.RESTORE, 90_000)


@given(found=rates, base=rates, low=factors, high=factors)
def test_the_rate_is_monotone_in_the_factor_and_never_looser_than_before(
    found: int | None, base: int | None, low: float, high: float
) -> None:
    low, high = sorted((low, high))
    lower, higher = (plan_level(situation(found=found, base=base, wanted=decided(factor))) for factor in (low, high))
    if LimitVerdict.REFUSE in (lower.verdict, higher.verdict):
        assert base is None
        assert found is None
        return
    assert _or_unlimited(lower.rate) <= _or_unlimited(higher.rate) <= _or_unlimited(found)


@given(found=rates, base=rates, factor=factors, floor=st.integers(1, BASE))
def test_no_rate_is_set_below_the_floor(found: int | None, base: int | None, factor: float, floor: int) -> None:
    planned = plan_level(situation(found=found, base=base, floor=floor, wanted=decided(factor)))
    if planned.verdict is LimitVerdict.SET:
        assert planned.rate is not None
        assert planned.rate >= floor


class World:
    """Kafka's quota with its record, which change together, and an actuator that may be killed before or after that."""

    def __init__(self, quota: int | None, base: int | None) -> None:
        self.quota, self.base = quota, base
        self.original: Original | None = None
        self.record: LevelRecord | None = None

    def attempt(self, wanted: WantedFactor, *, is_killed: bool) -> LevelPlan:
        known = self.record
        if known is None and self.original is not None:
            known = LevelRecord(held=True, baseline=self.original.baseline, base=None, rates=(self.original.latest,))
        planned = plan_level(LevelSituation(wanted, known, self.quota, self.base, FLOOR, self.original))
        if planned.verdict.acts:
            self.quota, self.original = planned.rate, None
            if planned.holds and planned.record is not None and planned.rate is not None:
                self.original = Original(planned.record.baseline, planned.rate)
        self.record = None if is_killed else planned.record
        return planned


reasons = st.sampled_from([LimitReason.DECIDED, LimitReason.STALE, LimitReason.SHADOW, LimitReason.RELEASED])
wants = st.builds(WantedFactor, factors, reasons)
steps = st.lists(st.tuples(wants, st.booleans()), max_size=12)


@given(quota=rates, base=st.integers(FLOOR, 2 * BASE), steps=steps)
def test_killed_any_number_of_times_it_restores_exactly_and_leaves_no_record(
    quota: int | None, base: int, steps: list[tuple[WantedFactor, bool]]
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
    quota: int | None, base: int, steps: list[tuple[WantedFactor, bool]], by_hand: int
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


# --- what an order asks for now: as decided, expired, in shadow mode, during a pause and after it

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
SETTINGS = throttle(HARD, fallback_factor=0.2)


order = partial(decide, 0.5, decided_at=NOW)


@pytest.mark.parametrize(
    ("order_", "factor", "reason", "slows"),
    [
        pytest.param(order(), 0.5, "decided", True, id="decided"),
        pytest.param(decide(1.0, decided_at=NOW), 1.0, "decided", False, id="decided to open"),
        pytest.param(order(valid_seconds=0), 0.2, "stale", True, id="expired"),
        pytest.param(order(mode=Mode.SHADOW), 0.5, "shadow", False, id="shadow"),
        pytest.param(order(valid_seconds=0, mode=Mode.SHADOW), 0.5, "shadow", False, id="expired shadow"),
    ],
)
def test_what_an_order_asks_for(order_: FactorDecision, factor: float, reason: str, slows: bool) -> None:
    wanted = order_.choose_factor(NOW, SETTINGS)
    assert (wanted, wanted.slows) == (WantedFactor(factor, LimitReason(reason)), slows)


PAUSED = order(valid_seconds=60, mode=Mode.SHADOW, frozen_until=NOW + timedelta(seconds=30))


@pytest.mark.parametrize(
    ("after_seconds", "is_frozen"),
    [
        pytest.param(0, True, id="while paused"),
        pytest.param(59, True, id="paused no more: until the next decision"),
        pytest.param(60, False, id="no decision comes: the fallback, and not what was there before"),
    ],
)
def test_a_pause_keeps_what_is_set(after_seconds: float, is_frozen: bool) -> None:
    now = NOW + timedelta(seconds=after_seconds)
    assert PAUSED.is_frozen(now) is is_frozen
    assert is_frozen or PAUSED.choose_factor(now, SETTINGS) == WantedFactor(0.2, LimitReason.STALE)
    longer = PAUSED.model_copy(update={"frozen_until": NOW + timedelta(hours=1)})
    assert longer.is_frozen(now), "a loop that died while paused"
