"""Producers that try to write at a fixed rate and so fill the disk."""

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

RECORD_BYTES = 16_384

_PRODUCERS = 3
_TICK_SECONDS = 0.02


class Load:
    """Producers with `acks=all` that together want to write at a given rate, each with one request in flight.

    Records that the brokers do not accept wait in a queue of one second. While it is full, no more are produced, so no
    burst follows a release. The rate is that of all producers together.
    """

    def __init__(
        self, servers: str, topic: str, bytes_per_second: float, more: Mapping[str, Any] | None = None
    ) -> None:
        self._wanted = bytes_per_second
        self.acknowledged: Counter[int] = Counter()
        """Acknowledged records by partition."""
        self._topic = topic
        common = {
            "bootstrap.servers": servers,
            "client.id": "app",  # one for all, so that a quota applies to all of them together
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            # With more requests in flight, an idempotent producer that a broker throttles takes a whole core.
            "max.in.flight.requests.per.connection": 1,
            "log_level": 0,  # in some runs a broker is killed on purpose
        }
        self._producers = [Producer({**common, **(more or {})}) for _ in range(_PRODUCERS)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Produce no more, and discard the records that still wait."""
        self._stop.set()
        self._thread.join()
        for producer in self._producers:
            producer.flush(1)
            producer.purge()
            producer.flush(2)

    @property
    def acknowledged_bytes(self) -> int:
        """Bytes that the brokers have acknowledged."""
        return sum(self.acknowledged.values()) * RECORD_BYTES

    def _write(self) -> None:
        payload, owed, before = os.urandom(RECORD_BYTES), 0.0, time.monotonic()
        most_waiting = self._wanted / _PRODUCERS / RECORD_BYTES
        while not self._stop.wait(_TICK_SECONDS):
            now = time.monotonic()
            owed, before = min(owed + (now - before) * self._wanted, self._wanted / 5), now
            while owed >= RECORD_BYTES * _PRODUCERS:
                owed -= RECORD_BYTES * _PRODUCERS
                for producer in self._producers:
                    if len(producer) < most_waiting:
                        producer.produce(self._topic, payload, on_delivery=self._on_delivery)
            for producer in self._producers:
                producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition() or 0] += 1
