"""That a policy watches a cluster is said once a minute, and by nothing but the query that does."""

from typing import Any

import pytest

from policies.throttle.policy import ThrottlePolicy
from streaming.host import PolicyHost
from streaming.key_state import INTERVAL_MS, LastHeartbeat
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, log_dirs, throttle
from tests.streaming.transitions import Transitions, told

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD, heartbeat="1h")}, frozenset({CLUSTER}))


def watched() -> Transitions:
    transitions = Transitions(HOST)
    transitions.take(30, transitions.record(log_dirs(30, 3, 50 * GB), appended=30))
    return transitions


def test_it_is_said_each_minute_whether_anything_is_read_or_not() -> None:
    transitions, said = watched(), list[dict[str, Any]]()
    for second in range(31, 331, 10):
        said += told(transitions.take(second), "decided.standing")
    assert len(said) == 5
    assert [s["sequence"] for s in said] == sorted({s["sequence"] for s in said})
    assert transitions.key_state.last_heartbeat.due_ms % INTERVAL_MS == 0, "all clusters share a batch"


def test_it_lapses_before_a_fourth_is_missed() -> None:
    (said,) = told(watched().take(60), "decided.standing")
    assert said["decided_at"] == "2026-11-21T08:01:00.000Z"
    assert said["valid_until"] == "2026-11-21T08:04:00.000Z"


def test_it_is_not_said_of_a_cluster_of_which_nothing_was_read() -> None:
    transitions = Transitions(HOST)
    transitions.take(0, transitions.record(b"garbage", appended=0))
    assert told(transitions.take(120), "decided.standing") == []


def test_it_is_not_said_by_a_policy_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    transitions = watched()

    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(ThrottlePolicy, "step", fail)
    assert told(transitions.take(60, transitions.record(log_dirs(60, 3, GB), appended=60)), "decided.standing") == []
    assert told(transitions.take(120), "decided.standing") == []
    monkeypatch.undo()
    assert told(transitions.take(500), "decided.standing") != []


@pytest.mark.parametrize(("now_ms", "due"), [(119_999, False), (120_000, True), (59_999, True), (60_000, False)])
def test_a_clock_that_is_set_back_does_not_silence_it(now_ms: int, due: bool) -> None:
    assert LastHeartbeat(60_000, 1).is_due(now_ms) is due
