"""The stateful operator: reads a key's records, steps its policy, stores one state and one timer.

Each of Spark's state calls costs a good part of a millisecond. So a key makes at most one read, one write, and sets a
timer only if the next step is due before the timer already set. A timer that fires early steps without observations,
which changes nothing. A timer that is due in the same batch as records of its key is deleted, because the key was
stepped at that time already. Each timer that is set is also published: without records there is no batch, so the ticker
must know when a timer is due (`policies/timers.py`).
"""

import gc
import itertools
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from policies.records import Cut, ObservedRecord, Output
from policies.registry import POLICIES
from policies.timers import TICKS, TIMERS, timer_record
from policies.units import from_millis
from streaming.clocks import BatchClock, next_timer_ms
from streaming.host import PolicyHost
from streaming.key_state import CACHE_BYTES, KeyState, decode, encode
from streaming.settings import SparkInternals
from streaming.spark_internals import are_used
from streaming.spark_internals.arrow_rows import convert_rows_by_column
from streaming.spark_internals.state_calls import pipeline_state_calls
from streaming.transition import reconcile

NO_CORRECTION = BatchClock()
OUTPUT_SCHEMA = "topic string, key string, value binary"
# A text would be parsed by the JVM twice per batch.
STATE_SCHEMA = StructType([StructField("value", BinaryType()), StructField("timer_ms", LongType())])

_GC_THRESHOLDS = (50_000, 20, 100)
_FULL_GC_BATCHES = 1000
_batches = itertools.count()
_RUN, _NUMBER = "spark.jobGroup.id", "streaming.sql.batchId"
"""The properties by which Spark gives a task the run of its query, and the number of its batch."""
_MARK_EVERY_SECONDS = 1.0
_marked_at = 0.0


@dataclass(frozen=True)
class StepMark:
    """The time of the last step, in a file that the query's supervisor reads.

    A batch of many large clusters may take longer than the time after which a silent query counts as stalled. Each of
    its steps is bounded, so a query that hangs shows in its steps. Spark itself reports only whole batches.

    Args:
        file: holds the time in seconds, by the machine's monotonic clock, which its processes share.
    """

    file: Path

    def mark(self) -> None:
        """Note that a step begins; at most once a second. A mark that cannot be written is left out."""
        global _marked_at
        now = time.monotonic()
        if now - _marked_at >= _MARK_EVERY_SECONDS:
            _marked_at = now
            with suppress(OSError):
                self.file.write_text(str(now))

    def seconds_ago(self) -> float:
        """Return the seconds since the last mark; infinite if there is none."""
        try:
            marked_at = float(self.file.read_text())
        except (OSError, ValueError):
            return float("inf")
        ago = time.monotonic() - marked_at
        return ago if ago >= 0 else float("inf")  # the machine was started again


class PartitionBatch(NamedTuple):
    """One partition's part of a batch."""

    run: str
    partition: int
    number: int


class WrittenStates:
    """The states that this worker wrote itself, in batches of a partition without a gap, and when each timer is due.

    Spark begins a batch only when the previous one is stored completely. So if a worker has stepped each batch of a
    partition since it wrote a state, then nobody else wrote that state since, and Spark's answer would be the same. To
    read a state costs a round trip to the JVM for each key, a third of a worker's time in a large fleet. If all states
    together are too large, some are left out, and read again.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], tuple[KeyState, int | None]] = {}
        self._bytes = 0

    def get(self, key: tuple[str, str]) -> tuple[KeyState, int | None] | None:
        """The state that is stored for the key; None: read it."""
        return self._states.get(key)

    def put(self, key: tuple[str, str], state: KeyState, timer_ms: int | None) -> None:
        """The state was written just now."""
        self.drop(key)
        size = len(state.state)
        if self._bytes + size <= CACHE_BYTES:
            self._states[key] = state, timer_ms
            self._bytes += size

    def drop(self, key: tuple[str, str]) -> None:
        """The state was deleted just now."""
        if (known := self._states.pop(key, None)) is not None:
            self._bytes -= len(known[0].state)


_ended: dict[int, tuple[PartitionBatch, WrittenStates]] = {}
"""The last batch of each partition that this process ended."""


def begin_batch(batch: PartitionBatch | None) -> WrittenStates:
    """The states that need not be read in this batch. A batch that began before and never ended leaves a gap."""
    if batch is None or (ended := _ended.pop(batch.partition, None)) is None:
        return WrittenStates()
    previous, states = ended
    return states if previous == batch._replace(number=batch.number - 1) else WrittenStates()


def end_batch(batch: PartitionBatch | None, states: WrittenStates) -> None:
    """All keys of the batch were stepped."""
    if batch is not None:
        _ended[batch.partition] = batch, states


def current_batch() -> PartitionBatch | None:
    """The batch of this task; None: it is no task of a query."""
    if (task := TaskContext.get()) is None:
        return None
    run, number = task.getLocalProperty(_RUN), task.getLocalProperty(_NUMBER)
    return None if run is None or number is None else PartitionBatch(run, task.partitionId(), int(number))


class PolicyOperator(StatefulProcessor):
    """Hosts any registered policy; the grouping key is (policy, cluster).

    Args:
        clock: corrects the batch's time, which is the driver's.
        internals: whether private parts of PySpark may be replaced.
        steps: marks each step, for the watch over the query's progress; None: nobody on this machine watches.

    Input rows: ``value binary, topic string, partition int, offset long, appended_ms long``. A record that is too large
    has ``cut struct<bytes int, sha256 string>``, too, and only the first bytes of its value.
    Output rows: `OUTPUT_SCHEMA`.
    """

    def __init__(
        self,
        host: PolicyHost,
        prefix: str,
        clock: BatchClock = NO_CORRECTION,
        internals: SparkInternals = SparkInternals.OFF,
        steps: StepMark | None = None,
    ) -> None:
        self._host = host
        self._prefix = prefix
        self._clock = clock
        self.internals = internals
        self._batch: PartitionBatch | None = None
        self._written = WrittenStates()
        self._steps = steps

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark ships the operator with each batch; equal bytes give a process the operator that it already has."""
        arguments = (replace(self._host), self._prefix, self._clock, self.internals, self._steps)
        return _unpickle, (pickle.dumps(arguments),)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable; a batch begins."""
        self._handle = handle
        self._batch = current_batch()
        self._written = begin_batch(self._batch)
        self._state = handle.getValueState("state", STATE_SCHEMA)
        pipelines = are_used(self.internals)
        self._update = pipeline_state_calls(handle, self._state) if pipelines else self._state.update

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Read the key's new records and step; a tick that names the key sets its timer again."""
        ticks = f"{self._prefix}.{TICKS}"
        records = (record for record in map(_record, rows) if record.topic != ticks)
        return self._run(key, records, timerValues, fires=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002
        """Step without observations, or delete the state of a cluster or policy that is gone."""
        policy, cluster = key
        if policy not in POLICIES or (cluster and not self._host.knows(cluster)):
            self._clear((policy, cluster))
            return iter(())
        return self._run(key, (), timerValues, fires=True)

    def close(self) -> None:
        """A batch ends."""
        end_batch(self._batch, self._written)
        _collect_garbage()

    def _run(self, key: Any, records: Iterable[ObservedRecord], timer_values: Any, *, fires: bool) -> Iterator[Row]:
        """Step the key; `fires` means that its timer fired, which Spark deletes afterwards."""
        policy, cluster = key
        if self._steps is not None:
            self._steps.mark()
        now_ms = timer_values.getCurrentProcessingTimeInMs()
        ahead_ms = self._clock.ahead_ms_at(now_ms)
        before, timer_ms = self._read_state((policy, cluster))
        transition = reconcile(self._host, self._prefix, (policy, cluster), before, records, now_ms - ahead_ms)
        outputs = transition.outputs
        if transition.key_state is not None:
            before_ms, timer_ms = timer_ms, next_timer_ms(transition.wake_ms, timer_ms, now_ms, ahead_ms)
            if before_ms is not None and before_ms != timer_ms and not fires:
                self._handle.deleteTimer(before_ms)
            if timer_ms is not None and timer_ms != before_ms:
                self._handle.registerTimer(timer_ms)
                outputs += (_timer(policy, cluster, timer_ms, now_ms),)
            self._update((encode(transition.key_state), timer_ms))
            self._written.put((policy, cluster), transition.key_state, timer_ms)
        elif before is not None:
            self._clear((policy, cluster))  # otherwise the same counts would be published again
            if timer_ms is not None and not fires:
                self._handle.deleteTimer(timer_ms)
        return map(self._row, outputs)

    def _clear(self, key: tuple[str, str]) -> None:
        self._state.clear()
        self._written.drop(key)

    def _read_state(self, key: tuple[str, str]) -> tuple[KeyState | None, int | None]:
        """The key's stored state, and when its timer is due."""
        if (written := self._written.get(key)) is not None:
            return written
        stored = self._state.get()
        return (decode(bytes(stored[0])), stored[1]) if stored else (None, None)

    def _row(self, output: Output) -> Row:
        return Row(topic=f"{self._prefix}.{output.topic}", key=output.key, value=output.value)


@lru_cache(maxsize=2)
def _unpickle(arguments: bytes) -> PolicyOperator:
    """The same operator for each batch of a process, with the settings that it has looked up."""
    gc.set_threshold(*_GC_THRESHOLDS)
    operator = PolicyOperator(*pickle.loads(arguments))  # noqa: S301 - Spark sent it, as it would the operator itself
    if are_used(operator.internals):
        convert_rows_by_column()
    return operator


def _collect_garbage() -> None:
    """Collect the cycles of this batch, and exclude all other objects from the next collections.

    Spark's worker runs a full collection after each batch, which would search the states of all clusters each time.
    Cycles that end later are found once in a thousand batches.
    """
    if next(_batches) % _FULL_GC_BATCHES == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


def _timer(policy: str, cluster: str, due_ms: int, now_ms: int) -> Output:
    return Output(TIMERS, *timer_record(policy, cluster, from_millis(due_ms), now=from_millis(now_ms)))


def _record(row: Row) -> ObservedRecord:
    # One dictionary: a Row searches its names at each access, which takes a tenth of a step.
    fields = dict(zip(row.__fields__, row, strict=True))
    cut = fields.get("cut")
    # A Row in Spark's tester, a dict in the query.
    known = None if cut is None else Cut(int(cut["bytes"]), cut["sha256"])
    position = (fields["topic"], fields["partition"], fields["offset"], fields["appended_ms"])
    return ObservedRecord(*position, fields["value"], known)
