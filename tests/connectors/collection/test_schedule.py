"""The ticker, in virtual time."""

from itertools import islice

import pytest

from connectors.collection import JITTER, ticks


class VirtualTime:
    """A clock that moves only when somebody waits or works."""

    def __init__(self, stop_at: float = float("inf")) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self._stop_at = 1000.0 + stop_at

    def clock(self) -> float:
        return self.now

    def stopped_within(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now = min(self.now + seconds, self._stop_at)
        return self.now >= self._stop_at


def even(low: float, high: float) -> float:
    return (low + high) / 2


def test_first_tick_comes_at_once_and_the_others_at_a_fixed_rate_whatever_the_work_takes() -> None:
    time = VirtualTime()
    seen = []
    for _ in islice(ticks(10.0, time.stopped_within, clock=time.clock, draw=even), 4):
        seen.append(time.now - 1000.0)
        time.now += 3.0
    assert seen == [0.0, 10.0, 20.0, 30.0]


@pytest.mark.parametrize(("jitter", "expected"), [(JITTER, [0.0, 11.0, 21.0, 31.0]), (-JITTER, [0.0, 9.0, 19.0, 29.0])])
def test_jitter_moves_a_tick_but_does_not_add_up(jitter: float, expected: list[float]) -> None:
    time = VirtualTime()
    numbered = ticks(10.0, time.stopped_within, clock=time.clock, draw=lambda _low, _high: jitter)
    assert [round(time.now - 1000.0, 6) for _ in islice(numbered, 4)] == expected


def test_jitter_is_drawn_within_a_tenth_of_the_interval() -> None:
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return 0.0

    time = VirtualTime()
    list(islice(ticks(10.0, time.stopped_within, clock=time.clock, draw=draw), 3))
    assert set(drawn) == {(-0.1, 0.1)}


def test_missed_ticks_are_left_out() -> None:
    time = VirtualTime()
    numbers = []
    for number in islice(ticks(10.0, time.stopped_within, clock=time.clock, draw=even), 3):
        numbers.append((number, time.now - 1000.0))
        time.now += 25.0 if number == 0 else 0.0
    assert numbers == [(0, 0.0), (3, 30.0), (4, 40.0)]


def test_stop_ends_the_wait_and_the_ticks() -> None:
    time = VirtualTime(stop_at=25.0)
    assert list(ticks(10.0, time.stopped_within, clock=time.clock, draw=even)) == [0, 1, 2]
    assert time.now == 1025.0


def test_a_stop_before_the_first_tick_yields_none() -> None:
    assert list(ticks(10.0, lambda _seconds: True)) == []
