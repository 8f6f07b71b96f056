"""Producers that try to write at a fixed rate and so fill the disk."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.quotas import FAILURES, QuotaClient
from connectors.kafka.tail import Tail
from policies.bookie_disks.readings import PublishApplication
from policies.observations import ReportResult
from policies.throttle.quota_entities import DEFAULT, Entity
from policies.throttle.readings import QuotaApplication
from policies.wire import BadRecordError, EventReader

RECORD_BYTES = 16_384

_PRODUCERS = 3
_TICK_SECONDS = 0.02
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # discarded by `stop`


class Load:
    """Producers with `acks=all` that together want to write at a given rate, each with one request in flight.

    Records that the brokers do not accept wait in a queue of one second. While it is full, no more are produced, so no
    burst follows a release.

    Args:
        servers: bootstrap servers of the cluster, `host:port`, comma separated.
        bytes_per_second: the rate of all producers together; a function is called at each tick.
    """

    def __init__(self, servers: str, topic: str, bytes_per_second: float | Callable[[], float]) -> None:
        self._wanted = bytes_per_second
        self.acknowledged: Counter[int] = Counter()
        """Acknowledged records by partition."""
        self.last_offset: dict[int, int] = {}
        self.failed = 0
        self.throttled: list[tuple[float, float]] = []
        """Throttle events of the brokers: when (monotonic), and for how many seconds."""
        self._topic = topic
        common = {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            # With more requests in flight, an idempotent producer that a broker throttles takes a whole core.
            "max.in.flight.requests.per.connection": 1,
            "throttle_cb": self._on_throttle,
            "log_level": 0,  # in some runs a broker is killed on purpose
        }
        # One client id, so that a quota applies to all of them together.
        self._producers = [Producer({**common, "client.id": "app"}) for _ in range(_PRODUCERS)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def acknowledged_bytes(self) -> int:
        """Bytes that the brokers have acknowledged."""
        return sum(self.acknowledged.values()) * RECORD_BYTES

    @property
    def bytes_per_second(self) -> float:
        """The wanted rate now."""
        return self._wanted() if callable(self._wanted) else self._wanted

    def stop(self) -> None:
        """Produce no more, and discard the records that still wait."""
        self._stop.set()
        self._thread.join()
        for producer in self._producers:
            producer.flush(1)
            producer.purge()
            producer.flush(2)

    def _write(self) -> None:
        payload, owed, before = os.urandom(RECORD_BYTES), 0.0, time.monotonic()
        while not self._stop.wait(_TICK_SECONDS):
            now, wanted = time.monotonic(), self.bytes_per_second
            most_waiting = wanted / _PRODUCERS / RECORD_BYTES
            owed, before = min(owed + (now - before) * wanted, wanted / 5), now
            while owed >= RECORD_BYTES * _PRODUCERS:
                owed -= RECORD_BYTES * _PRODUCERS
                for producer in self._producers:
                    if len(producer) < most_waiting:
                        producer.produce(self._topic, payload, on_delivery=self._on_delivery)
            for producer in self._producers:
                producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += error.code() not in _PURGED
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        self.acknowledged[partition] += 1
        self.last_offset[partition] = max(offset, self.last_offset.get(partition, -1))

    def _on_throttle(self, event: Any) -> None:
        if event.throttle_time > 0:
            self.throttled.append((time.monotonic(), event.throttle_time))


# Follows the effect of decisions: the broker's quota, and the actuator's events in the audit topic.

EVERY_CLIENT = Entity(client_id=DEFAULT)
"""The default quota, for each client id without a quota of its own."""

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 2.0


class QuotaFollower:
    """Polls the broker for the default quota of clients."""

    def __init__(self, servers: str) -> None:
        self._connection = KafkaConnection(bootstrap_servers=servers)
        self.quota: int | None = None
        """Bytes a second by the broker's latest answer; None without a quota."""

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set."""
        client = QuotaClient(self._connection, _ANSWER_SECONDS)
        try:
            while not stop.wait(_POLL_SECONDS):
                try:
                    client.describe()
                    self.quota = client.rates([EVERY_CLIENT])[EVERY_CLIENT]
                except FAILURES:
                    continue  # the broker is busy; the next poll follows soon
        finally:
            client.close()


class AuditFollower:
    """Passes on an actuator's sentences about what it set, or failed to set."""

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        kind: type[QuotaApplication | PublishApplication],
        on_sentence: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._on_sentence = on_sentence
        self._reader: EventReader[QuotaApplication | PublishApplication] = EventReader([kind])

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set."""
        with Tail(self._connection, {self._topic: None}, "headgate-demo") as tail:
            while not stop.is_set():
                for record in tail.poll(_POLL_SECONDS):
                    if record.value is not None and (sentence := self._sentence(record.value)):
                        self._on_sentence(sentence)

    def _sentence(self, record: bytes) -> str | None:
        try:
            event = self._reader.read(record).data
        except BadRecordError:
            return None  # an event of another kind
        is_news = event.outcome is not ReportResult.UNCHANGED
        return event.explanation if is_news else None
