"""The decisions in force: for each key of the decided topics, the latest decision that passes the fence.

With the topic of reports, also what the actuators have set for them. Decisions about clusters that are not watched any
more are deleted.
"""

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail, read_past
from policies.alerts import retire
from policies.decisions import Alert, AlertStatus, Decision, Fence, Severity, Standing, has_expired
from policies.effects import EffectBook, InForce, Report, judge_in_force
from policies.observations import ActuatorEvent
from policies.registry import AUDIT, REPORTS, decided_topics, decision_types, report_policies
from policies.units import from_millis
from policies.wire import BadRecordError, EventReader, audit_event, decision_event

_log = structlog.get_logger(__name__)

Key = tuple[str, str]
"""Topic and record key."""
Watched = tuple[str, str]
"""A policy and a cluster."""


class InForceChange(NamedTuple):
    """The effect of one record."""

    decision: Decision | None
    """The decision that is in force from now on; None after a tombstone."""
    before: Decision | None = None
    """The decision that was in force until now."""

    @property
    def is_news(self) -> bool:
        """Whether the content changed; False for a decision that was only repeated before it would expire."""
        if self.decision is None or self.before is None or type(self.decision) is not type(self.before):
            return True
        return self.decision.says() != self.before.says()


class DecisionsInForce:
    """Folds records of the decided topics; every consumer that lists decisions uses it.

    `knows` returns whether a cluster is of interest; by default every one is. If `policy` is given,
    only decisions of that policy are folded. `needs` has the setting that a cluster without an actuator lacks.
    """

    def __init__(
        self,
        knows: Callable[[str], bool] = lambda _cluster: True,
        policy: str | None = None,
        needs: Mapping[Watched, str] = MappingProxyType({}),
    ) -> None:
        self._needs = needs
        self._reader: EventReader[Decision] = EventReader(decision_types())
        self._knows = knows
        self._policy = policy
        self._latest: dict[Key, Decision] = {}
        self._fence: Fence[Key] = Fence()
        self._heartbeats: dict[Watched, Standing] = {}
        self.book = EffectBook()
        self._report_policies = report_policies()
        self._report_reader: EventReader[ActuatorEvent] = EventReader(self._report_policies)
        self._reports: dict[bytes, Report] = {}
        """The last report of each record key."""

    def fold_records(self, records: Iterable[Record]) -> list[InForceChange]:
        """Fold records, and return their changes; a bad record changes nothing."""
        changes = []
        for record in records:
            try:
                change = self.fold(record)
            except BadRecordError:
                continue
            if change is not None:
                changes.append(change)
        return changes

    def fold(self, record: Record) -> InForceChange | None:
        """Fold one record; None if it changes nothing because it is repeated, late or dated ahead.

        Raises BadRecordError if the record is no decision.
        """
        if record.topic.endswith(f".{REPORTS}"):
            self._fold_report(record)
            return None
        if record.value is None:
            key = (record.topic, (record.key or b"").decode(errors="replace"))
            self._fence.drop(key)
            return self._replace(key, None)
        decision = self._reader.read(record.value).data
        if self._policy not in (None, decision.policy):
            return None
        key, appended_at = (record.topic, decision.record_key()), from_millis(record.appended_ms)
        if not self._knows(decision.cluster) or not self._fence.passes(key, decision, appended_at):
            return None
        return self._replace(key, decision)

    def _fold_report(self, record: Record) -> None:
        """Fold a report; a tombstone drops the report of its key.

        The keys of a cluster that is not watched any more are deleted one by one. If the cluster comes back, the
        deletions in one partition may be read after its new reports in another, so they must not drop those.
        """
        key = record.key or b""
        if record.value is None:
            if (before := self._reports.pop(key, None)) is not None:
                self.book.drop(before)
            return
        event = self._report_reader.read(record.value)
        data, effect = event.data, event.data.effect()
        of_policy = self._report_policies[type(data)]
        if effect is None or not self._knows(data.cluster) or self._policy not in (None, of_policy):
            return
        at = min(event.time or from_millis(record.appended_ms), from_millis(record.appended_ms))
        subject = data.subject() if effect.subject is None else effect.subject
        self._reports[key] = Report(of_policy, data.cluster, subject, at, effect)
        self.book.fold(self._reports[key])

    def _replace(self, key: Key, after: Decision | None) -> InForceChange | None:
        before = self._latest.get(key)
        if isinstance(before, Standing):
            self._heartbeats.pop((before.policy, before.cluster), None)
        if isinstance(after, Standing):
            self._heartbeats[after.policy, after.cluster] = after
        if after is not None:
            self._latest[key] = after
        elif before is not None:
            del self._latest[key]
        return None if before is after else InForceChange(after, before)

    def decisions(self) -> list[Decision]:
        """Return the decisions by (cluster, policy, subject), without alerts and heartbeats."""
        found = (d for d in self._latest.values() if not isinstance(d, Alert | Standing))
        return sorted(found, key=lambda d: (d.cluster, d.policy, d.event_type, d.subject))

    def grouped(self) -> dict[Watched, list[Decision]]:
        """Return the decisions by policy and cluster, each in the order of kind and subject."""
        found: defaultdict[Watched, list[Decision]] = defaultdict(list)
        for decision in self.decisions():
            found[decision.policy, decision.cluster].append(decision)
        return found

    def in_force(self, now: datetime) -> list[InForce]:
        """Return the wanted and the set values for each cluster and policy that has an actuator."""
        decisions = self.grouped()
        about = {*decisions, *self.book.reported(), *self._heartbeats}
        found = (
            judge_in_force(
                policy,
                cluster,
                decisions.get((policy, cluster), ()),
                self.book.effects(policy, cluster),
                self._heartbeats.get((policy, cluster)),
                now,
                self._needs.get((policy, cluster)),
            )
            for policy, cluster in sorted(about, key=lambda each: (each[1], each[0]))
        )
        return [each for each in found if each is not None]

    def heartbeats(self) -> Iterable[Standing]:
        """Return the latest heartbeat of each policy and cluster."""
        return self._heartbeats.values()

    def unwatched(self, now: datetime) -> frozenset[Watched]:
        """Return every policy and cluster whose heartbeat is stale."""
        return frozenset(about for about, heartbeat in self._heartbeats.items() if is_stale(heartbeat, now))

    def stale(self, now: datetime) -> dict[Watched, bool]:
        """Return for each policy and cluster with a heartbeat or decisions whether a successor of one is overdue."""
        found: defaultdict[Watched, bool] = defaultdict(bool)
        for each in self._latest.values():
            if each.is_kept_up and not isinstance(each, Alert):
                found[each.policy, each.cluster] |= is_stale(each, now)
        return found

    def alerts(self, *, resolved: bool = False) -> list[Alert]:
        """Return the firing alerts, by severity and then the newest first; with `resolved` the ended ones, too."""
        found = (alert for alert in self._latest.values() if isinstance(alert, Alert))
        wanted = [alert for alert in found if resolved or alert.status is AlertStatus.FIRING]
        severities = list(Severity)
        return sorted(wanted, key=lambda a: (a.status.value, -severities.index(a.severity), -a.started_at.timestamp()))


def is_stale(decision: Decision, now: datetime, unwatched: frozenset[Watched] = frozenset()) -> bool:
    """Whether a successor is overdue: the loop is dead, or no process watches the cluster any more."""
    return (decision.is_kept_up and has_expired(decision, now)) or (decision.policy, decision.cluster) in unwatched


def without_steps(decisions: Sequence[Decision]) -> Sequence[Decision]:
    """Return the decisions about a whole; the steps only if there is nothing else."""
    return [each for each in decisions if not each.is_step] or decisions


# Deletes the decisions about clusters that are not watched any more.
#
# It reads the decided topics themselves. So it also deletes what an older version, a forged name or a lost checkpoint
# left behind. A firing alert is resolved once; then a tombstone deletes each key.

Publish = Callable[[str, str, bytes | None], None]
"""Publishes a record (topic, key, value or None for a tombstone)."""
Left = dict[tuple[str, str], Decision | ActuatorEvent]
"""By topic and key, the last decision or report about a cluster that is not watched."""


def retire_clusters(
    connection: KafkaConnection, prefix: str, clusters: frozenset[str], publish: Publish, stop: threading.Event
) -> None:
    """Delete the decisions about other clusters, then wait for `stop`: the loop expects its components to run on."""
    topics = dict.fromkeys(f"{prefix}.{topic}" for topic in (*decided_topics(), REPORTS))
    with Tail(connection, topics, f"{prefix}-retirement") as tail:
        left = find_left(read_past(tail, stop, patience_seconds=math.inf), clusters)
    if not stop.is_set():
        delete_left(left, prefix, publish, datetime.now(UTC))
        stop.wait()


def find_left(records: Iterable[Record], clusters: frozenset[str]) -> Left:
    """Return the last decision or report of each key whose cluster does not exist."""
    left: Left = {}
    reader: EventReader[Decision | ActuatorEvent] = EventReader((*decision_types(), *report_policies()))
    for record in records:
        place = (record.topic, (record.key or b"").decode(errors="replace"))
        left.pop(place, None)
        try:
            decision = None if record.value is None else reader.read(record.value).data
        except BadRecordError:
            continue  # of another version or writer
        if decision is not None and decision.cluster not in clusters:
            left[place] = decision
    return left


def delete_left(left: Left, prefix: str, publish: Publish, now: datetime) -> None:
    """Resolve and delete these decisions, and delete these reports, given by topic and key."""
    if left:
        names = sorted({decision.cluster for decision in left.values()})
        _log.info("retiring clusters that the settings do not name", clusters=names[:10], count=len(names))
    for (topic, key), decision in left.items():
        if isinstance(decision, Alert) and decision.status is AlertStatus.FIRING:
            resolved = retire(decision, max(now, decision.decided_at))
            publish(topic, key, decision_event(resolved))
            publish(f"{prefix}.{AUDIT}", resolved.cluster, audit_event(resolved))
        publish(topic, key, None)
