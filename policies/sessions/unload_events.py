"""Events that the unload actuator publishes to the audit topic: the outcome of each decision about a bundle."""

from typing import ClassVar

from pydantic import Field

from policies.actuator_events import ActuatorEvent, ReportedEffect, ReportResult
from policies.closed_enum import ClosedEnum
from policies.units import Instant


class UnloadOutcome(ClosedEnum):
    """The outcome of a decision about a bundle."""

    DONE = "done", "The brokers did as asked."
    ALREADY_MOVED = "already_moved", "For an unload: the member does not serve it any more, or never did."
    ALREADY_OWNED = "already_owned", "For a re-own: some broker serves it already."
    CONTESTED = (
        "contested",
        "The member serves it, but another member claims it, too. ZooKeeper does not show the owner, or the member has "
        "no session, so an unload could hit the rightful owner.",
    )
    NO_TOPICS = "no_topics", "For a re-own: it has no topic to look up, so no client needs it."
    SUPERSEDED = "superseded", "Another decision is in force: this one came late."
    EXPIRED = "expired", "The decision is past its `valid_until`."
    SHADOW = "shadow", "The decision is in shadow mode: nothing is done."
    FAILED = "failed", "It failed, see `detail`; the actuator retries until the decision expires."


class BundleReport(ActuatorEvent):
    """The outcome of one decision about one bundle, published when it changes."""

    source: ClassVar[str] = "headgate/actuator/unload"
    done: ClassVar[str]
    """The effect in words."""

    member: str = Field(description="The broker in the decision, as `host:port`.")
    bundle: str = Field(description="`tenant/namespace/range`.")
    decision_id: str = Field(description="The decision it carries out.")
    sequence: int = Field(description="The sequence of that decision.")
    outcome: UnloadOutcome
    served_by: tuple[str, ...] = Field(
        default=(),
        description="The brokers that answered at the last check that they serve it; empty if none, or not checked.",
    )
    attempt: int = Field(ge=1, description="The number of this attempt; the actuator retries after a missing answer.")
    done_at: Instant | None = Field(
        default=None, description="When it was done, by the actuator's clock; null unless done."
    )
    detail: str | None = Field(default=None, description="The cause of a failure in a few words; never a secret.")

    def subject(self) -> str:
        """``<cluster>/<member>/<bundle>``."""
        return f"{self.cluster}/{self.member}/{self.bundle}"

    def effect(self) -> ReportedEffect | None:
        """Return that the bundle was moved, or why it was not."""
        if self.outcome in (UnloadOutcome.SUPERSEDED, UnloadOutcome.EXPIRED):
            return None
        results = {
            UnloadOutcome.DONE: ReportResult.APPLIED,
            UnloadOutcome.ALREADY_MOVED: ReportResult.UNCHANGED,
            UnloadOutcome.ALREADY_OWNED: ReportResult.UNCHANGED,
            UnloadOutcome.FAILED: ReportResult.FAILED,
        }
        result = results.get(self.outcome, ReportResult.REFUSED)
        return ReportedEffect(
            target=f"bundle {self.bundle}",
            by="the unload actuator",
            result=result,
            value=self.done,
            is_held=False,
            detail=self.detail or (self.outcome.meaning.rstrip(".") if result is ReportResult.REFUSED else None),
        )


class BundleUnloaded(BundleReport):
    """The outcome of a decision to unload a bundle."""

    event_type: ClassVar[str] = "headgate.bundle-unloaded.v1"
    done: ClassVar[str] = "unloaded"


class BundleReOwned(BundleReport):
    """The outcome of a decision to own a bundle again."""

    event_type: ClassVar[str] = "headgate.bundle-re-owned.v1"
    done: ClassVar[str] = "owned again"
