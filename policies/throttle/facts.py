"""The facts of one broker at one moment: how fresh the last reading of it and of its volumes is.

This is the only place where readings of log dirs and of the membership meet. No limit is applied here.
"""

from msgspec import Struct
from msgspec.structs import replace

from policies.free_space.verdicts import VolumeFacts, find_facts
from policies.free_space.volumes import NEVER, Freshness, VolumeState, judge_freshness
from policies.throttle.state import BrokerState, VolumeKey


class BrokerFacts(Struct, frozen=True, gc=False):
    """One broker and its volumes at one moment."""

    state: BrokerState
    freshness: Freshness
    is_unread: bool
    """Whether it has been a member for `validity` without a good reading."""
    volumes: tuple[VolumeFacts[VolumeKey], ...]
    """Sorted by log dir."""


def facts(broker: BrokerState, now_ms: int, validity_ms: int) -> BrokerFacts:
    """Return the facts of one broker.

    Args:
        now_ms: the time of this step, in milliseconds since the epoch.
    """
    freshness = judge_freshness(broker.read_ms, broker.left_ms, now_ms, validity_ms)
    is_overdue = max(broker.read_ms, broker.seen_ms) + validity_ms <= now_ms
    volumes = [_find_volume_facts(broker, volume, now_ms, validity_ms) for volume in broker.volumes]
    return BrokerFacts(broker, freshness, freshness is Freshness.STALE and is_overdue, tuple(volumes))


def stand_in(broker: BrokerState, now_ms: int, validity_ms: int) -> VolumeFacts[VolumeKey] | None:
    """Return a volume without a name for a member that was never read: its log dirs are not known. None for others."""
    if broker.read_ms != NEVER or broker.left_ms is not None:
        return None
    return _find_volume_facts(broker, VolumeState("", -1, -1, NEVER), now_ms, validity_ms)


def _find_volume_facts(
    broker: BrokerState, volume: VolumeState, now_ms: int, validity_ms: int
) -> VolumeFacts[VolumeKey]:
    departed_ms = min((ms for ms in (broker.left_ms, volume.missing_ms) if ms is not None), default=None)
    read_id = broker.read_id if volume.read_ms != NEVER else broker.read_id or broker.tried_id
    key = (broker.broker, volume.log_dir)
    found = find_facts(key, read_id, volume, departed_ms, broker.seen_ms, now_ms, validity_ms)
    # A failed log dir fills no more; its last free space counts until it is old.
    return found if broker.find_error(volume.log_dir) is None else replace(found, full_ms=None)
