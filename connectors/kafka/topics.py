"""The loop's topics: their planned configuration, how to create them, and how to find differences."""

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
"""Of all settings of a topic the one without which nothing is decided: ages count from it."""

PARTITIONS = "partitions"
"""What a difference in their number is called."""

_MEBIBYTE = 1024 * 1024
_BROKER_DEFAULT = -1
_OVERHEAD_BYTES = 64 * 1024
"""For key, headers and batch, which Kafka counts too."""

_TICKS_KEPT = timedelta(hours=1)

_SHARED_BY = {SHARES_TOPIC: SHARE_COUNT, DECIDER_TOPIC: 1}
"""Topics that hold nothing: their partitions are what processes share, whatever `topics.partitions` is."""


class TopicSettings(BaseModel):
    """How the loop's topics are named and kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    prefix: str = Field(
        default="headgate", pattern=r"^[A-Za-z0-9._-]{1,100}$", description="Before each topic's name, with a dot."
    )
    partitions: int = Field(
        default=1, ge=1, le=1000, description="Of each topic. One carries thousands of brokers; more cost more batches."
    )
    replication_factor: int | None = Field(
        default=None, ge=1, le=32767, description="Copies of each record; default: what the brokers take."
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
        description="Decisions are compacted to the latest per subject once they are about so old.",
    )
    large_record: Size = Field(
        default=ByteSize(8 * _MEBIBYTE),
        description="The most an audit entry or dead letter takes.",
    )

    def topic(self, name: str) -> str:
        """A topic's full name, from one without prefix such as ``observed.log-dirs``."""
        return f"{self.prefix}.{name}"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What one topic should be."""

    topic: str
    partitions: int
    replication_factor: int
    """-1: what the brokers take."""
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """Where a topic is not as planned."""

    topic: str
    key: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.key} is {self.found}, expected {self.expected}: {self.remedy}"


def plan(settings: TopicSettings) -> tuple[TopicPlan, ...]:
    """All topics of the loop, by name: those of events, and what it needs itself (timers, ticks, shares)."""
    configs = {name: _observed(settings) for name in registry.observed_topics()}
    configs |= {name: _decided(settings) for name in registry.decided_topics()}
    configs[registry.AUDIT] = _kept(settings.audit_retention, settings.large_record)
    configs[registry.APPLIED_QUOTAS] = _decided(settings)
    configs[TIMERS] = {**_decided(settings), "max.message.bytes": str(_OVERHEAD_BYTES)}
    configs[TICKS] = _ticks()
    configs[BATCHES] = _kept(settings.observed_retention, ByteSize(_MEBIBYTE))
    configs[registry.DEAD_LETTERS] = _kept(settings.dead_letter_retention, settings.large_record)
    configs |= {name: {**_common(), "cleanup.policy": "delete"} for name in _SHARED_BY}
    replication = settings.replication_factor or _BROKER_DEFAULT
    return tuple(
        TopicPlan(settings.topic(name), _SHARED_BY.get(name, settings.partitions), replication, config)
        for name, config in sorted(configs.items())
    )


def differences(
    planned: TopicPlan, partitions: int, replication_factor: int, config: Mapping[str, str]
) -> list[TopicDifference]:
    """Where a topic as it is differs from the plan; what the plan leaves to the brokers never does."""
    return list(_differences(planned, partitions, replication_factor, config))


def _differences(
    planned: TopicPlan, partitions: int, copies: int, config: Mapping[str, str]
) -> Iterator[TopicDifference]:
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
    """Whether a topic's partitions are what processes share."""
    return topic.rpartition(".")[2] in _SHARED_BY


def _observed(settings: TopicSettings) -> dict[str, str]:
    # Room around the largest record that is read: a larger one should arrive, to be reported as a dead letter.
    return _kept(settings.observed_retention, MAX_RECORD_BYTES + _MEBIBYTE)


def _decided(settings: TopicSettings) -> dict[str, str]:
    segment_ms = millis_of(settings.decided_segment)
    return {
        **_common(),
        "cleanup.policy": "compact",
        # Kafka never compacts the active segment, so an almost idle topic needs short ones, and a limit on how long old
        # decisions may stay: a new subscriber reads them all.
        "segment.ms": str(segment_ms),
        "max.compaction.lag.ms": str(2 * segment_ms),
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(millis_of(parse_duration("1d"))),
        "max.message.bytes": str(MAX_DECISION_BYTES + _OVERHEAD_BYTES),
    }


def _kept(retention: timedelta, record_bytes: int) -> dict[str, str]:
    return {
        **_common(),
        "cleanup.policy": "delete",
        "retention.ms": str(millis_of(retention)),
        "max.message.bytes": str(int(record_bytes)),
    }


def _ticks() -> dict[str, str]:
    # A tick is over once it is read. Segments as short as that, as the active one is never deleted.
    return {**_kept(_TICKS_KEPT, ByteSize(_OVERHEAD_BYTES)), "segment.ms": str(millis_of(_TICKS_KEPT))}


def _common() -> dict[str, str]:
    return {
        # The age of an observation counts from when it was appended: no collector's clock is trusted.
        TIMESTAMPS: "LogAppendTime",
        # Else `max.message.bytes` counts compressed bytes: of spaces a few kilobytes are a gigabyte to who reads them.
        "compression.type": "uncompressed",
    }
