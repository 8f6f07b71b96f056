"""Decisions of policies: the vocabulary of the decided topics.

A decision explains itself: the same frozen object gives the topic record, the log line, the metric labels and the
sentence a person reads.
"""

import uuid
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from operator import is_
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SkipValidation

from policies.observations import LONGEST_DETAIL, LONGEST_NAME, LONGEST_SUBJECT, ReportedEffect
from policies.units import ClosedEnum, Instant, millis_of, printable_line

EVIDENCE_LIMIT = 10
"""The most observations that a decision names."""

Sentence = Annotated[str, AfterValidator(printable_line)]
"""Text for people, safe on any terminal: control characters in names from elsewhere are escaped."""

_IS_NONE = partial(is_, None)
_NAMESPACE = uuid.UUID("5d0f3a52-8c9e-5b53-9a50-6b1f6e9a7a11")


def unique_ids(*ids: str) -> tuple[str, ...]:
    """The ids of observations without empty and repeated ones, as evidence."""
    return tuple(dict.fromkeys(id_ for id_ in ids if id_))


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

        `about` identifies the kind of decision and its subject; default: the subject alone. `marks` distinguishes
        records of one sequence, such as notes for the audit.
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
        exclude_if=_IS_NONE,
        description="While the policy is paused: until then actuators leave everything as it is set. Absent otherwise.",
    )
    evidence: tuple[str, ...] = Field(
        default=(), max_length=EVIDENCE_LIMIT, description="Ids of the observations that decided."
    )
    numbers: Annotated[Mapping[str, Any], SkipValidation] = Field(
        default_factory=dict, exclude=True, repr=False, description="The numbers behind it; in the audit topic only."
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

    def runbook_values(self) -> Mapping[str, str]:
        """Return values for the commands of an alert's runbook, for alerts that have no other value of these names."""
        return {}

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
    ONLY_WATCHED = ("only-watched", "The policy is paused: it decides, no actuator acts on it, and alerts wait.")


class Standing(Decision):
    """Each minute a policy confirms that it watches a cluster. When this expires, its decisions are not current."""

    event_type: ClassVar[str] = "headgate.standing.v1"
    topic: ClassVar[str] = "decided.standing"

    verdict: StandingVerdict
    reason: StandingReason
    valid_until: Instant = Field(description="If no newer one comes by then, the policy no longer watches.")
    quiet_until: Instant | None = Field(
        default=None, description="With `only-watched`: when the pause ends by itself; otherwise null."
    )
    paused_by: str | None = Field(
        default=None, max_length=LONGEST_NAME, exclude_if=_IS_NONE, description="The person who paused the policy."
    )
    pause_reason: str | None = Field(
        default=None, max_length=LONGEST_DETAIL, exclude_if=_IS_NONE, description="Why, in that person's words."
    )
    pause_keeps: bool | None = Field(
        default=None,
        exclude_if=_IS_NONE,
        description="Whether actuators leave what they have set; otherwise they take it back.",
    )


# Fencing of decisions, for every consumer: whether a decision supersedes the one in force.
#
# A decision is in force until one with a higher sequence arrives for its subject, or one that was made after it was
# appended. Sequences order the records of one author. They are no fence against another: a forged record, a second
# loop, or a loop that lost its checkpoint is superseded by the next decision, whatever their sequences.
#
# A subject's first sequence is the time of its batch in milliseconds; each later one is one more (where several
# subjects share a counter, at least one more). So sequences keep growing across a lost checkpoint without reading
# anything back, and a decision id, which is built from them, never returns with other content.
#
# Invariants: repeated and late records have no effect, because they were made before the one in force was appended.
# Of two decisions that are repeated in turn, each is in force from its repeat to the other's. A decision that ends
# further ahead of its append time than `FARTHEST_AHEAD` never passes, so whatever is in force without a successor
# ends.

LONGEST_VALIDITY = timedelta(days=1)
"""No decision holds longer without a successor."""
CLOCKS_APART = timedelta(minutes=5)
"""The clocks of two machines may differ by this much; a greater difference proves that a clock jumped."""
FARTHEST_AHEAD = LONGEST_VALIDITY + CLOCKS_APART
"""How far a decision's end may lie ahead of when its record was appended."""


class Passed(NamedTuple):
    """The fields of a decision in force that the next one is compared with; there may be 100,000 of them."""

    sequence: int
    decided_at: datetime
    appended_at: datetime


def succeeds(new: Decision, in_force: Passed | None, appended_at: datetime) -> bool:
    """Whether a decision whose record was appended at `appended_at` takes the place of the one in force, if any."""
    if new.expires_at is not None and new.expires_at > appended_at + FARTHEST_AHEAD:
        return False
    if in_force is None or new.sequence > in_force.sequence:
        return True
    # The records are read in the order in which they were appended. So a record in force that is dated after this one
    # was dated by a clock that has been set back since, and its time proves nothing.
    is_made_after = in_force.appended_at < new.decided_at or in_force.appended_at > appended_at + CLOCKS_APART
    return is_made_after and new.decided_at != in_force.decided_at


Key = TypeVar("Key", bound=Hashable)


class Fence(Generic[Key]):
    """The last decision that passed for each key. Not thread-safe."""

    def __init__(self) -> None:
        self._passed: dict[Key, Passed] = {}

    def passes(self, key: Key, decision: Decision, appended_at: datetime) -> bool:
        """Return whether a decision is in force from now on; call it in the order of the records."""
        if not succeeds(decision, self._passed.get(key), appended_at):
            return False
        self._passed[key] = Passed(decision.sequence, decision.decided_at, appended_at)
        return True

    def drop(self, key: Key) -> None:
        """Forget the decision of a key, after its tombstone."""
        self._passed.pop(key, None)


def has_expired(decision: Decision, now: datetime) -> bool:
    """Whether it has expired without a successor."""
    return decision.expires_at is not None and decision.expires_at <= now


def ends_at(decided_at: datetime, validity: timedelta) -> datetime:
    """The end of a decision with this validity, within the limit that consumers accept."""
    return decided_at + min(validity, LONGEST_VALIDITY)


def next_sequence(last: int, now_ms: int, *, is_first: bool) -> int:
    """The number after `last` in a counter (0: none was given), which one subject has for itself or several share.

    `is_first`: it is its subject's first number.
    """
    return max(last + 1, now_ms) if is_first else last + 1


@dataclass(frozen=True)
class RepeatSchedule:
    """When a decision that does not change is repeated, and how long it is valid, in intervals.

    All repeats but one within the validity may be late. The interval is shortened if the validity would exceed a day.
    """

    interval: timedelta
    valid_for: int

    @cached_property
    def _interval_ms(self) -> int:
        return max(1, millis_of(min(self.interval, LONGEST_VALIDITY / self.valid_for)))

    def due_ms(self, published_ms: int, repeat_at_ms: int | None = None) -> int:
        """Return when a decision is due to be repeated; later settings never postpone a time that was stored."""
        due_ms = published_ms + self._interval_ms
        return due_ms if repeat_at_ms is None else min(due_ms, repeat_at_ms)

    def ends_at(self, now: datetime) -> datetime:
        """Return until when a decision that is published now is valid."""
        return ends_at(now, self.valid_for * self.interval)


@dataclass(slots=True)
class Publication:
    """Numbers the decisions that one step publishes about a cluster, from the last number of the counter on."""

    now_ms: int
    sequence: int

    def next(self, *, is_first: bool) -> int:
        """Return the next number; `is_first` if its subject has had none."""
        self.sequence = next_sequence(self.sequence, self.now_ms, is_first=is_first)
        return self.sequence
