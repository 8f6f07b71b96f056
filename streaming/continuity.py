"""The states that this worker wrote itself, in batches of a partition without a gap: it need not read them again.

Spark begins a batch only when the previous one is stored completely. So if a worker has stepped each batch of a
partition since it wrote a state, then nobody else wrote that state since, and Spark's answer would be the same. To read
a state costs a round trip to the JVM for each key, a third of a worker's time in a large fleet.
"""

from typing import NamedTuple

from pyspark import TaskContext

from streaming.key_state import CACHE_BYTES, KeyState

_RUN, _NUMBER = "spark.jobGroup.id", "streaming.sql.batchId"
"""The properties by which Spark gives a task the run of its query, and the number of its batch."""


class PartitionBatch(NamedTuple):
    """One partition's part of a batch."""

    run: str
    partition: int
    number: int


class WrittenStates:
    """The states that were written without a gap, and when each one's timer is due; some, if all were too large."""

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


def begin(batch: PartitionBatch | None) -> WrittenStates:
    """The states that need not be read in this batch. A batch that began before and never ended leaves a gap."""
    if batch is None or (ended := _ended.pop(batch.partition, None)) is None:
        return WrittenStates()
    previous, states = ended
    return states if previous == batch._replace(number=batch.number - 1) else WrittenStates()


def end(batch: PartitionBatch | None, states: WrittenStates) -> None:
    """All keys of the batch were stepped."""
    if batch is not None:
        _ended[batch.partition] = batch, states


def current_batch() -> PartitionBatch | None:
    """The batch of this task; None: it is no task of a query."""
    if (task := TaskContext.get()) is None:
        return None
    run, number = task.getLocalProperty(_RUN), task.getLocalProperty(_NUMBER)
    return None if run is None or number is None else PartitionBatch(run, task.partitionId(), int(number))
