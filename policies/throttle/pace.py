"""The polling interval of a broker's volumes: the sooner a limit is reached at the present speed, the shorter it is.

The interval is shortened at once and lengthened by at most half at a time. The fastest of the last few changes counts,
so a bursty load does not make it alternate. Pure: seconds are those of any monotonic clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from policies.free_space.limits import Limit
from policies.throttle.readings import VolumeReading

_LOOKS = 10
"""The number of readings before a volume is at its next limit."""
_SPEEDS = 3
"""The number of changes of which the fastest counts."""
_LONGER = 1.5
"""The greatest factor by which an interval grows from one reading to the next."""


@dataclass(frozen=True, slots=True)
class PaceBounds:
    """The bounds of the interval."""

    shortest_seconds: float
    longest_seconds: float


class VolumePace(NamedTuple):
    """The last reading of a volume."""

    usable_bytes: int
    speeds: tuple[float, ...] = ()
    """Bytes a second, whether the volume fills or empties; the latest first."""


@dataclass(frozen=True, slots=True)
class BrokerPace:
    """The last reading of a broker, and the interval until the next."""

    at_seconds: float
    interval_seconds: float
    volumes: Mapping[str, VolumePace] = field(default_factory=dict)


def adapt_pace(
    before: BrokerPace | None,
    at_seconds: float,
    volumes: Iterable[VolumeReading],
    limits: Sequence[Limit],
    bounds: PaceBounds,
) -> BrokerPace:
    """Return the pace after a reading of all volumes of a broker; none are given after a failed attempt."""
    known: dict[str, VolumePace] = {}
    wanted = bounds.longest_seconds
    for volume in volumes:
        if volume.readable:
            pace = _measure_speed(before, at_seconds, volume)
            known[volume.log_dir] = pace
            wanted = min(wanted, _find_seconds_to_limit(volume, pace.speeds, limits) / _LOOKS)
    if before is not None:
        wanted = min(wanted, before.interval_seconds * _LONGER)
    return BrokerPace(at_seconds, min(max(wanted, bounds.shortest_seconds), bounds.longest_seconds), known)


def stretch_intervals(
    intervals: Mapping[int, float], requests_per_second: float, longest_seconds: float
) -> dict[int, float]:
    """Stretch the brokers' intervals so that all together stay below a rate; none beyond the longest interval."""
    rate = sum(1 / seconds for seconds in intervals.values())
    stretch = max(1.0, rate / requests_per_second)
    return {broker: min(seconds * stretch, longest_seconds) for broker, seconds in intervals.items()}


def _measure_speed(before: BrokerPace | None, at_seconds: float, volume: VolumeReading) -> VolumePace:
    last = before.volumes.get(volume.log_dir) if before else None
    if before is None or last is None or at_seconds <= before.at_seconds:
        return VolumePace(volume.usable_bytes, last.speeds if last else ())
    speed = abs(volume.usable_bytes - last.usable_bytes) / (at_seconds - before.at_seconds)
    return VolumePace(volume.usable_bytes, (speed, *last.speeds)[:_SPEEDS])


def _find_seconds_to_limit(volume: VolumeReading, speeds: Sequence[float], limits: Sequence[Limit]) -> float:
    """Return how soon the nearest limit, below or above, is reached at the fastest speed."""
    fastest = max(speeds, default=0.0)
    if not fastest:
        return float("inf")
    levels = (limit.in_bytes(volume.total_bytes) for limit in limits)
    return min((abs(volume.usable_bytes - level) / fastest for level in levels), default=float("inf"))
