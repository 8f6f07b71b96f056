"""What the throttle policy warns of."""

from itertools import product
from typing import Any

import pytest

from policies.observations import Observation, Outcome
from policies.throttle.readings import LogDirs, VolumeReading
from tests.cases import for_each
from tests.policies.scenario import (
    CLUSTER,
    GB,
    HARD,
    SOFT_AND_HARD,
    TOTAL,
    Run,
    at,
    failed,
    log_dirs,
    members,
    throttle,
)

A, B = "/data/a", "/data/b"
SOFT_ALERT, HARD_ALERT = "volume-below-soft-limit", "volume-below-hard-limit"
OFFLINE = "log-dir-offline"
FILLS, UNREAD, CROSS, FORGOTTEN = "volume-fills-soon", "log-dirs-unread", "limits-cross", "departed-volume-forgotten"


BOTH = {SOFT_ALERT, HARD_ALERT}


@for_each(
    ("free", "firing"), [(5 * GB + 1, set()), (5 * GB, {SOFT_ALERT}), (GB + 1, {SOFT_ALERT}), (GB, BOTH), (0, BOTH)]
)
def test_a_volume_below_a_limit_is_said(free: int, firing: set[str]) -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, {A: free, B: 90 * GB}))
    assert run.firing() == {(alert, f"{CLUSTER}/3/data/a") for alert in firing}


def test_an_alert_ends_when_the_volume_is_clear_by_the_margin() -> None:
    course = [(0, GB), (10, GB + 1), (20, 1_100_000_000), (30, 1_100_000_001)]
    run = Run(throttle(HARD)).feed(log_dirs(t, 1, free) for t, free in course)
    assert run.said(HARD_ALERT) == [(0, "firing", "critical"), (30, "resolved", "critical")]


@pytest.mark.parametrize("limit", [GB, 5 * GB], ids=["hard", "soft"])
def test_a_saw_tooth_around_a_limit_is_one_alert(limit: int) -> None:
    course = (log_dirs(t * 10, 1, limit + (limit // 100 if t % 2 else -limit // 100)) for t in range(200))
    run = Run(throttle(SOFT_AND_HARD, alert_refresh="1h")).feed(course)
    assert {len(run.said(alert)) for alert in (HARD_ALERT, SOFT_ALERT)} <= {0, 1}
    assert len(run.alerts) in (1, 2)


@pytest.mark.parametrize(
    "silence",
    [
        pytest.param([], id="no reading"),
        pytest.param([failed(10, 1), failed(310, 1)], id="failed readings"),
        pytest.param([log_dirs(10, 1, {A: None}), log_dirs(310, 1, {A: None})], id="unreadable"),
        pytest.param([log_dirs(10, 1, {})], id="gone from its broker"),
        pytest.param([members(10, 2)], id="broker left"),
    ],
)
def test_silence_does_not_end_an_alert_that_a_reading_began(silence: list[Any]) -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0)).feed(silence).until(3000)
    assert {status for _, status, _ in run.said(HARD_ALERT)} == {"firing"}


def test_the_alert_of_a_departed_volume_ends_when_it_is_forgotten() -> None:
    run = Run(throttle(HARD, alert_refresh="1h")).see(log_dirs(0, 1, 0)).see(members(10, 2)).until(3700)
    assert run.said(HARD_ALERT)[-1] == (3610, "resolved", "critical")


def test_silence_does_not_begin_an_alert_of_a_volume() -> None:
    run = Run(throttle(HARD, fallback_factor=0.0)).see(log_dirs(0, 1, 50 * GB)).until(900)
    assert run.said(HARD_ALERT) == []


def test_a_volume_that_fills_soon_is_said_before_it_reaches_a_limit() -> None:
    # 10 MB a second from 25 GB: 30 minutes left at 18 GB.
    run = Run(throttle(HARD)).feed(log_dirs(t, 1, 25 * GB - t * 10**7) for t in range(0, 1500, 10))
    fired = run.said(FILLS)
    assert {status for _, status, _ in fired} == {"firing"}
    assert fired[0][0] == pytest.approx(700, abs=20)
    assert run.said(HARD_ALERT) == []
    assert "is full in 30 min at its present rate" in next(a.summary for a in run.alerts if a.alert == FILLS)


def test_a_volume_that_fills_soon_ends_with_a_quarter_more_time() -> None:
    fill = [log_dirs(t, 1, 18 * GB - t * 10**7) for t in range(0, 100, 10)]
    slower = [log_dirs(t, 1, 17 * GB - (t - 100) * 10**6) for t in range(100, 1500, 10)]
    run = Run(throttle(HARD, alert_refresh="1h")).feed([*fill, *slower])
    assert [status for _, status, _ in run.said(FILLS)] == ["firing", "resolved"]


@pytest.mark.parametrize(
    "silence", [[], [failed(110, 1)], [log_dirs(110, 1, {A: None})]], ids=["no reading", "failed", "unreadable"]
)
def test_silence_does_not_end_the_alert_of_a_volume_that_fills_soon(silence: list[Any]) -> None:
    fill = [log_dirs(t, 1, 18 * GB - t * 10**8) for t in range(0, 100, 10)]
    run = Run(throttle(HARD)).feed([members(0, 1), *fill, *silence]).until(3000)
    assert {status for _, status, _ in run.said(FILLS)} == {"firing"}
    told = [a.summary for a in run.alerts if a.alert == FILLS]
    assert told[-1] == f"broker 1 {A} of payments has 9.0 GB free and was filling when it was last read"
    run.see(*(log_dirs(3000 + t, 1, 50 * GB) for t in range(3)))
    assert run.said(FILLS)[-1][1] == "resolved"


@pytest.mark.parametrize("rate", [0, -(10**6), 10**5], ids=["steady", "emptying", "slowly filling"])
def test_a_volume_that_does_not_fill_soon_is_not_said(rate: int) -> None:
    run = Run(throttle(HARD)).feed(log_dirs(t, 1, 18 * GB - t * rate) for t in range(0, 900, 10))
    assert run.said(FILLS) == []


@pytest.mark.parametrize(
    ("outcome", "reason"), [(None, "silence"), *((o, o.value) for o in Outcome if o is not Outcome.OK)]
)
def test_a_broker_unread_for_validity_is_said_with_why(outcome: Outcome | None, reason: str) -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB), log_dirs(0, 2, 9 * GB))
    run.feed(
        o for t in range(10, 400, 10) for o in [log_dirs(t, 2, 9 * GB), *([failed(t, 1, outcome)] if outcome else [])]
    )
    assert run.said(UNREAD) == [(300, "firing", "warning")]
    alert = run.alerts[-1]
    assert (alert.subject, alert.reason, alert.labels) == ("payments/1", reason, {"cluster": CLUSTER, "broker": "1"})


def test_a_broker_that_is_read_again_is_resolved() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB)).see(log_dirs(400, 1, 9 * GB))
    said = {(a.subject, a.status.value) for a in run.alerts if a.alert == UNREAD}
    assert said == {*product(("payments", "payments/1"), ("firing", "resolved"))}
    assert run.firing() == set()


def test_a_member_that_never_reports_is_said_after_validity() -> None:
    run = Run(throttle(HARD)).see(members(0, 1, 2)).feed(log_dirs(t, 1, 9 * GB) for t in range(0, 400, 10))
    assert [(a.subject, a.reason) for a in run.alerts] == [("payments/2", "silence")]
    assert run.said(UNREAD) == [(300, "firing", "warning")]


@for_each(
    "course",
    [
        pytest.param([log_dirs(0, 1, 9 * GB), log_dirs(0, 2, 9 * GB)], id="all brokers silent"),
        pytest.param([failed(t, 1, Outcome.UNAUTHORIZED) for t in range(0, 300, 10)], id="never read"),
        pytest.param([members(t, outcome=Outcome.UNREACHABLE) for t in range(0, 300, 10)], id="no brokers known"),
    ],
)
@for_each("block", [HARD, {}], ids=["limited", "only observed"])
def test_when_nothing_is_known_for_validity_it_is_critical(course: list[Any], block: dict[str, Any]) -> None:
    run = Run(throttle(block)).feed(course).until(900)
    of_cluster = [a for a in run.alerts if a.subject == CLUSTER]
    assert [(a.alert, a.severity.value, (a.decided_at - at(0)).total_seconds()) for a in of_cluster] == [
        (UNREAD, "critical", 300)
    ]


CROSSING = throttle(hard={"available_ratio_below": 0.1}, soft={"available_bytes_below": 5 * GB})


def test_crossing_limits_are_said_once() -> None:
    # Hard is 10 GB of 100 GB: above soft.
    course = (log_dirs(t * 10, 1, 10 * GB + (10**8 if t % 2 else -(10**8))) for t in range(100))
    run = Run(CROSSING).feed(course)
    assert run.said(CROSS) == [(0, "firing", "warning")]


def test_limits_that_do_not_cross_on_this_volume_are_not_said_to() -> None:
    run = Run(CROSSING).see(log_dirs(0, 1, GB, total=10 * GB))
    assert run.said(CROSS) == []
    assert run.factor == 0.0


def test_a_forgotten_volume_is_named_as_long_as_it_was_held_then_resolved() -> None:
    run = Run(throttle(HARD, heartbeat="1d")).see(log_dirs(0, 1, 0), log_dirs(0, 2, 9 * GB)).see(members(10, 2))
    run.until(9000)
    assert run.said(FORGOTTEN) == [(3610, "firing", "warning"), (7210, "resolved", "warning")]


def test_a_forgotten_volume_that_returns_is_no_longer_named() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0)).see(members(10, 2)).see(log_dirs(4000, 1, 9 * GB))
    assert run.said(FORGOTTEN) == [(3610, "firing", "warning"), (4000, "resolved", "warning")]


def test_without_departed_hold_nothing_is_held_and_nothing_said() -> None:
    run = Run(throttle(HARD, departed_hold="0s")).see(log_dirs(0, 1, 0), log_dirs(0, 2, 9 * GB)).see(members(40, 2))
    assert run.changes() == [(0, 0.0), (40, 1.0)]
    assert run.said(FORGOTTEN) == []


@pytest.mark.parametrize("preset", [None, "strimzi"])
def test_a_failed_log_dir_is_named_in_the_same_step_with_kafkas_own_error(preset: str | None) -> None:
    run = Run(throttle(HARD, preset=preset)).see(log_dirs(0, 1, {A: 9 * GB, B: 9 * GB}))
    run.feed(log_dirs(t, 1, {A: None, B: 9 * GB}) for t in range(10, 1400, 10))
    assert {(a.alert, a.subject) for a in run.alerts} == {(OFFLINE, "payments/1/data/a")}
    assert run.said(OFFLINE)[0] == (10, "firing", "critical")
    assert {a.summary for a in run.alerts} == {
        "broker 1 of payments reports its log dir /data/a as failed (KAFKA_STORAGE_ERROR); it had 9.0 GB free when it "
        "was last read, at 2026-11-21T08:00:00Z"
    }
    run.see(log_dirs(1410, 1, {A: 9 * GB, B: 9 * GB}))
    assert run.firing() == set()


@pytest.mark.parametrize("preset", [None, "strimzi"])
def test_a_log_dir_without_sizes_and_without_an_error_is_named_after_validity(preset: str | None) -> None:
    def read(seconds: float, free: int) -> Observation:
        volumes = tuple(VolumeReading(log_dir=d, total_bytes=TOTAL, usable_bytes=b) for d, b in ((A, free), (B, GB)))
        reading = LogDirs(cluster=CLUSTER, outcome=Outcome.OK, broker=1, volumes=volumes)
        return Observation(f"{seconds}", at(seconds), reading)

    run = Run(throttle(preset=preset)).see(read(0, 9 * GB)).feed(read(t, -1) for t in range(10, 1400, 10))
    assert run.said(UNREAD) == [(300, "firing", "warning")]
    assert "broker 1 of payments answers, but cannot read /data/a for 5m" in run.alerts[-1].summary
    never_read = Run(throttle(preset=preset)).see(read(0, -1)).see(read(300, -1))
    assert (UNREAD, f"{CLUSTER}/1/data/a") in never_read.firing()
    assert never_read.see(log_dirs(310, 1, {B: GB})).firing() == set(), "it is gone"


def test_a_failed_log_dir_fills_no_more() -> None:
    fill = [log_dirs(t, 1, 18 * GB - t * 10**8) for t in range(0, 100, 10)]
    run = Run(throttle(HARD)).feed([*fill, log_dirs(100, 1, {A: None})]).until(160)
    assert any(decision.soonest_full is not None for decision in run.decisions)
    assert run.last.soonest_full is None
    assert "full in" not in run.last.explanation
    assert "broker 1 reports /data/a as failed (KAFKA_STORAGE_ERROR)" in run.last.explanation
    full = Run(throttle(HARD)).feed([log_dirs(0, 1, 0), log_dirs(10, 1, {A: None}), members(20, 2)])
    assert full.last.explanation.startswith("Producers of payments should be stopped: broker 1 left the cluster")
    assert "reports" not in full.last.explanation, "it is gone"


def test_a_broker_that_is_back_is_not_unread_for_the_time_it_was_away() -> None:
    run = Run(throttle(HARD)).feed([members(0, 1, 2), log_dirs(0, 1, 90 * GB), log_dirs(0, 2, 90 * GB)])
    run.feed([event for t in range(10, 1000, 10) for event in (members(t, 1), log_dirs(t, 1, 90 * GB))])
    run.feed([event for t in range(1000, 1300, 10) for event in (members(t, 1, 2), log_dirs(t, 1, 90 * GB))])
    assert run.said(UNREAD) == [], "it may need a while"
    run.feed([event for t in range(1300, 1400, 10) for event in (members(t, 1, 2), log_dirs(t, 1, 90 * GB))])
    assert run.firing() == {(UNREAD, f"{CLUSTER}/2")}
