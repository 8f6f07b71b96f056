"""The whole policy: one scenario for each sentence of the specification, and what it publishes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.free_space.gate import FactorVerdict
from policies.free_space.limits import LimitHit
from policies.observations import Observation, Outcome
from policies.throttle.decisions import SoonestFull, ThrottleReason
from policies.throttle.readings import KafkaReading, LogDirs, VolumeReading
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, HARD, SOFT_AND_HARD, Run, at, failed, log_dirs, members, throttle
from tests.policies.throttle.known import A, B, polls


@pytest.mark.parametrize("fallback", [0.0, 0.5, 1.0])
def test_before_the_first_reading_the_fallback_holds_with_the_verdict_initial(fallback: float) -> None:
    decided = Run(throttle(HARD, fallback_factor=fallback)).see(failed(0, 1)).last
    assert (decided.verdict, decided.reason, decided.factor) == ("initial", "initial", fallback)
    assert decided.evidence == ("failed-1@0",)


def test_after_validity_without_a_reading_there_is_no_data() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(failed(0, 1)).until(400)
    reasons = [((d.decided_at - at(0)).total_seconds(), d.reason.value) for d in run.decisions]
    assert reasons == [*((t, "initial") for t in range(0, 300, 60)), (300, "no_data"), (360, "no_data")]


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


def test_one_silent_broker_among_others_brings_the_fallback_and_is_held_at_it_when_it_leaves() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 2, 50 * GB)).feed(polls(5, 400, 50 * GB))
    assert run.limiting.broker == 2
    run.see(members(405, 1)).feed(polls(410, 4500, 50 * GB, every=60))
    assert run.changes() == [(0, 1.0), (300, 0.5), (4005, 1.0)]


def test_departed_volumes_are_held_and_then_forgotten() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 50 * GB)).see(members(60, 2))
    run.feed(polls(65, 4000, 50 * GB, broker=2, every=60))
    assert run.changes() == [(0, 0.0), (3660, 1.0)]
    assert (60, "departed_volume") in [((d.decided_at - at(0)).total_seconds(), d.reason.value) for d in run.decisions]
    assert run.said("departed-volume-forgotten")[0] == (3660, "firing", "warning")


def test_a_log_dir_that_is_removed_while_limiting_is_held_too() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, {A: 0, B: 50 * GB}))
    run.feed(log_dirs(t, 1, {B: 50 * GB}) for t in range(60, 4000, 60))
    assert run.changes() == [(0, 0.0), (3660, 1.0)]


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


def test_every_volume_that_stopped_the_cluster_must_be_clear_of_the_margin() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 0))
    run.see(log_dirs(60, 1, 9 * GB), log_dirs(60, 2, 1_050_000_000))
    assert (run.factor, run.last.reason) == (0.0, ThrottleReason.RECOVERY_MARGIN)
    assert (run.limiting.broker, run.limiting.limit) == (2, LimitHit.HARD)
    run.see(log_dirs(120, 2, 9 * GB))
    assert run.factor == 1.0


def test_a_volume_that_keeps_the_cluster_stopped_goes_on_doing_so_when_its_broker_leaves() -> None:
    """Within the recovery margin its own factor is 1.0, but it is what limits."""
    run = Run(throttle(HARD, min_hold="0s", departed_hold="10m"))
    run.see(log_dirs(0, 1, GB), log_dirs(0, 2, 9 * GB)).see(log_dirs(10, 1, GB * 105 // 100))
    assert (run.last.factor, run.last.reason, run.limiting.broker) == (0.0, "recovery_margin", 1)
    run.feed([members(20, 2)]).feed(polls(30, 400, 9 * GB, broker=2))
    assert (run.last.factor, run.last.volumes.departed) == (0.0, 1)
    run.feed(polls(430, 700, 9 * GB, broker=2))
    assert run.last.factor == 1.0
    assert run.said("departed-volume-forgotten")


def test_a_volume_that_has_recovered_is_forgotten_when_its_broker_leaves_and_time_alone_opens_no_gate() -> None:
    run = Run(throttle(HARD, min_hold="0s", fallback_factor=0.2))
    run.see(members(0, 1), log_dirs(0, 1, GB))
    run.step([log_dirs(10, 1, 2 * GB), members(10)], at(10))
    assert run.factor == 0.2, "the cluster has no volume left"
    run.until(20)
    assert run.changes() == [(0, 0.0), (10, 0.2)]


def test_observations_of_another_kind_are_ignored() -> None:
    alone = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB))
    other = Observation("other", at(0), KafkaReading(cluster=CLUSTER, outcome=Outcome.OK))
    assert Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB), other).published == alone.published


def test_a_limiting_volume_that_is_cordoned_is_reported_as_such() -> None:
    volumes = (VolumeReading(log_dir=A, total_bytes=100 * GB, usable_bytes=4 * GB, cordoned=True),)
    reading = LogDirs(cluster=CLUSTER, outcome=Outcome.OK, broker=1, volumes=volumes)
    run = Run(throttle(SOFT_AND_HARD)).see(members(0, 1), Observation("cordoned", at(0), reading))
    assert run.limiting.cordoned
    assert "; it is cordoned, so it gets no new partitions" in run.last.explanation
    run.see(log_dirs(60, 1, 3 * GB))
    assert not run.limiting.cordoned


def test_evidence_names_the_readings_that_decided() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB), log_dirs(0, 2, 0), log_dirs(0, 3, 9 * GB))
    assert list(run.last.evidence) == ["dirs-2@0"]
    run.see(log_dirs(60, 2, 9 * GB))
    assert list(run.last.evidence) == ["dirs-2@60", "dirs-1@0", "dirs-3@0"]


def test_evidence_is_at_most_ten_with_the_limiting_volume_first() -> None:
    run = Run(throttle(HARD)).see(*(log_dirs(0, b, 0 if b % 2 else 9 * GB) for b in range(50)))
    assert len(run.last.evidence) == 10
    assert run.last.evidence[0] == f"dirs-{run.limiting.broker}@0"


def test_two_full_volumes_do_not_take_turns() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 2, 100))
    run.feed(log_dirs(t, t % 2 + 1, 100 - t) for t in range(1, 50))
    assert {(d.factor, d.limiting and d.limiting.broker) for d in run.decisions} == {(0.0, 2)}


def test_counts_of_volumes_and_brokers() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, {A: 9 * GB, B: 9 * GB}), members(0, 1, 2, 3))
    run.see(log_dirs(290, 3, 9 * GB), members(290, 2, 3)).until(350)
    assert run.last.volumes.model_dump() == {"counted": 1, "stale": 2, "departed": 1, "never_read": 0}
    assert run.last.brokers.model_dump() == {"counted": 1, "stale": 1, "departed": 1}


def test_a_verdict_that_changes_nothing_is_noted_when_it_first_appears() -> None:
    run = Run(throttle(HARD)).feed(polls(0, 200, 0))
    first = to_millis(run.decisions[0].decided_at)
    assert [(d.verdict.value, d.sequence) for d in run.decisions[:2]] == [("lower", first), ("no_change", first + 1)]
    assert [(n.verdict, n.sequence) for n in run.notes] == [(FactorVerdict.NO_CHANGE, first)]
    note = run.notes[0]
    assert note.decision_id not in {d.decision_id for d in run.published}
    assert note.factor == 0.0
    assert note.numbers["volumes"]


def test_what_is_said_never_runs_out_while_the_loop_lives_however_seldom_it_is_to_be_repeated() -> None:
    rare = throttle(SOFT_AND_HARD, heartbeat="7d", alert_repeat="7d", validity="7d")
    run = Run(rare).see(log_dirs(0, 3, GB)).until(3 * 86_400)
    for said in (run.decisions, [a for a in run.alerts if a.alert == "volume-below-hard-limit"]):
        ends = [each.expires_at or at(0) for each in said]
        assert all(end > later.decided_at for end, later in zip(ends, said[1:], strict=False))
        assert ends[-1] > at(3 * 86_400)


# Never read is not absent: a member or a log dir without any reading counts as the fallback after `validity`.


def watch(run: Run, until: int, *brokers: int, **dirs: int | None) -> Run:
    """The brokers 1, 2 and 3 are members; the named brokers are read each 10 s."""
    free = {f"/data/{name}": value for name, value in dirs.items()}
    for t in range(0, until, 10):
        run.see(members(t, 1, 2, 3), *(log_dirs(t, broker, free) for broker in brokers))
    return run


@pytest.mark.parametrize("fallback", [0.0, 0.5, 1.0])
def test_a_dir_that_failed_before_the_start_counts_as_the_fallback(fallback: float) -> None:
    run = watch(Run(throttle(HARD, fallback_factor=fallback)), 700, 1, 2, 3, a=50 * GB, b=None)
    assert run.factor_at(299) == 1.0
    assert run.factor_at(300) == run.last.factor == fallback
    assert run.last.volumes.model_dump() == {"counted": 3, "stale": 0, "departed": 0, "never_read": 3}
    assert run.said("log-dir-offline")[:1] == [(0, "firing", "critical")]
    assert run.firing() == {("log-dir-offline", f"{CLUSTER}/{b}/data/b") for b in (1, 2, 3)}


def test_a_member_that_was_never_read_counts_as_the_fallback() -> None:
    run = watch(Run(throttle(HARD, fallback_factor=0.0)), 700, 1, 2, a=50 * GB)
    assert run.changes() == [(0, 1.0), (300, 0.0)]
    assert run.last.reason is ThrottleReason.STALE_VOLUME
    assert run.last.volumes.never_read == 1
    limiting = run.limiting
    assert (limiting.broker, limiting.log_dir, limiting.usable_bytes, limiting.read_at) == (3, "", -1, None)
    assert "broker 3 was never readable, and counts as 0.00 until it is read" in run.last.explanation
    assert run.firing() == {("log-dirs-unread", f"{CLUSTER}/3")}


def test_nothing_is_known_of_a_cluster_whose_only_read_broker_has_left() -> None:
    run = Run(throttle(HARD)).see(members(0, 1), log_dirs(0, 1, 0), members(10, 2), members(400, 2))
    assert ("log-dirs-unread", CLUSTER) in run.firing()


def test_a_member_whose_attempts_fail_is_evidence() -> None:
    run = Run(throttle(HARD, fallback_factor=0.0)).see(members(0, 1, 2))
    run.feed(each for t in range(0, 700, 10) for each in (log_dirs(t, 1, 50 * GB), failed(t, 2)))
    assert run.last.evidence[0].startswith("failed-2@")


def test_a_dir_that_appears_later_has_its_own_validity() -> None:
    run = Run(throttle(HARD, fallback_factor=0.0)).see(members(0, 1), log_dirs(0, 1, 50 * GB))
    run.feed(log_dirs(t, 1, {A: 50 * GB} if t < 400 else {A: 50 * GB, B: None}) for t in range(10, 900, 10))
    assert run.changes() == [(0, 1.0), (700, 0.0)]


def test_the_first_reading_ends_it() -> None:
    run = Run(throttle(HARD, fallback_factor=0.0)).see(members(0, 1), log_dirs(0, 1, 50 * GB))
    run.feed(log_dirs(t, 1, {A: 50 * GB, B: None if t < 400 else 50 * GB}) for t in range(10, 500, 10))
    assert run.changes() == [(0, 1.0), (310, 0.0), (400, 1.0)]
    assert run.firing() == set()


def test_when_it_departs_nothing_of_it_is_kept() -> None:
    run = watch(Run(throttle(HARD, fallback_factor=0.0)), 400, 1, 2, a=50 * GB)
    run.see(members(400, 1, 2), log_dirs(400, 1, 50 * GB), log_dirs(400, 2, 50 * GB))
    assert run.changes() == [(0, 1.0), (300, 0.0), (400, 1.0)]
    assert run.said("departed-volume-forgotten") == []


def test_a_full_volume_decides_before_one_that_was_never_read() -> None:
    run = watch(Run(throttle(HARD, fallback_factor=0.0)), 400, 1, 2, a=GB)
    assert (run.last.factor, run.last.reason) == (0.0, ThrottleReason.HARD_LIMIT)
    assert run.limiting.broker == 1


def test_the_strimzi_preset_forgets_it_as_the_plugin_does_but_alerts() -> None:
    run = watch(Run(throttle(HARD, preset="strimzi", fallback_factor=0.0)), 700, 1, 2, a=50 * GB, b=None)
    assert {d.factor for d in run.decisions} == {1.0}
    assert ("log-dir-offline", f"{CLUSTER}/1/data/b") in run.firing()


# A volume that fills is judged by its free space at the earliest instant at which a stop could have its effect.

STOP: dict[str, Any] = {"stop_time": "5s", "min_change": 0.0, "min_hold": "0s"}
EVERY, LAST = 10, 100


def fill(rate: float, free: float, **more: Any) -> Run:
    """A volume that fills at a rate (bytes a second), read every ten seconds, and has `free` bytes at the last one."""
    run = Run(throttle(SOFT_AND_HARD, **{**STOP, **more}))
    readings = [log_dirs(t, 1, round(free + rate * (LAST - t))) for t in range(0, LAST + 1, EVERY)]
    run.feed([members(0, 1), *readings])
    return run


def test_the_sentence_names_both_numbers() -> None:
    run = fill(50e6, 3 * GB)
    assert run.factor == pytest.approx((3 - 1 - 0.05 * 16) / 4)
    assert "has 3.0 GB free of 100 GB (2.2 GB when a change takes effect, in 16 s), between" in run.last.explanation


def test_a_stop_begins_before_the_limit() -> None:
    run = fill(100e6, 2 * GB)
    assert (run.factor, run.last.reason.value) == (0.0, "hard_limit")
    assert "has 2.0 GB free of 100 GB (400 MB when a change takes effect, in 16 s), at or below" in run.last.explanation


@pytest.mark.parametrize(
    "more", [{"anticipate": False}, {"stop_time": None}, {"preset": "strimzi"}], ids=["off", "no dead time", "strimzi"]
)
def test_without_it_the_plain_free_space_decides(more: dict[str, Any]) -> None:
    assert fill(50e6, 3 * GB, **more).factor == 0.5


def test_a_volume_that_empties_or_rests_is_judged_by_what_it_has() -> None:
    for rate in (0.0, -20e6):
        assert fill(rate, 3 * GB).factor == 0.5


@pytest.mark.parametrize(
    ("silence", "reason"),
    [
        pytest.param([], "stale_volume", id="no reading"),
        pytest.param([failed(LAST + 1, 1)], "stale_volume", id="a failed reading"),
        pytest.param([log_dirs(LAST + 1, 1, {A: None})], "stale_volume", id="unreadable, read sooner than before"),
        pytest.param([log_dirs(LAST + 1, 1, {}), log_dirs(LAST + 2, 1, {})], "departed_volume", id="dir gone"),
        pytest.param([members(LAST + 1, 2)], "departed_volume", id="broker left"),
    ],
)
@pytest.mark.parametrize(("free", "factor"), [(2 * GB, 0.0), (4 * GB, 0.35)], ids=["stopped", "slowed"])
def test_silence_opens_no_gate_that_the_dead_time_closed(
    silence: list[Any], reason: str, free: float, factor: float
) -> None:
    run = fill(100e6, free).feed([members(LAST, 1), *silence]).until(LAST + 600)
    assert run.factor == pytest.approx(factor)
    assert run.last.reason.value == reason


def test_the_sentence_of_the_margin_names_both_numbers() -> None:
    run = fill(63e6, 2 * GB, recovery_margin=0.6).feed([log_dirs(LAST + 1, 1, round(2 * GB - 63e6))])
    assert run.last.reason.value == "recovery_margin"
    assert "free of 100 GB (1.5 GB when a change takes effect, in 7 s), and must be clear" in run.last.explanation


@given(st.floats(0.0, 3e8), st.floats(0.0, 3e8), st.floats(0.1, 8.0))
def test_a_faster_fill_never_gives_a_higher_factor(one: float, other: float, free: float) -> None:
    slower, faster = sorted((one, other))
    plain = fill(slower, free * GB, anticipate=False).factor
    assert fill(faster, free * GB).factor <= fill(slower, free * GB).factor + 1e-6 <= plain + 2e-6


# The one sentence of a decision.


def test_the_example_of_the_specification() -> None:
    settings = throttle(soft={"available_bytes_below": "5GB"}, hard={"available_ratio_below": 0.01})
    run = Run(settings).see(log_dirs(0, 3, 4 * GB))
    assert run.last.factor == 0.75
    assert run.last.explanation == (
        "Producers of payments should be slowed to 0.75: broker 3 /data/a has 4.0 GB free of 100 GB, "
        "between the soft limit 5.0 GB and the hard limit 1.0 GB."
    )


def test_a_decision_says_when_the_volume_is_full() -> None:
    run = Run(throttle(SOFT_AND_HARD, min_change=0.0))
    for t in range(0, 160, 10):
        run.see(log_dirs(t, 3, 4 * GB - t * 10**6))
    assert run.last.seconds_to_full == pytest.approx(3850)
    assert run.last.explanation.endswith("; full in 64 min at the present rate.")
    assert run.last.soonest_full == SoonestFull(broker=3, log_dir=A, seconds=3850, confidence=0.78)


def test_a_decision_names_the_volume_that_is_full_first_where_it_speaks_of_another() -> None:
    run = Run(throttle(SOFT_AND_HARD, min_change=0.0))
    for t in range(0, 160, 10):
        run.see(log_dirs(t, 3, 4 * GB), log_dirs(t, 1, {"/data/b": 20 * GB - t * 50 * 10**6}))
    assert "broker 3 /data/a has 4.0 GB free" in run.last.explanation
    assert run.last.explanation.endswith("; broker 1 /data/b is full in 4 min at the present rate.")
    assert run.last.soonest_full is not None
    assert (run.last.soonest_full.broker, run.last.soonest_full.seconds) == (1, run.last.seconds_to_full)


def test_a_decision_that_is_held_names_the_volume_that_is_full_first() -> None:
    run = Run(throttle(SOFT_AND_HARD, min_change=0.0, min_hold="1h"))
    for t in range(0, 160, 10):
        run.see(log_dirs(t, 3, 4 * GB - t * 10**6), log_dirs(t, 1, 2 * GB if t < 100 else 50 * GB))
    assert run.last.reason.value == "min_hold"
    assert "held for 1h; broker 3 /data/a is full in 65 min at the present rate" in run.last.explanation


def test_a_change_too_small_to_follow_is_told_with_the_volume_that_wants_it() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, 50 * GB)).see(log_dirs(60, 3, 4900 * 10**6))
    assert run.last.explanation.startswith("Producers of payments may write freely: broker 3 /data/a has 4.9 GB free")
    assert "which is too small a change to follow" in run.last.explanation


NOBODY = "; no actuator is set for this cluster."
SHADOW = "; this is shadow mode, nothing is carried out."


@pytest.mark.parametrize(
    ("free", "wanted"),
    [(0, "should be stopped:"), (4 * GB, "should be slowed to 0.75:"), (9 * GB, "may write freely:")],
    ids=["stop", "slow", "free"],
)
@pytest.mark.parametrize(
    ("block", "unless"),
    [
        pytest.param({}, "", id="not known here"),
        pytest.param({"has_actuator": True}, "", id="an actuator"),
        pytest.param({"has_actuator": False}, NOBODY, id="no actuator"),
        pytest.param({"mode": "shadow", "has_actuator": True}, SHADOW, id="shadow"),
    ],
)
def test_a_sentence_says_what_is_wanted_and_why_nobody_carries_it_out(
    block: dict[str, Any], unless: str, free: int, wanted: str
) -> None:
    settings = throttle(soft={"available_bytes_below": "5GB"}, hard={"available_bytes_below": "1GB"}, **block)
    sentence = Run(settings).see(log_dirs(0, 3, free)).last.explanation
    assert sentence.startswith(f"Producers of payments {wanted} ")
    assert [why for why in (NOBODY, SHADOW) if sentence.endswith(why)] == ([unless] if unless and free < 5 * GB else [])
    assert not any(claim in sentence for claim in ("are stopped", "are slowed", "is stopped"))
