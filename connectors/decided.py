"""The present content of the decided topics: for each key, the last decision that passes the fence."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from connectors.kafka.tail import Record
from policies.canary import CANARY
from policies.decisions import Alert, AlertStatus, Decision, Standing
from policies.registry import decision_types
from policies.succession import has_expired, succeeds
from policies.units import from_millis
from policies.wire import BadRecordError, EventReader

Key = tuple[str, str]
"""Topic and record key."""
Watched = tuple[str, str]
"""A policy and a cluster."""


class InForceChange(NamedTuple):
    """What a record has changed."""

    key: Key
    decision: Decision | None
    """In force from now on; None: what was in force there was deleted."""
    before: Decision | None = None
    """What was in force there until now."""

    @property
    def is_news(self) -> bool:
        """Whether anything else holds now than before: not what is repeated only because it would run out."""
        if self.decision is None or self.before is None or type(self.decision) is not type(self.before):
            return True
        return self.decision.says() != self.before.says()


def _but_the_canary(cluster: str) -> bool:
    return cluster != CANARY


class DecisionsInForce:
    """Folds records of the decided topics. What is no decision is another's to count.

    Args:
        kinds: of decisions that the topics hold.
        knows: says of a cluster whether it is one of those that matter here; by default all but the canary.
    """

    def __init__(self, kinds: Iterable[type[Decision]], knows: Callable[[str], bool] = _but_the_canary) -> None:
        self._reader: EventReader[Decision] = EventReader(kinds)
        self._knows = knows
        self._latest: dict[Key, Decision] = {}

    def take(self, record: Record) -> InForceChange | None:
        """What the record changes; None for what is repeated, late, not believed or no decision."""
        try:
            return self.fold(record)
        except BadRecordError:
            return None

    def fold(self, record: Record) -> InForceChange | None:
        """The same, for who counts what is no decision.

        Raises:
            BadRecordError: it is none.
        """
        if record.value is None:
            key = (record.topic, (record.key or b"").decode(errors="replace"))
            before = self._latest.pop(key, None)
            return None if before is None else InForceChange(key, None, before)
        decision = self._reader.read(record.value).data
        key, appended_at = (record.topic, decision.record_key()), from_millis(record.appended_ms)
        before = self._latest.get(key)
        # What had expired when this one was appended is judged by that time: of history it is no longer known.
        if not self._knows(decision.cluster) or not succeeds(
            decision, before, now=appended_at, appended_at=appended_at
        ):
            return None
        self._latest[key] = decision
        return InForceChange(key, decision, before)

    def all(self) -> Iterable[Decision]:
        """Everything in force, in no order."""
        return self._latest.values()


class InForce:
    """The decisions in force, as every consumer of the topics knows them. Pure but for what is handed to it.

    Args:
        knows: says of a cluster whether it is one of those that matter here; by default all but the canary.
    """

    def __init__(self, knows: Callable[[str], bool] = _but_the_canary) -> None:
        self._decided = DecisionsInForce(decision_types(), knows)
        self._standing: dict[Watched, Standing] = {}
        self._alerts: dict[Key, Alert] = {}

    def take(self, records: Sequence[Record]) -> bool:
        """Fold records of the decided topics in, but for what is no decision; whether anything has changed."""
        changes = 0
        for record in records:
            try:
                changes += self.fold(record) is not None
            except BadRecordError:
                continue
        return changes > 0

    def fold(self, record: Record) -> InForceChange | None:
        """What one record changes; raises as `DecisionsInForce.fold` does."""
        change = self._decided.fold(record)
        if change is not None:
            for said in (change.before, change.decision):
                if isinstance(said, Standing):
                    self._standing.pop((said.policy, said.cluster), None)
            if isinstance(change.decision, Standing):
                self._standing[change.decision.policy, change.decision.cluster] = change.decision
            if isinstance(change.decision, Alert):
                self._alerts[change.key] = change.decision
            else:
                self._alerts.pop(change.key, None)
        return change

    def decisions(self) -> list[Decision]:
        """All but alerts, and but who watches what, by cluster, policy and subject."""
        return sorted((d for d in self._decided.all() if not isinstance(d, Alert | Standing)), key=_order)

    def standings(self) -> Iterable[Standing]:
        """What was said last of each policy and cluster as a whole."""
        return self._standing.values()

    def watched(self) -> Iterable[Watched]:
        """The policies and clusters of which it was said that they are watched, once at least."""
        return self._standing

    def unwatched(self, now: datetime) -> frozenset[Watched]:
        """Those of which that is said no longer."""
        return frozenset(about for about, said in self._standing.items() if is_stale(said, now))

    def alerts(self, *, resolved: bool = False) -> list[Alert]:
        """Those that fire, the gravest and newest first; with `resolved` also those that have ended."""
        wanted = [alert for alert in self._alerts.values() if resolved or alert.status is AlertStatus.FIRING]
        return sorted(wanted, key=lambda a: (a.status.value, _gravity(a), -a.started_at.timestamp()))


def is_stale(decision: Decision, now: datetime, unwatched: frozenset[Watched] = frozenset()) -> bool:
    """Whether it should have had a successor by now: the loop is dead, or nobody watches its cluster any more."""
    return (decision.is_kept_up and has_expired(decision, now)) or (decision.policy, decision.cluster) in unwatched


def without_steps(decisions: Sequence[Decision]) -> Sequence[Decision]:
    """Those that tell of the whole; the steps where there is nothing else."""
    return [each for each in decisions if not each.is_step] or decisions


def _order(decision: Decision) -> tuple[str, str, str, str]:
    return decision.cluster, decision.policy, decision.event_type, decision.subject


def _gravity(alert: Alert) -> int:
    severities = list(type(alert.severity))
    return -severities.index(alert.severity)
