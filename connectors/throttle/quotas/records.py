"""The records of applied quotas in a compacted topic, from which each original quota can always be restored."""

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from queue import SimpleQueue

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.headers import record_headers
from connectors.kafka.librdkafka import LOGGER
from policies.errors import UserError
from policies.signatures import Signatures
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_plan import QuotaOrder, QuotaRecord, same_but_for_order
from policies.throttle.quota_settings import Entity
from policies.wire import actuator_event

_OWN_IDS = 1000

Write = Callable[[Sequence[tuple[str, bytes]]], None]
"""Writes entries (key, value) and waits; raises QuotaJournalError unless all of them were written."""

_log = structlog.get_logger(__name__)


class QuotaJournalError(Exception):
    """Entries could not be written; the message gives the reason in a few words."""


class QuotaJournal:
    """Writes to the topic, and waits until all replicas have the entries. Use it from one thread.

    Args:
        timeout_seconds: limit of a write.
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
            QuotaJournalError: not all entries were acknowledged in time; some of them may have been written.
        """
        if not entries:
            return
        failures: list[KafkaError] = []

        def note_failure(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        try:
            producer = self._connect()
            for key, value in entries:
                headers = record_headers(self._signatures, self._topic, key, value)
                producer.produce(self._topic, value, key, headers=headers, on_delivery=note_failure)
            left = producer.flush(self._timeout_seconds + 1.0)
        except (KafkaException, UserError) as error:
            self._producer = None
            raise QuotaJournalError(f"the loop's Kafka cannot be written to: {error}") from None
        if failures or left:
            # The next write uses a new producer: no entry that was given up here may be written after it.
            producer.purge()
            self._producer = None
            why = failures[0].str() if failures else "no answer in time"
            raise QuotaJournalError(f"{self._topic} cannot be written to: {why}")

    def _connect(self) -> Producer:
        """Return the producer; make a new one if the content of one of the connection's files has changed."""
        fingerprint = self._connection.fingerprint()
        if self._producer is None or fingerprint != self._fingerprint:
            self._signatures = self._connection.signatures()
            options = {
                **self._connection.for_confluent(),
                "client.id": "headgate-actuator",
                "acks": "all",
                # Keeps the order without idempotence, which would cost the first write half a second. A repeated entry
                # does no harm.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 0,
                "delivery.timeout.ms": round(self._timeout_seconds * 1000),
            }
            self._producer, self._fingerprint = Producer(options, logger=LOGGER), fingerprint
        return self._producer


class QuotaRecords:
    """The records of one cluster's entities. `receive` may be called from any thread, the rest from one."""

    def __init__(self, cluster: str, write: Write) -> None:
        self._cluster = cluster
        self._write = write
        self._records: dict[Entity, QuotaRecord] = {}
        self._own_ids: deque[str] = deque(maxlen=_OWN_IDS)
        self._inbox: SimpleQueue[tuple[str, AppliedQuota]] = SimpleQueue()

    def recall(self, applied: AppliedQuota) -> None:
        """Process a record from before this start, in order of the topic."""
        self._records[applied.entity] = applied.record()

    def receive(self, event_id: str, applied: AppliedQuota) -> None:
        """Queue a new record, written by this actuator or by another one that should not be running."""
        self._inbox.put((event_id, applied))

    def read(self) -> None:
        """Process the queued records."""
        while not self._inbox.empty():
            event_id, applied = self._inbox.get()
            if event_id not in self._own_ids:
                self.recall(applied)
                _log.warning("another quota actuator is acting on this cluster", cluster=self._cluster)

    def find(self, entity: Entity) -> QuotaRecord | None:
        """Return the record of an entity."""
        return self._records.get(entity)

    @property
    def held(self) -> list[Entity]:
        """The entities whose quota may be one of ours."""
        return [entity for entity, record in self._records.items() if record.held]

    def write(self, records: Mapping[Entity, QuotaRecord | None], order: QuotaOrder | None, at: datetime) -> None:
        """Write the records that have changed, and keep them once they are written.

        Args:
            records: by entity; None: nothing to record.
            order: the decision in force.
            at: the time.

        Raises:
            QuotaJournalError: they could not be written.
        """
        given = {e: record for e, record in records.items() if record is not None}
        changed = {e: record for e, record in given.items() if not same_but_for_order(self._records.get(e), record)}
        self._write([self._encode(AppliedQuota.build(self._cluster, e, r, order), at) for e, r in changed.items()])
        self._records |= given

    def _encode(self, applied: AppliedQuota, at: datetime) -> tuple[str, bytes]:
        self._own_ids.append(str(uuid.uuid4()))
        return applied.subject(), actuator_event(applied, id=self._own_ids[-1], at=at)
