"""Which volumes count, and what each allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies.free_space.trend import Filling
from policies.free_space.volumes import Freshness, VolumeState, seconds_left
from policies.observations import Observation
from policies.throttle.judge import judge_brokers
from policies.units import to_millis
from tests.policies.scenario import GB, HARD, SOFT_AND_HARD, at, log_dirs, members, throttle
from tests.policies.throttle.known import SETTINGS, A, batches, counting, folded, freshness, judged_at


@pytest.mark.parametrize(
    ("free", "fallback", "factor"), [(2 * GB, 0.5, 0.25), (50 * GB, 0.5, 0.5), (0, 1.0, 0.0), (50 * GB, 1.0, 1.0)]
)
def test_a_stale_volume_counts_as_the_lesser_of_fallback_and_last_factor(
    free: int, fallback: float, factor: float
) -> None:
    settings = throttle(SOFT_AND_HARD, fallback_factor=fallback)
    assert counting(folded([log_dirs(0, 1, free)]), 300, settings)[1, A].factor == factor


def test_a_volume_that_was_never_readable_counts_as_the_fallback_from_validity_on() -> None:
    known = folded([log_dirs(0, 1, {A: None})])
    assert known.ever_read
    assert counting(known, 299.999) == {}
    assert freshness(judged_at(known, 1).known, 300) == {(1, A): "never_read"}
    assert counting(known, 300)[1, A].factor == 0.5
    assert freshness(folded([log_dirs(0, 1, {A: None})], [log_dirs(10, 1, {A: 0})]), 10) == {(1, A): "fresh"}


@pytest.mark.parametrize(("seconds", "there"), [(20, True), (3619.999, True), (3620, False)])
def test_a_departed_volume_is_held_for_departed_hold(seconds: float, there: bool) -> None:
    known = folded([log_dirs(0, 1, 0)], [log_dirs(20, 2, {}), members(20, 2)])
    assert bool(freshness(known, seconds)) is there
    judged = judged_at(known, seconds)
    assert [*(v.key for v in judged.volumes()), *(ended.key for ended in judged.ended)] == [(1, A)]


def test_a_departed_volume_does_not_go_stale() -> None:
    known = folded([log_dirs(0, 1, 4 * GB)], [members(20, 2)])
    assert counting(known, 2000)[1, A].factor == 0.75


def test_of_a_broker_that_left_with_nothing_to_remember_nothing_is_kept() -> None:
    known = folded([log_dirs(0, 1, 50 * GB), log_dirs(0, 2, 50 * GB)], [members(20, 2)])
    assert [b.name for b in judged_at(known, 20).known.brokers] == [2]


def test_strimzi_forgets_a_volume_unseen_for_validity() -> None:
    known, settings = folded([log_dirs(0, 1, 0)]), throttle(HARD, preset="strimzi")
    assert freshness(known, 299, settings) == {(1, A): "fresh"}
    assert freshness(known, 300, settings) == {}


@given(batches, st.integers(40, 400), st.integers(1, 4000))
def test_a_verdict_changes_by_time_alone_only_when_it_says(batch: list[Observation], seconds: int, more: int) -> None:
    known = folded(batch)
    before, after = judged_at(known, seconds), judged_at(known, seconds + more)
    for number, verdict in before.brokers.items():
        if verdict.next_ms is None or to_millis(at(seconds + more)) < verdict.next_ms:
            assert replace(after.brokers[number], judged_ms=verdict.judged_ms) == verdict


@given(batches, st.integers(40, 400), st.integers(-400, 4000))
def test_a_verdict_that_is_taken_over_is_the_one_that_would_be_made(
    batch: list[Observation], seconds: int, more: int
) -> None:
    known = folded(batch)
    before, later = judged_at(known, seconds), to_millis(at(max(0, seconds + more)))
    taken_over = judge_brokers(known, SETTINGS, later, before=before.brokers)
    alone = judge_brokers(known, SETTINGS, later)
    assert [replace(b, judged_ms=0) for b in taken_over.brokers.values()] == [
        replace(b, judged_ms=0) for b in alone.brokers.values()
    ]
    assert (taken_over.known, taken_over.ended) == (alone.known, alone.ended)


@pytest.mark.parametrize(
    ("seconds", "kind", "factor"),
    [(0, "fresh", 0.75), (299.999, "fresh", 0.75), (300, "stale", 0.5), (9999, "stale", 0.5)],
)
def test_a_reading_exactly_validity_old_no_longer_counts(seconds: float, kind: str, factor: float) -> None:
    found = counting(folded([log_dirs(0, 1, 4 * GB)]), seconds)[1, A]
    assert (found.freshness, found.factor) == (Freshness(kind), factor)


def test_a_member_that_never_reported_is_known_to_be_missing() -> None:
    known = folded([members(0, 1, 2), log_dirs(0, 1, 50 * GB)])
    assert [b.freshness for b in judged_at(known, 10).brokers.values()] == [Freshness.FRESH, Freshness.NEVER_READ]


@pytest.mark.parametrize(
    ("free", "rate", "age", "left"),
    [(100, 10.0, 0, 10), (100, 10.0, 4, 6), (100, 10.0, 99, 0), (0, 10.0, 0, 0), (100, None, 0, None)],
)
def test_the_time_left_counts_from_now(free: int, rate: float | None, age: int, left: float | None) -> None:
    volume = VolumeState(A, 1000, free, 5000, filling=Filling(rate, 0.9) if rate else None)
    assert seconds_left(volume, 5000 + 1000 * age) == left
