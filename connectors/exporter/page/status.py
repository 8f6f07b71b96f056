"""The response documents of the API under `/api/v1`, and how they are built from a snapshot of the loop. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny

from connectors.decided import Watched, is_stale, without_steps
from connectors.views import MAX_RECENT_DECISIONS, Fill, LoopSnapshot, PolicyDetail
from policies.decisions import Alert, Decision, Mode, Severity
from policies.effects import InForce
from policies.registry import POLICIES
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


# Builds the documents of one moment.

SHOWN_EFFECTS = 50
"""Limit of the effects of one policy and cluster in the API."""

_CONCERNS = {Severity.CRITICAL: Concern.CRITICAL, Severity.WARNING: Concern.WARNING, Severity.INFO: Concern.INFO}
_GRAVEST_FIRST = list(Concern)

_Cause = tuple[str, str, str, str | None]
"""A firing alert: policy, name, cluster and subject; without a subject, any of that name and cluster."""


@dataclass(frozen=True)
class StatusDocuments:
    """All documents of one moment."""

    loop: LoopStatus
    alerts: AlertsDocument
    decisions: DecisionsDocument

    def fills(self) -> dict[tuple[str, str], Fill]:
        """Return the points of the plots by cluster and policy, without stale ones."""
        found = {
            (cluster.cluster, each.policy): each.detail.fill()
            for cluster in self.loop.clusters
            for each in cluster.policies
            if each.detail is not None and not each.stale
        }
        return {key: fill for key, fill in found.items() if fill is not None}


def build_status(loop: LoopSnapshot, *, version: str, settings_hash: str) -> StatusDocuments:
    """Build all documents of a moment."""
    firing: defaultdict[str, list[Alert]] = defaultdict(list)
    for alert in loop.alerts:
        firing[alert.cluster].append(alert)
    known = {about for about in (*loop.details, *loop.decisions, *loop.in_force, *loop.stale) if about[0] in POLICIES}
    by_cluster = groupby(sorted(known, key=itemgetter(1, 0)), key=itemgetter(1))
    clusters = [_build_cluster(name, list(policies), loop, firing.get(name, ())) for name, policies in by_cluster]
    counts = Counter(cluster.concern for cluster in clusters)
    status = LoopStatus(
        version=version,
        settings_hash=settings_hash,
        complete=loop.behind is None,
        problem=loop.behind or loop.problem,
        silence=loop.silence,
        cluster_counts={concern: counts[concern] for concern in Concern},
        alert_count=len(loop.alerts),
        clusters=tuple(clusters),
    )
    causes = {(a.policy, a.alert, a.cluster, subject) for a in loop.alerts for subject in (a.subject, None)}
    alerts = tuple(_build_alert(alert, loop, causes) for alert in loop.alerts[:SHOWN_ALERTS])
    recent = tuple(_build_line(decision, loop) for decision in loop.recent_decisions)
    return StatusDocuments(
        status, AlertsDocument(alert_count=len(loop.alerts), alerts=alerts), DecisionsDocument(decisions=recent)
    )


def _build_cluster(
    name: str, policies: Sequence[Watched], loop: LoopSnapshot, firing: Sequence[Alert]
) -> ClusterStatus:
    statuses = tuple(_build_policy(each, loop) for each in policies)
    concerns = {_CONCERNS[alert.severity] for alert in firing}
    if any(status.stale for status in statuses):
        concerns.add(Concern.STALE)
    if any(about in loop.in_force and loop.in_force[about].failing_since is not None for about in policies):
        concerns.add(Concern.WARNING)
    gravest = min(concerns, key=_GRAVEST_FIRST.index, default=Concern.CALM)
    return ClusterStatus(cluster=name, concern=gravest, alert_count=len(firing), policies=statuses)


def _build_policy(about: Watched, loop: LoopSnapshot) -> PolicyStatus:
    decisions, in_force = loop.decisions.get(about, ()), loop.in_force.get(about)
    latest = max(without_steps(decisions), key=lambda each: (each.decided_at, each.sequence), default=None)
    return PolicyStatus(
        policy=about[0],
        stale=loop.stale.get(about, False),
        decision_count=len(decisions),
        verdicts=dict(Counter(decision.verdict for decision in decisions).most_common()),
        latest=None if latest is None else _build_line(latest, loop),
        numbers=dict(_list_numbers(latest)) if latest is not None else {},
        detail=loop.details.get(about),
        in_force=None if in_force is None else build_in_force(in_force),
    )


def build_in_force(found: InForce) -> InForceLine:
    """Build the document of the wanted and the set values."""
    pause, paused = found.pause, None
    if pause is not None and pause.quiet_until is not None:
        keeps = pause.pause_keeps is not False
        paused = PauseLine(until=pause.quiet_until, by=pause.paused_by, reason=pause.pause_reason, keeps=keeps)
    effects = tuple(EffectLine.copy_from(effect, held=effect.is_held) for effect in found.effects[:SHOWN_EFFECTS])
    return InForceLine(wanted=found.wanted, effects=effects, paused=paused, sentence=found.sentence)


def _list_numbers(decision: Decision) -> Iterator[tuple[str, float]]:
    """Yield the numeric fields of the decision's own kind."""
    for name in type(decision).model_fields:
        value = getattr(decision, name)
        if name not in Decision.model_fields and isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


def _build_line(decision: Decision, loop: LoopSnapshot) -> DecisionLine:
    stale = is_stale(decision, loop.at, loop.unwatched)
    of_alert = {} if isinstance(decision, Alert) else {"alert": None, "severity": None}
    return DecisionLine.copy_from(decision, sentence=decision.explanation, stale=stale, **of_alert)


def _build_alert(alert: Alert, loop: LoopSnapshot, causes: AbstractSet[_Cause]) -> AlertLine:
    stale = is_stale(alert, loop.at, loop.unwatched)
    return AlertLine.copy_from(alert, stale=stale, inhibited_by=_find_cause(alert, causes))


def _find_cause(alert: Alert, firing: AbstractSet[_Cause]) -> str | None:
    """Return the firing alert that explains this one, by the policies' inhibitions."""
    for inhibition in POLICIES[alert.policy].inhibitions if alert.policy in POLICIES else ():
        subject = alert.subject if "subject" in inhibition.same else None
        if alert.alert in inhibition.effects and (alert.policy, inhibition.cause, alert.cluster, subject) in firing:
            return inhibition.cause
    return None
