"""Whatever becomes of a record, it is counted once, and nobody who hands one over waits for it."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from connectors.kafka import publisher as module
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics

TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE


@dataclass
class Record:
    """What a delivery report is about."""

    of_topic: str

    def topic(self) -> str:
        return self.of_topic

    def timestamp(self) -> tuple[int, int]:
        """When Kafka appended it, by its clock."""
        return TIMESTAMP_LOG_APPEND_TIME, time.time_ns() // 1_000_000


@dataclass
class Cluster:
    """What all producers of a test talk to."""

    is_away: bool = False
    refuses: dict[str, int] = field(default_factory=dict)
    """Errors by topic."""
    capacity: int = 1000
    taken: list[tuple[str, bytes, str]] = field(default_factory=list)
    producers: list["FakeProducer"] = field(default_factory=list)

    def producer(self, options: dict[str, Any], logger: object) -> "FakeProducer":
        self.producers.append(FakeProducer(self, options))
        return self.producers[-1]


class FakeProducer:
    """confluent-kafka's producer as far as it is used: reports come from `poll` and `flush` only."""

    def __init__(self, cluster: Cluster, options: dict[str, Any]) -> None:
        self.cluster = cluster
        self.options = options
        self.waiting: list[tuple[str, bytes, str, Callable[[KafkaError | None, Record], None]]] = []
        self.idle = threading.Event()
        self.lock = threading.RLock()

    def produce(
        self, topic: str, value: bytes, key: str, headers: dict[str, str], on_delivery: Callable[..., None]
    ) -> None:
        assert headers == {"content-type": "application/cloudevents+json; charset=UTF-8"}
        if self.cluster.refuses.get(topic) == TOO_LARGE:
            raise KafkaException(KafkaError(TOO_LARGE))
        if len(self.waiting) >= self.cluster.capacity:
            raise BufferError("Local: Queue full")
        with self.lock:
            self.waiting.append((topic, value, key, on_delivery))

    def poll(self, timeout: float) -> int:
        if timeout:
            self.idle.wait(0.001)
        return self._report()

    def flush(self, timeout: float) -> int:
        self._report()
        return len(self.waiting)

    def purge(self) -> None:
        waiting, self.waiting = self.waiting, []
        for topic, _, _, report in waiting:
            report(KafkaError(KafkaError._PURGE_QUEUE), Record(topic))

    def _report(self) -> int:
        if self.cluster.is_away:
            return 0
        with self.lock:
            waiting, self.waiting = self.waiting, []
            for topic, value, key, report in waiting:
                code = self.cluster.refuses.get(topic)
                if code is None:
                    self.cluster.taken.append((topic, value, key))
                report(None if code is None else KafkaError(code), Record(topic))
        return len(waiting)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "Producer", made.producer)
    return made


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def publisher(cluster: Cluster, registry: CollectorRegistry) -> Iterator[Publisher]:
    with Publisher(KafkaConnection(bootstrap_servers="k:9092"), PublisherMetrics(registry)) as made:
        yield made


def published(registry: CollectorRegistry, topic: str = "t") -> float | None:
    return registry.get_sample_value("headgate_records_published_total", {"topic": topic})


def unpublished(registry: CollectorRegistry, error: str, topic: str = "t") -> float | None:
    return registry.get_sample_value("headgate_records_unpublished_total", {"topic": topic, "error": error})


def test_a_record_that_was_taken_is_counted_once_and_its_time_compared(
    publisher: Publisher, cluster: Cluster, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(PublisherMetrics, "appended", lambda self, appended_ms: seen.append(appended_ms))
    publisher.publish("t", "payments", b"one")
    assert publisher.flush(30) == 0
    assert len(seen) == 1
    assert cluster.taken == [("t", b"one", "payments")]
    assert published(registry) == 1


@pytest.mark.parametrize("ahead_ms", [86_400_000, -86_400_000])
def test_a_clock_that_is_not_kafkas_is_shown_until_it_is_over(registry: CollectorRegistry, ahead_ms: int) -> None:
    metrics = PublisherMetrics(registry)

    def told(ahead_ms: int) -> float | None:
        metrics.appended(time.time_ns() // 1_000_000 - ahead_ms)
        return registry.get_sample_value("headgate_clock_ahead_seconds")

    assert told(30_000) == 0
    assert told(ahead_ms) == pytest.approx(ahead_ms / 1000, abs=10)
    assert told(-30_000) == 0


def test_a_record_is_appended_once_by_all_replicas_or_given_up_soon(publisher: Publisher, cluster: Cluster) -> None:
    options = cluster.producers[0].options
    assert (options["enable.idempotence"], options["acks"], options["delivery.timeout.ms"]) == (True, "all", 10_000)


@pytest.mark.parametrize(
    ("code", "error"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"), (TOO_LARGE, "MSG_SIZE_TOO_LARGE")],
    ids=["refused", "not even queued"],
)
def test_what_the_cluster_does_not_take_is_counted_by_kafkas_name_of_the_error(
    publisher: Publisher, cluster: Cluster, registry: CollectorRegistry, code: int, error: str
) -> None:
    cluster.refuses["t"] = code
    publisher.publish("t", "payments", b"one")
    publisher.flush(30)
    assert (published(registry), unpublished(registry, error)) == (None, 1)


def test_the_log_tells_when_a_topic_begins_and_ceases_to_fail_and_no_more(
    publisher: Publisher, cluster: Cluster
) -> None:
    with capture_logs() as lines:
        for error in (None, KafkaError._MSG_TIMED_OUT, KafkaError._MSG_TIMED_OUT, None, None):
            cluster.refuses = {} if error is None else {"t": error}
            publisher.publish("t", "payments", b"one")
            publisher.flush(30)
    assert [line["event"] for line in lines] == ["records are not published", "records are published again"]


def test_a_queue_that_stays_full_drops_and_counts_without_waiting(
    publisher: Publisher, cluster: Cluster, registry: CollectorRegistry
) -> None:
    cluster.is_away, cluster.capacity = True, 1
    for value in (b"one", b"two"):
        publisher.publish("t", "payments", value)
    assert unpublished(registry, "_QUEUE_FULL") == 1


def test_what_still_waits_at_the_end_is_counted(cluster: Cluster, registry: CollectorRegistry) -> None:
    publisher = Publisher(KafkaConnection(bootstrap_servers="k:9092"), PublisherMetrics(registry))
    cluster.is_away = True
    publisher.publish("t", "payments", b"one")
    assert publisher.flush(0) == 1
    publisher.close(0)
    assert unpublished(registry, "_PURGE_QUEUE") == 1


def test_after_the_end_records_are_counted_and_not_sent(cluster: Cluster, registry: CollectorRegistry) -> None:
    publisher = Publisher(KafkaConnection(bootstrap_servers="k:9092"), PublisherMetrics(registry))
    publisher.close()
    publisher.close()
    publisher.publish("t", "payments", b"late")
    assert (cluster.taken, unpublished(registry, "_STATE")) == ([], 1)


def librdkafka_threads() -> set[str]:
    return {name for thread in Path("/proc/self/task").iterdir() if (name := _read_name(thread)).startswith("rdk")}


def _read_name(thread: Path) -> str:
    try:
        return f"{(thread / 'comm').read_text().strip()} {thread.name}"
    except OSError:  # it ended meanwhile
        return ""


def test_a_closed_publisher_leaves_no_thread_that_connects_or_logs() -> None:
    before = librdkafka_threads()
    connection = KafkaConnection(bootstrap_servers="127.0.0.1:1")
    publisher = Publisher(connection, PublisherMetrics(CollectorRegistry()))
    assert librdkafka_threads() - before
    publisher.close(0.0)
    assert librdkafka_threads() - before == set()
    publisher.publish("t", "k", b"v")
    assert publisher.flush(0.0) == 0
