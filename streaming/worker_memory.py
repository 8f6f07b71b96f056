"""What a Python worker of Spark remembers between batches. It saves time and changes no decision.

`bench/fleet.py --clusters 100` (30 brokers with 4 volumes, 300 readings a second) on two quiet cores: p99 0.75 s and a
flat lag of 0.30 s. Without kept verdicts 1.4 and 0.61 s; without them, the cache, the steered collector and
`spark_internals` 2.1 and 0.79 s.
"""

import gc
import itertools
import pickle
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from policies.policy import PolicyKind
from streaming.key_state import KeyState, decode_policy_state

CACHE_BYTES = 48 * 2**20
"""Size of the encoded states whose decoded form is cached; decoded they take up to twenty times as much memory."""
ADMITTED = 8
"""A full cache admits one of this many newcomers, in place of the state that was used least recently."""


class _Decoded(NamedTuple):
    encoded: msgspec.Raw
    state: Any


class StateCache:
    """The decoded policy states of the keys that this process stepped last.

    Spark hands each batch the state as bytes. An entry is used only if these bytes are the ones from which, or to
    which, its state was converted. So it does not matter whether another process stepped the key meanwhile, whether a
    batch is repeated, or whether a batch failed: a stale entry has other bytes and is not used. The cache saves the
    time of decoding and changes no decision.

    Args:
        most_bytes: size of all cached states together, as they are encoded.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._decoded: OrderedDict[tuple[type, str], _Decoded] = OrderedDict()
        self._rejected = 0
        self._stepping: _Decoded | None = None

    def decode(self, kind: PolicyKind, cluster: str, stored: KeyState) -> Any:
        """Return the policy's decoded state; raises as `decode_policy_state` does.

        The entry leaves the cache until `store`: if the policy raises, nobody sees a state that it may have touched.
        Until then even a stale entry lives. A policy keeps its verdicts as long as the state that it returned with
        them, and most verdicts hold although another process has stepped the key since.
        """
        self._stepping = known = self._pop((kind.state, cluster))
        # A state that this process wrote last is the same object, and none of its bytes is compared.
        if known is not None and stored.state_version == kind.state_version and known.encoded == stored.state:
            return known.state
        return decode_policy_state(kind, stored)

    def store(self, kind: PolicyKind, cluster: str, encoded: msgspec.Raw, state: Any) -> None:
        """Keep a state and its encoding.

        A full cache rejects most newcomers. Batches go through all keys in turn, so in a fleet slightly larger than the
        cache, plain eviction of the least recently used would evict each state just before it is needed.
        """
        key, self._stepping = (kind.state, cluster), None
        self._pop(key)
        if self._has_room(len(encoded)):
            self._decoded[key] = _Decoded(encoded, state)
            self._bytes += len(encoded)

    def _pop(self, key: tuple[type, str]) -> _Decoded | None:
        found = self._decoded.pop(key, None)
        self._bytes -= 0 if found is None else len(found.encoded)
        return found

    def _has_room(self, size: int) -> bool:
        if self._bytes + size <= self._most_bytes:
            return True
        self._rejected += 1
        if size > self._most_bytes or self._rejected % ADMITTED:
            return False
        while self._bytes + size > self._most_bytes:
            _, oldest = self._decoded.popitem(last=False)
            self._bytes -= len(oldest.encoded)
        return True


STATE_CACHE = StateCache()
"""The cache of this process."""


@lru_cache(maxsize=2)
def build_once(build: Callable[..., Any], arguments: bytes) -> Any:
    """Return the same object for each batch of a process, if its pickled arguments are equal.

    A policy takes over its verdicts from its last step, which a new object would not have: judging all of 30 brokers
    with 4 volumes takes 2 ms a step instead of 0.3 (`bench/steps.py`), and the fleet's p99 would be 1.4 s.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    return build(*pickle.loads(arguments))  # noqa: S301 - Spark sent it, as it would the object itself


_GC_THRESHOLDS = (50_000, 20, 100)
_FULL_GC_BATCHES = 1000
_batches = itertools.count()


def collect_garbage() -> None:
    """Collect the cycles of this batch, and exclude all other objects from the next collections.

    Spark's worker runs a full collection after each batch, which would search the states of all clusters each time.
    Cycles that end later are found once in a thousand batches.
    """
    if next(_batches) % _FULL_GC_BATCHES == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
