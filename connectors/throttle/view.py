"""Metrics of the throttle policy: its decisions, and the volumes they rest on.

Knowledge about volumes (when one is forgotten, how soon it is full) comes from the policy's own code, fed with the same
readings. The reason of a factor comes from the decision alone, so that metrics never disagree with decisions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from connectors.metric_families import Family, Histogram, Sample
from connectors.policy_view import DECISION_STALE, by_cluster
from policies.decisions import Decision
from policies.observations import Observation
from policies.throttle import trend
from policies.throttle.decisions import (
    FALLBACK_REASONS,
    FreshnessCounts,
    LimitHit,
    LimitingVolume,
    ThrottleFactor,
    ThrottleReason,
    ThrottleVerdict,
)
from policies.throttle.facts import seconds_left
from policies.throttle.fold import fold
from policies.throttle.judge.brokers import BrokerVerdicts, judge_brokers
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.policy import NAME
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import KafkaClusterState
from policies.units import from_millis, to_millis

FACTOR = Family(
    "headgate_throttle_factor",
    "How much the cluster's producers should write, as decided, in shadow mode and without an actuator too: 1 is all "
    "of their base rate, 0 nothing but the floor. What was carried out: headgate_quota_bytes_per_second. While the "
    "decision is stale, the fallback.",
    ("cluster",),
)
RAW_FACTOR = Family(
    "headgate_throttle_raw_factor",
    "The least factor of all volumes that count, before holds and small changes are held back. "
    "Absent while the decision is stale.",
    ("cluster",),
)
FALLBACKS = Family(
    "headgate_throttle_fallback_total",
    "How many times the factor came to rest on the fallback because no valid reading decided it; "
    "repeats while that lasts do not count.",
    ("cluster",),
)
VIOLATIONS = Family(
    "headgate_throttle_limit_violations_total",
    "How many times the cluster came to a limit: a volume at it began to decide the factor. Repeats do not count, nor "
    "does coming back up from hard to soft, nor swinging around the hard limit within the recovery margin.",
    ("cluster", "limit"),
)
THROTTLING = Family(
    "headgate_throttling_volume",
    "1 for the volume for which the cluster should write less now, with the reason of the decision.",
    ("cluster", "broker", "log_dir", "reason"),
)
_VOLUME_LABELS = ("cluster", "broker", "log_dir")
USABLE = Family("headgate_volume_usable_bytes", "Free for the broker, when last read.", _VOLUME_LABELS)
USED = Family("headgate_volume_used_bytes", "Not free for the broker, when last read.", _VOLUME_LABELS)
TOTAL = Family("headgate_volume_total_bytes", "Size of the file system, when last read.", _VOLUME_LABELS)
SECONDS_TO_FULL = Family(
    "headgate_volume_seconds_to_full",
    "How long until nothing is free at the present rate; absent when the volume is not filling, when its trend is not "
    "to be believed, and when it is not freshly read.",
    _VOLUME_LABELS,
)
BROKERS = Family(
    "headgate_kafka_brokers",
    "Brokers by how they count for the decision: counted (validly read), stale, departed (gone, but still counting). "
    "Absent while the decision is stale.",
    ("cluster", "state"),
)
LOG_DIRS = Family(
    "headgate_log_dirs",
    "Volumes by how they count for the decision: counted (validly read), stale, departed (gone, but still counting). "
    "Absent while the decision is stale.",
    ("cluster", "state"),
)

_CAUSED_BY_TIME = FALLBACK_REASONS | {ThrottleReason.DEPARTED_VOLUME}
"""No reading brings these about, or none that is evidence."""
_MAY_END_BY_TIME = frozenset({ThrottleReason.MIN_HOLD, ThrottleReason.DEPARTED_VOLUME})


@dataclass(slots=True)
class _ThrottledCluster:
    """What is shown of one cluster."""

    name: str
    settings: ThrottleSettings
    known: KafkaClusterState = field(default_factory=KafkaClusterState)
    decision: ThrottleFactor | None = None
    limit: LimitHit = LimitHit.NONE
    """The limit the cluster is at, by its last decisions."""
    fallbacks: int = 0
    violations: Counter[LimitHit] = field(default_factory=Counter)

    def judge(self, now: datetime) -> BrokerVerdicts:
        """Judge the brokers as a step of the policy does, but without its gate and alerts."""
        return judge_brokers(self.name, self.known, self.settings, now)


class ThrottleView:
    """The present picture of all clusters.

    Args:
        settings: the policy's block.
    """

    families: tuple[Family, ...] = (
        FACTOR, RAW_FACTOR, FALLBACKS, VIOLATIONS, THROTTLING, USABLE, USED, TOTAL, SECONDS_TO_FULL, BROKERS, LOG_DIRS,
    )  # fmt: skip
    of_decisions: tuple[Family, ...] = (RAW_FACTOR, THROTTLING, BROKERS, LOG_DIRS)
    histograms: tuple[Histogram, ...] = ()

    def __init__(self, settings: ThrottleSettings) -> None:
        self._settings = settings
        self._clusters: dict[str, _ThrottledCluster] = {}

    @property
    def history(self) -> timedelta:
        """As far back as a reading counts anywhere, and as the trend reaches."""
        validities = (settings.validity for settings in self._settings.everywhere())
        return max(timedelta(milliseconds=trend.WINDOW_MS), *validities)

    def observe(self, observations: Sequence[Observation]) -> None:
        """Fold readings in as one step of the policy does."""
        for name, readings in by_cluster(observations):
            cluster = self._cluster(name)
            cluster.known = fold(cluster.known, readings)
            # As of the readings, not of now: history is forgotten as it was then.
            cluster.known = cluster.judge(max(r.at for r in readings)).known

    def decide(self, decision: Decision, *, live: bool) -> bool:
        """Take a cluster's next decision, and count what begins with it."""
        if not isinstance(decision, ThrottleFactor):
            return False
        cluster = self._cluster(decision.cluster)
        before, cluster.decision = cluster.decision, decision
        limit_before, cluster.limit = cluster.limit, _limit_reached(decision, cluster.limit)
        if live:
            cluster.fallbacks += _rests_on_fallback(decision) and not (before and _rests_on_fallback(before))
            if _is_harder(cluster.limit, limit_before):
                cluster.violations[cluster.limit] += 1
        return before is not None and _answers_its_evidence(before, decision)

    def forget(self, key: str) -> None:
        """Drop the cluster whose decision was deleted; readings that still come are shown again."""
        self._clusters.pop(key, None)

    def forget_cluster(self, cluster: str) -> None:
        """Drop all that is shown of it."""
        self._clusters.pop(cluster, None)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Every series of every cluster at this moment."""
        for name, cluster in sorted(self._clusters.items()):
            if cluster.decision is not None:
                yield from _of_decision(cluster.decision, cluster.settings, now_ms)
                yield from _of_counters(name, cluster)
            for volume in cluster.judge(from_millis(now_ms)).volumes():
                yield from _of_volume(name, volume, now_ms)

    def _cluster(self, name: str) -> _ThrottledCluster:
        if name not in self._clusters:
            self._clusters[name] = _ThrottledCluster(name, self._settings.for_cluster(name))
        return self._clusters[name]


def _of_decision(decision: ThrottleFactor, settings: ThrottleSettings, now_ms: int) -> Iterator[Sample]:
    cluster = decision.cluster
    stale = now_ms >= to_millis(decision.valid_until)
    yield Sample(DECISION_STALE, (NAME, cluster), float(stale))
    yield Sample(FACTOR, (cluster,), settings.fallback if stale else decision.factor)
    if stale:
        # The rest was true when it was decided; of now it says nothing.
        return
    yield Sample(RAW_FACTOR, (cluster,), decision.raw_factor)
    if decision.limiting is not None:
        broker, log_dir = _key(decision.limiting)
        yield Sample(THROTTLING, (cluster, broker, log_dir, decision.reason.value), 1.0)
    yield from _of_counts(BROKERS, cluster, decision.brokers)
    yield from _of_counts(LOG_DIRS, cluster, decision.volumes)


def _of_counts(family: Family, cluster: str, counts: FreshnessCounts) -> Iterator[Sample]:
    for state, count in counts:
        yield Sample(family, (cluster, state), count)


def _of_counters(name: str, cluster: _ThrottledCluster) -> Iterator[Sample]:
    # From 0 on, so that the first one is an increase.
    yield Sample(FALLBACKS, (name,), cluster.fallbacks)
    for limit in (LimitHit.HARD, LimitHit.SOFT):
        yield Sample(VIOLATIONS, (name, limit.value), cluster.violations[limit])


def _of_volume(cluster: str, volume: VolumeVerdict, now_ms: int) -> Iterator[Sample]:
    broker, log_dir = volume.key
    labels, state = (cluster, str(broker), log_dir), volume.state
    yield Sample(USABLE, labels, state.usable_bytes)
    yield Sample(USED, labels, max(0, state.total_bytes - state.usable_bytes))
    yield Sample(TOTAL, labels, state.total_bytes)
    seconds = None if volume.full_ms is None else seconds_left(state, now_ms)
    if seconds is not None:
        yield Sample(SECONDS_TO_FULL, labels, seconds)


def _rests_on_fallback(decision: ThrottleFactor) -> bool:
    return decision.reason in FALLBACK_REASONS


def _limit_reached(decision: ThrottleFactor, before: LimitHit) -> LimitHit:
    """The limit the cluster is at. Silence leaves it there, and so does free space within the recovery margin."""
    if _rests_on_fallback(decision):
        return before
    if decision.reason is ThrottleReason.RECOVERY_MARGIN:
        return LimitHit.HARD
    return decision.limiting.limit if decision.limiting else LimitHit.NONE


def _is_harder(limit: LimitHit, other: LimitHit) -> bool:
    order = (LimitHit.NONE, LimitHit.SOFT, LimitHit.HARD)
    return order.index(limit) > order.index(other)


def _answers_its_evidence(before: ThrottleFactor, decision: ThrottleFactor) -> bool:
    """Whether the reading named first caused this decision: not a repeat, not the mere passing of time.

    A heartbeat names the newest reading too, but was not caused by it; its age would pass for latency.
    """
    same = (before.factor, before.reason, _key(before.limiting)) == (
        decision.factor, decision.reason, _key(decision.limiting),
    )  # fmt: skip
    if same or decision.reason in _CAUSED_BY_TIME or before.reason in _MAY_END_BY_TIME:
        return False
    if not decision.evidence or decision.evidence[0] in before.evidence[:1]:
        return False
    # When another volume than before decides and the factor did not fall, it was the former one's reading that caused
    # it, and that is no evidence of a decision it no longer limits.
    handed_over = None not in (before.limiting, decision.limiting) and _key(before.limiting) != _key(decision.limiting)
    return decision.verdict is ThrottleVerdict.LOWER or not handed_over


def _key(limiting: LimitingVolume | None) -> tuple[str, str]:
    return ("", "") if limiting is None else (str(limiting.broker), limiting.log_dir)
