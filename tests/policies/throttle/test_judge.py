"""Which volumes count, and what each allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies.free_space.trend import Filling
from policies.free_space.volumes import VolumeState, seconds_left
from policies.observations import Observation
from policies.throttle.judge import judge_brokers
from policies.throttle.state import VolumeKey
from policies.units import to_millis
from tests.policies.scenario import GB, at, log_dirs, members
from tests.policies.throttle.known import SETTINGS, A, B, batches, folded, judged_at


def test_of_a_broker_that_left_with_nothing_to_remember_nothing_is_kept() -> None:
    known = folded([log_dirs(0, 1, 50 * GB), log_dirs(0, 2, 50 * GB)], [members(20, 2)])
    assert [b.name for b in judged_at(known, 20).known.brokers] == [2]


@given(batches, st.integers(40, 400), st.integers(1, 4000))
def test_a_verdict_changes_by_time_alone_only_when_it_says(batch: list[Observation], seconds: int, more: int) -> None:
    known = folded(batch)
    before, after = judged_at(known, seconds), judged_at(known, seconds + more)
    for number, verdict in before.brokers.items():
        if verdict.next_ms is None or to_millis(at(seconds + more)) < verdict.next_ms:
            assert replace(after.brokers[number], judged_ms=verdict.judged_ms) == verdict


STOPPING = st.sets(st.tuples(st.integers(1, 3), st.sampled_from([A, B])), max_size=2)


@given(batches, st.integers(40, 400), st.integers(-400, 4000), STOPPING)
def test_a_verdict_that_is_taken_over_is_the_one_that_would_be_made(
    batch: list[Observation], seconds: int, more: int, stopping: set[VolumeKey]
) -> None:
    known = folded(batch)
    before, later = judged_at(known, seconds), to_millis(at(max(0, seconds + more)))
    taken_over = judge_brokers(known, SETTINGS, later, stopped_by=stopping, before=before.brokers)
    alone = judge_brokers(known, SETTINGS, later, stopped_by=stopping)
    assert [replace(b, judged_ms=0) for b in taken_over.brokers.values()] == [
        replace(b, judged_ms=0) for b in alone.brokers.values()
    ]
    assert (taken_over.known, taken_over.ended) == (alone.known, alone.ended)


@pytest.mark.parametrize(
    ("free", "rate", "age", "left"),
    [(100, 10.0, 0, 10), (100, 10.0, 4, 6), (100, 10.0, 99, 0), (0, 10.0, 0, 0), (100, None, 0, None)],
)
def test_the_time_left_counts_from_now(free: int, rate: float | None, age: int, left: float | None) -> None:
    volume = VolumeState(A, 1000, free, 5000, filling=Filling(rate, 0.9) if rate else None)
    assert seconds_left(volume, 5000 + 1000 * age) == left
