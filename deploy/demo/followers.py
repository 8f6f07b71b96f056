"""Follows what became of decisions: the quota that the broker has, and the actuator's events in the audit topic."""

import threading
from collections.abc import Callable

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.quotas import FAILURES, QuotaClient
from connectors.kafka.tail import Tail
from policies.throttle.quota_events import QuotaApplication, QuotaOutcome
from policies.throttle.quota_settings import DEFAULT, Entity
from policies.wire import BadRecordError, EventReader

EVERY_CLIENT = Entity(client_id=DEFAULT)
"""Each client id without a quota of its own."""

_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 2.0


class QuotaFollower:
    """Asks the broker over and over which quota every client has.

    Args:
        servers: of the watched cluster.
    """

    def __init__(self, servers: str) -> None:
        self._connection = KafkaConnection(bootstrap_servers=servers)
        self.quota: int | None = None
        """Bytes a second, as last answered; None: no quota."""

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        client = QuotaClient(self._connection, _ANSWER_SECONDS)
        try:
            while not stop.wait(_LOOK_SECONDS):
                try:
                    client.describe()
                    self.quota = client.rates([EVERY_CLIENT])[EVERY_CLIENT]
                except FAILURES:
                    continue  # a busy broker; the next look is near
        finally:
            client.close()


class AuditFollower:
    """Hands on what the quota actuator says it did, or could not do.

    Args:
        connection: how to reach the loop's own Kafka.
        topic: the audit.
        on_sentence: takes each, as it comes.
    """

    def __init__(self, connection: KafkaConnection, topic: str, on_sentence: Callable[[str], None]) -> None:
        self._connection = connection
        self._topic = topic
        self._on_sentence = on_sentence
        self._reader: EventReader[QuotaApplication] = EventReader([QuotaApplication])

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        with Tail(self._connection, {self._topic: None}, "headgate-demo") as tail:
            while not stop.is_set():
                for record in tail.poll(_LOOK_SECONDS):
                    if record.value is not None and (sentence := self._sentence(record.value)):
                        self._on_sentence(sentence)

    def _sentence(self, record: bytes) -> str | None:
        try:
            said = self._reader.read(record).data
        except BadRecordError:
            return None  # another's: the audit has every decision, too
        return None if said.outcome is QuotaOutcome.UNCHANGED else said.explanation
