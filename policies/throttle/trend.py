"""How fast a volume fills, and how reliable that estimate is.

The rate is the Theil-Sen slope of the recent readings: the median of the slopes between all pairs, which a burst moves
less than it would a least-squares line. The line is refitted only when a reading is kept as a sample; readings in
between are only compared with it, which costs next to nothing.

A reading far from the line, or a rise of free space, restarts the trend: what was before a jump or a clean-up says
nothing about the rate after it. Recurring rises mean that retention is at work; the volume then fills only as far as
the peaks of free space decline. Instants are milliseconds, levels free bytes.
"""

from bisect import bisect_left, bisect_right
from itertools import combinations

from msgspec import Struct

from policies.units import InstantMs

Samples = tuple[tuple[InstantMs, int], ...]
"""(milliseconds, free bytes), by time."""

SAMPLE_LIMIT = 10
WINDOW_MS = 900_000
"""Fifteen minutes: three periods of Kafka's default retention check, whose saw-tooth it must see through."""

_LEAST_SAMPLES = 4
"""Fewer tell no rate: the first writes of a broker that has just started are no trend."""
_STEP_SHARE = 0.01
"""Of the free space: a smaller surprise is none. A jump of less moves the estimate to no less than 50 times the span
of the samples, which is further than `_REACH` lets it be said."""
_STEP_SPREADS = 10
"""Nor is one within ten median absolute deviations of the samples from their line."""
_STEP_RATE = 0.5
"""Nor one by which the rate differs for one poll by no more than half."""
_REACH = 20.0
"""A trend may be drawn out over so many times the span it was seen for; over twice that its confidence is one half."""
_AGREEING = 2.0
"""Slopes between two samples agree with the median one up to this factor."""
_BELIEVED = 0.5
_STILL_BELIEVED = 0.4
_RISES_KEPT = 3


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
    """The share of the slopes between two samples that tell of filling at about this rate."""


class Rise(Struct, array_like=True, frozen=True, gc=False):
    """Free space came back: a segment was deleted, or a person cleaned up."""

    at_ms: InstantMs
    trough: int
    """Free bytes before it."""
    peak: int
    """And after it."""


class Trend(Struct, array_like=True, frozen=True, gc=False):
    """What the readings of a volume tell of its rate."""

    samples: Samples = ()
    """Since the last step, at most fifteen minutes, thinned so that they stay evenly spread."""
    line: TrendLine | None = None
    rises: tuple[Rise, ...] = ()
    """The latest of the window."""


class Filling(Struct, frozen=True, gc=False):
    """That a volume fills."""

    bytes_per_second: float
    confidence: float
    """From 0 to 1: how well the samples agree, and how far they are drawn out."""


def followed(trend: Trend, at_ms: int, usable_bytes: int, before_ms: int, before_bytes: int) -> Trend:
    """The trend after another reading.

    Args:
        trend: until now.
        at_ms: when it was read, later than anything in the trend.
        usable_bytes: what was free.
        before_ms: when it was read last.
        before_bytes: what was free then.
    """
    samples, line = trend.samples, trend.line
    if not samples:
        return Trend(((at_ms, usable_bytes),), None, trend.rises)
    if line is None and len(samples) > 1:
        line = fitted(samples)  # as an earlier version kept it
    if usable_bytes - before_bytes > _STEP_SHARE * usable_bytes:
        rise = Rise(at_ms, before_bytes, usable_bytes)
        return Trend(((at_ms, usable_bytes),), None, (*_recent(trend.rises, at_ms), rise)[-_RISES_KEPT:])
    if line is not None and _is_step(line, at_ms, usable_bytes, before_ms, before_bytes):
        return Trend(((at_ms, usable_bytes),), None, trend.rises)
    if (at_ms - samples[-1][0]) * SAMPLE_LIMIT < at_ms - samples[0][0]:
        return trend
    samples = with_sample(samples, at_ms, usable_bytes)
    return Trend(samples, fitted(samples), trend.rises)


def filling(trend: Trend, at_ms: int, usable_bytes: int, *, believed: bool = False) -> Filling | None:
    """How fast the volume fills, as of its last reading; None when it does not, or when that is not to be believed.

    Args:
        trend: with that reading.
        at_ms: when it was read.
        usable_bytes: what was free.
        believed: whether the reading before it told of filling: to go on takes less than to begin.
    """
    found = _between_peaks(trend, at_ms, usable_bytes) if len(trend.rises) > 1 else None
    rate, span_ms, agreement = found or _along_the_line(trend, at_ms)
    if rate <= 0.0:
        return None
    confidence = agreement * min(1.0, _REACH * span_ms * rate / max(usable_bytes, 1))
    if confidence < (_STILL_BELIEVED if believed else _BELIEVED):
        return None
    return Filling(1000 * rate, confidence)


def with_sample(samples: Samples, at_ms: int, usable_bytes: int) -> Samples:
    """Add a reading; keep those of the last fifteen minutes, thinned so that they stay evenly spread in time."""
    kept = [s for s in samples if at_ms - WINDOW_MS <= s[0] < at_ms]
    kept.append((at_ms, usable_bytes))
    while len(kept) > SAMPLE_LIMIT:
        gaps = [after[0] - before[0] for before, after in zip(kept, kept[2:], strict=False)]
        del kept[gaps.index(min(gaps)) + 1]
    return tuple(kept)


def fitted(samples: Samples) -> TrendLine | None:
    """The robust line through them; None for fewer than two."""
    if len(samples) < 2:
        return None
    slopes = sorted([(b - a) / (t - s) for (s, a), (t, b) in combinations(samples, 2)])
    slope, at_ms = _middle(slopes), samples[-1][0]
    agreeing = 0
    if slope < 0.0:
        agreeing = bisect_right(slopes, slope / _AGREEING) - bisect_left(slopes, slope * _AGREEING)
    levels = sorted([free + slope * (at_ms - ms) for ms, free in samples])
    level = _middle(levels)
    spread = _middle(sorted([abs(each - level) for each in levels]))
    return TrendLine(slope, at_ms, level, spread, agreeing / len(slopes))


def _middle(ordered: list[float]) -> float:
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


def _along_the_line(trend: Trend, at_ms: int) -> tuple[float, int, float]:
    """(bytes a millisecond, milliseconds it was seen for, agreement)."""
    if trend.line is None or len(trend.samples) < _LEAST_SAMPLES:
        return 0.0, 0, 0.0
    return -trend.line.slope, at_ms - trend.samples[0][0], trend.line.agreement


def _between_peaks(trend: Trend, at_ms: int, usable_bytes: int) -> tuple[float, int, float] | None:
    """What the peaks lose, likewise; None when rises do not recur, or one is overdue: less is free than ever then."""
    rises = _recent(trend.rises, at_ms)
    if len(rises) < 2:
        return None
    first, last = rises[0], rises[-1]
    if usable_bytes < min(rise.trough for rise in rises) - (last.peak - last.trough) / 2:
        return None
    if len(rises) < _RISES_KEPT or first.at_ms == last.at_ms:
        return 0.0, 0, 0.0
    return (first.peak - last.peak) / (last.at_ms - first.at_ms), at_ms - first.at_ms, 1.0
