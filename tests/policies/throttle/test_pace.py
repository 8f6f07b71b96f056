"""How soon a broker is looked at again."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_space.limits import Limit
from policies.throttle.readings import BrokerPace, PaceBounds, adapt_pace, stretch_intervals
from tests.policies.scenario import GB, MB, volume

LIMITS = (Limit(available_bytes_below=5 * GB), Limit(available_bytes_below=1 * GB))
BOUNDS = PaceBounds(1.0, 10.0)
Course = Callable[[float], int]
"""From a second to free bytes."""


def paces(course: Course, until: float, bounds: PaceBounds = BOUNDS) -> list[BrokerPace]:
    """As a collector looks at one volume: at each multiple of the longest interval, and in between when it is due."""
    found: list[BrokerPace] = []
    now, pace = 0.0, None
    while now < until:
        pace = adapt_pace(pace, now, [volume("/a", int(course(now)))], LIMITS, bounds)
        found.append(pace)
        poll = (now // bounds.longest_seconds + 1) * bounds.longest_seconds
        now = min(now + pace.interval_seconds, poll)
    return found


def intervals(course: Course, until: float) -> list[float]:
    return [pace.interval_seconds for pace in paces(course, until)]


@pytest.mark.parametrize(
    "course",
    [
        pytest.param(lambda _: 50 * GB, id="at rest"),
        pytest.param(lambda _: 5 * GB + 1, id="at rest beside a limit"),
        pytest.param(lambda t: 50 * GB - t * 10 * MB, id="slowly, far from any"),
    ],
)
def test_far_from_any_limit_in_time_the_pace_is_the_longest(course: Course) -> None:
    assert set(intervals(course, 300)) == {10.0}


def test_as_a_limit_comes_near_the_looks_come_closer_and_ten_of_them_are_had_before_it() -> None:
    found = intervals(lambda t: 20 * GB - int(t * 100 * MB), 150)  # at the soft limit after 150 s
    assert found[-1] == 1.0
    assert sorted(found[2:], reverse=True) == found[2:]
    assert len(found) >= 10 + 5


def test_on_the_way_up_a_limit_is_looked_at_as_closely() -> None:
    assert intervals(lambda t: int(t * 50 * MB), 20)[-1] == 1.0


def test_the_pace_grows_longer_by_half_at_a_time() -> None:
    found = intervals(lambda t: max(5 * GB + 100 * MB, 20 * GB - int(t * 400 * MB)), 120)
    nearest = found.index(1.0)
    rest = found[nearest:]
    grown = [b / a for a, b in pairwise(rest)]
    assert rest[-1] == 10.0
    assert max(grown) <= 1.5 + 1e-9


def test_without_a_limit_the_pace_is_the_longest() -> None:
    first = adapt_pace(None, 0, [volume("/a", 9 * GB)], (), BOUNDS)
    assert adapt_pace(first, 10, [volume("/a", 1)], (), BOUNDS).interval_seconds == 10.0


@given(
    st.lists(st.tuples(st.floats(0.0, 20), st.none() | st.integers(0, 100 * GB)), min_size=1, max_size=30),
    st.sampled_from([BOUNDS, PaceBounds(1.0, 1.0), PaceBounds(0.25, 60.0)]),
)
def test_whatever_is_read_the_interval_stays_within_its_bounds(
    script: list[tuple[float, int | None]], bounds: PaceBounds
) -> None:
    pace, now = None, 0.0
    for pause, free in script:
        now += pause
        pace = adapt_pace(pace, now, [volume("/a", free)], LIMITS, bounds)
        assert bounds.shortest_seconds <= pace.interval_seconds <= bounds.longest_seconds


@given(st.dictionaries(st.integers(0, 50), st.floats(0.1, 10.0), max_size=50), st.floats(0.5, 200.0))
def test_all_brokers_together_ask_no_more_often_than_the_ceiling(wanted: dict[int, float], ceiling: float) -> None:
    held = stretch_intervals(wanted, ceiling, 10.0)
    assert all(held[broker] >= seconds for broker, seconds in wanted.items())
    assert all(seconds <= 10.0 for seconds in held.values())
    at_longest = sum(seconds == 10.0 for seconds in held.values())
    assert sum(1 / seconds for seconds in held.values()) <= ceiling + at_longest / 10 + 1e-6


def test_a_limit_is_seen_within_a_second_at_nearly_the_requests_of_every_ten() -> None:
    """An hour at rest, then filled at 50 MB/s from 15 GB above the soft limit; docs/throttle.md quotes the figures."""

    def seen(bounds: PaceBounds) -> list[float]:
        course: Course = lambda second: 20 * GB - int(max(0.0, second - 3600.3) * 50 * MB)  # noqa: E731
        return [pace.at_seconds for pace in paces(course, 3912.0, bounds)]

    adaptive = seen(BOUNDS)
    assert min(at for at in adaptive if at >= 3900.3) <= 3901.3
    assert len(adaptive) <= 1.2 * len(seen(PaceBounds(10.0, 10.0)))
