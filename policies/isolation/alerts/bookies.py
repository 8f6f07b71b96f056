"""Alert conditions about bookies: in no group, gone, joined, or not quarantined as decided."""

from collections.abc import Iterator
from datetime import timedelta
from heapq import merge, nsmallest
from itertools import islice

from policies.alerts import Condition
from policies.decisions import Mode, Severity
from policies.isolation.alert_kinds import IDLE, JOINED, MISSING, NO_GROUPS, OVERDUE, STARVES, UNASSIGNED
from policies.isolation.alerts.context import IsolationAlertContext
from policies.isolation.messages import NAMED_LIMIT, explain_portless, list_names, name_groups
from policies.isolation.state import NEVER, BookieState, Presence, QuarantineOrder
from policies.units import counted, counted_with, format_duration, millis_of

OVERDUE_MS = 60_000
"""A quarantine order that is not carried out by then is overdue."""
_IN_QUARANTINE = "in quarantine until an operator puts it into a group"


def conditions(context: IsolationAlertContext) -> Iterator[Condition]:
    """All conditions of bookies that hold now; the readings of registrations and groups must be fresh."""
    facts = context.facts
    asking = [judged for judged in context.judgement.kept if judged.affinity.is_isolating]
    # A critical alert does not end because of one reading, which may be of another cluster.
    membership = facts.kept.membership if asking else facts.membership
    if facts.known.racks_status.read_ms == NEVER or membership.has_groups:
        yield from context.gather(UNASSIGNED, _check_unassigned(context))
        yield from context.gather(IDLE, _check_idle(context))
    elif facts.known.bookies:
        yield _report_no_groups(context, [name for judged in asking for name in judged.namespaces])
    yield from context.gather(MISSING, _check_missing(context))
    yield from context.gather(JOINED, _check_joined(context))
    if facts.settings.mode is Mode.ACTIVE:
        yield from context.gather(OVERDUE, _check_overdue(context))


def due_ms(context: IsolationAlertContext) -> Iterator[int]:
    """When (milliseconds since the epoch) one of these may begin or end without a reading; some may be past."""
    settings = context.facts.settings
    grace_ms, missing_after_ms = millis_of(settings.grace), millis_of(settings.member_missing_after)
    for bookie in context.facts.notable:
        if bookie.assigned is False:
            yield bookie.since_ms + grace_ms
        elif bookie.assigned and (missing_ms := _missing_since(bookie)) is not None:
            yield missing_ms + missing_after_ms
        if bookie.joined_in_place_ms is not None:
            yield bookie.joined_in_place_ms + missing_after_ms
    yield from (since_ms + OVERDUE_MS for _, since_ms in _find_pending(context))


def _report_no_groups(context: IsolationAlertContext, names: list[str]) -> Condition:
    """Report that the cluster puts no bookie into a group; critical while the namespaces `names` ask for groups."""
    facts = context.facts
    free = (
        f"brokers exclude no bookie, and {counted_with(len(facts.membership.writable), 'bookie', 'is', 'are')} writable"
    )
    if not names:
        summary = f"{facts.cluster} puts no bookie into a group: {free}"
        return context.condition(NO_GROUPS, Severity.INFO, "no_groups", summary)
    first = nsmallest(NAMED_LIMIT, names)
    summary = (
        f"{facts.cluster} puts no bookie into a group, but {counted_with(len(names), 'namespace', 'asks', 'ask')} for "
        f"groups ({list_names(first, len(names))}): {free}"
    )
    labels = {"namespaces": ",".join(first), "namespace_count": str(len(names))}
    return context.condition(NO_GROUPS, Severity.CRITICAL, "promised_groups", summary, labels=labels)


def _check_unassigned(context: IsolationAlertContext) -> Iterator[Condition]:
    facts, open_alerts = context.facts, context.book.keys()
    oldest_ms = facts.now_ms - millis_of(facts.settings.grace)
    is_gathered = (UNASSIGNED, facts.cluster) in open_alerts
    unassigned = [b for b in facts.notable if b.presence is Presence.WRITABLE and b.assigned is False]
    if not unassigned:
        return
    severity, exposed, labels = _find_exposed(context)
    doubtful = facts.doubtful_bookies()
    for bookie in unassigned:
        is_open = is_gathered or (UNASSIGNED, f"{facts.cluster}/{bookie.bookie}") in open_alerts
        if not is_open and (bookie.missing_ms is not None or bookie.since_ms > oldest_ms):
            continue
        subject = f"bookie {bookie.bookie} of {facts.cluster}"
        if bookie.bookie in facts.quarantined:
            summary = f"{subject} is {_IN_QUARANTINE}"
            yield _report(context, UNASSIGNED, Severity.WARNING, "quarantined", bookie.bookie, summary)
        else:
            summary = f"{subject} takes data and is in no group"
            if bookie.bookie in facts.portless:
                summary += f"; {explain_portless(bookie.bookie)}"
            if bookie.bookie in doubtful:
                yield _report(context, UNASSIGNED, Severity.WARNING, "unassigned", bookie.bookie, summary)
                continue
            summary += exposed
            yield _report(context, UNASSIGNED, severity, "unassigned", bookie.bookie, summary, labels)


def _find_exposed(context: IsolationAlertContext) -> tuple[Severity, str, dict[str, str]]:
    """Find the isolated namespaces that can place data on bookies in no group: a severity, a clause and labels.

    The rules do not distinguish bookies in no group, so the answer is the same for each of them.
    """
    exposed = [
        j for j in context.judgement.kept if j.affinity.is_isolating and j.placed.takes_unassigned and j.placed.feasible
    ]
    count = sum(len(j.namespaces) for j in exposed)
    if not count:
        return Severity.WARNING, "", {}
    first = list(islice(merge(*(j.namespaces for j in exposed)), NAMED_LIMIT))
    clause = f"; {counted(count, 'isolated namespace')} can place data on it now: {list_names(first, count)}"
    return Severity.CRITICAL, clause, {"namespaces": ",".join(first), "namespace_count": str(count)}


def _check_idle(context: IsolationAlertContext) -> Iterator[Condition]:
    """Unassigned bookies that take no data now; they will as soon as they are back."""
    facts = context.facts
    oldest_ms = facts.now_ms - millis_of(facts.settings.grace)
    for presence, how in ((Presence.READ_ONLY, "read-only"), (Presence.OFFLINE, "not registered")):
        for bookie in facts.notable:
            if bookie.presence is presence and bookie.assigned is False and bookie.since_ms <= oldest_ms:
                where = _IN_QUARANTINE if bookie.bookie in facts.quarantined else "in no group"
                summary = f"bookie {bookie.bookie} of {facts.cluster} is {how} and {where}"
                yield _report(context, IDLE, Severity.INFO, presence.value, bookie.bookie, summary)


def _check_missing(context: IsolationAlertContext) -> Iterator[Condition]:
    facts, after = context.facts, context.facts.settings.member_missing_after
    oldest_ms = facts.now_ms - millis_of(after)
    assigned = ((b, _missing_since(b)) for b in facts.notable if b.assigned)
    missing = [bookie for bookie, since_ms in assigned if since_ms is not None and since_ms <= oldest_ms]
    for bookie, groups in _add_groups(context, missing):
        place = f"bookie {bookie.bookie} of {facts.cluster} is in {name_groups(groups)}"
        reason, summary = "not_registered", f"{place}, but is not registered"
        if after:
            summary = f"{place}, but has not been registered for {format_duration(after)} or longer"
        if bookie.never_joined:
            reason, summary = "never_registered", f"{place}, put there in advance: it has never registered"
            if meant := [name for name, entry in facts.portless.items() if entry == bookie.bookie]:
                reason, lacks = "rack_entry", "the rack entry lacks the port, so"
                summary = f"{place}, and only {list_names(meant, len(meant))} is registered: {lacks} it fits no bookie"
        labels = {"groups": ",".join(groups[:NAMED_LIMIT])}
        yield _report(context, MISSING, Severity.WARNING, reason, bookie.bookie, summary, labels)


def _check_joined(context: IsolationAlertContext) -> Iterator[Condition]:
    """Bookies that joined a group that was waiting for them, for a while after; nobody has to act."""
    facts = context.facts
    oldest_ms = facts.now_ms - millis_of(facts.settings.member_missing_after)
    joined = [b for b in facts.notable if b.assigned and (b.joined_in_place_ms or NEVER) > oldest_ms]
    for bookie, groups in _add_groups(context, joined):
        summary = (
            f"bookie {bookie.bookie} of {facts.cluster} has joined for the first time: it had been put into "
            f"{name_groups(groups)} in advance"
        )
        labels = {"groups": ",".join(groups[:NAMED_LIMIT])}
        yield _report(context, JOINED, Severity.INFO, "assigned_in_advance", bookie.bookie, summary, labels)


def _add_groups(context: IsolationAlertContext, bookies: list[BookieState]) -> Iterator[tuple[BookieState, list[str]]]:
    """Yield each of these bookies with its groups."""
    found: dict[str, list[str]] = {bookie.bookie: [] for bookie in bookies}
    for group, members in (context.facts.known.groups or ()) if bookies else ():
        for member in found.keys() & members:
            found[member].append(group)
    yield from ((bookie, found[bookie.bookie]) for bookie in bookies)


def _missing_since(bookie: BookieState) -> int | None:
    """When (milliseconds since the epoch) its registration was first missing; None if it is registered."""
    return bookie.since_ms if bookie.presence is Presence.OFFLINE else bookie.missing_ms


def check_starved(context: IsolationAlertContext) -> Iterator[Condition]:
    """Quarantined bookies with which a namespace could place its data: as many as the namespace lacks."""
    membership = context.facts.kept.membership
    quarantined = sorted(membership.quarantined() & membership.writable - membership.assigned())
    starved: dict[str, str] = {}
    for judged in context.judgement.kept:
        missing = judged.ensemble_size - judged.placed.count
        if judged.placed.takes_unassigned and 0 < missing <= len(quarantined):
            starved = dict.fromkeys(quarantined[:missing], judged.namespaces[0]) | starved
    for bookie, namespace in starved.items():
        summary = (
            f"bookie {bookie} of {context.facts.cluster} is in quarantine, and without it {namespace} cannot place its "
            f"data: run `pulsar-admin bookies delete-bookie-rack --bookie {bookie}` to give it back"
        )
        labels = {"namespaces": namespace}
        yield _report(context, STARVES, Severity.CRITICAL, "starved", bookie, summary, labels)


def _check_overdue(context: IsolationAlertContext) -> Iterator[Condition]:
    facts = context.facts
    for order, since_ms in _find_pending(context):
        if facts.now_ms >= since_ms + OVERDUE_MS and order.mode is Mode.ACTIVE:
            overdue = format_duration(timedelta(milliseconds=OVERDUE_MS))
            since = f"was ordered into quarantine {overdue} or longer ago, and is not there"
            summary = f"bookie {order.bookie} of {facts.cluster} {since}"
            yield _report(context, OVERDUE, Severity.WARNING, "not_carried_out", order.bookie, summary)


def _find_pending(context: IsolationAlertContext) -> Iterator[tuple[QuarantineOrder, int]]:
    """Yield the orders that are not carried out, and since when an actuator can: only while the bookie is writable."""
    orders = [order for order in context.orders if order.is_pending(context.facts.quarantined)]
    bookies = context.facts.known.bookies if orders else ()
    writable = {b.bookie: b.since_ms for b in bookies if b.presence is Presence.WRITABLE}
    for order in orders:
        if order.bookie in writable:
            yield order, max(order.since_ms, writable[order.bookie])


def _report(
    context: IsolationAlertContext, alert: str, severity: Severity, reason: str, bookie: str, summary: str,
    labels: dict[str, str] | None = None,
) -> Condition:  # fmt: skip
    return context.condition(alert, severity, reason, summary, bookie, {"bookie": bookie, **(labels or {})})
