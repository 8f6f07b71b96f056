"""Follows the effect of decisions: the broker's quota, and the actuator's events in the audit topic."""

import threading
from collections.abc import Callable

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.quotas import FAILURES, QuotaClient
from connectors.kafka.tail import Tail
from policies.actuator_events import ReportResult
from policies.bookie_disks.publish_events import PublishApplication
from policies.throttle.quota_entities import DEFAULT, Entity
from policies.throttle.quota_events import QuotaApplication
from policies.wire import BadRecordError, EventReader

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
