"""Publishes records without ever blocking, and without dropping any silently."""

import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer
from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.closing import Closing
from connectors.kafka.clock_difference import ClockDifference
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.headers import record_headers
from connectors.kafka.librdkafka import LOGGER, renewed
from policies.errors import UserError
from policies.observations import Reading
from policies.wire import observation_event

DELIVERY_TIMEOUT_SECONDS = 10.0
"""A record that the cluster has not taken by then is given up, and counted.

Short on purpose: an observation's age counts from when Kafka appended it, so one that waited here for minutes would
look fresh. Its successor is on the way anyhow.
"""

_PATIENT_SECONDS = 7 * 86_400.0
_POLL_SECONDS = 0.2
_FINGERPRINT_SECONDS = 3.0
_MAX_RECORD_BYTES = 8 * 1024 * 1024

_log = structlog.get_logger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class PublisherMetrics:
    """What became of records, by topic: make one for a registry, and give it to each publisher.

    Args:
        registry: where they are counted.
        clock: a monotonic clock, in seconds.
    """

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
        """Kafka says that it took a record then, by its clock: hold ours against it."""
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


class Publisher(Closing):
    """Sends records, in order per key, each taken by all in-sync replicas and appended once.

    It may be used from any thread. A thread of its own reports deliveries, and connects anew when a certificate or
    password file has changed. Close it, or use it as a context manager.

    Args:
        connection: how to reach the cluster.
        metrics: where records are counted.
        client_id: how the brokers' logs and quotas name this client.
        delivery_timeout_seconds: how long a record may wait before it is given up.

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
        self._signatures = connection.signatures()
        self._producer = self._build()
        self._retiring: list[Producer] = []
        self._failing: set[str] = set()
        self._closed = threading.Event()
        self._server = threading.Thread(target=self._run, name=f"{client_id}-publisher", daemon=True)
        self._server.start()

    def patient(self) -> "Publisher":
        """Another one, to be closed, for what must not be missing: it gives nothing up while there is room to wait."""
        return Publisher(
            self._connection, self._metrics, client_id="headgate-patient", delivery_timeout_seconds=_PATIENT_SECONDS
        )

    def publish(self, topic: str, key: str, value: bytes | None) -> None:
        """Hand a record over and return at once; without a value it is a tombstone.

        Whether it arrived shows in the metrics and the log only: there is nothing a caller could do about it that the
        next reading does not do better.
        """
        with self._lock:
            if self._closed.is_set():
                self._count(KafkaError(KafkaError._STATE), topic)
                return
            try:
                self._produce(topic, key, value)
            except BufferError:
                # The queue is full of records whose fate is decided but not reported yet, or the cluster is away.
                self._producer.poll(0)
                self._retry_once(topic, key, value)
            except KafkaException as error:
                self._count(error.args[0], topic)

    def flush(self, timeout_seconds: float) -> int:
        """Wait until all records are taken or given up.

        Returns:
            How many are neither when the time is over.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            producers = [self._producer, *self._retiring]
        return sum(producer.flush(max(0.0, deadline - time.monotonic())) for producer in producers)

    def close(self, timeout_seconds: float = DELIVERY_TIMEOUT_SECONDS) -> None:
        """Flush and stop; records that are still waiting after the time-out are counted as unpublished."""
        if self._closed.is_set():
            return
        self.flush(timeout_seconds)
        self._closed.set()
        self._server.join()
        with self._lock:
            for producer in (self._producer, *self._retiring):
                producer.purge()
                producer.flush(1.0)

    def _produce(self, topic: str, key: str, value: bytes | None) -> None:
        headers = record_headers(self._signatures, topic, key, value)
        self._producer.produce(topic, value=value, key=key, headers=headers, on_delivery=self._count_delivery)

    def _retry_once(self, topic: str, key: str, value: bytes | None) -> None:
        try:
            self._produce(topic, key, value)
        except BufferError:
            self._count(KafkaError(KafkaError._QUEUE_FULL), topic)
        except KafkaException as error:
            self._count(error.args[0], topic)

    def _count_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._count(error, message.topic() or "")
        kind, at_ms = message.timestamp()
        if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            self._metrics.appended(at_ms)

    def _count(self, error: KafkaError | None, topic: str) -> None:
        """Count a record's fate, and log when a topic begins or ceases to fail."""
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
        try:
            return Producer({**self._connection.for_confluent(), **self._options}, logger=LOGGER)
        except KafkaException as error:
            raise UserError(f"kafka: {error.args[0].str()}.") from None

    def _run(self) -> None:
        """Report deliveries, and look at the connection's files now and then."""
        look_at = time.monotonic() + _FINGERPRINT_SECONDS
        while not self._closed.is_set():
            with self._lock:
                producer, retiring = self._producer, list(self._retiring)
            for old in retiring:
                old.poll(0)
            producer.poll(_POLL_SECONDS)
            self._drop_empty()
            if time.monotonic() >= look_at:
                self._follow_files()
                look_at = time.monotonic() + _FINGERPRINT_SECONDS

    def _follow_files(self) -> None:
        fingerprint = self._connection.fingerprint()
        if fingerprint == self._fingerprint:
            return
        if (built := renewed(lambda: (self._build(), self._connection.signatures()))) is None:
            return
        _log.info("connection files changed, connecting anew")
        with self._lock:
            # The old one still delivers what it has, or gives it up in time.
            self._retiring.append(self._producer)
            self._producer, self._signatures = built
            self._fingerprint = fingerprint

    def _drop_empty(self) -> None:
        with self._lock:
            self._retiring = [producer for producer in self._retiring if len(producer)]


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
    publish: Callable[[str, str, bytes], None], topic: str, source: str, *, clock: Callable[[], datetime] = _utc_now
) -> Callable[[Reading], None]:
    """What a collector hands its readings to: each becomes an event of `source` on `topic`, keyed by its cluster."""

    def sink(reading: Reading) -> None:
        event = observation_event(reading, id=str(uuid.uuid4()), source=source, time=clock())
        publish(topic, reading.cluster, event)

    return sink
