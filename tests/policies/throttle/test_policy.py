"""The whole policy: one scenario for each sentence of the specification."""

from typing import Any

import pytest

from policies.free_space.gate import FactorVerdict
from policies.free_space.limits import LimitHit
from policies.observations import Observation, Outcome
from policies.throttle.decisions import FALLBACK_REASONS, ThrottleReason
from policies.throttle.readings import LogDirs, VolumeReading
from tests.cases import for_each
from tests.policies.scenario import (
    CLUSTER,
    GB,
    HARD,
    NO_PATIENCE,
    SOFT_AND_HARD,
    Run,
    at,
    failed,
    log_dirs,
    members,
    throttle,
)
from tests.policies.throttle.known import A, B, eventful, polls


@pytest.mark.parametrize("fallback", [0.0, 0.5, 1.0])
def test_before_the_first_reading_the_fallback_holds_with_the_verdict_initial(fallback: float) -> None:
    decided = Run(throttle(HARD, fallback_factor=fallback)).see(failed(0, 1)).last
    assert (decided.verdict, decided.reason, decided.factor) == (
        FactorVerdict.INITIAL,
        ThrottleReason.INITIAL,
        fallback,
    )
    assert decided.evidence == ("failed-1@0",)


def test_after_validity_without_a_reading_there_is_no_data() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(failed(0, 1)).until(400)
    reasons = [((d.decided_at - at(0)).total_seconds(), d.reason.value) for d in run.decisions]
    assert reasons == [*((t, "initial") for t in range(0, 300, 60)), (300, "no_data"), (360, "no_data")]


def test_the_first_reading_acts_at_once_either_way() -> None:
    for fallback, free, factor in ((0.0, 50 * GB, 1.0), (1.0, 0, 0.0)):
        run = Run(throttle(HARD, fallback_factor=fallback)).see(failed(0, 1)).see(log_dirs(1, 1, free))
        assert run.changes() == [(0, fallback), (1, factor)]


@pytest.mark.parametrize(
    ("free", "fallback", "factor"),
    [(50 * GB, 0.5, 0.5), (2 * GB, 0.5, 0.25), (0, 0.5, 0.0), (0, 1.0, 0.0), (50 * GB, 1.0, 1.0)],
)
def test_silence_brings_the_fallback_but_never_opens_what_a_reading_closed(
    free: int, fallback: float, factor: float
) -> None:
    run = Run(throttle(SOFT_AND_HARD, fallback_factor=fallback)).see(log_dirs(0, 1, free)).until(3600)
    assert (run.last.factor, run.last.reason) == (factor, ThrottleReason.STALE_VOLUME)
    assert run.last.volumes.model_dump() == {"counted": 0, "stale": 1, "departed": 0, "never_read": 0}
    assert run.factor_at(299.999) == run.decisions[0].factor
    assert run.factor_at(300) == factor


def test_one_silent_broker_among_others_brings_the_fallback() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 2, 50 * GB)).feed(polls(5, 400, 50 * GB))
    assert run.changes() == [(0, 1.0), (300, 0.5)]
    assert run.last.limiting is not None
    assert run.last.limiting.broker == 2


def test_a_silent_broker_that_is_read_again_counts_by_its_reading() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 1, 50 * GB)).see(log_dirs(400, 1, 50 * GB))
    assert run.changes() == [(0, 1.0), (300, 0.5), (400, 1.0)]


def test_a_volume_that_leaves_while_it_is_stale_is_held_at_the_fallback() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 2, 50 * GB)).feed(polls(5, 400, 50 * GB))
    run.see(members(405, 1)).feed(polls(410, 4500, 50 * GB, every=60))
    assert run.changes() == [(0, 1.0), (300, 0.5), (4005, 1.0)]


def test_departed_volumes_are_held_and_then_forgotten() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 50 * GB)).see(members(60, 2))
    run.feed(polls(65, 4000, 50 * GB, broker=2, every=60))
    assert run.changes() == [(0, 0.0), (3660, 1.0)]
    assert (60, "departed_volume") in [((d.decided_at - at(0)).total_seconds(), d.reason.value) for d in run.decisions]
    assert run.said("departed-volume-forgotten")[0] == (3660, "firing", "warning")


def test_a_broker_that_left_without_limiting_is_forgotten_at_once() -> None:
    run = Run(throttle(HARD, fallback_factor=0.0)).see(log_dirs(0, 1, 50 * GB), log_dirs(0, 2, 50 * GB))
    run.see(members(10, 2)).feed(polls(20, 1000, 50 * GB, broker=2, every=60))
    assert run.changes() == [(0, 1.0)]
    assert run.last.volumes.counted == 1
    assert run.said("departed-volume-forgotten") == []


def test_a_log_dir_that_is_removed_while_limiting_is_held_too() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, {A: 0, B: 50 * GB}))
    run.feed(log_dirs(t, 1, {B: 50 * GB}) for t in range(60, 4000, 60))
    assert run.changes() == [(0, 0.0), (3660, 1.0)]


def test_when_the_last_broker_left_there_is_no_data() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 1, 50 * GB)).see(members(10))
    assert (run.last.reason, run.last.factor) == (ThrottleReason.NO_DATA, 0.5)


@pytest.mark.parametrize(
    "course",
    [
        pytest.param([failed(0, 1)], id="never read"),
        pytest.param([log_dirs(0, 1, 0)], id="read once, full"),
        pytest.param([log_dirs(0, 1, {A: None})], id="unreadable"),
        pytest.param([log_dirs(0, 1, 50 * GB), members(10)], id="left"),
    ],
)
def test_without_limits_a_cluster_is_observed_never_throttled(course: list[Observation]) -> None:
    run = Run(throttle(fallback_factor=0.0)).feed(course).until(900)
    assert {d.factor for d in run.decisions} == {1.0}


@for_each(
    ("course", "expected"),
    [
        pytest.param([log_dirs(0, 1, 50 * GB)], (300, "stale_volume", 0.5), id="a broker falls silent"),
        pytest.param(
            [failed(0, 1), log_dirs(20, 1, 50 * GB), log_dirs(27, 1, {A: None})],
            (320, "stale_volume", 0.5),
            id="a volume is unreadable",
        ),
        pytest.param([members(0, outcome=Outcome.TIMEOUT)], (300, "no_data", 0.5), id="nothing is ever read"),
        pytest.param([log_dirs(0, 1, 0), members(7, 2)], (3607, "no_data", 0.5), id="a departed volume is forgotten"),
        pytest.param(
            [log_dirs(0, 1, 0), log_dirs(7, 1, {}), members(11, 2)], (3607, "no_data", 0.5), id="missing, then left"
        ),
        pytest.param([log_dirs(0, 1, 2 * GB), log_dirs(7, 1, 4 * GB)], (30, "soft_limit", 0.75), id="min_hold ends"),
    ],
)
def test_what_time_alone_changes_is_decided_by_the_timer_not_the_heartbeat(
    course: list[Observation], expected: tuple[float, str, float]
) -> None:
    run = Run(throttle(SOFT_AND_HARD, fallback_factor=0.5, heartbeat="1d")).feed(course)
    before = len(run.decisions)
    run.until(expected[0])
    assert [((d.decided_at - at(0)).total_seconds(), d.reason.value, d.factor) for d in run.decisions[before:]] == [
        expected
    ]


def test_going_down_acts_at_once() -> None:
    course = [log_dirs(t, 1, free) for t, free in ((0, 9 * GB), (1, 4 * GB), (2, 3 * GB), (3, 2 * GB), (4, 1 * GB))]
    run = Run(throttle(SOFT_AND_HARD)).feed(course)
    assert run.changes() == [(0, 1.0), (1, 0.75), (2, 0.5), (3, 0.25), (4, 0.0)]


def test_going_up_waits_for_min_hold_by_the_timer_alone() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 1, 2 * GB)).see(log_dirs(10, 1, 4 * GB)).until(40)
    assert run.changes() == [(0, 0.25), (30, 0.75)]
    assert not any(step.decisions for now, step in run.steps if at(10) < now < at(30))


def test_each_change_begins_min_hold_anew() -> None:
    course = [(0, 2 * GB), (20, 1 * GB), (25, 9 * GB)]
    run = Run(throttle(SOFT_AND_HARD, recovery_margin=0.0)).feed(log_dirs(t, 1, free) for t, free in course).until(100)
    assert run.changes() == [(0, 0.25), (20, 0.0), (50, 1.0)]


def test_throttle_stays_until_recovery_margin() -> None:
    course = [(0, 1 * GB), (60, GB + 1), (120, 1_100_000_000), (180, 1_100_000_001)]
    run = Run(throttle(HARD)).feed(log_dirs(t, 1, free) for t, free in course)
    assert run.changes() == [(0, 0.0), (180, 1.0)]


def test_every_volume_that_stopped_the_cluster_must_be_clear_of_the_margin() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 0))
    run.see(log_dirs(60, 1, 9 * GB), log_dirs(60, 2, 1_050_000_000))
    assert (run.factor, run.last.reason) == (0.0, ThrottleReason.RECOVERY_MARGIN)
    assert run.last.limiting is not None
    assert (run.last.limiting.broker, run.last.limiting.limit) == (2, LimitHit.HARD)
    run.see(log_dirs(120, 2, 9 * GB))
    assert run.factor == 1.0


def test_the_margin_concerns_only_what_stopped_the_cluster() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 1_050_000_000)).see(log_dirs(60, 1, 9 * GB))
    assert run.factor == 1.0


def test_a_slowed_cluster_needs_no_margin() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 1, 1_000_000_001)).see(log_dirs(1, 1, 1_300_000_000))
    assert run.last.factor == pytest.approx(0.0, abs=1e-6)
    assert run.until(30).factor == pytest.approx(0.075)


@for_each(
    ("free", "factor"), [(3.2, 0.55), (3.19, 0.5), (2.81, 0.5), (3.21, 0.5525), (2.79, 0.4475), (5.0, 1.0), (1.0, 0.0)]
)
def test_a_change_smaller_than_min_change_is_not_published(free: float, factor: float) -> None:
    run = Run(throttle(SOFT_AND_HARD, min_hold="0s")).see(log_dirs(0, 1, 3 * GB)).see(log_dirs(10, 1, int(free * GB)))
    assert run.factor == pytest.approx(factor)


@pytest.mark.parametrize(("start", "end", "factor"), [(4.9, 5.0, 1.0), (1.1, 1.0, 0.0)], ids=["to 1", "to 0"])
def test_a_small_change_that_reaches_an_end_is_published(start: float, end: float, factor: float) -> None:
    run = Run(throttle(SOFT_AND_HARD, min_hold="0s")).see(log_dirs(0, 1, int(start * GB)))
    assert run.see(log_dirs(10, 1, int(end * GB))).factor == factor


def test_many_small_changes_add_up_to_one_that_is_published() -> None:
    run = Run(throttle(SOFT_AND_HARD)).feed(log_dirs(i, 1, 5 * GB - i * 40_000_000) for i in range(26))
    assert [factor for _, factor in run.changes()] == pytest.approx([1.0, 0.95, 0.9, 0.85, 0.8, 0.75])


def test_a_volume_that_keeps_the_cluster_stopped_goes_on_doing_so_when_its_broker_leaves() -> None:
    """Within the recovery margin its own factor is 1.0, but it is what limits."""
    run = Run(throttle(HARD, min_hold="0s", departed_hold="10m"))
    run.see(log_dirs(0, 1, GB), log_dirs(0, 2, 9 * GB)).see(log_dirs(10, 1, GB * 105 // 100))
    assert (run.last.factor, run.last.reason, run.last.limiting and run.last.limiting.broker) == (
        0.0,
        "recovery_margin",
        1,
    )
    run.feed([members(20, 2)]).feed(polls(30, 400, 9 * GB, broker=2))
    assert (run.last.factor, run.last.volumes.departed) == (0.0, 1)
    run.feed(polls(430, 700, 9 * GB, broker=2))
    assert run.last.factor == 1.0
    assert run.said("departed-volume-forgotten")


# --- presets


STRIMZI = throttle(HARD, preset="strimzi", fallback_factor=0.25)


@pytest.mark.parametrize(("free", "factor"), [(GB, 0.0), (GB + 1, 1.0)], ids=["one volume violates", "none violates"])
def test_strimzi_gives_0_if_any_volume_violates_else_1(free: int, factor: float) -> None:
    run = Run(STRIMZI).see(log_dirs(0, 1, {A: free, B: 9 * GB}), log_dirs(0, 2, 9 * GB))
    assert run.last.factor == factor


def test_strimzi_starts_at_1() -> None:
    assert Run(STRIMZI).see(failed(0, 1)).last.factor == 1.0


def test_strimzi_opens_and_closes_at_once() -> None:
    run = Run(STRIMZI).feed(log_dirs(t, 1, GB + t % 2) for t in range(6))
    assert run.changes() == [(0, 0.0), (1, 1.0), (2, 0.0), (3, 1.0), (4, 0.0), (5, 1.0)]


def test_strimzi_takes_an_empty_good_reading_for_1() -> None:
    assert Run(STRIMZI).see(log_dirs(0, 1, 0)).see(log_dirs(10, 1, {})).last.factor == 1.0


def test_strimzi_forgets_a_volume_unseen_for_validity() -> None:
    run = Run(STRIMZI).see(log_dirs(0, 1, 0)).feed(polls(5, 400, 9 * GB, broker=2))
    assert run.changes() == [(0, 0.0), (300, 1.0)]
    assert run.last.volumes.model_dump() == {"counted": 1, "stale": 0, "departed": 0, "never_read": 0}


def test_strimzi_falls_back_when_nothing_was_read_for_validity() -> None:
    run = Run(STRIMZI).see(log_dirs(0, 1, 0)).until(400)
    assert run.changes() == [(0, 0.0), (300, 0.25)]
    assert run.last.reason is ThrottleReason.NO_DATA


def test_the_fallback_reasons_are_those_without_a_valid_reading() -> None:
    assert {r.value for r in FALLBACK_REASONS} == {"stale_volume", "no_data", "initial"}


@pytest.mark.parametrize("settings", [throttle(HARD, NO_PATIENCE), STRIMZI], ids=["none", "strimzi"])
def test_without_patience_the_factor_is_the_raw_factor(settings: Any) -> None:
    run = Run(settings).feed(sorted(eventful(), key=lambda o: o.at))
    assert all(d.factor == d.raw_factor for d in run.decisions)


def test_observations_of_another_kind_are_ignored() -> None:
    alone = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB))
    reading = log_dirs(0, 1, 0).reading
    other = Observation("other", at(0), type(reading).__mro__[1](cluster=CLUSTER, outcome=Outcome.OK))
    assert Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB), other).published == alone.published


def test_a_limiting_volume_that_is_cordoned_is_reported_as_such() -> None:
    volumes = (VolumeReading(log_dir=A, total_bytes=100 * GB, usable_bytes=4 * GB, cordoned=True),)
    reading = LogDirs(cluster=CLUSTER, outcome=Outcome.OK, broker=1, volumes=volumes)
    run = Run(throttle(SOFT_AND_HARD)).see(members(0, 1), Observation("cordoned", at(0), reading))
    assert run.last.limiting is not None
    assert run.last.limiting.cordoned
    assert "; it is cordoned, so it gets no new partitions" in run.last.explanation
    run.see(log_dirs(60, 1, 3 * GB))
    assert run.last.limiting is not None
    assert not run.last.limiting.cordoned
