"""Following decisions and what was written down: at the start, at work, and to release."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import LoopTopics
from connectors.actuation.reports import PublishAudit
from connectors.kafka.tail import Record
from connectors.throttle.quotas.actuator import QuotaActuator
from connectors.throttle.quotas.records import Write
from connectors.throttle.quotas.reports import QuotaMetrics
from connectors.throttle.quotas.worker import QuotaWorker, WatchedQuotas
from policies.decisions import Mode
from policies.errors import UserError
from policies.throttle import ThrottleFactor, ThrottleSettings
from policies.throttle.decisions import FreshnessCounts
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_settings import Entity, QuotaSettings
from policies.units import to_millis
from policies.wire import actuator_event, decision_event
from tests.connectors.actuation.tail import CONNECTION, FakeTail, record
from tests.connectors.throttle.quotas.memory import ANY, CLUSTER, KAFKA, Journal, Kafka, applied

DECIDED, APPLIED, AUDIT = "headgate.decided.throttle", "headgate.applied.quotas", "headgate.audit"
DEADLINE_SECONDS = 60.0
SETTINGS = QuotaSettings.model_validate(
    {"entities": [{"client_id": "default", "base": 1_000_000}], "attempts": 1, "max_told_wait": "none"}
)
NOW = datetime.now(UTC)
COUNTS = FreshnessCounts(counted=0, stale=0, departed=0)


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
        self.journal = Journal(kafka.acts)
        self.tail = FakeTail([history], live, self._end)
        topics = LoopTopics(CONNECTION, DECIDED, AUDIT)
        watched = [WatchedQuotas(CLUSTER, KAFKA, SETTINGS, ThrottleSettings())]
        metrics = QuotaMetrics(CollectorRegistry())

        def worker(watched: WatchedQuotas, _: Write, audit: PublishAudit, metrics: QuotaMetrics) -> QuotaWorker:
            return QuotaWorker(watched, self.journal.write, audit, metrics, connect=kafka.connect)

        super().__init__(topics, APPLIED, watched, self._hear, metrics, worker)

    def _open_tail(self, histories: Mapping[str, timedelta | None]) -> FakeTail:
        assert histories == {DECIDED: None, APPLIED: None}
        return self.tail

    def _hear(self, topic: str, key: str, value: bytes) -> None:
        assert (topic, key) == (AUDIT, CLUSTER)
        assert value
        if self._kafka.rates.get(ANY) == self._until:
            self._reached.set()

    def _end(self) -> None:
        assert self._reached.wait(DEADLINE_SECONDS)
        self.stop.set()


def test_the_decision_in_force_is_carried_out_from_the_baseline_that_was_written_down() -> None:
    kafka = Kafka(rates={ANY: 500_000})
    MemoryActuator(kafka, noted(baseline_bytes_per_second=900_000), decided(1.0, 6)).release()
    assert kafka.rates == {ANY: 900_000}


@pytest.mark.parametrize("flipped", [False, True], ids=["the note first", "the decision first"])
def test_decisions_pass_the_fence_only_beyond_what_was_carried_out(flipped: bool) -> None:
    kafka = Kafka(rates={ANY: 500_000})
    history = noted(sequence=5), decided(1.0, 4)
    actuator = MemoryActuator(kafka, *(history[::-1] if flipped else history), live=(decided(0.25, 6),), until=250_000)
    actuator.run(actuator.stop)
    assert kafka.rates == {ANY: 250_000}, "never without a quota, which sequence 4 asked for"
    assert kafka.acts == ["write", "set"]


def test_settings_that_do_not_fit_keep_it_from_beginning() -> None:
    kafka = Kafka(callbacks={1: "io.example.Callback"})
    actuator = MemoryActuator(kafka, decided(0.5, 1))
    with pytest.raises(UserError, match=r"clusters\.payments\.quotas: broker 1 has"):
        actuator.run(actuator.stop)
    assert kafka.rates == {}
    assert actuator.caught_up() is not None


def test_quotas_held_where_nothing_is_watched_any_more_are_named_by_release() -> None:
    elsewhere = noted(cluster="old"), noted(cluster="older"), noted(cluster="older", held=False)
    with pytest.raises(UserError) as error:
        MemoryActuator(Kafka(), *elsewhere).release()
    assert str(error.value) == "Quotas were not put back on old: it is not watched any more."


def test_release_names_what_could_not_be_put_back_and_does_the_rest() -> None:
    kafka = Kafka(rates={ANY: 500_000, Entity(user="alice"): 7}, refuses={ANY: RuntimeError()})
    alice = noted(user="alice", client_id=None, rates_bytes_per_second=(7,))
    with pytest.raises(UserError, match=r"on payments: client-id=<default> \(the log says why\)"):
        MemoryActuator(kafka, noted(), alice).release()
    assert kafka.rates == {ANY: 500_000}


def test_what_another_actuator_writes_down_meanwhile_is_believed() -> None:
    kafka = Kafka(rates={ANY: 500_000})
    live = noted("another", baseline_bytes_per_second=800_000), decided(1.0, 6)
    actuator = MemoryActuator(kafka, noted(), live=live, until=800_000)
    actuator.run(actuator.stop)
    assert kafka.rates == {ANY: 800_000}


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    kafka = Kafka()
    bad = [record(topic, value) for topic in (DECIDED, APPLIED) for value in (b"{", None)]
    actuator = MemoryActuator(kafka, *bad, decided(0.5, 1), live=tuple(bad), until=500_000)
    actuator.run(actuator.stop)
    assert kafka.rates == {ANY: 500_000}
    assert all(isinstance(note, AppliedQuota) for _, note in actuator.journal.notes)
