"""Builds the response documents of one moment from a snapshot of the loop. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from connectors.decided import Watched, is_stale, without_steps
from connectors.exporter.page.documents import (
    SHOWN_ALERTS,
    AlertLine,
    AlertsDocument,
    ClusterStatus,
    Concern,
    DecisionLine,
    DecisionsDocument,
    EffectLine,
    InForceLine,
    LoopStatus,
    PauseLine,
    PolicyStatus,
)
from connectors.views import Fill, LoopSnapshot
from policies.decisions import Alert, Decision, Severity
from policies.effects import InForce
from policies.registry import POLICIES

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
