"""Sorted values stored in encoded blocks; a step decodes only the blocks that it touches.

A plan of 100,000 ledgers takes 8 MB. Decoding and encoding all of it in each batch would cost half a second. The result
of one ledger needs a thousandth of it.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

BLOCK_SIZE = 256
"""The number of values in a new block; decoding and encoding one block costs 0.2 ms."""


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Key = TypeVar("Key", bound=_Ordered)
Value = TypeVar("Value")
Tag = TypeVar("Tag", bound=_Ordered)


class PackedBlock(Struct, Generic[Key, Tag], array_like=True, frozen=True):
    """Consecutive values, encoded."""

    first: Key
    """The least key in the block."""
    tags: tuple[tuple[Tag, int], ...]
    """The number of values by tag."""
    packed: bytes
    """The values as msgpack, in the order of their keys."""

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(count for _, count in self.tags)


class BlockMap(Generic[Key, Value, Tag]):
    """Values by key; a block is decoded when one of its values is needed.

    Args:
        kind: the type of the values.
        key_of: returns a value's key.
        tag_of: returns the tag by which a value is counted.
        loose: values that are in no block yet.
        blocks: the blocks as they were packed.
        opened: called with each value of a block that is decoded.
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
        self._decoded: dict[int, dict[Key, Value]] = {}
        self._changed: set[int] = set()
        self._length = sum(block.count for block in self._blocks)
        self._ranks: list[int] | None = None
        """The number of values before each block; None: not counted."""
        self._sorted: dict[int, list[Key]] = {}
        """The sorted keys of a block, once needed: a new plan is at first one block of all its values."""
        for value in loose:
            self.put(value)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Value]:
        """Return all values in the order of their keys."""
        for place in range(max(1, len(self._blocks))):
            inside = self._inside(place)
            yield from (inside[key] for key in sorted(inside))

    def get(self, key: Key) -> Value | None:
        """Return the value of a key."""
        return self._inside(self._place(key)).get(key)

    def put(self, value: Value) -> Value | None:
        """Insert or replace a value, and return the replaced one."""
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
        """Remove a value, and return it."""
        place = self._place(key)
        before = self._inside(place).pop(key, None)
        if before is not None:
            self._changed.add(place)
            self._length, self._ranks = self._length - 1, None
            self._sorted.pop(place, None)
        return before

    def decode_block(self, first: Key) -> None:
        """Decode the block that begins with a key."""
        self._inside(self._place(first))

    def rank(self, key: Key) -> int:
        """Count the keys that are less than a key."""
        place = self._place(key)
        if self._ranks is None:
            counts = (
                len(self._decoded[each]) if each in self._decoded else block.count
                for each, block in enumerate(self._blocks)
            )
            self._ranks = [0, *accumulate(counts)]
        if place not in self._sorted:
            self._sorted[place] = sorted(self._inside(place))
        return self._ranks[place] + bisect_left(self._sorted[place], key)

    def packed(self) -> tuple[tuple[Value, ...], tuple[PackedBlock[Key, Tag], ...]]:
        """Return few values loose, and many in blocks; blocks that did not change stay as they are."""
        if self._length <= BLOCK_SIZE:
            return tuple(self), ()
        blocks: list[PackedBlock[Key, Tag]] = []
        for place in range(max(1, len(self._blocks))):
            blocks += self._pack(place) if place in self._changed else self._blocks[place : place + 1]
        return (), tuple(blocks)

    def _pack(self, place: int) -> Iterator[PackedBlock[Key, Tag]]:
        inside = self._decoded[place]
        keys = sorted(inside)
        for start in range(0, len(keys), BLOCK_SIZE):
            some = [inside[key] for key in keys[start : start + BLOCK_SIZE]]
            tags = tuple(sorted(Counter(map(self._tag_of, some)).items()))
            yield PackedBlock(keys[start], tags, msgspec.msgpack.encode(some))

    def _place(self, key: Key) -> int:
        return max(0, bisect_right(self._firsts, key) - 1)

    def _inside(self, place: int) -> dict[Key, Value]:
        inside = self._decoded.get(place)
        if inside is None:
            values = self._decoder.decode(self._blocks[place].packed) if place < len(self._blocks) else []
            inside = self._decoded[place] = {self._key_of(value): value for value in values}
            for value in values:
                self._opened(value)
        return inside


def count_tags(blocks: Iterable[PackedBlock[Key, Tag]]) -> Mapping[Tag, int]:
    """Count the values by tag, over all blocks."""
    counts: Counter[Tag] = Counter()
    for block in blocks:
        counts.update(dict(block.tags))
    return counts
