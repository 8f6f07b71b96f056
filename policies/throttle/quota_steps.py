"""How low a quota may be set now, so that no producer is told to wait unbearably long.

Kafka makes a producer wait for (the bytes it counted in its window) / (the new quota), without a bound. It does not
report these bytes; but they are at most what the greatest quota in force within the window let through. So a quota goes
down in steps, each after the window of the previous one has passed. Pure: seconds are those of any monotonic clock.
"""

from dataclasses import dataclass
from math import ceil

WINDOW_SECONDS = 11.0
"""What Kafka counts over: `quota.window.num` (11) samples of `quota.window.size.seconds` (1), by default."""


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """How low a quota may be, and for how long no lower."""

    least: int
    """Bytes per second and broker."""
    seconds: float
    """Until it may be lower; infinite while what is in force stays."""


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The rates that were in force within the window, beside the present one."""

    until: tuple[tuple[float, int], ...] = ()
    """(until which second, bytes per second)"""

    def changed(self, at_seconds: float, rate: int | None) -> "RatesInForce":
        """Another rate takes the place of this one; None: what was let through before is not known."""
        if rate is None:
            return self
        recent = tuple(each for each in self.until if each[0] > at_seconds - WINDOW_SECONDS)
        return RatesInForce((*recent, (at_seconds, rate)))

    def step(self, at_seconds: float, in_force: int | None, max_told_wait_seconds: float) -> QuotaStep | None:
        """How low a quota may be set at a moment.

        Args:
            at_seconds: now.
            in_force: the quota there is, or what producers write without one; None: not known.
            max_told_wait_seconds: what a producer may be told to wait.

        Returns:
            None when nothing is known to have been let through.
        """
        recent = [each for each in self.until if each[0] > at_seconds - WINDOW_SECONDS]
        highest = max((rate for _, rate in recent), default=0)
        if in_force is None and not recent:
            return None
        let_through = max(highest, in_force or 0) * WINDOW_SECONDS
        left = [until + WINDOW_SECONDS - at_seconds for until, rate in recent if rate > (in_force or 0)]
        return QuotaStep(ceil(let_through / max_told_wait_seconds), max(left, default=float("inf")))
