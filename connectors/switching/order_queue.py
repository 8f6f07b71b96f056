"""The orders about ledgers: one at a time for each ledger, the others queued behind it."""

import threading
from collections import defaultdict, deque

from policies.switching.decisions import SwitchDecision
from policies.switching.readings import SwitchLedger

_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 30.0
_MOST_DOUBLINGS = 10


class LedgerOrderQueue:
    """The orders under one lease. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[SwitchDecision]] = {}
        self._newest: dict[str, tuple[int, int]] = {}
        self._failures: defaultdict[int, int] = defaultdict(int)

    @property
    def open_count(self) -> int:
        """Number of ledgers with an order that is not done."""
        with self._lock:
            return len(self._waiting)

    def begin(self, order: SwitchDecision) -> bool:
        """Add an order, and return whether to begin it now. It waits behind another one, and is dropped if late."""
        with self._lock:
            version = (order.op, order.sequence)
            if version <= self._newest.get(order.subject, (-1, -1)):
                return False
            self._newest[order.subject] = version
            if (waiting := self._waiting.get(order.subject)) is not None:
                waiting.append(order)
                return False
            self._waiting[order.subject] = deque()
            return True

    def finish(self, order: SwitchDecision) -> SwitchDecision | None:
        """Remove an order that is done, and return the next one about the same ledger."""
        with self._lock:
            waiting = self._waiting[order.subject]
            if waiting:
                return waiting.popleft()
            del self._waiting[order.subject]
            return None

    def backoff_seconds(self, failed: SwitchLedger) -> float:
        """Count a failure, and return how long to wait before it is published: longer with each successive one."""
        with self._lock:
            self._failures[failed.ledger_id] += 1
            doublings = min(self._failures[failed.ledger_id] - 1, _MOST_DOUBLINGS)
            return min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * (1 << doublings))

    def reset_backoff(self, result: SwitchLedger) -> None:
        """Reset the count of failures after a success."""
        with self._lock:
            self._failures.pop(result.ledger_id, None)
