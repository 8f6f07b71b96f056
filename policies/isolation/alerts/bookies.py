"""Alert conditions about bookies: in no group, gone, joined, or not quarantined as decided."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge, nsmallest
from itertools import islice

from policies.alerts import Condition
from policies.decisions import Mode, Severity
from policies.isolation.alerts.context import (
    IDLE,
    JOINED,
    MISSING,
    NO_GROUPS,
    OVERDUE,
    UNASSIGNED,
    IsolationAlertContext,
)
from policies.isolation.alerts.many import gathered
from policies.isolation.messages import NAMED_LIMIT, listed
from policies.isolation.state import NEVER, BookieState, Presence, QuarantineOrder
from policies.units import counted, format_duration, millis_of

OVERDUE_MS = 60_000
"""An order that nobody has carried out for so long is overdue."""
_IN_QUARANTINE = "in quarantine until somebody puts it into a group"


def of_bookies(context: IsolationAlertContext) -> Iterator[Condition]:
    """Everything that is the case with bookies now, by registrations and groups that are fresh."""
    if context.facts.known.assigns_bookies:
        yield from gathered(UNASSIGNED, _unassigned(context), context)
        yield from gathered(IDLE, _idle(context), context)
    else:
        yield from _without_groups(context)
    yield from gathered(MISSING, _missing(context), context)
    yield from gathered(JOINED, _joined_in_place(context), context)
    yield from gathered(OVERDUE, _overdue(context), context)


def bookies_due_ms(context: IsolationAlertContext) -> Iterator[int]:
    """When (milliseconds) one of these may begin or end without a reading; some may have passed."""
    settings = context.facts.settings
    grace_ms, missing_after_ms = millis_of(settings.grace), millis_of(settings.member_missing_after)
    for bookie in context.facts.known.bookies:
        if bookie.assigned is False:
            yield bookie.since_ms + grace_ms
        elif bookie.assigned and (missing_ms := _missing_ms(bookie)) is not None:
            yield missing_ms + missing_after_ms
        if bookie.joined_in_place_ms is not None:
            yield bookie.joined_in_place_ms + missing_after_ms
    yield from (since_ms + OVERDUE_MS for _, since_ms in _pending(context))


def _without_groups(context: IsolationAlertContext) -> Iterator[Condition]:
    """One for a cluster that puts no bookie into a group; critical while namespaces ask for groups all the same."""
    facts = context.facts
    if facts.known.racks_status.read_ms == NEVER or not facts.known.bookies:
        return
    names = [name for j in context.judgement.placements if j.affinity.is_isolating for name in j.namespaces]
    any_bookie = f"any of its {counted(len(facts.membership.writable), 'writable bookie')}"
    summary = f"{facts.cluster} puts no bookie into a group: namespaces place their data on {any_bookie}"
    labels = {"cluster": facts.cluster}
    if names:
        summary = (
            f"{facts.cluster} puts no bookie into a group, and {counted(len(names), 'namespace')} that ask for groups "
            f"can place data on {any_bookie}: {listed(nsmallest(NAMED_LIMIT, names), len(names))}"
        )
        labels |= {"namespaces": ",".join(nsmallest(NAMED_LIMIT, names)), "namespace_count": str(len(names))}
    yield Condition(
        alert=NO_GROUPS,
        subject=facts.cluster,
        severity=Severity.CRITICAL if names else Severity.INFO,
        reason="promised_groups" if names else "no_groups",
        summary=summary,
        labels=labels,
        evidence=facts.evidence,
    )


def _unassigned(context: IsolationAlertContext) -> Iterator[Condition]:
    facts, held = context.facts, context.book.keys()
    grace_ms, many_fires = millis_of(facts.settings.grace), (UNASSIGNED, facts.cluster) in held
    exposed = _exposed_to(context)
    for bookie in _without_group(context, Presence.WRITABLE):
        fires = many_fires or (UNASSIGNED, context.subject(bookie.bookie)) in held
        if not fires and (bookie.missing_ms is not None or facts.now_ms < bookie.since_ms + grace_ms):
            continue
        if bookie.bookie in facts.quarantined:
            summary = f"bookie {bookie.bookie} of {facts.cluster} is {_IN_QUARANTINE}"
            yield context.of_bookie(UNASSIGNED, Severity.WARNING, "quarantined", bookie.bookie, summary)
        else:
            summary = f"bookie {bookie.bookie} of {facts.cluster} takes data and is in no group{exposed.told}"
            yield context.of_bookie(UNASSIGNED, exposed.severity, "unassigned", bookie.bookie, summary, exposed.labels)


@dataclass(frozen=True, slots=True)
class _Exposed:
    """Which isolated namespaces can place data on bookies in no group: on all of them, or on none."""

    severity: Severity = Severity.WARNING
    told: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def _exposed_to(context: IsolationAlertContext) -> _Exposed:
    users = [j for j in context.judgement.confirmed if j.affinity.is_isolating and j.placed.takes_unassigned]
    count = sum(len(j.namespaces) for j in users)
    if not count:
        return _Exposed()
    first = list(islice(merge(*(j.namespaces for j in users)), NAMED_LIMIT))
    return _Exposed(
        Severity.CRITICAL,
        f"; {counted(count, 'isolated namespace')} can place data on it now: {listed(first, count)}",
        {"namespaces": ",".join(first), "namespace_count": str(count)},
    )


def _idle(context: IsolationAlertContext) -> Iterator[Condition]:
    """Unassigned bookies that take no data now; they would as soon as they are back."""
    grace_ms, now_ms = millis_of(context.facts.settings.grace), context.facts.now_ms
    for presence, how in ((Presence.READ_ONLY, "read-only"), (Presence.OFFLINE, "not registered")):
        for bookie in _without_group(context, presence):
            if now_ms >= bookie.since_ms + grace_ms:
                where = _IN_QUARANTINE if bookie.bookie in context.facts.quarantined else "in no group"
                summary = f"bookie {bookie.bookie} of {context.facts.cluster} is {how} and {where}"
                yield context.of_bookie(IDLE, Severity.INFO, presence.value, bookie.bookie, summary)


def _without_group(context: IsolationAlertContext, presence: Presence) -> Iterator[BookieState]:
    return (b for b in context.facts.known.bookies if b.presence is presence and b.assigned is False)


def _missing(context: IsolationAlertContext) -> Iterator[Condition]:
    facts, after = context.facts, context.facts.settings.member_missing_after
    since_ms = facts.now_ms - millis_of(after)
    missing = [b for b in facts.known.bookies if b.assigned and _is_missing(b, since_ms)]
    groups_of = _groups_by_bookie(context) if missing else {}
    for bookie in missing:
        groups = groups_of.get(bookie.bookie, [])
        place = f"bookie {bookie.bookie} of {facts.cluster} is in {listed(groups, len(groups))}"
        reason, summary = "not_registered", f"{place}, but has not been registered for {format_duration(after)}"
        if bookie.never_joined:
            reason, summary = "never_registered", f"{place}, put there in advance: it has never registered"
        labels = {"groups": ",".join(groups[:NAMED_LIMIT])}
        yield context.of_bookie(MISSING, Severity.WARNING, reason, bookie.bookie, summary, labels)


def _joined_in_place(context: IsolationAlertContext) -> Iterator[Condition]:
    """For a while: a bookie came for which a group was waiting, so nothing is to be done about it."""
    facts = context.facts
    since_ms = facts.now_ms - millis_of(facts.settings.member_missing_after)
    joined = [b for b in facts.known.bookies if b.assigned and (b.joined_in_place_ms or NEVER) > since_ms]
    groups_of = _groups_by_bookie(context) if joined else {}
    for bookie in joined:
        groups = groups_of.get(bookie.bookie, [])
        summary = (
            f"bookie {bookie.bookie} of {facts.cluster} has joined for the first time, where it had been put in "
            f"advance: in {listed(groups, len(groups))}"
        )
        labels = {"groups": ",".join(groups[:NAMED_LIMIT])}
        yield context.of_bookie(JOINED, Severity.INFO, "assigned_in_advance", bookie.bookie, summary, labels)


def _groups_by_bookie(context: IsolationAlertContext) -> dict[str, list[str]]:
    groups_of: dict[str, list[str]] = {}
    for group, members in context.facts.known.groups or ():
        for bookie in members:
            groups_of.setdefault(bookie, []).append(group)
    return groups_of


def _missing_ms(bookie: BookieState) -> int | None:
    """Since when it is not registered; None while it is."""
    return bookie.since_ms if bookie.presence is Presence.OFFLINE else bookie.missing_ms


def _is_missing(bookie: BookieState, since_ms: int) -> bool:
    missing_ms = _missing_ms(bookie)
    return missing_ms is not None and missing_ms <= since_ms


def _overdue(context: IsolationAlertContext) -> Iterator[Condition]:
    """In shadow mode nobody is to carry anything out."""
    facts = context.facts
    if facts.settings.mode is not Mode.ACTIVE:
        return
    for order, since_ms in _pending(context):
        if facts.now_ms >= since_ms + OVERDUE_MS and order.mode is Mode.ACTIVE:
            summary = f"bookie {order.bookie} of {facts.cluster} was to be put into quarantine, and nobody has done so"
            yield context.of_bookie(OVERDUE, Severity.WARNING, "not_carried_out", order.bookie, summary)


def _pending(context: IsolationAlertContext) -> Iterator[tuple[QuarantineOrder, int]]:
    """The orders that nobody has carried out, and since when they might be: not while a bookie takes no data."""
    orders = [order for order in context.orders if order.is_pending(context.facts.quarantined)]
    bookies = context.facts.known.bookies if orders else ()
    writable = {b.bookie: b.since_ms for b in bookies if b.presence is Presence.WRITABLE}
    for order in orders:
        if order.bookie in writable:
            yield order, max(order.since_ms, writable[order.bookie])
