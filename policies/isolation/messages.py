"""Builds explanations from the values that decided, with counts and lists kept short."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Literal

from policies.decisions import Mode
from policies.isolation.decisions import (
    QUARANTINE_GROUP,
    PlacementReason,
    PlacementVerdict,
    QuarantineReason,
    QuarantineVerdict,
    Tier,
)
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.membership import AffinityGroups
from policies.isolation.rules import RuleSet
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import QuarantineOrder
from policies.units import counted, format_duration

NAMED_LIMIT = 5
"""A sentence about one thing names at most so many of a kind, and counts the others."""
MOST_SINGLY = 10
"""More than so many of one kind at once are said in one, with a count and the first so many names."""
WORST_FIRST = (
    PlacementVerdict.INFEASIBLE,
    PlacementVerdict.LEAKS,
    PlacementVerdict.SPILLS_TO_SECONDARY,
    PlacementVerdict.ASKED_FOR,
    PlacementVerdict.UNCONSTRAINED,
    PlacementVerdict.ISOLATED,
)


def listed(first: Iterable[str], count: int, limit: int = NAMED_LIMIT) -> str:
    """``a, b, c, d, e and 12 more``, of so many in all."""
    names = list(first)[:limit]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more


def bookies_named(bookies: Collection[str]) -> str:
    """The first few by name."""
    return listed(nsmallest(NAMED_LIMIT, bookies), len(bookies))


def groups_named(kind: Literal["primary", "secondary"], affinity: AffinityGroups) -> str:
    """``primary group default``, ``secondary groups a, b``."""
    groups = affinity.primary if kind == "primary" else affinity.secondary
    return f"{kind} group{'s' if len(groups) > 1 else ''} {bookies_named(groups)}"


def explain_placement(judged: PlacementJudgement) -> str:
    """The rest of a sentence that begins with a namespace, without its full stop."""
    asked = "; strict is asked for, and no released Pulsar reads that" if judged.asked_strict else ""
    return f"{_explained(judged)}{asked}"


def explain_summary(cluster: str, by_verdict: Mapping[str, int], first: Sequence[str], changed_count: int) -> str:
    """How many namespaces stand how, and which changed."""
    stand = ", ".join(f"{count} {verdict}" for verdict, count in by_verdict.items())
    changed = f"; {changed_count} changed: {listed(first, changed_count, MOST_SINGLY)}" if changed_count else ""
    return f"Namespaces of {cluster}: {stand or 'none with affinity'}{changed}."


def _explained(judged: PlacementJudgement) -> str:
    match judged.verdict:
        case PlacementVerdict.UNCONSTRAINED:
            return _unconstrained(judged)
        case PlacementVerdict.INFEASIBLE:
            return f"cannot place its data: {_may_use(judged)}"
        case PlacementVerdict.LEAKS:
            return _leaks(judged)
        case PlacementVerdict.SPILLS_TO_SECONDARY:
            return f"{_reaches(judged)} {_beyond(judged)}: {_primary(judged)}"
        case PlacementVerdict.ISOLATED | PlacementVerdict.ASKED_FOR:
            return _isolated(judged)


def explain_quarantine(order: QuarantineOrder, settings: IsolationSettings) -> str:
    """What is to be done about a bookie, and why."""
    allowed = _allowed(settings.max_quarantined)
    reasons = {
        QuarantineReason.FEWER: "and others are decided on one by one, as far as they are still in no group",
        QuarantineReason.UNASSIGNED: f"has been in no group for {format_duration(settings.grace)} or longer",
        QuarantineReason.MAX_QUARANTINED: f"is in no group, but {allowed}",
        QuarantineReason.WOULD_BE_INFEASIBLE: f"is in no group, but without it {order.starved} could not place data",
        QuarantineReason.NO_GROUPS: "is in no group, but the cluster has none, and the first would constrain everyone",
        QuarantineReason.ASSIGNED: "is in a group now",
        QuarantineReason.GONE: "is no longer registered",
        QuarantineReason.SWITCHED_OFF: "is no longer of concern: quarantine is switched off",
    }
    what = {
        QuarantineVerdict.QUARANTINE: f"it should be put into {QUARANTINE_GROUP}{_unless(order, settings)}",
        QuarantineVerdict.WITHHOLD: "it is left to a person",
        QuarantineVerdict.LIFT: "nothing is to be done about it",
    }
    if order.bookies:
        return _explain_many(order, allowed)
    return f"Bookie {order.bookie} {reasons[order.reason]}: {what[order.verdict]}."


def _unless(order: QuarantineOrder, settings: IsolationSettings) -> str:
    """Decided is not done: why nobody carries it out, as far as is known here."""
    if order.mode is Mode.SHADOW:
        return "; this is shadow mode, nothing is carried out"
    return "; no actuator is set for this cluster" if settings.has_actuator is False else ""


def _allowed(max_quarantined: int) -> str:
    if not max_quarantined:
        return "max_quarantined allows none"
    allowed = f"the {counted(max_quarantined, 'bookie')} that max_quarantined allows"
    are, their = ("is", "its") if max_quarantined == 1 else ("are", "their")
    return f"{allowed} {are} in quarantine or on {their} way there"


def _explain_many(order: QuarantineOrder, allowed: str) -> str:
    named = listed(order.bookies, order.count, MOST_SINGLY)
    if order.verdict is QuarantineVerdict.LIFT:
        return f"What was decided on {counted(order.count, 'bookie')} together no longer stands: {named}."
    reasons = {
        QuarantineReason.MAX_QUARANTINED: allowed,
        QuarantineReason.WOULD_BE_INFEASIBLE: f"without one more of them {order.starved} could not place data",
        QuarantineReason.NO_GROUPS: "the cluster has no groups, and the first would constrain everyone",
    }
    return f"{counted(order.count, 'bookie')} are in no group and left to a person: {reasons[order.reason]} ({named})."


def _unconstrained(judged: PlacementJudgement) -> str:
    reasons = {
        PlacementReason.NO_GROUPS: "the cluster has no groups",
        PlacementReason.NO_AFFINITY: "it has no affinity",
        PlacementReason.ANY_GROUP: "its primary group is *",
    }
    short = "" if judged.placed.feasible else f", too few for the {judged.ensemble_size} a ledger needs"
    return f"may use all of {counted(judged.writable, 'writable bookie')}{short}: {reasons[judged.reason]}"


def _may_use(judged: PlacementJudgement) -> str:
    size, count = judged.ensemble_size, judged.placed.count
    if judged.reason is PlacementReason.UNGROUPED_ONLY:
        return f"without affinity it may use {counted(count, 'bookie')} without a group, of {size} needed"
    return f"it may use {counted(count, 'bookie')} of {size} needed, and {_primary(judged)}{_secondary(judged)}"


def _leaks(judged: PlacementJudgement) -> str:
    named = listed(judged.leak, judged.leak_count)
    where = f"can place data on {counted(judged.leak_count, 'bookie')} without a group ({named})"
    if judged.rules is RuleSet.LEGACY and judged.placed.tier is not Tier.UNASSIGNED:
        where += ", which the legacy rules never exclude"
    return f"{where}: {_primary(judged)}{_secondary(judged)}"


def _reaches(judged: PlacementJudgement) -> str:
    return "reaches beyond its primary groups to" if judged.affinity.primary else "keeps to"


def _beyond(judged: PlacementJudgement) -> str:
    if judged.placed.tier is Tier.SECONDARY:
        return f"{counted(len(judged.placed.secondary), 'bookie')} of its {groups_named('secondary', judged.affinity)}"
    return f"{counted(len(judged.placed.unassigned), 'bookie')} without a group, as promised"


def _isolated(judged: PlacementJudgement) -> str:
    size = judged.ensemble_size
    if judged.reason is PlacementReason.UNGROUPED_ONLY:
        count = counted(judged.placed.count, "bookie")
        return f"has no affinity and keeps to the {count} without a group, of {size} needed"
    return f"keeps to its groups: {_primary(judged)}"


def _primary(judged: PlacementJudgement) -> str:
    writable = counted(judged.ensemble_size, "needed bookie")
    if not judged.affinity.primary:
        return f"it names no primary group for {writable}"
    return f"its {groups_named('primary', judged.affinity)} has {len(judged.placed.primary)} of {writable} writable"


def _secondary(judged: PlacementJudgement) -> str:
    if not judged.affinity.secondary:
        return ""
    return f", its {groups_named('secondary', judged.affinity)} {len(judged.placed.secondary)} more"
