"""Which bookies take new data, which are in which group, and which groups a namespace names."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from policies.isolation.decisions import QUARANTINE_GROUP

ANY_GROUP = "*"
"""As a primary group: every bookie."""


LISTED_LIMIT = 1_000
"""A decision names at most so many bookies of a kind, and counts them all."""
_LISTED_BYTES = 250_000
"""And no more than so many bytes of names: three such lists fit into a record."""
_LONGEST_CHARACTER = 6
"""Bytes of one character in JSON: of a control character, as an escape."""


class BookieSet:
    """Some bookies; what costs much of many is worked out once, for all namespaces that may use them.

    Args:
        members: their ids.
    """

    def __init__(self, members: frozenset[str]) -> None:
        self.members = members

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Sorted."""
        return tuple(sorted(self.members))

    @cached_property
    def first(self) -> tuple[str, ...]:
        """Sorted, as far as they fit into a record."""
        return first_names(self.names)

    @cached_property
    def digest(self) -> bytes:
        """Differs where the members differ."""
        return hashlib.blake2b("\n".join(self.names).encode(), digest_size=8).digest()


@dataclass(frozen=True)
class BookieMembership:
    """Who takes new data, and who is in which group."""

    writable: frozenset[str]
    groups: Mapping[str, frozenset[str]] | None
    """Members by group, unregistered ones too; None when none are known or there is no znode `/bookies`."""
    _members: dict[Set[str], frozenset[str]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _serving: dict[tuple[Set[str], Set[str]], BookieSet] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def members(self, groups: frozenset[str]) -> frozenset[str]:
        """All bookies in any of these groups, writable or not."""
        if groups not in self._members:
            known = self.groups or {}
            self._members[groups] = _union(known[group] for group in groups if group in known)
        return self._members[groups]

    def serving(self, groups: frozenset[str], but: frozenset[str] = frozenset()) -> BookieSet:
        """The writable ones in any of these groups, and in none of those others."""
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
        """Those of them that are in no group at all."""
        return BookieSet(self.writable - self.grouped())

    def grouped(self) -> frozenset[str]:
        """All bookies in any group, the quarantine group included."""
        return _union((self.groups or {}).values())

    def assigned(self) -> frozenset[str]:
        """All bookies that a person put into a group: in any but the quarantine group."""
        return _union(bookies for group, bookies in (self.groups or {}).items() if group != QUARANTINE_GROUP)

    def quarantined(self) -> frozenset[str]:
        """All bookies in the quarantine group, whatever else they are in."""
        return (self.groups or {}).get(QUARANTINE_GROUP, frozenset())


@dataclass(frozen=True, slots=True)
class AffinityGroups:
    """The groups a namespace may place its data on. Without any it has no affinity."""

    primary: frozenset[str]
    secondary: frozenset[str]

    def __bool__(self) -> bool:
        """Whether it names a group, be it a secondary one alone."""
        return bool(self.primary or self.secondary)

    @property
    def is_isolating(self) -> bool:
        """Whether it is meant to keep to some bookies: it names a group, and no primary one is `*`."""
        return bool(self) and ANY_GROUP not in self.primary


NO_AFFINITY = AffinityGroups(frozenset(), frozenset())


def first_names(names: Sequence[str]) -> tuple[str, ...]:
    """Of sorted names those that fit into a record."""
    first = tuple(names[:LISTED_LIMIT])
    if sum(len(name) * _LONGEST_CHARACTER + 3 for name in first) <= _LISTED_BYTES:
        return first
    ends = accumulate(len(json.dumps(name, ensure_ascii=False).encode()) + 1 for name in first)
    return tuple(name for name, end in zip(first, ends, strict=True) if end <= _LISTED_BYTES)


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)
