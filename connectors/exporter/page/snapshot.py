"""Builds the documents of one moment from a snapshot of the loop. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from connectors.decided import is_stale, without_steps
from connectors.exporter.page.documents import (
    SHOWN_ALERTS,
    AlertLine,
    AlertsDocument,
    AnswersStatus,
    Concern,
    DecisionLine,
    DecisionsDocument,
    cluster_model,
    loop_model,
    policy_status_model,
)
from connectors.loop_snapshot import CanaryStatus, LoopSnapshot, PolicySnapshot
from connectors.registration import connectors_of
from policies.decisions import Alert, Decision, Severity
from policies.registry import POLICIES

LONGEST_SENTENCE = 1000
"""Characters of a sentence or a name: it may hold whatever was read somewhere."""

_CONCERNS = {Severity.CRITICAL: Concern.CRITICAL, Severity.WARNING: Concern.WARNING, Severity.INFO: Concern.INFO}
_GRAVEST_FIRST = list(Concern)


@dataclass(frozen=True)
class Snapshot:
    """All documents of one moment."""

    loop: Any
    """A `loop_model()`."""
    alerts: AlertsDocument
    decisions: DecisionsDocument

    def charted(self) -> Mapping[str, Mapping[str, float]]:
        """What is drawn of each cluster; nothing of what is stale."""
        return {cluster.cluster: _charted(cluster.policies) for cluster in self.loop.clusters}

    def charted_of_loop(self) -> Mapping[str, float]:
        """What is drawn of the loop itself; nothing while it does not answer."""
        answers = self.loop.answers
        if answers is None or answers.silent or answers.latest_seconds is None:
            return {}
        return {"seconds to answer": answers.latest_seconds}


def snapshot_of(picture: LoopSnapshot, *, version: str, settings_hash: str) -> Snapshot:
    """Everything that is shown of a moment."""
    firing: defaultdict[str, list[Alert]] = defaultdict(list)
    for alert in picture.alerts:
        firing[alert.cluster].append(alert)
    clusters = [
        _cluster(name, list(of_cluster), picture, firing.get(name, ()))
        for name, of_cluster in groupby(picture.policies, key=lambda each: each.cluster)
    ]
    counts = Counter(cluster.concern for cluster in clusters)
    loop = loop_model()(
        version=version,
        settings_hash=settings_hash,
        complete=picture.behind is None,
        problem=picture.behind or picture.problem,
        answers=None if picture.answers is None else _answers(picture.answers),
        cluster_counts={concern: counts[concern] for concern in Concern},
        alert_count=len(picture.alerts),
        clusters=tuple(clusters),
    )
    alerts = tuple(_alert(alert, picture) for alert in picture.alerts[:SHOWN_ALERTS])
    news = tuple(_line(decision, picture) for decision in picture.recent_decisions)
    return Snapshot(
        loop, AlertsDocument(alert_count=len(picture.alerts), alerts=alerts), DecisionsDocument(decisions=news)
    )


def _answers(answers: CanaryStatus) -> AnswersStatus:
    latest, unanswered = answers.latest_seconds, round(answers.unanswered_seconds)
    return AnswersStatus(latest_seconds=latest, unanswered_seconds=unanswered, silent=answers.is_silent)


def _cluster(name: str, policies: Sequence[PolicySnapshot], picture: LoopSnapshot, firing: Sequence[Alert]) -> Any:
    statuses = tuple(_policy(each, picture) for each in policies)
    concerns = {_CONCERNS[alert.severity] for alert in firing}
    if any(status.stale for status in statuses):
        concerns.add(Concern.STALE)
    gravest = min(concerns, key=_GRAVEST_FIRST.index, default=Concern.CALM)
    return cluster_model()(cluster=name, concern=gravest, alert_count=len(firing), policies=statuses)


def _policy(of_policy: PolicySnapshot, picture: LoopSnapshot) -> Any:
    decisions, detail = of_policy.decisions, connectors_of(POLICIES[of_policy.policy]).detail
    latest = max(without_steps(decisions), key=lambda each: (each.decided_at, each.sequence), default=None)
    is_unwatched = (of_policy.policy, of_policy.cluster) in picture.unwatched
    return policy_status_model()(
        policy=of_policy.policy,
        stale=is_unwatched or any(is_stale(decision, picture.at) for decision in decisions),
        decision_count=len(decisions),
        verdicts=dict(Counter(decision.verdict for decision in decisions).most_common()),
        latest=None if latest is None else _line(latest, picture),
        numbers=dict(_numbers(latest)) if latest is not None else {},
        detail=None if detail is None else detail.of(of_policy),
    )


def _numbers(decision: Decision) -> Iterator[tuple[str, float]]:
    """The numbers among the fields of its kind."""
    for name in type(decision).model_fields.keys() - Decision.model_fields.keys():
        value = getattr(decision, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


def _line(decision: Decision, picture: LoopSnapshot) -> DecisionLine:
    alert = decision if isinstance(decision, Alert) else None
    return DecisionLine(
        decision_id=decision.decision_id,
        policy=_cut(decision.policy),
        cluster=decision.cluster,
        subject=_cut(decision.subject),
        verdict=_cut(str(decision.verdict)),
        reason=_cut(str(decision.reason)),
        sentence=_cut(decision.explanation),
        decided_at=decision.decided_at,
        mode=decision.mode,
        stale=is_stale(decision, picture.at, picture.unwatched),
        alert=_cut(alert.alert) if alert else None,
        severity=alert.severity if alert else None,
    )


def _alert(alert: Alert, picture: LoopSnapshot) -> AlertLine:
    return AlertLine(
        alert=_cut(alert.alert),
        severity=alert.severity,
        policy=_cut(alert.policy),
        cluster=alert.cluster,
        subject=_cut(alert.subject),
        reason=_cut(alert.reason),
        summary=_cut(alert.summary),
        started_at=alert.started_at,
        stale=is_stale(alert, picture.at, picture.unwatched),
    )


def _charted(policies: Iterable[Any]) -> Mapping[str, float]:
    drawn: dict[str, float] = {}
    for status in policies:
        if status.detail is not None and not status.stale:
            drawn.update(status.detail.charted())
    return drawn


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 1]}…"
