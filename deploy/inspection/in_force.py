"""What is in force now, by the decided topics: read whole, then followed."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from connectors.closing import Closing
from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.decisions import Alert, AlertStatus, Decision, Standing
from policies.errors import UserError
from policies.registry import decided_topics, decision_types
from policies.succession import has_expired

_CLIENT_ID = "headgate-inspection"
_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 15.0


Watched = tuple[str, str]
"""A policy and a cluster."""


class InForce:
    """The decisions in force, as every consumer of the topics knows them. Pure but for what is handed to it."""

    def __init__(self) -> None:
        self._decided = DecisionsInForce(decision_types())

    def take(self, records: Sequence[Record]) -> bool:
        """Fold records of the decided topics in; whether anything has changed."""
        return len([record for record in records if self._decided.take(record)]) > 0

    def decisions(self) -> list[Decision]:
        """All but alerts, and but who watches what, by cluster, policy and subject."""
        return sorted((d for d in self._decided.all() if not isinstance(d, Alert | Standing)), key=_order)

    def unwatched(self, now: datetime) -> frozenset[Watched]:
        """The policies and clusters of which it was said that they are watched, and is no longer."""
        said = (decision for decision in self._decided.all() if isinstance(decision, Standing))
        return frozenset((each.policy, each.cluster) for each in said if is_stale(each, now))

    def alerts(self, *, resolved: bool = False) -> list[Alert]:
        """Those that fire, the gravest and newest first; with `resolved` also those that have ended."""
        found = [d for d in self._decided.all() if isinstance(d, Alert)]
        wanted = [alert for alert in found if resolved or alert.status is AlertStatus.FIRING]
        return sorted(wanted, key=lambda a: (a.status.value, _gravity(a), -a.started_at.timestamp()))


class InForceReader(Closing):
    """Reads the decided topics of a loop; use it as a context manager.

    Args:
        connection: how to reach the loop's own Kafka.
        prefix: of its topics.
    """

    def __init__(self, connection: KafkaConnection, prefix: str) -> None:
        self._tail = Tail(connection, dict.fromkeys(f"{prefix}.{topic}" for topic in decided_topics()), _CLIENT_ID)
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


def is_stale(decision: Decision, now: datetime, unwatched: frozenset[Watched] = frozenset()) -> bool:
    """Whether it should have had a successor by now: the loop is dead, or nobody watches its cluster any more."""
    return has_expired(decision, now) or (decision.policy, decision.cluster) in unwatched


def _order(decision: Decision) -> tuple[str, str, str, str]:
    return decision.cluster, decision.policy, decision.event_type, decision.subject


def _gravity(alert: Alert) -> int:
    severities = list(type(alert.severity))
    return -severities.index(alert.severity)
