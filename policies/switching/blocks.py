"""Sorted values stored in encoded blocks; a step decodes only the blocks that it touches.

A plan of 100,000 ledgers takes 8 MB. Decoding and encoding all of it in each batch would cost half a second; the result
of one ledger needs a thousandth of it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

BLOCK_SIZE = 256
"""So many values are in a block when it is made: one costs 0.2 ms to take apart and put together."""


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Key = TypeVar("Key", bound=_Ordered)
Value = TypeVar("Value")
Tag = TypeVar("Tag", bound=_Ordered)


class PackedBlock(Struct, Generic[Key, Tag], array_like=True, frozen=True):
    """Some values, next to each other in their order."""

    first: Key
    """The least key."""
    tags: tuple[tuple[Tag, int], ...]
    """How many values have which tag."""
    packed: bytes
    """The values in the order of their keys, msgpack."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(count for _, count in self.tags)


class BlockMap(Generic[Key, Value, Tag]):
    """Values by key, spread out as they are asked for.

    Args:
        kind: of the values.
        key_of: gives a value's key; keys are sorted by it.
        tag_of: gives what values are counted by.
        loose: values, in no block yet.
        blocks: as they were packed.
        opened: told of each value that is spread out.
    """

    def __init__(
        self,
        kind: type[Value],
        key_of: Callable[[Value], Key],
        tag_of: Callable[[Value], Tag],
        loose: Iterable[Value] = (),
        blocks: Iterable[PackedBlock[Key, Tag]] = (),
        opened: Callable[[Value], None] = lambda _: None,
    ) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
        self._key_of, self._tag_of, self._opened = key_of, tag_of, opened
        self._blocks = list(blocks)
        self._firsts = [block.first for block in self._blocks]
        self._spread: dict[int, dict[Key, Value]] = {}
        self._changed: set[int] = set()
        self._length = sum(block.count for block in self._blocks)
        self._ranks: list[int] | None = None
        """By block how many values are before it; None: not counted."""
        self._sorted: dict[int, list[Key]] = {}
        """By block its keys in their order, where somebody asked: a new plan is one block of everything at first."""
        for value in loose:
            self.put(value)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Value]:
        """All of them, in the order of their keys."""
        for place in range(max(1, len(self._blocks))):
            inside = self._inside(place)
            yield from (inside[key] for key in sorted(inside))

    def since(self, first: Key) -> Iterator[Value]:
        """Those from a key on, in the order of their keys."""
        for place in range(self._place(first), max(1, len(self._blocks))):
            inside = self._inside(place)
            yield from (inside[key] for key in sorted(inside) if not key < first)

    def get(self, key: Key) -> Value | None:
        """The value of a key."""
        return self._inside(self._place(key)).get(key)

    def put(self, value: Value) -> Value | None:
        """Put a value in; gives the one whose place it takes."""
        key = self._key_of(value)
        place = self._place(key)
        inside = self._inside(place)
        before = inside.get(key)
        inside[key] = value
        self._changed.add(place)
        if before is None:
            self._length, self._ranks = self._length + 1, None
            self._sorted.pop(place, None)
        return before

    def drop(self, key: Key) -> Value | None:
        """Take a value out; gives it."""
        place = self._place(key)
        before = self._inside(place).pop(key, None)
        if before is not None:
            self._changed.add(place)
            self._length, self._ranks = self._length - 1, None
            self._sorted.pop(place, None)
        return before

    def spread_out(self, first: Key) -> None:
        """Spread out the block that begins with a key."""
        self._inside(self._place(first))

    def rank(self, key: Key) -> int:
        """How many keys are less than one."""
        place = self._place(key)
        if self._ranks is None:
            self._ranks = [0, *accumulate(self._count(each) for each in range(len(self._blocks)))]
        if place not in self._sorted:
            self._sorted[place] = sorted(self._inside(place))
        return self._ranks[place] + bisect_left(self._sorted[place], key)

    def packed(self) -> tuple[tuple[Value, ...], tuple[PackedBlock[Key, Tag], ...]]:
        """All that there is: loose where it is little, else in blocks, of which those that did not change are kept."""
        if self._length <= BLOCK_SIZE:
            return tuple(self), ()
        blocks: list[PackedBlock[Key, Tag]] = []
        for place in range(max(1, len(self._blocks))):
            blocks += self._pack(place) if place in self._changed else self._blocks[place : place + 1]
        return (), tuple(blocks)

    def _pack(self, place: int) -> Iterator[PackedBlock[Key, Tag]]:
        inside = self._spread[place]
        keys = sorted(inside)
        for start in range(0, len(keys), BLOCK_SIZE):
            some = [inside[key] for key in keys[start : start + BLOCK_SIZE]]
            tags: dict[Tag, int] = {}
            for value in some:
                tag = self._tag_of(value)
                tags[tag] = tags.get(tag, 0) + 1
            by_tag = tuple(sorted(tags.items()))
            yield PackedBlock(keys[start], by_tag, msgspec.msgpack.encode(some))

    def _place(self, key: Key) -> int:
        return max(0, bisect_right(self._firsts, key) - 1)

    def _count(self, place: int) -> int:
        return len(self._spread[place]) if place in self._spread else self._blocks[place].count

    def _inside(self, place: int) -> dict[Key, Value]:
        inside = self._spread.get(place)
        if inside is None:
            values = self._decoder.decode(self._blocks[place].packed) if place < len(self._blocks) else []
            inside = self._spread[place] = {self._key_of(value): value for value in values}
            for value in values:
                self._opened(value)
        return inside


def tags_of(blocks: Iterable[PackedBlock[Key, Tag]]) -> Mapping[Tag, int]:
    """How many values have which tag, over all blocks."""
    counts: dict[Tag, int] = {}
    for block in blocks:
        for tag, count in block.tags:
            counts[tag] = counts.get(tag, 0) + count
    return counts
