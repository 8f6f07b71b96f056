"""How fast a volume fills, and how reliable that estimate is.

The rate is the Theil-Sen slope of the recent readings: the median of the slopes between all pairs, which a burst moves
less than it would a least-squares line. The line is refitted only when a reading is kept as a sample; readings in
between are only compared with it, which costs next to nothing.

A reading far from the line, or a rise of free space, restarts the trend: readings before a jump or a clean-up say
nothing about the rate after it. Recurring rises mean that retention is at work; the volume then fills only as far as
the peaks of free space decline. Instants are milliseconds, levels are free bytes.
"""

from bisect import bisect_left, bisect_right
from itertools import combinations, pairwise

from msgspec import Struct

from policies.units import InstantMs

Samples = tuple[tuple[InstantMs, int], ...]
"""(milliseconds, free bytes), by time."""

SAMPLE_LIMIT = 10
WINDOW_MS = 900_000
"""Fifteen minutes: three periods of Kafka's default retention check, which makes the level a saw-tooth."""

_LEAST_SAMPLES = 4
"""Fewer samples give no rate: the first writes of a broker that has just started are no trend."""
_STEP_SHARE = 0.01
"""A step differs from the line by more than this share of the free space. A smaller jump moves the estimate to at least
50 times the span of the samples, which is further than `_REACH` allows."""
_STEP_SPREADS = 10
"""A step differs by more than ten median absolute deviations of the samples from their line."""
_STEP_RATE = 0.5
"""A step differs by more than half of what the rate gives for one poll."""
_REACH = 20.0
"""A trend may be extrapolated over this many times its span; over twice that, its confidence is one half."""
_AGREEING = 2.0
"""Slopes between two samples agree with the median one up to this factor."""
_BELIEVED = 0.5
_STILL_BELIEVED = 0.4
_RISES_KEPT = 3
_OVERDUE = 2
"""A rise is overdue after this many times the longest time between two of them: retention has ended, or a person moved
data away in portions."""


class TrendLine(Struct, array_like=True, frozen=True, gc=False):
    """A robust line through the samples."""

    slope: float
    """Bytes per millisecond; below 0 while the volume fills."""
    at_ms: InstantMs
    level: float
    """Its free bytes at that instant."""
    spread: float
    """The median distance of a sample from it, in bytes."""
    agreement: float
    """The share of the slopes between two samples that are close to this one."""


class Rise(Struct, array_like=True, frozen=True, gc=False):
    """A rise of free space: a segment was deleted, or a person cleaned up."""

    at_ms: InstantMs
    trough: int
    """Free bytes before the rise."""
    peak: int
    """Free bytes after the rise."""


class Trend(Struct, array_like=True, frozen=True, gc=False):
    """The recent readings of a volume, reduced to what its rate depends on."""

    samples: Samples = ()
    """The readings since the last step, at most fifteen minutes, thinned so that they stay evenly spread."""
    line: TrendLine | None = None
    rises: tuple[Rise, ...] = ()
    """The last rises of the window."""


class Filling(Struct, array_like=True, frozen=True, gc=False):
    """The rate at which a volume fills."""

    bytes_per_second: float
    confidence: float
    """From 0 to 1: how well the samples agree, and how far they are extrapolated."""


def follow_reading(trend: Trend, at_ms: int, usable_bytes: int, before_ms: int, before_bytes: int) -> Trend:
    """Return the trend after another reading, later than anything in it."""
    samples, line = trend.samples, trend.line
    if not samples:
        return Trend(((at_ms, usable_bytes),), None, trend.rises)
    if usable_bytes - before_bytes > _STEP_SHARE * usable_bytes:
        rise = Rise(at_ms, before_bytes, usable_bytes)
        return Trend(((at_ms, usable_bytes),), None, (*_recent(trend.rises, at_ms), rise)[-_RISES_KEPT:])
    if line is not None and _is_step(line, at_ms, usable_bytes, before_ms, before_bytes):
        return Trend(((at_ms, usable_bytes),), None, trend.rises)
    if (at_ms - samples[-1][0]) * SAMPLE_LIMIT < at_ms - samples[0][0]:
        return trend
    samples = add_sample(samples, at_ms, usable_bytes)
    return Trend(samples, fit_line(samples), trend.rises)


def estimate_filling(trend: Trend, at_ms: int, usable_bytes: int, *, believed: bool = False) -> Filling | None:
    """Estimate how fast a volume fills; None if it does not fill, or if its trend is not reliable.

    If the reading before gave a rate that was believed, a lower confidence is sufficient.
    """
    found = _compare_peaks(trend, at_ms, usable_bytes) if len(trend.rises) > 1 else None
    if found is None and trend.line is not None and len(trend.samples) >= _LEAST_SAMPLES:
        found = -trend.line.slope, at_ms - trend.samples[0][0], trend.line.agreement
    rate, span_ms, agreement = found or (0.0, 0, 0.0)
    confidence = agreement * min(1.0, _REACH * span_ms * rate / max(usable_bytes, 1))
    if rate <= 0.0 or confidence < (_STILL_BELIEVED if believed else _BELIEVED):
        return None
    return Filling(1000 * rate, confidence)


def add_sample(samples: Samples, at_ms: int, usable_bytes: int) -> Samples:
    """Add a reading, and thin the samples of the last fifteen minutes so that they stay evenly spread in time."""
    kept = [s for s in samples if at_ms - WINDOW_MS <= s[0] < at_ms]
    kept.append((at_ms, usable_bytes))
    while len(kept) > SAMPLE_LIMIT:
        gaps = [after[0] - before[0] for before, after in zip(kept, kept[2:], strict=False)]
        del kept[gaps.index(min(gaps)) + 1]
    return tuple(kept)


def fit_line(samples: Samples) -> TrendLine | None:
    """Fit the robust line through the samples; None for fewer than two."""
    if len(samples) < 2:
        return None
    slopes = sorted([(b - a) / (t - s) for (s, a), (t, b) in combinations(samples, 2)])
    slope, at_ms = _median(slopes), samples[-1][0]
    agreeing = 0
    if slope < 0.0:
        agreeing = bisect_right(slopes, slope / _AGREEING) - bisect_left(slopes, slope * _AGREEING)
    levels = sorted([free + slope * (at_ms - ms) for ms, free in samples])
    level = _median(levels)
    spread = _median(sorted([abs(each - level) for each in levels]))
    return TrendLine(slope, at_ms, level, spread, agreeing / len(slopes))


def _median(ordered: list[float]) -> float:
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


def _is_step(line: TrendLine, at_ms: int, usable_bytes: int, before_ms: int, before_bytes: int) -> bool:
    surprise = abs(usable_bytes - (line.level + line.slope * (at_ms - line.at_ms)))
    return (
        surprise > _STEP_SHARE * before_bytes
        and surprise > _STEP_SPREADS * line.spread
        and surprise > _STEP_RATE * abs(line.slope) * (at_ms - before_ms)
    )


def _recent(rises: tuple[Rise, ...], at_ms: int) -> tuple[Rise, ...]:
    return tuple(rise for rise in rises if rise.at_ms >= at_ms - WINDOW_MS)


def _compare_peaks(trend: Trend, at_ms: int, usable_bytes: int) -> tuple[float, int, float] | None:
    """Return (bytes lost a millisecond, milliseconds observed, agreement) by the peaks of free space.

    None if rises do not recur, or if one is overdue: less is free than ever between the peaks, by half a tooth, or none
    came for twice the longest time between them.
    """
    rises = _recent(trend.rises, at_ms)
    if len(rises) < 2:
        return None
    first, last = rises[0], rises[-1]
    if at_ms - last.at_ms > _OVERDUE * max(after.at_ms - before.at_ms for before, after in pairwise(rises)):
        return None
    if usable_bytes < min(rise.trough for rise in rises) - (last.peak - last.trough) / 2:
        return None
    if len(rises) < _RISES_KEPT or first.at_ms == last.at_ms:
        return 0.0, 0, 0.0
    return (first.peak - last.peak) / (last.at_ms - first.at_ms), at_ms - first.at_ms, 1.0
