"""How far off the time to full is, for fills of several kinds: the table of docs/throttle.md, computed anew."""

import random
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from statistics import median

import pytest

from tests.policies.free_space.test_trend import told

GB = 10**9
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
