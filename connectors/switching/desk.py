"""Which orders about ledgers are under way: one at a time of each ledger."""

import threading
from collections import defaultdict, deque

from policies.switching.decisions import SwitchDecision
from policies.switching.readings import SwitchLedger

_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_MOST_DOUBLINGS = 10


class Desk:
    """The orders under one lease. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[SwitchDecision]] = {}
        self._newest: dict[str, tuple[int, int]] = {}
        self._failures: defaultdict[int, int] = defaultdict(int)

    def begins(self, order: SwitchDecision) -> bool:
        """Whether to begin it now; it waits while another one about its ledger is under way, and is dropped if late."""
        with self._lock:
            place = (order.op, order.sequence)
            if place <= self._newest.get(order.subject, (-1, -1)):
                return False
            self._newest[order.subject] = place
            if (waiting := self._waiting.get(order.subject)) is not None:
                waiting.append(order)
                return False
            self._waiting[order.subject] = deque()
            return True

    def next(self, order: SwitchDecision) -> SwitchDecision | None:
        """What to do after an order about the same ledger; null when there is nothing more."""
        with self._lock:
            waiting = self._waiting[order.subject]
            if waiting:
                return waiting.popleft()
            del self._waiting[order.subject]
            return None

    def pause_seconds(self, failed: SwitchLedger) -> float:
        """How long to wait before a failure is told: longer with each one in a row."""
        with self._lock:
            self._failures[failed.ledger_id] += 1
            doublings = min(self._failures[failed.ledger_id] - 1, _MOST_DOUBLINGS)
            return min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * (1 << doublings))

    def succeeded(self, answer: SwitchLedger) -> None:
        """The ledger gives no trouble any more."""
        with self._lock:
            self._failures.pop(answer.ledger_id, None)
