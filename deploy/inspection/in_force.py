"""The decisions in force, from the decided topics."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Tail
from connectors.kafka.topic_admin import reach
from policies.errors import UserError
from policies.registry import REPORTS, decided_topics

_CLIENT_ID = "headgate-inspection"
_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 15.0


class InForceReader(AbstractContextManager["InForceReader"]):
    """Reads the decided topics of a loop; use it as a context manager.

    Args:
        in_force: folds the records; by default all but the canary's.
    """

    def __init__(self, connection: KafkaConnection, prefix: str, in_force: DecisionsInForce | None = None) -> None:
        self._connection = connection
        self._tail = Tail(
            connection, dict.fromkeys(f"{prefix}.{topic}" for topic in (*decided_topics(), REPORTS)), _CLIENT_ID
        )
        self._in_force = in_force or DecisionsInForce()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._tail.close()

    def now(self) -> DecisionsInForce:
        """Return the decisions in force now, after all present records have been read.

        Raises:
            UserError: Kafka does not answer; the message names the remedy.
        """
        reach(self._connection)
        give_up_at = time.monotonic() + _ANSWER_SECONDS
        while not self._tail.caught_up:
            before = len(records := self._tail.poll(_POLL_SECONDS))
            self._in_force.fold_records(records)
            if before:
                give_up_at = time.monotonic() + _ANSWER_SECONDS
            elif time.monotonic() > give_up_at:
                raise UserError(f"kafka: {self._tail.problem or self._tail.backlog}")
        return self._in_force

    def poll(self) -> DecisionsInForce:
        """Return the decisions in force after the next records, or after a moment without any."""
        self._in_force.fold_records(self._tail.poll(_POLL_SECONDS))
        return self._in_force

    def changes(self) -> Iterator[DecisionsInForce]:
        """Yield the decisions in force now, and again after each change."""
        yield self.now()
        while True:
            records = self._tail.poll(_POLL_SECONDS)
            changes = self._in_force.fold_records(records)
            if changes or any(record.topic.endswith(f".{REPORTS}") for record in records):
                yield self._in_force
