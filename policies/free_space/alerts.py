"""The alert conditions that all free-space policies have: a volume at a limit, or full soon.

Like the gate, a condition ends by a margin only, so a saw-tooth around a limit is one alert and not one per poll.
Silence does not end it, either: a volume that is no longer read stays below its limit.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from policies.alerts import Condition
from policies.decisions import Severity
from policies.free_space.limits import Limit, LimitHit
from policies.free_space.settings import FreeSpaceSettings
from policies.free_space.verdicts import SpaceVerdict, VolumeFacts
from policies.free_space.volumes import Freshness
from policies.free_space.wording import describe_age
from policies.units import human_bytes, human_seconds

AlertKey = tuple[str, str]
"""(name, subject)"""
AnyVolume: TypeAlias = VolumeFacts[Any]

_STILL_SOON = 1.25
"""The alert of a volume that is full soon ends when it has a quarter more time than the setting."""


class SpaceAlerts(NamedTuple):
    """The names of a policy's alerts, and of the labels of a volume."""

    server_label: str
    """In sentences it stands before the server's name, too."""
    volume_label: str
    below_hard: str
    below_soft: str
    fills_soon: str

    def name_volume(self, key: tuple[Any, str]) -> str:
        """Name a volume in a sentence: ``broker 3 /data/a``; without its path, if that is not known, ``broker 3``."""
        return f"{self.server_label} {key[0]} {key[1]}".rstrip()

    def name_subject(self, cluster: str, key: tuple[Any, str]) -> str:
        """``<cluster>/<server>/<volume>``."""
        return f"{cluster}/{key[0]}/{key[1].lstrip('/')}"

    def make_condition(
        self,
        cluster: str,
        alert: str,
        severity: Severity,
        reason: str,
        key: tuple[Any, str],
        summary: str,
        read_id: str = "",
    ) -> Condition:
        """Make the condition of an alert about a volume."""
        labels = {"cluster": cluster, self.server_label: str(key[0]), self.volume_label: key[1]}
        evidence = (read_id,) if read_id else ()
        return Condition(alert, self.name_subject(cluster, key), severity, reason, summary, labels, evidence)


@dataclass(frozen=True, slots=True)
class SpaceAlertContext:
    """The inputs of all conditions of one step."""

    names: SpaceAlerts
    cluster: str
    now_ms: int
    settings: FreeSpaceSettings
    firing: Container[AlertKey]
    """The alerts whose condition held at the last step. Such a condition ends by a margin only."""

    def is_firing(self, alert: str, volume: AnyVolume) -> bool:
        """Return whether the condition of this alert held at the last step."""
        return bool(self.firing) and (alert, self.names.name_subject(self.cluster, volume.key)) in self.firing

    def describe_free(self, volume: AnyVolume) -> str:
        """Name the volume and its free space."""
        name, free = self.names.name_volume(volume.key), human_bytes(volume.state.usable_bytes)
        return f"{name} of {self.cluster} {'has' if volume.departed_ms is None else 'had'} {free} free"

    def make_condition(self, alert: str, severity: Severity, reason: str, volume: AnyVolume, summary: str) -> Condition:
        """Make the condition of an alert about a volume."""
        return self.names.make_condition(self.cluster, alert, severity, reason, volume.key, summary, volume.read_id)

    def find_conditions(self, volume: SpaceVerdict[Any], growth: str = "") -> Iterator[Condition]:
        """Find the limits that a volume has reached, and whether it is full soon.

        Args:
            volume: a volume that was read.
            growth: the end of the sentences.
        """
        for alert, severity, hit, limit in (
            (self.names.below_hard, Severity.CRITICAL, LimitHit.HARD, self.settings.hard),
            (self.names.below_soft, Severity.WARNING, LimitHit.SOFT, self.settings.soft),
        ):
            if limit and self.is_below(alert, volume, limit):
                level = f"{hit.value} limit {human_bytes(limit.in_bytes(volume.state.total_bytes))}"
                yield self.make_condition(
                    alert, severity, f"{hit.value}_limit", volume, f"{self.describe_free(volume)}, {level}{growth}"
                )
        if (trend := self.describe_trend(volume)) is not None:
            summary = f"{self.describe_free(volume)} and {trend}{growth}"
            yield self.make_condition(self.names.fills_soon, Severity.WARNING, "trend", volume, summary)

    def describe_trend(self, volume: SpaceVerdict[Any]) -> str | None:
        """Return in how long a volume is full; None if that is not soon, or if a silent one did not fill before."""
        is_firing = self.is_firing(self.names.fills_soon, volume)
        if volume.full_ms is None:  # it is silent or has failed, or else it does not fill
            is_unknown = volume.freshness is not Freshness.FRESH or volume.state.fill_rate is not None
            return "was filling when it was last read" if is_firing and is_unknown else None
        seconds = max(0.0, volume.full_ms - self.now_ms) / 1000
        soon = self.settings.time_to_full_alert.total_seconds() * (_STILL_SOON if is_firing else 1.0)
        rate = describe_age(volume.state, self.now_ms) or "present rate"
        return f"is full in {human_seconds(seconds)} at its {rate}" if seconds < soon else None

    def is_below(self, alert: str, volume: SpaceVerdict[Any], limit: Limit) -> bool:
        """Return whether a fresh reading is at the limit, or an alert about it has not ended by the margin."""
        usable, total = volume.state.usable_bytes, volume.state.total_bytes
        if not limit.reached(usable, total, margin=self.settings.recovery_margin):
            return False
        begins = volume.freshness is Freshness.FRESH and limit.reached(usable, total)
        return begins or self.is_firing(alert, volume)
