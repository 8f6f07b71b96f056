"""Two clocks: the driver's, which gives a batch its time, and Kafka's, by which ages are measured.

Where they differ, the time of each batch is corrected (`BatchClock`). After a clock that had jumped ahead was set
right, the instants of a stored state lie in the future: since when, published when, until when. They would block
everything until those times come, so each of them moves back by as much as the clock (`move_instants_back`). The types
in a struct's annotations say which numbers are instants: `policies.units.InstantMs`, also within tuples and dicts.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import repeat
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from policies.decisions import CLOCKS_APART
from policies.units import INSTANT_MARK, InstantMs, millis_of
from policies.wire import ObservedRecord

CLOCK_JUMP_MS = millis_of(CLOCKS_APART)
_ROOM_MS = 7 * 86_400_000
"""No deadline that was set during the jump lies further beyond it."""

Value = TypeVar("Value")


class BatchClock(NamedTuple):
    """The correction of a batch's time. A repeated batch needs its first correction, or it decides differently."""

    ahead_ms: int = 0
    """How far the driver's clock is ahead of Kafka's; 0 while they agree well enough."""
    repeated_at_ms: int | None = None
    """When the last batch of an earlier run began, by the driver's clock; None if it had the same correction."""
    repeated_ahead_ms: int = 0
    """The correction of that batch."""

    def ahead_ms_at(self, began_ms: int) -> int:
        """The correction for the batch that began at this time."""
        return self.repeated_ahead_ms if began_ms == self.repeated_at_ms else self.ahead_ms


def next_timer_ms(wake_ms: int | None, timer_ms: int | None, began_ms: int, ahead_ms: int) -> int | None:
    """Return the due time, by the driver's clock, of the timer that a key needs after a step.

    Args:
        wake_ms: when to step the key again, by Kafka's clock; None: only when records come.
        timer_ms: the last timer that was set; it may have fired.
        began_ms: when the batch began, by the driver's clock.
        ahead_ms: the correction of that time.

    Returns:
        `timer_ms` if that timer is pending and early enough, else a timer to set; None if none is needed.
    """
    if wake_ms is None:
        return timer_ms
    due_ms = max(wake_ms + ahead_ms, began_ms + 1)
    is_early_enough = timer_ms is not None and began_ms < timer_ms <= due_ms
    return timer_ms if is_early_enough else due_ms


def move_instants_back(state: Value, now_ms: int, by_ms: int) -> Value:
    """Return the state with every instant that lies further ahead than clocks differ moved back by `by_ms`."""
    moved: Value = _Jump(now_ms, by_ms).move(state, type(state))
    return moved


class _Jump:
    def __init__(self, now_ms: int, by_ms: int) -> None:
        self._by_ms = by_ms
        self._first_ms = now_ms + CLOCK_JUMP_MS + 1
        self._last_ms = now_ms + CLOCK_JUMP_MS + by_ms + _ROOM_MS

    def move(self, value: Any, hint: Any) -> Any:
        """Return a value that is annotated with `hint`, with its instants moved back."""
        match value:
            case msgspec.Struct():
                return self._move_struct(value)
            case tuple() | list() | set() | frozenset():
                return type(value)(map(self.move, value, _item_hints(type(value), len(value), hint)))
            case Mapping():
                return {key: self.move(each, _parameters(dict, hint)[-1]) for key, each in value.items()}
            case int() if _is_instant(hint) and self._first_ms <= value <= self._last_ms:
                return value - self._by_ms
        return value

    def _move_struct(self, struct: msgspec.Struct) -> msgspec.Struct:
        changed: dict[str, Any] = {}
        for name, hint in _field_hints(type(struct)).items():
            before = getattr(struct, name)
            if (after := self.move(before, hint)) is not before:
                changed[name] = after
        return msgspec.structs.replace(struct, **changed) if changed else struct


@cache
def _field_hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    return {name: hints[name] for name in struct.__struct_fields__}


def _item_hints(kind: type, count: int, hint: Any) -> Iterable[Any]:
    """The annotations of the items of a tuple, list or set."""
    items = _parameters(kind, hint)
    return repeat(items[0]) if items[1:] in ((), (...,)) else items[:count]


def _parameters(kind: type, hint: Any) -> tuple[Any, ...]:
    """The parameters of `kind` in an annotation, which may be a union; (Any,) if it names none."""
    return next((get_args(each) for each in _members(hint) if get_origin(each) is kind), (Any,))


def _is_instant(hint: Any) -> bool:
    return any(get_origin(each) is Annotated and INSTANT_MARK in each.__metadata__ for each in _members(hint))


def _members(hint: Any) -> Iterator[Any]:
    """The members of a union, or the annotation itself."""
    if get_origin(hint) in (Union, UnionType):
        yield from (member for each in get_args(hint) for member in _members(each))
    else:
        yield hint


# The effective time of an observation: its append time, unless the order of offsets proves that wrong.
#
# Offsets of a partition grow in the order of appending and depend on no clock. So of two records the one with the
# higher offset is newer, whatever their times are; times that tie or run backwards are moved up. Everything in a
# batch was appended before the batch was made, so no effective time lies after it, even if a broker's clock is an
# hour ahead.
#
# Invariant: within a partition, times grow with offsets, up to `FARTHEST_MS` after the batch.

FARTHEST_MS = 60_000
"""Where thousands of times tie, an effective time may lie this far after its batch."""
_AFTER_BATCH_MS = 1000
"""A batch takes in records that are appended while it is planned."""
_MOST_POSITIONS = 64


class ReadPosition(Struct, array_like=True, frozen=True):
    """The last record of a partition that was read for a key, and its effective time."""

    topic: str
    partition: int
    offset: int
    at_ms: InstantMs


class Order:
    """Determines the effective times of one key's observations, batch by batch.

    Args:
        positions: as the last batch left them.
    """

    def __init__(self, positions: Iterable[ReadPosition], now_ms: int) -> None:
        self._now_ms = now_ms
        self._positions = {(each.topic, each.partition): each for each in positions}

    def effective_ms(self, record: ObservedRecord) -> int:
        """Return the observation's effective time; call it for the records of a partition in the order of offsets."""
        key = (record.topic, record.partition)
        last, claimed_ms = self._positions.get(key), min(record.appended_ms, self._now_ms + _AFTER_BATCH_MS)
        at_ms = claimed_ms
        if last is not None and record.offset > last.offset and claimed_ms <= last.at_ms:
            # Further back than clocks differ: its time says nothing, but it is newer than the record before it.
            has_jumped = claimed_ms < last.at_ms - CLOCK_JUMP_MS
            at_ms = min(max(last.at_ms + 1, self._now_ms if has_jumped else 0), self._now_ms + FARTHEST_MS)
        self._positions[key] = ReadPosition(record.topic, record.partition, record.offset, at_ms)
        return at_ms

    def positions(self) -> tuple[ReadPosition, ...]:
        """The positions to store: the most recent ones."""
        latest = sorted(self._positions.values(), key=lambda each: (each.at_ms, each.topic, each.partition))
        return tuple(latest[-_MOST_POSITIONS:])
