"""Decisions of policies: the vocabulary of the decided topics.

A decision explains itself: the same frozen object gives the topic record, the log line, the metric labels and the
sentence a person reads.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SkipValidation

from policies.actuator_events import ReportedEffect
from policies.closed_enum import ClosedEnum
from policies.observations import LONGEST_DETAIL, LONGEST_NAME, LONGEST_SUBJECT
from policies.printable import printable_line
from policies.units import Instant

EVIDENCE_LIMIT = 10
"""The most observations that a decision names."""

Sentence = Annotated[str, AfterValidator(printable_line)]
"""Text for people, safe on any terminal: control characters in names from elsewhere are escaped."""

_NAMESPACE = uuid.UUID("5d0f3a52-8c9e-5b53-9a50-6b1f6e9a7a11")


def _is_none(value: object) -> bool:
    return value is None


def deterministic_id(*parts: object) -> str:
    """Make an id (a UUID) that depends on its parts only, so that a repeated batch gives the same ids."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(map(str, parts))))


class Mode(ClosedEnum):
    """Whether actuators may carry a decision out."""

    ACTIVE = "active", "Actuators may carry it out."
    SHADOW = "shadow", "It is published only."


@dataclass(frozen=True, slots=True)
class Issuer:
    """The issuer of decisions: the fields that all decisions of one policy for one cluster share."""

    policy: str
    cluster: str
    mode: Mode
    settings_hash: str
    frozen_until: datetime | None = None
    """Until when actuators leave everything as it is set, because the policy is paused."""

    @property
    def stance(self) -> str:
        """The mode, or `frozen` during a pause that keeps all values as they are set. A change is published at once."""
        return self.mode.value if self.frozen_until is None else "frozen"

    def header(
        self,
        subject: str,
        sequence: int,
        decided_at: datetime,
        *,
        about: Sequence[object] | None = None,
        marks: Sequence[object] = (),
    ) -> dict[str, Any]:
        """Make the common fields of a decision, except verdict, reason and explanation.

        Args:
            sequence: the decision's number; with `about` and `marks` it makes the deterministic id.
            about: identifies the kind of decision and its subject; default: the subject alone.
            marks: distinguishes records of one sequence, such as notes for the audit.
        """
        parts = (self.policy, self.cluster, *((subject,) if about is None else about), sequence, *marks)
        return {
            "decision_id": deterministic_id(*parts),
            "policy": self.policy,
            "cluster": self.cluster,
            "subject": subject,
            "sequence": sequence,
            "decided_at": decided_at,
            "mode": self.mode,
            "settings_hash": self.settings_hash,
            "frozen_until": self.frozen_until,
        }


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A change that would lead to another verdict, by the policy's knowledge when it decided."""

    verdict: str
    """The verdict after that change."""
    when: str
    """The condition in plain words with its numbers, worded to follow "once"."""


class Decision(BaseModel):
    """The fields of every decision; each kind of decision is a subclass with further fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    event_type: ClassVar[str]
    """The CloudEvents ``type``, such as ``headgate.throttle-factor.v1``."""
    topic: ClassVar[str]
    """The decided topic, without its prefix, such as ``decided.throttle``."""
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason")
    """Names of the fields with the decision's content; decisions that agree in them are repetitions."""
    is_kept_up: ClassVar[bool] = True
    """Whether it is repeated before it expires, as long as the loop runs. An order is published once: after it expires
    no actuator begins to carry it out, and its age proves nothing about the loop."""
    is_step: ClassVar[bool] = False
    """Whether it is one step of a process that another kind of decision of its policy sums up."""

    decision_id: str = Field(description="Deterministic: the same input gives the same id; consumers drop repeats.")
    policy: str = Field(max_length=LONGEST_NAME, description="The policy that decided.")
    cluster: str = Field(max_length=LONGEST_NAME, description="The watched cluster.")
    subject: str = Field(max_length=LONGEST_SUBJECT, description="The subject of the decision.")
    sequence: int = Field(
        ge=1, description="Only grows for a subject; its first is the time of its batch in milliseconds."
    )
    verdict: str = Field(description="What is decided, from a closed set.")
    reason: str = Field(description="Why, from a closed set.")
    explanation: Sentence = Field(description="One plain sentence with the numbers that decided.")
    decided_at: Instant = Field(description="The time of the batch that decided; stable when a batch is repeated.")
    mode: Mode = Field(description="`active`, or `shadow`: published, never carried out.")
    settings_hash: str = Field(description="Identifies the settings in force for this cluster.")
    frozen_until: Instant | None = Field(
        default=None,
        exclude_if=_is_none,
        description="While the policy is paused: until then actuators leave everything as it is set. Absent otherwise.",
    )
    evidence: tuple[str, ...] = Field(
        default=(), max_length=EVIDENCE_LIMIT, description="Ids of the observations that decided."
    )
    numbers: Annotated[Mapping[str, Any], SkipValidation] = Field(
        default_factory=dict, exclude=True, repr=False, description="The numbers behind it; in the audit topic only."
    )

    otherwise: Annotated[tuple[Otherwise, ...], SkipValidation] = Field(
        default=(),
        exclude=True,
        repr=False,
        description="Changes that would lead to another verdict; in the audit topic only.",
    )

    @property
    def expires_at(self) -> datetime | None:
        """When it expires without a successor; None: it holds until one comes."""
        return getattr(self, "valid_until", None)

    def says(self) -> tuple[Any, ...]:
        """The decision's content, as the values of `in_force`; a decision with equal content is a repetition."""
        return tuple(getattr(self, name) for name in self.in_force)

    def wanted(self) -> str | None:
        """Return the value that an actuator should set, in a few words; None if the decision asks for no value."""
        return None

    def carried_out(self) -> ReportedEffect | None:
        """Return the value that is set, if the decision itself records it; None if the actuators' reports do."""
        return None

    def record_key(self) -> str:
        """The Kafka record's key; the compacted topic keeps the latest decision per key."""
        return self.subject


class Severity(ClosedEnum):
    """How urgent an alert is."""

    INFO = "info", "Good to know."
    WARNING = "warning", "To be looked at within the day."
    CRITICAL = "critical", "To be looked at now."


class AlertStatus(ClosedEnum):
    """Whether an alert's condition holds."""

    FIRING = "firing", "The condition holds."
    RESOLVED = "resolved", "The condition has ceased; published exactly once."


class Alert(Decision):
    """An alert's present state; the same alert keeps `alert_id` from its first firing to its one resolution.

    The verdict of an alert is its status, the explanation its summary.
    """

    event_type: ClassVar[str] = "headgate.alert.v1"
    topic: ClassVar[str] = "decided.alerts"
    in_force: ClassVar[tuple[str, ...]] = ("status", "severity")

    valid_until: Instant | None = Field(
        default=None,
        description="If it is not repeated by then, it is unknown whether it still fires; null for a resolved one.",
    )
    alert_id: str = Field(description="Stays the same while the alert fires, repeats and resolves.")
    alert: str = Field(description="The alert's name, such as `volume-below-hard-limit`.")
    severity: Severity
    status: AlertStatus
    started_at: Instant = Field(description="When its condition began to hold.")
    ended_at: Instant | None = Field(default=None, description="When it ceased; null while it fires.")
    summary: Sentence = Field(description="One plain sentence.")
    labels: Mapping[str, str] = Field(default_factory=dict, description="Its subject as labels, for routing.")

    def record_key(self) -> str:
        """The Kafka record's key, with policy and alert: one subject may have several alerts."""
        return f"{self.policy}/{self.alert}/{self.subject}"


class StandingVerdict(ClosedEnum):
    """The heartbeat's verdict on all decisions of a policy about a cluster."""

    STANDS = "stands", "They hold until they are replaced."


class StandingReason(ClosedEnum):
    """The heartbeat's reason."""

    WATCHED = "watched", "The policy watches the cluster, and would replace them."
    ONLY_WATCHED = (
        "only-watched",
        "The policy is paused: it decides, no actuator acts on it, and alerts wait.",
    )


class Standing(Decision):
    """Each minute a policy confirms that it watches a cluster. When this expires, its decisions are not current."""

    event_type: ClassVar[str] = "headgate.standing.v1"
    topic: ClassVar[str] = "decided.standing"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason")

    verdict: StandingVerdict
    reason: StandingReason
    valid_until: Instant = Field(description="If no newer one comes by then, the policy no longer watches.")
    quiet_until: Instant | None = Field(
        default=None, description="With `only-watched`: when the pause ends by itself; otherwise null."
    )
    paused_by: str | None = Field(
        default=None,
        max_length=LONGEST_NAME,
        exclude_if=_is_none,
        description="The person who paused the policy.",
    )
    pause_reason: str | None = Field(
        default=None,
        max_length=LONGEST_DETAIL,
        exclude_if=_is_none,
        description="Why, in that person's words.",
    )
    pause_keeps: bool | None = Field(
        default=None,
        exclude_if=_is_none,
        description="Whether actuators leave what they have set; otherwise they take it back.",
    )
