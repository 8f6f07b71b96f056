"""The facts of one broker at one moment: how fresh the last reading of it and of its volumes is.

This is the only place where readings of log dirs and of the membership meet. No limit is applied here.
"""

from collections.abc import Container

from msgspec import Struct
from msgspec.structs import replace

from policies.free_space.volumes import (
    NEVER,
    Freshness,
    SpaceVerdict,
    VolumeFacts,
    VolumeState,
    find_facts,
    hold_ends_ms,
    judge_freshness,
    judge_volume,
)
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import BrokerState, ForgottenVolume, VolumeKey
from policies.units import MAX_INT64, millis_of


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


# The verdict on one volume: whether it counts, and which factor it allows its cluster.


class VolumeVerdict(SpaceVerdict[VolumeKey], frozen=True, gc=False):
    """A volume that counts, and the factor it allows its cluster."""

    @property
    def tightness(self) -> tuple[float, int, VolumeKey]:
        """Sorts volumes: the lowest factor first, then the fewest usable bytes; unknown ones last."""
        usable_bytes = MAX_INT64 if self.freshness is Freshness.NEVER_READ else self.state.usable_bytes
        return (self.factor, usable_bytes, self.key)


def judge_volumes(
    broker: BrokerFacts, now_ms: int, settings: ThrottleSettings, stopped_by: Container[VolumeKey] = ()
) -> tuple[list[VolumeVerdict], list[ForgottenVolume]]:
    """Return the volumes that count, and the departed volumes whose hold ends now.

    Args:
        stopped_by: volumes that keep the cluster stopped. They limit it, whatever their own factor is.
    """
    counting: list[VolumeVerdict] = []
    ended: list[ForgottenVolume] = []
    unknown = stand_in(broker.state, now_ms, millis_of(settings.validity))
    for volume in (*broker.volumes, unknown) if unknown else broker.volumes:
        if settings.forgets_unread and volume.freshness in (Freshness.STALE, Freshness.NEVER_READ):
            continue
        verdict = judge_volume(VolumeVerdict, volume, now_ms, settings)
        if verdict is None:
            continue
        if volume.departed_ms is None:
            counting.append(verdict)
        elif verdict.factor < 1.0 or volume.key in stopped_by:
            if now_ms < hold_ends_ms(volume.departed_ms, settings):
                counting.append(verdict)
            else:
                ended.append(ForgottenVolume(*volume.key, now_ms, volume.state.missing_ms is not None))
    return counting, ended
