"""Metrics of the throttle policy: its decisions, and the volumes behind them.

The volumes are those of the last readings. All that is judged comes from the decision alone, so that metrics never
disagree with decisions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, Field

from connectors.views import (
    Decided,
    DiskDetail,
    DiskLevels,
    Family,
    Fill,
    PolicyDetail,
    PolicyView,
    Sample,
    is_lowered_by_reading,
    seconds_to_full,
    shown_factor,
)
from policies.decisions import Decision, has_expired
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import VolumeState
from policies.observations import Observation, Outcome
from policies.throttle.decisions import FALLBACK_REASONS, FilledBy, LimitingVolume, ThrottleFactor, ThrottleReason
from policies.throttle.readings import KafkaCluster, LogDirs
from policies.throttle.settings import ThrottleSettings
from policies.units import from_millis

FACTOR = Family(
    "headgate_throttle_factor",
    "The decided fraction of the producers' base rate, in shadow mode and without an actuator, too: 1 is the whole "
    "base rate, 0 is the floor. headgate_quota_bytes_per_second shows the quotas that were set. While the decision is "
    "stale, it is the factor of `expired_action`.",
    ("cluster",),
)
RAW_FACTOR = Family(
    "headgate_throttle_raw_factor",
    "The least factor of all volumes that count, before the hold and the dead band. "
    "Absent while the decision is stale.",
    ("cluster",),
)
FALLBACKS = Family(
    "headgate_throttle_fallback_total",
    "How many times the factor changed to the fallback because there was no valid reading, by the reason of the "
    "first such decision; repeated decisions do not count.",
    ("cluster", "reason"),
)
VIOLATIONS = Family(
    "headgate_throttle_limit_violations_total",
    "How many times a volume at a limit began to decide the factor. Repeated decisions, a recovery from hard to soft, "
    "and changes around the hard limit within the recovery margin do not count.",
    ("cluster", "limit"),
)
THROTTLING = Family(
    "headgate_throttling_volume",
    "1 for the volume that limits the factor now, with the reason of the decision.",
    ("cluster", "broker", "log_dir", "reason"),
)
_VOLUME_LABELS = ("cluster", "broker", "log_dir")
USABLE = Family(
    "headgate_volume_usable_bytes", "Bytes that the broker can still use, by the last reading.", _VOLUME_LABELS
)
USED = Family(
    "headgate_volume_used_bytes", "Bytes that the broker cannot use any more, by the last reading.", _VOLUME_LABELS
)
TOTAL = Family("headgate_volume_total_bytes", "Size of the file system, by the last reading.", _VOLUME_LABELS)
LIMIT = Family(
    "headgate_volume_limit_bytes",
    "Free bytes at which a volume has reached its soft or hard limit, by this process's settings and its size.",
    (*_VOLUME_LABELS, "limit"),
)
SECONDS_TO_FULL = Family(
    "headgate_volume_seconds_to_full",
    "Time until the volume is full at its present rate; absent if it is not filling, if its trend is not credible, or "
    "if its reading is stale.",
    _VOLUME_LABELS,
)
CORDONED = Family(
    "headgate_volume_cordoned",
    "1 while a broker places no new partitions on a volume, because it is cordoned (KIP-1066); else absent.",
    _VOLUME_LABELS,
)
BROKERS = Family(
    "headgate_kafka_brokers",
    "Brokers by state: counted (with a valid reading), stale, departed (gone, but its volumes still count). "
    "Absent while the decision is stale.",
    ("cluster", "state"),
)
LOG_DIRS = Family(
    "headgate_log_dirs",
    "Volumes by state: counted (with a valid reading), stale, departed (gone, but still counting), never_read (never "
    "readable for `validity`; a broker that was never read counts as one). Absent while the decision is stale.",
    ("cluster", "state"),
)

_CAUSED_BY_TIME = FALLBACK_REASONS | {ThrottleReason.DEPARTED_VOLUME}
"""Reasons that no reading causes, or none that is evidence."""
_LIMITS = (LimitHit.NONE, LimitHit.SOFT, LimitHit.HARD)


@dataclass(slots=True)
class _ThrottledCluster:
    """The state of one cluster."""

    name: str
    settings: ThrottleSettings
    disks: DiskLevels = field(default_factory=DiskLevels)
    cordoned: dict[str, set[str]] = field(default_factory=dict)
    """By broker, its cordoned log dirs."""
    limit: LimitHit = LimitHit.NONE
    """The limit that the cluster has reached, by its last decisions."""
    fallbacks: Counter[ThrottleReason] = field(default_factory=Counter)
    violations: Counter[LimitHit] = field(default_factory=Counter)

    def take(self, seen: Observation) -> None:
        """Take a reading, if it is good: of a broker's log dirs, or of the brokers that the cluster has."""
        reading = seen.reading
        if reading.outcome is not Outcome.OK:
            return
        if isinstance(reading, LogDirs):
            broker = str(reading.broker)
            if self.disks.read(broker, reading.volumes, seen.at_ms):
                self.cordoned[broker] = {volume.log_dir for volume in reading.volumes if volume.cordoned}
        elif isinstance(reading, KafkaCluster):
            brokers = {str(member.broker) for member in reading.brokers}
            self.disks.keep_only(brokers)
            self.cordoned = {broker: dirs for broker, dirs in self.cordoned.items() if broker in brokers}


class ThrottleView(PolicyView[_ThrottledCluster]):
    """The present state of all clusters."""

    families: tuple[Family, ...] = (
        FACTOR, RAW_FACTOR, FALLBACKS, VIOLATIONS, THROTTLING, USABLE, USED, TOTAL, LIMIT, SECONDS_TO_FULL, BROKERS,
        LOG_DIRS, CORDONED,
    )  # fmt: skip
    of_decisions: tuple[Family, ...] = (RAW_FACTOR, THROTTLING, BROKERS, LOG_DIRS)

    def __init__(self, settings: ThrottleSettings) -> None:
        super().__init__(settings.history, lambda name: _ThrottledCluster(name, settings.for_cluster(name)), _show)

    def decide(self, decision: Decision, before: Decision | None, *, live: bool) -> bool:
        """Count the fallback and violations that begin with a cluster's next decision."""
        if not isinstance(decision, ThrottleFactor):
            return False
        cluster = self._cluster(decision.cluster)
        limit_before, cluster.limit = cluster.limit, _find_limit(decision, cluster.limit)
        if live:
            was_fallback = before is not None and before.reason in FALLBACK_REASONS
            if decision.reason in FALLBACK_REASONS and not was_fallback:
                cluster.fallbacks[decision.reason] += 1
            if _LIMITS.index(cluster.limit) > _LIMITS.index(limit_before):
                cluster.violations[cluster.limit] += 1
        return is_lowered_by_reading(before, decision, _CAUSED_BY_TIME)

    def samples(self, now_ms: int, decided: Decided) -> Iterator[Sample]:
        """Yield the samples of all clusters."""
        for name, cluster, decisions in self.states(decided):
            if (decision := _find_factor(decisions)) is not None:
                yield from _decision_samples(decision, cluster.settings, now_ms)
                # From 0 on, so that the first event is an increase.
                for reason in sorted(FALLBACK_REASONS):
                    yield Sample(FALLBACKS, (name, reason.value), cluster.fallbacks[reason])
                for limit in (LimitHit.HARD, LimitHit.SOFT):
                    yield Sample(VIOLATIONS, (name, limit.value), cluster.violations[limit])
            for broker, volume in cluster.disks.disks():
                yield from _volume_samples((name, broker, volume.log_dir), volume, cluster.settings, now_ms)
            for broker, dirs in sorted(cluster.cordoned.items()):
                yield from (Sample(CORDONED, (name, broker, log_dir), 1.0) for log_dir in sorted(dirs))


def _find_factor(decisions: Sequence[Decision]) -> ThrottleFactor | None:
    return next((each for each in decisions if isinstance(each, ThrottleFactor)), None)


def _decision_samples(decision: ThrottleFactor, settings: ThrottleSettings, now_ms: int) -> Iterator[Sample]:
    cluster = decision.cluster
    yield Sample(FACTOR, (cluster,), shown_factor(decision, settings, now_ms))
    yield Sample(RAW_FACTOR, (cluster,), decision.raw_factor)
    if decision.limiting is not None:
        broker, log_dir = _key(decision.limiting)
        yield Sample(THROTTLING, (cluster, broker, log_dir, decision.reason.value), 1.0)
    for family, counts in ((BROKERS, decision.brokers), (LOG_DIRS, decision.volumes)):
        for state, count in counts:
            yield Sample(family, (cluster, state), count)


def _volume_samples(
    labels: tuple[str, str, str], volume: VolumeState, settings: ThrottleSettings, now_ms: int
) -> Iterator[Sample]:
    yield Sample(USABLE, labels, volume.usable_bytes)
    yield Sample(USED, labels, max(0, volume.total_bytes - volume.usable_bytes))
    yield Sample(TOTAL, labels, volume.total_bytes)
    for hit, limit in ((LimitHit.SOFT, settings.soft), (LimitHit.HARD, settings.hard)):
        if limit is not None:
            yield Sample(LIMIT, (*labels, hit.value), limit.in_bytes(volume.total_bytes))
    if (seconds := seconds_to_full(volume, now_ms, settings.validity)) is not None:
        yield Sample(SECONDS_TO_FULL, labels, seconds)


def _find_limit(decision: ThrottleFactor, before: LimitHit) -> LimitHit:
    """Return the limit that the cluster has reached; a fallback does not change it."""
    if decision.reason in FALLBACK_REASONS:
        return before
    if decision.reason is ThrottleReason.RECOVERY_MARGIN:
        return LimitHit.HARD
    return decision.limiting.limit if decision.limiting else LimitHit.NONE


def _key(limiting: LimitingVolume | None) -> tuple[str, str]:
    return ("", "") if limiting is None else (str(limiting.broker), limiting.log_dir)


# The throttle policy on the status page: the factor, and the fullest volumes.

SHOWN_VOLUMES = 4


class Volume(DiskDetail):
    """A volume as last read."""

    broker: str
    log_dir: str
    cordoned: bool = Field(default=False, description="Its broker places no new partitions on it.")


SHOWN_FILLERS = 8


class Filler(BaseModel):
    """A line of what fills a volume: a topic, or all others together."""

    name: str
    size_bytes: int
    held: float = Field(description="Its part of all that is used on the volume.")
    bytes_per_second: float | None = Field(description="Its growth; null without a rate.")
    share: float | None = Field(description="Of everything that grows there; null without a rate.")


def list_fillers(filled_by: FilledBy) -> list[Filler]:
    """Return what fills a volume, the fastest first; the topics that are not shown are one line."""
    used = max(1, filled_by.kafka_bytes + filled_by.other_bytes)
    fastest_first = sorted(filled_by.topics, key=lambda each: (each.share or 0.0, each.size_bytes), reverse=True)
    lines = list[tuple[str, int, float | None, float | None]]()
    for each in fastest_first[:SHOWN_FILLERS]:
        name = f"{each.topic} (moved here)" if each.is_moved else each.topic
        lines.append((name, each.size_bytes, each.bytes_per_second, each.share))
    if (rest := filled_by.kafka_bytes - sum(line[1] for line in lines)) > 0:
        lines.append(("other topics", rest, None, None))
    lines.append(("not Kafka's", filled_by.other_bytes, filled_by.other_bytes_per_second, filled_by.other_share))
    return [
        Filler(name=name, size_bytes=size, held=min(1.0, size / used), bytes_per_second=rate, share=share)
        for name, size, rate, share in lines
    ]


class ThrottleDetail(PolicyDetail):
    """The cluster's throttle factor, and the fullest volumes."""

    template: ClassVar[str] = str(Path(__file__).with_name("detail.html"))

    factor: float | None = Field(
        description="In force; by `expired_action` while the decision is stale; null before the first."
    )
    brokers: dict[str, int] = Field(
        description="Number of brokers by state: counted, stale, departed; empty while stale."
    )
    volume_count: int
    volumes: tuple[Volume, ...] = Field(description=f"The fullest volumes, at most {SHOWN_VOLUMES}.")

    filled_by: FilledBy | None = Field(
        description="The topics that fill the volume that decided, or the one that is full first; null if unknown."
    )

    fillers: tuple[Filler, ...] = Field(description=f"What fills that volume, in at most {SHOWN_FILLERS + 2} lines.")
    limiting: Volume | None = Field(description="The volume that limits the factor, or else the fullest one.")

    def fill(self) -> Fill | None:
        """Return the free space of the limiting volume; None if no broker was read lately."""
        if self.limiting is None or (self.brokers and not self.brokers.get("counted")):
            return None
        return self.limiting.fill(f"broker {self.limiting.broker} {self.limiting.log_dir}", self.factor)


def _show(cluster: _ThrottledCluster, decisions: Sequence[Decision], now_ms: int) -> ThrottleDetail | None:
    decision, settings = _find_factor(decisions), cluster.settings
    volumes = [
        Volume.of(
            disk, settings, now_ms, broker=broker, log_dir=disk.log_dir,
            cordoned=disk.log_dir in cluster.cordoned.get(broker, ()),
        )
        for broker, disk in cluster.disks.disks()
    ]  # fmt: skip
    if decision is None and not volumes:
        return None
    current = None if decision is None or has_expired(decision, from_millis(now_ms)) else decision
    limits = None if current is None else _key(current.limiting)
    fullest = nlargest(SHOWN_VOLUMES, volumes, key=lambda v: (v.used_ratio, v.broker, v.log_dir))
    filled_by = None if decision is None else decision.filled_by
    return ThrottleDetail(
        factor=None if decision is None else shown_factor(decision, settings, now_ms),
        brokers={} if current is None else dict(current.brokers),
        volume_count=len(volumes),
        volumes=tuple(fullest),
        limiting=next((each for each in volumes if (each.broker, each.log_dir) == limits), next(iter(fullest), None)),
        filled_by=filled_by,
        fillers=() if filled_by is None else tuple(list_fillers(filled_by)),
    )
