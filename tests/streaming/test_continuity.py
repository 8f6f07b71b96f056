"""Whether a process may take what it wrote for what is stored: batches follow each other, are repeated, go astray."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext

from streaming.continuity import Continuity, PartitionBatch, batch_in_hand

RUN, ANOTHER_RUN = "3f0a", "77c1"


def stepped(continuity: Continuity, *batches: PartitionBatch) -> None:
    for batch in batches:
        continuity.end(continuity.begin(batch))


def batches(*numbers: int, run: str = RUN, partition: int = 0) -> list[PartitionBatch]:
    return [PartitionBatch(run, partition, number) for number in numbers]


@pytest.mark.parametrize(
    ("before", "batch", "known"),
    [
        pytest.param([], 4, [], id="nothing was stepped before the first"),
        pytest.param(batches(4), 5, [4], id="a batch follows the last one"),
        pytest.param(batches(4, 5, 6), 7, [4, 5, 6], id="and many follow each other"),
        pytest.param(batches(4, 5, 7), 8, [7], id="what was written before a gap is not known"),
        pytest.param(batches(4, 5), 7, [], id="nor where the gap is the last thing"),
        pytest.param(batches(4, 5), 5, [], id="a batch that is repeated follows nothing"),
        pytest.param(batches(4, 5, 5), 6, [5], id="but for itself"),
        pytest.param(batches(4, 5, run=ANOTHER_RUN), 6, [], id="each run is on its own"),
        pytest.param(batches(4, 5, partition=1), 6, [], id="each partition is on its own"),
    ],
)
def test_a_process_knows_what_it_wrote_in_the_batches_before_without_a_gap(
    before: list[PartitionBatch], batch: int, known: list[int]
) -> None:
    continuity = Continuity()
    stepped(continuity, *before)
    stretch = continuity.begin(PartitionBatch(RUN, 0, batch))
    assert [number for number in range(10) if stretch.has(PartitionBatch(RUN, 0, number))] == known


def test_a_batch_that_never_ended_is_a_gap() -> None:
    continuity = Continuity()
    stepped(continuity, *batches(4))
    continuity.begin(PartitionBatch(RUN, 0, 5))
    assert not continuity.begin(PartitionBatch(RUN, 0, 6)).has(PartitionBatch(RUN, 0, 4))


class Turn(NamedTuple):
    """One process takes a batch, of which it writes these keys; it is done over where it does not come to its end."""

    process: int
    keys: frozenset[int]
    ends: bool
    run_ends: bool


TURNS = st.lists(
    st.builds(
        Turn, st.integers(0, 1), st.frozensets(st.integers(0, 2)), st.sampled_from((True, True, False)), st.booleans()
    ),
    max_size=40,
)


@given(TURNS)
def test_what_a_process_takes_for_stored_is_stored(transitions: list[Turn]) -> None:
    """Whatever processes, deaths in the middle and new runs there are."""
    stored: dict[int, object] = {}
    processes = [(Continuity(), dict[int, tuple[PartitionBatch, object]]()) for _ in range(2)]
    run, number = 0, 0
    for transition in transitions:
        continuity, written = processes[transition.process]
        batch = PartitionBatch(str(run), 0, number)
        stretch, writes = continuity.begin(batch), {}
        for key in transition.keys:
            if key in written and stretch.has(written[key][0]):
                assert written[key][1] is stored[key]
            writes[key] = object()
            written[key] = (batch, writes[key])
        if transition.ends:
            continuity.end(stretch)
            stored |= writes
            number += 1
        run += transition.run_ends


class _Task:
    def __init__(self, **properties: str) -> None:
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's
        return self._properties.get(name)

    def partitionId(self) -> int:  # noqa: N802 - Spark's
        return 3


@pytest.mark.parametrize(
    ("task", "batch"),
    [
        (None, None),
        (_Task(), None),
        (_Task(spark_jobGroup_id=RUN), None),
        (_Task(spark_jobGroup_id=RUN, streaming_sql_batchId="12"), PartitionBatch(RUN, 3, 12)),
    ],
    ids=["no task", "a task of no query", "a job of somebody else", "a task of a query"],
)
def test_the_batch_in_hand_is_what_spark_says_of_the_task(
    monkeypatch: pytest.MonkeyPatch, task: Any, batch: PartitionBatch | None
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    assert batch_in_hand() == batch
