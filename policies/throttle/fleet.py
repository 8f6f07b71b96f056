"""What is known of a cluster's volumes: the last good reading of each, however the readings arrive.

`observe` folds readings in; the result depends on the readings alone, not on their order within a batch or on
repetition. `standings` says how each known volume stands at a moment: fresh, stale or departed.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from policies.observations import Observation, Outcome, in_order
from policies.throttle import trend
from policies.throttle.limits import Assessment, assess
from policies.throttle.readings import KafkaCluster, LogDirs, VolumeReading
from policies.throttle.settings import ThrottleSettings
from policies.units import millis_of, to_millis

NEVER = -1


class Volume(Struct, array_like=True, frozen=True):
    """The last good reading of one log dir. `read_ms` is NEVER when it was only ever reported unreadable."""

    log_dir: str
    total_bytes: int
    usable_bytes: int
    read_ms: int
    missing_ms: int | None = None
    """When its broker's newer good reading no longer had it."""
    samples: trend.Samples = ()
    fill_bytes_per_second: float | None = None


class Broker(Struct, array_like=True, frozen=True):
    """What is known of one broker. `read_*` is its last good reading, `tried_*` the last attempt."""

    broker: int
    seen_ms: int
    read_ms: int = NEVER
    read_id: str = ""
    tried_ms: int = NEVER
    tried_id: str = ""
    outcome: str = ""
    left_ms: int | None = None
    """When a membership reading first lacked it."""
    volumes: tuple[Volume, ...] = ()


class Membership(Struct, array_like=True, frozen=True):
    """The last good reading of who belongs to the cluster."""

    at_ms: int
    id: str
    brokers: tuple[int, ...]


class Fleet(Struct, array_like=True, frozen=True):
    """Everything known of one cluster's volumes; brokers and volumes are sorted, so equal knowledge is equal bytes."""

    membership: Membership | None = None
    brokers: tuple[Broker, ...] = ()
    ever_read: bool = False


class Standing(StrEnum):
    """How a known volume or broker stands."""

    FRESH = "fresh"
    """Read within `validity`."""
    STALE = "stale"
    """Its broker is a member, but it is unread for `validity`."""
    DEPARTED = "departed"
    """Its broker left, or no longer reports it, while it limited the cluster."""


@dataclass(frozen=True, slots=True)
class KnownVolume:
    """One volume at a moment, with what its last reading means under the settings in force."""

    broker: Broker
    volume: Volume
    standing: Standing
    assessment: Assessment
    factor: float
    """What it lets the cluster write: for a stale volume no more than the fallback."""
    seconds_to_full: float | None

    @property
    def key(self) -> tuple[int, str]:
        """(broker, log dir)."""
        return (self.broker.broker, self.volume.log_dir)

    @property
    def departed_ms(self) -> int:
        """When it departed; meaningless for others."""
        return _departed_ms(self.broker, self.volume) or 0


def observe(fleet: Fleet, observations: Sequence[Observation]) -> Fleet:
    """Fold readings into what is known; older ones than those known change nothing."""
    brokers = {b.broker: b for b in fleet.brokers}
    membership = fleet.membership
    ever_read = fleet.ever_read
    for seen in in_order(tuple(observations)):
        if isinstance(seen.reading, KafkaCluster):
            membership = _newer_membership(membership, seen, seen.reading)
            for member in membership.brokers if membership else ():
                brokers.setdefault(member, Broker(member, seen_ms=seen.at_ms))
            brokers = {number: _settled(broker, membership) for number, broker in brokers.items()}
        elif isinstance(seen.reading, LogDirs):
            known = brokers.get(seen.reading.broker) or Broker(seen.reading.broker, seen_ms=seen.at_ms)
            brokers[known.broker] = _settled(_after(known, seen, seen.reading), membership)
            ever_read = ever_read or seen.reading.outcome is Outcome.OK
    return Fleet(membership, tuple(brokers[b] for b in sorted(brokers)), ever_read)


def standings(
    fleet: Fleet, settings: ThrottleSettings, now: datetime, stopped_by: Collection[tuple[int, str]] = ()
) -> tuple[KnownVolume, ...]:
    """How each known volume stands, by (broker, log dir); those to be forgotten are left out.

    Args:
        fleet: what is known.
        settings: those of the cluster.
        now: the moment.
        stopped_by: volumes (broker, log dir) that keep the cluster stopped: they limit it, whatever their factor.
    """
    now_ms = to_millis(now)
    known = (
        _known(b, v, settings, now_ms, limits=(b.broker, v.log_dir) in stopped_by)
        for b in fleet.brokers
        for v in b.volumes
    )
    return tuple(k for k in known if k is not None)


def limiting_departed(
    fleet: Fleet, settings: ThrottleSettings, stopped_by: Collection[tuple[int, str]] = ()
) -> list[tuple[int, str]]:
    """The volumes (broker, log dir) that departed while they limited the cluster, held or not."""
    return [
        (b.broker, v.log_dir)
        for b in fleet.brokers
        for v in b.volumes
        if v.read_ms != NEVER
        and _departed_ms(b, v) is not None
        and (
            (b.broker, v.log_dir) in stopped_by
            or assess(v.usable_bytes, v.total_bytes, settings.hard, settings.soft).factor < 1.0
        )
    ]


def without_forgotten(fleet: Fleet, known: Iterable[KnownVolume]) -> Fleet:
    """Drop the volumes that no longer stand, and the brokers that left with nothing to remember."""
    keep = {k.key for k in known}

    def stands(broker: Broker, volume: Volume) -> bool:
        never_read = volume.read_ms == NEVER and _departed_ms(broker, volume) is None
        return never_read or (broker.broker, volume.log_dir) in keep

    brokers = (replace(b, volumes=tuple(v for v in b.volumes if stands(b, v))) for b in fleet.brokers)
    return replace(fleet, brokers=tuple(b for b in brokers if b.left_ms is None or b.volumes))


def expiries(fleet: Fleet, known: Iterable[KnownVolume], settings: ThrottleSettings) -> Iterator[int]:
    """When (milliseconds) a volume or broker changes its standing without a new reading; some may have passed."""
    validity_ms, hold_ms = millis_of(settings.validity), millis_of(settings.departed_hold)
    yield from (max(b.read_ms, b.seen_ms) + validity_ms for b in fleet.brokers)
    for k in known:
        if k.standing is Standing.FRESH:
            yield k.volume.read_ms + validity_ms
        elif k.standing is Standing.DEPARTED:
            yield k.departed_ms + hold_ms


def broker_standing(broker: Broker, settings: ThrottleSettings, now_ms: int) -> Standing:
    """How a broker stands: by its last good reading, or as departed."""
    if broker.left_ms is not None:
        return Standing.DEPARTED
    fresh = broker.read_ms != NEVER and now_ms - broker.read_ms < millis_of(settings.validity)
    return Standing.FRESH if fresh else Standing.STALE


def _newer_membership(known: Membership | None, seen: Observation, reading: KafkaCluster) -> Membership | None:
    if reading.outcome is not Outcome.OK or (known and (seen.at_ms, seen.id) <= (known.at_ms, known.id)):
        return known
    return Membership(seen.at_ms, seen.id, tuple(sorted({b.broker for b in reading.brokers})))


def _after(known: Broker, seen: Observation, reading: LogDirs) -> Broker:
    stamp = (seen.at_ms, seen.id)
    if seen.id in (known.read_id, known.tried_id) or stamp <= (known.tried_ms, known.tried_id):
        return known
    tried = replace(known, tried_ms=seen.at_ms, tried_id=seen.id, outcome=reading.outcome.value)
    if reading.outcome is not Outcome.OK:
        return tried
    volumes = _merged(known.volumes, reading.volumes, seen.at_ms)
    return replace(tried, read_ms=seen.at_ms, read_id=seen.id, volumes=volumes)


def _merged(known: tuple[Volume, ...], readings: tuple[VolumeReading, ...], at_ms: int) -> tuple[Volume, ...]:
    """The volumes after a good reading of their broker."""
    before = {v.log_dir: v for v in known}
    # A dir named twice counts as the fuller of the two.
    now = {r.log_dir: r for r in sorted(readings, key=lambda r: (r.readable, -r.usable_bytes))}
    merged = [_reread(before.get(log_dir), now[log_dir], at_ms) for log_dir in now]
    merged += [
        v if v.missing_ms is not None else replace(v, missing_ms=at_ms) for d, v in before.items() if d not in now
    ]
    return tuple(sorted(merged, key=lambda v: v.log_dir))


def _reread(before: Volume | None, reading: VolumeReading, at_ms: int) -> Volume:
    if not reading.readable:
        # Unreadable is neither full nor empty: what was known of it ages.
        return replace(before, missing_ms=None) if before else Volume(reading.log_dir, -1, -1, NEVER)
    samples = trend.with_sample(before.samples if before else (), at_ms, reading.usable_bytes)
    return Volume(
        log_dir=reading.log_dir,
        total_bytes=reading.total_bytes,
        usable_bytes=reading.usable_bytes,
        read_ms=at_ms,
        samples=samples,
        fill_bytes_per_second=trend.fill_bytes_per_second(samples),
    )


def _settled(broker: Broker, membership: Membership | None) -> Broker:
    """With its membership as of now: a broker left when a membership reading as new as its last good one lacks it."""
    absent = membership is not None and broker.broker not in membership.brokers and broker.read_ms <= membership.at_ms
    if not absent:
        return replace(broker, left_ms=None)
    return broker if broker.left_ms is not None or membership is None else replace(broker, left_ms=membership.at_ms)


def _departed_ms(broker: Broker, volume: Volume) -> int | None:
    moments = [m for m in (broker.left_ms, volume.missing_ms) if m is not None]
    return min(moments) if moments else None


def _known(
    broker: Broker, volume: Volume, settings: ThrottleSettings, now_ms: int, *, limits: bool
) -> KnownVolume | None:
    """How one volume stands, or null when it is forgotten or was never read."""
    if volume.read_ms == NEVER:
        return None
    assessment = assess(volume.usable_bytes, volume.total_bytes, settings.hard, settings.soft)
    factor, left = assessment.factor, None
    departed_ms = _departed_ms(broker, volume)
    if departed_ms is not None:
        if not (limits or factor < 1.0) or now_ms >= departed_ms + millis_of(settings.departed_hold):
            return None
        standing = Standing.DEPARTED
    elif now_ms - volume.read_ms < millis_of(settings.validity):
        standing = Standing.FRESH
        age_seconds = max(0, now_ms - volume.read_ms) / 1000
        left = trend.seconds_to_full(volume.usable_bytes, volume.fill_bytes_per_second, age_seconds)
    elif settings.forgets_unread:
        return None
    else:
        # Silence never opens a gate that a reading closed.
        standing, factor = Standing.STALE, min(settings.fallback, factor)
    return KnownVolume(broker, volume, standing, assessment, factor, left)
