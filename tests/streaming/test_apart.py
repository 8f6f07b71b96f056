"""One reading that a policy cannot take, or that exceeds its bounds, takes no other reading with it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.book import Step
from policies.decisions import Alert
from policies.observations import Observation
from policies.registry import POLICIES
from policies.throttle import policy
from policies.throttle.policy import ThrottlePolicy
from policies.throttle.state import ThrottleState
from policies.wire import BadRecordError
from streaming import host, transition
from streaming.host import PolicyHost, StepResult
from streaming.key_state import decode, encode
from streaming.transition import step_apart
from streaming.worker_memory import STATE_CACHE
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, log_dirs, members, throttle
from tests.streaming.transitions import Transitions, letters, reasons, told

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({CLUSTER}))
KEY = ("throttle", CLUSTER)


class Choosy(ThrottlePolicy):
    """The throttle policy, but it raises for readings of brokers from 1,000 on, and for none at all if `is_broken`."""

    steps = 0
    is_broken = False

    def step(
        self, state: ThrottleState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ThrottleState]:
        type(self).steps += 1
        if self.is_broken or any(is_bad(each) for each in observations):
            raise OverflowError("date value out of range")
        return super().step(state, observations, now)


def is_bad(observation: Observation) -> bool:
    return getattr(observation.reading, "broker", 0) >= 1000


@pytest.fixture
def choosy(monkeypatch: pytest.MonkeyPatch) -> None:
    use_choosy(monkeypatch)


def use_choosy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "throttle", replace(POLICIES["throttle"], build=Choosy))
    Choosy.steps = 0


class Stepped(NamedTuple):
    """As `step_apart` returns it."""

    result: StepResult
    refused: Mapping[int, BadRecordError]


def step(observations: Sequence[Observation], seconds: float = 60) -> Stepped:
    return Stepped(*step_apart(PolicyHost(HOST.settings, HOST.clusters), KEY, None, observations, at(seconds)))


def brokers_known(stepped: Stepped) -> list[int]:
    state = STATE_CACHE.decode(POLICIES["throttle"], CLUSTER, decode(encode(stepped.result.key_state)))
    return [broker.name for broker in state.cluster.brokers]


def alerts(stepped: Stepped) -> list[tuple[str, str]]:
    return [(each.alert, each.status) for each in stepped.result.step.decisions if isinstance(each, Alert)]


@given(bad=st.sets(st.integers(0, 39), max_size=5))
def test_all_others_are_taken_wherever_the_culprits_lie(bad: set[int]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_choosy(monkeypatch)
        seen = [log_dirs(place, 1000 + place if place in bad else place, 9 * GB) for place in range(40)]
        stepped = step(seen)
    assert set(stepped.refused) == bad
    assert brokers_known(stepped) == sorted(set(range(40)) - bad)
    assert stepped.result.failure is None
    assert all(error.reason == "policy-failed" for error in stepped.refused.values())
    assert ("policy-failed", "firing") in alerts(stepped) or not bad


@pytest.mark.usefixtures("choosy")
def test_the_steps_are_bounded_however_many_culprits_there_are() -> None:
    stepped = step([log_dirs(place, 1000 * (place % 2) + place, 9 * GB) for place in range(2000)])
    assert Choosy.steps < transition.MOST_STEPS + 20
    assert set(range(1, 2000, 2)) <= set(stepped.refused)


@pytest.mark.usefixtures("choosy")
def test_a_policy_that_fails_without_them_too_is_not_blamed_on_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Choosy, "is_broken", True)
    stepped = step([log_dirs(place, place, 9 * GB) for place in range(100)])
    assert Choosy.steps == 2
    assert stepped.result.failure is not None
    assert len(stepped.refused) == 100


@pytest.mark.usefixtures("choosy")
def test_the_culprit_is_a_dead_letter_and_the_alert_ends_ten_minutes_after_the_last_one() -> None:
    transitions = Transitions(HOST)
    good, bad = log_dirs(0, 1, GB // 2), log_dirs(0, 1000, 9 * GB)
    operator = transitions.take(1, transitions.record(bad, appended=0), transitions.record(good, appended=0))
    assert reasons(operator) == ["policy-failed"]
    assert [each["verdict"] for each in told(operator, "decided.throttle")] == ["lower"]
    (alert,) = (each for each in told(operator, "decided.alerts") if each["alert"] == "policy-failed")
    assert "in the dead letters: OverflowError at test_apart.py" in alert["summary"]
    again = transitions.take(300, transitions.record(log_dirs(299, 1000, GB), appended=299))
    quiet = transitions.take(899)
    ended = transitions.take(900)
    states = [[e["status"] for e in told(t, "decided.alerts") if e["alert"] == "policy-failed"] for t in (again, quiet)]
    assert states == [[], []]
    assert [e["status"] for e in told(ended, "decided.alerts") if e["alert"] == "policy-failed"] == ["resolved"]


def flood(transitions: Transitions, count: int, dirs: int) -> list[Any]:
    free = {f"/data/{number}": 9 * GB for number in range(dirs)}
    return [transitions.record(log_dirs(1, 100 + number, free), appended=1) for number in range(count)]


def test_readings_beyond_the_volumes_of_a_cluster_are_refused_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "BOUNDS", policy.BOUNDS._replace(most_volumes=50))
    transitions = Transitions(HOST)
    operator = transitions.take(2, *flood(transitions, 8, 10))
    assert set(reasons(operator)) == {"too-many"}
    assert {letter["detail"] for letter in letters(operator)} == {"more than 50 log dirs"}
    raised = [each["alert"] for each in told(operator, "decided.alerts")]
    assert raised.count("readings-refused") == 1
    again = transitions.take(3, *flood(transitions, 8, 10))
    assert "readings-refused" not in [each["alert"] for each in told(again, "decided.alerts")]


def test_forged_brokers_take_no_room_from_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "BOUNDS", policy.BOUNDS._replace(most_volumes=50))
    transitions = Transitions(HOST)
    transitions.take(0, transitions.record(members(0, 1, 2, 3), appended=0))
    transitions.take(2, *flood(transitions, 8, 10))
    operator = transitions.take(3, transitions.record(log_dirs(3, 2, GB // 2), appended=3))
    assert reasons(operator) == []
    assert [each["verdict"] for each in told(operator, "decided.throttle")] == ["lower"]


def test_a_state_or_an_output_beyond_its_bytes_refuses_the_reading_that_makes_it_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for bound in ("MOST_STATE_BYTES", "MOST_OUTPUT_BYTES"):
        with monkeypatch.context() as patched:
            patched.setattr(host, bound, 30_000)
            transitions = Transitions(HOST)
            low = {f"/data/{number:0200}": GB // 2 for number in range(400)}
            huge = transitions.record(log_dirs(1, 7, low), appended=1)
            operator = transitions.take(2, transitions.record(log_dirs(1, 1, GB // 2), appended=1), huge)
        assert reasons(operator) == ["policy-failed"], bound
        assert sum(len(output.value) for output in operator.outputs) < 100_000
        assert [each["verdict"] for each in told(operator, "decided.throttle")] == ["lower"], bound
