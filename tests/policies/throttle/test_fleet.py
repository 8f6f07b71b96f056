"""What is known of a cluster's volumes, however the readings arrive."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observations import Observation, Outcome, in_order
from policies.throttle.fleet import (
    Fleet,
    KnownVolume,
    Standing,
    broker_standing,
    expiries,
    limiting_departed,
    observe,
    standings,
    without_forgotten,
)
from policies.throttle.settings import ThrottleSettings
from policies.units import to_millis
from tests.policies.scenario import GB, HARD, SOFT_AND_HARD, at, failed, log_dirs, members, throttle

A, B = "/data/a", "/data/b"
SETTINGS = throttle(SOFT_AND_HARD, fallback_factor=0.5)


def seen(*batches: Sequence[Observation]) -> Fleet:
    fleet = Fleet()
    for batch in batches:
        fleet = observe(fleet, batch)
    return fleet


def known(fleet: Fleet, seconds: float, settings: ThrottleSettings = SETTINGS) -> dict[tuple[int, str], KnownVolume]:
    return {k.key: k for k in standings(fleet, settings, at(seconds))}


def stands(fleet: Fleet, seconds: float, settings: ThrottleSettings = SETTINGS) -> dict[tuple[int, str], str]:
    return {key: k.standing.value for key, k in known(fleet, seconds, settings).items()}


brokers = st.integers(1, 3)
free_bytes = st.none() | st.sampled_from([0, GB, GB + 1, 3 * GB, 5 * GB, 50 * GB])
observations = st.one_of(
    st.builds(log_dirs, st.integers(0, 40), brokers, st.dictionaries(st.sampled_from([A, B]), free_bytes, max_size=2)),
    st.builds(failed, st.integers(0, 40), brokers, st.sampled_from([o for o in Outcome if o is not Outcome.OK])),
    st.lists(brokers, max_size=3).flatmap(lambda listed: st.integers(0, 40).map(lambda s: members(s, *listed))),
)
batches = st.lists(observations, max_size=12, unique_by=lambda o: o.id)


@given(batches, st.data())
def test_order_and_duplicates_within_a_batch_do_not_matter(batch: list[Observation], data: st.DataObject) -> None:
    repeated = batch + (data.draw(st.lists(st.sampled_from(batch), max_size=5)) if batch else [])
    shuffled = data.draw(st.permutations(repeated))
    assert msgspec.msgpack.encode(seen(shuffled)) == msgspec.msgpack.encode(seen(batch))


@given(batches, st.data())
def test_where_a_course_of_readings_is_cut_into_batches_does_not_matter(
    batch: list[Observation], data: st.DataObject
) -> None:
    ordered = in_order(batch)
    cut = data.draw(st.integers(0, len(ordered)))
    assert seen(ordered[:cut], ordered[cut:]) == seen(ordered)


def test_a_broker_left_when_a_membership_first_lacked_it_though_later_ones_are_in_the_same_batch() -> None:
    fleet = seen([log_dirs(0, 1, 0), members(20, 2), members(30, 2), members(40, 2)])
    assert fleet.brokers[0].left_ms == to_millis(at(20))


@given(batches, batches)
def test_what_was_seen_before_changes_nothing_when_it_comes_again(
    first: list[Observation], second: list[Observation]
) -> None:
    later = [o for o in second if all(o.at >= f.at for f in first) and o.id not in {f.id for f in first}]
    fleet = seen(first, later)
    assert observe(fleet, first) == fleet


@given(batches)
def test_brokers_and_volumes_are_sorted(batch: list[Observation]) -> None:
    fleet = seen(batch)
    assert [b.broker for b in fleet.brokers] == sorted({b.broker for b in fleet.brokers})
    for broker in fleet.brokers:
        assert [v.log_dir for v in broker.volumes] == sorted({v.log_dir for v in broker.volumes})


def test_of_an_id_seen_twice_the_earliest_counts() -> None:
    twice = [log_dirs(5, 1, 50 * GB, id="x"), log_dirs(0, 1, 3 * GB, id="x")]
    assert [o.at for o in in_order(twice)] == [at(0)]
    assert known(seen(twice), 10)[1, A].volume.usable_bytes == 3 * GB


def test_the_last_good_reading_counts() -> None:
    fleet = seen([log_dirs(0, 1, 3 * GB)], [log_dirs(10, 1, 4 * GB)])
    assert known(fleet, 10)[1, A].factor == 0.75


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
    fleet = seen([log_dirs(10, 1, 4 * GB)])
    assert seen([log_dirs(10, 1, 4 * GB)], [late]) == fleet


def test_a_failure_leaves_the_last_good_reading() -> None:
    fleet = seen([log_dirs(0, 1, 4 * GB)], [failed(10, 1, Outcome.UNAUTHORIZED)])
    assert known(fleet, 10)[1, A].factor == 0.75
    assert (fleet.brokers[0].outcome, fleet.brokers[0].read_id) == ("unauthorized", "dirs-1@0")


@pytest.mark.parametrize(
    ("seconds", "standing", "factor"),
    [(0, "fresh", 0.75), (299.999, "fresh", 0.75), (300, "stale", 0.5), (9999, "stale", 0.5)],
)
def test_a_reading_exactly_validity_old_no_longer_counts(seconds: float, standing: str, factor: float) -> None:
    found = known(seen([log_dirs(0, 1, 4 * GB)]), seconds)[1, A]
    assert (found.standing, found.factor) == (Standing(standing), factor)


@pytest.mark.parametrize(
    ("free", "fallback", "factor"), [(2 * GB, 0.5, 0.25), (50 * GB, 0.5, 0.5), (0, 1.0, 0.0), (50 * GB, 1.0, 1.0)]
)
def test_a_stale_volume_counts_as_the_lesser_of_fallback_and_last_factor(
    free: int, fallback: float, factor: float
) -> None:
    settings = throttle(SOFT_AND_HARD, fallback_factor=fallback)
    assert known(seen([log_dirs(0, 1, free)]), 300, settings)[1, A].factor == factor


def test_an_unreadable_volume_ages_while_its_broker_is_read() -> None:
    fleet = seen([log_dirs(0, 1, {A: 4 * GB, B: 50 * GB})], [log_dirs(200, 1, {A: None, B: 50 * GB})])
    assert stands(fleet, 299) == {(1, A): "fresh", (1, B): "fresh"}
    assert stands(fleet, 300) == {(1, A): "stale", (1, B): "fresh"}


@pytest.mark.parametrize("sizes", [(-1, 5), (5, -1), (-1, -1)], ids=["no total", "no usable", "neither"])
def test_a_volume_without_sizes_is_unreadable(sizes: tuple[int, int]) -> None:
    observation = log_dirs(0, 1, {A: 0})
    volume = observation.reading.volumes[0]  # type: ignore[attr-defined]
    unsized = volume.model_copy(update={"total_bytes": sizes[0], "usable_bytes": sizes[1]})
    reading = observation.reading.model_copy(update={"volumes": (unsized,)})
    assert known(seen([Observation("x", at(0), reading)]), 0) == {}


def test_a_volume_that_was_never_readable_does_not_count_until_it_is() -> None:
    fleet = seen([log_dirs(0, 1, {A: None})])
    assert fleet.ever_read
    assert known(fleet, 1) == {}
    assert stands(without_forgotten(fleet, ()), 1) == {}
    assert stands(seen([log_dirs(0, 1, {A: None})], [log_dirs(10, 1, {A: 0})]), 10) == {(1, A): "fresh"}


def test_a_dir_named_twice_counts_as_the_fuller() -> None:
    one, two = log_dirs(0, 1, 2 * GB), log_dirs(0, 1, 50 * GB)
    for pair in ((one, two), (two, one)):
        volumes = tuple(v for o in pair for v in o.reading.volumes)  # type: ignore[attr-defined]
        both = one.reading.model_copy(update={"volumes": volumes})
        assert known(seen([Observation("x", at(0), both)]), 0)[1, A].volume.usable_bytes == 2 * GB


@pytest.mark.parametrize(
    ("free", "standing"),
    [
        pytest.param(4 * GB, {(1, A): "departed", (1, B): "fresh"}, id="limiting: held"),
        pytest.param(50 * GB, {(1, B): "fresh"}, id="not limiting: forgotten"),
    ],
)
def test_a_volume_missing_from_a_newer_good_reading_departs(free: int, standing: dict[Any, str]) -> None:
    fleet = seen([log_dirs(0, 1, {A: free, B: 50 * GB})], [log_dirs(10, 1, {B: 50 * GB})])
    assert stands(fleet, 10) == standing


def test_a_missing_volume_that_is_reported_again_is_there_again() -> None:
    course = [[log_dirs(0, 1, {A: 0})], [log_dirs(10, 1, {})], [log_dirs(20, 1, {A: 3 * GB})]]
    assert stands(seen(*course), 20) == {(1, A): "fresh"}
    unreadable = [*course[:2], [log_dirs(20, 1, {A: None})]]
    assert stands(seen(*unreadable), 20) == {(1, A): "fresh"}
    assert stands(seen(*unreadable), 300) == {(1, A): "stale"}


def test_an_empty_good_reading_lets_all_volumes_of_its_broker_depart() -> None:
    fleet = seen([log_dirs(0, 1, {A: 0, B: 50 * GB}), log_dirs(0, 2, 50 * GB)], [log_dirs(10, 1, {})])
    assert stands(fleet, 10) == {(1, A): "departed", (2, A): "fresh"}


@pytest.mark.parametrize(
    ("membership", "standing"),
    [
        pytest.param(members(20, 2), "departed", id="a newer one without it"),
        pytest.param(members(20, 1, 2), "fresh", id="a newer one with it"),
        pytest.param(members(10, 2), "departed", id="one as new as its reading"),
        pytest.param(members(5, 2), "fresh", id="an older one without it"),
        pytest.param(members(20, outcome=Outcome.UNREACHABLE), "fresh", id="one that could not be read"),
        pytest.param(members(20), "departed", id="one without any broker"),
    ],
)
def test_a_broker_leaves_by_a_membership_as_new_as_its_last_reading(membership: Observation, standing: str) -> None:
    for course in ([[log_dirs(10, 1, 3 * GB)], [membership]], [[membership], [log_dirs(10, 1, 3 * GB)]]):
        assert stands(seen(*course), 20) == {(1, A): standing}


def test_an_older_membership_changes_nothing() -> None:
    fleet = seen([log_dirs(0, 1, 3 * GB)], [members(20, 1)])
    assert observe(fleet, [members(10, 2)]) == fleet


@pytest.mark.parametrize("back", [members(30, 1), log_dirs(30, 1, 3 * GB)], ids=["a member again", "read again"])
def test_a_broker_that_returns_is_there_again(back: Observation) -> None:
    fleet = seen([log_dirs(0, 1, 3 * GB)], [members(20, 2)], [back])
    assert stands(fleet, 30) == {(1, A): "fresh"}
    assert fleet.brokers[0].left_ms is None


def test_a_broker_that_leaves_again_is_held_from_then_on() -> None:
    course = [[log_dirs(0, 1, 0)], [members(20, 2)], [members(30, 1, 2)], [members(40, 2)]]
    assert known(seen(*course), 40)[1, A].departed_ms == to_millis(at(40))


def test_further_memberships_do_not_prolong_the_hold() -> None:
    fleet = seen([log_dirs(0, 1, 0)], [members(20, 2)], [members(1000, 2)])
    assert known(fleet, 1000)[1, A].departed_ms == to_millis(at(20))


@pytest.mark.parametrize(("seconds", "there"), [(20, True), (3619.999, True), (3620, False)])
def test_a_departed_volume_is_held_for_departed_hold(seconds: float, there: bool) -> None:
    fleet = seen([log_dirs(0, 1, 0)], [members(20, 2)])
    assert bool(stands(fleet, seconds)) is there
    assert limiting_departed(fleet, SETTINGS) == [(1, A)]


def test_a_departed_volume_does_not_go_stale() -> None:
    fleet = seen([log_dirs(0, 1, 4 * GB)], [members(20, 2)])
    assert known(fleet, 2000)[1, A].factor == 0.75


def test_of_a_broker_that_left_with_nothing_to_remember_nothing_is_kept() -> None:
    fleet = seen([log_dirs(0, 1, 50 * GB), log_dirs(0, 2, 50 * GB)], [members(20, 2)])
    kept = without_forgotten(fleet, standings(fleet, SETTINGS, at(20)))
    assert [b.broker for b in kept.brokers] == [2]


def test_a_member_that_never_reported_is_known_to_be_missing() -> None:
    fleet = seen([members(0, 1, 2), log_dirs(0, 1, 50 * GB)])
    assert [broker_standing(b, SETTINGS, to_millis(at(10))) for b in fleet.brokers] == [Standing.FRESH, Standing.STALE]


def test_strimzi_forgets_a_volume_unseen_for_validity() -> None:
    fleet, settings = seen([log_dirs(0, 1, 0)]), throttle(HARD, preset="strimzi")
    assert stands(fleet, 299, settings) == {(1, A): "fresh"}
    assert stands(fleet, 300, settings) == {}


@given(batches, st.integers(40, 400), st.integers(1, 4000))
def test_standings_change_only_at_the_expiries(batch: list[Observation], seconds: int, more: int) -> None:
    fleet = seen(batch)
    first, second = known(fleet, seconds), known(fleet, seconds + more)
    due = [ms for ms in expiries(fleet, first.values(), SETTINGS) if to_millis(at(seconds)) < ms]
    if not any(ms <= to_millis(at(seconds + more)) for ms in due):
        assert {k: (v.standing, v.factor) for k, v in first.items()} == {
            k: (v.standing, v.factor) for k, v in second.items()
        }
