"""How often something may be done to one broker."""

import time
from collections.abc import Callable


class Pace:
    """At most one action for each broker per interval.

    Args:
        interval_seconds: between two actions.
        clock: seconds, never going backwards.
    """

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._free_at: dict[str, float] = {}

    def left_seconds(self, member: str) -> float:
        """Until something may be done to a broker; 0 when it may now."""
        return max(0.0, self._free_at.get(member, 0.0) - self._clock())

    def take(self, member: str) -> None:
        """Something is being done to a broker."""
        now = self._clock()
        self._free_at = {m: at for m, at in self._free_at.items() if at > now} | {member: now + self._interval_seconds}
