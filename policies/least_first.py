"""A priority queue of keys with changing numbers: finds the least one without looking at the others."""

from collections.abc import Hashable, ItemsView
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

_SLACK = 64
"""So many entries that no longer hold cost less than to sort them out."""

Key = TypeVar("Key", bound=Hashable)
Rank = TypeVar("Rank")


class LeastFirst(Generic[Key, Rank]):
    """Keys by rank, then by themselves; a rank and a key must be orderable among their like.

    Setting, dropping and finding the least cost the logarithm of how many there are: what no longer holds stays in the
    heap until it comes up, or until there is more of it than of the rest.
    """

    def __init__(self) -> None:
        self._ranks: dict[Key, Rank] = {}
        self._heap: list[tuple[Rank, Key]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: Key) -> bool:
        return key in self._ranks

    def get(self, key: Key) -> Rank | None:
        """A key's rank; None when it has none."""
        return self._ranks.get(key)

    def items(self) -> ItemsView[Key, Rank]:
        """All of them, in no order."""
        return self._ranks.items()

    def put(self, key: Key, rank: Rank | None) -> None:
        """Give a key a rank, or take it away."""
        if rank is None:
            self._ranks.pop(key, None)
        elif self._ranks.get(key) != rank:
            self._ranks[key] = rank
            heappush(self._heap, (rank, key))
            if len(self._heap) > 2 * len(self._ranks) + _SLACK:
                self._heap = [(rank, key) for key, rank in self._ranks.items()]
                heapify(self._heap)

    def least(self) -> tuple[Rank, Key] | None:
        """The least rank with its key; None when there is none."""
        while self._heap:
            rank, key = self._heap[0]
            if self._ranks.get(key) == rank:
                return rank, key
            heappop(self._heap)
        return None
