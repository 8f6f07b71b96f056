"""The stored state of a key: smaller than its msgpack, the same when it is read, and decoded once."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.alerts import AlertBook, AlertEntry
from policies.book import Book
from policies.decisions import Fence
from policies.pauses import PauseCommand
from policies.registry import POLICIES
from policies.switching.registration import limit_instants
from policies.switching.state import Directive, OrchestratorLease, Switch, SwitchingState, SwitchStage
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.policy import ThrottlePolicy
from policies.units import to_millis
from policies.wire import ObservedRecord
from streaming.host import PolicyHost
from streaming.key_state import (
    CLOCK_JUMP_MS,
    FARTHEST_MS,
    INTERVAL_MS,
    NEVER_STEPPED,
    LastHeartbeat,
    Order,
    begin_again,
    decode,
    decode_policy_state,
    encode,
)
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, log_dirs, throttle
from tests.streaming.records import event
from tests.streaming.transitions import Transitions, reasons, told


@given(st.binary(), st.integers(1, 3000))
def test_a_state_is_decoded_as_it_was_encoded_and_gets_no_larger(content: bytes, times: int) -> None:
    state = msgspec.structs.replace(NEVER_STEPPED, state=msgspec.Raw(msgspec.msgpack.encode(content * times)))
    for each in (NEVER_STEPPED, state):
        assert decode(encode(each)) == each
        assert len(encode(each)) <= len(msgspec.msgpack.encode(each))
    if len(content) * times > 100 * (len(content) + 20):
        assert len(encode(state)) < len(content) * times / 10


# --- When an observation counts from: the order of offsets holds, whatever a clock says.


NOW = 1_800_000_000_000
DAY_MS = 86_400_000


def record(offset: int, appended_ms: int, partition: int = 0) -> ObservedRecord:
    return ObservedRecord("t", partition, offset, appended_ms, b"")


TIMES = {
    "true": ([-3000, -2000, -1000], [-3000, -2000, -1000]),
    "ties": ([-3000, -3000, -3000], [-3000, -2999, -2998]),
    "a little back": ([-1000, -2000, 0], [-1000, -999, 0]),
    "a day back": ([-1000, -1000 - DAY_MS, -DAY_MS, -500], [-1000, 0, 1, 2]),
    "a day of silence": ([-DAY_MS, -1000], [-DAY_MS, -1000]),
    "ahead": ([CLOCK_JUMP_MS, -1000, 0], [1000, 1001, 1002]),
    "five minutes back": ([0, -CLOCK_JUMP_MS], [0, 1]),
    "more": ([-1, -CLOCK_JUMP_MS - 2], [-1, 0]),
    "no more": ([-9, -CLOCK_JUMP_MS - 9], [-9, -8]),
}


@for_each(("appended", "expected"), TIMES.values(), ids=TIMES)
def test_times_grow_with_offsets(appended: list[int], expected: list[int]) -> None:
    order = Order((), NOW)
    assert [order.effective_ms(record(n, NOW + ms)) - NOW for n, ms in enumerate(appended)] == expected


@given(st.lists(st.integers(-2 * DAY_MS, CLOCK_JUMP_MS), max_size=40), st.integers(1, 39))
def test_no_record_counts_from_before_an_earlier_offset_wherever_batches_are_cut(appended: list[int], cut: int) -> None:
    order, found = Order((), NOW), []
    for offset, ms in enumerate(appended):
        if offset == cut:
            order = Order(order.positions(), NOW)
        found.append(order.effective_ms(record(offset, NOW + ms)))
    assert all(before < after for before, after in pairwise(found))
    assert all(at <= NOW + FARTHEST_MS for at in found)


def test_records_that_are_read_again_count_from_when_they_did() -> None:
    order = Order((), NOW)
    first = [order.effective_ms(record(n, NOW - 1_000_000 + n)) for n in range(10)]
    again = Order(order.positions(), NOW + 5000)
    assert [again.effective_ms(record(n, NOW - 1_000_000 + n)) for n in range(10)] == first


def test_partitions_have_clocks_of_their_own() -> None:
    order = Order((), NOW)
    order.effective_ms(record(5, NOW, partition=0))
    assert order.effective_ms(record(6, NOW - 1000, partition=1)) == NOW - 1000


@for_each("ahead_ms", [0, CLOCK_JUMP_MS, CLOCK_JUMP_MS + 1, DAY_MS])
def test_a_record_of_a_broker_whose_clock_is_ahead_counts_from_its_batch(ahead_ms: int) -> None:
    assert NOW <= Order((), NOW).effective_ms(record(0, NOW + ahead_ms)) <= NOW + 1000


def test_what_is_kept_of_places_is_bounded() -> None:
    order = Order((), NOW)
    for partition in range(1000):
        order.effective_ms(record(0, NOW + partition, partition=partition))
    assert len(order.positions()) == 64
    assert order.positions()[-1].partition == 999


# --- That a policy watches a cluster is said once a minute, and by nothing but the query that does.


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


# --- After the clock was set back a key begins again with its next reading; alerts, pause and a switch stay.


DAY = 86_400.0
NOW_MS = to_millis(at(0))


def key(**settings: object) -> Transitions:
    return Transitions(PolicyHost({"throttle": throttle(SOFT_AND_HARD, **settings)}, frozenset({CLUSTER})))


def read(transitions: Transitions, free_gb: float, driver: float, kafka: float) -> list[dict[str, object]]:
    """A reading in a batch, by the driver's clock, that Kafka appended by its own: the decisions."""
    observation = replace(log_dirs(kafka, 3, round(free_gb * GB)), id=f"{driver}/{kafka}")
    return told(transitions.take(driver, transitions.record(observation, appended=kafka)), "decided.throttle")


@pytest.mark.parametrize("ahead", [400.0, 3600.0, DAY, 365 * DAY])
def test_after_the_clock_was_set_back_the_next_reading_decides_and_every_consumer_follows(ahead: float) -> None:
    transitions, fence = key(), Fence[str]()
    course = [(ahead, 0.5), (ahead + 1, 0.5), (1.0, 4), (90.0, 50)]
    decided = [(now, data) for now, free in course for data in read(transitions, free, now, now)]
    assert [data["factor"] for _, data in decided] == [0.0, 0.75, 1.0]
    for now, data in decided:
        assert fence.passes("payments", ThrottleFactor.model_validate(data), at(now))


@pytest.mark.parametrize("back", [1.0, 299.0, 300.0])
def test_a_clock_that_is_set_back_a_little_takes_nothing_along(back: float) -> None:
    transitions = key()
    read(transitions, 4, 1000, 1000)
    before = transitions.key_state
    (data,) = read(transitions, 2, 1000 - back, 1001)
    assert data["decided_at"] == "2026-11-21T08:16:40.000Z"
    assert transitions.key_state.now_ms == before.now_ms


@for_each(
    ("appended", "begins_again"),
    [(None, False), (399.999, True), (400.0, False)],
    ids=["five minutes are no jump", "Kafka's clock is further back, too", "Kafka's clock says otherwise"],
)
def test_it_begins_again_after_a_jump_that_no_record_contradicts(appended: float | None, begins_again: bool) -> None:
    transitions = key()
    read(transitions, 4, 700, 700)
    if appended is None:
        transitions.take(400)
    else:
        transitions.take(399, transitions.record(b"garbage", appended=appended))
    assert (transitions.key_state.state_version == 0) is begins_again


def test_while_the_drivers_clock_is_behind_kafkas_time_stands_still_and_no_state_is_lost() -> None:
    transitions = key(min_hold="30s")
    (first,) = read(transitions, 4, 1000, 1000)
    (second,) = read(transitions, 2, 1000 - DAY, 1010)
    assert second["sequence"] == first["sequence"] + 1  # type: ignore[operator]
    assert second["decided_at"] == first["decided_at"]


def test_an_alert_that_fires_keeps_its_id_and_a_pause_its_end() -> None:
    transitions = key()
    full = transitions.record(log_dirs(DAY, 3, GB // 2), appended=DAY)
    (fired,) = [each for each in told(transitions.take(DAY, full), "decided.alerts") if "hard" in each["alert"]]
    pause = PauseCommand(cluster="payments", policy="throttle", until=at(9 * DAY), actor="a", reason="b")
    transitions.take(DAY + 1, transitions.reading(pause, appended=DAY + 1, topic="commands"))
    transitions.take(10, transitions.record(log_dirs(10, 3, GB // 2), appended=10))
    assert transitions.key_state.pause is not None
    assert transitions.key_state.pause.until_ms == to_millis(at(9 * DAY))
    transitions.take(11, transitions.reading(pause.model_copy(update={"until": None}), appended=11, topic="commands"))
    roomy = transitions.take(20, transitions.record(log_dirs(20, 3, 90 * GB), appended=20))
    ended = [each for each in told(roomy, "decided.alerts") if each["alert_id"] == fired["alert_id"]]
    later = transitions.take(2000, transitions.record(log_dirs(2000, 3, 90 * GB), appended=2000))
    ended += [each for each in told(later, "decided.alerts") if each["alert_id"] == fired["alert_id"]]
    assert "resolved" in [each["status"] for each in ended]


def test_a_heartbeat_follows_at_once_with_the_next_number() -> None:
    transitions = key()
    taken = transitions.take(DAY, transitions.record(log_dirs(DAY, 3, 9 * GB), appended=DAY))
    (before,) = told(taken, "decided.standing")
    (after,) = told(transitions.take(10, transitions.record(log_dirs(10, 3, 9 * GB), appended=10)), "decided.standing")
    assert after["sequence"] == before["sequence"] + 1


def test_a_switch_stays_whole_and_waits_for_nothing_that_happened_later_than_now() -> None:
    ahead_ms = NOW_MS + DAY_MS
    switch = Switch(
        source="old", target="new", stage=SwitchStage.HOLD, epoch=2, started_ms=NOW_MS - 5, target_floor=9,
        live_ms=ahead_ms, hold_ms=ahead_ms, stage_ms=ahead_ms,
        rollback_until_ms=ahead_ms + 5, cleanup_from_ms=ahead_ms + 9,
    )  # fmt: skip
    entry = AlertEntry("a", "s", "warning", "r", "t", {}, ahead_ms, ahead_ms, repeat_at_ms=ahead_ms + 9)
    state = SwitchingState(
        epoch=2, directive=Directive(2, "new"), switch=switch, lease=OrchestratorLease(7, "me", ahead_ms + 30),
        sequence=ahead_ms, directed_ms=ahead_ms, registry_ms=NOW_MS - 9,
    )  # fmt: skip
    kind = POLICIES["switching"]
    before = msgspec.structs.replace(
        NEVER_STEPPED, state_version=kind.state_version, now_ms=ahead_ms,
        state=msgspec.Raw(msgspec.msgpack.encode(state)), book=Book(alerts=AlertBook((entry,), ahead_ms)),
    )  # fmt: skip
    begun = begin_again(kind, before, NOW_MS)
    after = decode_policy_state(kind, begun)
    limited = msgspec.structs.replace(switch, live_ms=NOW_MS, hold_ms=NOW_MS, stage_ms=NOW_MS)
    lease = OrchestratorLease(7, "me", NOW_MS)
    expected = msgspec.structs.replace(state, switch=limited, lease=lease, directed_ms=NOW_MS)
    assert after == expected
    own = msgspec.structs.replace(entry, said_ms=NOW_MS, repeat_at_ms=None)
    assert begun.book == Book(alerts=AlertBook((own,), ahead_ms))
    assert limit_instants(expected, NOW_MS + 1) == expected


def test_every_other_policy_begins_again() -> None:
    assert [name for name, kind in POLICIES.items() if kind.limit_instants is not None] == ["switching"]


@pytest.mark.parametrize("ahead", [3600, DAY])
def test_a_broker_whose_clock_is_ahead_delays_no_decision(ahead: float) -> None:
    """The leader of the partition stamps its records; the next leader's clock is right."""
    transitions = key()
    course = [(0, 50 * GB, ahead, 1.0), (40, GB // 2, ahead + 40, 0.0), (80, 50 * GB, ahead + 80, 1.0)]
    for at_seconds, free, appended, factor in [*course, (120, GB // 2, 120, 0.0)]:
        taken = transitions.take(at_seconds, transitions.record(log_dirs(at_seconds, 3, free), appended=appended))
        assert reasons(taken) == []
        assert [data["factor"] for data in told(taken, "decided.throttle")] == [factor]


@given(st.permutations(range(6)), st.lists(st.integers(1, 90), min_size=6, max_size=6), st.floats(1, 60))
def test_of_readings_after_a_clock_was_set_back_the_last_counts(ids: list[int], free: list[int], gap: float) -> None:
    """Whatever their ids, by which readings of one moment are told apart."""
    transitions = key(validity="1h")
    transitions.take(DAY, transitions.record(log_dirs(0, 3, 50 * GB), appended=DAY))
    last = [
        transitions.record(event(replace(log_dirs(0, 3, gb * GB), id=f"{id_}")), appended=gap - 0.1 * (6 - n))
        for n, (id_, gb) in enumerate(zip(ids, free, strict=True))
    ]
    transitions.take(gap, *last)
    assert read_bytes(transitions) == free[-1] * GB


def read_bytes(transitions: Transitions) -> int:
    state = decode_policy_state(POLICIES["throttle"], transitions.key_state)
    return int(state.cluster.brokers[0].volumes[0].usable_bytes)


@pytest.mark.parametrize("ahead", [1.0, 30.0, 299.0])
def test_one_that_is_stamped_a_little_ahead_is_overruled_by_the_next(ahead: float) -> None:
    transitions = key()
    transitions.take(0, transitions.record(log_dirs(0, 3, 50 * GB), appended=ahead))
    truth = transitions.take(1, transitions.record(log_dirs(1, 3, GB // 2), appended=1))
    assert [data["factor"] for data in told(truth, "decided.throttle")] == [0.0]
