"""Folds log dirs: the last good reading of each of a broker's volumes, and the samples of its trend."""

from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.throttle.readings import LogDirs, VolumeReading
from policies.throttle.state import NEVER, BrokerState, VolumeState
from policies.throttle.trend import estimate_filling, follow_reading


def fold_log_dirs(known: BrokerState, seen: Observation, reading: LogDirs) -> BrokerState:
    """Return the broker after a reading of its log dirs."""
    at_ms, outcome = seen.at_ms, reading.outcome
    if seen.id in (known.read_id, known.tried_id) or (at_ms, seen.id) <= (known.tried_ms, known.tried_id):
        return known
    if outcome is not Outcome.OK:
        return replace(known, tried_ms=at_ms, tried_id=seen.id, outcome=outcome.value)
    volumes = _merge(known.volumes, reading.volumes, at_ms)
    return BrokerState(
        known.broker, known.seen_ms, at_ms, seen.id, at_ms, seen.id, outcome.value, known.left_ms, volumes
    )


def _merge(known: tuple[VolumeState, ...], readings: tuple[VolumeReading, ...], at_ms: int) -> tuple[VolumeState, ...]:
    before = {v.log_dir: v for v in known}
    # If a dir is named twice, the fuller one counts.
    now = {r.log_dir: r for r in sorted(readings, key=lambda r: (r.readable, -r.usable_bytes))}
    merged = [_fold_volume(before.get(log_dir), now[log_dir], at_ms) for log_dir in now]
    merged += [
        v if v.missing_ms is not None else replace(v, missing_ms=at_ms) for d, v in before.items() if d not in now
    ]
    return tuple(sorted(merged, key=lambda v: v.log_dir))


def _fold_volume(before: VolumeState | None, reading: VolumeReading, at_ms: int) -> VolumeState:
    if not reading.readable:
        # An unreadable volume is neither full nor empty: its last reading ages.
        return replace(before, missing_ms=None) if before else VolumeState(reading.log_dir, -1, -1, NEVER)
    free = reading.usable_bytes
    if before is None or before.read_ms == NEVER:
        return VolumeState(reading.log_dir, reading.total_bytes, free, at_ms, None, ((at_ms, free),))
    after = follow_reading(before.trend, at_ms, free, before.read_ms, before.usable_bytes)
    filling = estimate_filling(after, at_ms, free, believed=before.fill_confidence is not None)
    rate, confidence = (filling.bytes_per_second, filling.confidence) if filling else (None, None)
    known = (reading.log_dir, reading.total_bytes, free, at_ms)
    return VolumeState(*known, None, after.samples, rate, after.line, after.rises, confidence)
