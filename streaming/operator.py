"""The stateful operator: reads a key's records, steps its policy, keeps one state and one timer.

Each of Spark's state calls costs a good part of a millisecond, so a key makes as few as possible: one write, and a
timer only if the next step is due before the one already set. No call waits for its answer
(`streaming/state_calls.py`). The state is read only if another process may have written it last
(`streaming/continuity.py`). A timer that fires early steps without observations, which changes nothing; one that is due
in the same batch as records of its key is deleted, because those were stepped at that time already. Each timer that is
set is also published: without records there is no batch, so somebody must know when one is due (`policies/timers.py`).
"""

import gc
import itertools
import pickle
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from policies.registry import POLICIES
from policies.signatures import Signatures
from policies.timers import TICKS, TIMERS, timer_event, timer_key
from policies.units import from_millis
from streaming.batch_clock import BatchClock, next_timer_ms
from streaming.continuity import Continuity, GaplessRun, PartitionBatch, batch_in_hand
from streaming.dead_letters import Cut, ObservedRecord
from streaming.host import PolicyHost, Remembered, recall, remember
from streaming.output import Output
from streaming.rows import use_columns
from streaming.state_calls import StateCalls
from streaming.transition import reconcile
from streaming.warm import Kept

_RIGHT = BatchClock()
OUTPUT_SCHEMA = "topic string, key string, value binary, signature string"
# Not as text, which the JVM would be asked to parse twice a batch.
STATE_SCHEMA = StructType([StructField("value", BinaryType()), StructField("timer_ms", LongType())])


class Written(NamedTuple):
    """What this process wrote last for a key."""

    batch: PartitionBatch
    remembered: Remembered
    timer_ms: int | None
    size_bytes: int


_WRITTEN: Kept[tuple[str, str], Written] = Kept()
_CONTINUITY = Continuity()


_COLLECTED_AFTER = (50_000, 20, 100)
"""Objects, and how often the younger generation is searched before the next one is."""


@lru_cache(maxsize=2)
def _unpacked(packed: bytes) -> "PolicyOperator":
    """What was shipped, the same one for each batch of a process: with the settings it has looked up by then."""
    # A step leaves hardly a cycle, and a fleet's clusters are a million objects to be searched for some: seldom, then.
    gc.set_threshold(*_COLLECTED_AFTER)
    use_columns()
    return PolicyOperator(*pickle.loads(packed))  # noqa: S301 - Spark brought it, as it would the operator itself


_batches = itertools.count()
_SEARCHED_EACH = 1000
"""Batches from one search of everything for cycles to the next: of a large fleet it takes a second."""


def _set_aside() -> None:
    """Before a batch ends: have what this process keeps not be searched for cycles, and all the same now and then.

    Spark has a worker search all it has after each batch, which of a fleet takes a quarter of its time, for modules,
    models and states that mostly are there in the next batch, too. What a step leaves hardly ever has a cycle.
    """
    if next(_batches) % _SEARCHED_EACH == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()


class PolicyOperator(StatefulProcessor):
    """Hosts any registered policy; the grouping key is (policy, cluster).

    Args:
        host: the policies and clusters there are.
        prefix: of all topics.
        clock: what the driver's clock, which gives a batch its time, is corrected by.
        signatures: by which records are believed, and signed; None: nobody signs.

    Input rows: ``value binary, topic string, partition int, offset long, appended_ms long`` and, of one that is too
    large, ``cut struct<bytes int, sha256 string>``; then its value is its head. Where records are signed, ``key binary,
    signature string``, too.
    Output rows: `OUTPUT_SCHEMA`.
    """

    def __init__(
        self, host: PolicyHost, prefix: str, clock: BatchClock = _RIGHT, signatures: Signatures | None = None
    ) -> None:
        self._host = host
        self._signatures = signatures
        self._prefix = prefix
        self._clock = clock
        self._gapless: GaplessRun | None = None
        """Of the batch in hand; None: it is no task of a query."""
        self._calls: StateCalls | None = None
        """Of the batch in hand, or of the last one."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark ships it anew with each batch: as bytes, by which a process knows the one it has already."""
        made_of = (self._host, self._prefix, self._clock, self._signatures)
        return _unpacked, (pickle.dumps(made_of),)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable; a batch begins."""
        self._handle = handle
        self._state = handle.getValueState("state", STATE_SCHEMA)
        self._update = self._state.update
        self._gapless = None if (batch := batch_in_hand()) is None else _CONTINUITY.begin(batch)
        if (client := getattr(handle, "_statefulProcessorApiClient", None)) is not None:  # none in Spark's tester
            # There is no watermark: Spark's client takes that for not asked yet, and asks the JVM again with each key.
            client._watermark_timestamp = 0
            if self._calls is not None:
                self._calls.close()
            self._calls = StateCalls(client)
            self._update = self._calls.put_off(self._state.update)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Read the key's new records, dead letters aside, and step; a tick that names the key sets its timer anew."""
        ticks = f"{self._prefix}.{TICKS}"
        records = (record for record in map(_record, rows) if record.topic != ticks)
        return self._run(key, records, timerValues, fires=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002
        """Step without observations: time itself may decide. A cluster or policy that is no more ends here."""
        policy, cluster = _split(key)
        if policy not in POLICIES or (cluster and not self._host.knows(cluster)):
            self._state.clear()
            return iter(())
        return self._run(key, (), timerValues, fires=True)

    def close(self) -> None:
        """Nothing to release; a batch ends."""
        if self._gapless is not None:
            _CONTINUITY.end(self._gapless)
        _set_aside()

    def _run(self, key: Any, records: Iterable[ObservedRecord], timer_values: Any, *, fires: bool) -> Iterator[Row]:
        """Step the key; `fires` says that the key's timer brought it, which Spark deletes afterwards."""
        now_ms = timer_values.getCurrentProcessingTimeInMs()
        ahead_ms = self._clock.ahead_ms_at(now_ms)
        before, timer_ms = self._recalled(_split(key))
        transition = reconcile(
            self._host, self._prefix, _split(key), before, records, now_ms - ahead_ms, self._signatures
        )
        outputs = transition.outputs
        if transition.remembered is not None:
            before_ms, timer_ms = timer_ms, next_timer_ms(transition.wake_ms, timer_ms, now_ms, ahead_ms)
            if before_ms is not None and before_ms != timer_ms and not fires:
                self._handle.deleteTimer(before_ms)
            if timer_ms is not None and timer_ms != before_ms:
                self._handle.registerTimer(timer_ms)
                outputs += (_timer(*_split(key), timer_ms, now_ms),)
            self._update((remember(transition.remembered), timer_ms))
            if self._gapless is not None:
                size = len(transition.remembered.state)
                _WRITTEN.keep(_split(key), Written(self._gapless.batch, transition.remembered, timer_ms, size))
        elif before is not None:
            self._state.clear()  # else what was counted would be told again
            if timer_ms is not None and not fires:
                self._handle.deleteTimer(timer_ms)
        return map(self._row, outputs)

    def _recalled(self, key: tuple[str, str]) -> tuple[Remembered | None, int | None]:
        """What is kept of a key, and when its timer is due."""
        written = _WRITTEN.take(key)
        if written is not None and self._gapless is not None and self._gapless.has(written.batch):
            return written.remembered, written.timer_ms
        kept = self._state.get()
        return (recall(bytes(kept[0])), kept[1]) if kept else (None, None)

    def _row(self, output: Output) -> Row:
        topic, signature = f"{self._prefix}.{output.topic}", None
        if self._signatures is not None:
            # By the clock, not the batch's time: a batch that is repeated after a restart has an old one.
            now_ms = time.time_ns() // 1_000_000 - self._clock.ahead_ms
            signature = self._signatures.sign(topic, output.key, output.value, now_ms)
        return Row(topic=topic, key=output.key, value=output.value, signature=signature)


def _timer(policy: str, cluster: str, due_ms: int, now_ms: int) -> Output:
    event = timer_event(policy, cluster, from_millis(due_ms), now=from_millis(now_ms))
    return Output(TIMERS, timer_key(policy, cluster), event)


def _split(key: Any) -> tuple[str, str]:
    return (key[0], key[1])


def _record(row: Row) -> ObservedRecord:
    # By names at once: each that is asked of a Row by itself is looked for anew, at a tenth of what a step costs.
    named = dict(zip(row.__fields__, row, strict=True))
    cut, signed = named.get("cut"), (named.get("key"), named.get("signature"))
    # A Row in Spark's tester, a dict in the query.
    known = None if cut is None else Cut(int(cut["bytes"]), cut["sha256"])
    place = (named["topic"], named["partition"], named["offset"], named["appended_ms"])
    return ObservedRecord(*place, named["value"], known, *signed)
