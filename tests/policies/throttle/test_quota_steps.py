"""How low a quota may go at once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.quota_steps import WINDOW_SECONDS, QuotaStep, RatesInForce

BASE, FLOOR, WAIT = 10_000_000, 65_536, 30.0


def descent(base: int, floor: int, wait: float = WAIT) -> list[tuple[float, int]]:
    """(second, rate) of each step of a sudden stop, each as soon as it may be."""
    now, rate, known = 0.0, base, RatesInForce()
    steps: list[tuple[float, int]] = []
    while rate > floor:
        step = known.step(now, rate, wait)
        assert step is not None
        lower = max(step.least, floor)
        if lower < rate:
            steps.append((now, lower))
            known, rate = known.changed(now, rate), lower
        step = known.step(now, rate, wait)
        assert step is not None
        now += step.seconds if rate > floor else 0.0
    return steps


def test_a_stop_from_ten_megabytes_a_second_takes_six_steps_and_less_than_a_minute() -> None:
    """docs/quotas.md quotes them."""
    steps = descent(BASE, FLOOR)
    assert [round(rate / 1000) for _, rate in steps] == [3667, 1344, 493, 181, 66, 66]
    assert steps[-1] == (5 * WINDOW_SECONDS, FLOOR)


@given(st.integers(10**5, 10**9), st.integers(1000, 10**5), st.sampled_from([12.0, 20.0, 30.0, 120.0]))
def test_no_step_tells_a_producer_that_wrote_all_it_might_to_wait_longer(base: int, floor: int, wait: float) -> None:
    steps = descent(base, floor, wait)
    rates = [(float("-inf"), base), *steps]
    for (began, before), (at, rate) in pairwise(rates):
        assert at - began >= WINDOW_SECONDS
        assert before * WINDOW_SECONDS / rate <= wait + 1e-6
    assert rates[-1][1] == min(floor, base)


@given(st.lists(st.tuples(st.floats(0.0, 15.0), st.integers(1, 10**7)), max_size=20), st.integers(1, 10**7))
def test_what_was_in_force_within_the_window_counts(changes: list[tuple[float, int]], present: int) -> None:
    now, known, history = 0.0, RatesInForce(), list[tuple[float, int]]()
    for pause, rate in changes:
        now += pause
        known = known.changed(now, rate)
        history.append((now, rate))
        step = known.step(now, present, WAIT)
        highest = max([present, *(r for until, r in history if until > now - WINDOW_SECONDS)])
        assert step is not None
        assert step.least == pytest.approx(highest * WINDOW_SECONDS / WAIT, abs=1)
        assert len(known.until) <= len(history)


def test_where_nothing_is_known_to_have_been_let_through_there_is_no_step() -> None:
    assert RatesInForce().changed(0.0, None).step(1.0, None, WAIT) is None
    assert RatesInForce().step(0.0, 3000, WAIT) == QuotaStep(1100, float("inf"))
