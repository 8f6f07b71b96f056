"""What would have to change for another verdict on a namespace or an unassigned bookie.

It follows the placement rules and the quarantine guards (docs/design/isolation.md), with the verdict's own numbers.
"""

from collections.abc import Iterator

from policies.decisions import Otherwise
from policies.isolation.decisions import PlacementReason, PlacementVerdict, QuarantineReason, QuarantineVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.settings import RuleSet
from policies.isolation.state import QuarantineOrder
from policies.units import counted, format_duration


def derive_placement_counterfactuals(judged: PlacementJudgement) -> tuple[Otherwise, ...]:
    """The next better and the next worse verdict on namespaces."""
    return (*_better(judged), *_worse(judged))


def _better(judged: PlacementJudgement) -> Iterator[Otherwise]:
    size, placed = judged.ensemble_size, judged.placed
    match judged.reason:
        case PlacementReason.NO_GROUPS:
            yield _isolated(f"the cluster has groups, and it names some with {_writable(size)}", judged)
        case PlacementReason.NO_AFFINITY:
            yield _isolated(f"it names primary groups with {_writable(size)}", judged)
        case PlacementReason.ANY_GROUP:
            yield _isolated(f"it names primary groups in place of *, with {_writable(size)}", judged)
        case PlacementReason.UNGROUPED_ONLY if not placed.feasible:
            yield _isolated(f"{size - placed.count} more of the bookies without a group are writable", judged)
        case PlacementReason.PRIMARY_SHORT | PlacementReason.TOO_FEW_BOOKIES:
            yield _isolated(f"its primary groups have {_writable(size)}, now {len(placed.primary)}", judged)
        case PlacementReason.UNASSIGNED_ELIGIBLE if len(placed.primary) >= size:
            yield _isolated(f"{counted(judged.leak_count, 'bookie')} without a group are given one")
        case PlacementReason.UNASSIGNED_ELIGIBLE:
            yield _isolated(f"its primary groups have {_writable(size)}, now {len(placed.primary)}", judged)
    if judged.verdict is PlacementVerdict.ASKED_FOR:
        yield _isolated("its brokers read `strict` (policies.isolation.rules: strict)")


def _isolated(when: str, judged: PlacementJudgement | None = None) -> Otherwise:
    """Under the legacy rules only where no bookie is without a group."""
    legacy = judged is not None and judged.rules is RuleSet.LEGACY and judged.promise is not RuleSet.LEGACY
    also = ", and no bookie is without a group: the legacy rules never exclude those" if legacy else ""
    return Otherwise(PlacementVerdict.ISOLATED.value, when + also)


def _worse(judged: PlacementJudgement) -> Iterator[Otherwise]:
    placed = judged.placed
    if judged.verdict in (PlacementVerdict.UNCONSTRAINED, PlacementVerdict.INFEASIBLE) or not placed.headroom:
        return
    of = f"of the {placed.count} it may use"
    if placed.reason is PlacementReason.PRIMARY_SUFFICES:
        of = f"of its {len(placed.primary)} primary ones"
    yield Otherwise(_next(judged).value, f"{counted(placed.headroom, 'more writable bookie')} {of} are lost")


def _next(judged: PlacementJudgement) -> PlacementVerdict:
    """What it would be with one bookie less than it needs at its tier."""
    placed = judged.placed
    if placed.reason is not PlacementReason.PRIMARY_SUFFICES:
        return PlacementVerdict.INFEASIBLE
    if judged.verdict is PlacementVerdict.LEAKS:
        return PlacementVerdict.LEAKS if len(placed.unassigned) else PlacementVerdict.INFEASIBLE
    if len(placed.secondary):
        return PlacementVerdict.SPILLS_TO_SECONDARY
    if judged.rules is RuleSet.STRICT or judged.affinity.secondary or not len(placed.unassigned):
        return PlacementVerdict.INFEASIBLE
    return PlacementVerdict.LEAKS if judged.promise is RuleSet.STRICT else PlacementVerdict.SPILLS_TO_SECONDARY


def _writable(size: int) -> str:
    return f"{counted(size, 'writable bookie')} or more"


def derive_quarantine_counterfactuals(order: QuarantineOrder, facts: IsolationFacts) -> tuple[Otherwise, ...]:
    """What would end an order, or let through one that a guard withholds."""
    put, hold, lift = QuarantineVerdict.QUARANTINE, QuarantineVerdict.WITHHOLD, QuarantineVerdict.LIFT
    again = f"in no group for {format_duration(facts.settings.grace)}"
    limit, inside = facts.settings.max_quarantined, len(facts.quarantined)
    fewer = f"fewer than {limit} are in quarantine or on their way there (now {inside}), or `max_quarantined` is more"
    starved = f"{order.starved or 'a namespace'} could place its data without it"
    by_reason: dict[QuarantineReason, tuple[tuple[QuarantineVerdict, str], ...]] = {
        QuarantineReason.UNASSIGNED: ((hold, f"{limit} are in quarantine (now {inside}), or a namespace needs it"),),
        QuarantineReason.MAX_QUARANTINED: ((put, fewer),),
        QuarantineReason.WOULD_BE_INFEASIBLE: ((put, starved),),
        QuarantineReason.NO_GROUPS: ((put, "the cluster has a group"),),
        QuarantineReason.ASSIGNED: ((put, f"it is {again}"),),
        QuarantineReason.GONE: ((put, f"it registers again and is {again}"),),
        QuarantineReason.SWITCHED_OFF: ((put, f"`quarantine` is on, and it is {again}"),),
        QuarantineReason.FEWER: ((hold, "too many to be said singly are withheld again"),),
    }
    found = by_reason[order.reason]
    if order.verdict is not lift:
        found = (*found, (lift, "somebody puts it into a group, or it is no longer registered"))
    return tuple(Otherwise(verdict.value, when) for verdict, when in found)
