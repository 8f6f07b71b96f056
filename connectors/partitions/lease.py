"""The time until which a process holds its work partitions, so that a frozen or isolated process does not act.

Kafka assigns a member's partitions to others when it has not heard from the member for the session timeout. The member
counts that time from before its request, and Kafka from its answer. So the member's time always ends first, whatever
delays the request or the answer.
"""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

_MARGIN = 1 / 6
"""Fraction of the session timeout that is left for an action that started while the lease was valid."""

_NEVER = float("-inf")

_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", None)
CLOCK: Callable[[], float] = time.monotonic if _BOOT_TIME is None else partial(time.clock_gettime, _BOOT_TIME)
"""Seconds that never go backwards; where the system has such a clock, they count while it is suspended, too."""


class PartitionLease:
    """The work partitions of one process. Safe from any thread.

    `session_seconds` is the session timeout.
    """

    def __init__(self, session_seconds: float, clock: Callable[[], float] = CLOCK) -> None:
        self._valid_seconds = session_seconds * (1 - _MARGIN)
        self._clock = clock
        self._lock = threading.Lock()
        self._held: frozenset[int] = frozenset()
        self._renewed_at = _NEVER

    @property
    def held(self) -> frozenset[int]:
        """The assigned partitions, as far as this process knows."""
        return self._held

    def holds(self, partition: int) -> bool:
        """Whether no other process can hold the partition now; ask before each action."""
        with self._lock:
            return partition in self._held and self._is_renewed()

    @property
    def is_valid(self) -> bool:
        """Whether no other process can hold a partition of this one; true without partitions."""
        with self._lock:
            return not self._held or self._is_renewed()

    def _is_renewed(self) -> bool:
        return self._clock() < self._renewed_at + self._valid_seconds

    def add(self, partitions: Iterable[int]) -> None:
        """Add newly assigned partitions; they are held once the lease has been renewed lately."""
        with self._lock:
            self._held = self._held.union(partitions)

    def remove(self, partitions: Iterable[int]) -> None:
        """Remove revoked partitions at once."""
        with self._lock:
            self._held = self._held.difference(partitions)

    def lose(self) -> None:
        """Drop all partitions and past renewals, because Kafka considers this process dead."""
        with self._lock:
            self._held, self._renewed_at = frozenset(), _NEVER

    def renew(self, asked_at: float) -> None:
        """Store that Kafka confirmed the membership, in answer to a request of that time (by `clock`)."""
        with self._lock:
            self._renewed_at = max(self._renewed_at, asked_at)
