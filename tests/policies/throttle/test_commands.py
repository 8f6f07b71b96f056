"""A person's commands to the policy: what they change, and the decision that answers them."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.throttle.commands import ForgetCommand
from tests.policies.scenario import CLUSTER, GB, HARD, Run, at, failed, log_dirs, members, throttle
from tests.policies.throttle.known import A, B


def forget(seconds: float, broker: int, log_dir: str) -> Observation:
    command = ForgetCommand(cluster=CLUSTER, broker=broker, log_dir=log_dir, actor="alice@host", reason="replaced")
    return Observation(f"forget@{seconds:g}", at(seconds), command)


STOPPED = [members(0, 1, 2), log_dirs(0, 1, {A: 0, B: 9 * GB}), log_dirs(0, 2, 9 * GB)]
LEFT = [members(60, 2)]


@pytest.mark.parametrize(
    "course",
    [
        pytest.param([log_dirs(60, 1, {B: 9 * GB})], id="taken out"),
        pytest.param([log_dirs(60, 1, {A: None, B: 9 * GB})], id="failed"),
        pytest.param([log_dirs(60, 1, {A: None, B: 9 * GB}), failed(70, 1)], id="failed, then silent"),
        pytest.param([failed(60, 1)], id="silent"),
        pytest.param(LEFT, id="broker left"),
    ],
)
@pytest.mark.parametrize("preset", [None, "strimzi"])
def test_a_log_dir_that_is_gone_or_failed_counts_no_more_once_it_is_forgotten(
    course: list[Observation], preset: str | None
) -> None:
    run = Run(throttle(HARD, preset=preset)).feed([*STOPPED, *course, forget(120, 1, A)])
    assert (run.factor, run.factor_at(59)) == (1.0, 0.0)
    if preset is None:
        assert run.factor_at(119) == 0.0
        answer = "the last reading of broker 1 /data/a counts no more, as alice@host asked: replaced"
        assert answer in run.last.explanation
    assert run.last.evidence[0] == "forget@120"
    assert run.said("departed-volume-forgotten") == []
    assert run.said("volume-below-hard-limit")[-1][1] == "resolved"


@pytest.mark.parametrize(
    ("course", "log_dir", "answer"),
    [
        ([log_dirs(60, 1, {A: 0, B: 9 * GB})], A, "broker 1 /data/a is read, so it counts; it was not forgotten"),
        ([log_dirs(60, 1, {B: 9 * GB})], "/data/c", "broker 1 /data/c is not known; nothing was forgotten"),
        (LEFT, "/data/c", "broker 1 /data/c is not known; nothing was forgotten"),
    ],
)
def test_anything_else_is_not_forgotten_and_the_decision_says_why(
    course: list[Observation], log_dir: str, answer: str
) -> None:
    run = Run(throttle(HARD)).feed([*STOPPED, *course, forget(120, 1, log_dir)])
    assert run.factor == 0.0
    assert answer in run.last.explanation
    assert run.last.evidence[0] == "forget@120"


def test_a_forgotten_log_dir_counts_again_once_it_is_read() -> None:
    course: list[Any] = [*STOPPED, log_dirs(60, 1, {B: 9 * GB}), forget(120, 1, A), log_dirs(180, 1, {A: 0, B: 9 * GB})]
    assert Run(throttle(HARD)).feed(course).changes()[-3:] == [(0, 0.0), (120, 1.0), (180, 0.0)]


def test_the_way_out_is_named_where_a_departed_volume_holds_producers_back() -> None:
    run = Run(throttle(HARD)).feed([*STOPPED, log_dirs(60, 1, {B: 9 * GB})])
    ways = " ".join(each.when for each in run.last.otherwise)
    assert "somebody runs `headgate forget --cluster payments --broker 1 --log-dir /data/a`" in ways
