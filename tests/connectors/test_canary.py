"""The canary: each reading causes a decision and no alert, its latency is measured, and a silent loop is known soon."""

import json
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from connectors.alertmanager.notifier import Notifier, NotifierMetrics
from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.canary.canary import INTERVAL_SECONDS, SILENT_SECONDS, Canary, CanaryMetrics
from connectors.canary.settings import with_canary
from connectors.decided import DecisionsInForce
from connectors.exporter.loop_view import LoopView
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from policies.canary import CANARY
from policies.decisions import Alert
from policies.observations import Observation, Reading
from policies.registry import reading_types
from policies.throttle import ThrottleFactor, ThrottlePolicy, ThrottleSettings
from policies.throttle.state import ThrottleState
from policies.units import to_millis
from policies.wire import EventReader, decision_event
from tests.connectors.alertmanager.test_notifications import NOON, alert
from tests.connectors.exporter.loop import ALERTS, DECIDED, OBSERVED, PREFIX, START, decided

_READER: EventReader[Reading] = EventReader(reading_types())


class Loop:
    """The policy as the query hosts it for the canary, in virtual time, and the canary beside it."""

    def __init__(self, **settings: Any) -> None:
        block = with_canary({"throttle": ThrottleSettings.model_validate(settings)})["throttle"]
        assert isinstance(block, ThrottleSettings)
        self.policy = ThrottlePolicy(CANARY, block.for_cluster(CANARY))
        self.state: ThrottleState | None = None
        self.now, self.seconds = START, 0.0
        self.sent: list[tuple[str, str, bytes]] = []
        self.sent_at: list[datetime] = []
        """When each was appended: of two at once, the one whose random id is the lower would count."""
        self.decisions: list[Any] = []
        self.registry = CollectorRegistry()
        self.canary = self.another(self.registry)

    def another(self, registry: CollectorRegistry, forbidden: str | None = None) -> Canary:
        return Canary(
            PREFIX,
            self._send,
            CanaryMetrics(registry),
            forbidden=lambda _: forbidden,
            ready=lambda: None,
            clock=lambda: self.seconds,
        )

    def _send(self, topic: str, key: str, value: bytes) -> None:
        self.sent.append((topic, key, value))
        self.sent_at.append(self.now)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds

    def decide(self) -> list[Record]:
        """Step the policy with what was published since the last step; its decisions as records."""
        events = [_READER.read(value) for _, _, value in self.sent]
        readings = [Observation(event.id, at, event.data) for event, at in zip(events, self.sent_at, strict=True)]
        self.sent.clear()
        self.sent_at.clear()
        step = self.policy.step(self.state, readings, self.now)
        self.state = step.state
        self.decisions += step.decisions
        return [decided(each) for each in step.decisions]

    def value(self, name: str, registry: CollectorRegistry | None = None) -> float | None:
        return (registry or self.registry).get_sample_value(name)

    def count(self) -> float | None:
        return self.value("headgate_loop_latency_seconds_count")

    def unanswered(self) -> float | None:
        return self.value("headgate_loop_unanswered_seconds")


@pytest.fixture
def loop() -> Loop:
    return Loop()


GIVEN: dict[str, dict[str, Any]] = {
    "no limits": {},
    "limits": {"hard": {"available_ratio_below": 0.1}, "soft": {"available_ratio_below": 0.3}, "min_hold": "10m"},
    "another's preset": {"preset": "strimzi", "hard": {"available_bytes_below": 5}},
    "an override of everything": {"clusters": {"*": {"min_hold": "1h", "soft": {"available_bytes_below": 1}}}},
    "an override of its own": {"clusters": {CANARY: {"mode": "active", "alert_grace": "0s"}}},
}


@pytest.mark.parametrize("settings", GIVEN.values(), ids=GIVEN)
def test_each_reading_causes_a_decision_that_names_it_and_never_an_alert(settings: dict[str, Any]) -> None:
    loop = Loop(**settings)
    for number in range(40):
        loop.canary.send()
        loop.later(0.3)
        loop.canary.fold_records(loop.decide())
        assert loop.count() == number + 1
        loop.later(INTERVAL_SECONDS)
    assert {type(each) for each in loop.decisions} == {ThrottleFactor}
    assert {each.mode.value for each in loop.decisions} == {"shadow"}


def test_nor_does_its_end_raise_one(loop: Loop) -> None:
    loop.canary.send()
    loop.decide()
    for _ in range(200):
        loop.later(24 * 3600)
        loop.decide()
    assert not any(isinstance(each, Alert) for each in loop.decisions)


def test_the_settings_of_others_stay_as_they_are() -> None:
    given = ThrottleSettings.model_validate({"min_hold": "7s", "clusters": {"dev-*": {"min_hold": "9s"}}})
    block = with_canary({"throttle": given})["throttle"]
    for cluster in ("payments", "dev-1"):
        told = [each.for_cluster(cluster).model_dump(exclude={"clusters"}) for each in (block, given)]
        assert told[0] == told[1]
        assert block.for_cluster(cluster).fingerprint() == given.for_cluster(cluster).fingerprint()


def test_the_latency_is_from_the_reading_to_its_decision(loop: Loop) -> None:
    loop.canary.send()
    loop.later(0.42)
    loop.canary.fold_records(loop.decide())
    assert loop.value("headgate_loop_latency_seconds_sum") == pytest.approx(0.42)
    answers = loop.canary.answers()
    assert answers is not None
    assert answers.latest_seconds == pytest.approx(0.42)
    assert (answers.unanswered_seconds, answers.silent) == (0.0, False)


def test_a_loop_that_no_longer_answers_is_known_within_a_minute(loop: Loop) -> None:
    loop.canary.send()
    loop.canary.fold_records(loop.decide())
    loop.later(INTERVAL_SECONDS)  # the worst case: it dies just after an answer
    loop.canary.send()
    loop.later(SILENT_SECONDS + 0.1)
    assert INTERVAL_SECONDS + SILENT_SECONDS < 60
    answers = loop.canary.answers()
    assert answers is not None
    assert answers.silent
    assert (loop.unanswered() or 0) > SILENT_SECONDS


def test_it_stays_known_however_many_readings_follow_and_ends_with_the_first_answer(loop: Loop) -> None:
    loop.canary.send()
    loop.canary.fold_records(loop.decide())
    for _ in range(30):
        loop.later(INTERVAL_SECONDS)
        loop.canary.send()
    assert loop.unanswered() == 29 * INTERVAL_SECONDS
    loop.canary.fold_records(loop.decide())
    assert loop.unanswered() == 0.0
    assert loop.count() == 1, "what was decided on together is no latency"


def test_before_the_first_answer_the_loop_may_take_its_time_to_start(loop: Loop) -> None:
    loop.canary.send()
    loop.later(30)
    assert loop.unanswered() == 0.0
    loop.later(SILENT_SECONDS + 1)
    answers = loop.canary.answers()
    assert answers is not None
    assert answers.silent


def test_the_canary_of_another_process_hides_ours_without_an_alarm(loop: Loop) -> None:
    registry = CollectorRegistry()
    other = loop.another(registry)
    for first, second in ((loop.canary, other), (other, loop.canary)) * 3:
        first.send()
        second.send()
        loop.later(0.3)
        records = loop.decide()
        assert records, "two readings at once give a decision, too"
        for canary in (first, second):
            canary.fold_records(records)
        loop.later(INTERVAL_SECONDS)
    assert loop.unanswered() == loop.value("headgate_loop_unanswered_seconds", registry) == 0.0


@pytest.mark.parametrize(
    "record",
    [
        Record(DECIDED, CANARY.encode(), b"{}", 0),
        Record(DECIDED, CANARY.encode(), b"no json", 0),
        Record(DECIDED, CANARY.encode(), b'{"data":{"evidence":[1]}}', 0),
        Record(DECIDED, CANARY.encode(), b'{"data":{"evidence":[]}}', 0),
        Record(DECIDED, CANARY.encode(), None, 0),
        Record(DECIDED, b"payments", b'{"data":{"evidence":["x"]}}', 0),
        Record(OBSERVED, CANARY.encode(), b'{"data":{"evidence":["x"]}}', 0),
    ],
)
def test_nothing_else_is_an_answer(loop: Loop, record: Record) -> None:
    loop.canary.send()
    loop.canary.fold_records([record])
    loop.later(100)
    assert (loop.unanswered() or 0) > 0


def test_where_it_may_not_publish_there_is_none_and_nothing_is_measured(loop: Loop) -> None:
    registry, stop = CollectorRegistry(), threading.Event()
    canary = loop.another(registry, forbidden="may not write")
    stop.set()
    canary.run(stop)
    assert loop.sent == []
    assert canary.answers() is None
    assert list(registry.collect()) == []


# --- It is kept apart


def test_it_is_in_no_metric_and_in_no_list(loop: Loop) -> None:
    view, in_force = LoopView(PREFIX, {}), DecisionsInForce()
    loop.canary.send()
    read = [Record(topic, key.encode(), value, to_millis(loop.now)) for topic, key, value in loop.sent]
    records = [*read, *loop.decide()]
    assert view.fold(records, live=True) == []
    assert not in_force.fold_records(records)
    assert CANARY not in str(list(view.samples(to_millis(loop.now))))
    picture = view.snapshot(to_millis(loop.now))
    assert (list(picture.policies), list(picture.recent_decisions), list(view.process_samples())) == ([], [], [])


def test_nobody_is_paged_for_it() -> None:
    settings = AlertmanagerSettings(urls=("http://one:9093",))
    nowhere = KafkaConnection(bootstrap_servers="127.0.0.1:9092")
    notifier = Notifier(nowhere, ALERTS, settings, NotifierMetrics(CollectorRegistry()), now=lambda: NOON)
    for each, expected in ((alert(cluster=CANARY, subject=CANARY), 0), (alert(), 1)):
        record = Record(ALERTS, each.record_key().encode(), decision_event(each), to_millis(NOON))
        notifier.fold_records([record])
        assert len(notifier.bodies()) == expected


def test_what_it_sends_is_a_reading_like_any_other(loop: Loop) -> None:
    loop.canary.send()
    ((topic, key, value),) = loop.sent
    event = json.loads(value)
    assert (topic, key, event["type"], event["data"]["cluster"]) == (OBSERVED, CANARY, "headgate.log-dirs.v1", CANARY)
