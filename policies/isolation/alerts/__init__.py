"""Alert conditions of the isolation policy.

Conditions rest on certain knowledge only: a bookie that is missing from a single reading still counts as present.
Missing data neither raises nor resolves an alert: while the readings of a condition cannot be read, its last state
stands.
"""

from collections.abc import Iterator

from policies.alerts import AlertBook, Condition
from policies.decisions import Severity
from policies.isolation.alerts.bookies import bookies_due_ms, of_bookies
from policies.isolation.alerts.context import (
    HEADROOM,
    INFEASIBLE,
    LEAK,
    OF_BOOKIES,
    OF_NAMESPACES,
    UNCONFIRMED,
    UNREAD,
    IsolationAlertContext,
)
from policies.isolation.alerts.many import gathered
from policies.isolation.decisions import PlacementVerdict
from policies.isolation.fold.groups import members_of
from policies.isolation.fold.registrations import registered_count
from policies.isolation.fold.shrinking import VANISHED
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.messages import explain_placement
from policies.isolation.state import NEVER, ReadingStatus
from policies.units import counted, format_duration, millis_of

__all__ = ["IsolationAlertContext", "conditions", "due_ms"]

_UNREAD_READINGS = {
    "bookies": "the registrations of its bookies",
    "racks": "its bookie groups",
    "affinity": "the affinity of its namespaces",
}


def conditions(context: IsolationAlertContext) -> Iterator[Condition]:
    """Everything that is the case now."""
    yield from _unread(context)
    yield from _unconfirmed(context)
    if context.facts.registrations_fresh:
        yield from of_bookies(context)
    else:
        yield from _kept(context.book, OF_BOOKIES)
    if context.facts.all_fresh:
        yield from _of_namespaces(context)
    else:
        yield from _kept(context.book, OF_NAMESPACES)


def due_ms(context: IsolationAlertContext) -> Iterator[int]:
    """When (milliseconds) a condition may begin to hold without a reading; some may have passed."""
    validity_ms = millis_of(context.facts.settings.validity)
    yield context.started_ms + validity_ms
    statuses = context.facts.known.statuses.values()
    yield from (status.read_ms + validity_ms for status in statuses if status.read_ms != NEVER)
    yield from bookies_due_ms(context)


def _unread(context: IsolationAlertContext) -> Iterator[Condition]:
    """One for the cluster, when any of the three readings has been unread for `validity`."""
    facts, validity = context.facts, context.facts.settings.validity
    unread = {
        name: status
        for name, status in facts.stale.items()
        if facts.now_ms - max(status.read_ms, context.started_ms) >= millis_of(validity)
    }
    if not unread:
        return
    which = "; ".join(f"{_UNREAD_READINGS[name]} ({_why_unread(status)})" for name, status in unread.items())
    yield Condition(
        alert=UNREAD,
        subject=facts.cluster,
        severity=Severity.WARNING,
        reason=_why_unread(next(iter(unread.values()))),
        summary=f"{facts.cluster} is unread for {format_duration(validity)}, "
        f"and nothing new is decided on what is not known: {which}",
        labels={"cluster": facts.cluster, "readings": ",".join(unread)},
        evidence=tuple(status.tried_id for status in unread.values() if status.tried_id),
    )


def _why_unread(status: ReadingStatus) -> str:
    return status.outcome if status.outcome not in ("", "ok") else "silence"


def _unconfirmed(context: IsolationAlertContext) -> Iterator[Condition]:
    """One for the cluster, while a reading in which most was gone is not believed."""
    facts, known = context.facts, context.facts.known
    doubted = []
    if known.vanished_ms is not None:
        were = counted(registered_count(known), "registered bookie")
        doubted.append((f"{known.bookies_left} of {were} are left", known.bookies_status.tried_id))
    if known.groups_vanished_ms is not None:
        were = counted(len(members_of(known.groups)), "member")
        doubted.append((f"{known.members_left} of {were} of its groups are left", known.racks_status.tried_id))
    if doubted:
        what = " and ".join(what for what, _ in doubted)
        yield Condition(
            alert=UNCONFIRMED,
            subject=facts.cluster,
            severity=Severity.WARNING,
            reason=VANISHED,
            summary=f"by the last reading of {facts.cluster} {what}: the one before counts until another reading, "
            f"{format_duration(facts.settings.confirm_after)} after the first, says so again",
            labels={"cluster": facts.cluster},
            evidence=tuple(tried_id for _, tried_id in doubted),
        )


def _of_namespaces(context: IsolationAlertContext) -> Iterator[Condition]:
    found: dict[str, list[Condition]] = {}
    for judged in context.judgement.confirmed:
        for alert, severity, what in _of_judged(judged):
            found.setdefault(alert, []).extend(
                Condition(
                    alert=alert,
                    subject=context.subject(namespace),
                    severity=severity,
                    reason=judged.reason.value,
                    summary=f"{namespace} of {context.facts.cluster} {what}",
                    labels={"cluster": context.facts.cluster, "namespace": namespace},
                    evidence=context.facts.evidence,
                )
                for namespace in judged.namespaces
            )
    for alert, each in found.items():
        yield from gathered(alert, each, context)


def _of_judged(judged: PlacementJudgement) -> Iterator[tuple[str, Severity, str]]:
    if not judged.placed.feasible:
        yield INFEASIBLE, Severity.CRITICAL, explain_placement(judged)
    if judged.verdict is PlacementVerdict.LEAKS:
        yield LEAK, Severity.CRITICAL, explain_placement(judged)
    if judged.placed.headroom == 1 and judged.verdict is not PlacementVerdict.UNCONSTRAINED:
        why = explain_placement(judged)
        yield HEADROOM, Severity.WARNING, f"must reach further when one more bookie is lost: it {why}"


def _kept(book: AlertBook, names: frozenset[str]) -> Iterator[Condition]:
    """What was said of these alerts, said again as it was; what waits for its grace waits anew."""
    return (entry.as_condition() for entry in book.entries if entry.alert in names and entry.said_ms is not None)
