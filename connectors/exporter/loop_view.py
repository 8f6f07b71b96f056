"""The present state of the whole loop: folds records of its topics and returns samples. Pure; time is an argument."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from pydantic import BaseModel, TypeAdapter, ValidationError

from connectors.decided import DecisionsInForce, Watched
from connectors.exporter.samples import EFFECTS, DecisionLatency, RecentDecisions, effect_samples
from connectors.kafka.tail import Record
from connectors.registration import connectors_of, load_hook
from connectors.views import Decided, Family, LoopSnapshot, Sample, metrics
from policies.decisions import Alert, Decision, Standing
from policies.observations import Observation
from policies.policy import LOOP
from policies.registry import (
    COMMANDS,
    DEAD_LETTERS,
    POLICIES,
    REPORTS,
    decided_topics,
    observed_topics,
    reading_types,
    topic_readers,
)
from policies.settings import PolicySettings
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason, Event, EventReader

DECISION_STALE = Family(
    "headgate_decision_stale",
    "1 when the last decision is past its validity without a successor: the loop is dead and the fallback applies.",
    ("policy", "cluster"),
)
ALERTS = Family("headgate_alerts", "Firing alerts by name and severity.", ("alert", "severity", "cluster"))
OBSERVATION_AGE = Family(
    "headgate_observation_age_seconds",
    "Time since the append of the cluster's newest observation, failed readings included: it grows when the collector "
    "is dead.",
    ("cluster",),
)
DEAD_LETTER_COUNT = Family(
    "headgate_dead_letters_total",
    "Observed records that the query could not read, by their topic, since this process started.",
    ("topic", "reason"),
)
DECISIONS = Family(
    "headgate_verdicts_total",
    "Decisions by verdict and reason, since this process started. A decision that is repeated before it expires counts "
    "again.",
    ("policy", "verdict", "reason"),
)
BAD_RECORDS = Family(
    "headgate_exporter_bad_records_total",
    "Records that this exporter could not read, including those that were in the topics when it started.",
    ("topic", "reason"),
)

MOST_CLUSTERS = 1000
"""Limit of the clusters shown if the settings name none, because every writer of readings can invent names."""
OTHER = "other"
"""Label of a dead letter's topic or reason that this version does not have."""

_RECENT_MS = 600_000
_REASONS = frozenset(reason.value for reason in DeadLetterReason)
_SHORTEST_HISTORY = timedelta(minutes=5)


class _DeadLetter(BaseModel):
    """The fields of a dead letter that are counted."""

    topic: str
    reason: str
    """A `DeadLetterReason`, or one of a newer query."""
    count: int = 1
    """Number of records that it stands for: more than one if dead letters were suppressed."""


class LoopView:
    """Folds records, batch by batch, and returns the metrics of a moment.

    Args:
        settings: each policy's settings; a policy that is absent has its defaults.
        clusters: the clusters to show; None: the first `MOST_CLUSTERS` that appear.
        needs: see `DecisionsInForce`.
    """

    def __init__(
        self,
        prefix: str,
        settings: Mapping[str, PolicySettings],
        clusters: frozenset[str] | None = None,
        needs: Mapping[tuple[str, str], str] = MappingProxyType({}),
    ) -> None:
        self._clusters = clusters
        self._seen_clusters: set[str] = set()
        self._views = {
            name: load_hook(view)(settings.get(name) or kind.settings())
            for name, kind in POLICIES.items()
            if (view := connectors_of(kind).view) is not None
        }
        self._prefix = prefix
        self._observed = {f"{prefix}.{topic}": policy for topic, policy in observed_topics().items()}
        self._decided = [f"{prefix}.{topic}" for topic in decided_topics()]
        self._dead_letters = f"{prefix}.{DEAD_LETTERS}"
        self._commands = f"{prefix}.{COMMANDS}"
        self._readings = EventReader(reading_types())
        # Not an EventReader: dead letters of older versions hold whole records, so may be larger than any event.
        self._letters = TypeAdapter(Event[_DeadLetter])
        self._in_force = DecisionsInForce(self._is_known, needs=needs)
        self._key_counts: Counter[tuple[str, str]] = Counter()
        """Number of record keys by (policy, cluster), without alerts."""
        self._newest_ms: dict[tuple[str, str], int] = {}
        self._latency = DecisionLatency()
        of_views = (histogram for view in self._views.values() for histogram in view.histograms)
        self._histograms = (*of_views, self._latency.histogram)
        self._letter_counts = Counter({(t, r.value): 0 for t in self._observed for r in DeadLetterReason})
        self._decision_counts: Counter[tuple[str, str, str]] = Counter()
        self._bad: Counter[tuple[str, str]] = Counter()
        self._foreign_ms: dict[str, int] = {}
        """By decided topic, the append time of its last record that is no decision."""
        self._recent = RecentDecisions()
        self.heartbeat_ms: int | None = None
        """The append time of the query's last heartbeat; None without one."""

    def histories(self) -> dict[str, timedelta | None]:
        """Return the topics to follow, and how far back each is read; None: from its beginning."""
        needed = {policy: view.history for policy, view in self._views.items()}
        observed = {
            f"{self._prefix}.{topic}": max(_SHORTEST_HISTORY, *(needed.get(p, _SHORTEST_HISTORY) for p in policies))
            for topic, policies in topic_readers().items()
        }
        whole = dict.fromkeys((*self._decided, f"{self._prefix}.{REPORTS}"))
        return {**observed, **whole, self._dead_letters: timedelta(0)}

    def fold(self, records: Sequence[Record], *, live: bool) -> list[Decision]:
        """Fold a batch, in order by partition; return its new decisions and alerts. Counters count live ones only."""
        # Observations first, wherever they are in the batch, because decisions are based on them.
        rest = [record for record in records if record.topic not in self._observed]
        self._observe([record for record in records if record.topic in self._observed])
        fresh = []
        for record in rest:
            try:
                if record.topic == self._dead_letters:
                    self._count_dead_letter(record)
                elif (decision := self._decide(record, live=live)) is not None:
                    fresh.append(decision)
            except BadRecordError as error:
                self._bad[record.topic, error.reason.value] += 1
                if record.topic in self._decided:
                    self._foreign_ms[record.topic] = record.appended_ms
        return fresh

    def find_foreign(self, now_ms: int) -> str | None:
        """Return a sentence about recent records of another writer on a decided topic; None without any."""
        topic = next((each for each, at_ms in sorted(self._foreign_ms.items()) if now_ms - at_ms < _RECENT_MS), None)
        return topic and (
            f"{topic}: records of the last 10 min are no decisions: another process writes there, which "
            "`headgate topics acls decide` excludes"
        )

    @property
    def has_observations(self) -> bool:
        """Whether a collector has read a cluster."""
        return bool(self._newest_ms)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield the samples of a moment."""
        yield from self._observation_ages(now_ms)
        now = from_millis(now_ms)
        stale, decisions = self._in_force.stale(now), self._in_force.grouped()
        for name, view in self._views.items():
            for sample in view.samples(now_ms, _of_policy(name, decisions)):
                if sample.family not in view.of_decisions or not stale.get((name, _cluster_label(sample))):
                    yield sample
        yield from (Sample(DECISION_STALE, about, is_stale) for about, is_stale in sorted(stale.items()))
        for each in self._in_force.in_force(now):
            yield from effect_samples(each)
        alerts = Counter((a.alert, a.severity.value, a.cluster) for a in self._in_force.alerts())
        yield from (Sample(ALERTS, labels, count) for labels, count in sorted(alerts.items()))
        yield from (Sample(DECISIONS, labels, count) for labels, count in sorted(self._decision_counts.items()))
        yield from (Sample(DEAD_LETTER_COUNT, labels, count) for labels, count in sorted(self._letter_counts.items()))

    def snapshot(self, now_ms: int) -> LoopSnapshot:
        """Return the state of a moment, with the decisions in force, for the status page."""
        now = from_millis(now_ms)
        decisions = self._in_force.grouped()
        details = {
            (policy, cluster): detail
            for policy, view in self._views.items()
            for cluster, detail in view.details(now_ms, _of_policy(policy, decisions))
        }
        return LoopSnapshot(
            now,
            behind=None,
            stale=self._in_force.stale(now),
            unwatched=self._in_force.unwatched(now),
            details=details,
            decisions=decisions,
            in_force={(each.policy, each.cluster): each for each in self._in_force.in_force(now)},
            alerts=self._in_force.alerts(),
            recent_decisions=self._recent.newest_first(),
        )

    def metrics(self, now_ms: int) -> list[Metric]:
        """Return the metrics of a moment, histograms included."""
        histograms = (metric for histogram in self._histograms for metric in histogram.collect() if metric.samples)
        return [*metrics(self.samples(now_ms)), *histograms]

    def process_samples(self) -> Iterator[Sample]:
        """Return the samples about this process instead of the loop."""
        return (Sample(BAD_RECORDS, labels, count) for labels, count in sorted(self._bad.items()))

    def families(self) -> list[Metric]:
        """Return every possible family, without samples."""
        of_views = [family for view in self._views.values() for family in view.families]
        common = (
            DECISION_STALE,
            OBSERVATION_AGE,
            ALERTS,
            DEAD_LETTER_COUNT,
            BAD_RECORDS,
            DECISIONS,
            *EFFECTS,
        )
        histograms = (  # the library describes a histogram without its labels
            HistogramMetricFamily(metric.name, metric.documentation, labels=histogram._labelnames)
            for histogram in self._histograms
            for metric in histogram.describe()
        )
        return [*(family.metric() for family in (*of_views, *common)), *histograms]

    def _observe(self, records: Sequence[Record]) -> None:
        observations: defaultdict[str, list[Observation]] = defaultdict(list)
        for record in records:
            try:
                event = self._readings.read(record.value or b"")
            except BadRecordError as error:
                self._bad[record.topic, error.reason.value] += 1
                continue
            policy, cluster = self._observed[record.topic], event.data.cluster
            if not self._is_known(cluster):
                continue
            self._latency.observe(event.id, event.time, record.appended_ms)
            # Operators send commands, not collectors: a long time without one is no sign of a dead collector.
            if record.topic != self._commands:
                self._newest_ms[policy, cluster] = max(record.appended_ms, self._newest_ms.get((policy, cluster), 0))
            for kind in POLICIES.values():
                if isinstance(event.data, kind.takes):
                    observations[kind.name].append(
                        Observation(event.id, from_millis(record.appended_ms), event.data, event.source)
                    )
        for policy, readings in observations.items():
            if policy in self._views:
                self._views[policy].observe(readings)

    def _decide(self, record: Record, *, live: bool) -> Decision | None:
        change = self._in_force.fold(record)
        if change is None or (decision := change.decision) is None:
            self._forget(change and change.before)
            return None
        if isinstance(decision, Standing):
            self.heartbeat_ms = record.appended_ms
            return None
        if change.is_news:
            self._recent.add(decision)
        if isinstance(decision, Alert):
            return decision
        self._key_counts[decision.policy, decision.cluster] += change.before is None
        if live:
            self._decision_counts[decision.policy, decision.verdict, decision.reason] += 1
        if (view := self._views.get(decision.policy)) and view.decide(decision, change.before, live=live) and live:
            self._latency.decide(decision, record.appended_ms)
        return decision

    def _is_known(self, cluster: str) -> bool:
        if self._clusters is not None:
            return cluster in self._clusters or cluster == LOOP
        if len(self._seen_clusters) < MOST_CLUSTERS:
            self._seen_clusters.add(cluster)
        return cluster in self._seen_clusters

    def _forget(self, before: Decision | None) -> None:
        """Drop the cluster of a deleted decision with its last key."""
        if before is None or isinstance(before, Alert):
            return
        about = (before.policy, before.cluster)
        self._key_counts[about] -= not isinstance(before, Standing)
        if not self._key_counts[about]:
            del self._key_counts[about]
            self._newest_ms.pop(about, None)
            if before.policy in self._views:
                self._views[before.policy].forget_cluster(before.cluster)

    def _count_dead_letter(self, record: Record) -> None:
        try:
            letter = self._letters.validate_json(record.value or b"").data
        except ValidationError as error:
            raise BadRecordError(DeadLetterReason.MALFORMED, str(error.error_count())) from None
        topic = letter.topic if letter.topic in self._observed else OTHER
        reason = letter.reason if letter.reason in _REASONS else OTHER
        self._letter_counts[topic, reason] += letter.count

    def _observation_ages(self, now_ms: int) -> Iterator[Sample]:
        # If two policies watch a cluster of the same name, the older observations count.
        newest_ms: dict[str, int] = {}
        for (_, cluster), at_ms in sorted(self._newest_ms.items()):
            newest_ms[cluster] = min(at_ms, newest_ms.get(cluster, at_ms))
        for cluster, at_ms in newest_ms.items():
            yield Sample(OBSERVATION_AGE, (cluster,), max(0, now_ms - at_ms) / 1000)


def _cluster_label(sample: Sample) -> str:
    return sample.labels[sample.family.labels.index("cluster")]


def _of_policy(policy: str, decisions: Mapping[Watched, Sequence[Decision]]) -> Decided:
    return {cluster: found for (each, cluster), found in decisions.items() if each == policy}
