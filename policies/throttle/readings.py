"""Readings of the throttle policy, topic ``observed.log-dirs``, keyed by cluster; and how often a broker is read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from policies.free_space.levels import FactorDecision, LevelRecord, LimitApplication, LimitReason
from policies.free_space.limits import Limit
from policies.free_space.volumes import ReportedVolume
from policies.observations import LONGEST_NAME, ActuatorEvent, Reading, ReportedEffect
from policies.throttle.quotas import EntityText
from policies.throttle.settings import DEFAULT, Entity, EntityName
from policies.units import MAX_INT64, Instant

_MAX_NODE_ID = 2**31 - 1


class VolumeReading(ReportedVolume):
    """One log dir as its broker reports it."""

    error: str | None = Field(
        default=None, max_length=4096, description="The broker's error for this dir, such as a failed disk."
    )
    cordoned: bool = Field(default=False, description="The broker places no new partitions here.")

    @property
    def readable(self) -> bool:
        """Whether its free space is known, and it has not failed."""
        return self.error is None and super().readable


class KafkaReading(Reading):
    """A reading of a Kafka cluster, with the id by which it is recognised behind its address."""

    cluster_id: str | None = Field(
        default=None, max_length=LONGEST_NAME, description="Kafka's own id of the cluster; null if it is not known."
    )


class BrokerReading(KafkaReading):
    """A reading of one broker."""

    broker: int = Field(ge=0, le=_MAX_NODE_ID, description="The broker's node id.")

    def subject(self) -> str:
        """``<cluster>/<broker>``."""
        return f"{self.cluster}/{self.broker}"


class LogDirs(BrokerReading):
    """All log dirs of one broker, read in one request."""

    event_type: ClassVar[str] = "headgate.log-dirs.v1"

    volumes: tuple[VolumeReading, ...] = Field(
        default=(), max_length=1000, description="Empty unless the outcome is `ok`."
    )


class TopicUsage(BaseModel):
    """One topic's part of a volume: all its replicas there."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    topic: str = Field(min_length=1, max_length=249)
    size_bytes: int = Field(ge=0, le=MAX_INT64)
    bytes_per_second: float | None = Field(
        default=None, description="Growth since the reading before; null without one."
    )
    share: float | None = Field(
        default=None, ge=0.0, le=1.0, description="Of everything that grows on the volume; null without a rate."
    )
    is_moved: bool = Field(
        default=False,
        description="Only the replicas that the broker moves here from another of its log dirs, apart from the others.",
    )


class VolumeUsage(BaseModel):
    """What fills one volume: Kafka's replicas, the topics that grow fastest or are largest, and everything else."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    log_dir: str = Field(min_length=1, max_length=4096, description="Absolute path on the broker.")
    kafka_bytes: int = Field(ge=0, le=MAX_INT64, description="Size of all replicas.")
    kafka_bytes_per_second: float | None = Field(default=None, description="Their growth since the reading before.")
    other_bytes: int = Field(ge=0, le=MAX_INT64, description="Used bytes of the volume that are not Kafka's.")
    other_bytes_per_second: float | None = Field(default=None, description="Their growth since the reading before.")
    other_share: float | None = Field(default=None, ge=0.0, le=1.0, description="As a topic's.")
    topics: tuple[TopicUsage, ...] = Field(
        default=(), max_length=20, description="The ten that grow fastest, then the ten largest."
    )


class ReplicaSizes(BrokerReading):
    """The topics on a broker's volumes that are at a limit or full soon; at most one reading a minute and broker."""

    event_type: ClassVar[str] = "headgate.replica-sizes.v1"

    volumes: tuple[VolumeUsage, ...] = Field(default=(), max_length=100, description="Those volumes.")


class BrokerMember(BaseModel):
    """A broker that is registered in its cluster."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    broker: int = Field(ge=0, le=_MAX_NODE_ID, description="The broker's node id.")
    rack: str | None = Field(default=None, max_length=4096)
    fenced: bool = Field(default=False, description="Registered but out of service, as a dead broker is.")


class KafkaCluster(KafkaReading):
    """The brokers that belong to a cluster, and so should have readings."""

    event_type: ClassVar[str] = "headgate.kafka-cluster.v1"

    brokers: tuple[BrokerMember, ...] = Field(
        default=(), max_length=10_000, description="Empty unless the outcome is `ok`."
    )


# The polling interval of a broker's volumes: the sooner a limit is reached at the present speed, the shorter it is.
#
# The interval is shortened at once and lengthened by at most half at a time. The fastest of the last few changes
# counts, so a bursty load does not make it alternate. Seconds are those of any monotonic clock.

_LOOKS = 10
"""The number of readings before a volume is at its next limit."""
_SPEEDS = 3
"""The number of changes of which the fastest counts."""
_LONGER = 1.5
"""The greatest factor by which an interval grows from one reading to the next."""


@dataclass(frozen=True, slots=True)
class PaceBounds:
    """The bounds of the interval."""

    shortest_seconds: float
    longest_seconds: float


class VolumePace(NamedTuple):
    """The last reading of a volume."""

    usable_bytes: int
    speeds: tuple[float, ...] = ()
    """Bytes a second, whether the volume fills or empties; the latest first."""


@dataclass(frozen=True, slots=True)
class BrokerPace:
    """The last reading of a broker, and the interval until the next."""

    at_seconds: float
    interval_seconds: float
    volumes: Mapping[str, VolumePace] = field(default_factory=dict)


def adapt_pace(
    before: BrokerPace | None,
    at_seconds: float,
    volumes: Iterable[VolumeReading],
    limits: Sequence[Limit],
    bounds: PaceBounds,
) -> BrokerPace:
    """Return the pace after a reading of all volumes of a broker; none are given after a failed attempt."""
    known: dict[str, VolumePace] = {}
    wanted = bounds.longest_seconds
    for volume in volumes:
        if volume.readable:
            pace = _measure_speed(before, at_seconds, volume)
            known[volume.log_dir] = pace
            wanted = min(wanted, _find_seconds_to_limit(volume, pace.speeds, limits) / _LOOKS)
    if before is not None:
        wanted = min(wanted, before.interval_seconds * _LONGER)
    return BrokerPace(at_seconds, min(max(wanted, bounds.shortest_seconds), bounds.longest_seconds), known)


def stretch_intervals(
    intervals: Mapping[int, float], requests_per_second: float, longest_seconds: float
) -> dict[int, float]:
    """Stretch the brokers' intervals so that all together stay below a rate; none beyond the longest interval."""
    rate = sum(1 / seconds for seconds in intervals.values())
    stretch = max(1.0, rate / requests_per_second)
    return {broker: min(seconds * stretch, longest_seconds) for broker, seconds in intervals.items()}


def _measure_speed(before: BrokerPace | None, at_seconds: float, volume: VolumeReading) -> VolumePace:
    last = before.volumes.get(volume.log_dir) if before else None
    if before is None or last is None or at_seconds <= before.at_seconds:
        return VolumePace(volume.usable_bytes, last.speeds if last else ())
    speed = abs(volume.usable_bytes - last.usable_bytes) / (at_seconds - before.at_seconds)
    return VolumePace(volume.usable_bytes, (speed, *last.speeds)[:_SPEEDS])


def _find_seconds_to_limit(volume: VolumeReading, speeds: Sequence[float], limits: Sequence[Limit]) -> float:
    """Return how soon the nearest limit, below or above, is reached at the fastest speed."""
    fastest = max(speeds, default=0.0)
    if not fastest:
        return float("inf")
    levels = (limit.in_bytes(volume.total_bytes) for limit in limits)
    return min((abs(volume.usable_bytes - level) / fastest for level in levels), default=float("inf"))


# Events of the quota actuator: its operations and refusals (audit), and its records (applied quotas).

_SOURCE = "headgate/actuator/quotas"
"""The CloudEvents `source` of both kinds."""


class QuotaApplication(LimitApplication):
    """A quota that was set, put back, refused or failed; or one that needs no change, when that is new."""

    event_type: ClassVar[str] = "headgate.quota-application.v1"
    source: ClassVar[str] = _SOURCE
    actuator: ClassVar[str] = "the quota actuator"
    what: ClassVar[str] = "producer_byte_rate of {target} on {cluster}"
    nothing: ClassVar[str] = "no quota"
    per: ClassVar[str] = " a broker"

    entity: str | None = Field(
        description="The quota's target, such as `user=alice,client-id=<default>`; null: all of the cluster."
    )
    decision_id: str | None = Field(description="The decision it carries out; null without one.")
    sequence: int | None = Field(description="From that decision.")
    attempt: int = Field(ge=1, description="The number of this attempt; it is retried until Kafka accepts it.")
    confirmed_brokers: int | None = Field(
        default=None, description="Brokers that have shown the quota since it was set; null: it is not Headgate's."
    )
    broker_count: int | None = Field(default=None, description="Brokers in service; null as before.")

    def name_target(self) -> str:
        """Return the entity."""
        return self.entity or ""

    def effect(self) -> ReportedEffect | None:
        """Return the rate that is set, or why it is not; None for a decision that came late."""
        if self.reason is LimitReason.FENCED:
            return None
        return self.describe_effect(confirmed_brokers=self.confirmed_brokers, broker_count=self.broker_count)


class AppliedQuota(ActuatorEvent):
    """The record of one entity, written before its quota is changed, so that it can always be put back."""

    event_type: ClassVar[str] = "headgate.applied-quota.v1"
    source: ClassVar[str] = _SOURCE

    user: str | None = Field(description="The user; `default`: all without a quota of their own; null: any.")
    client_id: str | None = Field(description="The client id; `default` and null as for the user.")
    entity: EntityText = Field(
        default="", description="Both, as everywhere else: it tells a user called `default` from Kafka's default user."
    )
    held: bool = Field(description="Whether the entity's quota may be one of Headgate's now.")
    baseline_bytes_per_second: int | None = Field(description="The original quota, which is put back; null: none.")
    base_bytes_per_second: int | None = Field(description="The rate at factor 1.0.")
    rates_bytes_per_second: tuple[int, ...] = Field(
        description="The rates that Headgate may have set, the latest first."
    )
    decision_id: str | None = Field(description="The decision in force.")
    sequence: int | None = Field(description="From that decision.")
    factor: float | None = Field(description="From that decision.")
    valid_until: Instant | None = Field(description="From that decision.")

    @classmethod
    def build(cls, cluster: str, entity: Entity, record: LevelRecord, order: FactorDecision | None) -> Self:
        """Write a record, with the decision in force."""
        return cls(
            cluster=cluster,
            user=_write_name(entity.user),
            client_id=_write_name(entity.client_id),
            entity=str(entity),
            held=record.held,
            baseline_bytes_per_second=record.baseline,
            base_bytes_per_second=record.base,
            rates_bytes_per_second=record.rates,
            decision_id=order.decision_id if order else None,
            sequence=order.sequence if order else None,
            factor=order.factor if order else None,
            valid_until=order.expires_at if order else None,
        )

    def subject(self) -> str:
        """The entity; also the record's key on its compacted topic."""
        return f"{self.cluster}/{self.entity}"


def _write_name(name: EntityName | None) -> str | None:
    return "default" if name is DEFAULT else name
