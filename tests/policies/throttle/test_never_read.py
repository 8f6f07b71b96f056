"""Never read is not absent: a member or a log dir without any reading counts as the fallback after `validity`."""

import pytest

from policies.throttle.decisions import ThrottleReason
from tests.policies.scenario import CLUSTER, GB, HARD, Run, failed, log_dirs, members, throttle
from tests.policies.throttle.known import A, B


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
