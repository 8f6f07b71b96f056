"""How low a quota may be set now, so that Kafka makes no producer wait too long.

Kafka makes a producer wait for (the bytes that it counted in its window) / (the new quota) - (the window), without a
bound. It does not report these bytes, but the greatest quota in force within the window limits them. So a quota goes
down in steps, each after the window of the step before. Pure: seconds are those of any monotonic clock.
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
class RatesInForce:
    """The rates that were in force within the window, without the present one."""

    until: tuple[tuple[float, int], ...] = ()
    """(end in seconds, bytes per second)"""

    def changed(self, at_seconds: float, rate: int | None, window_seconds: float) -> "RatesInForce":
        """Return the rates after a change; `rate` is the one that ends now, None if it is not known."""
        if rate is None:
            return self
        recent = tuple(each for each in self.until if each[0] > at_seconds - window_seconds)
        return RatesInForce((*recent, (at_seconds, rate)))

    def step(
        self, at_seconds: float, in_force: int | None, max_told_wait_seconds: float, window_seconds: float
    ) -> QuotaStep | None:
        """Return how low a quota may be set now; None if no rate within the window is known.

        Args:
            at_seconds: the present time.
            in_force: the present quota, or without one the rate that producers write; None if not known.
            max_told_wait_seconds: the longest wait that Kafka may impose on a producer.
            window_seconds: the longest window of a broker.
        """
        recent = [each for each in self.until if each[0] > at_seconds - window_seconds]
        highest = max((rate for _, rate in recent), default=0)
        if in_force is None and not recent:
            return None
        let_through = max(highest, in_force or 0) * window_seconds
        left = [until + window_seconds - at_seconds for until, rate in recent if rate > (in_force or 0)]
        least = ceil(let_through / (_AIM * max_told_wait_seconds + window_seconds))
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
