"""The rates of one quota over time: how low it may be set now, which are Headgate's, and who else sets it. Pure.

Seconds are those of any monotonic clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from policies.free_space.levels import Rate

# How low a quota may be set now, so that Kafka makes no producer wait too long.
#
# Kafka makes a producer wait for (the bytes that it counted in its window) / (the new quota) - (the window), without
# a bound. It does not report these bytes, but the greatest quota in force within the window limits them. So a quota
# goes down in steps, each after the window of the step before. A rate that somebody else put back for a moment lets
# through no more than that rate for that time.

DEFAULT_WINDOW_SECONDS = 11.0
"""Kafka's window: `quota.window.num` (11) samples of `quota.window.size.seconds` (1), by default."""
_AIM = 0.75
"""The share of the longest wait that a step may use. The rest is for the request that breaks the quota in force: Kafka
accepts and counts it."""


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """The lowest rate that a quota may have, and for how long."""

    least: int
    """Bytes per second and broker."""
    seconds: float
    """Time until it may be lower; infinite while the rate in force stays."""


@dataclass(frozen=True, slots=True)
class PastRate:
    """A rate that was in force within the window."""

    until_seconds: float
    bytes_per_second: int
    put_back_seconds: float | None = None
    """If somebody else had put it back: for how long at most. Its bytes come on top of the others."""


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The rates that were in force within the window, without the present one."""

    past: tuple[PastRate, ...] = ()

    def changed(self, ended: PastRate, window_seconds: float) -> "RatesInForce":
        """Return the rates after a change."""
        recent = (each for each in self.past if each.until_seconds > ended.until_seconds - window_seconds)
        return RatesInForce((*recent, ended))

    def step(
        self, at_seconds: float, in_force: int | None, max_told_wait_seconds: float, window_seconds: float
    ) -> QuotaStep | None:
        """Return how low a quota may be set now; None if no rate within the window is known.

        `in_force` is the present quota, or without one the rate that producers write; None if it is not known.
        """
        recent = [each for each in self.past if each.until_seconds > at_seconds - window_seconds]
        if in_force is None and not recent:
            return None
        highest, put_back_bytes = in_force or 0, 0.0
        for each in recent:
            if each.put_back_seconds is None:
                highest = max(highest, each.bytes_per_second)
            else:
                put_back_bytes += each.bytes_per_second * min(each.put_back_seconds, window_seconds)
        least = ceil((highest * window_seconds + put_back_bytes) / (_AIM * max_told_wait_seconds + window_seconds))
        higher = (each for each in recent if each.bytes_per_second > (in_force or 0))
        left = (each.until_seconds + window_seconds - at_seconds for each in higher)
        return QuotaStep(least, max(left, default=float("inf")))


def full_rate_seconds(rate: float, floor: float, max_told_wait_seconds: float | None, window_seconds: float) -> float:
    """Return for how long producers at a rate write as much as they do while a quota goes down from it to the floor."""
    if max_told_wait_seconds is None:
        return 0.0
    share, written, present = window_seconds / (_AIM * max_told_wait_seconds + window_seconds), 0.0, rate
    while present * share > floor:
        present *= share
        written += present * window_seconds
    return written / rate


def may_be_ours(found: Rate, base: int | None, floor: int, factors: Iterable[float]) -> bool:
    """Return whether a quota without a record equals the floor, or the base times one of the known factors."""
    throttling = (factor for factor in factors if factor < 1.0)
    return found == floor or (
        base is not None and any(found == max(int(base * factor), floor) for factor in throttling)
    )


# Who else sets a quota: how often it was put back, at which period, and when to look for the next time.

_TIMES_CONTESTED = 3
"""A quota that was put back this many times is fought over."""
_KEPT = 5
_FORGOTTEN_AFTER_SECONDS = 900.0
_CLOSE_LOOK_SECONDS = 0.5
_OPEN_SHARE = 0.04
"""The time until the next look, as a share of the time since the quota was put back: at most so long it is open."""


@dataclass(frozen=True, slots=True)
class Contest:
    """The last times at which somebody else put one quota back."""

    at: tuple[float, ...]
    value: Rate
    """The value that was found; None: the quota was removed."""

    @property
    def is_contested(self) -> bool:
        """Whether somebody sets it again and again."""
        return len(self.at) >= _TIMES_CONTESTED

    @property
    def period_seconds(self) -> float | None:
        """The median time between two, if it came back more than once."""
        between = sorted(after - before for before, after in pairwise(self.at))
        return between[len(between) // 2] if between else None

    def is_over(self, now: float) -> bool:
        """Whether it has not come back for so long that it need not be expected any more."""
        period = self.period_seconds
        return now - self.at[-1] > (_FORGOTTEN_AFTER_SECONDS if period is None else 3 * period + 3)

    def look_seconds(self, now: float, longest: float) -> float:
        """Return the time until the next look."""
        return min(max(_CLOSE_LOOK_SECONDS, _OPEN_SHARE * (now - self.at[-1])), longest)


def note_put_back(before: Contest | None, now: float, value: Rate) -> Contest:
    """Return the contest after a quota was found put back; another value begins another contest."""
    at = before.at if before is not None and before.value == value else ()
    return Contest((*at, now)[-_KEPT:], value)
