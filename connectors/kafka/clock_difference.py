"""The difference between this machine's clock and Kafka's, measured on records that Kafka just appended.

One record that seems old may have waited somewhere. If the following records seem equally old, the clocks differ.
"""

import time
from collections.abc import Callable

TOLERATED_MS = 60_000
"""Smaller differences count as none."""
_SPREAD_MS = 15_000
"""Maximum spread of records that confirm the same difference: one may have waited longer than another."""
_CONFIRM_SECONDS = 5.0


class ClockDifference:
    """Accepts a new difference once records have confirmed it for 5 s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._suspected: tuple[int, float] | None = None
        """A difference to confirm, in ms, and the time of its first record."""
        self._ahead_ms = 0

    @property
    def ahead_ms(self) -> int:
        """How far this machine's clock is ahead; 0 within the tolerance."""
        return self._ahead_ms

    def note(self, own_ms: int, appended_ms: int) -> bool:
        """Compare the append time of a record with this machine's time at its arrival.

        Returns:
            Whether `ahead_ms` changed.
        """
        ahead_ms, now = own_ms - appended_ms, self._clock()
        if abs(ahead_ms - self._ahead_ms) <= TOLERATED_MS:
            self._suspected = None
        elif self._suspected is None or abs(ahead_ms - self._suspected[0]) > _SPREAD_MS:
            self._suspected = ahead_ms, now
        elif now - self._suspected[1] >= _CONFIRM_SECONDS:
            self._suspected, self._ahead_ms = None, 0 if abs(ahead_ms) <= TOLERATED_MS else ahead_ms
            return True
        return False
