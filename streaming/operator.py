"""The stateful operator: reads a key's records, steps its policy, stores one state and one timer.

Each of Spark's state calls costs a good part of a millisecond. So a key makes at most one read, one write, and sets a
timer only if the next step is due before the timer already set. A timer that fires early steps without observations,
which changes nothing. A timer that is due in the same batch as records of its key is deleted, because the key was
stepped at that time already. Each timer that is set is also published: without records there is no batch, so the ticker
must know when a timer is due (`policies/policy.py`).
"""

import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from policies.policy import TIMERS, timer_record
from policies.registry import POLICIES
from policies.units import from_millis
from policies.wire import Cut, ObservedRecord, Output
from streaming.host import PolicyHost
from streaming.key_state import KeyState, decode, encode
from streaming.settings import SparkInternals
from streaming.spark_internals import are_used, convert_rows_by_column, pipeline_state_calls
from streaming.transition import reconcile
from streaming.worker_memory import STATE_CACHE, begin_batch, collect_garbage, current_batch, end_batch

OUTPUT_SCHEMA = "topic string, key string, value binary"
# A text would be parsed by the JVM twice per batch.
STATE_SCHEMA = StructType([StructField("value", BinaryType()), StructField("timer_ms", LongType())])

_MARK_EVERY_SECONDS = 1.0
_marked_at = 0.0


@dataclass(frozen=True)
class StepMark:
    """The time of the last step, by the machine's monotonic clock, in a file that the query's supervisor reads.

    A batch of many large clusters may take longer than the time after which a silent query counts as stalled. Each of
    its steps is bounded, so a query that hangs shows in its steps. Spark itself reports only whole batches.
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


class PolicyOperator(StatefulProcessor):
    """Hosts any registered policy; the grouping key is (policy, cluster).

    Input rows: ``value binary, topic string, partition int, offset long, appended_ms long``. A record that is too large
    has ``cut struct<bytes int, sha256 string>``, too, and only the first bytes of its value.
    """

    def __init__(
        self,
        host: PolicyHost,
        prefix: str,
        internals: SparkInternals = SparkInternals.OFF,
        steps: StepMark | None = None,
    ) -> None:
        self._host = host
        self._prefix = prefix
        self._internals = internals
        self._steps = steps

    def __reduce__(self) -> tuple[Any, ...]:
        """Spark ships the operator with each batch; a process builds it once."""
        return _build, (pickle.dumps((replace(self._host), self._prefix, self._internals, self._steps)),)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable; a batch begins."""
        self._handle = handle
        self._batch = current_batch()
        self._sequel = begin_batch(self._batch)
        self._state = handle.getValueState("state", STATE_SCHEMA)
        pipelines = are_used(self._internals)
        self._update = pipeline_state_calls(handle, self._state) if pipelines else self._state.update

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Read the key's new records and step."""
        return self._run(key, map(_record, rows), timerValues, fires=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002
        """Step without observations, or delete the state of a cluster or policy that is gone."""
        policy, cluster = key
        if policy not in POLICIES or (cluster and not self._host.knows(cluster)):
            self._clear((policy, cluster))
            return iter(())
        return self._run(key, (), timerValues, fires=True)

    def close(self) -> None:
        """A batch ends."""
        end_batch(self._batch, self._sequel)
        collect_garbage()

    def _run(self, key: Any, records: Iterable[ObservedRecord], timer_values: Any, *, fires: bool) -> Iterator[Row]:
        """Step the key; `fires` means that its timer fired, which Spark deletes afterwards."""
        policy, cluster = key
        if self._steps is not None:
            self._steps.mark()
        now_ms = timer_values.getCurrentProcessingTimeInMs()
        before: KeyState | None = None
        timer_ms: int | None = None
        if (written := STATE_CACHE.read((policy, cluster), self._sequel)) is not None:
            before, timer_ms = written
        elif stored := self._state.get():
            before, timer_ms = decode(bytes(stored[0])), stored[1]
        transition = reconcile(self._host, self._prefix, (policy, cluster), before, records, now_ms)
        outputs = transition.outputs
        if transition.key_state is not None:
            before_ms, timer_ms = timer_ms, next_timer_ms(transition.wake_ms, timer_ms, now_ms)
            if before_ms is not None and before_ms != timer_ms and not fires:
                self._handle.deleteTimer(before_ms)
            if timer_ms is not None and timer_ms != before_ms:
                self._handle.registerTimer(timer_ms)
                due = timer_record(policy, cluster, from_millis(timer_ms), now=from_millis(now_ms))
                outputs += (Output(TIMERS, *due),)
            self._update((encode(transition.key_state), timer_ms))
            STATE_CACHE.write((policy, cluster), self._sequel, transition.key_state, timer_ms)
        elif before is not None:
            self._clear((policy, cluster))  # otherwise the same counts would be published again
            if timer_ms is not None and not fires:
                self._handle.deleteTimer(timer_ms)
        return map(self._row, outputs)

    def _clear(self, key: tuple[str, str]) -> None:
        self._state.clear()
        STATE_CACHE.drop(key)

    def _row(self, output: Output) -> Row:
        return Row(topic=f"{self._prefix}.{output.topic}", key=output.key, value=output.value)


@lru_cache(maxsize=2)
def _build(arguments: bytes) -> PolicyOperator:
    """Return the same operator for each batch of a process, if its pickled arguments are equal.

    A policy takes over its verdicts from its last step, which a new operator would not have: judging all of 30 brokers
    with 4 volumes takes 2 ms a step instead of 0.3 (`bench/steps.py`), and the fleet's p99 would be 1.4 s.
    """
    host, prefix, internals, steps = pickle.loads(arguments)  # noqa: S301 - Spark sent it, as it would the object
    if are_used(internals):
        convert_rows_by_column()
    return PolicyOperator(host, prefix, internals, steps)


def next_timer_ms(wake_ms: int | None, timer_ms: int | None, began_ms: int) -> int | None:
    """Return the due time of the timer that a key needs after a step of a batch that began at `began_ms`.

    That is `timer_ms`, the last timer that was set, if it is pending and early enough; None if none is needed.
    """
    if wake_ms is None:
        return timer_ms
    due_ms = max(wake_ms, began_ms + 1)
    is_early_enough = timer_ms is not None and began_ms < timer_ms <= due_ms
    return timer_ms if is_early_enough else due_ms


def _record(row: Row) -> ObservedRecord:
    # One dictionary: a Row searches its names at each access, which takes a tenth of a step.
    fields = dict(zip(row.__fields__, row, strict=True))
    cut = fields.get("cut")
    # A Row in Spark's tester, a dict in the query.
    known = None if cut is None else Cut(int(cut["bytes"]), cut["sha256"])
    position = (fields["topic"], fields["partition"], fields["offset"], fields["appended_ms"])
    return ObservedRecord(*position, fields["value"], known)
