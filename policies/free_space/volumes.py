"""The volumes of one server: the last good reading of each, with its trend, whatever the order of the readings."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from policies.free_space.trend import Rise, Samples, Trend, TrendLine, estimate_filling, follow_reading
from policies.units import InstantMs

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
