"""A per-process cache of the last step of each key: the policy object and its decoded state.

Spark gives each batch a fresh host, and the state as bytes. If these are the bytes that the last step in this process
wrote, they need not be decoded, nor the policy's caches rebuilt. It never changes a decision, only the time it takes.
"""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from policies.policy import Policy

MOST_BYTES = 48 * 2**20
"""Of states as they are encoded; with what policies built on them they take some twenty times as much."""
ADMITTED = 8
"""Where there is no room, one of so many takes the place of the oldest."""


class WarmKey(NamedTuple):
    """A policy with its settings, for a cluster."""

    build: Hashable
    """What builds the policy: another one of the same name is another."""
    cluster: str
    settings_hash: str


class Warm(NamedTuple):
    """A policy as its last step left it."""

    policy: Policy[Any]
    state: Any
    encoded: bytes

    @property
    def size_bytes(self) -> int:
        """As it is encoded."""
        return len(self.encoded)


class _Sized(Protocol):
    """What counts as so large as it is encoded."""

    @property
    def size_bytes(self) -> int: ...


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=_Sized)


class Kept(Generic[Key, Value]):
    """What was used last in this process, as much as there is room for. Safe from any thread.

    Args:
        most_bytes: of all of it together, as it is encoded.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._turned_away = 0
        self._lock = Lock()

    def take(self, key: Key) -> Value | None:
        """Take one out: nobody else has it meanwhile."""
        with self._lock:
            found = self._kept.pop(key, None)
            self._bytes -= found.size_bytes if found else 0
            return found

    def keep(self, key: Key, value: Value) -> None:
        """Put one back; where there is no room, mostly it is forgotten.

        Else whoever comes next would take the place of the oldest: as batches go through all keys in turn, of a fleet
        that is a little too large none would be found again.
        """
        with self._lock:
            before = self._kept.pop(key, None)
            self._bytes -= before.size_bytes if before else 0
            if self._has_room(value.size_bytes):
                self._kept[key] = value
                self._bytes += value.size_bytes

    def _has_room(self, size: int) -> bool:
        if self._bytes + size <= self._most_bytes:
            return True
        self._turned_away += 1
        if size > self._most_bytes or self._turned_away % ADMITTED:
            return False
        while self._bytes + size > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size_bytes
        return True


OF_THIS_PROCESS: Kept[WarmKey, Warm] = Kept()
