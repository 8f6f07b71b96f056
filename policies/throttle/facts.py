"""The state of a cluster at one moment: its brokers and volumes, and how fresh each reading is.

This is the only place where readings of log dirs and membership are joined. No limit is applied here.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import NEVER, BrokerState, KafkaClusterState, VolumeKey, VolumeState
from policies.units import millis_of, to_millis


class Freshness(StrEnum):
    """How much the last reading of a volume or broker is worth."""

    FRESH = "fresh"
    """Read within `validity`."""
    STALE = "stale"
    """Its broker is a member, but it is unread for `validity`."""
    DEPARTED = "departed"
    """Its broker left, or no longer reports it."""
    NEVER_READ = "never_read"
    """A volume that was only ever reported unreadable."""


class BrokerFacts(Struct, frozen=True, gc=False):
    """One broker as of now."""

    state: BrokerState
    freshness: Freshness


class VolumeFacts(Struct, frozen=True, gc=False):
    """One volume as of now. A struct, because a large cluster has thousands, made anew in each step."""

    key: VolumeKey
    broker: BrokerFacts
    state: VolumeState
    freshness: Freshness
    departed_ms: int | None
    """When its broker left or no longer reported it; None while it is there."""
    seconds_to_full: float | None
    """At its present rate; None when it is not filling, when that is not to be believed, or when not freshly read."""


@dataclass(frozen=True, slots=True)
class ThrottleFacts:
    """Everything a verdict on one cluster rests on."""

    cluster: str
    now: datetime
    settings: ThrottleSettings
    brokers: tuple[BrokerFacts, ...]
    volumes: tuple[VolumeFacts, ...]
    """By broker and log dir."""
    ever_read: bool
    """Whether any broker's log dirs were ever read."""


def facts_as_of(now: datetime, cluster: str, known: KafkaClusterState, settings: ThrottleSettings) -> ThrottleFacts:
    """What is the case at a moment, by what is known."""
    now_ms, validity_ms = to_millis(now), millis_of(settings.validity)
    found = [broker_as_of(now_ms, broker, validity_ms) for broker in known.brokers]
    volumes = tuple(volume for _, volumes in found for volume in volumes)
    return ThrottleFacts(cluster, now, settings, tuple(broker for broker, _ in found), volumes, known.ever_read)


def broker_as_of(now_ms: int, broker: BrokerState, validity_ms: int) -> tuple[BrokerFacts, list[VolumeFacts]]:
    """What is the case of one broker and its volumes at a moment."""
    facts = BrokerFacts(broker, _broker_freshness(broker, now_ms, validity_ms))
    return facts, [_volume(facts, volume, now_ms, validity_ms) for volume in broker.volumes]


def seconds_to_full(usable_bytes: int, rate_bytes_per_second: float | None, age_seconds: float) -> float | None:
    """How long until nothing is free at this rate, for a reading of this age; None when it is not filling."""
    if rate_bytes_per_second is None:
        return None
    return max(0.0, usable_bytes / rate_bytes_per_second - age_seconds)


def seconds_left(volume: VolumeState, now_ms: int) -> float | None:
    """How long until a freshly read volume is full, as of a moment; None when it is not known to fill."""
    if volume.fill_confidence is None:
        return None
    age_seconds = max(0, now_ms - volume.read_ms) / 1000
    return seconds_to_full(volume.usable_bytes, volume.fill_bytes_per_second, age_seconds)


def _broker_freshness(broker: BrokerState, now_ms: int, validity_ms: int) -> Freshness:
    """By its last good reading, or as departed."""
    if broker.left_ms is not None:
        return Freshness.DEPARTED
    fresh = broker.read_ms != NEVER and now_ms - broker.read_ms < validity_ms
    return Freshness.FRESH if fresh else Freshness.STALE


def _volume(broker: BrokerFacts, volume: VolumeState, now_ms: int, validity_ms: int) -> VolumeFacts:
    key, departed_ms = (broker.state.broker, volume.log_dir), _departed_ms(broker.state, volume)
    if volume.read_ms == NEVER:
        return VolumeFacts(key, broker, volume, Freshness.NEVER_READ, departed_ms, None)
    if departed_ms is not None:
        return VolumeFacts(key, broker, volume, Freshness.DEPARTED, departed_ms, None)
    if now_ms - volume.read_ms >= validity_ms:
        return VolumeFacts(key, broker, volume, Freshness.STALE, None, None)
    return VolumeFacts(key, broker, volume, Freshness.FRESH, None, seconds_left(volume, now_ms))


def _departed_ms(broker: BrokerState, volume: VolumeState) -> int | None:
    if broker.left_ms is None or volume.missing_ms is None:
        return volume.missing_ms if broker.left_ms is None else broker.left_ms
    return min(broker.left_ms, volume.missing_ms)
