"""What a batch takes of one key: floods for one cluster are cut to what is newest, and garbage displaces nothing."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.alerts import CONFIRM_MS
from policies.book import Step
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_readings import BookieRacks
from policies.decisions import Alert
from policies.free_space import volumes
from policies.observations import Observation, Outcome, Reading
from policies.pauses import PauseCommand
from policies.policy import POLICY_FAILED
from policies.recovery import OpenAlerts
from policies.registry import POLICIES, observed_topic
from policies.throttle.policy import ThrottlePolicy
from policies.throttle.state import ThrottleState
from policies.wire import BadRecordError, Cut, observation_event
from streaming import host, transition
from streaming.host import PolicyHost, StepResult
from streaming.key_state import decode, encode
from streaming.replay import Recorded, Replay
from streaming.transition import KeyTransition, step_apart
from streaming.worker_memory import STATE_CACHE
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, HARD, SOFT_AND_HARD, at, log_dirs, members, throttle
from tests.streaming.records import changed_data, event
from tests.streaming.transitions import Transitions, counted, letters, reasons, told, verdicts

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({CLUSTER}))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition, "MOST_RECORDS", 10)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(5))
def test_of_a_flood_the_newest_are_taken_in_whatever_order_they_come(seed: int) -> None:
    transitions = Transitions(HOST)
    flood = [transitions.record(log_dirs(n / 100, 3, GB if n < 99 else 3 * GB), appended=n / 100) for n in range(100)]
    random.Random(seed).shuffle(flood)
    transition = transitions.take(1, *flood)
    unflooded = Transitions(HOST).take(1, transitions.record(log_dirs(0.99, 3, 3 * GB), appended=0.99))
    (lowered,), (as_expected,) = (told(each, "decided.throttle") for each in (transition, unflooded))
    assert lowered["explanation"] == as_expected["explanation"]
    assert set(reasons(transition)) == {"too-many"}
    assert len(letters(transition)) + sum(c["count"] for c in counted(transitions.take(61))) == 90


@pytest.mark.usefixtures("small")
def test_garbage_displaces_no_reading() -> None:
    transitions = Transitions(HOST)
    good = transitions.record(log_dirs(0, 3, GB // 2), appended=0)
    garbage = [transitions.record(changed_data(log_dirs(0, 3, GB), broker=-1), appended=0) for _ in range(500)]
    transition = transitions.take(1, *garbage, good)
    assert verdicts(transition) == ["lower"]
    assert set(reasons(transition)) == {"invalid"}


@pytest.mark.usefixtures("small")
def test_a_flood_on_one_topic_or_partition_displaces_nothing_of_another() -> None:
    transitions = Transitions(HOST)
    low = transitions.record(log_dirs(0, 1, GB // 2), appended=0, partition=1)
    flood = [transitions.record(log_dirs(1, 3, 50 * GB), appended=1) for _ in range(50)]
    transition = transitions.take(1, low, *flood)
    assert verdicts(transition) == ["lower"]


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    transitions = Transitions(HOST)
    record = transitions.record(log_dirs(0, 3, GB), appended=0)
    monkeypatch.setattr("streaming.transition.MOST_BYTES", 3 * len(record.value or b""))
    transition = transitions.take(1, record, *(transitions.record(log_dirs(0, 3, GB), appended=0) for _ in range(9)))
    assert len(letters(transition)) + sum(c["count"] for c in counted(transitions.take(61))) == 7


def test_no_more_bytes_are_parsed_and_what_spark_has_cut_uses_up_none(monkeypatch: pytest.MonkeyPatch) -> None:
    transitions = Transitions(HOST)
    good, *garbage = (transitions.record(b"x" * 100, appended=0) for _ in range(10))
    good = good._replace(value=event(log_dirs(0, 3, GB // 2)))
    cut = transitions.record(b"x" * 1000, appended=0)._replace(cut=Cut(10**9, "ab"))
    monkeypatch.setattr(transition, "MOST_UNREAD_BYTES", 900 + len(good.value or b""))
    taken = transitions.take(1, good, cut, *garbage)
    assert verdicts(taken) == ["lower"]
    assert set(reasons(taken)) == {"malformed", "too_large"}
    monkeypatch.setattr(transition, "MOST_UNREAD_BYTES", 900)
    taken = Transitions(HOST).take(1, good, cut, *garbage)
    assert (verdicts(taken), set(reasons(taken))) == ([], {"malformed", "too_large", "too-many"})


@pytest.mark.parametrize(("policy", "letters_made"), [("isolation", 1), ("bookie_disks", 0)])
def test_of_a_topic_that_several_policies_read_the_first_makes_the_dead_letters(policy: str, letters_made: int) -> None:
    transitions = Transitions(PolicyHost(), policy)
    garbage = transitions.record(b"garbage", appended=0, topic="headgate.observed.bookies")
    assert len(letters(transitions.take(1, garbage))) == letters_made


def test_a_policy_that_takes_readings_of_others_watches_a_cluster_once_it_has_one_of_its_own() -> None:
    transitions = Transitions(PolicyHost(), "bookie_disks")
    groups = BookieRacks(cluster=CLUSTER, outcome=Outcome.OK, groups={})
    shared = transitions.take(1, transitions.reading(groups, appended=1, topic="observed.bookies"))
    assert told(shared, "decided.standing") == []
    disks = BookieDisks(cluster=CLUSTER, outcome=Outcome.OK, bookie="bk1:3181")
    own = transitions.take(2, transitions.reading(disks, appended=2, topic=observed_topic(BookieDisks)))
    assert len(told(own, "decided.standing")) == 1


# --- One reading that a policy cannot take, or that exceeds its bounds, takes no other reading with it.


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


def step(observations: Sequence[Observation]) -> tuple[StepResult, Mapping[int, BadRecordError]]:
    """The result, and the readings that are refused."""
    return step_apart(PolicyHost(HOST.settings, HOST.clusters), KEY, None, observations, at(60))


@given(bad=st.sets(st.integers(0, 39), max_size=5))
def test_all_others_are_taken_wherever_the_culprits_lie(bad: set[int]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_choosy(monkeypatch)
        seen = [log_dirs(place, 1000 + place if place in bad else place, 9 * GB) for place in range(40)]
        result, refused = step(seen)
    assert set(refused) == bad
    state = STATE_CACHE.decode(POLICIES["throttle"], CLUSTER, decode(encode(result.key_state)))
    assert [broker.name for broker in state.cluster.brokers] == sorted(set(range(40)) - bad)
    assert result.failure is None
    assert all(error.reason == "policy-failed" for error in refused.values())
    alerts = [(each.alert, each.status) for each in result.step.decisions if isinstance(each, Alert)]
    assert ("policy-failed", "firing") in alerts or not bad


@pytest.mark.usefixtures("choosy")
def test_the_steps_are_bounded_however_many_culprits_there_are() -> None:
    _, refused = step([log_dirs(place, 1000 * (place % 2) + place, 9 * GB) for place in range(2000)])
    assert Choosy.steps < transition.MOST_STEPS + 20
    assert set(range(1, 2000, 2)) <= set(refused)


@pytest.mark.usefixtures("choosy")
def test_a_policy_that_fails_without_them_too_is_not_blamed_on_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Choosy, "is_broken", True)
    result, refused = step([log_dirs(place, place, 9 * GB) for place in range(100)])
    assert Choosy.steps == 2
    assert result.failure is not None
    assert len(refused) == 100


@pytest.mark.usefixtures("choosy")
def test_the_culprit_is_a_dead_letter_and_the_alert_ends_ten_minutes_after_the_last_one() -> None:
    transitions = Transitions(HOST)
    good, bad = log_dirs(0, 1, GB // 2), log_dirs(0, 1000, 9 * GB)
    operator = transitions.take(1, transitions.record(bad, appended=0), transitions.record(good, appended=0))
    assert reasons(operator) == ["policy-failed"]
    assert verdicts(operator) == ["lower"]
    (alert,) = (each for each in told(operator, "decided.alerts") if each["alert"] == "policy-failed")
    assert "in the dead letters: OverflowError at test_transition.py" in alert["summary"]
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
    monkeypatch.setattr(volumes, "MOST_TOGETHER", 50)
    transitions = Transitions(HOST)
    operator = transitions.take(2, *flood(transitions, 8, 10))
    assert set(reasons(operator)) == {"too-many"}
    assert {letter["detail"] for letter in letters(operator)} == {"more than 50 servers and volumes of one cluster"}
    raised = [each["alert"] for each in told(operator, "decided.alerts")]
    assert raised.count("readings-refused") == 1
    again = transitions.take(3, *flood(transitions, 8, 10))
    assert "readings-refused" not in [each["alert"] for each in told(again, "decided.alerts")]


def test_a_state_or_output_beyond_its_bytes_refuses_the_reading_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("MOST_STATE_BYTES", "MOST_OUTPUT_BYTES"):
        with monkeypatch.context() as patched:
            patched.setattr(host, bound, 30_000)
            transitions = Transitions(HOST)
            low = {f"/data/{number:0200}": GB // 2 for number in range(400)}
            huge = transitions.record(log_dirs(1, 7, low), appended=1)
            operator = transitions.take(2, transitions.record(log_dirs(1, 1, GB // 2), appended=1), huge)
        assert reasons(operator) == ["policy-failed"], bound
        assert sum(len(output.value) for output in operator.outputs) < 100_000
        assert verdicts(operator) == ["lower"], bound


# --- A paused policy goes on deciding in shadow mode, its alerts wait, and what is outstanding is said once at the end.


FULL, FREE = GB // 2, 50 * GB
COMMANDS = "commands"


def limited(**more: Any) -> PolicyHost:
    return PolicyHost({"throttle": throttle(HARD, min_hold="0s", **more)}, frozenset({CLUSTER}))


def paused(until: float | None, policy: str = "throttle") -> PauseCommand:
    end = None if until is None else at(until)
    return PauseCommand(cluster=CLUSTER, policy=policy, until=end, actor="alice", reason="upgrade")


def observe(transitions: Transitions, seconds: float, free: int, *commands: PauseCommand) -> KeyTransition:
    records = [transitions.record(log_dirs(seconds, 1, free), appended=seconds)]
    records += [transitions.reading(command, appended=seconds, topic=COMMANDS) for command in commands]
    return transitions.take(seconds, *records)


def factors(transition: KeyTransition) -> list[tuple[float, str]]:
    return [(d["factor"], d["mode"]) for d in told(transition, "decided.throttle")]


def alert_states(transition: KeyTransition) -> list[tuple[str, str]]:
    return [(a["alert"], a["status"]) for a in told(transition, "decided.alerts")]


def test_while_paused_it_decides_in_shadow_mode_and_at_the_end_what_is_outstanding_is_said_once() -> None:
    transitions = Transitions(limited())
    assert factors(observe(transitions, 0, FREE)) == [(1.0, "active")]
    transition = observe(transitions, 1, FREE, paused(until=100))
    assert factors(transition) == [(1.0, "shadow")]
    (standing,) = told(transition, "decided.standing")
    assert (standing["reason"], standing["quiet_until"]) == ("only-watched", "2026-11-21T08:01:40.000Z")
    assert "until 2026-11-21 08:01:40 UTC (paused by alice: upgrade)" in standing["explanation"]

    transition = observe(transitions, 10, FULL)
    assert (factors(transition), alert_states(transition)) == ([(0.0, "shadow")], [])
    assert transition.wake_ms is not None
    end = transitions.take(100)
    assert factors(end) == [(0.0, "active")]
    assert alert_states(end) == [("volume-below-hard-limit", "firing")]
    assert told(end, "decided.standing")[0]["reason"] == "watched"
    again = transitions.take(101)
    assert (factors(again), alert_states(again)) == ([], [])


@for_each("keep", [True, False])
def test_its_decisions_say_whether_what_is_set_stays(keep: bool) -> None:
    transitions = Transitions(limited())
    assert "frozen_until" not in told(observe(transitions, 0, FULL), "decided.throttle")[0]
    transition = observe(transitions, 1, FULL, paused(until=100).model_copy(update={"keep": keep}))
    (decision,), (standing,) = told(transition, "decided.throttle"), told(transition, "decided.standing")
    assert decision.get("frozen_until") == ("2026-11-21T08:01:40.000Z" if keep else None)
    assert ("what is set stays" if keep else "nothing is carried out") in decision["explanation"]
    assert (standing["paused_by"], standing["pause_reason"], standing["pause_keeps"]) == ("alice", "upgrade", keep)
    other = observe(transitions, 2, FULL, paused(until=100).model_copy(update={"keep": not keep}))
    assert len(told(other, "decided.throttle")) == 1, "a change of mind is published at once"


def test_a_policy_in_shadow_mode_has_set_nothing_that_a_pause_could_keep() -> None:
    transitions = Transitions(limited(mode="shadow"))
    observe(transitions, 0, FULL)
    again = observe(transitions, 1, FREE, paused(until=100))
    (decision,) = told(again, "decided.throttle") or told(observe(transitions, 40, FREE), "decided.throttle")
    assert (decision["mode"], decision.get("frozen_until")) == ("shadow", None)


def test_the_query_is_woken_at_the_end_of_a_pause() -> None:
    transitions = Transitions(limited(heartbeat="1h"))
    observe(transitions, 0, FREE)
    transition = observe(transitions, 1, FREE, paused(until=31.5))
    assert transition.wake_ms == int(at(31.5).timestamp() * 1000)


def test_resume_ends_it_at_once() -> None:
    transitions = Transitions(limited())
    observe(transitions, 0, FULL)
    observe(transitions, 1, FULL, paused(until=1000))
    assert factors(observe(transitions, 2, FULL, paused(until=None))) == [(0.0, "active")]


def test_an_alert_that_ended_meanwhile_is_resolved_once_at_the_end() -> None:
    transitions = Transitions(limited())
    assert alert_states(observe(transitions, 0, FULL)) == [("volume-below-hard-limit", "firing")]
    observe(transitions, 1, FULL, paused(until=50))
    assert alert_states(observe(transitions, 10, FREE)) == []
    assert alert_states(observe(transitions, 50, FREE)) == [("volume-below-hard-limit", "resolved")]
    assert alert_states(observe(transitions, 51, FREE)) == []


def test_a_pause_of_what_was_never_read_is_kept_for_its_first_reading() -> None:
    transitions = Transitions(limited())
    transition = transitions.take(0, transitions.reading(paused(until=100), appended=0, topic=COMMANDS))
    assert transition.outputs == ()
    assert factors(observe(transitions, 1, FULL)) == [(0.0, "shadow")]


@for_each(
    ("policy", "detail"),
    [
        ("no-such", f"data.policy: 'no-such' is no policy: {', '.join(sorted(POLICIES))} are"),
        ("switching", "data.policy: policy switching is paused by `headgate switch pause`"),
    ],
)
def test_a_command_that_no_policy_takes_is_a_dead_letter(policy: str, detail: str) -> None:
    transitions = Transitions(limited(), policy="switching")
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
    decided = list(Replay(limited(heartbeat="1h")).run(records, until=at(0) + timedelta(minutes=2)))
    said = [(d.decided_at - at(0), d.event_type.split(".")[1], d.verdict, d.mode.value) for d in decided]
    assert [(seconds.total_seconds(), *rest) for seconds, *rest in said] == [
        (0.0, "throttle-factor", "initial", "active"),
        (0.5, "throttle-factor", "no_change", "active"),
        (1.0, "throttle-factor", "no_change", "shadow"),
        (10.0, "throttle-factor", "lower", "shadow"),
        (100.0, "throttle-factor", "no_change", "active"),
        (100.0, "alert", "firing", "active"),
    ]


# --- A key whose state was lost goes on with the alerts that its readings confirm, and resolves the others.


CONFIRM = CONFIRM_MS / 1000


def fresh(**more: Any) -> Transitions:
    return Transitions(limited(**more))


def read(key: Transitions, seconds: float, **free_bytes: int) -> KeyTransition:
    """Take a reading of some brokers: `b3=FULL`."""
    readings = (log_dirs(seconds, int(name[1:]), free) for name, free in free_bytes.items())
    return key.take(seconds, *(key.record(each, appended=seconds) for each in readings))


def alerts(transition: KeyTransition) -> list[Alert]:
    return [Alert.model_validate(each) for each in told(transition, "decided.alerts")]


def alert_lives(transition: KeyTransition) -> list[tuple[str, str, str]]:
    return [(each.subject, each.status, each.alert_id) for each in alerts(transition)]


def lost(key: Transitions, seconds: float, *fired: KeyTransition) -> Transitions:
    """A key without the state of this one, which has learnt which alerts fire."""
    return learn(Transitions(key.host), seconds, *(alert for each in fired for alert in alerts(each)))


def learn(key: Transitions, seconds: float, *fired: Alert) -> Transitions:
    """The key has learnt that these alerts fire, and says nothing yet."""
    command = OpenAlerts.build("throttle", CLUSTER, fired)
    assert key.take(seconds, key.reading(command, appended=seconds, topic=COMMANDS)).outputs == ()
    return key


@pytest.mark.parametrize("grace", ["0s", "20s"])
def test_of_two_alerts_whose_state_was_lost_one_goes_on_under_its_id_and_the_other_is_resolved_once(grace: str) -> None:
    key = fresh(alert_grace=grace)
    read(key, 0, b3=FULL, b4=FULL)
    fired = read(key, 20, b3=FULL, b4=FULL) if grace != "0s" else read(fresh(), 0, b3=FULL, b4=FULL)
    ids = {subject: alert_id for subject, _, alert_id in alert_lives(fired)}
    after = lost(key, 3600, fired)
    of_first = alert_lives(read(after, 3601, b3=FULL, b4=FREE))
    assert of_first == [], "the one that holds was published; of the other, another reading may still come"
    assert after.key_state.wake_ms is not None
    ended = alert_lives(read(after, 3601 + CONFIRM, b3=FULL, b4=FREE))
    resolved = [subject for subject, status, _ in ended if status == "resolved"]
    assert [subject for subject in ids if "/4/" in subject] == resolved
    assert all(ids[subject] == alert_id for subject, _, alert_id in ended)
    assert "resolved" not in {status for _, status, _ in alert_lives(read(after, 3700, b3=FULL, b4=FREE))}
    assert {status for _, status, _ in alert_lives(read(after, 3800, b3=FREE, b4=FREE))} == {"resolved"}


def test_no_alert_ends_because_its_broker_is_read_a_little_later() -> None:
    fired = read(key := fresh(), 0, b3=FULL, b4=FULL)
    after = lost(key, 3600, fired)
    then = (read(after, 3601, b3=FULL), read(after, 3610, b4=FULL), after.take(3700))
    told_then = [each for transition in then for each in alert_lives(transition)]
    assert "resolved" not in {status for _, status, _ in told_then}
    assert {alert_id for *_, alert_id in told_then} <= {alert_id for *_, alert_id in alert_lives(fired)}


def test_without_a_reading_nothing_is_resolved() -> None:
    after = lost(key := fresh(), 3600, read(key, 0, b3=FULL))
    assert alerts(after.take(9000)) == []


def test_the_last_list_counts_so_what_an_earlier_loss_left_behind_is_not_resolved_again() -> None:
    fired = read(key := fresh(), 0, b3=FULL)
    after = lost(key, 3600, fired)
    learn(after, 3601)
    read(after, 3602, b3=FREE)
    assert alerts(read(after, 3700, b3=FREE)) == []


def test_an_alert_about_the_policy_itself_ends_too() -> None:
    key = fresh()
    fired = alerts(read(key, 0, b3=FULL))[0]
    own = fired.model_copy(update={"alert": POLICY_FAILED, "subject": CLUSTER})
    after = learn(Transitions(key.host), 3600, own)
    read(after, 3601, b3=FREE)
    ended = alerts(read(after, 3700, b3=FREE))
    assert [(each.alert, each.status) for each in ended] == [(POLICY_FAILED, "resolved")]
