"""Orders about ledgers in progress: one at a time for each ledger, the others queued behind it."""

import threading
from collections import defaultdict, deque

from policies.switching.decisions import SwitchDecision
from policies.switching.readings import SwitchLedger

_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 30.0
_MOST_DOUBLINGS = 10


class LedgerOrderQueue:
    """The orders under one lease. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[SwitchDecision]] = {}
        self._newest: dict[str, tuple[int, int]] = {}
        self._failures: defaultdict[int, int] = defaultdict(int)

    @property
    def in_hand(self) -> int:
        """Of how many ledgers an order is not done."""
        with self._lock:
            return len(self._waiting)

    def begin(self, order: SwitchDecision) -> bool:
        """Whether to begin it now; it waits while another one about its ledger is under way, and is dropped if late."""
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
        """An order is done: the next one about the same ledger, or None when there is nothing more."""
        with self._lock:
            waiting = self._waiting[order.subject]
            if waiting:
                return waiting.popleft()
            del self._waiting[order.subject]
            return None

    def backoff_seconds(self, failed: SwitchLedger) -> float:
        """How long to wait before a failure is published: longer with each one in a row."""
        with self._lock:
            self._failures[failed.ledger_id] += 1
            doublings = min(self._failures[failed.ledger_id] - 1, _MOST_DOUBLINGS)
            return min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * (1 << doublings))

    def succeeded(self, result: SwitchLedger) -> None:
        """An order about the ledger did not fail: its failures in a row are over."""
        with self._lock:
            self._failures.pop(result.ledger_id, None)
