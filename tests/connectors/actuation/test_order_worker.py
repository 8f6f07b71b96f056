"""Decisions that are tried until they are done, lifted or expired; in virtual time."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Event
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tenacity import stop_after_attempt

from connectors.actuation.order_worker import ActionError, ActionResult, OrderWorker, UnknownOutcomeError
from connectors.actuation.worker import ActionRate, ActuatorMetrics, CommonOutcome
from policies.decisions import Decision, Mode
from policies.observations import ActuatorEvent
from tests.connectors.actuation.virtual_clock import NOON, VirtualClock

CLUSTER = "payments"


class Toy(Decision):
    """Decided at noon; valid for five minutes."""

    event_type: ClassVar[str] = "example.toy.v1"
    valid_until: datetime | None

    def __init__(self, sequence: int = 1, **fields: Any) -> None:
        usual = {
            "policy": "toys", "cluster": CLUSTER, "subject": "a", "verdict": "do", "reason": "why", "explanation": "so",
            "mode": Mode.ACTIVE, "settings_hash": "x", "decided_at": NOON, "valid_until": NOON + timedelta(minutes=5),
            "sequence": sequence, **fields,
        }  # fmt: skip
        super().__init__(decision_id=f"{usual['cluster']}/{usual['subject']}/{sequence}", **usual)


class ToyEvent(ActuatorEvent):
    """What became of one."""

    event_type: ClassVar[str] = "headgate.toy.v1"
    source: ClassVar[str] = "headgate/actuator/toy"
    about: str
    sequence: int
    outcome: str
    attempt: int
    detail: str | None = None

    def subject(self) -> str:
        return f"{self.cluster}/{self.about}"


@dataclass
class Published:
    """The audit, and whether the metric says that something fails."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    events: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, key: str, value: bytes) -> None:
        assert key == CLUSTER
        self.events.append(json.loads(value))

    @property
    def outcomes(self) -> list[str]:
        return [event["data"]["outcome"] for event in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return dict(self.events[-1]["data"])

    @property
    def failing(self) -> float | None:
        return self.registry.get_sample_value("toy_failing", {"cluster": CLUSTER})

    @property
    def held(self) -> float | None:
        return self.registry.get_sample_value("toy_held", {"cluster": CLUSTER})


class ToyWorker(OrderWorker[Toy, str, ActuatorMetrics]):
    """Does as it is told by `next_results`: the one for the next attempt first; done when there is none left."""

    wanted = frozenset({"do"})
    series = stop_after_attempt(2)

    def __init__(self, published: Published, clock: VirtualClock, grace: timedelta = timedelta(0)) -> None:
        metrics = ActuatorMetrics(published.registry, "toy_failing", "Whether it fails.", is_paced=True)
        super().__init__(CLUSTER, published.publish, metrics, clock, grace)
        self.next_results: list[Exception | Callable[[], None]] = []
        self.attempts: list[tuple[str, bool]] = []
        """The subject of each attempt, and whether an earlier one may have done it."""
        self.acts: list[str] = []
        """What attempts are made for."""
        self.is_closed = False

    def _attempt(self, decision: Toy, stop: Event) -> ActionResult[str] | None:
        self.attempts.append((decision.subject, self._is_unsure(decision)))
        result = self.next_results.pop(0) if self.next_results else None
        if isinstance(result, Exception):
            raise result
        if result is not None:
            result()
        if self._is_held(decision):
            return None
        self.acts.append(decision.subject)
        return ActionResult(CommonOutcome.DONE)

    def _content(self, decision: Toy, result: ActionResult[str]) -> object:
        return result

    def _event(self, decision: Toy, result: ActionResult[str], attempt: int, at: datetime) -> ToyEvent:
        return ToyEvent(
            cluster=self._cluster, about=decision.subject, sequence=decision.sequence, outcome=result.outcome,
            attempt=attempt, detail=result.detail,
        )  # fmt: skip

    def _count(self, decision: Toy, result: ActionResult[str]) -> None:
        """A toy has no metrics of its own."""

    def _close(self) -> None:
        self.is_closed = True


def expired(toy: Toy) -> Toy:
    return toy.model_copy(update={"valid_until": NOON})


AWAY = ActionError("away")


class Bench:
    """A worker with its clock in hand."""

    def __init__(self, grace: timedelta = timedelta(0)) -> None:
        self.clock = VirtualClock(still=True)
        self.published = Published()
        self.worker = ToyWorker(self.published, self.clock, grace)

    def reconcile(self, *toys: Toy, after: float = 0.0) -> list[str]:
        """Time passes, decisions come in, what is due is tried; the outcomes that were said of it."""
        self.clock.advance(after)
        before = len(self.published.events)
        for toy in toys:
            self.worker.receive(toy, self.clock.now())
        self.worker.reconcile(Event())
        return self.published.outcomes[before:]

    @property
    def tried(self) -> list[str]:
        return [subject for subject, _ in self.worker.attempts]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_decision_is_carried_out_once_however_often_it_comes(bench: Bench) -> None:
    assert bench.reconcile(Toy()) == ["done"]
    assert bench.reconcile(Toy(), Toy(), after=60) == []
    assert bench.tried == ["a"]


def test_a_late_decision_is_said_to_be_superseded_and_not_tried(bench: Bench) -> None:
    bench.reconcile(Toy(7, verdict="leave"))
    assert bench.reconcile(Toy(6)) == ["superseded"]
    assert (bench.published.last["detail"], bench.tried) == ("sequence 7 is in force: leave", [])


def test_a_late_decision_that_asks_for_nothing_is_nothing_to_speak_of(bench: Bench) -> None:
    bench.reconcile(Toy(7))
    assert bench.reconcile(Toy(6, verdict="leave")) == []


def test_a_decision_that_ends_in_the_far_future_is_not_believed(bench: Bench) -> None:
    forged = Toy(6, valid_until=NOON + timedelta(days=2))
    assert (bench.reconcile(forged), bench.tried) == ([], [])
    assert bench.reconcile(Toy(5), forged) == ["superseded", "done"]
    assert bench.reconcile(Toy(9, subject="b"), Toy(1, subject="c")) == ["done", "done"], "a fence for each subject"


@given(st.integers(1, 5), st.lists(st.floats(0, 40), max_size=60))
def test_no_minute_has_more_actions_than_allowed_and_waiting_as_told_is_enough(most: int, pauses: list[float]) -> None:
    now = 0.0
    rate = ActionRate(most, lambda: now)
    done: list[float] = []
    for pause in pauses:
        now += pause
        now += rate.wait_seconds()
        assert rate.wait_seconds() < 1e-6
        rate.count_action()
        done.append(now)
    assert all(later - earlier >= 60 - 1e-6 for earlier, later in zip(done, done[most:], strict=False))


@pytest.mark.parametrize(("late_seconds", "outcome"), [(-0.001, "done"), (0.0, "expired"), (0.001, "expired")])
def test_it_is_not_begun_once_its_validity_has_ended(bench: Bench, late_seconds: float, outcome: str) -> None:
    assert bench.reconcile(Toy(), after=300 + late_seconds) == [outcome]
    assert len(bench.tried) == (outcome == "done")


def test_in_shadow_mode_it_is_said_and_not_tried(bench: Bench) -> None:
    assert bench.reconcile(Toy(mode=Mode.SHADOW)) == ["shadow"]
    assert bench.tried == []


def test_a_failure_is_tried_again_after_a_pause_and_said_once_until_it_is_done(bench: Bench) -> None:
    bench.worker.next_results = [AWAY] * 4
    assert bench.reconcile(Toy()) == ["failed"]
    assert (bench.published.last["attempt"], bench.published.last["detail"]) == (2, "away")
    assert (bench.worker.pause_seconds(), bench.published.failing) == (5.0, 1.0)
    assert bench.reconcile(after=4.9) == []
    assert len(bench.tried) == 2, "too early"
    assert bench.reconcile(after=0.1) == [], "the same is not said again"
    assert len(bench.tried) == 4
    assert bench.reconcile(after=5) == ["done"]
    assert (bench.published.last["attempt"], bench.published.failing) == (5, 0.0)


def test_pauses_between_the_attempts_of_a_series_are_short(bench: Bench) -> None:
    bench.worker.next_results = [AWAY]
    assert bench.reconcile(Toy()) == ["done"]
    assert len(bench.clock.waits) == 1
    assert bench.clock.waits[0] <= 2.0


def test_another_reason_to_fail_is_said(bench: Bench) -> None:
    bench.worker.next_results = [AWAY, AWAY, ActionError("no"), ActionError("no")]
    assert bench.reconcile(Toy()) == ["failed"]
    assert bench.reconcile(after=5) == ["failed"]
    assert bench.published.last["detail"] == "no"


def test_what_fails_until_its_end_expires_and_is_looked_at_no_later(bench: Bench) -> None:
    bench.worker.next_results = [AWAY, AWAY]
    bench.reconcile(Toy(), after=298)
    assert bench.worker.pause_seconds() == 2.0
    assert bench.reconcile(after=2) == ["expired"]
    assert (bench.worker.pause_seconds(), bench.published.failing) == (None, 0.0)


def test_one_subject_that_fails_does_not_keep_the_others_back(bench: Bench) -> None:
    bench.worker.next_results = [AWAY, AWAY]
    assert bench.reconcile(Toy(subject="a"), Toy(subject="b")) == ["failed", "done"]
    assert bench.published.failing == 1.0


def test_an_unexpected_error_is_said_by_its_kind_and_somebody_stays_at_work(bench: Bench) -> None:
    bench.worker.next_results = [ZeroDivisionError("secret")]
    assert bench.reconcile(Toy()) == ["failed"]
    assert bench.published.last["detail"] == "ZeroDivisionError"
    assert bench.reconcile(after=5) == ["done"]


def test_an_attempt_without_an_answer_is_remembered_until_it_is_settled(bench: Bench) -> None:
    bench.worker.next_results = [UnknownOutcomeError("no answer")]
    bench.reconcile(Toy(1))
    bench.reconcile(Toy(2))
    assert bench.worker.attempts == [("a", False), ("a", True), ("a", False)]


@pytest.mark.parametrize(
    ("verdicts", "remembered"),
    [pytest.param(["do"], True, id="a renewal"), pytest.param(["leave", "do"], False, id="lifted between")],
)
def test_what_got_no_answer_counts_for_a_renewal_and_for_nothing_else(
    bench: Bench, verdicts: list[str], remembered: bool
) -> None:
    bench.worker.next_results = [UnknownOutcomeError("no answer")] * 2
    bench.reconcile(Toy(1))
    bench.reconcile(*(Toy(2 + number, verdict=verdict) for number, verdict in enumerate(verdicts)))
    assert bench.worker.attempts[-1] == ("a", remembered)


def test_what_failed_is_not_tried_any_more_once_it_is_lifted(bench: Bench) -> None:
    bench.worker.next_results = [AWAY, AWAY]
    bench.reconcile(Toy(1))
    assert bench.reconcile(Toy(2, verdict="leave")) == ["superseded"]
    assert (bench.published.last["sequence"], bench.published.failing) == (1, 0.0)
    assert bench.reconcile(after=60) == []


@pytest.mark.parametrize(("overtakes", "outcomes"), [(False, ["done"]), (True, ["superseded", "done"])])
def test_the_next_decision_to_do_the_same_renews_or_overtakes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, overtakes: bool, outcomes: list[str]
) -> None:
    monkeypatch.setattr(ToyWorker, "renewals_overtake", overtakes)
    bench.worker.next_results = [AWAY, AWAY]
    bench.reconcile(Toy(1))
    assert bench.reconcile(Toy(2)) == outcomes


def test_a_lift_that_comes_between_two_attempts_counts(bench: Bench) -> None:
    def lift() -> None:
        bench.worker.receive(Toy(2, verdict="leave"), bench.clock.now())
        raise AWAY

    bench.worker.next_results = [lift]
    assert bench.reconcile(Toy(1)) == ["superseded"]
    assert bench.tried == ["a"]


@pytest.mark.parametrize(
    ("decided_seconds_ago", "left_seconds"),
    [
        pytest.param(0, 5.0, id="just decided"),
        pytest.param(3, 2.0, id="on its way for a while"),
        pytest.param(60, 0.0, id="long ago"),
        pytest.param(-3600, 5.0, id="by a clock that is ahead: no longer than the grace"),
    ],
)
def test_nothing_is_done_within_the_grace_after_a_decision(decided_seconds_ago: int, left_seconds: float) -> None:
    bench = Bench(timedelta(seconds=5))
    toy = Toy(valid_until=None, decided_at=NOON - timedelta(seconds=decided_seconds_ago))
    bench.reconcile(toy)
    assert bench.tried == ([] if left_seconds else ["a"])
    assert bench.worker.pause_seconds() == (left_seconds or None)


def test_beyond_the_actions_a_minute_the_rest_waits_and_a_metric_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ToyWorker.most_a_minute == 60
    monkeypatch.setattr(ToyWorker, "most_a_minute", 6)
    bench = Bench()
    assert bench.reconcile(*(Toy(subject=str(number)) for number in range(8))) == ["done"] * 6
    assert (bench.published.held, bench.published.failing) == (1, 0)
    assert bench.reconcile(after=59) == []
    assert bench.reconcile(after=1) == ["done"] * 2
    assert bench.published.held == 0


def test_after_a_restart_the_decision_in_force_is_carried_out_and_no_other(bench: Bench) -> None:
    history = [
        Toy(1, subject="a"), Toy(2, subject="a", verdict="leave"), Toy(4, subject="b"),
        Toy(3, subject="b", verdict="leave"), expired(Toy(subject="c")),
    ]  # fmt: skip
    for toy in history:
        bench.worker.recall(toy, NOON)
    assert bench.reconcile() == ["done"]
    assert bench.tried == ["b"]


def test_what_was_done_before_a_restart_is_not_done_again(bench: Bench) -> None:
    bench.worker.recall(Toy(subject="a"), NOON)
    bench.worker.recall(Toy(subject="b"), NOON)
    assert bench.worker.pending_since == NOON
    bench.worker.recall_done("a", Toy(subject="a").decision_id)
    assert bench.reconcile() == ["done"]
    assert bench.tried == ["b"]
    assert Bench().worker.pending_since is None


def test_told_to_stop_it_begins_nothing_more(bench: Bench) -> None:
    stop = Event()
    bench.worker.next_results = [stop.set]
    bench.worker.receive(Toy(subject="a"), NOON)
    bench.worker.receive(Toy(subject="b"), NOON)
    bench.worker.run(stop)
    assert bench.tried == ["a"]
    assert bench.worker.is_closed


def test_it_waits_until_the_next_attempt_is_due() -> None:
    published, clock, stop = Published(), VirtualClock(), Event()
    worker = ToyWorker(published, clock)
    worker.next_results = [AWAY, AWAY, stop.set]
    worker.receive(Toy(), NOON)
    worker.run(stop)
    assert published.outcomes == ["failed", "done"]
    assert clock.waits[-1] == 5.0


def test_news_cut_a_wait_short() -> None:
    clock, stop = VirtualClock(), Event()
    worker = ToyWorker(Published(), clock)
    arrivals: list[Callable[[], None]] = [lambda: worker.receive(Toy(2), clock.now()), stop.set]

    def fail_and_hear() -> None:
        arrivals.pop(0)()
        if arrivals:
            raise AWAY

    worker.next_results = [fail_and_hear, fail_and_hear]
    worker.receive(Toy(1), NOON)
    worker.run(stop)
    assert sum(clock.waits) == 0.0
    assert len(worker.attempts) == 2


def test_while_the_cluster_may_be_anothers_nothing_is_tried_or_said_and_then_it_is(bench: Bench) -> None:
    bench.worker.may_act = lambda: False
    assert bench.reconcile(Toy()) == []
    assert (bench.tried, bench.worker.pause_seconds()) == ([], 1.0)
    bench.worker.may_act = lambda: True
    assert bench.reconcile(after=1) == ["done"]


def test_a_process_that_is_frozen_within_an_attempt_leaves_alone_what_is_anothers_when_it_wakes(bench: Bench) -> None:
    def freeze() -> None:
        bench.worker.may_act = lambda: False

    bench.worker.next_results = [freeze]
    assert bench.reconcile(Toy()) == []
    assert (bench.tried, bench.worker.acts) == (["a"], [])
