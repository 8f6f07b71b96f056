"""Which topics fill a volume (rule 6): from the replica sizes of a broker at two moments.

Everything else on the file system is not Kafka's. If two log dirs share one, each counts the other's topics so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.free_space.limits import Limit
from policies.free_space.volumes import VolumeState, seconds_left
from policies.throttle.readings import TopicUsage, VolumeUsage
from policies.throttle.state import BrokerState
from policies.units import human_bytes, human_rate

MOST_TOPICS = 10
"""The most topics by growth, and the most by size."""
_NOT_KAFKA = "files that are not Kafka's"


@dataclass(frozen=True, slots=True)
class VolumeContent:
    """The content of one volume at one moment, in bytes."""

    used_bytes: int
    topics: Mapping[str, int]
    """By topic, all its replicas on the volume."""

    @property
    def kafka_bytes(self) -> int:
        """The bytes of all replicas."""
        return sum(self.topics.values())

    @property
    def other_bytes(self) -> int:
        """The used bytes that are no replica's."""
        return max(0, self.used_bytes - self.kafka_bytes)


def is_filling_up(volume: VolumeState, now_ms: int, limits: Sequence[Limit], alert_seconds: float) -> bool:
    """Return whether a volume has reached a limit, or is full within `alert_seconds` at its present rate."""
    if any(limit.reached(volume.usable_bytes, volume.total_bytes) for limit in limits):
        return True
    left_seconds = seconds_left(volume, now_ms)
    return left_seconds is not None and left_seconds < alert_seconds


def measure_usage(log_dir: str, before: VolumeContent | None, after: VolumeContent, seconds: float) -> VolumeUsage:
    """Compare the contents of a volume at two moments.

    Args:
        before: its earlier content; None if there is none, and then there are no rates.
        after: its present content.
        seconds: the time from one to the other, more than 0.
    """
    rates: dict[str, float] = {}
    other_rate = kafka_rate = None
    if before is not None:
        rates = {topic: (size - before.topics.get(topic, 0)) / seconds for topic, size in after.topics.items()}
        other_rate = (after.other_bytes - before.other_bytes) / seconds
        kafka_rate = (after.kafka_bytes - before.kafka_bytes) / seconds
    growth = sum(rate for rate in (*rates.values(), other_rate or 0.0) if rate > 0)
    growing = sorted((topic for topic in rates if rates[topic] > 0), key=lambda topic: (-rates[topic], topic))
    largest = sorted(after.topics, key=lambda topic: (-after.topics[topic], topic))
    named = dict.fromkeys((*growing[:MOST_TOPICS], *largest[:MOST_TOPICS]))
    return VolumeUsage(
        log_dir=log_dir,
        kafka_bytes=after.kafka_bytes,
        kafka_bytes_per_second=kafka_rate,
        other_bytes=after.other_bytes,
        other_bytes_per_second=other_rate,
        other_share=_share(other_rate, growth),
        topics=tuple(
            TopicUsage(
                topic=topic,
                size_bytes=after.topics[topic],
                bytes_per_second=rates.get(topic),
                share=_share(rates.get(topic), growth),
            )
            for topic in named
        ),
    )


def find_usage(broker: BrokerState, log_dir: str, now_ms: int, validity_ms: int) -> VolumeUsage | None:
    """Return the usage of a volume by the last reading; None if that is `validity` old, or lacks the volume."""
    usage = broker.usage
    if usage is None or now_ms >= usage.at_ms + validity_ms:
        return None
    found = next((text for name, text in usage.volumes if name == log_dir), None)
    return None if found is None else VolumeUsage.model_validate_json(found)


def describe_growth(usage: VolumeUsage | None) -> str:
    """Name the first two that fill a volume: ``filled by topic orders (1.5 MB/s, 60 %) and ...``; empty if unknown."""
    if usage is None:
        return ""
    growing = [(f"topic {each.topic}", each.bytes_per_second, each.share) for each in usage.topics]
    growing.append((_NOT_KAFKA, usage.other_bytes_per_second, usage.other_share))
    fastest = sorted(
        ((rate, name, share) for name, rate, share in growing if rate and rate > 0.0 and share),
        key=lambda g: (-g[0], g[1]),
    )
    named = [f"{name} ({human_rate(rate)}, {share:.0%})" for rate, name, share in fastest[:2]]
    return f"filled by {' and '.join(named)}" if named else ""


def list_usage(usage: VolumeUsage | None) -> dict[str, str]:
    """Write a line for each topic and for all other files, for the audit topic and `headgate explain`."""
    if usage is None:
        return {}
    lines = {
        f"topic {each.topic}": _describe(each.size_bytes, each.bytes_per_second, each.share) for each in usage.topics
    }
    return lines | {_NOT_KAFKA: _describe(usage.other_bytes, usage.other_bytes_per_second, usage.other_share)}


def _describe(size_bytes: int, rate: float | None, share: float | None) -> str:
    growth = "" if rate is None else f", {human_rate(rate)} ({share or 0.0:.0%} of what grows)"
    return f"{human_bytes(size_bytes)}{growth}"


def _share(rate: float | None, growth: float) -> float | None:
    """Return the share of all that grows; 0 for what shrinks, None if the rate is not known."""
    if rate is None:
        return None
    return rate / growth if rate > 0 else 0.0
