"""How fast a volume fills: exact on a line, anew after a step, silent where there is nothing to be believed."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_space.trend import (
    SAMPLE_LIMIT,
    WINDOW_MS,
    Rise,
    Samples,
    Trend,
    add_sample,
    estimate_filling,
    follow_reading,
)
from tests.cases import for_each

MB, GB = 10**6, 10**9
Levels = Sequence[tuple[float, int]]
"""(second, free bytes)"""


class Told(NamedTuple):
    """What the trend tells after a reading."""

    second: float
    free: int
    rate: float
    """Bytes a second; 0 when nothing is said."""
    confidence: float

    @property
    def seconds_to_full(self) -> float | None:
        return self.free / self.rate if self.rate else None


def told(levels: Levels) -> list[Told]:
    trend, before, believed, found = Trend(), (0, 0), False, list[Told]()
    for second, free in levels:
        at_ms = round(second * 1000)
        trend = follow_reading(trend, at_ms, free, *before)
        now = estimate_filling(trend, at_ms, free, believed=believed)
        before, believed = (at_ms, free), now is not None
        found.append(Told(second, free, now.bytes_per_second if now else 0.0, now.confidence if now else 0.0))
    return found


def said(levels: Levels) -> list[Told]:
    return [each for each in told(levels) if each.rate]


def line(
    rate: int, *, every: float = 10, count: int = 60, free: int = 4 * GB, start: float = 0
) -> list[tuple[float, int]]:
    """A volume that fills at `rate` bytes a second, read every so many seconds."""
    return [(start + i * every, max(0, round(free - rate * i * every))) for i in range(count)]


@given(st.integers(10**4, 10**6), st.integers(1, 60), st.integers(4, 80))
def test_a_linear_fill_is_measured_exactly(rate: int, every: int, count: int) -> None:
    levels = [(t, free) for t, free in line(rate, every=every, count=count, free=10**8) if free]
    assert all(each.rate == pytest.approx(rate, rel=1e-6) for each in said(levels))


def test_a_linear_fill_is_said_once_it_has_been_seen_for_a_fortieth_of_what_is_left() -> None:
    found = told(line(MB, count=30))
    first = next(each for each in found if each.rate)
    assert first.second == 100
    assert first.seconds_to_full == 3900
    assert first.confidence == pytest.approx(0.51, abs=0.01)
    assert all(each.rate == pytest.approx(MB) for each in found if each.second >= 100)
    assert [a.confidence < b.confidence for a, b in pairwise(found) if 100 <= a.second < 190] == [True] * 9


def test_a_confidence_of_one_half_suffices() -> None:
    (last,) = said([(second, 164_000 - 1000 * second) for second in range(5)])
    assert (last.second, last.rate, last.confidence) == (4, 1000, 0.5)


@for_each(
    "levels",
    [
        pytest.param([], id="nothing read"),
        pytest.param(line(20 * MB, every=1, count=3, free=300 * MB), id="three readings tell nothing"),
        pytest.param(line(0), id="steady"),
        pytest.param(line(-MB), id="emptying"),
        pytest.param([(0, 315 * MB), (1, 314_500_000), (2, 314_200_000), *line(0, every=1, free=314 * MB, start=3)],
                     id="the first files of a broker"),
        pytest.param([*line(0, every=1, count=9, free=300 * MB), *line(0, every=1, free=180 * MB, start=9)],
                     id="one jump"),
        pytest.param([*line(0, count=40, free=50 * GB), *line(0, free=49 * GB, start=400)], id="one of two percent"),
        pytest.param([*line(0, count=40, free=50 * GB), *line(0, free=49_700 * MB, start=400)],
                     id="one of less than one"),
        pytest.param([(i, (300 - 10 * (i // 12)) * MB) for i in range(36)], id="a few jumps, each a rest after it"),
    ],
)  # fmt: skip
def test_what_does_not_fill_has_no_rate(levels: Levels) -> None:
    assert said(levels) == []


@for_each("share", [0.02, 0.1, 0.5])
@for_each("every", [1, 10])
def test_after_space_came_back_nothing_of_the_old_rate_is_said(every: int, share: float) -> None:
    fill = line(MB, every=every, count=60, free=2 * GB)
    end, free = fill[-1][0], round(fill[-1][1] * (1 + share))
    rest = line(0, every=every, count=120, free=free, start=end + every)
    found = told([*fill, *rest])
    assert found[59].rate == pytest.approx(MB)
    assert not any(each.rate for each in found[60:])


@pytest.mark.parametrize("factor", [3, 10])
def test_after_a_jump_of_the_load_the_new_rate_is_said_within_six_readings_and_never_the_old_one(factor: int) -> None:
    before = line(MB, free=4 * GB, count=40)
    after = line(factor * MB, free=before[-1][1] - factor * 10 * MB, start=400, count=20)
    later = [each for each in told([*before, *after]) if each.second >= 400]
    rates = [each.rate for each in later[6:]]
    assert rates == [pytest.approx(factor * MB, rel=0.1)] * len(rates)
    assert all(not each.rate or each.rate == pytest.approx(factor * MB, rel=0.35) for each in later[3:6])


def test_a_volume_that_begins_to_fill_after_a_long_rest_shows_its_rate_within_three_minutes() -> None:
    rest, fill = line(0, free=50 * GB, count=400), line(10 * MB, free=50 * GB, start=4000, count=100)
    first = said([*rest, *fill])[0]
    assert first.second <= 4180
    assert first.rate == pytest.approx(10 * MB)


@for_each("burst_at", range(3, 58, 6))
def test_one_burst_among_sixty_readings_moves_the_rate_by_less_than_a_tenth(burst_at: int) -> None:
    levels = line(MB, free=20 * GB, count=90)
    levels[burst_at] = (levels[burst_at][0], levels[burst_at][1] - 100 * MB)
    assert all(each.rate == pytest.approx(MB, rel=0.1) for each in said(levels)[1:])


@given(st.integers(0, 2**32))
def test_noise_of_a_poll_moves_the_rate_by_less_than_a_tenth(seed: int) -> None:
    noise = random.Random(seed)
    levels = [(t, free + noise.randrange(-5 * MB, 5 * MB)) for t, free in line(MB, free=10 * GB, count=90)]
    assert all(each.rate == pytest.approx(MB, rel=0.15) for each in said(levels))
    assert said(levels)


def saw_tooth(period: int, free: int, *, net: int = 0, until: int = 4000) -> list[tuple[float, int]]:
    """Filled at 1 MB/s, and emptied once a period but for `net` bytes a second."""
    return [(t, free - MB * (t % period) - net * t) for t in range(0, until, 10)]


PERIODS = pytest.mark.parametrize("period", [60, 120, 240, 300, 420])
"""Kafka's default retention check runs every 300 s."""


@PERIODS
@pytest.mark.parametrize("free", [2 * GB, 20 * GB, 200 * GB])
def test_once_retention_has_come_round_three_times_its_saw_tooth_is_no_filling(period: int, free: int) -> None:
    assert [each for each in said(saw_tooth(period, free)) if each.second > 3 * period] == []


@PERIODS
def test_what_fills_in_spite_of_retention_fills_by_what_the_peaks_lose(period: int) -> None:
    net = 100_000
    later = [each for each in said(saw_tooth(period, 3 * GB, net=net)) if each.second > 3 * period]
    rates = {round(each.rate) for each in later}
    assert rates <= {net}
    assert rates or period < 240  # the rises of shorter ones are noise, and their sum too slow to be drawn out so far


def test_a_rise_is_overdue_after_twice_the_longest_time_between_two_and_the_rate_since_is_said() -> None:
    levels = [*saw_tooth(120, 3 * GB, until=2160), *line(600_000, free=3 * GB, start=2160, count=100)]
    first = next(each for each in said(levels) if each.second >= 2160)
    assert first.second == 2160 + 2 * 120 + 10
    assert first.rate == pytest.approx(600_000)


@for_each("rate", [0, MB, 20 * MB], ids=["rest", "slow", "fast"])
@for_each(
    ("rises", "overdue"),
    [
        pytest.param([(0, 79 * GB), (10, 9 * GB), (11, 21 * GB), (30, 20 * GB), (31, 41 * GB)], 71, id="falling peaks"),
        pytest.param([(0, 25 * GB), (1, 33 * GB), (10, 33 * GB), (11, 41 * GB)], 31, id="two rises"),
        pytest.param([(0, 25 * GB), (1, 33 * GB), (11, 36 * GB), (41, 41 * GB)], 101, id="rising peaks"),
        pytest.param([(0, 30 * GB), (60, 40 * GB), (120, 39 * GB), (121, 42 * GB), (180, 37 * GB), (181, 41 * GB)], 301,
                     id="an ended saw-tooth"),
    ],
)  # fmt: skip
def test_when_no_rise_follows_for_twice_their_time_the_rate_since_the_last_one_is_said(
    rises: list[tuple[float, int]], overdue: float, rate: int
) -> None:
    """Three jumps within half a minute told their decline for a quarter of an hour, and rising peaks told nothing."""
    start = rises[-1][0]
    levels = [*rises, *line(rate, free=41 * GB, start=start + 10, every=10, count=90)]
    later = [each for each in told(levels) if each.second > overdue]
    assert {round(each.rate) for each in later} <= {0, rate}
    assert later[-1].rate == pytest.approx(rate if rate * 20 * 900 > 40 * GB else 0)


@given(st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 2**63 - 1)), max_size=60))
def test_samples_are_few_ordered_and_recent_and_what_is_said_is_believed(steps: list[tuple[int, int]]) -> None:
    trend, now, before = Trend(), 0, (0, 0)
    for pause, free in steps:
        now += pause
        trend = follow_reading(trend, now, free, *before)
        before = (now, free)
        assert len(trend.samples) <= SAMPLE_LIMIT
        assert list(trend.samples) == sorted(set(trend.samples))
        found = estimate_filling(trend, now, free)
        assert found is None or (found.bytes_per_second > 0 and 0.5 <= found.confidence <= 1.0)


@pytest.mark.parametrize("every", [1, 5, 10, 30])
def test_samples_stay_spread_over_the_window(every: int) -> None:
    samples: Samples = ()
    for second, free in line(MB, every=every, count=1200 // every):
        samples = add_sample(samples, round(second * 1000), free)
    assert samples[-1][0] - samples[0][0] >= WINDOW_MS * 3 / 4
    assert max(b[0] - a[0] for a, b in pairwise(samples)) <= WINDOW_MS / 3


def recorded() -> Iterable[tuple[float, int]]:
    """docs/fill.jsonl: a real disk under real producers, throttled, and space given back."""
    header, *points = map(json.loads, (Path(__file__).parents[3] / "docs/fill.jsonl").read_text().splitlines())
    assert header["disk_bytes"] > min(points[0]["free"])
    return [(p["t"], min(p["free"])) for p in points]


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=40))
def test_whatever_is_read_at_one_instant_gives_a_trend(levels: list[int]) -> None:
    told([(1.0, level) for level in levels])


def test_recurring_rises_at_one_instant_tell_no_rate() -> None:
    assert told([(1.0, 10**6 * (1 + step % 2)) for step in range(40)])[-1].rate == 0


def test_on_a_real_fill_the_estimate_is_off_by_less_than_a_fifth() -> None:
    """From when producers are at full speed until the first throttle."""
    levels = [(t, free) for t, free in recorded() if t <= 12.0]
    at_end = levels[-1]
    half = [each for each in told(levels) if 2.2 <= each.second <= 7.0]
    for each in half:
        assert each.rate
        left = (each.free - at_end[1]) / each.rate
        assert left == pytest.approx(at_end[0] - each.second, rel=0.2)


def test_on_a_real_recovery_nothing_is_said_but_of_what_was_read_after_it() -> None:
    levels = list(recorded())
    rise = next(t for (_, a), (t, b) in pairwise(levels) if b > 2 * a)
    assert [each for each in said(levels) if rise <= each.second <= rise + 6] == []


@pytest.mark.parametrize(("at_s", "is_told"), [(900, False), (900.001, True)])
def test_a_rise_counts_for_a_quarter_of_an_hour(at_s: float, is_told: bool) -> None:
    """While two rises count, nothing is told until a third; with one, the line tells the rate."""
    rises = (Rise(0, 2 * GB, 3 * GB), Rise(800_000, 2 * GB, 3 * GB))
    trend = Trend(((800_000, 3 * GB),), None, rises)
    for second in range(810, 891, 10):
        trend = follow_reading(trend, second * 1000, 3 * GB - (second - 800) * MB, (second - 10) * 1000, 3 * GB)
    assert (estimate_filling(trend, round(at_s * 1000), 2_910 * MB) is not None) is is_told


@for_each("more", [0, 1])
@for_each(
    ("levels", "late_bytes"),
    [
        pytest.param(line(100 * MB, free=20 * GB, count=12), 500 * MB, id="half a poll"),
        pytest.param(line(MB, every=1, free=310 * MB, count=12), 3 * MB, id="a hundredth of the free space"),
    ],
)
def test_a_step_is_off_by_more_than_half_a_poll_and_a_hundredth(levels: Levels, late_bytes: int, more: int) -> None:
    second, free = levels[-1]
    rate = told(levels)[-1].rate
    late = told([*levels[:-1], (second, free - late_bytes - more)])[-1].rate
    assert late == (0 if more else pytest.approx(rate))


# How far off the time to full is, for fills of several kinds: the table of docs/throttle.md, computed anew.

FREE, FULL_SECONDS, INTERVAL_SECONDS = 40 * GB, 3600, 10
RATE = FREE / FULL_SECONDS
_TURN_SECONDS = 1200
Free = Callable[[float, random.Random], float]
"""Free bytes at a second; a course ends where nothing is free."""

KINDS: dict[str, Free] = {
    "even": lambda t, _: FREE - RATE * t,
    "readings that are off by up to 1 % of what is free": lambda t, r: (FREE - RATE * t) * (1 + r.uniform(-0.01, 0.01)),
    "producers that write every other half minute": lambda t, _: FREE - RATE * (t // 60 * 60 + 2 * min(t % 60, 30)),
    "the load doubles after 20 minutes": lambda t, _: FREE - RATE * t - RATE * max(0.0, t - _TURN_SECONDS),
    "every 5 minutes retention frees half of what came": lambda t, _: FREE - RATE * (t // 300 * 300 + 2 * (t % 300)),
}
SINCE = ((1, 3), (3, 10), (10, 20), (20, 50))
"""Minutes since the fill, or its new rate, began."""


def errors(kind: str) -> Iterator[tuple[float, float | None]]:
    """Of each reading: seconds since the rate is what it is, and how far off the time to full is."""
    free, turn = KINDS[kind], _TURN_SECONDS if "doubles" in kind else 0
    for seed in range(5):
        noise = random.Random(seed)
        times = range(0, FULL_SECONDS, INTERVAL_SECONDS)
        course = list(takewhile(lambda level: level[1] > 0, ((t, int(free(t, noise))) for t in times)))
        for each in told(course):
            left = (FREE - RATE * turn) / (RATE * (2 if turn else 1)) - (each.second - turn)
            said = each.seconds_to_full
            if each.second >= turn and left > 0:
                yield each.second - turn, None if said is None else abs(said - left) / left


def cell(kind: str, since: tuple[int, int]) -> str:
    """Median and 95th percentile of the error, and in how many readings nothing is said."""
    found = [error for second, error in errors(kind) if 60 * since[0] <= second < 60 * since[1]]
    known = sorted(error for error in found if error is not None)
    if not known:
        return "nothing is said" if found else "full by then"
    silent = 1 - len(known) / len(found)
    said = f"{median(known):.0%}, {known[int(len(known) * 0.95)]:.0%}"
    return f"{said} ({silent:.0%} silent)" if silent >= 0.005 else said


def row(kind: str) -> str:
    return f"| {kind} | {' | '.join(cell(kind, since) for since in SINCE)} |"


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_each_kind_of_fill_is_that_of_the_table(kind: str) -> None:
    page = Path(__file__).parents[3] / "docs/throttle.md"
    assert row(kind) in page.read_text()


@pytest.mark.parametrize("kind", ["even", "the load doubles after 20 minutes"])
def test_a_fill_at_one_rate_is_told_exactly(kind: str) -> None:
    assert max(error for second, error in errors(kind) if error is not None and second >= 180) < 0.01
