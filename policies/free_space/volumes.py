"""The volumes of one server: the last good reading of each, with its trend, whatever the order of the readings."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policies.free_space.gate import Key
from policies.free_space.limits import FreeSpaceSettings, LimitHit, assess
from policies.free_space.trend import Rise, Samples, Trend, TrendLine, estimate_filling, follow_reading
from policies.units import InstantMs, millis_of

NEVER = -1
"""The time of a reading that there was not yet."""


class ReportedVolume(Protocol):
    """One volume as its server reports it."""

    @property
    def log_dir(self) -> str:
        """Its folder on the server."""

    @property
    def total_bytes(self) -> int:
        """Its size."""

    @property
    def usable_bytes(self) -> int:
        """The server's free bytes."""

    @property
    def readable(self) -> bool:
        """Whether its free space is known."""


class Freshness(StrEnum):
    """How much the last reading of a volume or server is worth."""

    FRESH = "fresh"
    """Read within `validity`."""
    STALE = "stale"
    """Its server is a member, but the last good reading is older than `validity`."""
    DEPARTED = "departed"
    """Its server left, or no longer reports it."""
    NEVER_READ = "never_read"
    """A volume that was only ever reported unreadable."""


class VolumeState(Struct, array_like=True, frozen=True, gc=False):
    """The last good reading of one volume. `read_ms` is NEVER if it was only ever reported unreadable."""

    log_dir: str
    total_bytes: int
    usable_bytes: int
    read_ms: InstantMs
    missing_ms: InstantMs | None = None
    """When a good reading of its server first lacked it."""
    samples: Samples = ()
    """The samples of its trend. A volume that was never readable has one: the time of its first report, with -1."""
    fill_bytes_per_second: float | None = None
    """None if it does not fill, or if its trend is not reliable."""
    line: TrendLine | None = None
    rises: tuple[Rise, ...] = ()
    fill_confidence: float | None = None
    """None if the rate is not known. An earlier version stored rates without it; those are not used."""
    interval_ms: int | None = None
    """The time between the last two good readings; None if it is not known."""

    @property
    def fill_rate(self) -> float | None:
        """Bytes per second; None if it does not fill, or if its trend is not reliable."""
        return None if self.fill_confidence is None else self.fill_bytes_per_second

    @property
    def seen_ms(self) -> int:
        """When a volume that was never readable was first reported; NEVER if an earlier version wrote this."""
        return self.samples[0][0] if self.samples else NEVER

    @property
    def trend(self) -> Trend:
        """The trend of its readings."""
        return Trend(self.samples, self.line, self.rises)


def fold_volumes(
    known: tuple[VolumeState, ...], readings: Iterable[ReportedVolume], at_ms: int
) -> tuple[VolumeState, ...]:
    """Return a server's volumes after a good reading of all of them, in order of their folders."""
    before = {v.log_dir: v for v in known}
    # If a dir is named twice, the fuller one counts.
    now = {r.log_dir: r for r in sorted(readings, key=lambda r: (r.readable, -r.usable_bytes))}
    merged = [_fold_volume(before.get(log_dir), now[log_dir], at_ms) for log_dir in now]
    merged += [
        v if v.missing_ms is not None else replace(v, missing_ms=at_ms) for d, v in before.items() if d not in now
    ]
    return tuple(sorted(merged, key=lambda v: v.log_dir))


def judge_freshness(read_ms: int, departed_ms: int | None, now_ms: int, validity_ms: int) -> Freshness:
    """Return how much a reading is worth.

    Args:
        read_ms: the time of the last good one, or NEVER.
        departed_ms: since when the thing is gone; None while it is there.
    """
    if departed_ms is not None:
        return Freshness.DEPARTED
    is_fresh = read_ms != NEVER and now_ms - read_ms < validity_ms
    return Freshness.FRESH if is_fresh else Freshness.STALE


def seconds_left(volume: VolumeState, now_ms: int) -> float | None:
    """Return how soon a freshly read volume is full; None if it is not known to fill."""
    if (rate := volume.fill_rate) is None:
        return None
    age_seconds = max(0, now_ms - volume.read_ms) / 1000
    return max(0.0, volume.usable_bytes / rate - age_seconds)


def _fold_volume(before: VolumeState | None, reading: ReportedVolume, at_ms: int) -> VolumeState:
    if not reading.readable:
        # An unreadable volume is neither full nor empty: its last reading ages.
        never_read = VolumeState(reading.log_dir, -1, -1, NEVER, samples=((at_ms, -1),))
        return replace(before, missing_ms=None) if before else never_read
    free = reading.usable_bytes
    if before is None or before.read_ms == NEVER:
        return VolumeState(reading.log_dir, reading.total_bytes, free, at_ms, None, ((at_ms, free),))
    after = follow_reading(before.trend, at_ms, free, before.read_ms, before.usable_bytes)
    filling = estimate_filling(after, at_ms, free, believed=before.fill_confidence is not None)
    rate, confidence = (filling.bytes_per_second, filling.confidence) if filling else (None, None)
    known, interval_ms = (reading.log_dir, reading.total_bytes, free, at_ms), at_ms - before.read_ms
    return VolumeState(*known, None, after.samples, rate, after.line, after.rises, confidence, interval_ms)


# The bounds of a cluster's state: what forged or broken readings can make it hold at most.
#
# Readings of servers that are members count only among members, so forged ones of other servers take no room from
# them.

Server = TypeVar("Server", bound=Hashable)


class VolumeBounds(NamedTuple):
    """The most servers and volumes of one cluster, and the words for them in sentences."""

    most_servers: int
    most_volumes: int
    servers: str
    volumes: str


class ServerReading(NamedTuple, Generic[Server]):
    """The part of a reading that takes room: the volumes of one server."""

    id: str
    """The id of the observation."""
    server: Server
    volumes: frozenset[str]


def find_excess(
    bounds: VolumeBounds,
    known: Mapping[Server, Sequence[VolumeState]],
    members: Set[Server],
    readings: Iterable[ServerReading[Server]],
) -> dict[str, str]:
    """Return, by observation id, the bound for which a reading is refused.

    Args:
        known: the volumes of each server before the readings. A volume that a reading lacks stays for a while.
        readings: in order.
    """
    counts = {server: len(volumes) for server, volumes in known.items()}
    totals = {True: sum(counts.get(server, 0) for server in members), False: sum(counts.values())}
    refused: dict[str, str] = {}
    for reading in readings:
        is_member, before = reading.server in members, counts.get(reading.server, 0)
        kept = {volume.log_dir for volume in known.get(reading.server, ())}
        after = max(before, len(reading.volumes | kept))
        if reading.server not in counts and len(counts) >= bounds.most_servers + len(members):
            refused[reading.id] = f"more than {bounds.most_servers} {bounds.servers}"
        elif after > before and totals[is_member] + after - before > bounds.most_volumes:
            refused[reading.id] = f"more than {bounds.most_volumes} {bounds.volumes}"
        else:
            counts[reading.server] = after
            totals[False] += after - before
            totals[True] += (after - before) if is_member else 0
    return refused


# The free space of a volume that fills, after the dead time: when a stop could have its effect at the earliest.

_BATCH_SECONDS = 1.0
"""From a reading to the limits that it causes."""
_LONGEST_INTERVAL_SECONDS = 60.0
"""A longer time between two readings is an outage of the collector, and not expected to recur."""


class Projection(NamedTuple):
    """The free space of a volume that fills, at the earliest instant at which a stop could have its effect."""

    usable_bytes: int
    seconds: float
    """The dead time until then."""


def project(state: VolumeState, settings: FreeSpaceSettings) -> Projection | None:
    """Project the free space over the dead time (throttle's rule 15); None without a credible trend or a dead time.

    The dead time is that until the next reading, of a batch, and of the steps in which writers are stopped. It depends
    on the volume's last good reading alone. So a verdict holds until the next one, and silence opens no gate.
    """
    if not settings.anticipate or settings.stop_time is None:
        return None
    if (rate := state.fill_rate) is None:
        return None
    interval_seconds = min((state.interval_ms or 0) / 1000, _LONGEST_INTERVAL_SECONDS)
    seconds = interval_seconds + _BATCH_SECONDS + settings.stop_time.total_seconds()
    return Projection(max(0, int(state.usable_bytes - rate * seconds)), seconds)


# One volume at one moment: its facts, and the factor that it allows. Every free-space policy judges volumes alike.


class VolumeFacts(Struct, Generic[Key], frozen=True, gc=False):
    """One volume at one moment. A struct and not a dataclass, because a large cluster has thousands."""

    key: Key
    read_id: str
    """The id of its server's last good reading; empty if there is none."""
    state: VolumeState
    freshness: Freshness
    departed_ms: int | None
    """When its server left or no longer reported it; None while it is there."""
    full_ms: float | None
    """When it is full at its present rate. None if it does not fill, if its trend is not reliable, or if the last
    reading is not fresh."""
    overdue_ms: int | None
    """If it was never read: from when it counts as the fallback, `validity` after it was first reported."""


class SpaceVerdict(VolumeFacts[Key], Generic[Key], frozen=True, gc=False):
    """A volume that counts, and the factor that it allows."""

    hit: LimitHit
    factor: float
    """At most the fallback for a stale volume; the fallback for one that was never read."""
    ahead: Projection | None = None
    """The free space by which it was judged, if that is not what it has."""

    @property
    def tightness(self) -> tuple[Any, ...]:
        """Sorts volumes, the tightest first; each policy has its own order."""
        raise NotImplementedError

    @property
    def judged_bytes(self) -> int:
        """The free space by which it was judged."""
        return self.ahead.usable_bytes if self.ahead else self.state.usable_bytes

    def is_within_margin(self, settings: FreeSpaceSettings) -> bool:
        """Return whether it is not above the hard limit by the recovery margin; False for one that was never read."""
        hard, margin = settings.hard, settings.recovery_margin
        if hard is None or self.freshness is Freshness.NEVER_READ:
            return False
        return hard.reached(self.judged_bytes, self.state.total_bytes, margin=margin)


VerdictT = TypeVar("VerdictT", bound=SpaceVerdict[Any])


def find_facts(
    key: Key, read_id: str, state: VolumeState, departed_ms: int | None, seen_ms: int, now_ms: int, validity_ms: int
) -> VolumeFacts[Key]:
    """Return the facts of one volume.

    Args:
        read_id: the id of its server's last good reading, or else of the last attempt.
        state: its last good reading.
        departed_ms: when it left; None while it is there.
        seen_ms: when its server was first seen, or seen again.
        now_ms: the time of this step, in milliseconds since the epoch.
    """
    if state.read_ms == NEVER:
        overdue_ms = max(state.seen_ms, seen_ms) + validity_ms
        return VolumeFacts(key, read_id, state, Freshness.NEVER_READ, departed_ms, None, overdue_ms)
    freshness = judge_freshness(state.read_ms, departed_ms, now_ms, validity_ms)
    rate, full_ms = state.fill_rate, None
    if freshness is Freshness.FRESH and rate is not None:
        full_ms = state.read_ms + 1000 * state.usable_bytes / rate
    return VolumeFacts(key, read_id, state, freshness, departed_ms, full_ms, None)


def judge_volume(
    kind: type[VerdictT], volume: VolumeFacts[Key], now_ms: int, settings: FreeSpaceSettings
) -> VerdictT | None:
    """Judge a volume by its free space. Silence never opens a gate that a reading closed.

    Never read is not absent: a disk that failed before the start may be full. Once it departs, there is nothing to
    remember of it. A volume that left while it was stale goes on counting as a stale one.

    Args:
        kind: the policy's verdict.

    Returns:
        None for a volume that was never read and does not count (yet).
    """
    key, read_id, state, freshness = volume.key, volume.read_id, volume.state, volume.freshness
    departed_ms, full_ms, overdue_ms = volume.departed_ms, volume.full_ms, volume.overdue_ms
    if overdue_ms is not None:
        if departed_ms is not None or now_ms < overdue_ms:
            return None
        return kind(key, read_id, state, freshness, None, None, overdue_ms, LimitHit.NONE, settings.fallback)
    ahead = project(state, settings)
    usable_bytes = ahead.usable_bytes if ahead else state.usable_bytes
    hit, factor = assess(usable_bytes, state.total_bytes, settings.hard, settings.soft)
    left_stale = departed_ms is not None and departed_ms >= state.read_ms + millis_of(settings.validity)
    if freshness is Freshness.STALE or left_stale:
        factor = min(settings.fallback, factor)
    return kind(key, read_id, state, freshness, departed_ms, full_ms, None, hit, factor, ahead)


def is_overdue(volume: VolumeFacts[Any], now_ms: int) -> bool:
    """Return whether a volume has not been read for `validity`, or never since it was first reported."""
    return volume.freshness is Freshness.STALE or (volume.overdue_ms is not None and volume.overdue_ms <= now_ms)


def hold_ends_ms(departed_ms: int, settings: FreeSpaceSettings) -> int:
    """Return until when a departed volume counts, if it limited its cluster."""
    return departed_ms + millis_of(settings.departed_hold)


def find_expiries(
    volumes: Iterable[VolumeFacts[Key]], counting: Iterable[SpaceVerdict[Key]], settings: FreeSpaceSettings
) -> Iterator[int]:
    """Find each instant at which time alone changes the verdict on a volume; some may have passed.

    Args:
        volumes: all volumes of a server.
        counting: those that count.
    """
    validity_ms, soon_ms = millis_of(settings.validity), millis_of(settings.time_to_full_alert)
    yield from (volume.overdue_ms for volume in volumes if volume.overdue_ms is not None)
    for volume in counting:
        if volume.departed_ms is not None:
            yield hold_ends_ms(volume.departed_ms, settings)
        elif volume.freshness is Freshness.FRESH:
            yield volume.state.read_ms + validity_ms
        if volume.full_ms is not None:
            yield int(volume.full_ms) - soon_ms + 1
