"""Alert conditions of the isolation policy.

Conditions rest on confirmed facts only: a bookie that is missing from a single reading still counts as present. Missing
data neither raises nor resolves an alert: while the readings of a condition are stale, its last state stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from heapq import merge, nsmallest
from itertools import islice
from typing import Any

from policies.alerts import AlertEntry, Condition, Gathered
from policies.confirmation import Doubt
from policies.decisions import Mode, Severity
from policies.isolation.alert_kinds import (
    ABOUT_BOOKIES,
    ABOUT_NAMESPACES,
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
    UNCONFIRMED,
    UNREAD,
    IsolationAlertContext,
)
from policies.isolation.decisions import QUARANTINE_GROUP, PlacementVerdict
from policies.isolation.judge import IsolationFacts, PlacementJudgement
from policies.isolation.messages import (
    NAMED_LIMIT,
    explain_placement,
    explain_portless,
    find_next_verdict,
    list_names,
    name_groups,
)
from policies.isolation.state import NEVER, NODE, BookieClusterState, BookieState, Presence, QuarantineOrder, is_cookie
from policies.observations import name_failure
from policies.units import counted, counted_with, format_duration, format_second, from_millis, millis_of

# Alerts about bookies: in no group, gone, joined, or not quarantined as decided.

OVERDUE_MS = 60_000
"""A quarantine order that is not carried out by then is overdue."""
_IN_QUARANTINE = "in quarantine until an operator puts it into a group"


def _report_no_groups(context: IsolationAlertContext) -> Condition:
    """Report that the cluster puts no bookie into a group; critical while namespaces ask for groups."""
    facts = context.facts
    names = [name for judged in context.placements if judged.affinity.is_isolating for name in judged.namespaces]
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
    facts = context.facts
    grace_ms = millis_of(facts.settings.grace)
    unassigned = [b for b in facts.notable if b.takes_data and b.assigned is False]
    if not unassigned:
        return
    severity, exposed, labels = _find_exposed(context)
    for bookie in unassigned:
        # While readings lack a bookie, its time without a group does not grow.
        if bookie.since_ms + grace_ms > facts.missing.get(bookie.bookie, facts.now_ms):
            continue
        subject = f"bookie {bookie.bookie} of {facts.cluster}"
        if bookie.bookie in facts.quarantined:
            summary = f"{subject} is {_IN_QUARANTINE}"
            yield _report_bookie(context, UNASSIGNED, Severity.WARNING, "quarantined", bookie.bookie, summary)
        else:
            summary = f"{subject} takes data and is in no group"
            if bookie.bookie in facts.portless:
                summary += f"; {explain_portless(bookie.bookie)}"
            summary += exposed
            yield _report_bookie(context, UNASSIGNED, severity, "unassigned", bookie.bookie, summary, labels)


def _find_exposed(context: IsolationAlertContext) -> tuple[Severity, str, dict[str, str]]:
    """Find the isolated namespaces that can place data on bookies in no group: a severity, a clause and labels.

    The rules do not distinguish bookies in no group, so the answer is the same for each of them.
    """
    isolating = (j for j in context.placements if j.affinity.is_isolating)
    exposed = [j for j in isolating if j.placed.takes_unassigned and j.placed.feasible]
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
                yield _report_bookie(context, IDLE, Severity.INFO, presence.value, bookie.bookie, summary)


def _check_missing(context: IsolationAlertContext) -> Iterator[Condition]:
    facts, after = context.facts, context.facts.settings.member_missing_after
    oldest_ms = facts.now_ms - millis_of(after)
    assigned = ((b, _missing_since(facts, b)) for b in facts.notable if b.assigned)
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
        yield _report_bookie(context, MISSING, Severity.WARNING, reason, bookie.bookie, summary, labels)


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
        yield _report_bookie(context, JOINED, Severity.INFO, "assigned_in_advance", bookie.bookie, summary, labels)


def _add_groups(context: IsolationAlertContext, bookies: list[BookieState]) -> Iterator[tuple[BookieState, list[str]]]:
    """Yield each of these bookies with its groups."""
    found: dict[str, list[str]] = {bookie.bookie: [] for bookie in bookies}
    for group, members in (context.facts.known.groups or ()) if bookies else ():
        for member in found.keys() & members:
            found[member].append(group)
    yield from ((bookie, found[bookie.bookie]) for bookie in bookies)


def _missing_since(facts: IsolationFacts, bookie: BookieState) -> int | None:
    """When (milliseconds since the epoch) its registration was first missing; None if it is registered."""
    return bookie.since_ms if bookie.presence is Presence.OFFLINE else facts.missing.get(bookie.bookie)


def _check_starved(context: IsolationAlertContext) -> Iterator[Condition]:
    """Quarantined bookies with which a namespace could place its data: as many as the namespace lacks."""
    membership = context.facts.membership
    quarantined = sorted(membership.quarantined() & membership.writable - membership.assigned())
    starved: dict[str, str] = {}
    for judged in context.placements:
        missing = judged.ensemble_size - judged.placed.count
        if judged.placed.takes_unassigned and 0 < missing <= len(quarantined):
            starved = dict.fromkeys(quarantined[:missing], judged.namespaces[0]) | starved
    for bookie, namespace in starved.items():
        summary = (
            f"bookie {bookie} of {context.facts.cluster} is in quarantine, and without it {namespace} cannot place its "
            f"data: run `pulsar-admin bookies delete-bookie-rack --bookie {bookie}` to give it back"
        )
        labels = {"namespaces": namespace}
        yield _report_bookie(context, STARVES, Severity.CRITICAL, "starved", bookie, summary, labels)


def _check_overdue(context: IsolationAlertContext) -> Iterator[Condition]:
    facts = context.facts
    for order, since_ms in _find_pending(context):
        if facts.now_ms >= since_ms + OVERDUE_MS and order.mode is Mode.ACTIVE:
            overdue = format_duration(timedelta(milliseconds=OVERDUE_MS))
            since = f"was ordered into quarantine {overdue} or longer ago, and is not there"
            summary = f"bookie {order.bookie} of {facts.cluster} {since}"
            yield _report_bookie(context, OVERDUE, Severity.WARNING, "not_carried_out", order.bookie, summary)


def _find_pending(context: IsolationAlertContext) -> Iterator[tuple[QuarantineOrder, int]]:
    """Yield the orders that are not carried out, and since when an actuator can: only while the bookie is writable."""
    orders = [order for order in context.orders if order.is_pending(context.facts.quarantined)]
    bookies = context.facts.known.bookies if orders else ()
    writable = {b.bookie: b.since_ms for b in bookies if b.presence is Presence.WRITABLE}
    for order in orders:
        if order.bookie in writable:
            yield order, max(order.since_ms, writable[order.bookie])


def _report_bookie(
    context: IsolationAlertContext, alert: str, severity: Severity, reason: str, bookie: str, summary: str,
    labels: dict[str, str] | None = None,
) -> Condition:  # fmt: skip
    return context.condition(alert, severity, reason, summary, bookie, {"bookie": bookie, **(labels or {})})


_READINGS: Mapping[str, tuple[str, str]] = {
    "bookies": ("the registered bookies", "registered bookie"),
    "racks": ("the bookie groups", "grouped bookie"),
    "affinity": ("the affinities of namespaces", "namespace"),
}
"""How alerts word a kind of reading, and one of its members."""


def conditions(context: IsolationAlertContext) -> Iterator[Condition | Gathered[Any]]:
    """All conditions that hold now; those about bookies rest on fresh readings of registrations and groups."""
    facts = context.facts
    yield from _check_readings(context)
    yield from _check_doubts(context)
    if facts.has_fresh_registrations:
        if facts.known.racks_status.read_ms == NEVER or facts.membership.has_groups:
            yield context.gather(UNASSIGNED, _check_unassigned(context))
            yield context.gather(IDLE, _check_idle(context))
        elif facts.known.bookies:
            yield _report_no_groups(context)
        yield context.gather(MISSING, _check_missing(context))
        yield context.gather(JOINED, _check_joined(context))
        if facts.settings.mode is Mode.ACTIVE:
            yield context.gather(OVERDUE, _check_overdue(context))
    if facts.is_fresh:
        yield from _check_namespaces(context)
        yield context.gather(STARVES, _check_starved(context))


def keep_unknown(facts: IsolationFacts, entry: AlertEntry) -> Condition | None:
    """Return the condition of an open alert as it was last published, while the readings of it are stale."""
    is_unknown = entry.alert in ABOUT_BOOKIES and not facts.has_fresh_registrations
    is_unknown = is_unknown or (entry.alert in ABOUT_NAMESPACES and not facts.is_fresh)
    return entry.as_condition() if is_unknown else None


def due_ms(context: IsolationAlertContext) -> Iterator[int]:
    """When (milliseconds since the epoch) a condition may begin or end without a reading; some may be past."""
    facts, settings = context.facts, context.facts.settings
    validity_ms, missing_after_ms = millis_of(settings.validity), millis_of(settings.member_missing_after)
    yield context.started_ms + validity_ms
    yield from (status.read_ms + validity_ms for status in facts.known.statuses.values() if status.read_ms != NEVER)
    each = (doubt for status in facts.known.statuses.values() for doubt in status.doubts)
    yield from {doubt.since_ms + _lasting_ms(facts) for doubt in each if doubt.is_contradicted}
    for bookie in facts.notable:
        if bookie.assigned is False:
            yield bookie.since_ms + millis_of(settings.grace)
        elif bookie.assigned and (missing_ms := _missing_since(facts, bookie)) is not None:
            yield missing_ms + missing_after_ms
        if bookie.joined_in_place_ms is not None:
            yield bookie.joined_in_place_ms + missing_after_ms
    yield from (since_ms + OVERDUE_MS for _, since_ms in _find_pending(context))


def _check_readings(context: IsolationAlertContext) -> Iterator[Condition]:
    """One condition for the cluster if any of the three readings has been stale for `validity`."""
    facts, validity = context.facts, context.facts.settings.validity
    unread = {
        name: status
        for name, status in facts.stale.items()
        if facts.now_ms - max(status.read_ms, context.started_ms) >= millis_of(validity)
    }
    if not unread:
        return
    why = {name: name_failure(status.outcome) for name, status in unread.items()}
    which = " and ".join(f"{_READINGS[name][0]} ({why[name]})" for name in unread)
    yield context.condition(
        UNREAD,
        Severity.WARNING,
        next(iter(why.values())),
        f"{which} of {facts.cluster} have not been read for {format_duration(validity)} or longer: Headgate decides "
        "nothing new that rests on them",
        labels={"readings": ",".join(unread)},
        evidence=tuple(status.tried_id for status in unread.values() if status.tried_id),
    )


def _check_doubts(context: IsolationAlertContext) -> Iterator[Condition]:
    """One condition for the cluster while most of a reading is doubted, or readings keep contradicting each other."""
    facts, known = context.facts, context.facts.known
    lasting_ms = facts.now_ms - _lasting_ms(facts)
    odd = {kind: list(_find_odd(known, kind)) for kind in known.statuses}
    found = {
        kind: doubts
        for kind, doubts in odd.items()
        if _are_most(known, kind, doubts) or any(d.is_contradicted and d.since_ms <= lasting_ms for d in doubts)
    }
    if not found:
        return
    since = format_second(from_millis(min(doubt.since_ms for doubts in found.values() for doubt in doubts)))
    yield context.condition(
        UNCONFIRMED,
        Severity.WARNING,
        "unconfirmed",
        f"since {since} readings of {facts.cluster} contradict what was confirmed about "
        f"{' and '.join(_describe_doubts(kind, doubts) for kind, doubts in found.items())}: that counts until two "
        f"readings in a row, {format_duration(facts.settings.confirm_after)} apart, agree",
        labels={"readings": ",".join(found)},
        evidence=tuple(known.statuses[kind].tried_id for kind in found),
    )


def _lasting_ms(facts: IsolationFacts) -> int:
    """How long readings must contradict each other for an alert: two ordinary doubts in a row end before that."""
    return millis_of(max(facts.settings.member_missing_after, 3 * facts.settings.confirm_after))


def _find_odd(known: BookieClusterState, kind: str) -> Iterator[Doubt]:
    """Yield the doubts about bookies and namespaces; leave out changes and new members that no reading contradicts."""
    doubts = known.statuses[kind].doubts
    believed = known.believed(kind) if doubts else {}
    for doubt in doubts:
        is_odd = doubt.is_contradicted or doubt.shown is None or doubt.name not in believed
        is_named = doubt.name == NODE or not is_cookie(doubt.name)
        if is_odd and is_named and (doubt.name or kind == "affinity"):
            yield doubt


def _are_most(known: BookieClusterState, kind: str, doubts: Sequence[Doubt]) -> bool:
    """Whether most bookies, members of a group, or namespaces are doubted; the quarantine group may be emptied."""
    believed = [name for name in known.believed(kind) if not is_cookie(name)] if doubts else []
    names = {doubt.name for doubt in doubts if not doubt.is_new}.union({doubt.name for doubt in doubts} - {*believed})
    groups = [members for group, members in known.groups or () if kind == "racks" and group != QUARANTINE_GROUP]
    if groups:
        return any(2 * len(names.intersection(members)) > len(members) for members in groups)
    return NODE in names or 2 * len(names) > len(believed) > 0


def _describe_doubts(kind: str, doubts: Sequence[Doubt]) -> str:
    names, (things, noun) = [doubt.name or "namespaces without affinity" for doubt in doubts], _READINGS[kind]
    if NODE in names:
        return f"{things}, which have no node"
    return f"{counted(len(doubts), noun)} ({list_names(names, len(doubts))})"


def _check_namespaces(context: IsolationAlertContext) -> Iterator[Gathered[Any]]:
    cluster = context.facts.cluster
    by_alert: dict[str, list[tuple[str, PlacementJudgement]]] = {}
    for judged in context.placements:
        for alert in _find_alerts(judged):
            by_alert.setdefault(alert, []).extend((namespace, judged) for namespace in judged.namespaces)
    for alert, namespaces in by_alert.items():
        subjects = ((f"{cluster}/{namespace}", (namespace, judged)) for namespace, judged in namespaces)
        report, summarize = partial(_report, context, alert), partial(_summarize, context, alert)
        yield Gathered(alert, cluster, subjects, report, summarize)


def _summarize(context: IsolationAlertContext, alert: str, many: Sequence[tuple[str, PlacementJudgement]]) -> Condition:
    return context.summarize(alert, [namespace for namespace, _ in many], _report(context, alert, many[0]))


def _find_alerts(judged: PlacementJudgement) -> Iterator[str]:
    headroom = judged.placed.headroom
    if not headroom:
        yield INFEASIBLE
    if judged.verdict is PlacementVerdict.LEAKS:
        yield LEAK
    if headroom == 1 and judged.verdict is not PlacementVerdict.UNCONSTRAINED:
        yield HEADROOM


def _report(context: IsolationAlertContext, alert: str, item: tuple[str, PlacementJudgement]) -> Condition:
    namespace, judged = item
    severity, what = Severity.CRITICAL, explain_placement(judged)
    if alert == HEADROOM:
        is_last = find_next_verdict(judged) is PlacementVerdict.INFEASIBLE
        then = "can no longer place its data" if is_last else "must reach further"
        severity, what = Severity.WARNING, f"{then} when one more of its bookies is lost; now it {what}"
    summary = f"{namespace} of {context.facts.cluster} {what}"
    return context.condition(alert, severity, judged.reason.value, summary, namespace, {"namespace": namespace})
