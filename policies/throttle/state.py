"""The state of the throttle policy for one cluster.

It is kept in checkpoints as arrays, so the order and types of fields must not change. Brokers and volumes are sorted,
so equal states give equal bytes.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from policies.free_space.alerts import EffectState, HeldAlert, VolumeGrowth, describe_measured
from policies.free_space.gate import Gate
from policies.free_space.limits import Limit
from policies.free_space.volumes import ForgottenVolume, ServerState, VolumeState, seconds_left
from policies.throttle.readings import TopicUsage, VolumeUsage
from policies.units import InstantMs, human_bytes, human_rate

VolumeKey = tuple[int, str]
"""(broker, log dir)"""


def describe_departure(volume: VolumeKey, *, was_taken_out: bool) -> str:
    """Write how a volume that held producers back left: with its broker, or its broker no longer lists it."""
    broker, log_dir = volume
    if was_taken_out:
        return f"{log_dir} was taken out of broker {broker}'s log dirs while it held producers back"
    return f"broker {broker} left the cluster while its {log_dir} held producers back"


class BrokerUsage(Struct, array_like=True, frozen=True, gc=False):
    """The last reading of a broker's replica sizes."""

    at_ms: InstantMs
    id: str
    volumes: tuple[tuple[str, str], ...]
    """(log dir, its `VolumeUsage` as JSON)"""


class BrokerState(ServerState[int], array_like=True, frozen=True, gc=False):
    """One broker."""

    usage: BrokerUsage | None = None
    cordoned: tuple[str, ...] = ()
    """The log dirs on which it places no new partitions (KIP-1066), by its last good reading; in order."""
    errors: tuple[tuple[str, str], ...] = ()
    """(log dir, Kafka's error) of the log dirs that it reports as failed, by its last good reading; in order."""

    def find_error(self, log_dir: str) -> str | None:
        """Return the error with which the broker reports a log dir; None if it reports none, or has left."""
        return dict(self.errors).get(log_dir) if self.left_ms is None else None


class BrokerMembership(Struct, array_like=True, frozen=True):
    """The last good reading of the cluster's members."""

    at_ms: InstantMs
    id: str
    brokers: tuple[int, ...]
    """In order."""

    def has(self, broker: int) -> bool:
        """Return whether a broker is a member."""
        index = bisect_left(self.brokers, broker)
        return index < len(self.brokers) and self.brokers[index] == broker


class KafkaClusterState(Struct, array_like=True, frozen=True):
    """The brokers and volumes of one cluster, and its members."""

    membership: BrokerMembership | None = None
    brokers: tuple[BrokerState, ...] = ()
    ever_read: bool = False
    cluster_id: str | None = None
    """Kafka's id of the cluster that is read, decided on and throttled; None if it is not known."""
    other_id: str | None = None
    """The id of another cluster that answers at the address now; its readings do not count until it is adopted."""


class ThrottleState(Struct, array_like=True, frozen=True, weakref=True):
    """The stored state of the policy for one cluster."""

    started_ms: InstantMs
    gate: Gate[VolumeKey] | None = None
    cluster: KafkaClusterState = KafkaClusterState()
    limiting: VolumeKey | None = None
    """The volume that decided, among others with the same factor."""
    held: tuple[HeldAlert[VolumeKey], ...] = ()
    forgotten: tuple[ForgottenVolume[VolumeKey], ...] = ()
    effect: EffectState = EffectState()
    growths: tuple[VolumeGrowth[VolumeKey], ...] = ()
    growths_before: dict[VolumeKey, float] = {}
    """How fast each limiting volume grew (bytes per second) before all quotas were in force."""


# Which topics fill a volume (rule 6): from the replica sizes of a broker at two moments.
#
# Everything else on the file system is not Kafka's. If two log dirs share one, each counts the other's topics so.

MOST_TOPICS = 10
"""The most topics by growth, and the most by size."""
_SAME_RATE = 1.25
"""Two growths of a volume that differ by less than this factor have the same cause."""
_NOT_KAFKA = "files that are not Kafka's"


Replicas = tuple[str, bool]
"""A topic, and whether its replicas are being moved here."""


@dataclass(frozen=True, slots=True)
class VolumeContent:
    """The content of one volume at one moment, in bytes."""

    used_bytes: int
    sizes: Mapping[Replicas, int]
    """Of all replicas of a topic, apart for those that the broker moves here from another log dir (`is_future_key`)."""

    @property
    def kafka_bytes(self) -> int:
        """The bytes of all replicas."""
        return sum(self.sizes.values())

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
    """Compare the contents of a volume at two moments; without an earlier one there are no rates."""
    rates: dict[Replicas, float] = {}
    sizes, old = after.sizes, before.sizes if before else {}
    other_rate = kafka_rate = None
    if before is not None:
        rates = {each: _grow(old, sizes, each) / seconds for each in sizes}
        other_rate = (after.other_bytes - before.other_bytes) / seconds
        kafka_rate = (after.kafka_bytes - before.kafka_bytes) / seconds
    growth = sum(rate for rate in (*rates.values(), other_rate or 0.0) if rate > 0)
    growing = sorted((each for each in rates if rates[each] > 0), key=lambda each: (-rates[each], each))
    largest = sorted(sizes, key=lambda each: (-sizes[each], each))
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
                topic=each[0],
                size_bytes=sizes[each],
                bytes_per_second=rates.get(each),
                share=_share(rates.get(each), growth),
                is_moved=each[1],
            )
            for each in named
        ),
    )


class MeasuredUsage(NamedTuple):
    """What fills a volume, as measured at one moment."""

    at_ms: int
    of: VolumeUsage


def find_usage(broker: BrokerState, log_dir: str, now_ms: int, validity_ms: int) -> MeasuredUsage | None:
    """Return the usage of a volume by the last reading; None if that is `validity` old, or lacks the volume."""
    usage = broker.usage
    if usage is None or now_ms >= usage.at_ms + validity_ms:
        return None
    found = next((text for name, text in usage.volumes if name == log_dir), None)
    return None if found is None else MeasuredUsage(usage.at_ms, VolumeUsage.model_validate_json(found))


def describe_filling(broker: BrokerState, volume: VolumeState, now_ms: int, validity_ms: int) -> str:
    """Name the first two that fill a volume, with the age of their rates; empty if unknown.

    It is empty, too, if the volume fills at another rate by now: the sentence's time to full would contradict it.
    """
    usage = find_usage(broker, volume.log_dir, now_ms, validity_ms)
    filling = volume.filling
    is_other = filling is not None and usage is not None and not explains(usage.of, filling.bytes_per_second)
    return "" if is_other or broker.find_error(volume.log_dir) is not None else describe_growth(usage, now_ms)


def explains(usage: VolumeUsage, bytes_per_second: float) -> bool:
    """Whether a volume still grows as it did when its usage was measured.

    The usage is measured once a minute, and a quota window takes seconds. If topics had filled the volume until their
    writers were stopped, they would be named for what fills it now.
    """
    total = max(0.0, usage.kafka_bytes_per_second or 0.0) + max(0.0, usage.other_bytes_per_second or 0.0)
    return bytes_per_second / _SAME_RATE <= total <= bytes_per_second * _SAME_RATE


def describe_growth(usage: MeasuredUsage | None, now_ms: int) -> str:
    """Name the first two that fill a volume, with the age of their rates; empty if unknown.

    ``filled by topic orders (1.5 MB/s, 60 %) and ..., as measured 40 s ago``
    """
    if usage is None:
        return ""
    growing = [(_name(each), each.bytes_per_second, each.share) for each in usage.of.topics]
    growing.append((_NOT_KAFKA, usage.of.other_bytes_per_second, usage.of.other_share))
    fastest = sorted(
        ((rate, name, share) for name, rate, share in growing if rate and rate > 0.0 and share),
        key=lambda g: (-g[0], g[1]),
    )
    named = [f"{name} ({human_rate(rate)}, {share:.0%})" for rate, name, share in fastest[:2]]
    return f"filled by {' and '.join(named)}{describe_measured(usage.at_ms, now_ms)}" if named else ""


def list_usage(usage: VolumeUsage | None) -> dict[str, str]:
    """Write a line for each topic and for all other files, for the audit topic and `headgate explain`."""
    if usage is None:
        return {}
    lines = {_name(each): _describe(each.size_bytes, each.bytes_per_second, each.share) for each in usage.topics}
    return lines | {_NOT_KAFKA: _describe(usage.other_bytes, usage.other_bytes_per_second, usage.other_share)}


def _name(usage: TopicUsage) -> str:
    return f"topic {usage.topic}" + (", being moved here from another log dir" if usage.is_moved else "")


def _grow(before: Mapping[Replicas, int], after: Mapping[Replicas, int], each: Replicas) -> int:
    """Return by how much a topic's replicas grew. Bytes whose move has ended did not grow: they only changed sides."""
    grown, (topic, is_moved) = after[each] - before.get(each, 0), each
    moved = max(0, before.get((topic, True), 0) - after.get((topic, True), 0))
    return grown if is_moved else min(grown, max(0, grown - moved))


def _describe(size_bytes: int, rate: float | None, share: float | None) -> str:
    growth = "" if rate is None else f", {human_rate(rate)} ({share or 0.0:.0%} of what grows)"
    return f"{human_bytes(size_bytes)}{growth}"


def _share(rate: float | None, growth: float) -> float | None:
    """Return the share of all that grows; 0 for what shrinks, None if the rate is not known."""
    if rate is None:
        return None
    return rate / growth if rate > 0 else 0.0
