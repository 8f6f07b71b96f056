"""Which bookies a namespace may use: the three rule sets, as functions of the membership alone.

Rules: docs/design/isolation.md; `current` follows Pulsar 4.2 (IsolatedBookieEnsemblePlacementPolicy), `legacy` 2.10.
A verdict is a function of the membership and the affinity: no clock, no history.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from policies.isolation.decision import QUARANTINE_GROUP, PlacementReason, Tier
from policies.isolation.settings import Rules, Unaffine

ANY_GROUP = "*"
"""As a primary group: every bookie."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Who takes new data, and who is in which group."""

    writable: frozenset[str]
    groups: Mapping[str, frozenset[str]] | None
    """Members by group, unregistered ones too; null when none are known or there is no znode `/bookies`."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """The groups a namespace may place its data on. Without a primary one it has no affinity."""

    primary: frozenset[str]
    secondary: frozenset[str]


@dataclass(frozen=True, slots=True)
class Placed:
    """What a rule set leaves a namespace."""

    candidates: frozenset[str]
    """Every bookie it may use now."""
    tier: Tier
    """How far it must reach to find enough."""
    feasible: bool
    """Whether the candidates suffice for a ledger."""
    headroom: int
    """How many more losses until the next tier; 0 when infeasible."""
    reason: PlacementReason
    """Why it stands so by these rules alone."""
    primary: frozenset[str] = frozenset()
    """Writable bookies of its primary groups."""
    secondary: frozenset[str] = frozenset()
    """Writable bookies of its secondary groups that are in no primary one."""
    unassigned: frozenset[str] = frozenset()
    """Writable bookies in no group, whether or not it may use them."""


class Exclusion(StrEnum):
    """Why a namespace may not use a bookie now."""

    OTHER_GROUP = "other_group"
    """It is in a group, and in none of the namespace's."""
    QUARANTINED = "quarantined"
    """It is in the quarantine group alone."""
    SECONDARY_NOT_NEEDED = "secondary_not_needed"
    """The primary groups suffice, as brokers count them."""
    UNASSIGNED_NOT_NEEDED = "unassigned_not_needed"
    """It is in no group, and the namespace's groups suffice."""
    UNASSIGNED_FORBIDDEN = "unassigned_forbidden"
    """It is in no group, and the rules are strict."""
    DEAD_SECONDARY_COUNTED = "dead_secondary_counted"
    """It is in no group; the namespace's groups fall short, but brokers count dead members of the secondary ones."""
    NOT_WRITABLE = "not_writable"
    """It is in a group, but read-only or not registered."""


def place(
    rules: Rules, membership: Membership, affinity: Affinity | None, ensemble_size: int, unaffine: Unaffine
) -> Placed:
    """Which bookies a namespace may use now, and how far it must reach.

    Args:
        rules: the rule set.
        membership: who takes new data and who is in which group.
        affinity: the namespace's groups; null, or without a primary one: it has none.
        ensemble_size: how many bookies a ledger needs, at least 1.
        unaffine: where a namespace without affinity places its data.
    """
    free = _unconstrained(membership, affinity, unaffine)
    if free is not None:
        return _whole(membership.writable, free, ensemble_size)
    if affinity is None or not affinity.primary:
        return _ungrouped(membership, ensemble_size)
    return _by_groups(rules, membership, affinity, ensemble_size)


def classify(
    rules: Rules, membership: Membership, affinity: Affinity | None, ensemble_size: int, unaffine: Unaffine
) -> dict[str, Tier | Exclusion]:
    """For every writable or grouped bookie, sorted: the tier by which the namespace may use it, or why it may not.

    Where nothing constrains the namespace, every writable bookie serves as a primary one.
    """
    placed = place(rules, membership, affinity, ensemble_size, unaffine)
    groups = membership.groups or {}
    own = members(membership, affinity.primary | affinity.secondary) if affinity and affinity.primary else frozenset()
    everyone = membership.writable.union(*groups.values())
    return {bookie: _standing(bookie, rules, membership, placed, own) for bookie in sorted(everyone)}


def members(membership: Membership, groups: Set[str]) -> frozenset[str]:
    """All bookies in any of these groups, writable or not."""
    known = membership.groups or {}
    return frozenset[str]().union(*(known[group] for group in groups if group in known))


def grouped(membership: Membership) -> frozenset[str]:
    """All bookies in any group, the quarantine group included."""
    return frozenset[str]().union(*(membership.groups or {}).values())


def assigned(membership: Membership) -> frozenset[str]:
    """All bookies that a person put into a group: in any but the quarantine group."""
    groups = membership.groups or {}
    return frozenset[str]().union(*(bookies for group, bookies in groups.items() if group != QUARANTINE_GROUP))


def _unconstrained(membership: Membership, affinity: Affinity | None, unaffine: Unaffine) -> PlacementReason | None:
    """Why brokers exclude nothing for this namespace, or null where they do."""
    if not membership.groups:
        return PlacementReason.NO_GROUPS
    if affinity is None or not affinity.primary:
        return PlacementReason.NO_AFFINITY if unaffine is Unaffine.ANY else None
    return PlacementReason.ANY_GROUP if ANY_GROUP in affinity.primary else None


def _whole(writable: frozenset[str], reason: PlacementReason, ensemble_size: int) -> Placed:
    feasible = len(writable) >= ensemble_size
    tier = Tier.PRIMARY if feasible else Tier.NONE
    return Placed(writable, tier, feasible, _headroom(len(writable), ensemble_size), reason)


def _ungrouped(membership: Membership, ensemble_size: int) -> Placed:
    free = membership.writable - grouped(membership)
    feasible = len(free) >= ensemble_size
    tier = Tier.UNASSIGNED if feasible else Tier.NONE
    headroom = _headroom(len(free), ensemble_size)
    return Placed(free, tier, feasible, headroom, PlacementReason.UNGROUPED_ONLY, unassigned=free)


def _by_groups(rules: Rules, membership: Membership, affinity: Affinity, ensemble_size: int) -> Placed:
    primary_members = members(membership, affinity.primary)
    secondary_members = members(membership, affinity.secondary) - primary_members
    primary = membership.writable & primary_members
    secondary = membership.writable & secondary_members
    unassigned = membership.writable - grouped(membership)
    with_secondary = _primary_count(rules, membership, affinity) < ensemble_size
    with_unassigned = rules is Rules.LEGACY or (
        # Brokers count a secondary member as soon as it is in its group, registered or not.
        rules is Rules.CURRENT and len(primary) + len(secondary_members) < ensemble_size
    )
    reach = [(Tier.PRIMARY, primary)]
    if with_secondary:
        reach.append((Tier.SECONDARY, primary | secondary))
    if with_unassigned:
        reach.append((Tier.UNASSIGNED, reach[-1][1] | unassigned))
    tier, serving = next(((t, b) for t, b in reach if len(b) >= ensemble_size), (Tier.NONE, frozenset[str]()))
    return Placed(
        candidates=reach[-1][1],
        tier=tier,
        feasible=tier is not Tier.NONE,
        headroom=_headroom(len(serving), ensemble_size),
        reason=_REASON_BY_TIER[tier],
        primary=primary,
        secondary=secondary,
        unassigned=unassigned,
    )


_REASON_BY_TIER = {
    Tier.PRIMARY: PlacementReason.PRIMARY_SUFFICES,
    Tier.SECONDARY: PlacementReason.PRIMARY_SHORT,
    Tier.UNASSIGNED: PlacementReason.PRIMARY_SHORT,
    Tier.NONE: PlacementReason.TOO_FEW_BOOKIES,
}


def _primary_count(rules: Rules, membership: Membership, affinity: Affinity) -> int:
    """How many primary bookies brokers count: each once, but in `legacy` once for each of its primary groups."""
    if rules is not Rules.LEGACY:
        return len(membership.writable & members(membership, affinity.primary))
    groups = membership.groups or {}
    return sum(len(membership.writable & groups[group]) for group in affinity.primary if group in groups)


def _headroom(serving: int, ensemble_size: int) -> int:
    return max(0, serving - ensemble_size + 1)


def _standing(
    bookie: str, rules: Rules, membership: Membership, placed: Placed, own: frozenset[str]
) -> Tier | Exclusion:
    if bookie not in membership.writable:
        return Exclusion.NOT_WRITABLE
    if bookie in placed.candidates:
        return _tier_of(bookie, placed)
    if bookie in own:
        return Exclusion.SECONDARY_NOT_NEEDED
    if bookie not in placed.unassigned:
        return Exclusion.OTHER_GROUP if bookie in assigned(membership) else Exclusion.QUARANTINED
    if rules is Rules.STRICT:
        return Exclusion.UNASSIGNED_FORBIDDEN
    return Exclusion.UNASSIGNED_NOT_NEEDED if placed.feasible else Exclusion.DEAD_SECONDARY_COUNTED


def _tier_of(bookie: str, placed: Placed) -> Tier:
    if bookie in placed.secondary:
        return Tier.SECONDARY
    return Tier.UNASSIGNED if bookie in placed.unassigned else Tier.PRIMARY
