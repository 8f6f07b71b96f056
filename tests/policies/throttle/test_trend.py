"""How fast a volume fills: exact on a line, robust to what is not."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.facts import seconds_to_full
from policies.throttle.trend import (
    SAMPLE_LIMIT,
    WINDOW_MS,
    Samples,
    fill_bytes_per_second,
    with_sample,
)

MB = 10**6


def sampled(levels: list[tuple[float, int]]) -> Samples:
    """Samples of (second, free bytes)."""
    samples: Samples = ()
    for seconds, free in levels:
        samples = with_sample(samples, round(seconds * 1000), free)
    return samples


def line(rate: int, *, every: float = 10, count: int = 60, free: int = 10**12) -> list[tuple[float, int]]:
    """A volume that fills at `rate` bytes a second, read every so many seconds."""
    return [(i * every, round(free - rate * i * every)) for i in range(count)]


@given(st.integers(1, 10**9), st.integers(1, 60), st.integers(3, 80))
def test_a_linear_fill_is_measured_exactly(rate: int, every: int, count: int) -> None:
    assert fill_bytes_per_second(sampled(line(rate, every=every, count=count))) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize(
    "levels",
    [
        pytest.param([], id="nothing read"),
        pytest.param(line(MB, count=2), id="two readings tell nothing"),
        pytest.param(line(0), id="steady"),
        pytest.param(line(-MB), id="emptying"),
    ],
)
def test_a_volume_that_does_not_fill_has_no_rate(levels: list[tuple[float, int]]) -> None:
    assert fill_bytes_per_second(sampled(levels)) is None


@pytest.mark.parametrize("burst_at", range(3, 58, 6))
def test_one_burst_among_sixty_readings_moves_the_rate_by_less_than_a_tenth(burst_at: int) -> None:
    levels = line(MB)
    levels[burst_at] = (levels[burst_at][0], levels[burst_at][1] - 500 * MB)
    assert fill_bytes_per_second(sampled(levels)) == pytest.approx(MB, rel=0.1)


@pytest.mark.parametrize("step_at", [3, 57])
def test_a_deleted_segment_near_either_end_moves_the_rate_by_less_than_a_quarter(step_at: int) -> None:
    levels = [(t, free + (100 * MB if i >= step_at else 0)) for i, (t, free) in enumerate(line(MB))]
    assert fill_bytes_per_second(sampled(levels)) == pytest.approx(MB, rel=0.25)


@given(st.integers(0, 2**32))
def test_noise_of_a_poll_moves_the_rate_by_less_than_a_tenth(seed: int) -> None:
    noise = random.Random(seed)
    levels = [(t, free + noise.randrange(-5 * MB, 5 * MB)) for t, free in line(MB)]
    assert fill_bytes_per_second(sampled(levels)) == pytest.approx(MB, rel=0.1)


@pytest.mark.parametrize(("period", "share"), [(60, 0.05), (120, 0.08), (240, 0.17), (300, 0.23), (450, 0.44)])
def test_the_saw_tooth_of_retention_is_seen_through_up_to_half_the_window(period: int, share: float) -> None:
    """Filling at 1 MB/s, emptied once a period: the rate found is at most this share of the gross rate, ideally none.

    Kafka's default retention check runs every 300 s. docs/throttle.md quotes these figures.
    """
    samples: Samples = ()
    worst = 0.0
    for now in range(0, 4000, 10):
        samples = with_sample(samples, now * 1000, 10**12 - MB * (now % period))
        if now > 900:
            worst = max(worst, fill_bytes_per_second(samples) or 0.0)
    assert worst <= (share + 0.005) * MB


def test_a_volume_that_begins_to_fill_shows_half_its_rate_within_eight_minutes() -> None:
    samples: Samples = ()
    for now in range(0, 4000 + 480, 10):
        samples = with_sample(samples, now * 1000, 10**12 - MB * max(0, now - 4000))
    assert (fill_bytes_per_second(samples) or 0.0) >= 0.5 * MB


@given(st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 2**63 - 1)), max_size=60))
def test_samples_are_few_ordered_and_recent(steps: list[tuple[int, int]]) -> None:
    samples: Samples = ()
    now = 0
    for pause, free in steps:
        now += pause
        samples = with_sample(samples, now, free)
        assert samples[-1] == (now, free)
        assert len(samples) <= SAMPLE_LIMIT
        assert list(samples) == sorted(set(samples))
        assert samples[0][0] >= now - WINDOW_MS
        rate = fill_bytes_per_second(samples)
        assert rate is None or rate > 0


@pytest.mark.parametrize("every", [1, 5, 10, 30])
def test_samples_stay_spread_over_the_window(every: int) -> None:
    samples = sampled(line(MB, every=every, count=1200 // every))
    assert samples[-1][0] - samples[0][0] >= WINDOW_MS * 3 / 4
    gaps = [b[0] - a[0] for a, b in pairwise(samples)]
    assert max(gaps) <= WINDOW_MS / 3


def test_a_repeated_instant_is_one_sample() -> None:
    assert with_sample(((1000, 5),), 1000, 7) == ((1000, 7),)


def test_on_a_real_fill_the_estimate_is_off_by_less_than_a_fifth() -> None:
    """docs/fill.jsonl: a real disk under real producers, from when they are at full speed until the first throttle."""
    header, *points = map(json.loads, (Path(__file__).parents[3] / "docs/fill.jsonl").read_text().splitlines())
    fill = [(p["t"], min(p["free"])) for p in points if 2.0 <= p["t"] <= 12.0]
    assert header["disk_bytes"] > fill[0][1] > fill[-1][1]
    half = len(fill) // 2
    samples: Samples = ()
    for seconds, free in fill[:half]:
        samples = with_sample(samples, round(seconds * 1000), free)
    (now, free_now), (then, free_then) = fill[half - 1], fill[-1]
    estimate = seconds_to_full(free_now - free_then, fill_bytes_per_second(samples), 0.0)
    assert estimate == pytest.approx(then - now, rel=0.2)
