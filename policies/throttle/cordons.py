"""Which log dirs to cordon, and which to open again (rule 14): from alerts, records and the brokers' answers. Pure.

A volume is wanted cordoned while its alert fires. Before a cordon is set, a record of it is written to the watched
cluster.
Headgate opens only what its records name, so the cordons of an operator stay.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from policies.actuator_events import ActuatorEvent, ReportedEffect, ReportResult
from policies.closed_enum import ClosedEnum
from policies.throttle.state import VolumeKey, name_volume


class CordonVerdict(ClosedEnum):
    """The operation on a log dir."""

    CORDON = "cordon", "It gets no new partitions, because it is at its limit."
    OPEN = "open", "It gets new partitions again: it has recovered, or the release was asked for."
    FORGET = "forget", "Somebody has opened it by hand: Headgate leaves it open until it has recovered."


class CordonOutcome(ClosedEnum):
    """The result of an operation."""

    APPLIED = "applied", "Kafka has accepted it."
    REFUSED = "refused", "Nothing was done, on purpose; `detail` says why."
    FAILED = "failed", "Kafka did not accept it; `detail` says why, and it is retried."


@dataclass(frozen=True, slots=True)
class CordonStep:
    """One operation."""

    volume: VolumeKey
    verdict: CordonVerdict


def plan_cordons(
    wanted: Mapping[VolumeKey, bool],
    recorded: Set[VolumeKey],
    cordoned: Mapping[VolumeKey, bool],
    confirmed: Set[VolumeKey],
    opened_by_hand: Set[VolumeKey],
) -> Iterable[CordonStep]:
    """Yield the next operations.

    Args:
        wanted: whether a volume's alert fires; volumes without a known alert are left as they are.
        recorded: the volumes that Headgate has cordoned, by the records on the cluster.
        cordoned: whether a volume is cordoned now; volumes that cannot be read are missing.
        confirmed: the recorded volumes that were seen cordoned.
        opened_by_hand: the volumes that somebody else opened while their alert fired.
    """
    for volume in sorted(wanted):
        is_cordoned = cordoned.get(volume)
        if is_cordoned is None:
            continue
        if wanted[volume] and not is_cordoned and volume not in opened_by_hand:
            is_by_hand = volume in recorded and volume in confirmed
            yield CordonStep(volume, CordonVerdict.FORGET if is_by_hand else CordonVerdict.CORDON)
        elif not wanted[volume] and volume in recorded:
            yield CordonStep(volume, CordonVerdict.OPEN)


class CordonApplication(ActuatorEvent):
    """A log dir that was cordoned or opened, or an attempt that was refused or failed."""

    event_type: ClassVar[str] = "headgate.cordon-application.v1"
    source: ClassVar[str] = "headgate/actuator/cordons"

    broker: int = Field(description="The broker's node id.")
    log_dir: str = Field(description="Absolute path on the broker.")
    verdict: CordonVerdict
    outcome: CordonOutcome
    alert_id: str | None = Field(default=None, description="The alert that it follows; null for a release.")
    detail: str | None = Field(default=None, description="Why it was refused or failed, in a few words.")

    def subject(self) -> str:
        """``<cluster>/<broker>/<log dir>``, as of the alert."""
        return f"{self.cluster}/{self.broker}/{self.log_dir.lstrip('/')}"

    def effect(self) -> ReportedEffect | None:
        """Return whether the volume is cordoned."""
        is_cordoned = self.verdict is CordonVerdict.CORDON
        return ReportedEffect(
            target=name_volume((self.broker, self.log_dir)),
            by="the cordon actuator",
            result=ReportResult(self.outcome.value),
            value="cordoned" if is_cordoned else "not cordoned",
            is_held=is_cordoned and self.outcome is CordonOutcome.APPLIED,
            detail=self.detail,
        )
