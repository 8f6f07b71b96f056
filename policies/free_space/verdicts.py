"""One volume at one moment: its facts, and the factor that it allows. Every free-space policy judges volumes alike."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct

from policies.free_space.dead_time import Projection, project
from policies.free_space.gate import Key
from policies.free_space.limits import LimitHit, assess
from policies.free_space.settings import FreeSpaceSettings
from policies.free_space.volumes import NEVER, Freshness, VolumeState, judge_freshness
from policies.units import millis_of


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
