"""A process may use the states that it wrote, only if nobody else can have written them since."""

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext

import streaming.worker_memory
from streaming.key_state import NEVER_STEPPED, KeyState
from streaming.worker_memory import CACHE_BYTES, PartitionBatch, WrittenStates, begin_batch, current_batch, end_batch

RUN, ANOTHER_RUN = "3f0a", "77c1"
KEY = ("throttle", "orders")


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    process: dict[int, Any] = {}
    monkeypatch.setattr(streaming.worker_memory, "_ended", process)
    return process


def state(now_ms: int, size: int = 10) -> KeyState:
    return msgspec.structs.replace(NEVER_STEPPED, now_ms=now_ms, state=msgspec.Raw(bytes(size)))


def batches(*numbers: int, run: str = RUN, partition: int = 0) -> list[PartitionBatch]:
    return [PartitionBatch(run, partition, number) for number in numbers]


@pytest.mark.parametrize(
    ("before", "number", "known"),
    [
        pytest.param([], 4, [], id="the first batch knows nothing"),
        pytest.param(batches(4), 5, [4], id="a batch follows the last one"),
        pytest.param(batches(4, 5, 6), 7, [4, 5, 6], id="many batches follow each other"),
        pytest.param(batches(4, 5, 7), 8, [7], id="states written before a gap are unknown"),
        pytest.param(batches(4, 5), 7, [], id="the gap may be the last batch"),
        pytest.param(batches(4, 5), 5, [], id="a repeated batch follows nothing"),
        pytest.param(batches(4, 5, 5), 6, [5], id="the next batch follows the repeated one"),
        pytest.param(batches(4, 5, run=ANOTHER_RUN), 6, [], id="another run of the query does not count"),
        pytest.param(batches(4, 5, partition=1), 6, [], id="another partition does not count"),
    ],
)
def test_a_process_knows_the_states_of_its_batches_without_a_gap(
    before: list[PartitionBatch], number: int, known: list[int]
) -> None:
    for batch in before:
        written = begin_batch(batch)
        written.put(("throttle", str(batch.number)), state(batch.number), None)
        end_batch(batch, written)
    written = begin_batch(PartitionBatch(RUN, 0, number))
    assert [each for each in range(10) if written.get(("throttle", str(each)))] == known


def test_a_batch_that_never_ended_is_a_gap() -> None:
    (first,) = batches(4)
    written = begin_batch(first)
    written.put(KEY, state(1), 7)
    end_batch(first, written)
    assert begin_batch(PartitionBatch(RUN, 0, 5)).get(KEY) == (state(1), 7)
    assert begin_batch(PartitionBatch(RUN, 0, 6)).get(KEY) is None


def test_states_beyond_the_limit_are_read_again() -> None:
    written = WrittenStates()
    written.put(KEY, state(1, CACHE_BYTES - 5), None)
    written.put(("throttle", "payments"), state(1, 10), None)
    assert (written.get(("throttle", "payments")), written.get(KEY) is None) == (None, False)
    written.put(KEY, state(2, 10), None)
    written.put(("throttle", "payments"), state(1, 10), None)
    assert written.get(("throttle", "payments")) == (state(1), None)
    written.drop(KEY)
    assert written.get(KEY) is None


class Turn(NamedTuple):
    """One process takes a batch and writes these keys; the batch may fail, and the run may end after it."""

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
def test_a_written_state_is_the_stored_one_whatever_processes_die(turns: list[Turn]) -> None:
    stored: dict[tuple[str, str], tuple[KeyState, int | None]] = {}
    processes: tuple[dict[int, Any], ...] = ({}, {})
    run, number, now_ms = 0, 0, 0
    for turn in turns:
        streaming.worker_memory._ended = processes[turn.process]
        batch = PartitionBatch(str(run), 0, number)
        written, writes = begin_batch(batch), {}
        for key in (("throttle", str(each)) for each in turn.keys):
            assert written.get(key) in (None, stored.get(key))
            now_ms += 1
            writes[key] = state(now_ms), None
            written.put(key, state(now_ms), None)
        if turn.ends:
            end_batch(batch, written)
            stored |= writes
            number += 1
        run += turn.run_ends


class Task:
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
        (Task(), None),
        (Task(spark_jobGroup_id=RUN), None),
        (Task(spark_jobGroup_id=RUN, streaming_sql_batchId="12"), PartitionBatch(RUN, 3, 12)),
    ],
    ids=["no task", "a task of no query", "another job", "a task of a query"],
)
def test_the_current_batch_is_named_by_the_properties_of_the_task(
    monkeypatch: pytest.MonkeyPatch, task: Any, batch: PartitionBatch | None
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    assert current_batch() == batch
