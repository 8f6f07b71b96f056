"""The cordons of one cluster follow its alerts: through crashes, failures and other hands; in virtual time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import LoopTopics
from connectors.kafka.cordons import CordonClient
from connectors.kafka.log_dirs import WatchedKafka
from connectors.throttle.cordon_actuator import CordonActuator, CordonMetrics, CordonWorker
from policies.decisions import Alert, AlertStatus, Mode, Severity
from policies.throttle.alert_kinds import BELOW_HARD, BELOW_SOFT
from policies.units import to_millis
from policies.wire import decision_event
from tests.connectors.actuation.tail import CONNECTION, record
from tests.connectors.actuation.virtual_clock import NOON, VirtualClock
from tests.policies.scenario import HARD, SOFT_AND_HARD, throttle


def soft_limit_alert(status: AlertStatus, sequence: int, log_dir: str = "/a", mode: Mode = Mode.ACTIVE) -> Alert:
    """An alert about a volume of broker 1 of payments."""
    return Alert(
        decision_id=f"{log_dir}-{sequence}",
        policy="throttle",
        cluster="payments",
        subject=f"payments/1{log_dir}",
        sequence=sequence,
        verdict=status.value,
        reason="soft_limit",
        explanation="",
        decided_at=NOON,
        mode=mode,
        settings_hash="",
        valid_until=None,
        alert_id="a",
        alert=BELOW_SOFT,
        severity=Severity.WARNING,
        status=status,
        started_at=NOON,
        ended_at=None,
        summary="",
        labels={"cluster": "payments", "broker": "1", "log_dir": log_dir},
    )


V, W = (1, "/a"), (1, "/b")


@dataclass(eq=False)
class Kafka(CordonClient):
    """A cluster of one broker with two log dirs."""

    cordoned: set[tuple[int, str]] = field(default_factory=set)
    records: set[tuple[int, str]] = field(default_factory=set)
    acts: list[str] = field(default_factory=list)
    obstacle: str | None = None
    fails_after: int = 1000

    def _act(self, text: str) -> None:
        self.fails_after -= 1
        if self.fails_after < 0:
            raise KafkaTimeoutError
        self.acts.append(text)

    def read_cordons(self, cluster: str) -> dict[tuple[int, str], bool]:
        return {volume: volume in self.cordoned for volume in (V, W)}

    def read_records(self) -> set[tuple[int, str]]:
        return set(self.records)

    def find_obstacle(self, broker: int) -> str | None:
        return self.obstacle

    def record(self, volume: tuple[int, str], *, is_held: bool) -> None:
        self._act(f"record {volume[1]} {is_held}")
        (self.records.add if is_held else self.records.discard)(volume)

    def cordon(self, volume: tuple[int, str], *, is_cordoned: bool) -> None:
        self._act(f"cordon {volume[1]} {is_cordoned}")
        (self.cordoned.add if is_cordoned else self.cordoned.discard)(volume)

    def close(self) -> None:
        pass


class Bench:
    """One cluster's worker, with its clock in hand."""

    def __init__(self) -> None:
        self.clock, self.kafka, self.events = VirtualClock(still=True), Kafka(), list[dict[str, Any]]()
        self.registry = CollectorRegistry()
        self.metrics = CordonMetrics(self.registry)
        self.worker = self.made()

    def made(self, limits: Mapping[str, Any] = SOFT_AND_HARD) -> CordonWorker:
        return CordonWorker(
            "payments",
            WatchedKafka(bootstrap_servers="kafka:9092"),
            throttle(limits),
            lambda _, event: self.events.append(json.loads(event)["data"]),
            self.metrics,
            clock=self.clock,
            connect=lambda _: self.kafka,
        )

    def reconcile(self, *alerts: Alert, after: float = 0.0) -> list[str]:
        """Time passes, alerts come in, and what is due is done. Returns the operations on the cluster."""
        self.clock.advance(after)
        before = len(self.kafka.acts)
        for alert in alerts:
            self.worker.receive(alert, self.clock.now())
        self.worker.reconcile(Event())
        return self.kafka.acts[before:]


@pytest.fixture
def bench() -> Bench:
    return Bench()


FIRING, RESOLVED = AlertStatus.FIRING, AlertStatus.RESOLVED
CORDON = ["record /a True", "cordon /a True"]
OPEN = ["cordon /a False", "record /a False"]


def test_a_volume_is_cordoned_while_its_alert_fires(bench: Bench) -> None:
    assert bench.reconcile(soft_limit_alert(FIRING, 1)) == CORDON
    assert bench.reconcile(after=60) == []
    assert bench.reconcile(soft_limit_alert(RESOLVED, 2)) == OPEN
    assert (bench.kafka.cordoned, bench.kafka.records) == (set(), set())
    said = [(event["verdict"], event["outcome"], event["log_dir"]) for event in bench.events]
    assert said == [("cordon", "applied", "/a"), ("open", "applied", "/a")]


def test_an_operators_cordon_is_neither_recorded_nor_opened(bench: Bench) -> None:
    bench.kafka.cordoned = {V}
    assert bench.reconcile(soft_limit_alert(FIRING, 1)) == []
    assert bench.reconcile(soft_limit_alert(RESOLVED, 2)) == []
    assert bench.kafka.cordoned == {V}


def test_a_volume_opened_by_hand_stays_open_until_it_has_recovered(bench: Bench) -> None:
    bench.reconcile(soft_limit_alert(FIRING, 1))
    bench.reconcile(after=60)
    bench.kafka.cordoned.clear()
    assert bench.reconcile(after=60) == ["record /a False"]
    assert bench.reconcile(after=60) == []
    bench.reconcile(soft_limit_alert(RESOLVED, 2))
    assert bench.reconcile(soft_limit_alert(FIRING, 3)) == CORDON


@pytest.mark.parametrize("fails_after", [0, 1])
def test_killed_or_refused_in_between_it_is_carried_on(bench: Bench, fails_after: int) -> None:
    bench.kafka.fails_after = fails_after
    bench.reconcile(soft_limit_alert(FIRING, 1))
    assert bench.kafka.cordoned == set()
    labels = {"cluster": "payments"}
    assert bench.registry.get_sample_value("headgate_cordon_failing", labels) == 1.0
    bench.kafka.fails_after = 1000
    bench.worker = bench.made()
    bench.worker.recall(soft_limit_alert(FIRING, 1), NOON)
    bench.reconcile()
    assert (bench.kafka.cordoned, bench.kafka.records) == ({V}, {V})
    bench.worker = bench.made()
    bench.worker.recall(soft_limit_alert(RESOLVED, 2), NOON)
    bench.reconcile()
    assert (bench.kafka.cordoned, bench.kafka.records) == (set(), set())


def test_in_shadow_mode_nothing_is_cordoned_and_what_was_is_opened(bench: Bench) -> None:
    assert bench.reconcile(soft_limit_alert(FIRING, 1, mode=Mode.SHADOW)) == []
    bench.reconcile(soft_limit_alert(FIRING, 2))
    assert bench.reconcile(soft_limit_alert(FIRING, 3, mode=Mode.SHADOW)) == OPEN


def test_a_silent_loop_opens_and_cordons_nothing(bench: Bench) -> None:
    until = {"valid_until": NOON + timedelta(hours=8)}
    bench.reconcile(soft_limit_alert(FIRING, 1).model_copy(update=until))
    bench.kafka.obstacle = "the broker is older than Kafka 4.3, which has no cordons"
    bench.reconcile(soft_limit_alert(FIRING, 1, "/b").model_copy(update=until))
    bench.kafka.obstacle = None
    assert bench.reconcile(after=10 * 86_400) == []
    assert bench.kafka.cordoned == {V}
    bench.kafka.cordoned.clear()
    assert bench.reconcile(after=60) == []
    assert bench.reconcile(soft_limit_alert(RESOLVED, 2)) == OPEN


def test_an_unexpected_error_is_shown_and_somebody_stays_at_work(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("not thought of")

    with monkeypatch.context() as patch:
        patch.setattr(Kafka, "read_records", fail)
        assert bench.reconcile(soft_limit_alert(FIRING, 1)) == []
        assert bench.registry.get_sample_value("headgate_cordon_failing", {"cluster": "payments"}) == 1
    assert bench.reconcile(after=6) == CORDON


def test_an_old_broker_or_a_list_in_its_properties_is_refused_once(bench: Bench) -> None:
    bench.kafka.obstacle = "the broker is older than Kafka 4.3, which has no cordons"
    bench.reconcile(soft_limit_alert(FIRING, 1))
    bench.reconcile(after=60)
    assert [(e["outcome"], e["detail"]) for e in bench.events] == [("refused", bench.kafka.obstacle)]
    assert bench.kafka.acts == []


def test_who_may_not_act_does_nothing(bench: Bench) -> None:
    bench.worker.may_act = lambda: False
    assert bench.reconcile(soft_limit_alert(FIRING, 1)) == []


def test_the_release_opens_what_headgate_cordoned_and_no_more(bench: Bench) -> None:
    bench.reconcile(soft_limit_alert(FIRING, 1))
    bench.kafka.cordoned.add(W)
    assert list(bench.made().release()) == ["payments: broker 1 /a is not cordoned any more."]
    assert (bench.kafka.cordoned, bench.kafka.records) == ({W}, set())


@pytest.mark.parametrize("broker", [None, "", "one", "-1", "9" * 5000])
def test_a_forged_alert_without_a_broker_is_passed_over(bench: Bench, broker: str | None) -> None:
    topics = LoopTopics(CONNECTION, "headgate.decided.alerts", "headgate.audit")
    actuator = CordonActuator(topics, {"payments": bench.worker})
    true = soft_limit_alert(FIRING, 1)
    labels = {"log_dir": "/a"} if broker is None else {"log_dir": "/a", "broker": broker}
    for alert, expected in ((true, true), (true.model_copy(update={"labels": labels}), None)):
        assert actuator._read_decision(record(topics.decided, decision_event(alert))) == expected


def test_a_forged_end_opens_a_volume_until_the_next_repeat_of_its_alert_only(bench: Bench) -> None:
    bench.reconcile(soft_limit_alert(FIRING, 1))
    assert bench.reconcile(soft_limit_alert(RESOLVED, to_millis(NOON))) == OPEN
    repeat = soft_limit_alert(FIRING, 2).model_copy(update={"decided_at": NOON + timedelta(minutes=1)})
    assert bench.reconcile(repeat, after=60) == CORDON


def test_without_a_soft_limit_the_hard_one_is_followed(bench: Bench) -> None:
    assert bench.made().alert == BELOW_SOFT
    assert bench.made(HARD).alert == BELOW_HARD
