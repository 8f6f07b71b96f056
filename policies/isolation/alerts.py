"""Alert conditions of the isolation policy.

Conditions rest on confirmed facts only: a bookie that is missing from a single reading still counts as present. Missing
data neither raises nor resolves an alert: while the readings of a condition are stale, its last state stands.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from heapq import merge, nsmallest
from itertools import islice
from typing import NamedTuple

from policies.alerts import Condition, gather
from policies.confirmation import MOST_CHANGES
from policies.decisions import Mode, Severity
from policies.isolation.alert_kinds import (
    ABOUT_BOOKIES,
    ABOUT_NAMESPACES,
    DISAGREE,
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
from policies.isolation.decisions import PlacementVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import PlacementJudgement
from policies.isolation.messages import (
    NAMED_LIMIT,
    explain_placement,
    explain_portless,
    find_next_verdict,
    list_names,
    name_groups,
)
from policies.isolation.state import (
    ALL_OTHERS,
    NEVER,
    VANISHED,
    BookieClusterState,
    BookieState,
    Presence,
    QuarantineOrder,
    affinity_namespace,
    split_group_member,
)
from policies.observations import name_failure
from policies.units import counted, counted_with, format_duration, millis_of

# Alerts about bookies: in no group, gone, joined, or not quarantined as decided.

OVERDUE_MS = 60_000
"""A quarantine order that is not carried out by then is overdue."""
_IN_QUARANTINE = "in quarantine until an operator puts it into a group"


def bookie_conditions(context: IsolationAlertContext) -> Iterator[Condition]:
    """Return all conditions about bookies that hold now; the readings of registrations and groups must be fresh."""
    facts = context.facts
    asking = [judged for judged in context.judgement.for_alerts if judged.affinity.is_isolating]
    # A critical alert does not end because of one reading, which may be of another cluster.
    membership = facts.for_alerts.membership if asking else facts.membership
    if facts.known.racks_status.read_ms == NEVER or membership.has_groups:
        yield from context.gather(UNASSIGNED, _check_unassigned(context))
        yield from context.gather(IDLE, _check_idle(context))
    elif facts.known.bookies:
        yield _report_no_groups(context, [name for judged in asking for name in judged.namespaces])
    yield from context.gather(MISSING, _check_missing(context))
    yield from context.gather(JOINED, _check_joined(context))
    if facts.settings.mode is Mode.ACTIVE:
        yield from context.gather(OVERDUE, _check_overdue(context))


def bookies_due_ms(context: IsolationAlertContext) -> Iterator[int]:
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
            yield _report_bookie(context, UNASSIGNED, Severity.WARNING, "quarantined", bookie.bookie, summary)
        else:
            summary = f"{subject} takes data and is in no group"
            if bookie.bookie in facts.portless:
                summary += f"; {explain_portless(bookie.bookie)}"
            if bookie.bookie in doubtful:
                yield _report_bookie(context, UNASSIGNED, Severity.WARNING, "unassigned", bookie.bookie, summary)
                continue
            summary += exposed
            yield _report_bookie(context, UNASSIGNED, severity, "unassigned", bookie.bookie, summary, labels)


def _find_exposed(context: IsolationAlertContext) -> tuple[Severity, str, dict[str, str]]:
    """Find the isolated namespaces that can place data on bookies in no group: a severity, a clause and labels.

    The rules do not distinguish bookies in no group, so the answer is the same for each of them.
    """
    isolating = (j for j in context.judgement.for_alerts if j.affinity.is_isolating)
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


def _missing_since(bookie: BookieState) -> int | None:
    """When (milliseconds since the epoch) its registration was first missing; None if it is registered."""
    return bookie.since_ms if bookie.presence is Presence.OFFLINE else bookie.missing_ms


def check_starved(context: IsolationAlertContext) -> Iterator[Condition]:
    """Quarantined bookies with which a namespace could place its data: as many as the namespace lacks."""
    membership = context.facts.for_alerts.membership
    quarantined = sorted(membership.quarantined() & membership.writable - membership.assigned())
    starved: dict[str, str] = {}
    for judged in context.judgement.for_alerts:
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


class _ReadingKind(NamedTuple):
    """How alerts word a kind of reading."""

    things: str
    noun: str
    """One of them."""
    list_keys: Callable[[BookieClusterState], frozenset[str]]
    """Returns the confirmed entries while a reading waits, by the keys of its pending differences."""
    name_of: Callable[[str], str]
    """Returns the bookie or namespace of a key."""


_READINGS: Mapping[str, _ReadingKind] = {
    "bookies": _ReadingKind("the registered bookies", "registered bookie", BookieClusterState.registered, str),
    "racks": _ReadingKind(
        "the bookie groups", "member", BookieClusterState.group_members, lambda key: split_group_member(key)[1]
    ),
    "affinity": _ReadingKind(
        "the affinities of namespaces", "namespace", BookieClusterState.affinities, affinity_namespace
    ),
}
_SUCCESSORS = {
    UNCONFIRMED: (UNREAD, DISAGREE),
    HEADROOM: (INFEASIBLE, LEAK),
    UNASSIGNED: (IDLE, NO_GROUPS),
    IDLE: (UNASSIGNED, NO_GROUPS),
}
"""The alerts that report the same thing after it has become worse, or other."""
_OF_CLUSTER = frozenset({UNREAD, DISAGREE, NO_GROUPS})
"""Alerts about a cluster as a whole, never about one of its bookies or namespaces."""


def conditions(context: IsolationAlertContext) -> Iterator[Condition]:
    """All conditions that hold now."""
    yield from _check_readings(context)
    yield from _check_vanished(context)
    yield from _check_disputed(context)
    unknown: frozenset[str] = frozenset()
    if context.facts.has_fresh_registrations:
        yield from bookie_conditions(context)
    else:
        unknown |= ABOUT_BOOKIES
    if context.facts.is_fresh:
        yield from _check_namespaces(context)
        yield from context.gather(STARVES, check_starved(context))
    else:
        unknown |= ABOUT_NAMESPACES
    published = (entry for entry in context.book.entries if entry.said_ms is not None)
    yield from (entry.as_condition() for entry in published if entry.alert in unknown)


def find_ends(context: IsolationAlertContext, held: Collection[Condition]) -> dict[tuple[str, str], str]:
    """Why open alerts end though what they report is not over: other alerts take their place."""
    keys, cluster = {condition.key for condition in held}, context.facts.cluster
    over = "is over as a whole: each that is left has an alert of its own"
    found = {(alert, cluster): over for alert, subject in keys if subject != cluster}
    for entry in context.book.entries:
        for alert in _SUCCESSORS.get(entry.alert, ()):
            subject = cluster if alert in _OF_CLUSTER else entry.subject
            if (alert, subject) in keys:
                found[entry.alert, entry.subject] = f"has become {alert} of {subject}"
    return found


def due_ms(context: IsolationAlertContext) -> Iterator[int]:
    """When (milliseconds since the epoch) a condition may begin to hold without a reading; some may be past."""
    validity_ms = millis_of(context.facts.settings.validity)
    yield context.started_ms + validity_ms
    statuses = context.facts.known.statuses.values()
    yield from (status.read_ms + validity_ms for status in statuses if status.read_ms != NEVER)
    disputes = context.facts.known.disputes()
    for _, pending in disputes:
        if pending.disputed_ms != NEVER:
            yield pending.disputed_ms + validity_ms
        yield from (ms + validity_ms for _, times, ms in pending.changes if times > MOST_CHANGES)
    yield from bookies_due_ms(context)


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
    words = {VANISHED: "not confirmed"}
    which = " and ".join(f"{_READINGS[name].things} ({words.get(why[name], why[name])})" for name in unread)
    yield context.condition(
        UNREAD,
        Severity.WARNING,
        next(iter(why.values())),
        f"{which} of {facts.cluster} have not been read for {format_duration(validity)} or longer: Headgate decides "
        "nothing new that rests on them",
        labels={"readings": ",".join(unread)},
        evidence=tuple(status.tried_id for status in unread.values() if status.tried_id),
    )


def _check_vanished(context: IsolationAlertContext) -> Iterator[Condition]:
    """One condition for the cluster while readings with contradictions, or without most entries, wait."""
    facts, known = context.facts, context.facts.known
    if unstable := list(_find_unstable(facts)):
        yield context.condition(
            UNCONFIRMED,
            Severity.WARNING,
            "unstable",
            f"by the readings of {facts.cluster}, {' and '.join(what for what, _ in unstable)}: each further change "
            f"counts when the readings have shown it for {format_duration(facts.settings.confirm_after)}",
            evidence=tuple(tried_id for _, tried_id in unstable),
        )
        return
    since_ms = (known.vanished_ms, known.groups_vanished_ms, known.affinity_vanished_ms)
    waiting = [kind for kind, ms in zip(_READINGS, since_ms, strict=True) if ms is not None]
    if vanished := [_describe_vanished(known, kind) for kind in waiting if kind not in facts.disputed]:
        yield context.condition(
            UNCONFIRMED,
            Severity.WARNING,
            VANISHED,
            f"by the last reading of {facts.cluster} {'; '.join(what for what, _ in vanished)}: that counts when "
            f"another reading, {format_duration(facts.settings.confirm_after)} later, confirms it",
            evidence=tuple(tried_id for _, tried_id in vanished),
        )


def _describe_vanished(known: BookieClusterState, kind: str) -> tuple[str, str]:
    """Describe the reading that waits, and return its id, too."""
    status, new = known.statuses[kind], len(known.pending[kind].new)
    if known.pending[kind].is_empty and status.read_ms != NEVER:
        return f"most of {_READINGS[kind].things} are back after a reading without them", status.tried_id
    if status.read_ms == NEVER:
        return f"there is no node with {_READINGS[kind].things}", status.tried_id
    strangers = f", and {counted(new, 'unknown one')} came" if new else ""
    return f"{_count_left(known, kind)} left{strangers}", status.tried_id


def _find_unstable(facts: IsolationFacts) -> Iterator[tuple[str, str]]:
    """Yield the things that come and go from reading to reading, in words, with the id of the last reading."""
    for kind, pending in facts.known.disputes():
        keys = pending.unstable_names(facts.now_ms, millis_of(facts.settings.validity))
        if keys and kind not in facts.disputed:
            names = sorted({_READINGS[kind].name_of(key) for key in keys})
            listed = list_names(names, len(names))
            yield (
                f"{_READINGS[kind].things} have changed again and again ({listed})",
                facts.known.statuses[kind].tried_id,
            )


def _count_left(known: BookieClusterState, kind: str) -> str:
    """Count the confirmed entries that the last reading still has: ``1 of 3 members of its group vip is``."""
    _, noun, list_keys, name_of = _READINGS[kind]
    pending, confirmed = known.pending[kind], list_keys(known)
    # A bookie that moved to another group, and a namespace with another affinity, is not missing.
    listed = set(map(name_of, confirmed - pending.missing_names() | pending.new_names()))
    missing = frozenset(key for key in pending.missing_names() if name_of(key) not in listed)
    where = ""
    if kind == "racks":  # count only the groups that lost more than half of their members
        size, lost = (Counter(split_group_member(key)[0] for key in keys) for keys in (confirmed, missing))
        halved = sorted(group for group in lost if 2 * lost[group] > size[group])
        confirmed = frozenset(key for key in confirmed if split_group_member(key)[0] in halved)
        where = " of its groups" if len(halved) == len(size) else f" of its {name_groups(halved)}"
    names = set(map(name_of, confirmed)) - {ALL_OTHERS}
    left_count = len(names.difference(map(name_of, missing)))
    is_are = "is" if 1 in (left_count, len(names)) else "are"
    return f"{left_count} of {counted(len(names), noun)}{where} {is_are}"


def _check_disputed(context: IsolationAlertContext) -> Iterator[Condition]:
    """One condition for the cluster while two collectors publish readings that contradict each other."""
    facts = context.facts
    for kind, sources in list(facts.disputed.items())[:1]:
        names = " and ".join(sources)
        which = " and ".join(_READINGS[each].things for each in facts.disputed)
        yield context.condition(
            DISAGREE,
            Severity.WARNING,
            "contradiction",
            f"the collectors {names} disagree about {which} of {facts.cluster}: what was confirmed last counts until "
            f"they have agreed for {format_duration(facts.settings.validity)}",
            labels={"sources": ",".join(sources), "readings": ",".join(facts.disputed)},
            evidence=(facts.known.statuses[kind].tried_id,),
        )


def _check_namespaces(context: IsolationAlertContext) -> Iterator[Condition]:
    cluster = context.facts.cluster
    by_alert: dict[str, list[tuple[str, PlacementJudgement]]] = {}
    for judged in context.judgement.for_alerts:
        for alert in _find_alerts(judged):
            by_alert.setdefault(alert, []).extend((namespace, judged) for namespace in judged.namespaces)
    for alert, namespaces in by_alert.items():
        subjects = ((f"{cluster}/{namespace}", (namespace, judged)) for namespace, judged in namespaces)
        singly, many = gather(context.book, alert, cluster, subjects)
        yield from (_report(context, alert, namespace, judged) for namespace, judged in singly)
        if many:
            yield context.summarize(alert, [namespace for namespace, _ in many], _report(context, alert, *many[0]))


def _find_alerts(judged: PlacementJudgement) -> Iterator[str]:
    headroom = judged.placed.headroom
    if not headroom:
        yield INFEASIBLE
    if judged.verdict is PlacementVerdict.LEAKS:
        yield LEAK
    if headroom == 1 and judged.verdict is not PlacementVerdict.UNCONSTRAINED:
        yield HEADROOM


def _report(context: IsolationAlertContext, alert: str, namespace: str, judged: PlacementJudgement) -> Condition:
    severity, what = Severity.CRITICAL, explain_placement(judged)
    if alert == HEADROOM:
        is_last = find_next_verdict(judged) is PlacementVerdict.INFEASIBLE
        then = "can no longer place its data" if is_last else "must reach further"
        severity, what = Severity.WARNING, f"{then} when one more of its bookies is lost; now it {what}"
    summary = f"{namespace} of {context.facts.cluster} {what}"
    return context.condition(alert, severity, judged.reason.value, summary, namespace, {"namespace": namespace})
