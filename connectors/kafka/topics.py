"""The planned configuration of the loop's topics, and differences from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pydantic import BaseModel, ByteSize, ConfigDict, Field

from policies import registry
from policies.batches import BATCHES
from policies.shares import DECIDER_TOPIC, SHARE_COUNT, SHARES_TOPIC
from policies.timers import TICKS, TIMERS
from policies.units import PositiveDuration, Size, millis_of, parse_duration
from policies.wire import MAX_DECISION_BYTES, MAX_RECORD_BYTES

TIMESTAMPS = "message.timestamp.type"
"""The only indispensable setting of a topic: without it ages are unknown, and nothing is decided."""

CLEANUP = "cleanup.policy"
"""A decided topic that deletes by age forgets what holds; one that compacts where it should delete grows forever."""

PARTITIONS = "partitions"
"""The key of a difference in the number of partitions."""

_MEBIBYTE = 1024 * 1024
_BROKER_DEFAULT = -1
_OVERHEAD_BYTES = 64 * 1024
"""Key, headers and batch, which Kafka counts, too."""

_TICKS_KEPT = timedelta(hours=1)

_SHARED_BY = {SHARES_TOPIC: SHARE_COUNT, DECIDER_TOPIC: 1}
"""Topics without records, with their numbers of partitions: processes divide these as work partitions."""


class TopicSettings(BaseModel):
    """Names, partitions and retention of the loop's topics."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    prefix: str = Field(
        default="headgate",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="Stands before each topic's name, with a dot.",
    )
    partitions: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Partitions of each topic. One is enough for thousands of brokers; more cost more batches.",
    )
    replication_factor: int | None = Field(
        default=None, ge=1, le=32767, description="Copies of each record. Default: the brokers' default."
    )
    observed_retention: PositiveDuration = Field(
        default=parse_duration("1d"), description="How far back observations can be replayed."
    )
    audit_retention: PositiveDuration = Field(
        default=parse_duration("30d"), description="How far back decisions can be explained."
    )
    dead_letter_retention: PositiveDuration = Field(
        default=parse_duration("14d"), description="How long bad records are kept for inspection."
    )
    decided_segment: PositiveDuration = Field(
        default=parse_duration("1h"),
        description="The approximate age at which decisions are compacted to the latest one of each subject.",
    )
    large_record: Size = Field(
        default=ByteSize(8 * _MEBIBYTE),
        description="Maximum size of an audit entry or dead letter.",
    )

    def topic(self, name: str) -> str:
        """Return a topic's full name, given one such as ``observed.log-dirs``."""
        return f"{self.prefix}.{name}"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The planned configuration of one topic."""

    topic: str
    partitions: int
    replication_factor: int
    """-1 for the brokers' default."""
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """A difference between a topic and its plan."""

    topic: str
    key: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.key} is {self.found}, expected {self.expected}: {self.remedy}"


def plan(settings: TopicSettings) -> tuple[TopicPlan, ...]:
    """Return all topics of the loop by name: of events, and of its own timers, ticks, batches and work partitions."""
    configs = {name: _observed(settings) for name in registry.observed_topics()}
    configs |= {name: _decided(settings) for name in registry.decided_topics()}
    configs[registry.AUDIT] = _retain(settings.audit_retention, settings.large_record)
    configs |= {name: _decided(settings) for name in (registry.APPLIED_QUOTAS, registry.REPORTS)}
    configs[TIMERS] = {**_decided(settings), "max.message.bytes": str(_OVERHEAD_BYTES)}
    # A tick is of no use after it was read. Kafka never deletes the active segment, so segments are short, too.
    ticks = _retain(_TICKS_KEPT, ByteSize(_OVERHEAD_BYTES))
    configs[TICKS] = {**ticks, "segment.ms": str(millis_of(_TICKS_KEPT))}
    configs[BATCHES] = _retain(settings.observed_retention, ByteSize(_MEBIBYTE))
    configs[registry.DEAD_LETTERS] = _retain(settings.dead_letter_retention, settings.large_record)
    configs |= {name: {**_common(), CLEANUP: "delete"} for name in _SHARED_BY}
    replication = settings.replication_factor or _BROKER_DEFAULT
    return tuple(
        TopicPlan(settings.topic(name), _SHARED_BY.get(name, settings.partitions), replication, config)
        for name, config in sorted(configs.items())
    )


def differences(
    planned: TopicPlan, partitions: int, copies: int, config: Mapping[str, str]
) -> Iterator[TopicDifference]:
    """Yield the differences between an existing topic and its plan; a brokers' default is none."""
    name = planned.topic
    if partitions != planned.partitions:
        add = "add partitions with kafka-topics.sh --alter"
        remedy = add if is_shared(name) else f"set topics.partitions to {partitions}, or {add}"
        yield TopicDifference(name, PARTITIONS, str(planned.partitions), str(partitions), remedy)
    if planned.replication_factor not in (_BROKER_DEFAULT, copies):
        remedy = f"set topics.replication_factor to {copies}, or reassign with kafka-reassign-partitions.sh"
        yield TopicDifference(name, "replication factor", str(planned.replication_factor), str(copies), remedy)
    for key, expected in planned.config.items():
        found = config.get(key, "unknown")
        if found != expected:
            alter = "kafka-configs.sh --alter --entity-type topics"
            yield TopicDifference(
                name, key, expected, found, f"{alter} --entity-name {name} --add-config {key}={expected}"
            )


def is_shared(topic: str) -> bool:
    """Whether a topic's partitions are work partitions."""
    return topic.rpartition(".")[2] in _SHARED_BY


def _observed(settings: TopicSettings) -> dict[str, str]:
    # More than the largest record that is read, so that a larger one arrives and becomes a dead letter.
    return _retain(settings.observed_retention, MAX_RECORD_BYTES + _MEBIBYTE)


def _decided(settings: TopicSettings) -> dict[str, str]:
    segment_ms = millis_of(settings.decided_segment)
    return {
        **_common(),
        CLEANUP: "compact",
        # Kafka never compacts the active segment. An almost idle topic needs short segments and a limit for the age of
        # replaced decisions, because a new subscriber reads them all.
        "segment.ms": str(segment_ms),
        "max.compaction.lag.ms": str(2 * segment_ms),
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(millis_of(parse_duration("1d"))),
        "max.message.bytes": str(MAX_DECISION_BYTES + _OVERHEAD_BYTES),
    }


def _retain(retention: timedelta, record_bytes: int) -> dict[str, str]:
    return {
        **_common(),
        CLEANUP: "delete",
        "retention.ms": str(millis_of(retention)),
        "max.message.bytes": str(int(record_bytes)),
    }


def _common() -> dict[str, str]:
    return {
        # The age of an observation counts from its append time, because a collector's clock may be wrong.
        TIMESTAMPS: "LogAppendTime",
        # `max.message.bytes` would count compressed bytes, and a few kilobytes of spaces expand to a gigabyte.
        "compression.type": "uncompressed",
    }
