"""The verdict on one volume: whether it counts, and which factor it allows its cluster."""

from collections.abc import Container

from policies.free_space.dead_time import Projection, judge_space
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import Freshness
from policies.throttle.facts import BrokerFacts, VolumeFacts, stand_in
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import VolumeKey
from policies.units import MAX_INT64, millis_of


class VolumeVerdict(VolumeFacts, frozen=True, gc=False):
    """A volume that counts, and the factor it allows its cluster."""

    hit: LimitHit
    factor: float
    """At most the fallback for a stale volume; the fallback for one that was never read."""
    ahead: Projection | None = None
    """The free space by which it was judged, if that is not what it has."""

    @property
    def judged_bytes(self) -> int:
        """The free space by which it was judged."""
        return self.ahead.usable_bytes if self.ahead else self.state.usable_bytes

    @property
    def tightness(self) -> tuple[float, int, VolumeKey]:
        """Sorts volumes: the lowest factor first, then the fewest usable bytes; unknown ones last."""
        usable_bytes = MAX_INT64 if self.freshness is Freshness.NEVER_READ else self.state.usable_bytes
        return (self.factor, usable_bytes, self.key)


def judge_volumes(
    broker: BrokerFacts, now_ms: int, settings: ThrottleSettings, stopped_by: Container[VolumeKey] = ()
) -> tuple[list[VolumeVerdict], list[VolumeKey]]:
    """Return the volumes that count, and the departed volumes whose hold ends now.

    Args:
        broker: the volumes' facts.
        now_ms: the time of this step.
        settings: the cluster's.
        stopped_by: volumes that keep the cluster stopped. They limit it, whatever their own factor is.
    """
    counting: list[VolumeVerdict] = []
    ended: list[VolumeKey] = []
    unknown = stand_in(broker.state, millis_of(settings.validity))
    for volume in (*broker.volumes, unknown) if unknown else broker.volumes:
        verdict = _judge(volume, broker.state.interval_ms, now_ms, settings)
        if verdict is None:
            continue
        if volume.departed_ms is None:
            counting.append(verdict)
        elif verdict.factor < 1.0 or volume.key in stopped_by:
            if now_ms < hold_ends_ms(volume.departed_ms, settings):
                counting.append(verdict)
            else:
                ended.append(volume.key)
    return counting, ended


def hold_ends_ms(departed_ms: int, settings: ThrottleSettings) -> int:
    """Return until when a departed volume counts, if it limited the cluster."""
    return departed_ms + millis_of(settings.departed_hold)


def _judge(
    volume: VolumeFacts, interval_ms: int | None, now_ms: int, settings: ThrottleSettings
) -> VolumeVerdict | None:
    state, freshness = volume.state, volume.freshness
    if settings.forgets_unread and freshness in (Freshness.STALE, Freshness.NEVER_READ):
        return None
    if volume.overdue_ms is not None:
        # Rule 12: never read is not absent. Once it departs, there is nothing to remember of it.
        is_counting = volume.departed_ms is None and now_ms >= volume.overdue_ms
        known = (volume.key, volume.read_id, volume.state, freshness, None, None, volume.overdue_ms)
        return VolumeVerdict(*known, LimitHit.NONE, settings.fallback) if is_counting else None
    key, departed_ms = volume.key, volume.departed_ms
    space = judge_space(state, freshness, departed_ms, volume.full_ms, interval_ms, settings)
    return VolumeVerdict(key, volume.read_id, state, freshness, departed_ms, volume.full_ms, None, *space)
