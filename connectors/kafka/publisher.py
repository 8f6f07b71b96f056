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

from connectors.kafka.connection import KafkaConnection, build_client, rebuild
from connectors.kafka.probes import ClockDifference
from connectors.kafka.topics import HEADERS
from policies.observations import Reading
from policies.wire import observation_event

DELIVERY_TIMEOUT_SECONDS = 10.0
"""The limit after which an undelivered record is given up and counted.

It is short on purpose. An observation's age counts from its append time, so one that waited here for minutes would look
fresh. The next reading replaces it.
"""

_PATIENT_SECONDS = 7 * 86_400.0
_POLL_SECONDS = 0.2
_FINGERPRINT_SECONDS = 3.0
_MAX_RECORD_BYTES = 8 * 1024 * 1024

_log = structlog.get_logger(__name__)


class PublisherMetrics:
    """Counts records by topic and result, for all publishers of a registry."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
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
        self._difference = ClockDifference(clock)

    def appended(self, appended_ms: int) -> None:
        """Compare the append time of a record, by Kafka's clock, with this machine's clock."""
        if not self._difference.note(time.time_ns() // 1_000_000, appended_ms):
            return
        ahead_seconds = self._difference.ahead_ms / 1000
        self._ahead.set(ahead_seconds)
        if ahead_seconds:
            _log.warning(
                "this machine's clock and Kafka's differ: set the one that is wrong", ahead_seconds=ahead_seconds
            )
        else:
            _log.info("this machine's clock and Kafka's agree again")


class Publisher(AbstractContextManager["Publisher"]):
    """Sends records in order per key; all in-sync replicas acknowledge each, and it is appended once.

    It may be used from any thread. Its own thread handles delivery reports, and connects again when a certificate or
    password file changes. Close it, or use it as a context manager.

    Raises:
        UserError: the connection's files cannot be used.
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
        self._options = _options(client_id, delivery_timeout_seconds)
        self._lock = threading.Lock()
        self._fingerprint = connection.fingerprint()
        self._producers = [self._build()]
        """The first one sends; the others, with files of before, still deliver what they have queued."""
        self._failing: set[str] = set()
        self._closed = threading.Event()
        self._server = threading.Thread(target=self._run, name=f"{client_id}-publisher", daemon=True)
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
            if self._closed.is_set():
                self._count(KafkaError(KafkaError._STATE), topic)
                return
            try:
                try:
                    self._produce(topic, key, value)
                except BufferError:
                    # The queue is full, maybe of records whose delivery reports are waiting to be handled.
                    self._producers[0].poll(0)
                    self._produce(topic, key, value)
            except BufferError:
                self._count(KafkaError(KafkaError._QUEUE_FULL), topic)
            except KafkaException as error:
                self._count(error.args[0], topic)

    def flush(self, timeout_seconds: float) -> int:
        """Wait until all records are delivered or given up.

        Returns:
            The number of records that are still waiting after the timeout.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            producers = list(self._producers)
        return sum(producer.flush(max(0.0, deadline - time.monotonic())) for producer in producers)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_seconds: float = DELIVERY_TIMEOUT_SECONDS) -> None:
        """Flush and stop; records that still wait after the timeout are counted as unpublished."""
        if self._closed.is_set():
            return
        self.flush(timeout_seconds)
        self._closed.set()
        self._server.join()
        with self._lock:
            while self._producers:  # the threads and connections of a producer end with the last reference to it
                producer = self._producers.pop()
                producer.purge()
                producer.flush(1.0)

    def _produce(self, topic: str, key: str, value: bytes | None) -> None:
        self._producers[0].produce(topic, value=value, key=key, headers=HEADERS, on_delivery=self._count_delivery)

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

    def _build(self) -> Producer:
        return build_client(Producer, {**self._connection.for_confluent(), **self._options})

    def _run(self) -> None:
        """Handle delivery reports, and check the connection's files every 3 s."""
        look_at = time.monotonic() + _FINGERPRINT_SECONDS
        while not self._closed.is_set():
            with self._lock:
                producer, *retiring = self._producers
            for old in retiring:
                old.poll(0)
            producer.poll(_POLL_SECONDS)
            with self._lock:
                self._producers[1:] = [each for each in self._producers[1:] if len(each)]
            if time.monotonic() >= look_at:
                self._follow_files()
                look_at = time.monotonic() + _FINGERPRINT_SECONDS

    def _follow_files(self) -> None:
        fingerprint = self._connection.fingerprint()
        if fingerprint == self._fingerprint:
            return
        if (producer := rebuild(self._build)) is None:
            return
        _log.info("connection files changed, connecting again")
        with self._lock:
            self._producers.insert(0, producer)
            self._fingerprint = fingerprint


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


def observations_to(
    publish: Callable[[str, str, bytes], None],
    topic: str,
    source: str,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Callable[[Reading], None]:
    """Return a function that publishes a reading on `topic` as an event of `source`, keyed by its cluster."""

    def sink(reading: Reading) -> None:
        event = observation_event(reading, id=str(uuid.uuid4()), source=source, time=clock())
        publish(topic, reading.cluster, event)

    return sink
