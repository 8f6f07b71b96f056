"""The present state of the whole loop: records of its topics in, samples out. Pure; time is an argument."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from prometheus_client.metrics_core import Metric
from pydantic import BaseModel, TypeAdapter, ValidationError

from connectors.decided import DecisionsInForce, Watched
from connectors.exporter.latency import DecisionLatency
from connectors.exporter.recent_decisions import News
from connectors.kafka.tail import Record
from connectors.loop_snapshot import LoopSnapshot, PolicySnapshot
from connectors.metric_families import Family, Sample, metrics
from connectors.policy_view import DECISION_STALE, PolicyView
from connectors.registration import connectors_of
from policies.canary import CANARY
from policies.decisions import Alert, Decision, Standing
from policies.observations import Observation
from policies.policy import PolicyKind
from policies.registry import (
    COMMANDS,
    DEAD_LETTERS,
    POLICIES,
    decided_topics,
    observed_topics,
    reading_types,
)
from policies.settings import PolicySettings
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason, Event, EventReader

ALERTS = Family(
    "headgate_alerts", "How many alerts of this name and severity are firing.", ("alert", "severity", "cluster")
)
OBSERVATION_AGE = Family(
    "headgate_observation_age_seconds",
    "How long ago the newest observation of the cluster was appended, failed attempts to read included: "
    "it grows when its collector is dead.",
    ("cluster",),
)
DEAD_LETTER_COUNT = Family(
    "headgate_dead_letters_total",
    "Observed records the query could not read, by the topic they came from, since this process started.",
    ("topic", "reason"),
)
DECISIONS = Family(
    "headgate_verdicts_total",
    "Decisions by what they say and why, since this process started; one that is repeated because it would run out "
    "counts again.",
    ("policy", "verdict", "reason"),
)
BAD_RECORDS = Family(
    "headgate_exporter_bad_records_total",
    "Records this exporter could not read; those that were in the topics when it started count too.",
    ("topic", "reason"),
)

MOST_CLUSTERS = 1000
"""Where no clusters are named, more than so many are not shown: anybody who writes readings can invent names."""
OTHER = "other"
"""For the topic or reason of a dead letter that is none of this version's."""

_REASONS = frozenset(reason.value for reason in DeadLetterReason)
_SHORTEST_HISTORY = timedelta(minutes=5)


class _DeadLetter(BaseModel):
    """As much of a dead letter as is counted."""

    topic: str
    reason: str
    """A `DeadLetterReason`, or one of a newer query."""
    count: int = 1
    """How many records it stands for: of those that have no letter, many."""


class LoopView:
    """Folds records in, each batch as it comes, and gives the metrics of a moment.

    Args:
        prefix: of all topics.
        settings: each policy's block; a policy without one has its defaults.
        clusters: those there are; None: the first `MOST_CLUSTERS` that are named.
    """

    def __init__(
        self, prefix: str, settings: Mapping[str, PolicySettings], clusters: frozenset[str] | None = None
    ) -> None:
        self._clusters = clusters
        self._met: set[str] = set()
        self._settings = {name: settings.get(name) or kind.settings() for name, kind in POLICIES.items()}
        self._views = {
            name: view(self._settings[name])
            for name, kind in POLICIES.items()
            if (view := connectors_of(kind).view) is not None
        }
        self._observed = {f"{prefix}.{topic}": policy for topic, policy in observed_topics().items()}
        self._decided = {f"{prefix}.{topic}": _policy_of(topic) for topic in decided_topics()}
        self._dead_letters = f"{prefix}.{DEAD_LETTERS}"
        self._commands = f"{prefix}.{COMMANDS}"
        self._readings = EventReader(reading_types())
        # Not an EventReader: letters that older versions wrote hold whole records, so may be larger than any event.
        self._letters = TypeAdapter(Event[_DeadLetter])
        self._in_force = DecisionsInForce(self._knows)
        self._keys: Counter[tuple[str, str]] = Counter()
        """How many keys of the decided topics each (policy, cluster) has, alerts aside."""
        self._newest_ms: dict[tuple[str, str], int] = {}
        self._latency = DecisionLatency()
        of_views = (histogram for view in self._views.values() for histogram in view.histograms)
        self._histograms = (*of_views, self._latency.histogram)
        self._letter_counts = Counter({(t, r.value): 0 for t in self._observed for r in DeadLetterReason})
        self._decision_counts: Counter[tuple[str, str, str]] = Counter()
        self._bad: Counter[tuple[str, str]] = Counter()
        self._news = News()

    def histories(self) -> dict[str, timedelta | None]:
        """The topics to follow, and how much of their past the picture needs; None means all of it."""
        needed = {policy: view.history for policy, view in self._views.items()}
        observed = {
            topic: max(_SHORTEST_HISTORY, needed.get(policy, _SHORTEST_HISTORY))
            for topic, policy in self._observed.items()
        }
        return {**observed, **dict.fromkeys(self._decided), self._dead_letters: timedelta(0)}

    def take(self, records: Sequence[Record], *, live: bool) -> list[Decision]:
        """Fold a batch in.

        Args:
            records: of any topics, in order by partition.
            live: whether they are news; of history nothing is counted.

        Returns:
            The decisions not seen before, in their order.
        """
        # Observations first, wherever they stand in the batch: decisions rest on them.
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
        return fresh

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """The picture at a moment."""
        yield from self._ages(now_ms)
        stale = self._in_force.unwatched(from_millis(now_ms))
        told = {about: float(about in stale) for about in self._in_force.watched()}
        for name, view in self._views.items():
            for sample in view.samples(now_ms):
                if sample.family is DECISION_STALE:
                    about = (sample.labels[0], sample.labels[1])
                    told[about] = max(sample.value, told.get(about, 0.0))
                elif not _lapsed(name, view, sample, stale):
                    yield sample
        yield from (Sample(DECISION_STALE, about, value) for about, value in sorted(told.items()))
        yield from (Sample(ALERTS, labels, count) for labels, count in sorted(self._alert_counts().items()))
        yield from (Sample(DECISIONS, labels, count) for labels, count in sorted(self._decision_counts.items()))
        yield from (Sample(DEAD_LETTER_COUNT, labels, count) for labels, count in sorted(self._letter_counts.items()))

    def picture(self, now_ms: int) -> LoopSnapshot:
        """The picture at a moment with what was decided, for who shows more than numbers."""
        now, samples = from_millis(now_ms), self._samples_by_policy(now_ms)
        decisions: defaultdict[tuple[str, str], list[Decision]] = defaultdict(list)
        for decision in self._in_force.decisions():
            decisions[decision.cluster, decision.policy].append(decision)
        unwatched = self._in_force.unwatched(now)
        watched = {(cluster, policy) for policy, cluster in self._in_force.watched()}
        policies = [
            PolicySnapshot(
                policy,
                cluster,
                self._settings[policy].for_cluster(cluster),
                samples.get((cluster, policy), ()),
                decisions.get((cluster, policy), ()),
            )
            for cluster, policy in sorted({*samples, *decisions, *watched})
            if policy in self._settings
        ]
        return LoopSnapshot(
            now, None, None, policies, self._in_force.alerts(), self._news.newest_first(), unwatched=unwatched
        )

    def _samples_by_policy(self, now_ms: int) -> Mapping[tuple[str, str], Sequence[Sample]]:
        found: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
        for name, view in self._views.items():
            for sample in view.samples(now_ms):
                if "cluster" in sample.family.labels:
                    found[sample.labels[sample.family.labels.index("cluster")], name].append(sample)
        return found

    def metrics(self, now_ms: int) -> list[Metric]:
        """The picture at a moment, and the histograms so far, such as how long decisions took."""
        histograms = (histogram.metric() for histogram in self._histograms if not histogram.is_empty)
        return [*metrics(self.samples(now_ms)), *histograms]

    def own_samples(self) -> Iterator[Sample]:
        """What concerns this process rather than the loop."""
        return (Sample(BAD_RECORDS, labels, count) for labels, count in sorted(self._bad.items()))

    def families(self) -> list[Metric]:
        """All there may be, without samples."""
        of_views = [family for view in self._views.values() for family in view.families]
        common = (DECISION_STALE, OBSERVATION_AGE, ALERTS, DEAD_LETTER_COUNT, BAD_RECORDS, DECISIONS)
        histograms = (histogram.metric() for histogram in self._histograms)
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
            if not self._knows(cluster):
                continue
            self._latency.observed(event.id, event.time, record.appended_ms)
            # A command is given, not read: that there is none for long says nothing of a collector.
            if record.topic != self._commands:
                self._newest_ms[policy, cluster] = max(record.appended_ms, self._newest_ms.get((policy, cluster), 0))
            observations[policy].append(Observation(event.id, from_millis(record.appended_ms), event.data))
        for policy, readings in observations.items():
            if policy in self._views:
                self._views[policy].observe(readings)

    def _decide(self, record: Record, *, live: bool) -> Decision | None:
        change = self._in_force.fold(record)
        if record.value is None:
            self._forget(record, None if change is None else change.before)
        if change is None or (decision := change.decision) is None:
            return None
        if isinstance(decision, Standing):
            return None
        if change.is_news:
            self._news.tell(decision)
        if isinstance(decision, Alert):
            return decision
        self._keys[decision.policy, decision.cluster] += change.before is None
        if live:
            self._decision_counts[decision.policy, decision.verdict, decision.reason] += 1
        if (view := self._views.get(decision.policy)) and view.decide(decision, live=live) and live:
            self._latency.decided(decision, record.appended_ms)
        return decision

    def _knows(self, cluster: str) -> bool:
        if cluster == CANARY:
            return False
        if self._clusters is not None:
            return cluster in self._clusters
        if len(self._met) < MOST_CLUSTERS:
            self._met.add(cluster)
        return cluster in self._met

    def _forget(self, record: Record, was: Decision | None) -> None:
        """A tombstone: what was decided was deleted, say of a cluster that is no more."""
        policy = self._decided[record.topic]
        if policy in self._views:
            # Also where nothing is in force: a view knows what was read, too.
            self._views[policy].forget((record.key or b"").decode(errors="replace"))
        if was is None or isinstance(was, Alert):
            return
        about = (was.policy, was.cluster)
        self._keys[about] -= not isinstance(was, Standing)
        if not self._keys[about] and (policy is not None or about not in self._in_force.watched()):
            self._forget_cluster(*about)

    def _forget_cluster(self, policy: str, cluster: str) -> None:
        """Nothing is in force there any more."""
        del self._keys[policy, cluster]
        self._newest_ms.pop((policy, cluster), None)
        if policy in self._views:
            self._views[policy].forget_cluster(cluster)

    def _count_dead_letter(self, record: Record) -> None:
        try:
            letter = self._letters.validate_json(record.value or b"").data
        except ValidationError as error:
            raise BadRecordError(DeadLetterReason.MALFORMED, str(error.error_count())) from None
        known = (letter.topic in self._observed, letter.reason in _REASONS)
        topic, reason = letter.topic if known[0] else OTHER, letter.reason if known[1] else OTHER
        self._letter_counts[topic, reason] += letter.count

    def _ages(self, now_ms: int) -> Iterator[Sample]:
        # Two policies may watch clusters of one name; then the one whose observations are older is the one to show.
        newest_ms: dict[str, int] = {}
        for (_, cluster), at_ms in sorted(self._newest_ms.items()):
            newest_ms[cluster] = min(at_ms, newest_ms.get(cluster, at_ms))
        for cluster, at_ms in newest_ms.items():
            yield Sample(OBSERVATION_AGE, (cluster,), max(0, now_ms - at_ms) / 1000)

    def _alert_counts(self) -> Counter[tuple[str, ...]]:
        return Counter((a.alert, a.severity.value, a.cluster) for a in self._in_force.alerts())


def _lapsed(policy: str, view: PolicyView, sample: Sample, stale: frozenset[Watched]) -> bool:
    """Whether it tells of a decision that nobody keeps up any more."""
    if sample.family not in view.of_decisions:
        return False
    return (policy, sample.labels[sample.family.labels.index("cluster")]) in stale


def _policy_of(decided_topic: str) -> str | None:
    """The policy whose decisions a topic holds; None for the alerts, which all share."""
    kinds: list[PolicyKind] = [k for k in POLICIES.values() if any(d.topic == decided_topic for d in k.decisions)]
    return kinds[0].name if kinds else None
