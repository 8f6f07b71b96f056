"""What is in force now, by the decided topics: read whole, then followed."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from connectors.closing import Closing
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.decisions import Alert, AlertStatus, Decision
from policies.errors import UserError
from policies.registry import decided_topics, decision_types
from policies.succession import succeeds
from policies.units import from_millis
from policies.wire import BadRecordError, EventReader

_CLIENT_ID = "headgate-inspection"
_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 15.0

Key = tuple[str, str]
"""Topic and record key."""


class InForce:
    """The decisions in force, as every consumer of the topics knows them. Pure but for what is handed to it."""

    def __init__(self) -> None:
        self._reader: EventReader[Decision] = EventReader(decision_types())
        self._latest: dict[Key, Decision] = {}

    def take(self, records: Sequence[Record]) -> bool:
        """Fold records of the decided topics in; whether anything has changed."""
        return sum(self._take(record) for record in records) > 0  # not `any`, which would stop at the first

    def decisions(self) -> list[Decision]:
        """All but alerts, by cluster, policy and subject."""
        return sorted((d for d in self._latest.values() if not isinstance(d, Alert)), key=_order)

    def alerts(self, *, resolved: bool = False) -> list[Alert]:
        """Those that fire, the gravest and newest first; with `resolved` also those that have ended."""
        found = [d for d in self._latest.values() if isinstance(d, Alert)]
        wanted = [alert for alert in found if resolved or alert.status is AlertStatus.FIRING]
        return sorted(wanted, key=lambda a: (a.status.value, _gravity(a), -a.started_at.timestamp()))

    def _take(self, record: Record) -> bool:
        key = (record.topic, (record.key or b"").decode(errors="replace"))
        if record.value is None:
            return self._latest.pop(key, None) is not None
        try:
            decision = self._reader.read(record.value).data
        except BadRecordError:
            return False
        appended_at = from_millis(record.appended_ms)
        if not succeeds(decision, self._latest.get(key), now=appended_at, appended_at=appended_at):
            return False
        self._latest[key] = decision
        return True


class InForceReader(Closing):
    """Reads the decided topics of a loop; use it as a context manager.

    Args:
        connection: how to reach the loop's own Kafka.
        prefix: of its topics.
    """

    def __init__(self, connection: KafkaConnection, prefix: str) -> None:
        self._topics = dict.fromkeys(f"{prefix}.{topic}" for topic in decided_topics())
        self._connection = connection
        self._tail = Tail(connection, dict(self._topics), _CLIENT_ID)
        self._in_force = InForce()

    def close(self) -> None:
        """Close the connection."""
        self._tail.close()

    def now(self) -> InForce:
        """All that was there when this was asked.

        Raises:
            UserError: Kafka does not answer.
        """
        give_up_at = time.monotonic() + _ANSWER_SECONDS
        while not self._tail.caught_up:
            before = len(records := self._tail.poll(_POLL_SECONDS))
            self._in_force.take(records)
            if before:
                give_up_at = time.monotonic() + _ANSWER_SECONDS
            elif time.monotonic() > give_up_at:
                raise UserError(f"kafka: {self._tail.problem or self._tail.backlog}")
        return self._in_force

    def changes(self) -> Iterator[InForce]:
        """What is in force now, and again after each change."""
        yield self.now()
        while True:
            if self._in_force.take(self._tail.poll(_POLL_SECONDS)):
                yield self._in_force


def is_stale(decision: Decision, now: datetime) -> bool:
    """Whether it should have had a successor by now: the loop is dead, or nobody watches its cluster any more."""
    return decision.expires_at is not None and decision.expires_at <= now


def _order(decision: Decision) -> tuple[str, str, str, str]:
    return decision.cluster, decision.policy, decision.event_type, decision.subject


def _gravity(alert: Alert) -> int:
    severities = list(type(alert.severity))
    return -severities.index(alert.severity)
