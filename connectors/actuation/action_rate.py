"""Rate limit of an actuator's actions per minute: it bounds what a wrong or forged decision can do."""

from collections import deque
from collections.abc import Callable

_WINDOW_SECONDS = 60.0


class ActionRate:
    """Allows so many actions within any minute.

    Args:
        a_minute: how many.
        clock: seconds, never going backwards.
    """

    def __init__(self, a_minute: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._done_at: deque[float] = deque(maxlen=a_minute)
        self._a_minute = a_minute

    def left_seconds(self) -> float:
        """Until another action may be done; 0 when it may now."""
        if len(self._done_at) < self._a_minute:
            return 0.0
        return max(0.0, self._done_at[0] + _WINDOW_SECONDS - self._clock())

    def take(self) -> None:
        """An action is being done."""
        self._done_at.append(self._clock())
