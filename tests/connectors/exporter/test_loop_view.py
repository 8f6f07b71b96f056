"""The picture of the loop in virtual time: which series there are, what they say, and when they vanish."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.exporter.loop_view import LoopView
from connectors.kafka.tail import Record
from policies.decisions import Alert
from policies.observations import Outcome, ReportResult
from policies.policy import LOOP
from policies.registry import POLICIES, observed_topics
from policies.throttle import LogDirs, ThrottleSettings
from policies.throttle.decisions import ThrottleFactor
from policies.units import to_millis
from policies.wire import DEAD_LETTER_TYPE, LETTERS_COUNTED_TYPE, DeadLetterReason
from streaming.dead_letters import DeadLettersCounted, make_letter
from tests.cases import for_each
from tests.connectors.exporter.loop import (
    ALERTS,
    DEAD_LETTERS,
    DECIDED,
    OBSERVED,
    PREFIX,
    START,
    Loop,
    decided,
    log_dirs,
    members,
    observed,
    paused,
    quota,
    reported,
    series,
    standing,
)
from tests.policies.virtual_run import NEVER_STEPPED

VALIDITY_SECONDS = 300
HEARTBEAT_SECONDS = 60


def event(kind: str, **data: Any) -> bytes:
    return json.dumps({"specversion": "1.0", "id": "1", "source": "query", "type": kind, "data": data}).encode()


def dead_letter(reason: str = "malformed", value_bytes: int = 5_000_000) -> Record:
    letter = event(DEAD_LETTER_TYPE, topic=OBSERVED, reason=reason, value_base64="x" * value_bytes)
    return Record(DEAD_LETTERS, None, letter, 0)


def test_nothing_is_said_of_a_loop_that_has_said_nothing() -> None:
    view = LoopView(PREFIX, {})
    names = {metric.name for metric in view.metrics(to_millis(START))}
    assert names == {"headgate_dead_letters"}
    assert list(view.process_samples()) == []


def test_a_decision_gives_the_factors_and_how_many_count() -> None:
    loop = Loop()
    loop.step(members(1, 2), log_dirs(300), log_dirs({"/a": 900, "/b": 800}, broker=2))
    assert loop.series("headgate_throttle_factor") == {("payments",): 0.5}
    assert loop.series("headgate_throttle_raw_factor") == {("payments",): 0.5}
    assert loop.series("headgate_throttling_volume") == {("payments", "1", "/a", "soft_limit"): 1}
    states = ("counted", "stale", "departed")
    log_dir_states = (*states, "never_read")
    assert loop.series("headgate_log_dirs") == {("payments", s): 3 if s == "counted" else 0 for s in log_dir_states}
    assert loop.series("headgate_kafka_brokers") == dict(zip((("payments", s) for s in states), (2, 0, 0), strict=True))
    assert loop.series("headgate_decision_stale") == {("throttle", "payments"): 0}


def test_a_reading_gives_the_volumes_before_there_is_any_decision() -> None:
    view = LoopView(PREFIX, {})
    view.fold([observed(log_dirs(300), START, id="o1")], live=True)
    labels = ("payments", "1", "/a")
    now = START + timedelta(seconds=7)
    assert series(view, "headgate_volume_usable_bytes", now) == {labels: 300}
    assert series(view, "headgate_volume_used_bytes", now) == {labels: 700}
    assert series(view, "headgate_volume_total_bytes", now) == {labels: 1000}
    assert series(view, "headgate_volume_limit_bytes", now) == {}
    assert series(view, "headgate_observation_age_seconds", now) == {("payments",): 7}
    assert series(view, "headgate_throttle", now) == series(view, "headgate_decision", now) == {}
    assert series(view, "headgate_kafka_brokers", now) == series(view, "headgate_log_dirs", now) == {}


def test_each_volume_has_the_limits_of_its_size() -> None:
    settings = ThrottleSettings.model_validate(
        {"hard": {"available_bytes_below": 50}, "soft": {"available_ratio_below": 0.3}}
    )
    view = LoopView(PREFIX, {"throttle": settings})
    view.fold([observed(log_dirs({"/a": 300, "/b": 900}), START, id="o1")], live=True)
    each = {("payments", "1", log_dir, limit): free for log_dir in ("/a", "/b") for limit, free in LIMITS_OF_1000}
    assert series(view, "headgate_volume_limit_bytes", START) == each


LIMITS_OF_1000 = (("soft", 300), ("hard", 50))


def test_the_way_to_full_is_the_policys_and_grows_shorter_between_readings() -> None:
    loop = Loop()
    for free in (910, 900, 890, 880):
        loop.step(log_dirs(free), after=10)
    assert loop.series("headgate_volume_seconds_to_full") == {("payments", "1", "/a"): 880}
    assert loop.series("headgate_volume_seconds_to_full", after=60) == {("payments", "1", "/a"): 820}
    assert loop.series("headgate_volume_seconds_to_full", after=VALIDITY_SECONDS) == {}


def test_a_failed_attempt_keeps_the_volumes_and_counts_as_an_observation() -> None:
    loop = Loop()
    loop.step(members(1), log_dirs(900))
    loop.step(LogDirs(cluster="payments", broker=1, outcome=Outcome.TIMEOUT), after=40)
    assert loop.series("headgate_volume_usable_bytes", after=2) == {("payments", "1", "/a"): 900}
    assert loop.series("headgate_observation_age_seconds", after=2) == {("payments",): 2}


def test_a_volume_that_cannot_be_read_keeps_its_last_bytes_and_a_removed_one_vanishes() -> None:
    loop = Loop()
    loop.step(log_dirs({"/a": 900, "/b": 800}))
    assert loop.series("headgate_observation_age_seconds", after=-3) == {("payments",): 0}, "a clock behind Kafka's"
    loop.step(log_dirs({"/a": -1, "/b": 800}), after=10)
    found = loop.series("headgate_volume_usable_bytes")
    assert found == {("payments", "1", "/a"): 900, ("payments", "1", "/b"): 800}
    loop.step(log_dirs({"/a": 900}), after=10)
    assert loop.series("headgate_volume_usable_bytes") == {("payments", "1", "/a"): 900}


def test_a_volume_that_no_longer_limits_is_no_longer_shown_as_limiting() -> None:
    loop = Loop(min_hold="0s")
    loop.step(log_dirs(50))
    assert loop.series("headgate_throttling_volume") == {("payments", "1", "/a", "hard_limit"): 1}
    loop.step(log_dirs(105), after=10)
    assert loop.series("headgate_throttling_volume") == {("payments", "1", "/a", "recovery_margin"): 1}
    loop.step(log_dirs(900), after=10)
    assert loop.series("headgate_throttling_volume") == {}


@for_each(
    ("settings", "factor"),
    [
        ({"fallback_factor": 0.25, "expired_action": "hold"}, 0.0),
        ({"fallback_factor": 0.25, "expired_action": "fallback"}, 0.25),
        ({"fallback_factor": 0.1, "hard": None, "soft": None}, 1.0),
    ],
)
def test_a_dead_loop_opens_no_gate_and_shows_nothing_it_no_longer_knows(settings: Any, factor: float) -> None:
    loop = Loop(clusters={"pay*": settings})
    loop.step(members(1), log_dirs(50))
    alive, dead = 3 * HEARTBEAT_SECONDS - 1, 3 * HEARTBEAT_SECONDS
    assert loop.series("headgate_decision_stale", after=alive) == {("throttle", "payments"): 0}
    assert loop.series("headgate_decision_stale", after=dead) == {("throttle", "payments"): 1}
    assert loop.series("headgate_throttle_factor", after=dead) == {("payments",): factor}
    for name in ("throttle_raw_factor", "throttling_volume", "kafka_brokers", "log_dirs"):
        assert loop.series(f"headgate_{name}", after=dead) == {}
    assert loop.series("headgate_volume_usable_bytes", after=dead) == {("payments", "1", "/a"): 50}


def test_the_fallback_is_counted_once_each_time_it_begins() -> None:
    loop = Loop()

    def count() -> float:
        counts = loop.series("headgate_throttle_fallback_total")
        assert {reason for (_, reason), times in counts.items() if times} <= {"stale_volume"}
        return sum(counts.values())

    loop.step(members(1), log_dirs(900))
    assert count() == 0
    for _ in range(10):
        loop.step(after=HEARTBEAT_SECONDS)
    assert loop.decisions[-1].reason == "stale_volume"
    assert count() == 1
    loop.step(log_dirs(900), after=10)
    assert count() == 1
    loop.step(after=VALIDITY_SECONDS)
    assert count() == 2


# From one free space to the next, the hard limit at 100 and the soft one at 500, its margin at 110.
@for_each(
    ("free", "hard", "soft"),
    [
        pytest.param([900, 300], 0, 1, id="to the soft limit"),
        pytest.param([900, 300, 250, 200], 0, 1, id="deeper below the soft limit"),
        pytest.param([900, 300, 50], 1, 1, id="on to the hard limit"),
        pytest.param([900, 50], 1, 0, id="straight to the hard limit"),
        pytest.param([900, 50, 300, 900], 1, 0, id="coming back is none"),
        pytest.param([900, 50, 105, 50, 105, 50], 1, 0, id="swinging within the margin is none"),
        pytest.param([900, 50, 300, 50], 2, 0, id="falling again after recovery"),
        pytest.param([900, 300, 900, 300], 0, 2, id="the soft limit again"),
        pytest.param([50], 1, 0, id="at the first decision"),
    ],
)
def test_a_limit_is_counted_each_time_the_cluster_comes_to_it(free: list[int], hard: int, soft: int) -> None:
    loop = Loop(min_hold="0s", min_change=0.0)
    for usable_bytes in free:
        loop.step(log_dirs(usable_bytes), after=10)
    counts = loop.series("headgate_throttle_limit_violations_total")
    assert counts == {("payments", "hard"): hard, ("payments", "soft"): soft}


def test_silence_between_counts_no_limit_twice_and_a_fallback_is_no_violation() -> None:
    loop = Loop(fallback_factor=0.0)
    loop.step(members(1), log_dirs(900))
    loop.step(after=VALIDITY_SECONDS)
    assert loop.series("headgate_throttling_volume") == {("payments", "1", "/a", "stale_volume"): 1}
    assert set(loop.series("headgate_throttle_limit_violations_total").values()) == {0}
    loop.step(log_dirs(50), after=1)
    loop.step(after=VALIDITY_SECONDS)
    loop.step(log_dirs(50), after=1)
    reasons = [decision.reason for decision in loop.decisions if isinstance(decision, ThrottleFactor)][1:]
    assert reasons == ["stale_volume", "hard_limit", "stale_volume", "hard_limit"]
    assert loop.series("headgate_throttle_limit_violations_total")[("payments", "hard")] == 1


def test_history_counts_nothing_but_tells_repeats_from_beginnings() -> None:
    loop = Loop()
    loop.step(members(1), log_dirs(50), live=False)
    loop.step(log_dirs(50), after=HEARTBEAT_SECONDS)
    assert set(loop.series("headgate_throttle_limit_violations_total").values()) == {0}
    loop.step(after=VALIDITY_SECONDS, live=False)
    loop.step(after=HEARTBEAT_SECONDS)
    assert set(loop.series("headgate_throttle_fallback_total").values()) == {0}


def test_new_decisions_are_handed_on_in_order_alerts_among_them() -> None:
    loop = Loop()
    handed = loop.step(log_dirs(50))
    assert [decision.event_type for decision in handed] == [ThrottleFactor.event_type, *[Alert.event_type] * 2]
    assert [decision.decision_id for decision in handed] == [decision.decision_id for decision in loop.decisions]


def test_alerts_are_counted_while_they_fire() -> None:
    loop = Loop(min_hold="0s")
    loop.step(log_dirs({"/a": 50, "/b": 300}))
    assert loop.series("headgate_alerts") == {
        ("volume-below-hard-limit", "critical", "payments"): 1,
        ("volume-below-soft-limit", "warning", "payments"): 2,
    }
    loop.step(log_dirs({"/a": 300, "/b": 900}), after=10)
    assert loop.series("headgate_alerts") == {("volume-below-soft-limit", "warning", "payments"): 1}
    loop.step(log_dirs({"/a": 900, "/b": 900}), after=10)
    assert loop.series("headgate_alerts") == {}


def test_a_deleted_decision_takes_its_cluster_along() -> None:
    loop = Loop()
    loop.step(log_dirs(50))
    loop.view.fold([Record(DECIDED, b"payments", None, 0)], live=True)
    for name in ("throttle", "decision", "volume", "log_dirs", "observation"):
        assert loop.series(f"headgate_{name}") == {}
    loop.view.fold([decided(loop.decisions[0])], live=True)
    assert loop.series("headgate_throttle_factor") == {("payments",): 0.0}


def test_readings_and_decisions_of_clusters_nobody_named_are_not_shown() -> None:
    view = LoopView(PREFIX, {"throttle": Loop().settings}, frozenset({"orders"}))
    orders, forged = Loop(cluster="orders", view=view), Loop(view=view)
    orders.step(log_dirs(300, cluster="orders"))
    forged.step(log_dirs(50))
    for name in ("headgate_volume_usable_bytes", "headgate_throttle_factor", "headgate_observation_age_seconds"):
        assert {labels[0] for labels in orders.series(name)} == {"orders"}
    of_loop = next(d for d in forged.decisions if isinstance(d, Alert)).model_copy(update={"cluster": LOOP})
    orders.view.fold([decided(of_loop)], live=True)
    assert {labels[2] for labels in orders.series("headgate_alerts")} == {"orders", LOOP}, "alerts about the loop are"


def test_where_no_cluster_is_named_only_so_many_invented_ones_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.exporter.loop_view.MOST_CLUSTERS", 3)
    loop = Loop()
    for number in range(10):
        loop.view.fold([observed(log_dirs(300, cluster=f"forged-{number}"), START, id=str(number))], live=True)
    assert len(loop.series("headgate_volume_usable_bytes")) == 3


def test_dead_letters_are_counted_from_zero_however_large_and_whatever_they_are_called() -> None:
    view = LoopView(PREFIX, {})
    before = series(view, "headgate_dead_letters_total", START)
    assert set(before.values()) == {0}
    counted = DeadLettersCounted(
        reason=DeadLetterReason.MALFORMED, topic=OBSERVED, cluster=None, count=99_995, since=START, until=START,
        last="x/0/9",
    )  # fmt: skip
    letters = [dead_letter(), dead_letter("invalid"), *(dead_letter(f"invented-{n}", 100) for n in range(100))]
    stands_for_many = make_letter(LETTERS_COUNTED_TYPE, (1,), counted.until, counted).value
    view.fold([*letters, Record(DEAD_LETTERS, None, stands_for_many, 0)], live=True)
    counts = series(view, "headgate_dead_letters_total", START)
    assert {key: n for key, n in counts.items() if n} == {
        (OBSERVED, "malformed"): 99_996,
        (OBSERVED, "invalid"): 1,
        (OBSERVED, "other"): 100,
    }
    assert len(counts) == len(before) + 1


@for_each(
    ("topic", "value", "reason"),
    [
        pytest.param(OBSERVED, b"{", "malformed", id="observed, not JSON"),
        pytest.param(OBSERVED, None, "malformed", id="observed, without a value"),
        pytest.param(DECIDED, b"\xff", "malformed", id="decided, not text"),
        pytest.param(ALERTS, b" " * (4 * 1024 * 1024 + 1), "too_large", id="too large"),
        pytest.param(DECIDED, event("headgate.news.v9"), "unknown_type", id="of a newer version"),
        pytest.param(DECIDED, event("headgate.throttle-factor.v1", factor=2), "invalid", id="decided, another content"),
        pytest.param(DEAD_LETTERS, b"?", "malformed", id="dead letter"),
    ],
)
def test_a_record_that_cannot_be_read_is_counted_and_changes_nothing(
    topic: str, value: bytes | None, reason: str
) -> None:
    loop = Loop()
    loop.step(log_dirs(300))
    before = loop.view.metrics(to_millis(loop.now))
    loop.view.fold([Record(topic, b"payments", value, 0)] * 2, live=True)
    assert [(sample.labels, sample.value) for sample in loop.view.process_samples()] == [((topic, reason), 2)]
    assert loop.view.metrics(to_millis(loop.now)) == before


def test_history_reaches_as_far_as_a_reading_may_count_and_the_trend_looks() -> None:
    def history_of(**settings: Any) -> timedelta | None:
        block = ThrottleSettings.model_validate(settings)
        return LoopView(PREFIX, {"throttle": block}).histories()[OBSERVED]

    assert history_of() == timedelta(minutes=15)
    assert history_of(validity="20m") == timedelta(minutes=20)
    assert history_of(validity="20m", clusters={"a": {}, "[ab]*": {"validity": "2h"}}) == timedelta(hours=2)


def test_decided_topics_are_read_whole_and_dead_letters_from_their_end() -> None:
    histories = LoopView(PREFIX, {}).histories()
    observed = {f"{PREFIX}.{topic}" for topic in observed_topics()}
    assert OBSERVED in observed
    assert all(histories.pop(topic) for topic in observed)
    assert {DECIDED, ALERTS} <= {topic for topic, past in histories.items() if past is None}
    assert {topic for topic, past in histories.items() if past is not None} == {DEAD_LETTERS}
    assert histories[DEAD_LETTERS] == timedelta(0)


Script = list[tuple[int, int, int]]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(-1, 1000)), max_size=30))
def test_the_volumes_are_those_of_the_last_good_readings(script: Script) -> None:
    """Of any history: (seconds passed, broker or 0 for a membership reading, free bytes or -1 for a failure)."""
    loop, usable = Loop(), dict[tuple[str, ...], int]()
    for after, broker, free in script:
        if broker == 0:
            brokers = range(1, 1 + free % 4)
            loop.step(members(*brokers), after=after)
            usable = {labels: found for labels, found in usable.items() if int(labels[1]) in brokers}
        elif free < 0:
            loop.step(LogDirs(cluster="payments", broker=broker, outcome=Outcome.ERROR), after=after)
        else:
            loop.step(log_dirs(free, broker=broker), after=after)
            usable["payments", str(broker), "/a"] = free
        assert loop.series("headgate_volume_usable_bytes") == usable
        assert loop.series("headgate_volume_seconds_to_full").keys() <= usable.keys()


def test_a_query_that_lost_its_checkpoint_is_followed_at_once() -> None:
    loop = Loop(min_hold="0s")
    loop.step(log_dirs(900))
    loop.step(log_dirs(400), after=60)
    loop.kept = NEVER_STEPPED
    (anew,) = [d for d in loop.step(log_dirs(900), after=1) if isinstance(d, ThrottleFactor)]
    assert anew.factor == 1.0
    assert loop.series("headgate_throttle_factor") == {("payments",): 1.0}
    assert len({d.decision_id for d in loop.decisions}) == len(loop.decisions)


def test_junk_on_a_decided_topic_is_named_for_ten_minutes() -> None:
    view, topic = LoopView(PREFIX, {}), f"{PREFIX}.decided.throttle"
    view.fold([Record(topic, b"k", b"junk", to_millis(START))], live=True)
    said = view.find_foreign(to_millis(START) + 1000) or ""
    assert said.startswith(f"{topic}: records of the last 10 min are no decisions: another process writes there")
    assert view.find_foreign(to_millis(START) + 600_001) is None


@for_each("policy", POLICIES)
def test_of_each_policy_the_exporter_says_when_nobody_watches_any_more(policy: str) -> None:
    view = LoopView(PREFIX, {})
    view.fold([standing(policy, START)], live=True)

    def stale(minutes: float) -> Any:
        return series(view, "headgate_decision_stale", START + timedelta(minutes=minutes))

    assert (stale(2.9), stale(3)) == ({(policy, "payments"): 0.0}, {(policy, "payments"): 1.0})
    view.fold([standing(policy, START + timedelta(minutes=4))], live=True)
    assert stale(5) == {(policy, "payments"): 0.0}
    view.fold([Record(f"{PREFIX}.decided.standing", f"{policy}/payments".encode(), None, 0)], live=True)
    assert stale(5) == {}


def test_what_nobody_keeps_up_is_not_shown_as_current() -> None:
    loop = Loop(heartbeat="1h", validity="20m")
    loop.step(log_dirs(50))
    loop.view.fold([standing("throttle", loop.now)], live=True)
    assert loop.series("headgate_throttle_raw_factor", after=60)
    assert loop.series("headgate_throttle_raw_factor", after=181) == {}
    assert set(loop.series("headgate_decision_stale", after=181).values()) == {1.0}


def test_what_actuators_have_set_is_shown_with_its_time_and_its_failures() -> None:
    loop = Loop()
    loop.step(log_dirs(300))
    until = START + timedelta(hours=1)
    loop.view.fold(
        [
            reported(quota(ReportResult.APPLIED, 65_536), START),
            reported(quota(ReportResult.FAILED, None, None), START + timedelta(seconds=30)),
            paused(START, until),
        ],
        live=True,
    )
    about = ("throttle", "payments")
    assert loop.series("headgate_in_force_value") == {(*about, "user=alice"): 65_536}
    assert loop.series("headgate_in_force_since") == {(*about, "user=alice", "timestamp_seconds"): START.timestamp()}
    failing = loop.series("headgate_in_force_failing_since_timestamp_seconds")
    assert failing == {about: START.timestamp() + 30}
    assert loop.series("headgate_paused_until_timestamp_seconds") == {about: until.timestamp()}
    assert loop.series("headgate_paused_until_timestamp_seconds", after=3600) == {}, "over"
    loop.view.fold([reported(quota(ReportResult.UNCHANGED, 65_536), START + timedelta(seconds=60))], live=True)
    assert loop.series("headgate_in_force_failing_since_timestamp_seconds") == {}
