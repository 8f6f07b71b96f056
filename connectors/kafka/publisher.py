"""Publishes records without blocking; every record that is given up is counted."""

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import structlog
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer
from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.kafka.clients import build_client
from connectors.kafka.connection import KafkaConnection
from policies.observations import Reading
from policies.wire import CONTENT_TYPE, observation_event

DELIVERY_TIMEOUT_SECONDS = 10.0
"""The limit after which an undelivered record is given up and counted.

It is short on purpose. An observation's age counts from its append time, so one that waited here for minutes would look
fresh. The next reading replaces it.
"""

TOLERATED_SECONDS = 60.0
"""Smaller differences of the clocks count as none. A process that was stopped for longer shows one until its next
record; the alert waits a minute."""

_PATIENT_SECONDS = 7 * 86_400.0
_POLL_SECONDS = 0.2
_MAX_RECORD_BYTES = 8 * 1024 * 1024
_HEADERS: dict[str, str | bytes | None] = {"content-type": CONTENT_TYPE}

_log = structlog.get_logger(__name__)


class PublisherMetrics:
    """Counts records by topic and result, for all publishers of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = Counter(
            "headgate_records_published", "Records the cluster has taken.", ("topic",), registry=registry
        )
        self.unpublished = Counter(
            "headgate_records_unpublished",
            "Records given up, by Kafka's name of the error.",
            ("topic", "error"),
            registry=registry,
        )
        self._ahead = Gauge(
            "headgate_clock_ahead_seconds",
            "How far the clock of the machine that publishes is ahead of Kafka's, where that is more than a minute. "
            "0: they agree, or nothing is published.",
            registry=registry,
        )

    def appended(self, appended_ms: int) -> None:
        """Compare the append time of a record that was just taken, by Kafka's clock, with this machine's clock."""
        ahead_seconds = time.time() - appended_ms / 1000
        self._ahead.set(0 if abs(ahead_seconds) <= TOLERATED_SECONDS else ahead_seconds)


class Publisher(AbstractContextManager["Publisher"]):
    """Sends records in order per key; all in-sync replicas acknowledge each, and it is appended once.

    It may be used from any thread. Its own thread handles delivery reports. Close it, or use it as a context manager.
    Raises UserError if the connection's files cannot be used.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        metrics: PublisherMetrics,
        *,
        client_id: str = "headgate",
        delivery_timeout_seconds: float = DELIVERY_TIMEOUT_SECONDS,
    ) -> None:
        self._connection = connection
        self._metrics = metrics
        self._lock = threading.Lock()
        options = {**connection.for_confluent(), **_options(client_id, delivery_timeout_seconds)}
        self._producer: Producer | None = build_client(Producer, options)
        """None once it is closed."""
        self._failing: set[str] = set()
        self._closed = threading.Event()
        self._server = threading.Thread(
            target=self._run, args=(self._producer,), name=f"{client_id}-publisher", daemon=True
        )
        self._server.start()

    def patient(self) -> "Publisher":
        """Return another publisher, to be closed, that keeps a record for 7 days while its queue has room."""
        return Publisher(
            self._connection, self._metrics, client_id="headgate-patient", delivery_timeout_seconds=_PATIENT_SECONDS
        )

    def publish(self, topic: str, key: str, value: bytes | None) -> None:
        """Queue a record and return at once; a record without a value is a tombstone.

        Only the metrics and the log show whether it arrived. A caller has no better remedy than its next reading.
        """
        with self._lock:
            if self._producer is None:
                self._count(KafkaError(KafkaError._STATE), topic)
                return
            try:
                self._producer.produce(topic, value=value, key=key, headers=_HEADERS, on_delivery=self._count_delivery)
            except BufferError:
                self._count(KafkaError(KafkaError._QUEUE_FULL), topic)
            except KafkaException as error:
                self._count(error.args[0], topic)

    def flush(self, timeout_seconds: float) -> int:
        """Wait until all records are delivered or given up; return how many still wait after the timeout."""
        with self._lock:
            producer = self._producer
        return 0 if producer is None else producer.flush(timeout_seconds)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_seconds: float = DELIVERY_TIMEOUT_SECONDS) -> None:
        """Flush and stop; records that still wait after the timeout are counted as unpublished."""
        with self._lock:  # the threads and connections of a producer end with the last reference to it
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(timeout_seconds)
            self._closed.set()
            self._server.join()
            producer.purge()
            producer.flush(1.0)

    def _count_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._count(error, message.topic() or "")
        kind, at_ms = message.timestamp()
        if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            self._metrics.appended(at_ms)

    def _count(self, error: KafkaError | None, topic: str) -> None:
        """Count a record, and log when a topic starts or stops failing."""
        if error is None:
            self._metrics.published.labels(topic).inc()
            if topic in self._failing:
                self._failing.discard(topic)
                _log.info("records are published again", topic=topic)
            return
        self._metrics.unpublished.labels(topic, error.name()).inc()
        if topic not in self._failing:
            self._failing.add(topic)
            _log.error("records are not published", topic=topic, error=error.name(), detail=error.str())

    def _run(self, producer: Producer) -> None:
        """Handle delivery reports."""
        while not self._closed.is_set():
            producer.poll(_POLL_SECONDS)


def _options(client_id: str, delivery_timeout_seconds: float) -> dict[str, Any]:
    return {
        "client.id": client_id,
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": "lz4",
        "linger.ms": 2,
        "delivery.timeout.ms": round(delivery_timeout_seconds * 1000),
        "message.max.bytes": _MAX_RECORD_BYTES,
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 64 * 1024,
        "reconnect.backoff.max.ms": 2000,
    }


def observations_to(publish: Callable[[str, str, bytes], None], topic: str, source: str) -> Callable[[Reading], None]:
    """Return a function that publishes a reading on `topic` as an event of `source`, keyed by its cluster."""

    def sink(reading: Reading) -> None:
        event = observation_event(reading, id=str(uuid.uuid4()), source=source, time=datetime.now(UTC))
        publish(topic, reading.cluster, event)

    return sink
