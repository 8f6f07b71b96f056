"""The polling interval of a broker's volumes: the shorter, the sooner the next limit is reached at the present speed.

The interval is shortened at once but lengthened by at most half at a time, and the fastest of the last few changes
counts, so it does not swing with a bursty load. Pure; seconds are those of any monotonic clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from policies.throttle.limits import Limit
from policies.throttle.readings import VolumeReading

_LOOKS = 10
"""So many looks before a volume is at its next limit."""
_SPEEDS = 3
"""The fastest of so many changes counts."""
_LONGER = 1.5
"""An interval grows by this factor at most from one look to the next."""


@dataclass(frozen=True, slots=True)
class PaceBounds:
    """Between what the interval lies, in seconds."""

    shortest_seconds: float
    longest_seconds: float


class VolumePace(NamedTuple):
    """A volume as it was last read."""

    usable_bytes: int
    speeds: tuple[float, ...] = ()
    """Bytes a second, up or down, the latest first."""


@dataclass(frozen=True, slots=True)
class BrokerPace:
    """When a broker was read last, and how soon again."""

    at_seconds: float
    interval_seconds: float
    volumes: Mapping[str, VolumePace] = field(default_factory=dict)


def paced(
    before: BrokerPace | None,
    at_seconds: float,
    volumes: Iterable[VolumeReading],
    limits: Sequence[Limit],
    bounds: PaceBounds,
) -> BrokerPace:
    """The pace after a reading.

    Args:
        before: until now; None for the first reading.
        at_seconds: when it was read.
        volumes: all of them; none after an attempt that failed.
        limits: the cluster's.
        bounds: of the interval.
    """
    known: dict[str, VolumePace] = {}
    wanted = bounds.longest_seconds
    for volume in volumes:
        if volume.readable:
            pace = _followed(before, at_seconds, volume)
            known[volume.log_dir] = pace
            wanted = min(wanted, _seconds_to_a_limit(volume, pace.speeds, limits) / _LOOKS)
    if before is not None:
        wanted = min(wanted, before.interval_seconds * _LONGER)
    return BrokerPace(at_seconds, min(max(wanted, bounds.shortest_seconds), bounds.longest_seconds), known)


def held_below(intervals: Mapping[int, float], requests_per_second: float, longest_seconds: float) -> dict[int, float]:
    """The brokers' intervals, so much longer that together they ask no more often; never longer than the longest."""
    rate = sum(1 / seconds for seconds in intervals.values())
    stretch = max(1.0, rate / requests_per_second)
    return {broker: min(seconds * stretch, longest_seconds) for broker, seconds in intervals.items()}


def _followed(before: BrokerPace | None, at_seconds: float, volume: VolumeReading) -> VolumePace:
    last = before.volumes.get(volume.log_dir) if before else None
    if before is None or last is None or at_seconds <= before.at_seconds:
        return VolumePace(volume.usable_bytes, last.speeds if last else ())
    speed = abs(volume.usable_bytes - last.usable_bytes) / (at_seconds - before.at_seconds)
    return VolumePace(volume.usable_bytes, (speed, *last.speeds)[:_SPEEDS])


def _seconds_to_a_limit(volume: VolumeReading, speeds: Sequence[float], limits: Sequence[Limit]) -> float:
    """Until the nearest limit, below or above, at the fastest speed."""
    fastest = max(speeds, default=0.0)
    if not fastest:
        return float("inf")
    levels = (limit.in_bytes(volume.total_bytes) for limit in limits)
    return min((abs(volume.usable_bytes - level) / fastest for level in levels), default=float("inf"))
