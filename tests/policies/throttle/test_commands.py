"""A person's commands to the policy: what they change, and the decision that answers them."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.throttle.fold import AdoptCommand, ForgetCommand
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, HARD, Run, at, failed, log_dirs, members, throttle
from tests.policies.throttle.known import A, B


def forget(seconds: float, broker: int, log_dir: str) -> Observation:
    command = ForgetCommand(cluster=CLUSTER, broker=broker, log_dir=log_dir, actor="alice@host", reason="replaced")
    return Observation(f"forget@{seconds:g}", at(seconds), command)


STOPPED = [members(0, 1, 2), log_dirs(0, 1, {A: 0, B: 9 * GB}), log_dirs(0, 2, 9 * GB)]
LEFT = [members(60, 2)]


@for_each(
    "course",
    [
        pytest.param([log_dirs(60, 1, {B: 9 * GB})], id="taken out"),
        pytest.param([log_dirs(60, 1, {A: None, B: 9 * GB})], id="failed"),
        pytest.param([log_dirs(60, 1, {A: None, B: 9 * GB}), failed(70, 1)], id="failed, then silent"),
        pytest.param([failed(60, 1)], id="silent"),
        pytest.param(LEFT, id="broker left"),
    ],
)
@for_each("preset", [None, "strimzi"])
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


def of(cluster_id: str, observed: Observation) -> Observation:
    """The reading of a Kafka cluster with this id."""
    reading = observed.reading.model_copy(update={"cluster_id": cluster_id})
    return Observation(f"{cluster_id}/{observed.id}", observed.at, reading)


def adopt(seconds: float, cluster_id: str) -> Observation:
    command = AdoptCommand(cluster=CLUSTER, cluster_id=cluster_id, actor="alice@host")
    return Observation(f"adopt@{seconds:g}", at(seconds), command)


def replaced() -> Run:
    """A cluster is stopped; from second 60 on another one with empty disks answers at its address."""
    old = [of("old", each) for each in (members(0, 1), log_dirs(0, 1, 0), members(30, 1), log_dirs(30, 1, 0))]
    new = [of("new", each) for t in range(60, 600, 30) for each in (members(t, 1), log_dirs(t, 1, 90 * GB))]
    return Run(throttle(HARD, fallback_factor=0.5)).feed([*old, *new])


def test_a_cluster_that_was_replaced_is_an_alert_and_its_readings_do_not_count() -> None:
    run = replaced()
    assert run.said("cluster-replaced") == [(60, "firing", "critical")]
    (alert,) = (a for a in run.alerts if a.alert == "cluster-replaced")
    assert alert.labels == {"cluster": CLUSTER, "cluster_id": "new"}
    assert "its id is new, before it was old" in alert.summary
    assert "until somebody runs headgate adopt --cluster payments" in alert.summary
    assert (run.factor, run.last.cluster_id) == (0.0, "old")
    assert "another Kafka cluster answers now (new), and its readings do not count" in run.last.explanation


def test_an_adopted_cluster_begins_without_a_state() -> None:
    run = replaced().feed([adopt(600, "new")])
    assert run.said("cluster-replaced")[-1] == (600, "resolved", "critical")
    assert run.known.gate is not None
    assert (run.known.cluster.brokers, run.known.gate.stopped_by, run.last.cluster_id) == ((), (), "new")
    assert "the Kafka cluster new is adopted, as alice@host asked" in run.last.explanation
    assert (run.last.evidence, run.last.previous_factor) == (("adopt@600",), None)
    run.feed([of("new", members(610, 1)), of("new", log_dirs(610, 1, 90 * GB))]).until(700)
    assert (run.factor, run.firing()) == (1.0, set())
    assert [d.sequence for d in run.decisions] == sorted({d.sequence for d in run.decisions})


def test_only_the_cluster_that_answers_is_adopted() -> None:
    run = replaced().feed([adopt(600, "another")])
    assert run.last.cluster_id == "old"
    assert "the Kafka cluster another is not what answers, so it was not adopted" in run.last.explanation


def test_the_cluster_from_before_ends_the_alert_when_it_answers_again() -> None:
    run = replaced().feed([of("old", log_dirs(600, 1, 90 * GB))])
    assert run.said("cluster-replaced")[-1] == (600, "resolved", "critical")
    assert run.factor == 1.0


def test_readings_without_an_id_count_as_before() -> None:
    """An older collector publishes none."""
    run = Run(throttle(HARD)).feed([of("old", log_dirs(0, 1, 90 * GB)), log_dirs(60, 1, 0)])
    assert (run.factor, run.last.cluster_id) == (0.0, "old")
