"""What is known of a broker's volumes after readings of its log dirs."""

from typing import Any

import pytest

from policies.observations import Observation, Outcome
from tests.policies.scenario import GB, at, failed, log_dirs
from tests.policies.throttle.known import A, B, counting, folded, freshness


def test_the_last_good_reading_counts() -> None:
    known = folded([log_dirs(0, 1, 3 * GB)], [log_dirs(10, 1, 4 * GB)])
    assert counting(known, 10)[1, A].factor == 0.75


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


def test_a_missing_volume_that_is_reported_again_is_there_again() -> None:
    course = [[log_dirs(0, 1, {A: 0})], [log_dirs(10, 1, {})], [log_dirs(20, 1, {A: 3 * GB})]]
    assert freshness(folded(*course), 20) == {(1, A): "fresh"}
    unreadable = [*course[:2], [log_dirs(20, 1, {A: None})]]
    assert freshness(folded(*unreadable), 20) == {(1, A): "fresh"}
    assert freshness(folded(*unreadable), 300) == {(1, A): "stale"}


def test_an_empty_good_reading_lets_all_volumes_of_its_broker_depart() -> None:
    known = folded([log_dirs(0, 1, {A: 0, B: 50 * GB}), log_dirs(0, 2, 50 * GB)], [log_dirs(10, 1, {})])
    assert freshness(known, 10) == {(1, A): "departed", (2, A): "fresh"}
