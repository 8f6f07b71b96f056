"""Reports a few conditions one by one, and many as a single summary."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest

from policies.alerts import Condition
from policies.decisions import Severity
from policies.isolation.alerts.context import (
    HEADROOM,
    IDLE,
    INFEASIBLE,
    JOINED,
    LEAK,
    MISSING,
    OF_NAMESPACES,
    OVERDUE,
    UNASSIGNED,
    IsolationAlertContext,
)
from policies.isolation.facts import IsolationFacts
from policies.isolation.messages import MOST_SINGLY, listed

_OF_MANY = {
    UNASSIGNED: "bookies of {} take data and are in no group",
    IDLE: "bookies of {} are read-only or not registered, and in no group",
    MISSING: "bookies of {} are in groups, but have not been registered for a while",
    JOINED: "bookies of {} have joined for the first time, where they had been put in advance",
    OVERDUE: "bookies of {} were to be put into quarantine, and nobody has done so",
    INFEASIBLE: "namespaces of {} cannot place their data",
    LEAK: "namespaces of {} can place data on bookies that the promise forbids",
    HEADROOM: "namespaces of {} must reach further when one more bookie is lost",
}
"""What is the case of many things at once."""


def gathered(alert: str, each: Iterable[Condition], context: IsolationAlertContext) -> Iterator[Condition]:
    """Few conditions singly; of many those that have no alert of their own in one, which counts and names the first.

    What has an alert of its own keeps it while it lasts, so that nothing is said twice or over before it is. So there
    are never many more alerts than a person reads, also when things come one by one.
    """
    held = context.book.keys()
    singly: list[Condition] = []
    others: list[Condition] = []
    for condition in each:
        (singly if condition.key in held else others).append(condition)
    yield from singly
    if len(singly) + len(others) <= MOST_SINGLY:
        yield from others
    elif others:
        yield _in_one(alert, others, context.facts)


def _in_one(alert: str, many: Sequence[Condition], facts: IsolationFacts) -> Condition:
    worst = max(many, key=lambda c: _RANK[c.severity])
    kind = "namespace" if alert in OF_NAMESPACES else "bookie"
    first = nsmallest(MOST_SINGLY, (c.labels[kind] for c in many))
    why = {key: value for key, value in worst.labels.items() if key in ("namespaces", "namespace_count")}
    exposed = f"; {why['namespace_count']} isolated namespaces can use them ({why['namespaces']})" if why else ""
    named = listed(first, len(many), MOST_SINGLY)
    return Condition(
        alert=alert,
        subject=facts.cluster,
        severity=worst.severity,
        reason=worst.reason,
        summary=many[0].summary
        if len(many) == 1
        else f"{len(many)} {_OF_MANY[alert].format(facts.cluster)}{exposed}: {named}",
        labels={"cluster": facts.cluster, "count": str(len(many)), "first": ",".join(first), **why},
        evidence=facts.evidence,
        count=len(many),
    )


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
