"""One cluster's incoming decisions, fenced: which decision is in force for each subject.

`policies.succession` defines what a decision must be to supersede another; repeated and late ones have no effect.
"""

from collections.abc import Callable
from datetime import datetime
from queue import SimpleQueue
from threading import Event
from typing import Generic, Protocol, TypeVar

import structlog

from policies.decisions import Mode
from policies.succession import Successive, succeeds

_log = structlog.get_logger(__name__)


class FencedDecision(Successive, Protocol):
    """A decision, as far as the fence is concerned."""

    @property
    def cluster(self) -> str:
        """The watched cluster."""

    @property
    def subject(self) -> str:
        """What was decided about: for each there is one decision in force."""

    @property
    def decision_id(self) -> str:
        """The same for a repeated decision."""


class ActionableDecision(FencedDecision, Protocol):
    """A decision that asks for something to be done once."""

    @property
    def mode(self) -> Mode:
        """Whether it may be carried out."""

    @property
    def verdict(self) -> str:
        """What is to be done."""

    @property
    def decided_at(self) -> datetime:
        """When it was decided."""


Fenced = TypeVar("Fenced", bound=FencedDecision)
ActionableT = TypeVar("ActionableT", bound=ActionableDecision)


class DecisionQueue(Generic[Fenced]):
    """The decisions of one cluster. `arrived` may be called from any thread, the rest from one.

    Args:
        now: the time.
        entered: told of each decision that has arrived and is in force from now on, and when Kafka took it.
        refused: told of each that has arrived too late, and which one is in force.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        entered: Callable[[Fenced, datetime], None],
        refused: Callable[[Fenced, Fenced], None],
    ) -> None:
        self._now = now
        self._entered = entered
        self._refused = refused
        self._inbox: SimpleQueue[tuple[Fenced, datetime]] = SimpleQueue()
        self._in_force: dict[str, Fenced] = {}
        self.news = Event()
        """Set when something has come in; cleared by `read`."""

    def recall(self, decision: Fenced, appended_at: datetime) -> bool:
        """Learn a decision made before this start, in order; whether it is in force now."""
        before = self._in_force.get(decision.subject)
        if not succeeds(decision, before, now=self._now(), appended_at=appended_at):
            return False
        self._in_force[decision.subject] = decision
        return True

    def arrived(self, decision: Fenced, appended_at: datetime) -> None:
        """Put in a new decision, with when Kafka took it."""
        self._inbox.put((decision, appended_at))
        self.news.set()

    def read(self) -> None:
        """Take in what has come."""
        self.news.clear()
        while not self._inbox.empty():
            self._take(*self._inbox.get())

    def in_force(self, subject: str) -> Fenced | None:
        """The decision in force, expired or not."""
        return self._in_force.get(subject)

    def _take(self, decision: Fenced, appended_at: datetime) -> None:
        before = self._in_force.get(decision.subject)
        if self.recall(decision, appended_at):
            self._entered(decision, appended_at)
        elif before is None:
            _log.warning("a decision is not believed", subject=decision.subject, sequence=decision.sequence)
        elif before.decision_id != decision.decision_id:
            self._refused(decision, before)
