"""Events of the publish actuator: its operations and refusals, in the audit topic."""

from datetime import datetime
from typing import ClassVar, Self

from pydantic import Field

from policies.actuator_events import ActuatorEvent, ReportedEffect, ReportResult
from policies.bookie_disks.publish_plan import PublishReason, PublishVerdict
from policies.closed_enum import ClosedEnum
from policies.units import format_instant, human_bytes


class PublishOutcome(ClosedEnum):
    """The result of an operation."""

    APPLIED = "applied", "Pulsar has accepted it."
    UNCHANGED = "unchanged", "Nothing had to be done; published when it is new."
    REFUSED = "refused", "Nothing was done, on purpose; published when it is new."
    FAILED = "failed", "Pulsar did not accept it; `detail` says why, and it is retried."


_RESULTS = {
    PublishOutcome.APPLIED: ReportResult.SET,
    PublishOutcome.UNCHANGED: ReportResult.KEPT,
    PublishOutcome.REFUSED: ReportResult.REFUSED,
    PublishOutcome.FAILED: ReportResult.FAILED,
}


def _render(bytes_per_second: int | None) -> str:
    return "no limit" if bytes_per_second is None else f"{human_bytes(bytes_per_second)}/s"


class PublishApplication(ActuatorEvent):
    """A publish limit that was set, put back, refused or failed; or one that needs no change, when that is new."""

    event_type: ClassVar[str] = "headgate.publish-application.v1"
    source: ClassVar[str] = "headgate/actuator/publishing"

    target: str = Field(description="`brokers`, or the namespace; empty: all of the cluster.")
    by: str = Field(description="`broker`, `namespace` or `resource_group`.")
    factor: float | None = Field(description="The factor carried out; null without one.")
    verdict: PublishVerdict
    reason: PublishReason
    rate_bytes_per_second: int | None = Field(description="The limit that it should have; null: none.")
    previous_bytes_per_second: int | None = Field(description="The limit that was found; null: none.")
    outcome: PublishOutcome
    detail: str | None = Field(default=None, description="The error in a few words; never a secret.")
    explanation: str | None = Field(default=None, description="One plain sentence.")

    def subject(self) -> str:
        """The limit's target."""
        return f"{self.cluster}/{self.target}" if self.target else self.cluster

    def effect(self) -> ReportedEffect:
        """Return the limit that is set, or why it is not."""
        why = self.detail or (self.reason.meaning.rstrip(".") if self.outcome is PublishOutcome.REFUSED else None)
        return ReportedEffect(
            target=self.target,
            by="the publish actuator",
            result=_RESULTS[self.outcome],
            value=_render(self.rate_bytes_per_second) if self.target else None,
            is_held=self.verdict is PublishVerdict.SET and self.outcome is PublishOutcome.APPLIED,
            number=self.rate_bytes_per_second,
            detail=why,
        )

    def explained(self, at: datetime) -> Self:
        """Add the sentence; `at` is the time of the operation."""
        what = f"the publish limit of {self.target or 'every target'} on {self.cluster}"
        why = "" if self.factor is None else f", for factor {self.factor:.2f}"
        sentence = {
            PublishOutcome.APPLIED: f"{what} was set by the publish actuator at {format_instant(at)} to "
            f"{_render(self.rate_bytes_per_second)} (before: {_render(self.previous_bytes_per_second)}){why}",
            PublishOutcome.UNCHANGED: f"{what} is left at {_render(self.previous_bytes_per_second)}{why}",
            PublishOutcome.REFUSED: f"{what} is not set{why}",
            PublishOutcome.FAILED: f"{what} could not be set to {_render(self.rate_bytes_per_second)}{why}",
        }[self.outcome]
        shown = self.outcome is not PublishOutcome.APPLIED or self.reason is not PublishReason.DECIDED
        because = f": {self.reason.meaning.rstrip('.')}" if shown else ""
        text = f"{sentence}{because}."
        return self.model_copy(update={"explanation": text[0].upper() + text[1:]})
