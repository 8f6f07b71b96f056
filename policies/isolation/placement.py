"""The three rule sets by which brokers choose the bookies of a namespace, as pure functions of the membership.

`current` follows IsolatedBookieEnsemblePlacementPolicy of Pulsar 4.2, `legacy` that of 2.10. No rule depends on time or
history. Rules: docs/design/isolation.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from msgspec.structs import replace

from policies.comparison import Comparison, Relation
from policies.isolation.decisions import PlacementReason, Tier
from policies.isolation.membership import ANY_GROUP, AffinityGroups, BookieMembership, BookieSet
from policies.isolation.settings import RuleSet, Unaffine

_NO_BOOKIES = BookieSet(frozenset())


@dataclass(frozen=True)
class Placed:
    """The bookies that a rule set allows a namespace."""

    parts: tuple[BookieSet, ...]
    """The bookies it may use now, in disjoint parts."""
    tier: Tier
    """How far it must reach to find enough."""
    enough: Comparison
    """Up to that tier: the writable bookies, compared with those that a ledger needs."""
    reason: PlacementReason
    primary: BookieSet = _NO_BOOKIES
    """Writable bookies of its primary groups."""
    secondary: BookieSet = _NO_BOOKIES
    """Writable bookies of its secondary groups that are in no primary one."""
    unassigned: BookieSet = _NO_BOOKIES
    """Writable bookies in no group, whether or not it may use them."""
    secondary_members: int = 0
    """The number of bookies, dead or alive, in its secondary groups and in no primary one."""

    @property
    def feasible(self) -> bool:
        """Whether the candidates suffice for a ledger."""
        return self.enough.holds

    @property
    def headroom(self) -> int:
        """The losses of bookies until it needs the next tier; 0 if infeasible."""
        return max(0, int(self.enough.value - self.enough.threshold) + 1)

    @property
    def primary_enough(self) -> Comparison:
        """The writable primary bookies, compared with those that a ledger needs."""
        return replace(self.enough, value=len(self.primary))

    @property
    def candidates(self) -> frozenset[str]:
        """Every bookie it may use now."""
        return frozenset[str]().union(*(part.members for part in self.parts))

    @property
    def count(self) -> int:
        """The number of candidates."""
        return sum(map(len, self.parts))

    @property
    def takes_unassigned(self) -> bool:
        """Whether the rules allow it the bookies in no group."""
        return any(part is self.unassigned for part in self.parts)

    def needed_unassigned(self, ensemble_size: int) -> int:
        """The number of bookies in no group without which it has too few for a ledger."""
        if not self.takes_unassigned:
            return 0
        return max(0, ensemble_size - self.count + len(self.unassigned))


class Exclusion(StrEnum):
    """Why a namespace may not use a bookie now, in words."""

    OTHER_GROUP = "in a group that is not the namespace's"
    QUARANTINED = "in quarantine"
    SECONDARY_NOT_NEEDED = "of a secondary group; the primary ones suffice"
    UNASSIGNED_NOT_NEEDED = "in no group; the namespace's own suffice"
    UNASSIGNED_FORBIDDEN = "in no group, and the rules are strict"
    DEAD_SECONDARY_COUNTED = "in no group; brokers count dead members of the secondary groups"
    NOT_WRITABLE = "read-only or not registered"


def place(
    rules: RuleSet,
    membership: BookieMembership,
    affinity: AffinityGroups | None,
    ensemble_size: int,
    unaffine: Unaffine,
) -> Placed:
    """Return the bookies a namespace may use now, and the tier it needs to find enough.

    Args:
        membership: the writable bookies and the groups.
        affinity: the namespace's groups; None or empty if it has no affinity. With secondary groups only, brokers find
            that the primary ones have too few bookies.
        ensemble_size: the bookies a ledger needs, at least 1.
        unaffine: where a namespace without affinity places its data.
    """
    reason = _find_freedom(membership, affinity, unaffine)
    if affinity and reason is None:
        return _place_by_groups(rules, membership, affinity, ensemble_size)
    if reason is not None:
        candidates, tier, unassigned = membership.all_writable, Tier.PRIMARY, _NO_BOOKIES
    else:
        candidates = unassigned = membership.unassigned
        reason, tier = PlacementReason.UNGROUPED_ONLY, Tier.UNASSIGNED
    enough = Comparison(len(candidates), Relation.AT_LEAST, ensemble_size)
    tier = tier if enough.holds else Tier.NONE
    return Placed(parts=(candidates,), tier=tier, enough=enough, reason=reason, unassigned=unassigned)


def classify(
    rules: RuleSet,
    membership: BookieMembership,
    affinity: AffinityGroups | None,
    ensemble_size: int,
    unaffine: Unaffine,
) -> dict[str, Tier | Exclusion]:
    """Return, for every writable or grouped bookie, the tier in which the namespace may use it, or why it may not.

    The result is sorted by bookie. If nothing constrains the namespace, every writable bookie counts as a primary one.
    """
    placed = place(rules, membership, affinity, ensemble_size, unaffine)
    groups = membership.groups or {}
    own = membership.members(affinity.primary | affinity.secondary) if affinity else frozenset()
    everyone = membership.writable.union(*groups.values())
    candidates = placed.candidates
    found: dict[str, Tier | Exclusion] = {}
    for bookie in sorted(everyone):
        if bookie in candidates:
            is_secondary, is_unassigned = (bookie in s.members for s in (placed.secondary, placed.unassigned))
            found[bookie] = Tier.SECONDARY if is_secondary else Tier.UNASSIGNED if is_unassigned else Tier.PRIMARY
        elif bookie not in membership.writable:
            found[bookie] = Exclusion.NOT_WRITABLE
        elif bookie in own:
            found[bookie] = Exclusion.SECONDARY_NOT_NEEDED
        elif bookie not in placed.unassigned.members:
            found[bookie] = Exclusion.OTHER_GROUP if bookie in membership.assigned() else Exclusion.QUARANTINED
        elif rules is RuleSet.STRICT:
            found[bookie] = Exclusion.UNASSIGNED_FORBIDDEN
        else:
            found[bookie] = Exclusion.UNASSIGNED_NOT_NEEDED if placed.feasible else Exclusion.DEAD_SECONDARY_COUNTED
    return found


def _find_freedom(
    membership: BookieMembership, affinity: AffinityGroups | None, unaffine: Unaffine
) -> PlacementReason | None:
    """Return why brokers exclude no bookie for this namespace; None if they exclude some."""
    if not membership.groups:
        return PlacementReason.NO_GROUPS
    if not affinity:
        return PlacementReason.NO_AFFINITY if unaffine is Unaffine.ANY else None
    return PlacementReason.ANY_GROUP if ANY_GROUP in affinity.primary else None


def _place_by_groups(
    rules: RuleSet, membership: BookieMembership, affinity: AffinityGroups, ensemble_size: int
) -> Placed:
    groups = membership.groups or {}
    primary = membership.serving(affinity.primary)
    secondary = membership.serving(affinity.secondary, affinity.primary)
    primary_count = len(primary)
    if rules is RuleSet.LEGACY:  # brokers count a bookie once for each of its primary groups
        primary_count = sum(len(membership.writable & groups[group]) for group in affinity.primary if group in groups)
    parts, tiers = [primary], [Tier.PRIMARY]
    if primary_count < ensemble_size:
        parts.append(secondary)
        tiers.append(Tier.SECONDARY)
    # Brokers count the members of secondary groups, even if they are dead.
    secondary_members = len(membership.members(affinity.secondary) - membership.members(affinity.primary))
    is_short = len(primary) + secondary_members < ensemble_size
    if rules is RuleSet.LEGACY or (rules is RuleSet.CURRENT and is_short):
        parts.append(membership.unassigned)
        tiers.append(Tier.UNASSIGNED)
    reached = [Comparison(count, Relation.AT_LEAST, ensemble_size) for count in accumulate(map(len, parts))]
    tier, enough = next(
        ((tier, enough) for tier, enough in zip(tiers, reached, strict=True) if enough.holds), (Tier.NONE, reached[-1])
    )
    return Placed(
        parts=tuple(parts),
        tier=tier,
        enough=enough,
        reason=_REASON_BY_TIER[tier],
        primary=primary,
        secondary=secondary,
        unassigned=membership.unassigned,
        secondary_members=secondary_members,
    )


_REASON_BY_TIER = {
    Tier.PRIMARY: PlacementReason.PRIMARY_SUFFICES,
    Tier.SECONDARY: PlacementReason.PRIMARY_SHORT,
    Tier.UNASSIGNED: PlacementReason.PRIMARY_SHORT,
    Tier.NONE: PlacementReason.TOO_FEW_BOOKIES,
}
