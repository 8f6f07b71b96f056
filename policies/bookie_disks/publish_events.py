"""Events of the publish actuator: its operations and refusals, in the audit topic."""

from datetime import datetime
from typing import ClassVar, Self

from pydantic import Field

from policies.actuator_events import ActuatorEvent, ReportedEffect, ReportResult
from policies.bookie_disks.publish_plan import PublishReason
from policies.free_space.orders import LimitVerdict
from policies.free_space.wording import explain_application, render_rate
from policies.units import format_instant

_NOTHING = "no limit"
_HELD = (PublishReason.DECIDED, PublishReason.STALE)
"""Below factor 1.0, the reasons for which a rate of Headgate's is kept."""


class PublishApplication(ActuatorEvent):
    """A publish limit that was set, put back, refused or failed; or one that needs no change, when that is new."""

    event_type: ClassVar[str] = "headgate.publish-application.v1"
    source: ClassVar[str] = "headgate/actuator/publishing"

    target: str = Field(description="`brokers`, or the namespace; empty: all of the cluster.")
    by: str = Field(description="`broker` or `namespace`.")
    factor: float | None = Field(description="The factor carried out; null without one.")
    verdict: LimitVerdict
    reason: PublishReason
    rate_bytes_per_second: int | None = Field(description="The limit that it should have; null: none.")
    previous_bytes_per_second: int | None = Field(description="The limit that was found; null: none.")
    outcome: ReportResult
    detail: str | None = Field(default=None, description="The error in a few words; never a secret.")
    explanation: str | None = Field(default=None, description="One plain sentence.")

    def subject(self) -> str:
        """The limit's target."""
        return f"{self.cluster}/{self.target}" if self.target else self.cluster

    def effect(self) -> ReportedEffect:
        """Return the limit that is set, or why it is not."""
        is_slowed = self.factor is not None and self.factor < 1.0
        is_kept = self.outcome is ReportResult.UNCHANGED and self.reason in _HELD and is_slowed
        is_known = self.target and (self.rate_bytes_per_second is not None or self.outcome is not ReportResult.FAILED)
        why = self.detail or (self.reason.meaning.rstrip(".") if self.outcome is ReportResult.REFUSED else None)
        return ReportedEffect(
            target=self.target,
            by="the publish actuator",
            result=self.outcome,
            value=render_rate(self.rate_bytes_per_second, _NOTHING) if is_known else None,
            is_held=is_kept or (self.outcome is ReportResult.APPLIED and self.verdict is LimitVerdict.SET),
            number=self.rate_bytes_per_second,
            detail=why,
            subject=self.cluster,  # decisions are about groups
        )

    def explained(self, at: datetime) -> Self:
        """Add the sentence; `at` is the time of the operation."""
        text = explain_application(
            f"the publish limit of {self.target or 'every target'} on {self.cluster}",
            self.outcome,
            f"by the publish actuator at {format_instant(at)}",
            rates=(self.rate_bytes_per_second, self.previous_bytes_per_second),
            nothing=_NOTHING,
            factor=self.factor,
            reason=self.reason,
        )
        return self.model_copy(update={"explanation": text[0].upper() + text[1:]})
