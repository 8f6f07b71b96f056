"""Readings of the isolation policy alone: topic ``observed.bookies``, keyed by cluster."""

from typing import ClassVar

from pydantic import Field

from policies.bookie_readings import NamespaceName
from policies.isolation.settings import RuleSet
from policies.observations import ActuatorEvent, Outcome, Reading, ReportedEffect, ReportResult
from policies.units import ClosedEnum, Instant


class NamespacePromise(Reading):
    """The rules that an operator promises to a namespace. The promise holds until the next one."""

    event_type: ClassVar[str] = "headgate.namespace-promise.v1"

    outcome: Outcome = Field(
        default=Outcome.OK, description="Always `ok`, because a command is not read from a system."
    )
    namespace: NamespaceName = Field(description="`tenant/namespace`.")
    promise: RuleSet | None = Field(description="The promised rules; null: the rules of the settings apply again.")
    actor: str = Field(default="", max_length=249, description="The operator who promises.")
    reason: str = Field(default="", max_length=2000, description="Why, in the actor's words.")

    def subject(self) -> str:
        """``<cluster>/<namespace>``."""
        return f"{self.cluster}/{self.namespace}"


# Events that the quarantine actuator publishes to the audit topic: the outcome of each decision.


class QuarantineOutcome(ClosedEnum):
    """The outcome of a decision to quarantine a bookie."""

    DONE = "done", "It is in the quarantine group now."
    ALREADY_ASSIGNED = "already_assigned", "It is in a group already: nothing was changed."
    NOT_REGISTERED = "not_registered", "It is gone, or has registered again since the decision."
    NO_GROUPS = "no_groups", "The cluster has no groups: a first one would constrain every namespace."
    TOO_MANY = "too_many", "The group holds `max_quarantined` bookies already."
    NEEDED = "needed", "A namespace needs it to reach its ensemble, by what was read just before the write."
    SUPERSEDED = "superseded", "Another decision is in force: this one came late."
    EXPIRED = "expired", "The decision is past its `valid_until`."
    SHADOW = "shadow", "The decision is in shadow mode: nothing is done."
    FAILED = "failed", "It failed, see `detail`; the actuator retries until the decision expires."


class BookieQuarantined(ActuatorEvent):
    """The outcome of one decision about one bookie, published when it changes."""

    event_type: ClassVar[str] = "headgate.bookie-quarantined.v1"
    source: ClassVar[str] = "headgate/actuator/quarantine"

    bookie: str = Field(description="Its id as registered.")
    group: str = Field(description="The group the decision wants it in.")
    found_group: str | None = Field(default=None, description="The group it was found in; null: none, or not checked.")
    decision_id: str = Field(description="The decision it carries out.")
    sequence: int = Field(description="The sequence of that decision.")
    outcome: QuarantineOutcome
    leak_window_seconds: float | None = Field(
        default=None, ge=0, description="From the bookie's registration to its quarantine; null unless done."
    )
    quarantined_at: Instant | None = Field(
        default=None, description="When `/bookies` listed it, by ZooKeeper's clock if known; null unless done."
    )
    attempt: int = Field(
        ge=1,
        description="The number of this attempt; the actuator retries after a conflicting write or a missing answer.",
    )
    detail: str | None = Field(default=None, description="The cause of a failure in a few words; never a secret.")

    def subject(self) -> str:
        """The bookie."""
        return f"{self.cluster}/{self.bookie}"

    def effect(self) -> ReportedEffect | None:
        """Return the group that the bookie is in, or why it is not in the quarantine group."""
        if self.outcome in (QuarantineOutcome.SUPERSEDED, QuarantineOutcome.EXPIRED):
            return None
        results = {
            QuarantineOutcome.DONE: ReportResult.APPLIED,
            QuarantineOutcome.ALREADY_ASSIGNED: ReportResult.UNCHANGED,
            QuarantineOutcome.FAILED: ReportResult.FAILED,
        }
        result = results.get(self.outcome, ReportResult.REFUSED)
        group = self.found_group if self.outcome is QuarantineOutcome.ALREADY_ASSIGNED else self.group
        is_refused = result is ReportResult.REFUSED
        return ReportedEffect(
            target=f"bookie {self.bookie}",
            by="the quarantine actuator",
            result=result,
            value=f"group {group or 'unknown'}",
            is_held=group == self.group,
            detail=self.detail or (self.outcome.meaning.rstrip(".") if is_refused else None),
        )
