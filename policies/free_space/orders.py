"""A decided factor as an actuator carries it out, and the factor that applies now. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from policies.actuator_events import ReportResult
from policies.closed_enum import ClosedEnum
from policies.decisions import Decision, Mode
from policies.free_space.settings import FreeSpaceSettings

ReasonT = TypeVar("ReasonT", bound=ClosedEnum)
"""The reasons of one actuator. All have `decided`, `stale`, `shadow` and `released`."""


class LimitVerdict(ClosedEnum):
    """The operation on a limit of writers."""

    SET = "set", "A rate is set, because writers are to be slowed down."
    RESTORE = "restore", "The limit from before Headgate is put back: a rate, or none."
    KEEP = "keep", "It is as it should be, or (`shadow`, `tighter`) not to be touched."
    REFUSE = "refuse", "Nothing is done, for the reason given."

    @property
    def acts(self) -> bool:
        """Whether it is a change."""
        return self in (LimitVerdict.SET, LimitVerdict.RESTORE)

    @property
    def result(self) -> ReportResult:
        """The result of the operation, if it succeeds."""
        if self.acts:
            return ReportResult.APPLIED
        return ReportResult.UNCHANGED if self is LimitVerdict.KEEP else ReportResult.REFUSED


@dataclass(frozen=True)
class WantedFactor(Generic[ReasonT]):
    """The factor that should be in force now."""

    factor: float
    reason: ReasonT

    @property
    def applies(self) -> bool:
        """Whether it may slow producers down; otherwise the original limits are put back."""
        return self.reason.value not in ("shadow", "released")

    @property
    def slows(self) -> bool:
        """Whether it slows producers down."""
        return self.applies and self.factor < 1.0


@dataclass(frozen=True, slots=True)
class FactorOrder:
    """A decision, as far as an actuator is concerned."""

    cluster: str
    subject: str
    decision_id: str
    sequence: int
    factor: float
    mode: Mode
    decided_at: datetime
    expires_at: datetime | None
    """None: the last decision about its subject."""
    frozen_until: datetime | None = None
    """The end of a pause that keeps the limits as they are set; None: it is not paused, or only watches anyway."""
    cluster_id: str | None = None
    """The system's own id of the cluster that was decided on; None if it has none, or it is not known."""

    @classmethod
    def build(cls, decision: Decision, factor: float, expires_at: datetime | None) -> "FactorOrder":
        """Turn a decision into an order."""
        about = (decision.cluster, decision.subject, decision.decision_id, decision.sequence)
        return cls(*about, factor, decision.mode, decision.decided_at, expires_at, decision.frozen_until)

    def is_stale(self, now: datetime) -> bool:
        """Return whether it should have had a successor by now."""
        return self.expires_at is not None and now >= self.expires_at

    def is_frozen(self, now: datetime) -> bool:
        """Return whether everything stays as it is set: during a pause, and after it until a decision comes."""
        return self.frozen_until is not None and (now < self.frozen_until or not self.is_stale(now))

    def choose_factor(
        self, now: datetime, settings: FreeSpaceSettings, reasons: type[ReasonT]
    ) -> WantedFactor[ReasonT]:
        """Return the factor to apply. In shadow mode nothing is applied, whether or not the decision has expired.

        The decisions of a pause that keeps all limits are in shadow mode, too. If the loop dies during the pause, no
        decision follows them: after the pause they have expired like any other, and do not open the gate.
        """
        if self.mode is Mode.SHADOW and self.frozen_until is None:
            return WantedFactor(self.factor, reasons("shadow"))
        if self.is_stale(now):
            return WantedFactor(settings.choose_expired(self.factor), reasons("stale"))
        return WantedFactor(self.factor, reasons("decided"))
