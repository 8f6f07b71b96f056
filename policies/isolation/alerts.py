"""What the isolation policy warns of: conditions that are the case now.

Absence of data neither raises nor resolves anything: while the readings a condition rests on are unread, what was said
stays said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from policies.alerts import AlertBook, Condition
from policies.decisions import Mode, Severity
from policies.isolation.decisions import PlacementVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import IsolationJudgement
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.messages import NAMED_LIMIT, explain_placement, listed
from policies.isolation.state import NEVER, BookieState, Presence, QuarantineOrder, ReadingStatus
from policies.units import counted, format_duration, millis_of

UNASSIGNED = "unassigned-bookie"
IDLE = "unassigned-bookie-idle"
MISSING = "group-member-missing"
LEAK = "isolation-leak"
INFEASIBLE = "placement-infeasible"
HEADROOM = "isolation-headroom"
UNREAD = "bookies-unread"
OVERDUE = "quarantine-overdue"

OVERDUE_MS = 60_000
"""An order that nobody has carried out for so long is overdue."""

_OF_BOOKIES = frozenset({UNASSIGNED, IDLE, MISSING, OVERDUE})
_OF_NAMESPACES = frozenset({LEAK, INFEASIBLE, HEADROOM})
_UNREAD_READINGS = {
    "bookies": "the registrations of its bookies",
    "racks": "its bookie groups",
    "affinity": "the affinity of its namespaces",
}


@dataclass(frozen=True, slots=True)
class IsolationAlertContext:
    """What the conditions are read from."""

    facts: IsolationFacts
    judgement: IsolationJudgement
    orders: Sequence[QuarantineOrder]
    """In force after this step."""
    book: AlertBook
    started_ms: int


def conditions(context: IsolationAlertContext) -> Iterator[Condition]:
    """Everything that is the case now."""
    yield from _unread(context)
    if context.facts.registrations_fresh:
        yield from _unassigned(context)
        yield from _idle(context)
        yield from _missing(context)
        yield from _overdue(context)
    else:
        yield from _kept(context.book, _OF_BOOKIES)
    if context.facts.all_fresh:
        yield from _of_namespaces(context)
    else:
        yield from _kept(context.book, _OF_NAMESPACES)


def due_ms(context: IsolationAlertContext) -> Iterator[int]:
    """When (milliseconds) a condition may begin to hold without a reading; some may have passed."""
    settings = context.facts.settings
    yield context.started_ms + millis_of(settings.validity)
    yield from (
        status.read_ms + millis_of(settings.validity)
        for status in context.facts.known.statuses.values()
        if status.read_ms != NEVER
    )
    for bookie in context.facts.known.bookies:
        if bookie.assigned is False:
            yield bookie.since_ms + millis_of(settings.grace)
        elif bookie.assigned and (missing_ms := _missing_ms(bookie)) is not None:
            yield missing_ms + millis_of(settings.member_missing_after)
    yield from (order.since_ms + OVERDUE_MS for order in context.orders if order.is_pending(context.facts.quarantined))


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


def _unassigned(context: IsolationAlertContext) -> Iterator[Condition]:
    facts, held = context.facts, context.book.keys()
    grace_ms = millis_of(facts.settings.grace)
    for bookie in _without_group(context, Presence.WRITABLE):
        fires = (UNASSIGNED, _subject(context, bookie.bookie)) in held
        if not fires and (bookie.missing_ms is not None or facts.now_ms < bookie.since_ms + grace_ms):
            continue
        if bookie.bookie in facts.quarantined:
            summary = f"bookie {bookie.bookie} of {facts.cluster} is in quarantine until somebody puts it into a group"
            yield _of_bookie(context, UNASSIGNED, Severity.WARNING, "quarantined", bookie.bookie, summary)
        else:
            yield _exposed(context, bookie.bookie)


def _exposed(context: IsolationAlertContext, bookie: str) -> Condition:
    """Of a writable bookie in no group: critical when isolated namespaces place data on it."""
    users = [j for j in context.judgement.placements if j.affinity.is_isolating and bookie in j.placed.candidates]
    count = sum(len(j.namespaces) for j in users)
    summary = f"bookie {bookie} of {context.facts.cluster} takes data and is in no group"
    if not count:
        return _of_bookie(context, UNASSIGNED, Severity.WARNING, "unassigned", bookie, summary)
    first = list(islice(merge(*(j.namespaces for j in users)), NAMED_LIMIT))
    return _of_bookie(
        context, UNASSIGNED, Severity.CRITICAL, "unassigned", bookie,
        f"{summary}; {counted(count, 'isolated namespace')} can place data on it now: {listed(first, count)}",
        {"namespaces": ",".join(first), "namespace_count": str(count)},
    )  # fmt: skip


def _idle(context: IsolationAlertContext) -> Iterator[Condition]:
    """Unassigned bookies that take no data now; they would as soon as they are back."""
    grace_ms, now_ms = millis_of(context.facts.settings.grace), context.facts.now_ms
    for presence, how in ((Presence.READ_ONLY, "read-only"), (Presence.OFFLINE, "not registered")):
        for bookie in _without_group(context, presence):
            if now_ms >= bookie.since_ms + grace_ms:
                summary = f"bookie {bookie.bookie} of {context.facts.cluster} is {how} and in no group"
                yield _of_bookie(context, IDLE, Severity.INFO, presence.value, bookie.bookie, summary)


def _without_group(context: IsolationAlertContext, presence: Presence) -> Iterator[BookieState]:
    return (b for b in context.facts.known.bookies if b.presence is presence and b.assigned is False)


def _missing(context: IsolationAlertContext) -> Iterator[Condition]:
    after = context.facts.settings.member_missing_after
    for bookie in context.facts.known.bookies:
        missing_ms = _missing_ms(bookie)
        if bookie.assigned and missing_ms is not None and context.facts.now_ms >= missing_ms + millis_of(after):
            groups = [g for g, members in (context.facts.known.groups or ()) if bookie.bookie in members]
            yield _of_bookie(
                context, MISSING, Severity.WARNING, "not_registered", bookie.bookie,
                f"bookie {bookie.bookie} of {context.facts.cluster} is in {listed(groups, len(groups))}, "
                f"but has not been registered for {format_duration(after)}",
                {"groups": ",".join(groups[:NAMED_LIMIT])},
            )  # fmt: skip


def _missing_ms(bookie: BookieState) -> int | None:
    """Since when it is not registered; None while it is."""
    return bookie.since_ms if bookie.presence is Presence.OFFLINE else bookie.missing_ms


def _overdue(context: IsolationAlertContext) -> Iterator[Condition]:
    """In shadow mode nobody is to carry anything out."""
    facts = context.facts
    for order in context.orders:
        overdue = facts.now_ms >= order.since_ms + OVERDUE_MS
        if overdue and order.mode is Mode.ACTIVE and order.is_pending(facts.quarantined):
            summary = f"bookie {order.bookie} of {facts.cluster} was to be put into quarantine, and nobody has done so"
            yield _of_bookie(context, OVERDUE, Severity.WARNING, "not_carried_out", order.bookie, summary)


def _of_namespaces(context: IsolationAlertContext) -> Iterator[Condition]:
    for judged in context.judgement.placements:
        for alert, severity, what in _of_judged(judged):
            for namespace in judged.namespaces:
                yield Condition(
                    alert=alert,
                    subject=_subject(context, namespace),
                    severity=severity,
                    reason=judged.reason.value,
                    summary=f"{namespace} of {context.facts.cluster} {what}",
                    labels={"cluster": context.facts.cluster, "namespace": namespace},
                    evidence=context.facts.evidence,
                )


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


def _of_bookie(
    context: IsolationAlertContext, alert: str, severity: Severity, reason: str, bookie: str, summary: str,
    labels: Mapping[str, str] | None = None,
) -> Condition:  # fmt: skip
    return Condition(
        alert=alert,
        subject=_subject(context, bookie),
        severity=severity,
        reason=reason,
        summary=summary,
        labels={"cluster": context.facts.cluster, "bookie": bookie, **(labels or {})},
        evidence=context.facts.evidence,
    )


def _subject(context: IsolationAlertContext, name: str) -> str:
    return f"{context.facts.cluster}/{name}"
