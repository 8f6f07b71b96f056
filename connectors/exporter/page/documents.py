"""The response models of the API under `/api/v1`."""

from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny

from connectors.views import MAX_RECENT_DECISIONS, PolicyDetail
from policies.decisions import Mode, Severity
from policies.units import ClosedEnum, Instant

SHOWN_ALERTS = 200
"""Limit of the alerts on the page and in the API."""
LONGEST_SENTENCE = 1000
"""Characters of a sentence or a name, because it may contain text that was read from other systems."""


def _cut(text: object) -> object:
    if not isinstance(text, str):
        return text
    return str(text) if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 1]}…"


Text = Annotated[str, BeforeValidator(_cut)]


class Document(BaseModel):
    """A part of a response."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def copy_from(cls, source: object, **more: object) -> Self:
        """Make the document from the fields of a source that have the same names, and from further ones."""
        same = {name: getattr(source, name, None) for name in cls.model_fields.keys() - more.keys()}
        return cls.model_validate(same | more)


class Concern(ClosedEnum):
    """How urgently an operator should look at a cluster: its alerts, stale decisions and failing actuators count."""

    CRITICAL = "critical", "A critical alert fires: look now."
    STALE = "stale", "A decision has expired without a successor: the loop is dead or far behind."
    WARNING = "warning", "A warning fires, or an actuator fails: look within the day."
    INFO = "info", "An alert of severity info fires."
    CALM = "calm", "No alert fires, no actuator fails, and all decisions are current."


class DecisionLine(Document):
    """A decision or an alert in one line."""

    decision_id: str
    policy: Text
    cluster: str
    subject: Text = Field(description="The decision's subject.")
    verdict: Text
    reason: Text
    sentence: Text = Field(description="The explanation, with the deciding numbers.")
    decided_at: Instant
    mode: Mode
    stale: bool = Field(description="Whether its successor is overdue.")
    alert: Text | None = Field(description="The alert's name; null for a decision.")
    severity: Severity | None = Field(description="The alert's severity; null for a decision.")


class AlertLine(Document):
    """A firing alert."""

    alert: Text
    severity: Severity
    policy: Text
    cluster: str
    subject: Text
    reason: Text
    summary: Text
    started_at: Instant
    stale: bool = Field(description="Whether its repetition is overdue: it may have ended.")
    inhibited_by: str | None = Field(
        description="The alert that explains it, as in the inhibition rules for Alertmanager; null: none does."
    )


class EffectLine(Document):
    """What an actuator has set for one target, or cannot set."""

    target: str = Field(description="A quota's entity, a bookie, a bundle; empty: the whole cluster.")
    by: str = Field(description="The actuator.")
    value: str | None = Field(description="The value that is set, in words; null: no report says so.")
    number: float | None = Field(description="The same as a number: bytes a second and broker for quotas.")
    held: bool = Field(description="Whether Headgate has set the value. It has not, once it put the original back.")
    since: Instant | None = Field(description="When it was set.")
    confirmed_brokers: int | None = Field(description="Number of brokers that showed it; null: not checked one by one.")
    broker_count: int | None
    wanted: str | None = Field(description="The value that fails or is refused; null: nothing else is wanted.")
    failing_since: Instant | None = Field(description="Since when it cannot be set; null: it can.")
    refused_since: Instant | None = Field(description="Since when the actuator refuses to set it; null: it does not.")
    detail: str | None = Field(description="Why it fails or is refused.")


class PauseLine(Document):
    """A pause that is in force."""

    until: Instant
    by: str | None = Field(description="The person.")
    reason: str | None
    keeps: bool = Field(description="Whether actuators leave what they have set; otherwise they take it back.")


class InForceLine(Document):
    """The wanted and the set values, as in `headgate status`."""

    wanted: str | None = Field(description="The wanted values by the decisions in force; null: there are none.")
    effects: tuple[EffectLine, ...] = Field(description="At most 50.")
    paused: PauseLine | None = Field(description="Null: the policy acts.")
    sentence: Text


class PolicyStatus(Document):
    """One policy's state in a cluster. All policies share these fields; `detail` is the policy's own."""

    policy: str
    stale: bool = Field(description="Whether the successor of any of its decisions is overdue.")
    decision_count: int = Field(description="Number of its decisions in force for the cluster.")
    verdicts: dict[str, int] = Field(description="The decisions in force by verdict.")
    latest: DecisionLine | None = Field(
        description="The newest decision in force. A step counts only if there is nothing else. Null: no decision."
    )
    numbers: dict[str, float] = Field(description="The numeric fields of the newest decision, by name.")
    in_force: InForceLine | None = Field(description="Null if no actuator has a part in it.")
    detail: SerializeAsAny[PolicyDetail] | None = Field(description="Its own section; null if it has none, or no data.")


class ClusterStatus(Document):
    """A cluster with its policies."""

    cluster: str
    concern: Concern
    alert_count: int = Field(description="Number of firing alerts about the cluster.")
    policies: tuple[PolicyStatus, ...] = Field(description="The policies with data about the cluster.")


class ClustersDocument(Document):
    """All clusters."""

    clusters: tuple[ClusterStatus, ...] = Field(description="By name.")


class LoopStatus(Document):
    """The state of the loop with its clusters."""

    version: str
    settings_hash: str
    complete: bool = Field(description="False while the history is being read; then no clusters are shown.")
    problem: str | None = Field(description="Why it is not complete, or why no new records can be read.")
    silence: str | None = Field(description="Why the loop does not decide; null if it decides.")
    cluster_counts: dict[Concern, int] = Field(description="Number of clusters by concern.")
    alert_count: int = Field(description="Number of firing alerts.")
    clusters: tuple[ClusterStatus, ...] = Field(description="By name.")


class AlertsDocument(Document):
    """The firing alerts, by severity and then the newest first."""

    alert_count: int
    alerts: tuple[AlertLine, ...] = Field(description=f"At most {SHOWN_ALERTS}.")


class DecisionsDocument(Document):
    """The last decisions and alerts that changed anything, the newest first. Mere repetitions are left out."""

    decisions: tuple[DecisionLine, ...] = Field(description=f"At most {MAX_RECENT_DECISIONS}.")


class HistoryDocument(Document):
    """The fills of the last hour, or since the start of this process."""

    interval_seconds: float = Field(description="Time between two points.")
    ends_at: Instant | None = Field(description="Time of the last point; null before the first.")
    clusters: dict[str, dict[str, tuple[float | None, ...]]] = Field(
        description="The series by cluster and name (`throttle free bytes`), oldest first; null: unknown. All end at "
        "`ends_at`."
    )
