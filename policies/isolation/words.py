"""Pieces of sentences: counts and lists that stay short."""

from collections.abc import Collection, Iterable
from heapq import nsmallest
from typing import Literal

from policies.isolation.placement import Affinity

NAMED_LIMIT = 5
"""A sentence names at most so many of a kind, and counts the others."""


def listed(first: Iterable[str], count: int) -> str:
    """``a, b, c, d, e and 12 more``, of so many in all."""
    names = list(first)[:NAMED_LIMIT]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more


def bookies_named(bookies: Collection[str]) -> str:
    """The first few by name."""
    return listed(nsmallest(NAMED_LIMIT, bookies), len(bookies))


def groups_named(kind: Literal["primary", "secondary"], affinity: Affinity) -> str:
    """``primary group default``, ``secondary groups a, b``."""
    groups = affinity.primary if kind == "primary" else affinity.secondary
    return f"{kind} group{'s' if len(groups) > 1 else ''} {bookies_named(groups)}"
