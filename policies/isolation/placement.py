"""Which bookies a namespace may use: the three rule sets, as functions of the membership alone.

Rules: docs/design/isolation.md; `current` follows Pulsar 4.2 (IsolatedBookieEnsemblePlacementPolicy), `legacy` 2.10.
A verdict is a function of the membership and the affinity: no clock, no history.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from policies.isolation.decisions import PlacementReason, Tier
from policies.isolation.membership import ANY_GROUP, AffinityGroups, BookieMembership, BookieSet
from policies.isolation.rules import RuleSet
from policies.isolation.settings import Unaffine

_NOBODY = BookieSet(frozenset())


@dataclass(frozen=True)
class Placed:
    """What a rule set leaves a namespace."""

    parts: tuple[BookieSet, ...]
    """Every bookie it may use now; no two parts have one in common."""
    tier: Tier
    """How far it must reach to find enough."""
    feasible: bool
    """Whether the candidates suffice for a ledger."""
    headroom: int
    """How many more losses until the next tier; 0 when infeasible."""
    reason: PlacementReason
    """Why it stands so by these rules alone."""
    primary: BookieSet = _NOBODY
    """Writable bookies of its primary groups."""
    secondary: BookieSet = _NOBODY
    """Writable bookies of its secondary groups that are in no primary one."""
    unassigned: BookieSet = _NOBODY
    """Writable bookies in no group, whether or not it may use them."""

    @property
    def candidates(self) -> frozenset[str]:
        """Every bookie it may use now."""
        return frozenset[str]().union(*(part.members for part in self.parts))

    @property
    def count(self) -> int:
        """How many those are."""
        return sum(map(len, self.parts))

    @property
    def takes_unassigned(self) -> bool:
        """Whether it may use the bookies in no group as such."""
        return any(part is self.unassigned for part in self.parts)

    def needed_unassigned(self, ensemble_size: int) -> int:
        """How many bookies in no group must be left it for a ledger."""
        if not self.takes_unassigned:
            return 0
        return max(0, ensemble_size - self.count + len(self.unassigned))


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
    rules: RuleSet,
    membership: BookieMembership,
    affinity: AffinityGroups | None,
    ensemble_size: int,
    unaffine: Unaffine,
) -> Placed:
    """Which bookies a namespace may use now, and how far it must reach.

    Args:
        rules: the rule set.
        membership: who takes new data and who is in which group.
        affinity: the namespace's groups; None, or none named: it has none. Of secondary ones alone, brokers find their
            primary ones to be short.
        ensemble_size: how many bookies a ledger needs, at least 1.
        unaffine: where a namespace without affinity places its data.
    """
    free = _unconstrained(membership, affinity, unaffine)
    if free is not None:
        return _whole(membership.all_writable, free, ensemble_size)
    if not affinity:
        return _ungrouped(membership, ensemble_size)
    return _by_groups(rules, membership, affinity, ensemble_size)


def classify(
    rules: RuleSet,
    membership: BookieMembership,
    affinity: AffinityGroups | None,
    ensemble_size: int,
    unaffine: Unaffine,
) -> dict[str, Tier | Exclusion]:
    """For every writable or grouped bookie, sorted: the tier by which the namespace may use it, or why it may not.

    Where nothing constrains the namespace, every writable bookie serves as a primary one.
    """
    placed = place(rules, membership, affinity, ensemble_size, unaffine)
    groups = membership.groups or {}
    own = membership.members(affinity.primary | affinity.secondary) if affinity else frozenset()
    everyone = membership.writable.union(*groups.values())
    candidates = placed.candidates
    return {bookie: _standing(bookie, rules, membership, placed, candidates, own) for bookie in sorted(everyone)}


def _unconstrained(
    membership: BookieMembership, affinity: AffinityGroups | None, unaffine: Unaffine
) -> PlacementReason | None:
    """Why brokers exclude nothing for this namespace, or None where they do."""
    if not membership.groups:
        return PlacementReason.NO_GROUPS
    if not affinity:
        return PlacementReason.NO_AFFINITY if unaffine is Unaffine.ANY else None
    return PlacementReason.ANY_GROUP if ANY_GROUP in affinity.primary else None


def _whole(writable: BookieSet, reason: PlacementReason, ensemble_size: int) -> Placed:
    feasible = len(writable) >= ensemble_size
    tier = Tier.PRIMARY if feasible else Tier.NONE
    return Placed((writable,), tier, feasible, _headroom(len(writable), ensemble_size), reason)


def _ungrouped(membership: BookieMembership, ensemble_size: int) -> Placed:
    free = membership.unassigned
    feasible = len(free) >= ensemble_size
    tier = Tier.UNASSIGNED if feasible else Tier.NONE
    headroom = _headroom(len(free), ensemble_size)
    return Placed((free,), tier, feasible, headroom, PlacementReason.UNGROUPED_ONLY, unassigned=free)


def _by_groups(rules: RuleSet, membership: BookieMembership, affinity: AffinityGroups, ensemble_size: int) -> Placed:
    primary = membership.serving(affinity.primary)
    secondary = membership.serving(affinity.secondary, affinity.primary)
    parts, tiers = [primary], [Tier.PRIMARY]
    if _primary_count(rules, membership, affinity) < ensemble_size:
        parts.append(secondary)
        tiers.append(Tier.SECONDARY)
    if rules is RuleSet.LEGACY or (
        rules is RuleSet.CURRENT and _counted_by_brokers(primary, membership, affinity) < ensemble_size
    ):
        parts.append(membership.unassigned)
        tiers.append(Tier.UNASSIGNED)
    reached = accumulate(map(len, parts))
    tier, serving = next(((t, n) for t, n in zip(tiers, reached, strict=True) if n >= ensemble_size), (Tier.NONE, 0))
    return Placed(
        parts=tuple(parts),
        tier=tier,
        feasible=tier is not Tier.NONE,
        headroom=_headroom(serving, ensemble_size),
        reason=_REASON_BY_TIER[tier],
        primary=primary,
        secondary=secondary,
        unassigned=membership.unassigned,
    )


def _counted_by_brokers(primary: BookieSet, membership: BookieMembership, affinity: AffinityGroups) -> int:
    """They count a secondary member as soon as it is in its group, registered or not."""
    of_secondary, of_primary = membership.members(affinity.secondary), membership.members(affinity.primary)
    return len(primary) + len(of_secondary) - len(of_secondary & of_primary)


_REASON_BY_TIER = {
    Tier.PRIMARY: PlacementReason.PRIMARY_SUFFICES,
    Tier.SECONDARY: PlacementReason.PRIMARY_SHORT,
    Tier.UNASSIGNED: PlacementReason.PRIMARY_SHORT,
    Tier.NONE: PlacementReason.TOO_FEW_BOOKIES,
}


def _primary_count(rules: RuleSet, membership: BookieMembership, affinity: AffinityGroups) -> int:
    """How many primary bookies brokers count: each once, but in `legacy` once for each of its primary groups."""
    if rules is not RuleSet.LEGACY:
        return len(membership.serving(affinity.primary))
    groups = membership.groups or {}
    return sum(len(membership.writable & groups[group]) for group in affinity.primary if group in groups)


def _headroom(serving: int, ensemble_size: int) -> int:
    return max(0, serving - ensemble_size + 1)


def _standing(
    bookie: str,
    rules: RuleSet,
    membership: BookieMembership,
    placed: Placed,
    candidates: frozenset[str],
    own: frozenset[str],
) -> Tier | Exclusion:
    if bookie not in membership.writable:
        return Exclusion.NOT_WRITABLE
    if bookie in candidates:
        return _tier_of(bookie, placed)
    if bookie in own:
        return Exclusion.SECONDARY_NOT_NEEDED
    if bookie not in placed.unassigned.members:
        return Exclusion.OTHER_GROUP if bookie in membership.assigned() else Exclusion.QUARANTINED
    if rules is RuleSet.STRICT:
        return Exclusion.UNASSIGNED_FORBIDDEN
    return Exclusion.UNASSIGNED_NOT_NEEDED if placed.feasible else Exclusion.DEAD_SECONDARY_COUNTED


def _tier_of(bookie: str, placed: Placed) -> Tier:
    if bookie in placed.secondary.members:
        return Tier.SECONDARY
    return Tier.UNASSIGNED if bookie in placed.unassigned.members else Tier.PRIMARY
