"""The names of the isolation alerts, and how conditions are built: few one by one, many as a single summary."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from policies.alerts import AlertBook, Condition, gather
from policies.decisions import Severity
from policies.isolation.alert_kinds import (
    HEADROOM,
    IDLE,
    INFEASIBLE,
    JOINED,
    LEAK,
    MISSING,
    NO_GROUPS,
    OVERDUE,
    STARVES,
    UNASSIGNED,
)
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import IsolationJudgement
from policies.isolation.messages import MOST_SINGLY, list_names
from policies.isolation.state import QuarantineOrder
from policies.units import counted

ABOUT_BOOKIES = frozenset({UNASSIGNED, IDLE, MISSING, OVERDUE, NO_GROUPS, JOINED})
ABOUT_NAMESPACES = frozenset({LEAK, INFEASIBLE, HEADROOM, STARVES})

_SUMMARIES = {
    UNASSIGNED: "bookies of {} take data and are in no group",
    IDLE: "bookies of {} are read-only or not registered, and in no group",
    MISSING: "bookies of {} are in groups, but have not been registered for a while",
    JOINED: "bookies of {} have joined for the first time: they had been put into groups in advance",
    OVERDUE: "bookies of {} were ordered into quarantine, and are not there",
    STARVES: "bookies of {} are in quarantine, and namespaces cannot place their data without them",
    INFEASIBLE: "namespaces of {} cannot place their data",
    LEAK: "namespaces of {} can place data on bookies that the promise forbids",
    HEADROOM: "namespaces of {} must reach further, or cannot place their data, when one more of their bookies is lost",
}
_SEVERITIES = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


@dataclass(frozen=True, slots=True)
class IsolationAlertContext:
    """The inputs of all conditions."""

    facts: IsolationFacts
    judgement: IsolationJudgement
    orders: Sequence[QuarantineOrder]
    """The orders in force after this step."""
    book: AlertBook
    started_ms: int

    def condition(
        self, alert: str, severity: Severity, reason: str, summary: str, name: str = "",
        labels: Mapping[str, str] | None = None, evidence: tuple[str, ...] | None = None,
    ) -> Condition:  # fmt: skip
        """Build a condition of the cluster, or of the bookie or namespace called `name`."""
        cluster = self.facts.cluster
        return Condition(
            alert=alert,
            subject=f"{cluster}/{name}" if name else cluster,
            severity=severity,
            reason=reason,
            summary=summary,
            labels={"cluster": cluster, **(labels or {})},
            evidence=self.facts.evidence if evidence is None else evidence,
        )

    def gather(self, alert: str, each: Iterable[Condition]) -> Iterator[Condition]:
        """Yield few conditions of bookies one by one, and many as one summary that counts them and names the first."""
        singly, many = gather(self.book, alert, self.facts.cluster, ((c.subject, c) for c in each))
        yield from singly
        if many:
            worst = max(many, key=lambda c: _SEVERITIES.index(c.severity))
            inside = sum(condition.reason == "quarantined" for condition in many)
            yield self.summarize(alert, [c.labels["bookie"] for c in many], worst, inside)

    def summarize(self, alert: str, names: Collection[str], worst: Condition, inside: int = 0) -> Condition:
        """Make one condition of many of one kind.

        Args:
            alert: the name of the alert.
            names: the bookies or namespaces.
            worst: the condition of one of them that has the highest severity.
            inside: the number of bookies in quarantine.
        """
        cluster, count = self.facts.cluster, len(names)
        first = nsmallest(MOST_SINGLY, names)
        why = {key: value for key, value in worst.labels.items() if key in ("namespaces", "namespace_count")}
        exposed = (
            f"; {counted(int(why['namespace_count']), 'isolated namespace')} can use them ({why['namespaces']})"
            if why
            else ""
        )
        named, what = list_names(first, count, MOST_SINGLY), _SUMMARIES[alert]
        if inside:
            what = f"bookies of {{}} take data and have no group from an operator, {inside} of them in quarantine"
        summary = f"{count} {what.format(cluster)}{exposed}: {named}"
        return Condition(
            alert=alert,
            subject=cluster,
            severity=worst.severity,
            reason=worst.reason,
            summary=worst.summary if count == 1 else summary,
            labels={"cluster": cluster, "count": str(count), "first": ",".join(first), **why},
            evidence=self.facts.evidence,
            count=count,
        )
