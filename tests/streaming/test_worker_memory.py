"""What a worker remembers changes no decision: states are decoded once, an operator is built once."""

import gc
import itertools
import pickle
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext

from policies.registry import POLICIES
from policies.throttle import ThrottleSettings
from policies.throttle.judge import judge_broker
from policies.throttle.state import BrokerState
from streaming import host as hosting
from streaming import worker_memory
from streaming.host import PolicyHost
from streaming.key_state import NEVER_STEPPED, KeyState, decode, encode
from streaming.operator import PolicyOperator
from streaming.worker_memory import PartitionBatch, StateCache, begin_batch, current_batch, end_batch
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, log_dirs, throttle

THROTTLE = POLICIES["throttle"]
SETTINGS = ThrottleSettings.model_validate(SOFT_AND_HARD)


class Text(msgspec.Struct, frozen=True):
    """A state whose size a test chooses."""

    text: str


TEXTS = replace(THROTTLE, state=Text)


def stored_state(text: Text) -> KeyState:
    """The state as the checkpoint has it."""
    encoded = msgspec.Raw(msgspec.msgpack.encode(text))
    return msgspec.structs.replace(NEVER_STEPPED, state_version=TEXTS.state_version, state=encoded)


def put(cache: StateCache, cluster: str, size: int) -> KeyState:
    """Store a state of about this size, and return it as the checkpoint has it."""
    text = Text(f"{cluster}{'x' * size}"[:size])
    stored = stored_state(text)
    cache.store(TEXTS, cluster, stored.state, text)
    return stored


def is_found(cache: StateCache, cluster: str, stored: KeyState, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the state need not be decoded; if it is found it is stored again."""
    with monkeypatch.context() as patch:
        patch.setattr(worker_memory, "decode_policy_state", lambda kind, state: None)
        state = cache.decode(TEXTS, cluster, stored)
    if state is not None:
        cache.store(TEXTS, cluster, stored.state, state)
    return state is not None


def test_the_cache_never_exceeds_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = StateCache(most_bytes=2 * len(msgspec.msgpack.encode(Text("x" * 80))))
    a, b, c = (put(cache, name, 80) for name in "abc")
    found = [is_found(cache, name, stored, monkeypatch) for name, stored in (("a", a), ("b", b), ("c", c))]
    assert found == [True, True, False]
    huge = put(cache, "a", 400)
    assert not is_found(cache, "a", huge, monkeypatch)
    assert is_found(cache, "c", put(cache, "c", 80), monkeypatch), "its room is free again"


def test_in_a_fleet_slightly_larger_than_the_cache_most_states_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch goes through all keys: to evict the oldest would be to evict each before its next step."""
    cache, found = StateCache(most_bytes=1100), 0
    for _ in range(20):
        for number in range(11):
            stored = stored_state(Text(f"c{number}{'x' * 100}"[:100]))
            if is_found(cache, f"c{number}", stored, monkeypatch):
                found += 1
            else:
                put(cache, f"c{number}", 100)
    assert found > 0.7 * 20 * 11


def test_a_state_of_another_type_is_not_taken_for_that_of_the_policy() -> None:
    """A test, or a package, may register another policy of the same name; equal bytes may be another state."""
    cache = StateCache()
    stored = put(cache, CLUSTER, 10)
    other: Any = replace(TEXTS, state=msgspec.defstruct("Other", [("text", str)], frozen=True))
    assert type(cache.decode(other, CLUSTER, stored)) is other.state


def decided(cache: StateCache, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A course with a new host for each batch, as Spark has it, and its state as bytes."""
    monkeypatch.setattr(hosting, "STATE_CACHE", cache)
    stored: bytes | None = None
    written: list[bytes] = []
    for number in range(40):
        free = 6 * GB - number * GB // 8
        before, now = decode(stored) if stored else None, number * 10
        host = PolicyHost({"throttle": SETTINGS})
        stepped = host.step("throttle", CLUSTER, before, [log_dirs(now, 1, free)], at(now))
        stored = encode(stepped.key_state)
        written += [stored, *(output.value for output in stepped.outputs)]
    return written


def test_a_process_with_the_cache_decides_byte_for_byte_as_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decided(StateCache(), monkeypatch) == decided(StateCache(most_bytes=0), monkeypatch)


def test_a_key_that_another_stepped_is_judged_again_where_its_readings_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two partitions a worker finds a stale state every other batch: judging all brokers is most of its work."""
    here, elsewhere = ((PolicyHost({"throttle": SETTINGS}), StateCache()) for _ in range(2))
    judged: list[int] = []

    def record(settings: ThrottleSettings, state: BrokerState, *rest: Any) -> Any:
        judged.append(state.name)
        return judge_broker(settings, state, *rest)

    monkeypatch.setattr("policies.throttle.judge.judge_broker", record)

    def step(process: tuple[PolicyHost, StateCache], before: KeyState | None, second: int, *numbers: int) -> KeyState:
        monkeypatch.setattr(hosting, "STATE_CACHE", process[1])
        readings = [log_dirs(second, number, 60 * GB) for number in numbers]
        stored = None if before is None else decode(encode(before))
        judged.clear()
        return process[0].step("throttle", CLUSTER, stored, readings, at(second)).key_state

    state = step(here, None, 0, 1, 2, 3)
    state = step(elsewhere, state, 1, 2)
    assert judged == [1, 2, 3]
    state = step(here, state, 2, 3)
    assert judged == [2, 3]
    step(elsewhere, state, 3, 2)
    assert judged == [2, 3]


def test_an_operator_that_is_shipped_with_each_batch_is_one_and_the_same_in_a_process() -> None:
    def shipped(**settings: str) -> PolicyOperator:
        host = PolicyHost({"throttle": throttle(SOFT_AND_HARD, **settings)}, frozenset({CLUSTER}))
        operator: PolicyOperator = pickle.loads(pickle.dumps(PolicyOperator(host, "headgate")))
        return operator

    first = shipped(heartbeat="60s")
    assert shipped(heartbeat="60s") is first
    assert shipped(heartbeat="61s") is not first
    assert (first._host.clusters, first._prefix) == (frozenset({CLUSTER}), "headgate")


def test_what_a_process_keeps_is_searched_for_cycles_every_thousandth_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(worker_memory, "_batches", itertools.count())
    for name in ("unfreeze", "collect", "freeze"):
        monkeypatch.setattr(gc, name, lambda name=name: called.append(name))
    operator = PolicyOperator(PolicyHost(), "headgate")
    operator.init(MagicMock())
    for _ in range(1001):
        operator.close()
    full, young = ["unfreeze", "collect", "freeze"], ["collect", "freeze"]
    assert called == [*full, *young * 999, *full]


# --- A process may use the states that it wrote, only if nobody else can have written them since.


RUN, ANOTHER_RUN = "3f0a", "77c1"


@pytest.fixture(autouse=True)
def _no_batch_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_memory, "_ended", {})


def write(cache: StateCache, cluster: str, sequel: object, at_ms: int) -> tuple[KeyState, int | None]:
    """Step a key, and write its state in a batch; return it with its timer."""
    written = msgspec.structs.replace(put(cache, cluster, 10), now_ms=at_ms), at_ms
    cache.write((TEXTS.name, cluster), sequel, *written)
    return written


def batches(*numbers: int, run: str = RUN, partition: int = 0) -> list[PartitionBatch]:
    return [PartitionBatch(run, partition, number) for number in numbers]


@for_each(
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
    cache = StateCache()
    worker_memory._ended.clear()
    for batch in before:
        sequel = begin_batch(batch)
        write(cache, str(batch.number), sequel, batch.number)
        end_batch(batch, sequel)
    sequel = begin_batch(PartitionBatch(RUN, 0, number))
    assert [each for each in range(10) if cache.read((TEXTS.name, str(each)), sequel)] == known


def test_a_batch_that_never_ended_is_a_gap() -> None:
    cache, (first, second, third) = StateCache(), batches(4, 5, 6)
    sequel = begin_batch(first)
    written = write(cache, "a", sequel, 7)
    end_batch(first, sequel)
    assert cache.read((TEXTS.name, "a"), begin_batch(second)) == written
    assert cache.read((TEXTS.name, "a"), begin_batch(third)) is None


def test_a_state_that_was_deleted_or_for_which_there_is_no_room_is_not_known() -> None:
    cache, sequel = StateCache(most_bytes=40), object()
    for cluster in ("a", "b"):
        write(cache, cluster, sequel, 1)
    cache.drop((TEXTS.name, "a"))
    assert cache.read((TEXTS.name, "a"), sequel) is None
    write(cache, "c", sequel, 1)
    write(cache, "d", sequel, 1)
    assert [name for name in "abcd" if cache.read((TEXTS.name, name), sequel)] == ["b", "c"]


class Turn(NamedTuple):
    """One process takes a batch and writes these keys; the batch may fail, and the run may end after it."""

    process: int
    keys: frozenset[int]
    ends: bool
    run_ends: bool


KEYS, MOSTLY = st.frozensets(st.integers(0, 2)), st.sampled_from((True, True, False))


@given(st.lists(st.builds(Turn, st.integers(0, 1), KEYS, MOSTLY, st.booleans()), max_size=40))
def test_a_written_state_is_the_stored_one_whatever_processes_die(turns: list[Turn]) -> None:
    stored: dict[str, tuple[KeyState, int | None]] = {}
    processes: tuple[tuple[dict[int, Any], StateCache], ...] = (({}, StateCache()), ({}, StateCache()))
    run, number, now_ms = 0, 0, 0
    for turn in turns:
        worker_memory._ended, cache = processes[turn.process]
        batch = PartitionBatch(str(run), 0, number)
        sequel, writes = begin_batch(batch), {}
        for cluster in map(str, turn.keys):
            assert cache.read((TEXTS.name, cluster), sequel) in (None, stored.get(cluster))
            now_ms += 1
            writes[cluster] = write(cache, cluster, sequel, now_ms)
        if turn.ends:
            end_batch(batch, sequel)
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


@for_each(
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
