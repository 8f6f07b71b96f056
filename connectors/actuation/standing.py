"""How one cluster's decisions stand: which is in force for each subject, and which of them are still to be done.

A decision is in force until one with a higher sequence comes for its subject. An expired one may also be succeeded by a
valid one with a lower sequence: the query then lost its checkpoint and counts anew. Nothing else passes the fence, so
repeated and late records do nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from threading import Event
from typing import Generic, TypeVar

from policies.isolation.decision import BookieQuarantine
from policies.sessions.decision import OwnershipDecision

D = TypeVar("D", bound=BookieQuarantine | OwnershipDecision)
"""The kinds of decisions that are carried out so: each valid until an instant."""


@dataclass
class _Pending(Generic[D]):
    decision: D
    try_at: float
    """By the monotonic clock."""
    failures: int = 0


def succeeds(new: D, in_force: D | None, now: datetime) -> bool:
    """Whether a decision takes the place of the one in force."""
    if in_force is None or new.sequence > in_force.sequence:
        return True
    return in_force.valid_until <= now < new.valid_until


class Standing(Generic[D]):
    """What is known of one cluster. `arrived` may be called from any thread, the rest from one.

    Args:
        superseded: told of a decision that comes too late or is overtaken, by which one, and when.
        is_to_be_done: whether a decision asks to do something.
        clock: the time.
        grace: how long after a decision nothing is done yet.
        renewals_overtake: whether one to be done is overtaken by the next that is; else that only renews it.
    """

    def __init__(
        self,
        superseded: Callable[[D, D, datetime], None],
        is_to_be_done: Callable[[D], bool],
        clock: Callable[[], datetime],
        *,
        grace: timedelta = timedelta(0),
        renewals_overtake: bool,
    ) -> None:
        self._superseded = superseded
        self._is_to_be_done = is_to_be_done
        self._clock = clock
        self._grace = grace
        self._renewals_overtake = renewals_overtake
        self._inbox: SimpleQueue[D] = SimpleQueue()
        self._in_force: dict[str, D] = {}
        self._pending: dict[str, _Pending[D]] = {}
        self.news = Event()
        """Set when something has come in; cleared by `read`."""

    def recall(self, decision: D) -> None:
        """A decision made before this start, in order; what has expired by now is history."""
        now = self._clock()
        if succeeds(decision, self._in_force.get(decision.subject), now):
            self._enter(decision)
            if decision.valid_until <= now:
                self.settle(decision)

    def recall_done(self, decision_id: str) -> None:
        """A decision that was carried out before this start."""
        for pending in list(self._pending.values()):
            if pending.decision.decision_id == decision_id:
                self.settle(pending.decision)

    @property
    def pending_since(self) -> datetime | None:
        """When the oldest of those still to be done was decided; null when there is none."""
        return min((pending.decision.decided_at for pending in self._pending.values()), default=None)

    def arrived(self, decision: D) -> None:
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

    def _take(self, decision: D) -> None:
        now, in_force = self._clock(), self._in_force.get(decision.subject)
        if succeeds(decision, in_force, now):
            overtaken = self._pending.get(decision.subject)
            if overtaken is not None and (self._renewals_overtake or not self._is_to_be_done(decision)):
                self._superseded(overtaken.decision, decision, now)
            self._enter(decision)
        elif in_force is not None and in_force.decision_id != decision.decision_id and self._is_to_be_done(decision):
            self._superseded(decision, in_force, now)

    def _enter(self, decision: D) -> None:
        self._in_force[decision.subject] = decision
        self._pending.pop(decision.subject, None)
        if self._is_to_be_done(decision):
            # Bounded: another machine's clock may be ahead of ours.
            left = min(self._grace, max(timedelta(0), decision.decided_at + self._grace - self._clock()))
            self._pending[decision.subject] = _Pending(decision, time.monotonic() + left.total_seconds())

    def due(self) -> list[D]:
        """What is to be tried now."""
        now = time.monotonic()
        return [pending.decision for pending in self._pending.values() if pending.try_at <= now]

    def is_pending(self, decision: D) -> bool:
        """Whether it is still in force and still to be done."""
        pending = self._pending.get(decision.subject)
        return pending is not None and pending.decision is decision

    def attempt(self, decision: D) -> int:
        """Which attempt at it is the next one."""
        return self._pending[decision.subject].failures + 1 if self.is_pending(decision) else 1

    def settle(self, decision: D) -> None:
        """It has been dealt with, for good."""
        if self.is_pending(decision):
            del self._pending[decision.subject]

    def postpone(self, decision: D, seconds: float, *, failed: bool) -> None:
        """It is to be tried (again) in so many seconds, or when it expires."""
        if self.is_pending(decision):
            left_seconds = (decision.valid_until - self._clock()).total_seconds()
            pending = self._pending[decision.subject]
            pending.try_at = time.monotonic() + max(0.0, min(seconds, left_seconds))
            pending.failures += failed

    @property
    def failing(self) -> bool:
        """Whether anything that should have been done could not be."""
        return any(pending.failures for pending in self._pending.values())

    def pause_seconds(self) -> float | None:
        """Until something is to be tried; null when nothing is pending."""
        if not self._pending:
            return None
        return max(0.0, min(pending.try_at for pending in self._pending.values()) - time.monotonic())
