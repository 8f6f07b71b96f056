"""One cluster's incoming decisions, fenced: which decision is in force for each subject.

`policies.succession` defines which decision supersedes another; repeated and late ones have no effect.
"""

from collections.abc import Callable
from datetime import datetime
from queue import SimpleQueue
from threading import Event
from typing import Generic, Protocol, TypeVar

import structlog

from policies.decisions import Mode
from policies.succession import Fence, Successive

_log = structlog.get_logger(__name__)


class FencedDecision(Successive, Protocol):
    """The fields of a decision that the fence needs."""

    @property
    def cluster(self) -> str:
        """The watched cluster."""

    @property
    def subject(self) -> str:
        """The subject; each has at most one decision in force."""

    @property
    def decision_id(self) -> str:
        """The same id for each repetition of a decision."""


class ActionableDecision(FencedDecision, Protocol):
    """A decision that asks for one action."""

    @property
    def mode(self) -> Mode:
        """Whether it may be carried out."""

    @property
    def verdict(self) -> str:
        """The action."""


Fenced = TypeVar("Fenced", bound=FencedDecision)
ActionableT = TypeVar("ActionableT", bound=ActionableDecision)


class DecisionQueue(Generic[Fenced]):
    """The decisions of one cluster. `receive` may be called from any thread, the rest from one.

    Args:
        accept: called with each received decision that comes into force, and the append time of its record.
        reject: called with each received decision that is too late, and the decision in force.
    """

    def __init__(
        self,
        accept: Callable[[Fenced, datetime], None],
        reject: Callable[[Fenced, Fenced], None],
    ) -> None:
        self._accept = accept
        self._reject = reject
        self._inbox: SimpleQueue[tuple[Fenced, datetime]] = SimpleQueue()
        self._in_force: dict[str, Fenced] = {}
        self._fence: Fence[str] = Fence()
        self.received = Event()
        """Set by `receive`; cleared by `read`."""

    def recall(self, decision: Fenced, appended_at: datetime) -> bool:
        """Fence a decision from before this start, in order of the topic. Returns whether it is in force now."""
        if not self._fence.passes(decision.subject, decision, appended_at):
            return False
        self._in_force[decision.subject] = decision
        return True

    def receive(self, decision: Fenced, appended_at: datetime) -> None:
        """Queue a new decision, with the append time of its record."""
        self._inbox.put((decision, appended_at))
        self.received.set()

    def read(self) -> None:
        """Fence all queued decisions."""
        self.received.clear()
        while not self._inbox.empty():
            decision, appended_at = self._inbox.get()
            before = self._in_force.get(decision.subject)
            if self.recall(decision, appended_at):
                self._accept(decision, appended_at)
            elif before is None:
                _log.warning("a decision is not credible", subject=decision.subject, sequence=decision.sequence)
            elif before.decision_id != decision.decision_id:
                self._reject(decision, before)

    def in_force(self, subject: str) -> Fenced | None:
        """Return the decision in force, expired or not."""
        return self._in_force.get(subject)
