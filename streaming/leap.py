"""Moves the instants of a stored state back after a clock that had jumped ahead was set right.

Steps were taken at times that have not come yet. The instants stored then (since when, published when, until when)
would block everything until those times come. So each of them moves back by as much as the clock.

The types in a struct's annotations say which numbers are instants: `policies.units.InstantMs`, also within tuples and
dicts.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import repeat
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from policies.succession import FARTHEST_AHEAD
from policies.units import INSTANT_MARK, millis_of
from streaming.order import LEAP_MS

Value = TypeVar("Value")

_ROOM_MS = 7 * 86_400_000
"""No deadline that was set during the jump lies further beyond it."""
_FARTHEST_SEQUENCE_MS = millis_of(FARTHEST_AHEAD) - 60_000


def turned_back(state: Value, now_ms: int, by_ms: int) -> Value:
    """Return the state with every instant that lies further ahead than clocks differ moved back by `by_ms`.

    Sequences may only grow, because consumers have seen them. A sequence that no consumer can have believed, because it
    lies further ahead than `policies.succession` allows, becomes the greatest that consumers believe.
    """
    moved: Value = _Jump(now_ms, by_ms).move(state, type(state))
    return moved


class _Jump:
    def __init__(self, now_ms: int, by_ms: int) -> None:
        self._by_ms = by_ms
        self._first_ms = now_ms + LEAP_MS + 1
        self._last_ms = now_ms + LEAP_MS + by_ms + _ROOM_MS
        self._greatest_sequence = now_ms + _FARTHEST_SEQUENCE_MS

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
            is_sequence = name == "sequence" and isinstance(before, int)
            after = min(before, self._greatest_sequence) if is_sequence else self.move(before, hint)
            if after is not before:
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
