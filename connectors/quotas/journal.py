"""What the actuator must not forget, on a compacted topic: written and taken by all replicas before it goes on."""

import uuid
from collections import deque
from collections.abc import Sequence
from datetime import datetime

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.librdkafka import LOGGER
from policies.errors import UserError
from policies.throttle.quota_events import AppliedQuota
from policies.wire import actuator_event

_OWN_IDS = 1000


class JournalError(Exception):
    """Something could not be written down; the message says why, in a few words."""


class Journal:
    """Writes what is to be remembered. Use it from one thread: each cluster's actuator has its own.

    Args:
        connection: how to reach the loop's own Kafka.
        topic: the compacted topic.
        timeout_seconds: how long a write may take.
    """

    def __init__(self, connection: KafkaConnection, topic: str, *, timeout_seconds: float = 5.0) -> None:
        self._connection = connection
        self.topic = topic
        self._timeout_seconds = timeout_seconds
        self._producer: Producer | None = None
        self._fingerprint = ""
        self._own: deque[str] = deque(maxlen=_OWN_IDS)

    def write(self, notes: Sequence[AppliedQuota], at: datetime) -> None:
        """Write and wait.

        Raises:
            JournalError: not all of it was taken in time; some of it may have been.
        """
        if not notes:
            return
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        try:
            producer = self._current()
            for note in notes:
                producer.produce(self.topic, self._event(note, at), note.subject(), on_delivery=delivered)
            left = producer.flush(self._timeout_seconds + 1.0)
        except (KafkaException, UserError) as error:
            self._producer = None
            raise JournalError(f"the loop's Kafka cannot be written to: {error}") from None
        if failures or left:
            # The next write begins anew: nothing that was given up here may come after it.
            producer.purge()
            self._producer = None
            why = failures[0].str() if failures else "no answer in time"
            raise JournalError(f"{self.topic} cannot be written to: {why}")

    def _current(self) -> Producer:
        """The producer, made anew when a certificate or password file has changed."""
        fingerprint = self._connection.fingerprint()
        if self._producer is None or fingerprint != self._fingerprint:
            self._producer, self._fingerprint = Producer(self._options(), logger=LOGGER), fingerprint
        return self._producer

    def is_own(self, event_id: str) -> bool:
        """Whether this journal wrote an event lately."""
        return event_id in self._own

    def _event(self, note: AppliedQuota, at: datetime) -> bytes:
        event_id = str(uuid.uuid4())
        self._own.append(event_id)
        return actuator_event(note, id=event_id, at=at)

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
