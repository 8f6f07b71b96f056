"""The three rule sets by which brokers choose the bookies of a namespace, as pure functions of the membership.

`current` follows IsolatedBookieEnsemblePlacementPolicy of Pulsar 4.2, `legacy` that of 2.10. No rule depends on time or
history. Rules: docs/design/isolation.md.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import msgspec

from policies.isolation.decisions import QUARANTINE_GROUP, PlacementReason, Tier
from policies.isolation.settings import RuleSet, Unaffine
from policies.units import UserError

# The bookies that take new data, the members of each group, and the groups that a namespace names.

ANY_GROUP = "*"
"""As a primary group, it stands for every bookie."""
LISTED_LIMIT = 1_000
"""The most names in one list of a decision; a separate field has the whole count."""
_LISTED_BYTES = 250_000
"""The most bytes of names in one list: three such lists fit into a record."""


class BookieSet:
    """A set of bookies, shared by all namespaces that may use them, so that its sorted names and digest cost once."""

    def __init__(self, members: frozenset[str]) -> None:
        self.members = members

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The ids, sorted."""
        return tuple(sorted(self.members))

    @cached_property
    def digest(self) -> bytes:
        """Differs for different members."""
        return hashlib.blake2b("\n".join(self.names).encode(), digest_size=8).digest()


_Groups = tuple[str, ...]


@dataclass(frozen=True)
class BookieMembership:
    """The bookies that take new data, and the members of each group."""

    writable: frozenset[str]
    groups: Mapping[str, frozenset[str]]
    """Members by group, including unregistered ones; empty if there is no znode `/bookies`, or it is not known."""
    _members: dict[_Groups, frozenset[str]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _serving: dict[tuple[_Groups, _Groups], BookieSet] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def members(self, groups: _Groups) -> frozenset[str]:
        """All bookies in any of these groups, writable or not."""
        if groups not in self._members:
            known = (self.groups[group] for group in groups if group in self.groups)
            self._members[groups] = frozenset[str]().union(*known)
        return self._members[groups]

    def serving(self, groups: _Groups, but: _Groups = ()) -> BookieSet:
        """The writable bookies in any of `groups` and in none of `but`."""
        if self.members(but).isdisjoint(self.members(groups)):
            but = ()
        key = (groups, but)
        if key not in self._serving:
            self._serving[key] = BookieSet(self.writable & self.members(groups) - self.members(but))
        return self._serving[key]

    @cached_property
    def all_writable(self) -> BookieSet:
        """Every bookie that takes new data."""
        return BookieSet(self.writable)

    @cached_property
    def unassigned(self) -> BookieSet:
        """The writable bookies in no group at all."""
        return BookieSet(self.writable - self.grouped())

    @property
    def has_groups(self) -> bool:
        """Whether any bookie is in a group."""
        return any(self.groups.values())

    def grouped(self) -> frozenset[str]:
        """All bookies in any group, the quarantine group included."""
        return frozenset[str]().union(*self.groups.values())

    def assigned(self) -> frozenset[str]:
        """All bookies in any group but the quarantine group: an operator put them there."""
        by_operators = (bookies for group, bookies in self.groups.items() if group != QUARANTINE_GROUP)
        return frozenset[str]().union(*by_operators)

    def quarantined(self) -> frozenset[str]:
        """All bookies in the quarantine group, including those that are in another group, too."""
        return self.groups.get(QUARANTINE_GROUP, frozenset())


class AffinityGroups(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The groups a namespace may place its data on; a namespace without any has no affinity."""

    primary: tuple[str, ...]
    secondary: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether it names any group, even if only a secondary one."""
        return bool(self.primary or self.secondary)

    @property
    def is_isolating(self) -> bool:
        """Whether it restricts the namespace to some bookies: it names a group, and no primary one is `*`."""
        return bool(self) and ANY_GROUP not in self.primary


NO_GROUPS = AffinityGroups((), ())


def list_first(parts: Sequence[BookieSet]) -> tuple[str, ...]:
    """Return the first names of all parts together that fit into a record, sorted."""
    names = sorted(name for part in parts for name in part.names[:LISTED_LIMIT])[:LISTED_LIMIT]
    ends = accumulate(len(msgspec.json.encode(name)) + 1 for name in names)
    return tuple(name for name, end in zip(names, ends, strict=True) if end <= _LISTED_BYTES)


_NO_BOOKIES = BookieSet(frozenset())


@dataclass(frozen=True)
class Placed:
    """The bookies that a rule set allows a namespace."""

    parts: tuple[BookieSet, ...]
    """The bookies it may use now, in disjoint parts."""
    tier: Tier
    """How far it must reach to find enough."""
    reached: int
    """The writable bookies up to that tier."""
    ensemble_size: int
    """The bookies that a ledger needs."""
    reason: PlacementReason
    primary: BookieSet = _NO_BOOKIES
    """Writable bookies of its primary groups."""
    secondary: BookieSet = _NO_BOOKIES
    """Writable bookies of its secondary groups that are in no primary one."""
    unassigned: BookieSet = _NO_BOOKIES
    """Writable bookies in no group, whether or not it may use them."""

    @property
    def feasible(self) -> bool:
        """Whether the candidates suffice for a ledger."""
        return self.reached >= self.ensemble_size

    @property
    def headroom(self) -> int:
        """The losses of bookies until it needs the next tier; 0 if infeasible."""
        return max(0, self.reached - self.ensemble_size + 1)

    @property
    def candidates(self) -> frozenset[str]:
        """Every bookie it may use now."""
        return frozenset[str]().union(*(part.members for part in self.parts))

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The first of them that fit into a record, sorted."""
        return list_first(self.parts)

    @property
    def count(self) -> int:
        """The number of candidates."""
        return sum(map(len, self.parts))

    @property
    def takes_unassigned(self) -> bool:
        """Whether the rules allow it the bookies in no group."""
        return any(part is self.unassigned for part in self.parts)


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
    rules: RuleSet, membership: BookieMembership, affinity: AffinityGroups, ensemble_size: int, unaffine: Unaffine
) -> Placed:
    """Return the bookies a namespace may use now, and the tier it needs to find enough.

    Args:
        membership: the writable bookies and the groups.
        affinity: the namespace's groups; empty if it has no affinity. With secondary groups only, brokers find that the
            primary ones have too few bookies.
        ensemble_size: the bookies a ledger needs, at least 1.
        unaffine: where a namespace without affinity places its data.
    """
    if membership.groups and affinity.is_isolating:
        return _place_by_groups(rules, membership, affinity, ensemble_size)
    candidates, unassigned, tier = membership.all_writable, _NO_BOOKIES, Tier.PRIMARY
    if not membership.groups:
        reason = PlacementReason.NO_GROUPS
    elif affinity:
        reason = PlacementReason.ANY_GROUP
    elif unaffine is Unaffine.ANY:
        reason = PlacementReason.NO_AFFINITY
    else:
        candidates = unassigned = membership.unassigned
        reason, tier = PlacementReason.UNGROUPED_ONLY, Tier.UNASSIGNED
    return Placed(
        parts=(candidates,),
        tier=tier if len(candidates) >= ensemble_size else Tier.NONE,
        reached=len(candidates),
        ensemble_size=ensemble_size,
        reason=reason,
        unassigned=unassigned,
    )


def classify(
    placed: Placed, rules: RuleSet, membership: BookieMembership, affinity: AffinityGroups
) -> dict[str, Tier | Exclusion]:
    """Return, for every writable or grouped bookie, the tier in which the namespace may use it, or why it may not.

    The result is sorted by bookie. If nothing constrains the namespace, every writable bookie counts as a primary one.
    `placed` is what these rules, membership and affinity allow it.
    """
    own = membership.members(affinity.primary + affinity.secondary)
    everyone, assigned = membership.writable | membership.grouped(), membership.assigned()
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
            found[bookie] = Exclusion.OTHER_GROUP if bookie in assigned else Exclusion.QUARANTINED
        elif rules is RuleSet.STRICT:
            found[bookie] = Exclusion.UNASSIGNED_FORBIDDEN
        else:
            found[bookie] = Exclusion.UNASSIGNED_NOT_NEEDED if placed.feasible else Exclusion.DEAD_SECONDARY_COUNTED
    return found


def _place_by_groups(
    rules: RuleSet, membership: BookieMembership, affinity: AffinityGroups, ensemble_size: int
) -> Placed:
    groups = membership.groups
    primary = membership.serving(affinity.primary)
    secondary = membership.serving(affinity.secondary, affinity.primary)
    primary_count = len(primary)
    if rules is RuleSet.LEGACY:  # brokers count a bookie once for each of its primary groups
        primary_count = sum(
            len(membership.writable & groups[group]) for group in {*affinity.primary} if group in groups
        )
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
    counts = list(accumulate(map(len, parts)))
    enough = ((tier, count) for tier, count in zip(tiers, counts, strict=True) if count >= ensemble_size)
    tier, reached = next(enough, (Tier.NONE, counts[-1]))
    return Placed(
        parts=tuple(parts),
        tier=tier,
        reached=reached,
        ensemble_size=ensemble_size,
        reason=_REASON_BY_TIER[tier],
        primary=primary,
        secondary=secondary,
        unassigned=membership.unassigned,
    )


_REASON_BY_TIER = {
    Tier.PRIMARY: PlacementReason.PRIMARY_SUFFICES,
    Tier.SECONDARY: PlacementReason.PRIMARY_SHORT,
    Tier.UNASSIGNED: PlacementReason.PRIMARY_SHORT,
    Tier.NONE: PlacementReason.TOO_FEW_BOOKIES,
}


# Hypothetical changes of the membership for `headgate placement --what-if`: a bookie joins or dies, a group goes.

_KINDS = ("add", "remove", "remove-group")
_GRAMMAR = "write add=BOOKIE, add=BOOKIE@GROUP, remove=BOOKIE or remove-group=GROUP"


class HypotheticalChange(NamedTuple):
    """A bookie registers (`add`), alone in the group if one is named, or dies (`remove`); or a group is dropped."""

    kind: str
    name: str
    """The bookie or the group."""
    group: str | None = None


def parse_change(text: str) -> HypotheticalChange:
    """Read ``add=bk9:3181@shared``, ``remove=bk1:3181`` or ``remove-group=shared``.

    Raises:
        UserError: the text is none of these.
    """
    kind, _, name = text.partition("=")
    bookie, at, group = name.rpartition("@") if kind == "add" else ("", "", "")
    if kind not in _KINDS or not name or (at and not (bookie and group)):
        raise UserError(f"--what-if: '{text}' is no change; {_GRAMMAR}")
    return HypotheticalChange(kind, bookie, group) if at else HypotheticalChange(kind, name)


def apply_changes(membership: BookieMembership, changes: Iterable[HypotheticalChange]) -> BookieMembership:
    """Return the membership after these changes, applied in order.

    Raises:
        UserError: a bookie or group that is to be removed does not exist.
    """
    writable, groups = membership.writable, dict(membership.groups)
    for kind, name, group in changes:
        if kind == "add":
            writable |= {name}
            if group is not None:
                # The bookie moves to this group, as with `set-bookie-rack`.
                groups = {other: bookies - {name} for other, bookies in groups.items()}
                groups[group] = groups.get(group, frozenset()) | {name}
        elif kind == "remove":
            if name not in writable:
                raise UserError(f"--what-if remove={name}: there is no writable bookie of this id")
            writable -= {name}
        elif name not in groups:
            raise UserError(f"--what-if remove-group={name}: there is no such group")
        else:
            groups = {other: bookies for other, bookies in groups.items() if other != name}
    return BookieMembership(writable, groups)
