"""Following topics: catching up, handing on, and ending."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from threading import Event
from typing import Any

import pytest

from connectors.actuation.actuator import Actuator, LoopTopics
from connectors.actuation.worker import Worker
from connectors.kafka.tail import Record
from tests.connectors.actuation.tail import CONNECTION, record
from tests.connectors.actuation.test_order_worker import CLUSTER, Toy
from tests.connectors.actuation.virtual_clock import VirtualClock
from tests.fakes.tail import FakeTail

DECIDED = "headgate.decided.toys"
DEADLINE_SECONDS = 60.0


def decided(sequence: int, **fields: Any) -> Record:
    return record(DECIDED, json.dumps({"sequence": sequence, **fields}).encode())


class NoonForever(VirtualClock):
    """For threads, which really wait for their events."""

    def wait(self, event: Event, seconds: float | None) -> None:
        assert event.wait(DEADLINE_SECONDS)


class RecordingWorker(Worker[Toy]):
    """Notes which decisions came into force, before and after it began."""

    def __init__(self) -> None:
        super().__init__(CLUSTER, NoonForever())
        self.recalled: list[int] = []
        self.entered: list[int] = []
        self.is_closed = self.breaks = False
        self.heard = Event()

    def recall(self, decision: Toy, appended_at: datetime) -> bool:
        self.recalled.append(decision.sequence)
        return super().recall(decision, appended_at)

    def reconcile(self, stop: Event) -> None:
        if self.breaks:
            self.heard.set()
            raise ZeroDivisionError
        self._read_inbox()

    def pause_seconds(self) -> None:
        return None

    def _accept(self, decision: Toy, appended_at: datetime) -> None:
        self.entered.append(decision.sequence)
        self.heard.set()

    def _reject(self, decision: Toy, in_force: Toy) -> None:
        raise AssertionError("nothing comes too late here")

    def _close(self) -> None:
        self.is_closed = True


class ToyActuator(Actuator[Toy]):
    """Follows one topic in memory."""

    def __init__(self, tail: FakeTail, worker: RecordingWorker) -> None:
        topics = LoopTopics(CONNECTION, DECIDED, "headgate.audit")
        super().__init__("toy actuator", "headgate-toy", topics, {CLUSTER: worker}, Toy)
        self.tail = tail
        self.followed: dict[str, timedelta | None] = {}
        self.prepare: Callable[[], None] = lambda: None

    def _prepare(self, stop: Event) -> None:
        self.prepare()

    def _read_decision(self, record: Record) -> Toy | None:
        return Toy(**json.loads(record.value)) if record.value else None

    def _open_tail(self, histories: Mapping[str, timedelta | None]) -> FakeTail:
        self.followed = dict(histories)
        return self.tail


class Bench:
    """An actuator with one worker. It is told to stop when its topic has nothing more."""

    def __init__(self, *history: list[Record], live: tuple[Record, ...] = ()) -> None:
        self.stop = Event()
        self.worker = RecordingWorker()
        self.tail = FakeTail(history, live, self.stop.set)
        self.actuator = ToyActuator(self.tail, self.worker)

    def run(self) -> None:
        self.actuator.run(self.stop)


def test_all_history_is_recalled_in_order_before_anything_is_carried_out() -> None:
    bench = Bench([decided(1)], [decided(2), decided(3)])
    at_start: list[list[int]] = []
    bench.actuator.prepare = lambda: at_start.append(list(bench.worker.recalled))
    bench.run()
    assert at_start == [[1, 2, 3]]
    assert bench.worker.entered == []


def test_news_is_handed_on() -> None:
    bench = Bench([decided(1)], live=(decided(2),))

    def end() -> None:
        assert bench.worker.heard.wait(DEADLINE_SECONDS)
        bench.stop.set()

    bench.tail.at_end = end
    bench.run()
    assert (bench.worker.recalled, bench.worker.entered) == ([1], [2])


def test_what_is_of_another_cluster_or_deleted_is_left_to_others() -> None:
    bench = Bench([decided(1, cluster="other"), record(DECIDED, None)], live=(record(DECIDED, None),))
    bench.run()
    assert (bench.worker.recalled, bench.worker.entered) == ([], [])


def test_it_says_how_far_behind_it_is_until_it_has_caught_up() -> None:
    bench = Bench([decided(1)], [decided(2)])
    at_start: list[str | None] = []
    bench.actuator.prepare = lambda: at_start.append(bench.actuator.caught_up())
    assert bench.actuator.caught_up() == "the toy actuator has not started yet"
    bench.run()
    assert at_start == ["0 batches behind"]
    assert bench.actuator.caught_up() is None
    assert bench.actuator.followed == {DECIDED: None}


def test_told_to_stop_while_it_catches_up_it_carries_nothing_out() -> None:
    bench = Bench([decided(1)])
    bench.stop.set()
    bench.run()
    assert bench.actuator.caught_up() is not None
    assert not bench.worker.is_closed, "it was never at work"


def test_when_it_ends_every_worker_has_ended_and_given_up_its_connections() -> None:
    bench = Bench([])
    bench.run()
    assert bench.worker.is_closed
    assert bench.tail.is_closed


def test_a_worker_that_breaks_ends_it_all() -> None:
    bench = Bench([])
    bench.worker.breaks = True
    bench.tail.at_end = lambda: bench.worker.heard.wait(DEADLINE_SECONDS)
    with pytest.raises(ZeroDivisionError):
        bench.run()
    assert bench.worker.is_closed
