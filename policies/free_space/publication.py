"""When a factor is published, and what an actuator makes of the published factor. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from policies.book import Wanted
from policies.decisions import Decision, Mode, RepeatSchedule
from policies.free_space.gate import GateMove
from policies.free_space.limits import FreeSpaceSettings
from policies.observations import ReportResult
from policies.units import ClosedEnum, millis_of

# Whether a verdict on a factor is published: if it is new, if its time to full is misleading, or as a repeat.

_MISLEADING = 2
"""A published time to full that is wrong by more than this factor is replaced."""
_INSTANT_MS = 5000
"""A shorter time makes no difference."""


def repeat_schedule(settings: FreeSpaceSettings) -> RepeatSchedule:
    """Return when a decision is repeated: two heartbeats may be late before it expires."""
    return RepeatSchedule(settings.heartbeat, valid_for=3)


def is_misleading(published_ms: int | None, full_ms: int | None, now_ms: int, settings: FreeSpaceSettings) -> bool:
    """Return whether the published time to full is wrong by now.

    Sentence, metric and alert state one number, so a new one for the alert needs a new decision.
    """
    published, left = (None if ms is None else max(ms - now_ms, 0) for ms in (published_ms, full_ms))
    soon = millis_of(settings.time_to_full_alert)
    was_soon, is_soon = published is not None and published < soon, left is not None and left < soon
    if published is None or left is None or not (was_soon and is_soon):
        return was_soon != is_soon
    return max(published, left) > _MISLEADING * min(published, left) + _INSTANT_MS


def want_factor(
    move: GateMove[Any],
    reason: str,
    limiting: object,
    seconds_to_full: float | None,
    now_ms: int,
    settings: FreeSpaceSettings,
    make: Callable[[Mapping[str, Any]], Decision],
    *,
    is_asked_for: bool = False,
) -> Wanted:
    """Want the factor in force: published if it, its reason or the limiting volume changed, or its time to full."""
    full_ms = None if seconds_to_full is None else now_ms + round(1000 * seconds_to_full)
    return Wanted(
        content=f"{move.gate.factor}|{reason}|{limiting}",
        schedule=repeat_schedule(settings),
        make=make,
        note=move.verdict.value,
        told_ms=full_ms,
        is_misleading=lambda told_ms: is_misleading(told_ms, full_ms, now_ms, settings),
        is_asked_for=is_asked_for,
    )


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
    def build(cls, decision: Any) -> "FactorOrder":
        """Turn a decision on a factor into an order."""
        about = (decision.cluster, decision.subject, decision.decision_id, decision.sequence, decision.factor)
        times = (decision.mode, decision.decided_at, decision.valid_until, decision.frozen_until)
        return cls(*about, *times, getattr(decision, "cluster_id", None))

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
