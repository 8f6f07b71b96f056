"""How one cluster's decisions stand: which is in force for each bookie, and which of them are still to be done.

A decision is in force until one with a higher sequence comes for its subject. An expired one may also be succeeded by a
valid one with a lower sequence: the query then lost its checkpoint and counts anew. Nothing else passes the fence, so
repeated and late records do nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Event

from connectors.quarantine.reports import Reports
from policies.isolation.decision import BookieQuarantine, QuarantineVerdict


@dataclass
class _Pending:
    decision: BookieQuarantine
    try_at: float = 0.0
    """By the monotonic clock."""
    failed: bool = False


def succeeds(new: BookieQuarantine, in_force: BookieQuarantine | None, now: datetime) -> bool:
    """Whether a decision takes the place of the one in force."""
    if in_force is None or new.sequence > in_force.sequence:
        return True
    return in_force.valid_until <= now < new.valid_until


class Standing:
    """What is known of one cluster. `arrived` may be called from any thread, the rest from one.

    Args:
        reports: told of decisions that come too late or are overtaken.
        clock: the time.
    """

    def __init__(self, reports: Reports, clock: Callable[[], datetime]) -> None:
        self._reports = reports
        self._clock = clock
        self._inbox: SimpleQueue[BookieQuarantine] = SimpleQueue()
        self._in_force: dict[str, BookieQuarantine] = {}
        self._pending: dict[str, _Pending] = {}
        self.news = Event()
        """Set when something has come in; cleared by `read`."""

    def recall(self, decision: BookieQuarantine) -> None:
        """A decision made before this start, in order; what has expired by now is history."""
        now = self._clock()
        if succeeds(decision, self._in_force.get(decision.subject), now):
            self._enter(decision)
            if decision.valid_until <= now:
                self.settle(decision)

    def arrived(self, decision: BookieQuarantine) -> None:
        """A new decision."""
        self._inbox.put(decision)
        self.news.set()

    def read(self) -> None:
        """Take in what has come."""
        self.news.clear()
        while True:
            try:
                decision = self._inbox.get_nowait()
            except Empty:
                return
            self._take(decision)

    def _take(self, decision: BookieQuarantine) -> None:
        now, in_force = self._clock(), self._in_force.get(decision.subject)
        if succeeds(decision, in_force, now):
            overtaken = self._pending.get(decision.subject)
            if overtaken is not None and not _is_to_be_done(decision):
                self._reports.superseded(overtaken.decision, decision, now)
            self._enter(decision)
        elif in_force is not None and in_force.decision_id != decision.decision_id and _is_to_be_done(decision):
            self._reports.superseded(decision, in_force, now)

    def _enter(self, decision: BookieQuarantine) -> None:
        self._in_force[decision.subject] = decision
        self._pending.pop(decision.subject, None)
        if _is_to_be_done(decision):
            self._pending[decision.subject] = _Pending(decision)

    def due(self) -> list[BookieQuarantine]:
        """What is to be tried now."""
        now = time.monotonic()
        return [pending.decision for pending in self._pending.values() if pending.try_at <= now]

    def is_pending(self, decision: BookieQuarantine) -> bool:
        """Whether it is still in force and still to be done."""
        pending = self._pending.get(decision.subject)
        return pending is not None and pending.decision is decision

    def settle(self, decision: BookieQuarantine) -> None:
        """It has been dealt with, for good."""
        if self.is_pending(decision):
            del self._pending[decision.subject]

    def postpone(self, decision: BookieQuarantine, seconds: float) -> None:
        """It failed, and is to be tried again in so many seconds, or when it expires."""
        if self.is_pending(decision):
            left_seconds = (decision.valid_until - self._clock()).total_seconds()
            pending = self._pending[decision.subject]
            pending.try_at, pending.failed = time.monotonic() + max(0.0, min(seconds, left_seconds)), True

    @property
    def failing(self) -> bool:
        """Whether anything that should have been done could not be."""
        return any(pending.failed for pending in self._pending.values())

    def pause_seconds(self) -> float | None:
        """Until something is to be tried; null when nothing is pending."""
        if not self._pending:
            return None
        return max(0.0, min(pending.try_at for pending in self._pending.values()) - time.monotonic())


def _is_to_be_done(decision: BookieQuarantine) -> bool:
    return decision.verdict is QuarantineVerdict.QUARANTINE
