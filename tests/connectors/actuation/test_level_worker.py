"""Levels that are kept as decided: when they are looked at, what is retried, and what is said; in virtual time."""

import json
from threading import Event
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry
from tenacity import stop_after_attempt

from connectors.actuation.level_worker import Attempt, LevelMetrics, LevelReports, LevelWorker
from policies.decisions import has_expired
from policies.free_space.levels import LevelPlan, LimitApplication, LimitReason, LimitVerdict
from tests.connectors.actuation.virtual_clock import VirtualClock
from tests.policies.scenario import CLUSTER, decide

TARGET = "all"


class ToyEvent(LimitApplication):
    event_type: ClassVar[str] = "headgate.toy.v1"
    source: ClassVar[str] = "headgate/actuator/toy"
    actuator: ClassVar[str] = "the toy"
    what: ClassVar[str] = "the level"
    nothing: ClassVar[str] = "none"
    number: int

    def name_target(self) -> str:
        return TARGET


class ToyReports(LevelReports[LevelMetrics]):
    action = "toy"

    def _event(self, target: Any, attempt: Attempt, **shared: Any) -> ToyEvent:
        return ToyEvent(number=attempt.number, **shared)


class ToyWorker(LevelWorker[float | None]):
    """Sets one level, `rate`, to a hundred times the factor; `fails` are the errors of the next attempts."""

    def __init__(self, clock: VirtualClock) -> None:
        self.registry, self.events, self.states = CollectorRegistry(), list[dict[str, Any]](), list[Any]()
        super().__init__(
            CLUSTER, self.states.append, clock, verify_seconds=60.0, retried=(OSError,), series=stop_after_attempt(2)
        )
        metrics = LevelMetrics(self.registry, "toy", "target", "toys", "Toyland")
        self.reports = ToyReports(CLUSTER, lambda _, value: self.events.append(json.loads(value)), metrics)
        self.rate, self.fails, self.attempts = 100, list[Exception](), 0
        self.is_closed = False

    def _close(self) -> None:
        self.is_closed = True

    def _wanted(self) -> float | None:
        now = self._clock.now()
        return next((0.25 if has_expired(each, now) else each.factor for each in self._in_force.values()), None)

    def _attempt(self, wanted: float | None, number: int) -> float:
        self.attempts += 1
        if self.fails:
            raise self.fails.pop(0)
        rate = 100 if wanted is None else int(100 * wanted)
        verdict = LimitVerdict.KEEP if rate == self.rate else LimitVerdict.SET
        plan = LevelPlan(verdict, LimitReason.DECIDED, rate, self.rate)
        if plan.verdict.acts:
            self._require_ours()
            self.rate = rate
        self.reports.report_done(TARGET, plan, Attempt(self._clock.now(), None, number), rate)
        self.reports.show(failing=False)
        return 60.0

    def _fail(self, error: Exception, wanted: float | None, number: int) -> None:
        attempt = Attempt(self._clock.now(), None, number)
        self.reports.report_failure(
            None, LevelPlan(LimitVerdict.SET, LimitReason.DECIDED), attempt, str(error) or type(error).__name__
        )


class Bench:
    """A worker with its clock in hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock(still=True)
        self.worker = ToyWorker(self.clock)
        self.sequence = 0

    def reconcile(self, *factors: float, after: float = 0.0) -> list[str]:
        """Time passes, decisions come in, what is due is done; the outcomes that were said of it."""
        self.clock.advance(after)
        before = len(self.worker.events)
        for factor in factors:
            self.sequence += 1
            self.worker.receive(decide(factor, self.sequence, decided_at=self.clock.now()), self.clock.now())
        self.worker.reconcile(Event())
        return [event["data"]["outcome"] for event in self.worker.events[before:]]

    @property
    def failing(self) -> float | None:
        return self.worker.registry.get_sample_value("toy_failing", {"cluster": CLUSTER})


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_level_is_set_once_and_neither_a_repeat_nor_time_before_the_next_look_troubles_it(bench: Bench) -> None:
    assert bench.reconcile(0.5) == ["applied"]
    assert bench.reconcile(0.5, after=59) == []
    assert (bench.worker.rate, bench.worker.attempts) == (50, 1)
    assert bench.worker.pause_seconds() == 1.0
    assert bench.reconcile(after=1) == [], "a look that finds all right says nothing"
    assert bench.worker.attempts == 2


def test_at_the_end_of_a_decision_it_acts_at_once(bench: Bench) -> None:
    bench.reconcile(0.5)
    for _ in range(2):
        bench.reconcile(after=60)
    bench.clock.advance(57)
    assert bench.worker.pause_seconds() == 3.0
    assert bench.reconcile(after=3) == ["applied"]
    assert bench.worker.rate == 25


def test_what_somebody_else_changed_is_found_at_the_next_look(bench: Bench) -> None:
    bench.reconcile(0.5)
    bench.worker.rate = 100
    assert bench.reconcile(after=60) == ["applied"]


@pytest.mark.parametrize(("error", "attempts"), [(OSError("away"), 2), (ZeroDivisionError(), 1)], ids=str)
def test_a_failure_is_tried_again_and_said_once_until_all_is_well(
    bench: Bench, error: Exception, attempts: int
) -> None:
    bench.worker.fails = [error] * 2 * attempts
    assert bench.reconcile(0.5) == ["failed"]
    assert bench.worker.events[-1]["data"]["number"] == bench.worker.attempts == attempts
    assert (bench.failing, bench.worker.pause_seconds(), len(bench.clock.waits)) == (1, 5.0, attempts - 1)
    assert bench.reconcile(0.5) == [], "a repeated decision does not hurry it"
    assert bench.reconcile(after=5) == [], "the same is not said again"
    assert bench.reconcile(after=5) == ["applied"]
    assert bench.failing == 0


def test_something_new_does_not_wait_for_the_pause_after_a_failure(bench: Bench) -> None:
    bench.worker.fails = [OSError("away")] * 2
    bench.reconcile(0.5)
    assert bench.reconcile(0.25) == ["applied"]


def test_after_a_failure_of_the_whole_cluster_a_level_that_is_right_is_reported_again(bench: Bench) -> None:
    bench.reconcile(0.5)
    bench.worker.fails = [OSError("away")] * 2
    assert bench.reconcile(after=60) == ["failed"]
    assert bench.reconcile(after=5) == ["unchanged"]


def test_while_the_cluster_may_be_anothers_nothing_is_set_or_said_and_then_at_once(bench: Bench) -> None:
    bench.worker.may_act = lambda: False
    assert bench.reconcile(0.5) == []
    assert (bench.worker.rate, bench.worker.pause_seconds(), bench.failing) == (100, 1.0, None)
    bench.worker.may_act = lambda: True
    assert bench.reconcile(after=1) == ["applied"]


def test_told_to_stop_it_leaves_the_level_as_it_is_and_closes_its_connections(bench: Bench) -> None:
    bench.reconcile(0.5)
    stop = Event()
    stop.set()
    bench.worker.run(stop)
    assert (bench.worker.rate, bench.worker.is_closed) == (50, True)


def test_outcomes_are_counted(bench: Bench) -> None:
    bench.reconcile(0.5)
    bench.reconcile(1.0)
    labels = {"cluster": CLUSTER, "outcome": "applied"}
    assert bench.worker.registry.get_sample_value("toy_applications_total", labels) == 2
