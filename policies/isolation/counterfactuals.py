"""The counterfactuals of a decision: the conditions for another verdict on a namespace or an unassigned bookie.

They are worded from the comparisons that the placement rules and the quarantine guards make.
"""

from collections.abc import Iterator

from policies.decisions import Otherwise
from policies.isolation.decisions import PlacementReason, PlacementVerdict, QuarantineReason, QuarantineVerdict, Tier
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.judge.quarantine import limit_quarantined
from policies.isolation.settings import RuleSet
from policies.isolation.state import QuarantineOrder
from policies.units import agreeing, counted, counted_with, format_duration


def derive_placement_counterfactuals(judged: PlacementJudgement) -> tuple[Otherwise, ...]:
    """Name the condition for isolation, then the losses that lead to the next worse verdict."""
    is_asked = judged.asked_strict and judged.verdict is not PlacementVerdict.ASKED_FOR
    best = PlacementVerdict.ASKED_FOR if is_asked else PlacementVerdict.ISOLATED
    isolated = (Otherwise(best.value, when) for when in _name_isolation(judged))
    return (*isolated, *_name_losses(judged))


def _name_isolation(judged: PlacementJudgement) -> Iterator[str]:
    placed = judged.placed
    enough = placed.primary_enough.describe(lambda count: counted(int(count), "writable bookie"))
    in_primary = f"its primary groups have {enough}, now {len(placed.primary)}"
    is_legacy = judged.rules is RuleSet.LEGACY and judged.promise is not RuleSet.LEGACY
    also = ", and no bookie is without a group: the legacy rules never exclude those" if is_legacy else ""
    match judged.reason:
        case PlacementReason.NO_GROUPS:
            yield f"the cluster has groups, and it names some with {enough}{also}"
        case PlacementReason.NO_AFFINITY:
            yield f"it names primary groups with {enough}{also}"
        case PlacementReason.ANY_GROUP:
            yield f"it names primary groups in place of *, with {enough}{also}"
        case PlacementReason.UNGROUPED_ONLY if not placed.feasible:
            missing = int(placed.enough.threshold - placed.enough.value)
            more = counted_with(missing, "more writable bookie", "is", "are")
            yield f"{more} in no group{also}"
        case PlacementReason.UNASSIGNED_ELIGIBLE if placed.primary_enough.holds:
            count = judged.leak_count
            yield f"{counted(count, 'bookie')} without a group {agreeing(count, 'is', 'are')} given one"
        case PlacementReason.PRIMARY_SHORT | PlacementReason.TOO_FEW_BOOKIES | PlacementReason.UNASSIGNED_ELIGIBLE:
            yield f"{in_primary}{also}"
    if judged.verdict is PlacementVerdict.ASKED_FOR:
        yield "its brokers read `strict` (policies.isolation.rules: strict)"


def _name_losses(judged: PlacementJudgement) -> Iterator[Otherwise]:
    placed, verdict = judged.placed, find_next_verdict(judged)
    if judged.verdict in (PlacementVerdict.UNCONSTRAINED, verdict) or not placed.headroom:
        return
    of = f"of the {placed.count} it may use"
    if placed.tier is Tier.PRIMARY:
        of = f"of its {counted(len(placed.primary), 'primary one')}"
    elif placed.tier is Tier.SECONDARY:
        of = f"of the {len(placed.primary) + len(placed.secondary)} of its groups"
    lost = f"{counted(placed.headroom, 'more writable bookie')} {of} {agreeing(placed.headroom, 'is', 'are')} lost"
    yield Otherwise(verdict.value, lost)


def find_next_verdict(judged: PlacementJudgement) -> PlacementVerdict:
    """Return the worst verdict with one bookie less than its tier needs."""
    placed, is_primary = judged.placed, judged.placed.tier is Tier.PRIMARY
    # The current rules reach for bookies in no group only if no secondary member exists, not even a dead one.
    reaches_unassigned = {
        RuleSet.LEGACY: placed.tier is not Tier.UNASSIGNED,
        RuleSet.CURRENT: is_primary and not placed.secondary_members,
        RuleSet.STRICT: False,
    }
    if len(placed.unassigned) and reaches_unassigned[judged.rules]:
        allowed = judged.promise is RuleSet.LEGACY or (
            judged.promise is RuleSet.CURRENT and not placed.secondary_members
        )
        return PlacementVerdict.SPILLS_TO_SECONDARY if allowed else PlacementVerdict.LEAKS
    is_served = is_primary and len(placed.secondary)
    return PlacementVerdict.SPILLS_TO_SECONDARY if is_served else PlacementVerdict.INFEASIBLE


def derive_quarantine_counterfactuals(
    order: QuarantineOrder, facts: IsolationFacts, taken_count: int
) -> tuple[Otherwise, ...]:
    """Name the conditions that end an order, or let a withheld quarantine pass its guard.

    Args:
        taken_count: the number of bookies that are in quarantine, or have an order to be.
    """
    put, hold, lift = QuarantineVerdict.QUARANTINE, QuarantineVerdict.WITHHOLD, QuarantineVerdict.LIFT
    again = f"in no group for {format_duration(facts.settings.grace)}" if facts.settings.grace else "in no group"
    limit = limit_quarantined(taken_count, facts.settings)
    most, inside = facts.settings.max_quarantined, len(facts.quarantined - {order.bookie})
    full = f"{counted_with(most, 'other bookie', 'is', 'are')} in quarantine (now {inside})"
    room = f"`max_quarantined` is more than {most}"
    if most:
        room = f"{limit.describe(str, is_count=True)} are in quarantine or on their way (now {taken_count}), or {room}"
    by_reason: dict[QuarantineReason, tuple[QuarantineVerdict, str]] = {
        QuarantineReason.UNASSIGNED: (hold, f"{full}, or a namespace needs it"),
        QuarantineReason.MAX_QUARANTINED: (put, room),
        QuarantineReason.WOULD_BE_INFEASIBLE: (put, f"{order.starved or 'a namespace'} could do without it"),
        QuarantineReason.NO_GROUPS: (put, "the cluster has a group"),
        QuarantineReason.RACK_ENTRY: (put, "no group lists its host without a port"),
        QuarantineReason.ASSIGNED: (put, f"it is {again}"),
        QuarantineReason.GONE: (put, f"it registers again and is {again}"),
        QuarantineReason.SWITCHED_OFF: (put, f"`quarantine` is on, and it is {again}"),
        QuarantineReason.FEWER: (hold, "more than ten bookies are withheld again"),
    }
    found = [by_reason[order.reason]]
    if order.verdict is not lift:
        found.append((lift, "an operator puts it into a group, or it is no longer registered"))
    return tuple(Otherwise(verdict.value, when) for verdict, when in found)
