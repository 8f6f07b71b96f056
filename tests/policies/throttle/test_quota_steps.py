"""How low a quota may go at once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.quota_plan import (
    DEFAULT_WINDOW_SECONDS,
    PastRate,
    QuotaStep,
    RatesInForce,
    full_rate_seconds,
)

BASE, FLOOR, WAIT, WINDOW = 10_000_000, 65_536, 30.0, DEFAULT_WINDOW_SECONDS


def descent(base: int, floor: int, wait: float = WAIT, window: float = WINDOW) -> list[tuple[float, int]]:
    """(second, rate) of each step of a sudden stop, each as soon as it may be."""
    now, rate, known = 0.0, base, RatesInForce()
    steps: list[tuple[float, int]] = []
    while rate > floor:
        step = known.step(now, rate, wait, window)
        assert step is not None
        lower = max(step.least, floor)
        if lower < rate:
            steps.append((now, lower))
            known, rate = known.changed(PastRate(now, rate), window), lower
        step = known.step(now, rate, wait, window)
        assert step is not None
        now += step.seconds if rate > floor else 0.0
    return steps


def test_a_stop_from_ten_megabytes_a_second_takes_five_steps_and_less_than_a_minute() -> None:
    """docs/quotas.md quotes them."""
    steps = descent(BASE, FLOOR)
    assert [round(rate / 1000) for _, rate in steps] == [3284, 1078, 354, 116, 66]
    assert steps[-1] == (4 * WINDOW, FLOOR)
    assert full_rate_seconds(BASE, FLOOR, WAIT, WINDOW) == pytest.approx(5.3, abs=0.1)
    assert full_rate_seconds(BASE, FLOOR, None, WINDOW) == 0.0


@given(
    st.integers(10**5, 10**9),
    st.integers(1000, 10**5),
    st.sampled_from([12.0, 20.0, 30.0, 120.0]),
    st.sampled_from([2.0, 11.0, 61.0, 600.0]),
)
def test_no_step_tells_a_producer_that_wrote_all_it_might_to_wait_longer(
    base: int, floor: int, wait: float, window: float
) -> None:
    steps = descent(base, floor, wait, window)
    rates = [(float("-inf"), base), *steps]
    for (began, before), (at, rate) in pairwise(rates):
        assert at - began >= window
        assert before * window / rate - window <= wait + 1e-6
    assert rates[-1][1] == min(floor, base)


@given(st.lists(st.tuples(st.floats(0.0, 15.0), st.integers(1, 10**7)), max_size=20), st.integers(1, 10**7))
def test_what_was_in_force_within_the_window_counts(changes: list[tuple[float, int]], present: int) -> None:
    now, known, history = 0.0, RatesInForce(), list[tuple[float, int]]()
    for pause, rate in changes:
        now += pause
        known = known.changed(PastRate(now, rate), WINDOW)
        history.append((now, rate))
        step = known.step(now, present, WAIT, WINDOW)
        highest = max([present, *(r for until, r in history if until > now - WINDOW)])
        assert step is not None
        assert step.least == pytest.approx(highest * WINDOW / (0.75 * WAIT + WINDOW), abs=1)
        assert len(known.past) <= len(history)


def test_where_nothing_is_known_to_have_been_let_through_there_is_no_step() -> None:
    assert RatesInForce().step(1.0, None, WAIT, WINDOW) is None
    assert RatesInForce().step(0.0, 3350, WAIT, WINDOW) == QuotaStep(1100, float("inf"))


@pytest.mark.parametrize(("seconds", "least"), [(0.5, 66_296), (5.0, 469_281), (60.0, 1_006_594)])
def test_a_rate_that_was_put_back_for_a_moment_counts_for_that_moment(seconds: float, least: int) -> None:
    known = RatesInForce().changed(PastRate(0.0, 3_000_000, seconds), WINDOW)
    assert known.step(1.0, FLOOR, WAIT, WINDOW) == QuotaStep(least, WINDOW - 1.0)
    assert known.step(WINDOW + 1.0, FLOOR, WAIT, WINDOW) == QuotaStep(21_520, float("inf"))
