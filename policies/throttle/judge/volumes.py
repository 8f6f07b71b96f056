"""The verdict on one volume: whether it counts, and which factor it allows its cluster."""

from collections.abc import Container

from policies.free_space.limits import LimitHit, assess
from policies.free_space.volumes import Freshness
from policies.throttle.facts import BrokerFacts, VolumeFacts
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import VolumeKey
from policies.units import millis_of


class VolumeVerdict(VolumeFacts, frozen=True, gc=False):
    """A volume that counts, and the factor it allows its cluster."""

    hit: LimitHit
    factor: float
    """At most the fallback for a stale volume."""

    @property
    def tightness(self) -> tuple[float, int, VolumeKey]:
        """Sorts volumes: the lowest factor first, then the fewest usable bytes."""
        return (self.factor, self.state.usable_bytes, self.key)


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
    for volume in broker.volumes:
        verdict = _judge(volume, settings)
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


def _judge(volume: VolumeFacts, settings: ThrottleSettings) -> VolumeVerdict | None:
    state, freshness = volume.state, volume.freshness
    if freshness is Freshness.NEVER_READ or (freshness is Freshness.STALE and settings.forgets_unread):
        return None
    hit, factor = assess(state.usable_bytes, state.total_bytes, settings.hard, settings.soft)
    if freshness is Freshness.STALE:
        # Silence never opens a gate that a reading closed.
        factor = min(settings.fallback, factor)
    key, departed_ms = volume.key, volume.departed_ms
    return VolumeVerdict(key, volume.read_id, state, freshness, departed_ms, volume.full_ms, hit, factor)
