"""What is known of one broker's volumes: the last good reading of each, and the samples of its trend."""

from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.throttle import trend
from policies.throttle.readings import LogDirs, VolumeReading
from policies.throttle.state import NEVER, BrokerState, VolumeState


def fold_log_dirs(known: BrokerState, seen: Observation, reading: LogDirs) -> BrokerState:
    """The broker after a reading of its log dirs."""
    stamp = (seen.at_ms, seen.id)
    if seen.id in (known.read_id, known.tried_id) or stamp <= (known.tried_ms, known.tried_id):
        return known
    tried = replace(known, tried_ms=seen.at_ms, tried_id=seen.id, outcome=reading.outcome.value)
    if reading.outcome is not Outcome.OK:
        return tried
    volumes = _merged(known.volumes, reading.volumes, seen.at_ms)
    return replace(tried, read_ms=seen.at_ms, read_id=seen.id, volumes=volumes)


def _merged(known: tuple[VolumeState, ...], readings: tuple[VolumeReading, ...], at_ms: int) -> tuple[VolumeState, ...]:
    """The volumes after a good reading of their broker."""
    before = {v.log_dir: v for v in known}
    # A dir named twice counts as the fuller of the two.
    now = {r.log_dir: r for r in sorted(readings, key=lambda r: (r.readable, -r.usable_bytes))}
    merged = [_reread(before.get(log_dir), now[log_dir], at_ms) for log_dir in now]
    merged += [
        v if v.missing_ms is not None else replace(v, missing_ms=at_ms) for d, v in before.items() if d not in now
    ]
    return tuple(sorted(merged, key=lambda v: v.log_dir))


def _reread(before: VolumeState | None, reading: VolumeReading, at_ms: int) -> VolumeState:
    if not reading.readable:
        # Unreadable is neither full nor empty: what was known of it ages.
        return replace(before, missing_ms=None) if before else VolumeState(reading.log_dir, -1, -1, NEVER)
    samples = trend.with_sample(before.samples if before else (), at_ms, reading.usable_bytes)
    return VolumeState(
        log_dir=reading.log_dir,
        total_bytes=reading.total_bytes,
        usable_bytes=reading.usable_bytes,
        read_ms=at_ms,
        samples=samples,
        fill_bytes_per_second=trend.fill_bytes_per_second(samples),
    )
