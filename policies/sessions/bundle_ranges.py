"""Bundles are ranges of hashes: finds the bundles that a split or a merge has replaced.

A split deletes the node of the parent and creates nodes of its children, which cover the same range. Nobody owns the
parent any more, and nobody may own it again while a child has an owner: two brokers would serve the same topics.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from policies.sessions.state import NodeRecord

_RANGE = re.compile(r"(.+)/0x([0-9a-fA-F]{1,8})_0x([0-9a-fA-F]{1,8})")

_Ranged = tuple[int, int, NodeRecord]
"""The lower bound, the upper bound, and the node of the bundle."""


@dataclass(frozen=True, slots=True)
class ReplacedBundles:
    """The absent bundles that others have replaced."""

    overlapped: frozenset[str] = frozenset()
    """A newer bundle covers at least a part of their range."""
    covered: frozenset[str] = frozenset()
    """Newer bundles cover their whole range."""


def find_replaced(bundles: Iterable[NodeRecord]) -> ReplacedBundles:
    """Return the paths of the absent bundles that newer ones have replaced.

    A bundle is newer if its node exists, or was still there when the other one was absent already: if a broker splits a
    bundle and then loses its session, the children are absent, too, and only they can be owned again.
    """
    overlapped, covered = set(), set()
    for group in _group_overlapping(bundles):
        for low, high, node in group:
            if node.exists:
                continue
            newer = [
                (other_low, other_high)
                for other_low, other_high, other in group
                if other is not node and (other.exists or other.changed_ms > node.changed_ms)
                and other_low < high and low < other_high
            ]  # fmt: skip
            if newer:
                overlapped.add(node.path)
                if _is_covered(low, high, newer):
                    covered.add(node.path)
    return ReplacedBundles(frozenset(overlapped), frozenset(covered))


@lru_cache(maxsize=200_000)
def parse_range(path: str) -> tuple[str, int, int] | None:
    """Return the namespace of a bundle's path and the bounds of its range; None if its name is no range."""
    found = _RANGE.fullmatch(path)
    return None if found is None else (found[1], int(found[2], 16), int(found[3], 16))


def _group_overlapping(bundles: Iterable[NodeRecord]) -> Iterator[list[_Ranged]]:
    """Yield groups of bundles of one namespace whose ranges overlap; only namespaces with an absent bundle."""
    known = list(bundles)
    absent = {found[0] for node in known if not node.exists and (found := parse_range(node.path)) is not None}
    if not absent:
        return
    ranged: dict[str, list[_Ranged]] = {namespace: [] for namespace in absent}
    for node in known:
        found = parse_range(node.path)
        if found is not None and found[0] in ranged:
            ranged[found[0]].append((found[1], found[2], node))
    for several in ranged.values():
        several.sort(key=lambda each: each[:2])
        group: list[_Ranged] = []
        end = -1
        for each in several:
            if each[0] >= end and group:
                if len(group) > 1:
                    yield group
                group = []
            group.append(each)
            end = max(end, each[1])
        if len(group) > 1:
            yield group


def _is_covered(low: int, high: int, others: Sequence[tuple[int, int]]) -> bool:
    for other_low, other_high in sorted(others):
        if other_low > low:
            return False
        low = max(low, other_high)
    return low >= high
