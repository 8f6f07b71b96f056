"""Following decisions and what was written down: at the start, at work, and to release."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from connectors.actuation.actuator import LoopTopics
from connectors.kafka.quotas import BrokerQuotaSettings
from connectors.kafka.tail import Record
from connectors.throttle.quotas.actuator import QuotaActuator
from connectors.throttle.quotas.reports import QuotaMetrics, QuotaOutlets
from connectors.throttle.quotas.worker import QuotaWorker
from policies.decisions import Mode
from policies.throttle import ThrottleFactor, ThrottleSettings
from policies.throttle.decisions import VolumeCounts
from policies.throttle.quota_entities import Entity
from policies.throttle.quota_settings import QuotaSettings
from policies.units import UserError, to_millis
from policies.wire import actuator_event, decision_event
from tests.connectors.actuation.tail import CONNECTION, FakeTail, record
from tests.connectors.throttle.quotas.test_worker import ANY, CLUSTER, KAFKA, Kafka, applied

DECIDED, APPLIED, AUDIT = "headgate.decided.throttle", "headgate.applied.quotas", "headgate.audit"
DEADLINE_SECONDS = 60.0
SETTINGS = QuotaSettings.model_validate(
    {"entities": [{"client_id": "default", "base": 1_000_000}], "attempts": 1, "max_told_wait": "none"}
)
NOW = datetime.now(UTC)
COUNTS = VolumeCounts(counted=0, stale=0, departed=0)


def decided(factor: float, sequence: int) -> Record:
    decision = ThrottleFactor(
        decision_id=f"id-{sequence}", policy="throttle", cluster=CLUSTER, subject=CLUSTER, sequence=sequence,
        verdict="lower", reason="soft_limit", explanation="as the test wants it", decided_at=NOW, mode=Mode.ACTIVE,
        settings_hash="x", factor=factor, previous_factor=None, raw_factor=factor, limiting=None, volumes=COUNTS,
        brokers=COUNTS, seconds_to_full=None, valid_until=NOW + timedelta(hours=1),
    )  # fmt: skip
    return record(DECIDED, decision_event(decision), to_millis(NOW))


def noted(event_id: str = "before", **fields: Any) -> Record:
    note = applied(**{"valid_until": NOW + timedelta(hours=1), **fields})
    return record(APPLIED, actuator_event(note, id=event_id, at=NOW), to_millis(NOW))


class MemoryActuator(QuotaActuator):
    """Follows topics in memory, acts on a cluster in memory, and ends once that has a rate for all clients.

    Args:
        kafka: the cluster.
        history: what is in the topics at the start.
        live: what comes later.
        until: that rate.
    """

    def __init__(self, kafka: Kafka, *history: Record, live: tuple[Record, ...] = (), until: int = 0) -> None:
        self.stop, self._reached = Event(), Event()
        self._kafka, self._until = kafka, until
        self.tail = FakeTail([history], live, self._end)
        topics = LoopTopics(CONNECTION, DECIDED, AUDIT)
        outlets = QuotaOutlets(partial(self._hear, AUDIT), partial(self._hear, APPLIED), lambda _: None)
        metrics = QuotaMetrics(CollectorRegistry())
        worker = QuotaWorker(CLUSTER, KAFKA, SETTINGS, ThrottleSettings(), outlets, metrics, connect=kafka.connect)
        super().__init__(topics, APPLIED, {CLUSTER: worker})

    def _open_tail(self, histories: Mapping[str, timedelta | None]) -> FakeTail:
        assert histories == {DECIDED: None, APPLIED: None}
        return self.tail

    def _hear(self, topic: str, key: str, value: bytes) -> None:
        assert (topic, key) in ((AUDIT, CLUSTER), (APPLIED, f"{CLUSTER}/{ANY}"))
        assert value
        if self._kafka.rates.get(ANY) == self._until:
            self._reached.set()

    def _end(self) -> None:
        assert self._reached.wait(DEADLINE_SECONDS)
        self.stop.set()


def test_decisions_from_before_and_after_the_start_pass_the_fence() -> None:
    kafka = Kafka()
    actuator = MemoryActuator(kafka, decided(0.5, 5), live=(decided(1.0, 4), decided(0.25, 6)), until=250_000)
    actuator.run(actuator.stop)
    assert kafka.rates == {ANY: 250_000}, "never without a quota, which sequence 4 asked for"


@pytest.mark.parametrize("baseline", [None, 1, 10**12], ids=["none", "1 B/s", "1 TB/s"])
@pytest.mark.parametrize("user", [None, "replicator"], ids=["an entity of the settings", "a user they do not name"])
def test_a_forged_record_takes_no_quota_away_and_is_no_original(
    baseline: int | None, user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.actuation.level_worker.AGAIN_SECONDS", 0.05)
    replicator = Entity(user="replicator")
    kafka = Kafka(rates={ANY: 900_000, replicator: 900_000})
    forged = noted(
        user=user, client_id=None if user else "default", rates_bytes_per_second=(900_000,),
        baseline_bytes_per_second=baseline, sequence=99,
    )  # fmt: skip
    actuator = MemoryActuator(kafka, forged, decided(0.5, 1), live=(forged, decided(1.0, 2)), until=900_000)
    actuator.run(actuator.stop)
    assert kafka.rates == {ANY: 900_000, replicator: 900_000}


def test_settings_that_do_not_fit_keep_it_from_beginning() -> None:
    kafka = Kafka(brokers={1: BrokerQuotaSettings("io.example.Callback")})
    actuator = MemoryActuator(kafka, decided(0.5, 1))
    with pytest.raises(UserError, match=r"clusters\.payments\.quotas: broker 1 has"):
        actuator.run(actuator.stop)
    assert kafka.rates == {}
    assert actuator.caught_up() is not None


def test_quotas_held_on_a_cluster_without_quotas_in_the_settings_are_logged() -> None:
    elsewhere = noted(cluster="old"), noted(cluster="older"), noted(cluster="older", held=False)
    actuator = MemoryActuator(Kafka(), *elsewhere, decided(0.5, 1), until=500_000)
    with capture_logs() as logs:
        actuator.run(actuator.stop)
    assert [entry["cluster"] for entry in logs if "still has our quotas" in entry["event"]] == ["old"]


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    kafka = Kafka()
    bad = [record(topic, value) for topic in (DECIDED, APPLIED) for value in (b"{", None)]
    actuator = MemoryActuator(kafka, *bad, decided(0.5, 1), live=tuple(bad), until=500_000)
    actuator.run(actuator.stop)
    assert kafka.rates == {ANY: 500_000}
