"""The free space of a volume that fills, after the dead time: when a stop could have its effect at the earliest."""

from typing import NamedTuple

from policies.free_space.settings import FreeSpaceSettings
from policies.free_space.volumes import VolumeState

_BATCH_SECONDS = 1.0
"""From a reading to the limits that it causes."""
_LONGEST_INTERVAL_SECONDS = 60.0
"""A longer time between two readings is an outage of the collector, and not expected to recur."""


class Projection(NamedTuple):
    """The free space of a volume that fills, at the earliest instant at which a stop could have its effect."""

    usable_bytes: int
    seconds: float
    """The dead time until then."""


def project(state: VolumeState, settings: FreeSpaceSettings) -> Projection | None:
    """Project the free space over the dead time (throttle's rule 15); None without a credible trend or a dead time.

    The dead time is that until the next reading, of a batch, and of the steps in which writers are stopped. It depends
    on the volume's last good reading alone. So a verdict holds until the next one, and silence opens no gate.
    """
    if not settings.anticipate or settings.stop_time is None:
        return None
    if (rate := state.fill_rate) is None:
        return None
    interval_seconds = min((state.interval_ms or 0) / 1000, _LONGEST_INTERVAL_SECONDS)
    seconds = interval_seconds + _BATCH_SECONDS + settings.stop_time.total_seconds()
    return Projection(max(0, int(state.usable_bytes - rate * seconds)), seconds)
