"""What is known of a cluster, however the readings arrive; which volumes count, and what each allows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from policies.free_space.trend import Filling
from policies.free_space.volumes import VolumeState, seconds_left
from policies.observations import Observation, Outcome, sort_observations
from policies.throttle.fold import fold
from policies.throttle.judge import judge_brokers
from policies.throttle.readings import VolumeReading
from policies.throttle.state import VolumeKey
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.scenario import GB, at, failed, log_dirs, members
from tests.policies.throttle.known import SETTINGS, A, B, batches, counting, folded, freshness, judged_at


@given(batches, st.data())
def test_where_a_course_of_readings_is_cut_into_batches_does_not_matter(
    batch: list[Observation], data: st.DataObject
) -> None:
    ordered = sort_observations(batch)
    cut = data.draw(st.integers(0, len(ordered)))
    assert folded(ordered[:cut], ordered[cut:]) == folded(ordered)


@given(batches, batches)
def test_what_was_seen_before_changes_nothing_when_it_comes_again(
    first: list[Observation], second: list[Observation]
) -> None:
    later = [o for o in second if all(o.at >= f.at for f in first) and o.id not in {f.id for f in first}]
    known = folded(first, later)
    assert fold(known, first) == known


@given(batches)
def test_brokers_and_volumes_are_sorted(batch: list[Observation]) -> None:
    known = folded(batch)
    assert [b.name for b in known.brokers] == sorted({b.name for b in known.brokers})
    for broker in known.brokers:
        assert [v.log_dir for v in broker.volumes] == sorted({v.log_dir for v in broker.volumes})


def test_of_an_id_seen_twice_the_earliest_counts() -> None:
    twice = [log_dirs(5, 1, 50 * GB, id="x"), log_dirs(0, 1, 3 * GB, id="x")]
    assert [o.at for o in sort_observations(twice)] == [at(0)]
    assert counting(folded(twice), 10)[1, A].state.usable_bytes == 3 * GB


def test_an_id_of_another_source_is_another_event() -> None:
    numbered = [replace(log_dirs(0, broker, 3 * GB, id="1"), source=f"collector-{broker}") for broker in (1, 2)]
    assert counting(folded(numbered), 0).keys() == {(1, A), (2, A)}


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(log_dirs(5, 1, 0), id="an older reading"),
        pytest.param(log_dirs(10, 1, 0, id="a"), id="as old, lesser id"),
        pytest.param(log_dirs(30, 1, 0, id="dirs-1@10"), id="the same id again"),
        pytest.param(failed(5, 1), id="an older failure"),
    ],
)
def test_older_readings_change_nothing(late: Observation) -> None:
    known = folded([log_dirs(10, 1, 4 * GB)])
    assert folded([log_dirs(10, 1, 4 * GB)], [late]) == known


def test_a_failure_leaves_the_last_good_reading() -> None:
    known = folded([log_dirs(0, 1, 4 * GB)], [failed(10, 1, Outcome.UNAUTHORIZED)])
    assert counting(known, 10)[1, A].factor == 0.75
    assert (known.brokers[0].outcome, known.brokers[0].read_id) == ("unauthorized", "dirs-1@0")


def test_a_good_reading_that_comes_after_a_later_failure_counts() -> None:
    known = folded([log_dirs(0, 1, 4 * GB)], [failed(20, 1, Outcome.UNAUTHORIZED)], [log_dirs(10, 1, 3 * GB)])
    assert counting(known, 20)[1, A].factor == 0.5
    assert (known.brokers[0].outcome, known.brokers[0].read_id) == ("unauthorized", "dirs-1@10")


@pytest.mark.parametrize(
    ("total", "usable", "is_readable"), [(0, 0, True), (0, 5, True), (9, 10, True), (-1, 5, False), (5, -1, False)]
)
def test_only_an_unknown_size_is_unreadable(total: int, usable: int, is_readable: bool) -> None:
    assert VolumeReading(log_dir="/d", total_bytes=total, usable_bytes=usable).readable is is_readable


def test_an_unreadable_volume_ages_while_its_broker_is_read() -> None:
    known = folded([log_dirs(0, 1, {A: 4 * GB, B: 50 * GB})], [log_dirs(200, 1, {A: None, B: 50 * GB})])
    assert freshness(known, 299) == {(1, A): "fresh", (1, B): "fresh"}
    assert freshness(known, 300) == {(1, A): "stale", (1, B): "fresh"}


@pytest.mark.parametrize("sizes", [(-1, 5), (5, -1), (-1, -1)], ids=["no total", "no usable", "neither"])
def test_a_volume_without_sizes_is_unreadable(sizes: tuple[int, int]) -> None:
    observation = log_dirs(0, 1, {A: 0})
    volume = observation.reading.volumes[0]  # type: ignore[attr-defined]
    unsized = volume.model_copy(update={"total_bytes": sizes[0], "usable_bytes": sizes[1]})
    reading = observation.reading.model_copy(update={"volumes": (unsized,)})
    assert counting(folded([Observation("x", at(0), reading)]), 0) == {}
    assert counting(folded([log_dirs(0, 1, {A: 0}, total=0)]), 0)[1, A].factor == 0.0, "a size of 0 is one"


def test_a_dir_named_twice_counts_as_the_fuller() -> None:
    one, two = log_dirs(0, 1, 2 * GB), log_dirs(0, 1, 50 * GB)
    for pair in ((one, two), (two, one)):
        volumes = tuple(v for o in pair for v in o.reading.volumes)  # type: ignore[attr-defined]
        both = one.reading.model_copy(update={"volumes": volumes})
        assert counting(folded([Observation("x", at(0), both)]), 0)[1, A].state.usable_bytes == 2 * GB


@pytest.mark.parametrize(
    ("free", "counted"),
    [
        pytest.param(4 * GB, {(1, A): "departed", (1, B): "fresh"}, id="limiting: held"),
        pytest.param(50 * GB, {(1, B): "fresh"}, id="not limiting: forgotten"),
    ],
)
def test_a_volume_missing_from_a_newer_good_reading_departs(free: int, counted: dict[Any, str]) -> None:
    known = folded([log_dirs(0, 1, {A: free, B: 50 * GB})], [log_dirs(10, 1, {B: 50 * GB})])
    assert freshness(known, 10) == counted


def test_a_broker_left_when_a_membership_first_lacked_it_though_later_ones_are_in_the_same_batch() -> None:
    known = folded([log_dirs(0, 1, 0), members(20, 2), members(30, 2), members(40, 2)])
    assert known.brokers[0].left_ms == to_millis(at(20))


@for_each(
    ("membership", "kind"),
    [
        pytest.param(members(20, 2), "departed", id="a newer one without it"),
        pytest.param(members(20, 1, 2), "fresh", id="a newer one with it"),
        pytest.param(members(10, 2), "departed", id="one as new as its reading"),
        pytest.param(members(5, 2), "fresh", id="an older one without it"),
        pytest.param(members(20, outcome=Outcome.UNREACHABLE), "fresh", id="one that could not be read"),
        pytest.param(members(20), "departed", id="one without any broker"),
    ],
)
def test_a_broker_leaves_by_a_membership_as_new_as_its_last_reading(membership: Observation, kind: str) -> None:
    for course in ([[log_dirs(10, 1, 3 * GB)], [membership]], [[membership], [log_dirs(10, 1, 3 * GB)]]):
        assert freshness(folded(*course), 20) == {(1, A): kind}


@for_each("ids", ["ab", "ba"])
def test_readings_of_one_instant_are_folded_by_kind_and_not_by_id(ids: str) -> None:
    read, listed = log_dirs(30, 1, 0, id=ids[0]), replace(members(30, 2), id=ids[1])
    known = folded([log_dirs(0, 1, 0), members(20, 2)], [read, listed])
    assert known.brokers[0].left_ms == to_millis(at(20)), "the hold does not begin again"


def test_an_older_membership_changes_nothing() -> None:
    known = folded([log_dirs(0, 1, 3 * GB)], [members(20, 1)])
    assert fold(known, [members(10, 2)]) == known


@pytest.mark.parametrize("back", [members(30, 1), log_dirs(30, 1, 3 * GB)], ids=["a member again", "read again"])
def test_a_broker_that_returns_is_there_again(back: Observation) -> None:
    known = folded([log_dirs(0, 1, 3 * GB)], [members(20, 2)], [back])
    assert freshness(known, 30) == {(1, A): "fresh"}
    assert known.brokers[0].left_ms is None


def test_further_memberships_do_not_prolong_the_hold() -> None:
    known = folded([log_dirs(0, 1, 0)], [members(20, 2)], [members(1000, 2)])
    assert counting(known, 1000)[1, A].departed_ms == to_millis(at(20))


def test_of_a_broker_that_left_with_nothing_to_remember_nothing_is_kept() -> None:
    known = folded([log_dirs(0, 1, 50 * GB), log_dirs(0, 2, 50 * GB)], [members(20, 2)])
    assert [b.name for b in judged_at(known, 20).known.brokers] == [2]


@given(batches, st.integers(40, 400), st.integers(1, 4000))
def test_a_verdict_changes_by_time_alone_only_when_it_says(batch: list[Observation], seconds: int, more: int) -> None:
    known = folded(batch)
    before, after = judged_at(known, seconds), judged_at(known, seconds + more)
    for number, verdict in before.brokers.items():
        if verdict.next_ms is None or to_millis(at(seconds + more)) < verdict.next_ms:
            assert structs.replace(after.brokers[number], judged_ms=verdict.judged_ms) == verdict


STOPPING = st.sets(st.tuples(st.integers(1, 3), st.sampled_from([A, B])), max_size=2)


@given(batches, st.integers(40, 400), st.integers(-400, 4000), STOPPING)
def test_a_verdict_that_is_taken_over_is_the_one_that_would_be_made(
    batch: list[Observation], seconds: int, more: int, stopping: set[VolumeKey]
) -> None:
    known = folded(batch)
    before, later = judged_at(known, seconds), to_millis(at(max(0, seconds + more)))
    taken_over = judge_brokers(known, SETTINGS, later, stopped_by=stopping, before=before.brokers)
    alone = judge_brokers(known, SETTINGS, later, stopped_by=stopping)
    assert [structs.replace(b, judged_ms=0) for b in taken_over.brokers.values()] == [
        structs.replace(b, judged_ms=0) for b in alone.brokers.values()
    ]
    assert (taken_over.known, taken_over.ended) == (alone.known, alone.ended)


@pytest.mark.parametrize(
    ("free", "rate", "age", "left"),
    [(100, 10.0, 0, 10), (100, 10.0, 4, 6), (100, 10.0, 99, 0), (0, 10.0, 0, 0), (100, None, 0, None)],
)
def test_the_time_left_counts_from_now(free: int, rate: float | None, age: int, left: float | None) -> None:
    volume = VolumeState(A, 1000, free, 5000, filling=Filling(rate, 0.9) if rate else None)
    assert seconds_left(volume, 5000 + 1000 * age) == left
