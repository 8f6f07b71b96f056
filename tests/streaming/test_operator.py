"""The stateful operator in Spark's own tester: rows and timers in, rows out, one value kept. No JVM."""

import base64
import json
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

import streaming.host
import streaming.operator
from policies.registry import POLICIES
from policies.throttle.state import ThrottleState
from policies.units import to_millis
from policies.wire import KEPT_BYTES, MAX_RECORD_BYTES
from streaming import operator
from streaming.dead_letters import DeadLetter
from streaming.host import PolicyHost
from streaming.key_state import KeyState, decode
from streaming.operator import StepMark, next_timer_ms
from streaming.transition import KeyTransition, reconcile
from streaming.worker_memory import StateCache
from tests.cases import for_each
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, at, failed, log_dirs, members, throttle
from tests.streaming.records import UnwrappedOperator, changed, changed_data, event, row, rows

KEY = ("throttle", CLUSTER)
SETTINGS = throttle(SOFT_AND_HARD, heartbeat="60s", validity="5m", alert_refresh="1h")
READING = log_dirs(0, 3, 4 * GB)


class Batch(NamedTuple):
    """A micro-batch: when it runs, and what it takes in."""

    seconds: float
    rows: Sequence[Row] = ()


class Query:
    """One key's operator with its state and timers, which survive a crash as the checkpoint does."""

    def __init__(
        self,
        kept: tuple[Any, ...] | None = None,
        timers: Iterable[int] = (),
        now_ms: int = 0,
        *,
        clusters: frozenset[str] | None = None,
        key: tuple[str, str] = KEY,
    ) -> None:
        self.key = key
        host = PolicyHost({"throttle": SETTINGS}, clusters)
        self.tester = TwsTester(UnwrappedOperator(host, "headgate"), timeMode="ProcessingTime")
        self.tester._currentProcessingTimeMs = now_ms
        self.tester.handle.setGroupingKey(key)
        if kept is not None:
            self.tester.updateValueState("state", key, kept)
        for timer in timers:
            self.tester.handle.registerTimer(timer)

    def run(self, batch: Batch) -> list[Row]:
        """Records first, then timers, as in Spark; the tester by itself would do it the other way round."""
        self.tester._currentProcessingTimeMs = to_millis(at(batch.seconds))
        out = self.tester.test(self.key, list(batch.rows)) if batch.rows else []
        return [*out, *self.tester._handleExpiredTimers()]

    def crashed(self) -> "Query":
        """What comes up from the checkpoint: another process with the same state and timers."""
        return Query(self.kept, self.timers, self.tester._currentProcessingTimeMs)

    @property
    def kept(self) -> tuple[Any, ...] | None:
        return self.tester.peekValueState("state", self.key)

    @property
    def key_state(self) -> KeyState:
        assert self.kept is not None
        return decode(self.kept[0])

    @property
    def timers(self) -> list[int]:
        self.tester.handle.setGroupingKey(self.key)
        return list(self.tester.handle.listTimers())


FIRST = to_millis(at(0)) + 500
"""Sequence of a first decision half a second after the start: its batch's time."""


def seconds_of(millis: int) -> float:
    return (millis - to_millis(at(0))) / 1000


TIMERS = "headgate.timers"
STANDING = "headgate.decided.standing"


def topics(out: Iterable[Row]) -> list[str]:
    """Of what is decided; the timers are the loop's own, and that somebody watches is said each minute."""
    return [r.topic for r in out if r.topic not in (TIMERS, STANDING)]


def said_timers(out: Iterable[Row]) -> list[float]:
    """When the timers are due that a batch said it has set, in seconds after the start."""
    dues = [datetime.fromisoformat(timer["due_at"]) for timer in data(out, "timers")]
    return [seconds_of(to_millis(due)) for due in dues]


def data(out: Iterable[Row], topic: str) -> list[dict[str, Any]]:
    return [json.loads(r.value)["data"] for r in out if r.topic == f"headgate.{topic}"]


def test_a_reading_gives_a_decision_its_alert_and_both_in_the_audit() -> None:
    out = Query().run(Batch(0.5, rows(READING)))
    assert topics(out) == ["headgate.decided.throttle", "headgate.decided.alerts", "headgate.audit", "headgate.audit"]
    alert = f"throttle/volume-below-soft-limit/{CLUSTER}/3/data/a"
    assert [r.key for r in out if r.topic not in (TIMERS, STANDING)] == [CLUSTER, alert, CLUSTER, CLUSTER]
    (decision,) = data(out, "decided.throttle")
    assert (decision["factor"], decision["evidence"], decision["sequence"]) == (0.75, [READING.id], FIRST)
    assert [entry["decision"]["decision_id"] for entry in data(out, "audit")] == [
        json.loads(r.value)["id"] for r in out if "decided" in r.topic and r.topic != STANDING
    ]


def test_the_age_of_a_reading_counts_from_its_append_not_from_what_it_says() -> None:
    old = row(changed(READING, time="2099-01-01T00:00:00Z"), appended_ms=to_millis(at(0)))
    (decision,) = data(Query().run(Batch(301, [old])), "decided.throttle")
    assert decision["reason"] != "soft_limit"


def test_everything_is_kept_in_one_variable() -> None:
    query = Query()
    query.run(Batch(0, rows(*(log_dirs(0, broker, {f"/data/{n}": 4 * GB for n in range(20)}) for broker in range(9)))))
    handle = query.tester.handle
    assert (list(handle.value_states), handle.list_states, handle.map_states) == (["state"], {}, {})


def test_a_partition_that_comes_back_is_stepped_from_what_another_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has a cache of decoded states; the partition moves to another process and back."""
    query, caches = Query(), (StateCache(), StateCache())
    for number, cache in enumerate((caches[0], caches[0], caches[1], caches[0], caches[1], caches[1])):
        monkeypatch.setattr(streaming.host, "STATE_CACHE", cache)
        batch = Batch(number, rows(log_dirs(number, number, 4 * GB)))
        if number in (1, 3):
            query.crashed().run(batch)  # the batch fails, and is repeated
        query.run(batch)
    known = msgspec.msgpack.decode(query.key_state.state, type=ThrottleState)
    assert [broker.name for broker in known.cluster.brokers] == [0, 1, 2, 3, 4, 5]


# Bad records

BAD: dict[str, tuple[bytes | None, str]] = {
    "null value": (None, "malformed"),
    "garbage": (b"\x00\xff\xfe\x80", "malformed"),
    "huge": (event(READING) + b" " * MAX_RECORD_BYTES, "too_large"),
    "a decision": (changed(READING, type="headgate.throttle-factor.v1"), "unknown_type"),
    "NaN": (event(READING).replace(b'"total_bytes":100000000000', b'"total_bytes":NaN'), "invalid"),
    "another cluster": (changed_data(READING, cluster="orders"), "cluster_mismatch"),
}
"""Of each fault one; all others are in tests/policies/test_wire.py."""


@for_each(("value", "reason"), BAD.values(), ids=BAD)
def test_a_bad_record_becomes_a_dead_letter_and_leaves_no_state_and_no_timer(value: bytes | None, reason: str) -> None:
    query = Query()
    (out,) = query.run(Batch(1, [row(value, offset=42, appended_ms=to_millis(at(0)))]))
    assert (out.topic, out.key) == ("headgate.dead-letters", "headgate.observed.log-dirs")
    letter = DeadLetter.model_validate(json.loads(out.value)["data"])
    assert (letter.reason, letter.topic, letter.offset) == (reason, "headgate.observed.log-dirs", 42)
    assert letter.detail
    assert base64.b64decode(letter.value_base64) == (value or b"")[:KEPT_BYTES]
    assert not query.key_state.has_stepped
    assert [kind.reason for kind in query.key_state.letters.kinds] == [reason]
    assert query.timers == []


@for_each("cut", [{"bytes": 20_000_000, "sha256": "ab"}, Row(bytes=20_000_000, sha256="ab")])
def test_of_a_record_too_large_to_leave_the_jvm_its_head_size_and_sum_are_told(cut: Any) -> None:
    head = Row(**row(b" " * KEPT_BYTES).asDict(), cut=cut)
    (out,) = Query().run(Batch(1, [head]))
    letter = DeadLetter.model_validate(json.loads(out.value)["data"])
    assert (letter.reason, letter.value_bytes, letter.value_sha256) == ("too_large", 20_000_000, "ab")
    assert letter.detail.startswith("20000000 bytes, more than")


# Clusters that are watched no longer, and names that never were


def test_the_state_of_a_policy_that_is_gone_ends_with_its_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query()
    query.run(Batch(0, rows(READING)))
    without = {name: kind for name, kind in POLICIES.items() if name != "throttle"}
    monkeypatch.setattr(streaming.operator, "POLICIES", without)
    later = Query(query.kept, query.timers, to_millis(at(0)))
    assert later.run(Batch(60)) == []
    assert later.kept is None


def test_a_cluster_that_left_the_settings_ends_with_its_next_timer() -> None:
    query = Query()
    query.run(Batch(0, rows(READING)))
    reloaded = Query(query.kept, query.timers, to_millis(at(0)), clusters=frozenset({"orders"}))
    assert reloaded.run(Batch(60)) == []
    assert reloaded.kept is None


@pytest.mark.parametrize("by", ["the timer", "a record"])
def test_what_was_counted_is_told_once(by: str) -> None:
    query = Query(clusters=frozenset({"orders"}), key=("throttle", ""))
    query.run(Batch(0, [row(b"garbage", offset=n) for n in range(30)]))
    later = {"the timer": [], "a record": [row(b"garbage", offset=30)]}[by]
    out = [letter for letter in data(query.run(Batch(60, later)), "dead-letters") if "count" in letter]
    assert [letter["count"] for letter in out] == [25]
    assert (query.kept is None) == (by != "a record"), "of which there is nothing to count yet"
    assert [*query.run(Batch(120)), *query.run(Batch(180)), *query.timers] == []
    (letter,) = data(query.run(Batch(240, [row(b"garbage", offset=31)])), "dead-letters")
    assert letter["offset"] == 31


def test_a_process_goes_on_from_what_is_kept_and_not_from_what_it_wrote_itself() -> None:
    ours, theirs = Query(), Query()
    for query in (ours, theirs):
        query.run(Batch(0, rows(READING)))
    theirs.run(Batch(10, rows(log_dirs(10, 3, 2 * GB))))
    ours.run(Batch(10, rows(log_dirs(10, 3, 3 * GB))))  # this process wrote that last
    later = Batch(20, rows(log_dirs(20, 3, 5 * GB)))
    expected = theirs.crashed().run(later)
    ours.run(later)
    assert theirs.run(later) == expected


# Timers


def test_the_heartbeat_comes_from_the_timer_alone() -> None:
    query = Query()
    query.run(Batch(0, rows(READING)))
    assert query.run(Batch(59.9)) == []
    (beat,) = data(query.run(Batch(60)), "decided.throttle")
    assert (beat["sequence"], beat["factor"], beat["verdict"]) == (to_millis(at(0)) + 1, 0.75, "no_change")
    assert [seconds_of(timer) for timer in query.timers] == [120]


def test_an_earlier_need_sets_an_earlier_timer() -> None:
    query = Query()
    query.run(Batch(0, rows(READING)))
    out = query.run(Batch(10, rows(log_dirs(10, 3, 20 * GB))))  # may rise after min_hold, before the heartbeat
    assert [d["verdict"] for d in data(out, "decided.throttle")] == ["hold"]
    assert [seconds_of(timer) for timer in query.timers] == [30], "the later one would fire for nothing"
    (raised,) = data(query.run(Batch(30)), "decided.throttle")
    assert raised["factor"] == 1.0


def test_a_timer_that_fires_early_decides_nothing() -> None:
    query = Query()
    query.run(Batch(0, rows(READING)))
    query.run(Batch(10, rows(log_dirs(10, 3, 2 * GB))))  # published, so the heartbeat is due at 70
    assert [seconds_of(timer) for timer in query.timers] == [60]
    assert topics(query.run(Batch(60))) == [], "not even a note for the audit"
    assert [seconds_of(timer) for timer in query.timers] == [70]


def test_a_timer_that_is_due_with_records_of_its_key_does_not_step_them_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def counted(*args: Any) -> KeyTransition:
        taken.append(args[5])
        return reconcile(*args)

    monkeypatch.setattr(streaming.operator, "reconcile", counted)
    query = Query()
    query.run(Batch(0, rows(READING)))
    (beat,) = data(query.run(Batch(61, rows(log_dirs(61, 3, 4 * GB)))), "decided.throttle")
    assert beat["verdict"] == "no_change", "the heartbeat that was due at 60"
    assert taken == [to_millis(at(0)), to_millis(at(61))]
    assert [seconds_of(timer) for timer in query.timers] == [120], "that of the next whole minute's standing"


NONE_PENDING = [(None, None, None), (50, None, 101), (101, None, 101), (200, None, 200)]
PENDING = [(None, 50, 50), (200, 150, 150), (200, 200, 200), (200, 250, 200), (200, 100, 200)]


@for_each(("wake_ms", "timer_ms", "expected"), [*NONE_PENDING, *PENDING])
def test_a_timer_is_set_if_none_is_pending_that_is_early_enough_and_never_in_the_past(
    wake_ms: int | None, timer_ms: int | None, expected: int | None
) -> None:
    assert next_timer_ms(wake_ms, timer_ms, began_ms=100) == expected


def test_every_timer_that_is_set_is_said_and_no_other() -> None:
    query = Query()
    set_before: set[int] = set()
    for batch in COURSE:
        said = said_timers(query.run(batch))
        now = to_millis(at(batch.seconds))
        set_before = {timer for timer in set_before if timer > now}
        assert sorted(said) == [seconds_of(timer) for timer in sorted(set(query.timers) - set_before)]
        set_before = set(query.timers)
    assert set_before, "the course sets some"


def test_a_timers_record_is_short_and_the_latest_of_a_key_is_its_earliest() -> None:
    query = Query()
    first = query.run(Batch(0, rows(READING)))
    second = query.run(Batch(10, rows(log_dirs(10, 3, 20 * GB))))  # may rise after min_hold, before the heartbeat
    assert (said_timers(first), said_timers(second)) == ([60], [30])
    (key,) = {r.key for r in (*first, *second) if r.topic == TIMERS}
    assert len(key) == 36


# Crashes

COURSE: tuple[Batch, ...] = (
    Batch(0, rows(members(0, 1, 3))),
    Batch(1, rows(log_dirs(1, 3, 6 * GB), log_dirs(1, 1, 50 * GB))),
    Batch(11, [row(b"garbage", offset=9), *rows(log_dirs(11, 3, 4 * GB))]),
    Batch(21, rows(log_dirs(21, 3, GB // 2), log_dirs(21, 1, 50 * GB))),
    Batch(60),
    Batch(81),
    Batch(91, rows(failed(91, 3))),
    Batch(101, rows(log_dirs(101, 3, 3 * GB))),
    Batch(131),
    Batch(141, rows(log_dirs(141, 3, 30 * GB))),
    Batch(171),
    Batch(500),
    Batch(510, rows(members(510, 1), log_dirs(509, 1, 50 * GB))),
)


def run(course: Sequence[Batch], crash_before: set[int]) -> list[list[Row]]:
    query, out = Query(), []
    for number, batch in enumerate(course):
        if number in crash_before:
            query.crashed().run(batch)  # it dies before it commits: what it said may be there twice
            query = query.crashed()
        out.append(query.run(batch))
    return out


UNBROKEN = run(COURSE, set())


def test_the_course_is_worth_crashing_in() -> None:
    factors = [d["factor"] for out in UNBROKEN for d in data(out, "decided.throttle")]
    assert {0.0, 0.75, 1.0} <= set(factors)
    assert sum(map(len, UNBROKEN)) > 20


@for_each("crashes", [*({number} for number in range(len(COURSE))), {*range(len(COURSE))}])
def test_a_crash_before_any_batch_or_each_changes_no_byte(crashes: set[int]) -> None:
    assert run(COURSE, crashes) == UNBROKEN


def test_records_read_again_after_a_commit_decide_nothing_new() -> None:
    query = Query()
    batch = rows(members(0, 3), READING)
    query.run(Batch(1, batch))
    assert topics(query.run(Batch(2, batch))) == ["headgate.audit"], "a note that nothing changed"
    assert query.run(Batch(3, batch)) == []


def test_every_id_is_given_once() -> None:
    ids = [json.loads(r.value)["id"] for out in UNBROKEN for r in out if r.topic != "headgate.audit"]
    assert len(ids) == len(set(ids))


# --- The mark of the last step: a batch may last long as long as its steps go on.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(operator, "_marked_at", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_step_is_marked_once_a_second(tmp_path: Path, clock: list[float]) -> None:
    mark = StepMark(tmp_path / "steps")
    assert mark.seconds_ago() == float("inf")
    for now, expected in [(1000.0, 0.0), (1000.5, 0.5), (1001.0, 0.0)]:
        clock[0] = now
        mark.mark()
        assert mark.seconds_ago() == expected


def test_a_mark_from_before_the_machines_start_and_a_torn_one_do_not_count(tmp_path: Path, clock: list[float]) -> None:
    mark = StepMark(tmp_path / "steps")
    mark.mark()
    clock[0] = 5.0
    assert mark.seconds_ago() == float("inf")
    mark.file.write_text("")
    assert mark.seconds_ago() == float("inf")


def test_a_mark_that_cannot_be_written_stops_no_step(tmp_path: Path, clock: list[float]) -> None:
    assert clock
    StepMark(tmp_path / "gone" / "steps").mark()
