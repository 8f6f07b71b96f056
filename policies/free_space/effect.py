"""Whether slowing writers down has the expected effect: the growth of volumes, compared with what limits let through.

The actuator publishes what its limits let through. A volume that grows faster in two windows, one after the other,
shows that something escapes the limits.
"""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policies.free_space.gate import Key
from policies.free_space.volumes import NEVER, Freshness, VolumeState
from policies.observations import Observation, Outcome, Reading
from policies.units import InstantMs

Key_co = TypeVar("Key_co", bound=tuple[Any, ...], covariant=True)
ReadingT = TypeVar("ReadingT", bound=Reading)

_WINDOWS = 2
_MOST_FOLLOWED = 20
"""The most limiting volumes whose growth is followed: the tightest."""


class EffectState(Struct, array_like=True, frozen=True):
    """The actuator's last good reading."""

    at_ms: InstantMs = NEVER
    id: str = ""
    reading: str = ""
    """As JSON."""


class VolumeGrowth(Struct, Generic[Key], array_like=True, frozen=True):
    """The growth of a limiting volume since the limits of a throttle are in force."""

    volume: Key
    from_ms: InstantMs
    from_bytes: int
    """Free bytes at the beginning of the present window."""
    exceeded: int = 0
    """The number of windows, one after the other, in which the volume grew too fast."""
    bytes_per_second: float = 0.0
    """Its growth in the last of them."""
    most_bytes_per_second: float = 0.0
    """The fastest growth that was expected at any time of the present window: limits may change within it."""

    is_full: bool = False
    """Whether the volume has no longer room for a window of that growth: that it grows less is no recovery."""

    @property
    def is_unexpected(self) -> bool:
        """Whether the volume has grown too fast for long enough."""
        return self.exceeded >= _WINDOWS


class GrowingVolume(Protocol[Key_co]):
    """A volume that limits its cluster."""

    @property
    def key(self) -> Key_co:
        """The volume."""

    @property
    def state(self) -> VolumeState:
        """Its last good reading."""

    @property
    def freshness(self) -> Freshness:
        """How much that reading is worth."""

    @property
    def tightness(self) -> tuple[Any, ...]:
        """Sorts volumes, the tightest first."""


def follow_actuator(
    state: EffectState, observations: Sequence[Observation], kind: type[ReadingT], now_ms: int, validity_ms: int
) -> tuple[EffectState, ReadingT | None]:
    """Return the next state, and the actuator's last good reading if it is valid at `now_ms`."""
    for seen in observations:
        is_good = isinstance(seen.reading, kind) and seen.reading.outcome is Outcome.OK
        if is_good and (seen.at_ms, seen.id) > (state.at_ms, state.id):
            state = EffectState(seen.at_ms, seen.id, seen.reading.model_dump_json())
    if state.at_ms == NEVER or now_ms >= state.at_ms + validity_ms:
        return EffectState(), None
    return state, kind.model_validate_json(state.reading)


def follow_growth(
    before: Iterable[VolumeGrowth[Key]], limiting: Iterable[tuple[GrowingVolume[Key], float]], window_seconds: float
) -> tuple[VolumeGrowth[Key], ...]:
    """Return the growth of limiting volumes while limits are in force.

    Only fresh readings show growth. Unexpected growth of a volume that is no longer read stays known.

    Args:
        limiting: the volumes, each with the fastest growth that is expected of it, in bytes per second.
        window_seconds: the shortest time over which growth is measured.
    """
    known = {growth.volume: growth for growth in before}
    shown = (pair for pair in limiting if _is_shown(pair[0], known.get(pair[0].key)))
    followed = nsmallest(_MOST_FOLLOWED, shown, key=lambda pair: pair[0].tightness)
    ordered = sorted(followed, key=lambda pair: pair[0].key)
    return tuple(_measure_growth(known.get(v.key), v, expected, window_seconds) for v, expected in ordered)


def _is_shown(volume: GrowingVolume[Key], before: VolumeGrowth[Key] | None) -> bool:
    is_kept = volume.freshness is Freshness.STALE and before is not None and before.is_unexpected
    return is_kept or volume.freshness is Freshness.FRESH


def _measure_growth(
    before: VolumeGrowth[Key] | None, volume: GrowingVolume[Key], expected: float, window_seconds: float
) -> VolumeGrowth[Key]:
    read_ms, free = volume.state.read_ms, volume.state.usable_bytes
    start = VolumeGrowth(volume.key, read_ms, free, most_bytes_per_second=expected)
    if before is None or read_ms < before.from_ms:
        return start
    if volume.freshness is Freshness.STALE:
        return before
    if before.is_unexpected and free < before.bytes_per_second * window_seconds:
        return replace(before, is_full=True)
    most, seconds = max(before.most_bytes_per_second, expected), (read_ms - before.from_ms) / 1000
    if seconds < window_seconds:
        fits = before.bytes_per_second <= expected  # the limits have been raised since
        return replace(before, most_bytes_per_second=most, exceeded=0 if fits else before.exceeded, is_full=False)
    rate = (before.from_bytes - free) / seconds
    return replace(start, exceeded=0 if rate <= most else min(before.exceeded + 1, _WINDOWS), bytes_per_second=rate)
