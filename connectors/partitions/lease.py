"""Until when a process holds its shares: keeps a process that was frozen or cut off from doing another's work.

Kafka gives a member's shares to others once it has heard nothing from it for the session timeout. The member counts
from before its request, Kafka from its answer, so the member's time always ends first, whatever was delayed.
"""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

_MARGIN = 1 / 6
"""Of a session's time-out: for an act that was begun while the lease held."""

_NEVER = float("-inf")


def lease_seconds(session_seconds: float) -> float:
    """How long a lease is valid after it was renewed."""
    return session_seconds * (1 - _MARGIN)


def _awake_and_asleep() -> Callable[[], float]:
    """Seconds that never go backwards and, where the system tells, count while it is suspended."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if boot_time is None else partial(time.clock_gettime, boot_time)


CLOCK = _awake_and_asleep()


class PartitionLease:
    """The shares of one process. Safe from any thread.

    Args:
        valid_seconds: after a renewal; less than the session's time-out.
        clock: seconds that never go backwards.
    """

    def __init__(self, valid_seconds: float, clock: Callable[[], float] = CLOCK) -> None:
        self._valid_seconds = valid_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._held: frozenset[int] = frozenset()
        self._renewed_at = _NEVER

    @property
    def held(self) -> frozenset[int]:
        """What is assigned to it, as far as it has been told."""
        return self._held

    def holds(self, share: int) -> bool:
        """Whether nobody else can hold the share now: to be asked before each act."""
        with self._lock:
            return share in self._held and self._is_renewed()

    @property
    def is_valid(self) -> bool:
        """Whether all that it holds is its own; so it is where it holds nothing."""
        with self._lock:
            return not self._held or self._is_renewed()

    def _is_renewed(self) -> bool:
        return self._clock() < self._renewed_at + self._valid_seconds

    def take(self, shares: Iterable[int]) -> None:
        """These were assigned to it; they are its own once it has been renewed lately."""
        with self._lock:
            self._held = self._held.union(shares)

    def give_up(self, shares: Iterable[int]) -> None:
        """These are not its own any more, from now on."""
        with self._lock:
            self._held = self._held.difference(shares)

    def lose(self) -> None:
        """It has been taken for dead: nothing is its own, and what was renewed before does not count."""
        with self._lock:
            self._held, self._renewed_at = frozenset(), _NEVER

    def renewed(self, asked_at: float) -> None:
        """Kafka has taken it for a living member, in answer to what was asked then (by `clock`)."""
        with self._lock:
            self._renewed_at = max(self._renewed_at, asked_at)
