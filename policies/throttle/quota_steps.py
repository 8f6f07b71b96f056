"""How low a quota may be set now, so that Kafka makes no producer wait too long.

Kafka makes a producer wait for (the bytes that it counted in its window) / (the new quota) - (the window), without a
bound. It does not report these bytes, but the greatest quota in force within the window limits them. So a quota goes
down in steps, each after the window of the step before. A rate that somebody else put back for a moment lets through
no more than that rate for that time. Pure: seconds are those of any monotonic clock.
"""

from dataclasses import dataclass
from math import ceil

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

        Args:
            in_force: the present quota, or without one the rate that producers write; None if not known.
            max_told_wait_seconds: the longest wait that Kafka may impose on a producer.
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
