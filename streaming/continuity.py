"""Tracks which partitions this process has stepped in every batch, so that the state it wrote last is the stored one.

A batch follows the previous one only once that one is stored completely. So a process that stepped each batch of a
partition since it wrote a state need not check whether another process wrote it meanwhile. A repeated batch does not
count as following.
"""

from typing import NamedTuple

from pyspark import TaskContext

_RUN, _NUMBER = "spark.jobGroup.id", "streaming.sql.batchId"
"""As Spark tells the tasks of a query which of its runs they belong to, and which batch of it."""


class PartitionBatch(NamedTuple):
    """One partition's part of a batch."""

    run: str
    partition: int
    number: int

    @property
    def place(self) -> tuple[str, int]:
        """Where batches follow each other."""
        return self.run, self.partition


class GaplessRun(NamedTuple):
    """A batch in hand, and the first of those before it that were stepped here without a gap; itself: there is none."""

    batch: PartitionBatch
    first: int

    def has(self, earlier: PartitionBatch) -> bool:
        """Whether what was written then, in this process, is stored and was written by nobody else since."""
        return earlier.place == self.batch.place and self.first <= earlier.number < self.batch.number


class Continuity:
    """What a process has stepped last of each partition; what was of another run counts for nothing."""

    def __init__(self) -> None:
        self._ended: dict[int, GaplessRun] = {}

    def begin(self, batch: PartitionBatch) -> GaplessRun:
        """A batch begins; one that never ends leaves a gap."""
        before = self._ended.pop(batch.partition, None)
        if before is not None and before.batch == batch._replace(number=batch.number - 1):
            return before._replace(batch=batch)
        return GaplessRun(batch, batch.number)

    def end(self, run: GaplessRun) -> None:
        """All keys of it were stepped."""
        self._ended[run.batch.partition] = run


def batch_in_hand() -> PartitionBatch | None:
    """The batch whose task this is; None: it is no task of a query."""
    if (task := TaskContext.get()) is None:
        return None
    run, number = task.getLocalProperty(_RUN), task.getLocalProperty(_NUMBER)
    return None if run is None or number is None else PartitionBatch(run, task.partitionId(), int(number))
