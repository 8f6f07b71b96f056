"""Readings of the throttle policy: topic ``observed.log-dirs``, keyed by cluster."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.observations import LONGEST_NAME, Reading
from policies.units import MAX_INT64

_MAX_NODE_ID = 2**31 - 1


class VolumeReading(BaseModel):
    """One log dir as its broker reports it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    log_dir: str = Field(min_length=1, max_length=4096, description="Absolute path on the broker.")
    total_bytes: int = Field(
        default=-1, ge=-1, le=MAX_INT64, description="Size of the file system it is on; -1 unknown."
    )
    usable_bytes: int = Field(default=-1, ge=-1, le=MAX_INT64, description="Free for the broker; -1 unknown.")
    error: str | None = Field(
        default=None, max_length=4096, description="The broker's error for this dir, such as a failed disk."
    )
    cordoned: bool = Field(default=False, description="The broker places no new partitions here.")

    @property
    def readable(self) -> bool:
        """Whether its free space is known. An unreadable volume is neither full nor empty."""
        return self.error is None and self.total_bytes >= 0 and self.usable_bytes >= 0


class KafkaReading(Reading):
    """A reading of a Kafka cluster, with the id by which it is recognised behind its address."""

    cluster_id: str | None = Field(
        default=None, max_length=LONGEST_NAME, description="Kafka's own id of the cluster; null if it is not known."
    )


class LogDirs(KafkaReading):
    """All log dirs of one broker, read in one request."""

    event_type: ClassVar[str] = "headgate.log-dirs.v1"

    broker: int = Field(ge=0, le=_MAX_NODE_ID, description="The broker's node id.")
    volumes: tuple[VolumeReading, ...] = Field(
        default=(), max_length=1000, description="Empty unless the outcome is `ok`."
    )

    def subject(self) -> str:
        """``<cluster>/<broker>``."""
        return f"{self.cluster}/{self.broker}"


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


class ReplicaSizes(KafkaReading):
    """The topics on a broker's volumes that are at a limit or full soon; at most one reading a minute and broker."""

    event_type: ClassVar[str] = "headgate.replica-sizes.v1"

    broker: int = Field(ge=0, le=_MAX_NODE_ID, description="The broker's node id.")
    volumes: tuple[VolumeUsage, ...] = Field(default=(), max_length=100, description="Those volumes.")

    def subject(self) -> str:
        """``<cluster>/<broker>``."""
        return f"{self.cluster}/{self.broker}"


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
