"""A paused policy goes on deciding in shadow mode, its alerts wait, and what is outstanding is said once at the end."""

from datetime import timedelta
from typing import Any

import pytest

from policies.observations import Observation, Reading
from policies.pauses import PauseCommand
from policies.registry import POLICIES
from policies.wire import observation_event
from streaming.host import PolicyHost
from streaming.replay import Recorded, Replay
from streaming.transition import KeyTransition
from tests.policies.scenario import CLUSTER, GB, HARD, at, log_dirs, members, throttle
from tests.streaming.transitions import Transitions, letters, told

FULL, FREE = GB // 2, 50 * GB
COMMANDS = "commands"


def host(**more: Any) -> PolicyHost:
    return PolicyHost({"throttle": throttle(HARD, min_hold="0s", **more)}, frozenset({CLUSTER}))


def paused(until: float | None, policy: str = "throttle") -> PauseCommand:
    return PauseCommand(
        cluster=CLUSTER, policy=policy, until=None if until is None else at(until), actor="alice", reason="upgrade"
    )


def step(transitions: Transitions, seconds: float, free: int, *commands: PauseCommand) -> KeyTransition:
    records = [transitions.record(log_dirs(seconds, 1, free), appended=seconds)]
    records += [transitions.reading(command, appended=seconds, topic=COMMANDS) for command in commands]
    return transitions.take(seconds, *records)


def factors(transition: KeyTransition) -> list[tuple[float, str]]:
    return [(d["factor"], d["mode"]) for d in told(transition, "decided.throttle")]


def alerts(transition: KeyTransition) -> list[tuple[str, str]]:
    return [(a["alert"], a["status"]) for a in told(transition, "decided.alerts")]


def test_while_paused_it_decides_in_shadow_mode_and_at_the_end_what_is_outstanding_is_said_once() -> None:
    transitions = Transitions(host())
    assert factors(step(transitions, 0, FREE)) == [(1.0, "active")]
    transition = step(transitions, 1, FREE, paused(until=100))
    assert factors(transition) == [(1.0, "shadow")]
    (standing,) = told(transition, "decided.standing")
    assert (standing["reason"], standing["quiet_until"]) == ("only-watched", "2026-11-21T08:01:40.000Z")
    assert "until 2026-11-21 08:01:40 UTC (paused by alice: upgrade)" in standing["explanation"]

    transition = step(transitions, 10, FULL)
    assert (factors(transition), alerts(transition)) == ([(0.0, "shadow")], [])
    assert transition.wake_ms is not None
    end = transitions.take(100)
    assert factors(end) == [(0.0, "active")]
    assert alerts(end) == [("volume-below-hard-limit", "firing")]
    assert told(end, "decided.standing")[0]["reason"] == "watched"
    again = transitions.take(101)
    assert (factors(again), alerts(again)) == ([], [])


@pytest.mark.parametrize("keep", [True, False])
def test_its_decisions_say_whether_what_is_set_stays(keep: bool) -> None:
    transitions = Transitions(host())
    assert "frozen_until" not in told(step(transitions, 0, FULL), "decided.throttle")[0]
    transition = step(transitions, 1, FULL, paused(until=100).model_copy(update={"keep": keep}))
    (decision,), (standing,) = told(transition, "decided.throttle"), told(transition, "decided.standing")
    assert decision.get("frozen_until") == ("2026-11-21T08:01:40.000Z" if keep else None)
    assert ("what is set stays" if keep else "nothing is carried out") in decision["explanation"]
    assert (standing["paused_by"], standing["pause_reason"], standing["pause_keeps"]) == ("alice", "upgrade", keep)
    other = step(transitions, 2, FULL, paused(until=100).model_copy(update={"keep": not keep}))
    assert len(told(other, "decided.throttle")) == 1, "a change of mind is published at once"


def test_a_policy_in_shadow_mode_has_set_nothing_that_a_pause_could_keep() -> None:
    transitions = Transitions(host(mode="shadow"))
    step(transitions, 0, FULL)
    again = step(transitions, 1, FREE, paused(until=100))
    (decision,) = told(again, "decided.throttle") or told(step(transitions, 40, FREE), "decided.throttle")
    assert (decision["mode"], decision.get("frozen_until")) == ("shadow", None)


def test_the_query_is_woken_at_the_end_of_a_pause() -> None:
    transitions = Transitions(host(heartbeat="1h"))
    step(transitions, 0, FREE)
    transition = step(transitions, 1, FREE, paused(until=31.5))
    assert transition.wake_ms == int(at(31.5).timestamp() * 1000)


def test_resume_ends_it_at_once() -> None:
    transitions = Transitions(host())
    step(transitions, 0, FULL)
    step(transitions, 1, FULL, paused(until=1000))
    assert factors(step(transitions, 2, FULL, paused(until=None))) == [(0.0, "active")]


def test_an_alert_that_ended_meanwhile_is_resolved_once_at_the_end() -> None:
    transitions = Transitions(host())
    assert alerts(step(transitions, 0, FULL)) == [("volume-below-hard-limit", "firing")]
    step(transitions, 1, FULL, paused(until=50))
    assert alerts(step(transitions, 10, FREE)) == []
    assert alerts(step(transitions, 50, FREE)) == [("volume-below-hard-limit", "resolved")]
    assert alerts(step(transitions, 51, FREE)) == []


def test_a_pause_of_what_was_never_read_is_kept_for_its_first_reading() -> None:
    transitions = Transitions(host())
    transition = transitions.take(0, transitions.reading(paused(until=100), appended=0, topic=COMMANDS))
    assert transition.outputs == ()
    assert factors(step(transitions, 1, FULL)) == [(0.0, "shadow")]


@pytest.mark.parametrize(
    ("policy", "detail"),
    [
        ("no-such", f"data.policy: 'no-such' is no policy: {', '.join(sorted(POLICIES))} are"),
        ("switching", "data.policy: policy switching is paused by `headgate switch pause`"),
    ],
)
def test_a_command_that_no_policy_takes_is_a_dead_letter(policy: str, detail: str) -> None:
    transitions = Transitions(host(), policy="switching")
    transition = transitions.take(0, transitions.reading(paused(until=100, policy=policy), appended=0, topic=COMMANDS))
    assert [(letter["reason"], letter["detail"]) for letter in letters(transition)] == [("invalid", detail)]


def recorded(seconds: float, reading: Reading | Observation) -> Recorded:
    reading = reading.reading if isinstance(reading, Observation) else reading
    value = observation_event(reading, id=f"r{seconds}", source="test", time=at(seconds))
    return Recorded(f"line {seconds}", value)


def test_a_replay_shows_the_same() -> None:
    records = [
        recorded(0, members(0, 1)),
        recorded(0.5, log_dirs(0, 1, FREE)),
        recorded(1, paused(until=100)),
        recorded(10, log_dirs(10, 1, FULL)),
    ]
    decided = list(Replay(host(heartbeat="1h")).run(records, until=at(0) + timedelta(minutes=2)))
    said = [(d.decided_at - at(0), d.event_type.split(".")[1], d.verdict, d.mode.value) for d in decided]
    assert [(seconds.total_seconds(), *rest) for seconds, *rest in said] == [
        (0.0, "throttle-factor", "initial", "active"),
        (0.5, "throttle-factor", "no_change", "active"),
        (1.0, "throttle-factor", "no_change", "shadow"),
        (10.0, "throttle-factor", "lower", "shadow"),
        (100.0, "throttle-factor", "no_change", "active"),
        (100.0, "alert", "firing", "active"),
    ]
