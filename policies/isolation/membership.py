"""Who takes new data and who is in which group, and which groups a namespace names."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from policies.isolation.decisions import QUARANTINE_GROUP

ANY_GROUP = "*"
"""As a primary group: every bookie."""


@dataclass(frozen=True, slots=True)
class BookieMembership:
    """Who takes new data, and who is in which group."""

    writable: frozenset[str]
    groups: Mapping[str, frozenset[str]] | None
    """Members by group, unregistered ones too; None when none are known or there is no znode `/bookies`."""

    def members(self, groups: Set[str]) -> frozenset[str]:
        """All bookies in any of these groups, writable or not."""
        known = self.groups or {}
        return _union(known[group] for group in groups if group in known)

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
    """The groups a namespace may place its data on. Without a primary one it has no affinity."""

    primary: frozenset[str]
    secondary: frozenset[str]

    @property
    def is_isolating(self) -> bool:
        """Whether it is meant to keep to some bookies: it has a primary group, and that is not `*`."""
        return bool(self.primary) and ANY_GROUP not in self.primary


NO_AFFINITY = AffinityGroups(frozenset(), frozenset())


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)
