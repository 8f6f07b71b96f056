"""The replication policy: a cluster is degraded as long as too many of its partitions are under-replicated."""

from collections.abc import Sequence
from datetime import datetime

from policies.alerts import Sender, review
from policies.observations import Observation
from policies.policy import Step
from policies.units import from_millis, millis_of, to_millis

from .alerts import conditions
from .emit import emit, repeat_schedule
from .facts import ReplicationFacts, facts_as_of
from .fold import fold
from .judge import judge, ok_at_ms
from .settings import ReplicationSettings
from .state import ReplicationState

NAME = "replication"


class ReplicationPolicy:
    """Decides for one cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: ReplicationSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = Sender.build(NAME, cluster, settings)

    def begin(self, now: datetime) -> ReplicationState:
        """Return the state of a cluster that was never stepped."""
        return ReplicationState()

    def step(
        self, state: ReplicationState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ReplicationState]:
        """Fold, facts, judge, emit, alerts."""
        before = state or self.begin(now)
        facts = facts_as_of(now, fold(before.reading, observations), before, self._settings)
        judgement = judge(facts, self._settings)
        last, decisions = emit(judgement, facts, before.last_published, now, self._sender.issuer, self._settings)
        book, alerts, review_at = review(before.alerts, conditions(self._cluster, facts), now, self._sender)
        after = ReplicationState(facts.reading, facts.well_since_ms, last, book)
        wake_at = self._wake_at(facts, last.at_ms, review_at)
        return Step(after, (*decisions, *alerts), wake_at)

    def _wake_at(self, facts: ReplicationFacts, published_ms: int, review_at: datetime | None) -> datetime:
        due_ms = [repeat_schedule(self._settings).due_ms(published_ms), ok_at_ms(facts, self._settings)]
        if facts.reading is not None:
            due_ms.append(facts.reading.at_ms + millis_of(self._settings.validity))
        if review_at is not None:
            due_ms.append(to_millis(review_at))
        return from_millis(min(ms for ms in due_ms if ms > facts.now_ms))
