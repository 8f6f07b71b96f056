"""Adjusts the stored state after a clock that had leapt ahead was set right.

Steps were taken at times that have not come yet, and the instants stored then (since when, said when, until when) would
block everything until those times come. So every such instant is moved back by as much as the clock.

By convention a state's instants are integer milliseconds in fields that end in ``_ms``, or plain members of tuples.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from policies.succession import FARTHEST_AHEAD
from policies.units import millis_of
from streaming.order import LEAP_MS

Value = TypeVar("Value")

_ROOM_MS = 7 * 86_400_000
"""Deadlines that were set during the leap lie so far beyond it at most."""
_FARTHEST_SEQUENCE_MS = millis_of(FARTHEST_AHEAD) - 60_000


def turned_back(state: Value, now_ms: int, by_ms: int) -> Value:
    """The state with every instant that lies further ahead of `now_ms` than clocks differ earlier by `by_ms`.

    Sequences may only grow, for consumers have seen them; one that no consumer can have believed, because it lies
    further ahead than `policies.succession` allows, becomes the greatest that is believed.
    """
    turned: Value = _turned("", state, now_ms, by_ms)
    return turned


def _turned(name: str, value: Any, now_ms: int, by_ms: int) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = {f: (before, _turned(f, before, now_ms, by_ms)) for f, before in _fields(value).items()}
        changed = {f: after for f, (before, after) in fields.items() if after is not before}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, tuple | list | frozenset | set):
        return type(value)(_turned("_ms", each, now_ms, by_ms) for each in value)
    if isinstance(value, Mapping):
        return {key: _turned("_ms", each, now_ms, by_ms) for key, each in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return _turned_number(name, value, now_ms, by_ms)
    return value


def _turned_number(name: str, value: int, now_ms: int, by_ms: int) -> int:
    if name == "sequence":
        return min(value, now_ms + _FARTHEST_SEQUENCE_MS)
    if name.endswith("_ms") and now_ms + LEAP_MS < value <= now_ms + LEAP_MS + by_ms + _ROOM_MS:
        return value - by_ms
    return value


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
