"""Builds explanations from the values that decided, with counts and short lists."""

from collections.abc import Collection
from heapq import nsmallest

from policies.alerts import MOST_SINGLY
from policies.decisions import Mode
from policies.isolation.decisions import (
    QUARANTINE_GROUP,
    PlacementReason,
    PlacementVerdict,
    QuarantineReason,
    QuarantineVerdict,
    Tier,
)
from policies.isolation.judge import PlacementJudgement
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.isolation.state import QuarantineOrder
from policies.units import agreeing, counted, counted_with, format_duration, name_some

NAMED_LIMIT = 5
"""The most names of one kind in a sentence about one thing; the rest is counted."""
WORST_FIRST = (
    PlacementVerdict.INFEASIBLE,
    PlacementVerdict.LEAKS,
    PlacementVerdict.SPILLS_TO_SECONDARY,
    PlacementVerdict.ASKED_FOR,
    PlacementVerdict.UNCONSTRAINED,
    PlacementVerdict.ISOLATED,
)
_WHY_UNCONSTRAINED = {
    PlacementReason.NO_GROUPS: "the cluster has no groups",
    PlacementReason.NO_AFFINITY: "it has no affinity",
    PlacementReason.ANY_GROUP: "its primary group is *",
}


def explain_placement(judged: PlacementJudgement) -> str:
    """The rest of a sentence that begins with a namespace, without its full stop."""
    size, placed, bookies = judged.ensemble_size, judged.placed, counted(judged.placed.count, "bookie")
    match judged.verdict:
        case PlacementVerdict.UNCONSTRAINED:
            short = "" if placed.feasible else f", too few for the {size} a ledger needs"
            writable = counted(judged.writable, "writable bookie")
            explained = f"may use all of {writable}{short}: {_WHY_UNCONSTRAINED[judged.reason]}"
        case PlacementVerdict.INFEASIBLE if judged.reason is PlacementReason.UNGROUPED_ONLY:
            explained = (
                f"cannot place its data: without affinity it may use {bookies} without a group, of {size} needed"
            )
        case PlacementVerdict.INFEASIBLE:
            explained = f"cannot place its data: it may use {bookies} of {size} needed, and {_explain_groups(judged)}"
        case PlacementVerdict.LEAKS:
            named = name_some(judged.leak, NAMED_LIMIT, judged.leak_count)
            always = ", which the legacy rules never exclude" if judged.rules is RuleSet.LEGACY else ""
            why = f"{always}: {_explain_groups(judged)}"
            explained = f"can place data on {counted(judged.leak_count, 'bookie')} without a group ({named}){why}"
        case PlacementVerdict.SPILLS_TO_SECONDARY:
            explained = _explain_spill(judged)
        case _ if judged.reason is PlacementReason.UNGROUPED_ONLY:
            explained = f"has no affinity and keeps to the {bookies} without a group, of {size} needed"
        case _:
            explained = f"keeps to {_name_owner(judged)} groups: {_explain_primary(judged)}"
    if judged.asked_strict:
        explained += "; strict is asked for, and no released Pulsar reads that"
    if judged.is_ensemble_assumed:
        explained += f"; its policies were not found, so its ensemble is not known, and {size} is assumed"
    return explained


def _explain_spill(judged: PlacementJudgement) -> str:
    placed, affinity, owner = judged.placed, judged.affinity, _name_owner(judged)
    reaches = f"reaches beyond {owner} primary groups to" if affinity.primary else "keeps to"
    beyond = f"{counted(len(placed.unassigned), 'bookie')} without a group, as the promise allows"
    if placed.tier is Tier.SECONDARY:
        groups = name_groups(affinity.secondary, "secondary ")
        beyond = f"{counted(len(placed.secondary), 'bookie')} of {owner} {groups}"
    return f"{reaches} {beyond}: {_explain_primary(judged)}"


def _explain_groups(judged: PlacementJudgement) -> str:
    groups, explained = judged.affinity.secondary, _explain_primary(judged)
    if groups:
        count, more = len(judged.placed.secondary), " more" if judged.affinity.primary else ""
        verb = agreeing(len(groups), "has", "have")
        explained += f", and {_name_owner(judged)} {name_groups(groups, 'secondary ')} {verb} {count}{more}"
    return explained


def _explain_primary(judged: PlacementJudgement) -> str:
    needed, groups, count = judged.ensemble_size, judged.affinity.primary, len(judged.placed.primary)
    if not groups:
        names = "it has no affinity, its brokers name" if judged.is_broker_wide else "it names"
        return f"{names} no primary group, and it needs {counted(needed, 'bookie')}"
    why = "it has no affinity, and " if judged.is_broker_wide else ""
    has = f"{why}{_name_owner(judged)} {name_groups(groups, 'primary ')} {agreeing(len(groups), 'has', 'have')}"
    if count < needed:
        return f"{has} {count} of {counted(needed, 'needed bookie')} writable"
    return f"{has} {counted(count, 'writable bookie')}, and {needed} {agreeing(needed, 'is', 'are')} needed"


def _name_owner(judged: PlacementJudgement) -> str:
    return "its brokers'" if judged.is_broker_wide else "its"


def name_groups(groups: Collection[str], kind: str = "") -> str:
    """``group default``; with the kind ``secondary ``: ``secondary groups a, b``."""
    named = name_some(nsmallest(NAMED_LIMIT, groups), NAMED_LIMIT, len(groups))
    return f"{kind}group{'s' if len(groups) > 1 else ''} {named}"


def explain_portless(bookie: str) -> str:
    """The mistake in the racks behind a bookie that is in no group."""
    return f"a group lists {bookie.rpartition(':')[0]} (the rack entry lacks the port)"


def explain_quarantine(order: QuarantineOrder, settings: IsolationSettings) -> str:
    """What to do with a bookie, or with many, and why."""
    allowed, is_one = "max_quarantined allows none", not order.bookies
    if most := settings.max_quarantined:
        are = agreeing(most, "is in quarantine or on its way there", "are in quarantine or on their way there")
        allowed = f"the {counted(most, 'bookie')} that max_quarantined allows {are}"
    without = "without it" if is_one else "with one fewer of them,"
    withheld = {
        QuarantineReason.MAX_QUARANTINED: allowed,
        QuarantineReason.WOULD_BE_INFEASIBLE: f"{without} {order.starved} could not place data",
        QuarantineReason.NO_GROUPS: "the cluster has no groups, and the first one would constrain every namespace",
        QuarantineReason.RACK_ENTRY: explain_portless(order.bookie) if is_one else "their rack entries lack the port",
    }
    if order.bookies:
        named = name_some(order.bookies, MOST_SINGLY, order.count)
        if order.verdict is QuarantineVerdict.LIFT:
            return f"The decision on {counted(order.count, 'bookie')} together is withdrawn: {named}."
        many = counted_with(order.count, "bookie", "is", "are")
        return f"{many} in no group, and an operator must decide: {withheld[order.reason]} ({named})."
    for_long = f"has been in no group for {format_duration(settings.grace)} or longer"
    reasons = {
        QuarantineReason.UNASSIGNED: for_long if settings.grace else "is in no group",
        QuarantineReason.ASSIGNED: "is in a group now",
        QuarantineReason.GONE: "is no longer registered",
        QuarantineReason.SWITCHED_OFF: "is no longer to be quarantined, because quarantine is switched off",
    }
    not_done = ""
    if order.mode is Mode.SHADOW:
        why = "the policy is paused" if settings.frozen_until is not None else "this is shadow mode"
        not_done = f"; {why}, nothing is carried out"
    match order.verdict:
        case QuarantineVerdict.WITHHOLD:
            what = f"is in no group, but {withheld[order.reason]}: an operator must decide"
        case QuarantineVerdict.QUARANTINE:
            what = f"{reasons[order.reason]}: it should be put into {QUARANTINE_GROUP}{not_done}"
        case QuarantineVerdict.LIFT:
            what = f"{reasons[order.reason]}: no action is needed"
    return f"Bookie {order.bookie} {what}."
