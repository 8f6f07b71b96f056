"""The bookies that take new data, the members of each group, and the groups that a namespace names."""

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from policies.isolation.decisions import QUARANTINE_GROUP

ANY_GROUP = "*"
"""As a primary group, it stands for every bookie."""
LISTED_LIMIT = 1_000
"""The most names in one list of a decision; a separate field has the whole count."""
_LISTED_BYTES = 250_000
"""The most bytes of names in one list: three such lists fit into a record."""
_LONGEST_CHARACTER = 6
"""The most bytes of one character in JSON, which is an escaped control character."""


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
    def first(self) -> tuple[str, ...]:
        """The first ids that fit into a record, sorted."""
        return first_names(self.names)

    @cached_property
    def digest(self) -> bytes:
        """Differs for different members."""
        return hashlib.blake2b("\n".join(self.names).encode(), digest_size=8).digest()


@dataclass(frozen=True)
class BookieMembership:
    """The bookies that take new data, and the members of each group."""

    writable: frozenset[str]
    groups: Mapping[str, frozenset[str]] | None
    """Members by group, including unregistered ones; None if they are not known or there is no znode `/bookies`."""
    _members: dict[Set[str], frozenset[str]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _serving: dict[tuple[Set[str], Set[str]], BookieSet] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def members(self, groups: frozenset[str]) -> frozenset[str]:
        """All bookies in any of these groups, writable or not."""
        if groups not in self._members:
            known = self.groups or {}
            self._members[groups] = frozenset[str]().union(*(known[group] for group in groups if group in known))
        return self._members[groups]

    def serving(self, groups: frozenset[str], but: frozenset[str] = frozenset()) -> BookieSet:
        """The writable bookies in any of `groups` and in none of `but`."""
        if but and self.members(but).isdisjoint(self.members(groups)):
            but = frozenset()
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
        return any((self.groups or {}).values())

    def grouped(self) -> frozenset[str]:
        """All bookies in any group, the quarantine group included."""
        return frozenset[str]().union(*(self.groups or {}).values())

    def assigned(self) -> frozenset[str]:
        """All bookies in any group but the quarantine group: an operator put them there."""
        groups = (self.groups or {}).items()
        return frozenset[str]().union(*(bookies for group, bookies in groups if group != QUARANTINE_GROUP))

    def quarantined(self) -> frozenset[str]:
        """All bookies in the quarantine group, including those that are in another group, too."""
        return (self.groups or {}).get(QUARANTINE_GROUP, frozenset())


@dataclass(frozen=True, slots=True)
class AffinityGroups:
    """The groups a namespace may place its data on; a namespace without any has no affinity."""

    primary: frozenset[str]
    secondary: frozenset[str]

    def __bool__(self) -> bool:
        """Whether it names any group, even if only a secondary one."""
        return bool(self.primary or self.secondary)

    @property
    def is_isolating(self) -> bool:
        """Whether it restricts the namespace to some bookies: it names a group, and no primary one is `*`."""
        return bool(self) and ANY_GROUP not in self.primary


def first_names(names: Sequence[str]) -> tuple[str, ...]:
    """The longest prefix of `names` that fits into a record."""
    first = tuple(names[:LISTED_LIMIT])
    if sum(len(name) * _LONGEST_CHARACTER + 3 for name in first) <= _LISTED_BYTES:
        return first
    ends = accumulate(len(json.dumps(name, ensure_ascii=False).encode()) + 1 for name in first)
    return tuple(name for name, end in zip(first, ends, strict=True) if end <= _LISTED_BYTES)
