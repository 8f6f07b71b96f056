"""How far this machine's clock is ahead of Kafka's, from records that were just appended.

One record that seems old may have waited somewhere; if the following ones seem as old, the two clocks differ.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

TOLERATED_MS = 60_000
"""What the clocks may differ by."""
_SPREAD_MS = 15_000
"""Between records of one difference: how much longer one may have waited than the other."""
_CONFIRM_SECONDS = 5.0


class _Suspicion(NamedTuple):
    ahead_ms: int
    since: float


class ClockDifference:
    """What is believed of it.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._suspicion: _Suspicion | None = None
        self._ahead_ms = 0

    @property
    def ahead_ms(self) -> int:
        """How far this machine's clock is ahead; 0 while the two agree well enough."""
        return self._ahead_ms

    def note(self, own_ms: int, appended_ms: int) -> bool:
        """Take in when a record was appended, by Kafka's clock, and when that was just now, by ours.

        Returns:
            Whether something else is believed from now on.
        """
        ahead_ms, now = own_ms - appended_ms, self._clock()
        if abs(ahead_ms - self._ahead_ms) <= TOLERATED_MS:
            self._suspicion = None
        elif self._suspicion is None or abs(ahead_ms - self._suspicion.ahead_ms) > _SPREAD_MS:
            self._suspicion = _Suspicion(ahead_ms, now)
        elif now - self._suspicion.since >= _CONFIRM_SECONDS:
            self._suspicion, self._ahead_ms = None, 0 if abs(ahead_ms) <= TOLERATED_MS else ahead_ms
            return True
        return False
