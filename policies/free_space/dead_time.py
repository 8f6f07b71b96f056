"""The free space of a volume that fills, after the dead time: when a stop could have its effect at the earliest."""

from typing import NamedTuple

from policies.free_space.limits import LimitHit, assess
from policies.free_space.settings import FreeSpaceSettings
from policies.free_space.volumes import Freshness, VolumeState
from policies.units import millis_of

_BATCH_SECONDS = 1.0
"""From a reading to the limits that it causes."""
_LONGEST_INTERVAL_SECONDS = 60.0
"""A longer time between two readings is an outage of the collector, and not expected to recur."""


class Projection(NamedTuple):
    """The free space of a volume that fills, at the earliest instant at which a stop could have its effect."""

    usable_bytes: int
    seconds: float
    """The dead time until then."""


def project(
    state: VolumeState, full_ms: float | None, interval_ms: int | None, settings: FreeSpaceSettings
) -> Projection | None:
    """Project the free space over the dead time (throttle's rule 15); None without a credible trend or a dead time.

    The dead time is that until the next reading, of a batch, and of the steps in which writers are stopped. It depends
    on the reading alone, and not on the time since, so a verdict holds until the next reading.

    Args:
        state: the volume.
        full_ms: when it is full at its present rate; None if that is not known.
        interval_ms: between the last two good readings of its server; None if there was one only.
        settings: the cluster's.
    """
    if not settings.anticipate or settings.stop_time is None:
        return None
    if full_ms is None or state.fill_bytes_per_second is None:
        return None
    interval_seconds = min((interval_ms or 0) / 1000, _LONGEST_INTERVAL_SECONDS)
    seconds = interval_seconds + _BATCH_SECONDS + settings.stop_time.total_seconds()
    return Projection(max(0, int(state.usable_bytes - state.fill_bytes_per_second * seconds)), seconds)


class SpaceVerdict(NamedTuple):
    """The factor that the free space of a volume allows."""

    hit: LimitHit
    factor: float
    """At most the fallback for a stale volume."""
    ahead: Projection | None
    """The free space by which it was judged, if that is not what it has."""


def judge_space(
    state: VolumeState,
    freshness: Freshness,
    departed_ms: int | None,
    full_ms: float | None,
    interval_ms: int | None,
    settings: FreeSpaceSettings,
) -> SpaceVerdict:
    """Judge a volume that was read by its free space. Silence never opens a gate that a reading closed.

    A volume that left (`departed_ms`) while it was stale goes on counting as a stale one. The other arguments are those
    of `project`.
    """
    ahead = project(state, full_ms, interval_ms, settings)
    usable_bytes = ahead.usable_bytes if ahead else state.usable_bytes
    hit, factor = assess(usable_bytes, state.total_bytes, settings.hard, settings.soft)
    left_stale = departed_ms is not None and departed_ms >= state.read_ms + millis_of(settings.validity)
    if freshness is Freshness.STALE or left_stale:
        factor = min(settings.fallback, factor)
    return SpaceVerdict(hit, factor, ahead)
