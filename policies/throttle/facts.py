"""The facts of one broker at one moment: how fresh the last reading of it and of its volumes is.

This is the only place where readings of log dirs and of the membership meet. No limit is applied here.
"""

from msgspec import Struct

from policies.free_space.volumes import NEVER, Freshness, VolumeState, judge_freshness
from policies.throttle.state import BrokerState, VolumeKey


class VolumeFacts(Struct, frozen=True, gc=False):
    """One volume at one moment. A struct and not a dataclass, because a large cluster has thousands."""

    key: VolumeKey
    read_id: str
    """The id of its broker's last good reading; empty if there is none."""
    state: VolumeState
    freshness: Freshness
    departed_ms: int | None
    """When its broker left or no longer reported it; None while it is there."""
    full_ms: float | None
    """When it is full at its present rate. None if it does not fill, if its trend is not reliable, or if the last
    reading is not fresh."""
    overdue_ms: int | None
    """If it was never read: from when it counts as the fallback, `validity` after it was first reported."""


class BrokerFacts(Struct, frozen=True, gc=False):
    """One broker and its volumes at one moment."""

    state: BrokerState
    freshness: Freshness
    is_unread: bool
    """Whether it has been a member for `validity` without a good reading."""
    volumes: tuple[VolumeFacts, ...]
    """Sorted by log dir."""


def facts(broker: BrokerState, now_ms: int, validity_ms: int) -> BrokerFacts:
    """Return the facts of one broker.

    Args:
        broker: its state after the fold.
        now_ms: the time of this step, in milliseconds since the epoch.
        validity_ms: how long a reading counts.
    """
    freshness = judge_freshness(broker.read_ms, broker.left_ms, now_ms, validity_ms)
    is_overdue = max(broker.read_ms, broker.seen_ms) + validity_ms <= now_ms
    volumes = [_find_volume_facts(broker, volume, now_ms, validity_ms) for volume in broker.volumes]
    return BrokerFacts(broker, freshness, freshness is Freshness.STALE and is_overdue, tuple(volumes))


def stand_in(broker: BrokerState, validity_ms: int) -> VolumeFacts | None:
    """Return a volume without a name for a member that was never read: its log dirs are not known. None for others."""
    if broker.read_ms != NEVER or broker.left_ms is not None:
        return None
    return _make_never_read(broker, VolumeState("", -1, -1, NEVER), None, broker.seen_ms + validity_ms)


def _find_volume_facts(broker: BrokerState, volume: VolumeState, now_ms: int, validity_ms: int) -> VolumeFacts:
    departed_ms = volume.missing_ms if broker.left_ms is None else broker.left_ms
    if broker.left_ms is not None and volume.missing_ms is not None:
        departed_ms = min(broker.left_ms, volume.missing_ms)
    if volume.read_ms == NEVER:
        overdue_ms = max(volume.seen_ms, broker.seen_ms) + validity_ms
        return _make_never_read(broker, volume, departed_ms, overdue_ms)
    freshness = judge_freshness(volume.read_ms, departed_ms, now_ms, validity_ms)
    rate, full_ms = volume.fill_bytes_per_second, None
    if freshness is Freshness.FRESH and rate is not None and volume.fill_confidence is not None:
        full_ms = volume.read_ms + 1000 * volume.usable_bytes / rate
    return VolumeFacts((broker.broker, volume.log_dir), broker.read_id, volume, freshness, departed_ms, full_ms, None)


def _make_never_read(broker: BrokerState, volume: VolumeState, departed_ms: int | None, overdue_ms: int) -> VolumeFacts:
    key, read_id = (broker.broker, volume.log_dir), broker.read_id or broker.tried_id
    return VolumeFacts(key, read_id, volume, Freshness.NEVER_READ, departed_ms, None, overdue_ms)
