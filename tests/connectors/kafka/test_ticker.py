"""When ticks are appended, in virtual time: when a timer is due, when the query is silent, and not otherwise."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka import ticker as module
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.ticker import SLOT_MS, Ticker
from connectors.kafka.topics import TopicSettings
from policies.policy import Tick, timer_record
from policies.units import from_millis
from policies.wire import EventReader
from tests.cases import for_each

START_MS = 1_795_248_000_000
SLOW_SECONDS = 20.0


class Loop:
    """A ticker, its clocks, and a query that finishes a batch for each tick that reaches it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.ticks: list[tuple[float, str]] = []
        self.batch_at = 0.0
        self.loses_ticks = False
        self.ticker = Ticker(
            KafkaConnection(bootstrap_servers="k:9092"), TopicSettings(prefix="p"), self._publish,
            silent_seconds=lambda: self.seconds - self.batch_at, slow_seconds=SLOW_SECONDS,
            clock=lambda: START_MS / 1000 + self.seconds, monotonic=lambda: 5000.0 + self.seconds,
        )  # fmt: skip

    def _publish(self, topic: str, key: str, value: bytes) -> None:
        assert topic == "p.ticks"
        tick = EventReader([Tick]).read(value).data
        assert key == tick.reason
        self.ticks.append((round(self.seconds, 3), tick.reason.value))
        if not self.loses_ticks:
            self.batch_at = self.seconds

    def note(self, due_seconds: float) -> "Loop":
        self.ticker.note(timer(due_seconds))
        return self

    def run_until(self, seconds: float) -> "Loop":
        """As `Ticker.run` does: wait, then look."""
        while self.seconds < seconds:
            self.seconds = min(seconds, self.seconds + max(self.ticker.wait_seconds(), 0.001))
            self.ticker.tick_if_due()
        return self


def timer(due_seconds: float) -> bytes:
    due_at = from_millis(START_MS + round(due_seconds * 1000))
    return timer_record("throttle", "payments", due_at, now=datetime(2026, 11, 21, tzinfo=UTC))[1]


def test_a_tick_comes_when_a_timer_is_due_and_timers_close_together_share_it() -> None:
    loop = Loop().note(7.3).note(3.01).note(3.02).note(3.1).note(3.1).note(3.11)
    assert loop.run_until(3).ticks == []
    assert loop.run_until(9).ticks == [(3.1, "timer"), (3.2, "timer"), (7.3, "timer")]


@given(st.lists(st.integers(0, 60_000), max_size=40), st.lists(st.integers(0, 60_000), max_size=40))
def test_every_timer_has_a_tick_when_it_is_due_and_at_most_a_slot_later(early: list[int], late: list[int]) -> None:
    loop = Loop()
    for due_ms in early:
        loop.note(due_ms / 1000)
    loop.run_until(30)
    for due_ms in late:
        loop.note(due_ms / 1000)
    loop.run_until(61)
    ticked_ms = [seconds * 1000 for seconds, reason in loop.ticks if reason == "timer"]
    heard = [(due_ms, due_ms) for due_ms in early] + [(due_ms, max(due_ms, 30_000)) for due_ms in late]
    for due_ms, from_ms in heard:
        assert any(from_ms <= tick <= from_ms + SLOT_MS + 1 for tick in ticked_ms), due_ms
    slots = {-(-due_ms // SLOT_MS) for due_ms in (*early, *late)}
    assert len(ticked_ms) <= 2 * len(slots), "no tick without a timer"


def test_a_start_ticks_at_once_and_a_silent_query_slowly() -> None:
    loop = Loop()
    loop.ticker.start()
    assert loop.run_until(61).ticks == [(0.0, "start"), (20.0, "silence"), (40.0, "silence"), (60.0, "silence")]


def test_a_query_with_batches_of_its_own_is_not_ticked() -> None:
    loop = Loop()
    for seconds in range(0, 100, 10):
        loop.batch_at = loop.run_until(seconds).seconds
    assert loop.ticks == []


def test_a_tick_that_no_batch_follows_is_repeated_soon() -> None:
    loop = Loop().note(3)
    loop.loses_ticks = True
    assert loop.run_until(14).ticks == [(3.0, "timer"), (8.0, "silence"), (13.0, "silence")]


FORGED: Sequence[bytes | None] = (
    None,
    b"",
    b"garbage",
    b"[" * 100_000,
    timer(3).replace(b"timer.v1", b"tick.v1"),
    timer(3).replace(b"2026-11-21T08", b"10000-11-21T08"),
    json.dumps({**json.loads(timer(3)), "data": {"policy": "x", "due_at": 5}}).encode(),
)


@for_each("record", FORGED)
def test_what_is_no_timer_is_nobodys(record: bytes | None) -> None:
    loop = Loop()
    loop.ticker.note(record)
    assert loop.run_until(10).ticks == []


def test_a_flood_of_timers_takes_bounded_memory_and_loses_none_that_is_due_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_SLOTS", 100)
    loop = Loop()
    for number in range(10_000, 0, -1):
        loop.note(number * SLOT_MS / 1000)
    assert len(loop.ticker._slots) <= 100
    assert [at for at, _ in loop.run_until(5).ticks] == [round(number * SLOT_MS / 1000, 3) for number in range(1, 51)]


def test_timers_in_the_far_future_or_past_do_no_harm() -> None:
    loop = Loop()
    for year in (1, 1969, 9999):
        loop.ticker.note(timer(3).replace(b'"due_at":"2026', f'"due_at":"{year:04}'.encode()))
    assert loop.run_until(1).ticks == [(0.001, "timer")]
