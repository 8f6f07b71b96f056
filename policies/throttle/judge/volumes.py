"""The verdict on one volume: whether it counts, and which factor it allows its cluster."""

from collections.abc import Container

from policies.free_space.verdicts import SpaceVerdict, hold_ends_ms, judge_volume
from policies.free_space.volumes import Freshness
from policies.throttle.facts import BrokerFacts, stand_in
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ForgottenVolume, VolumeKey
from policies.units import MAX_INT64, millis_of


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
