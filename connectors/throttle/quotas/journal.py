"""Writes what the actuator must not forget to a compacted topic, and waits until all replicas have it."""

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.headers import record_headers
from connectors.kafka.librdkafka import LOGGER
from policies.errors import UserError
from policies.signatures import Signatures


class QuotaJournalError(Exception):
    """Something could not be written down; the message says why, in a few words."""


class QuotaJournal:
    """Writes to one topic. Use it from one thread: each cluster's actuator has its own.

    Args:
        connection: how to reach the loop's own Kafka.
        topic: the compacted topic.
        timeout_seconds: how long a write may take.
    """

    def __init__(self, connection: KafkaConnection, topic: str, *, timeout_seconds: float = 5.0) -> None:
        self._connection = connection
        self._topic = topic
        self._timeout_seconds = timeout_seconds
        self._producer: Producer | None = None
        self._fingerprint = ""
        self._signatures: Signatures | None = None

    def write(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Write entries (key, value) and wait.

        Raises:
            QuotaJournalError: not all of it was taken in time; some of it may have been.
        """
        if not entries:
            return
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        try:
            producer = self._current()
            for key, value in entries:
                headers = record_headers(self._signatures, self._topic, key, value)
                producer.produce(self._topic, value, key, headers=headers, on_delivery=delivered)
            left = producer.flush(self._timeout_seconds + 1.0)
        except (KafkaException, UserError) as error:
            self._producer = None
            raise QuotaJournalError(f"the loop's Kafka cannot be written to: {error}") from None
        if failures or left:
            # The next write begins anew: nothing that was given up here may come after it.
            producer.purge()
            self._producer = None
            why = failures[0].str() if failures else "no answer in time"
            raise QuotaJournalError(f"{self._topic} cannot be written to: {why}")

    def _current(self) -> Producer:
        """The producer, made anew when the content of one of the connection's files has changed."""
        fingerprint = self._connection.fingerprint()
        if self._producer is None or fingerprint != self._fingerprint:
            self._signatures = self._connection.signatures()
            self._producer, self._fingerprint = Producer(self._options(), logger=LOGGER), fingerprint
        return self._producer

    def _options(self) -> dict[str, object]:
        return {
            **self._connection.for_confluent(),
            "client.id": "headgate-actuator",
            "acks": "all",
            # In order without idempotence, whose set-up takes the first write half a second; a repeat does no harm.
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": 0,
            "delivery.timeout.ms": round(self._timeout_seconds * 1000),
        }
