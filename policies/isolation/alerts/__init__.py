"""Alert conditions of the isolation policy.

Conditions rest on confirmed facts only: a bookie that is missing from a single reading still counts as present. Missing
data neither raises nor resolves an alert: while the readings of a condition are stale, its last state stands.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from policies.alerts import Condition, gather
from policies.confirmation import MOST_CHANGES
from policies.decisions import Severity
from policies.isolation.alert_kinds import (
    DISAGREE,
    HEADROOM,
    IDLE,
    INFEASIBLE,
    LEAK,
    NO_GROUPS,
    STARVES,
    UNASSIGNED,
    UNCONFIRMED,
    UNREAD,
)
from policies.isolation.alerts import bookies
from policies.isolation.alerts.context import ABOUT_BOOKIES, ABOUT_NAMESPACES, IsolationAlertContext
from policies.isolation.counterfactuals import find_next_verdict
from policies.isolation.decisions import PlacementVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.messages import explain_placement, list_names, name_groups
from policies.isolation.state import (
    ALL_OTHERS,
    NEVER,
    VANISHED,
    BookieClusterState,
    affinity_namespace,
    split_group_member,
)
from policies.units import counted, format_duration, millis_of

__all__ = ["IsolationAlertContext", "conditions", "due_ms", "find_ends"]


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
    kept: frozenset[str] = frozenset()
    if context.facts.has_fresh_registrations:
        yield from bookies.conditions(context)
    else:
        kept |= ABOUT_BOOKIES
    if context.facts.is_fresh:
        yield from _check_namespaces(context)
        yield from context.gather(STARVES, bookies.check_starved(context))
    else:
        kept |= ABOUT_NAMESPACES
    published = (entry for entry in context.book.entries if entry.said_ms is not None)
    yield from (entry.as_condition() for entry in published if entry.alert in kept)


def find_ends(context: IsolationAlertContext, held: Collection[Condition]) -> dict[tuple[str, str], str]:
    """Why open alerts end though what they report is not over: other alerts take their place."""
    keys, cluster = {condition.key for condition in held}, context.facts.cluster
    reported_singly = {alert for alert, subject in keys if subject != cluster}
    found: dict[tuple[str, str], str] = {}
    for entry in context.book.entries:
        if entry.subject == cluster and entry.alert in reported_singly:
            found[entry.alert, cluster] = "is over as a whole: each that is left has an alert of its own"
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
    yield from bookies.due_ms(context)


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
    why = {name: status.outcome if status.outcome not in ("", "ok") else "silence" for name, status in unread.items()}
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
    pending, keys = known.pending[kind], list_keys(known)
    # A bookie that is in another group, and a namespace with another affinity, is not missing.
    others = set(map(name_of, keys - pending.missing_names() | pending.new_names()))
    missing = frozenset(key for key in pending.missing_names() if name_of(key) not in others)
    where = ""
    if kind == "racks":
        before, gone = (Counter(split_group_member(key)[0] for key in part) for part in (keys, missing))
        groups = sorted(group for group in gone if 2 * gone[group] > before[group])
        keys = frozenset(key for key in keys if split_group_member(key)[0] in groups)
        where = " of its groups" if len(groups) == len(before) else f" of its {name_groups(groups)}"
    whole = set(map(name_of, keys)) - {ALL_OTHERS}
    left = len(whole.difference(map(name_of, missing)))
    return f"{left} of {counted(len(whole), noun)}{where} {'is' if 1 in (left, len(whole)) else 'are'}"


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
    found: dict[str, list[tuple[str, PlacementJudgement]]] = {}
    for judged in context.judgement.kept:
        for alert in _find_alerts(judged):
            found.setdefault(alert, []).extend((namespace, judged) for namespace in judged.namespaces)
    for alert, each in found.items():
        subjects = ((f"{cluster}/{namespace}", (namespace, judged)) for namespace, judged in each)
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
