"""Membership in one of Kafka's consumer groups: which partitions this process is assigned, and whether it still is.

No records are written to or read from the partitions. The process checks its membership by committing an offset, which
Kafka accepts only from a live member of the group's present generation, and which extends its session.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.closing import Closing
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.librdkafka import LOGGER, renewed
from connectors.partitions.lease import CLOCK, PartitionLease, lease_seconds
from connectors.partitions.settings import PartitionSettings
from policies.errors import UserError

_POLL_SECONDS = 0.2
_FINGERPRINT_SECONDS = 3.0
_LONGEST_STOP_SECONDS = 60.0
"""What is not given up by then is another's anyhow; the lease is over long before."""

_REMEDIES = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant its user Read on this group, as `headgate topics acls` prints it",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant its user Read on {topic}, as `headgate topics acls` prints it",
    KafkaError.INVALID_SESSION_TIMEOUT: "set shares.session_timeout to what lies between the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    KafkaError.FENCED_INSTANCE_ID: "another process has taken this one's shares.instance: each needs another one",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Group:
    """Processes alike, and the topic whose partitions they share."""

    name: str
    """Of the consumer group, with the loop's prefix."""
    topic: str
    """With the loop's prefix."""


class Membership(Closing):
    """Takes part in a group until it is closed. Use it from one thread; its lease may be asked from any.

    Args:
        connection: how to reach the loop's own Kafka; joins anew when the content of its files changes.
        group: which.
        settings: of all groups.
        on_change: told within `step` what is held now. What it does not name (any more) must have stopped when it
            returns: then another may have it.
        clock: the lease's.

    Raises:
        UserError: the connection's files cannot be used.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        group: Group,
        settings: PartitionSettings,
        on_change: Callable[[frozenset[int]], None],
        clock: Callable[[], float] = CLOCK,
    ) -> None:
        self._connection = connection
        self._group = group
        self._settings = settings
        self._on_change = on_change
        self._clock = clock
        session_seconds = settings.session_timeout.total_seconds()
        self.lease = PartitionLease(lease_seconds(session_seconds), clock)
        self._renew_seconds = session_seconds / 6
        self._asked_at: float | None = None
        """When the renewal that is on its way was asked for."""
        self._renew_at = 0.0
        self._look_at = 0.0
        self.joined = False
        """Whether it has been told what it is assigned, be it nothing, and `on_change` has been told, too."""
        self._fingerprint = ""
        self._last_error: KafkaError | None = None
        self._consumer = self._join()

    @property
    def problem(self) -> str | None:
        """Why it is no member yet; None when it is."""
        if self.joined:
            return None
        why = f": {self._last_error.str()}" if self._last_error is not None else ""
        return f"has not been told yet by Kafka what is its share{why}"

    def step(self) -> None:
        """Serve the group, and stay a member, for a moment; to be called over and over.

        Raises:
            UserError: Kafka does not let it be a member, or what `on_change` raises.
        """
        self._follow_files()
        message = self._consumer.poll(_POLL_SECONDS)
        if message is not None and (error := message.error()) is not None:
            self._note(error)
        self._require_let_in()
        self._renew()

    def close(self) -> None:
        """Leave the group, so that others need not wait for this one's session to end; what is held must have ended."""
        self.lease.lose()
        self._leave()

    # --- the group

    def _join(self) -> Consumer:
        fingerprint = self._connection.fingerprint()
        options = {**self._connection.for_confluent(), **self._options()}
        try:
            consumer = Consumer(options, logger=LOGGER)
        except KafkaException as error:
            raise UserError(f"kafka: {error.args[0].str()}.") from None
        consumer.subscribe([self._group.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._fingerprint = fingerprint  # of files that could be used: else the next look tries again
        return consumer

    def _leave(self) -> None:
        """Wait for it no longer than for the session's end, by which Kafka has taken this process for dead anyhow.

        Where no broker answers any more, librdkafka now and then waits for ever for the answer to its own leaving.
        """
        leaving = threading.Thread(target=self._consumer.close, name=f"leaving {self._group.name}", daemon=True)
        leaving.start()
        leaving.join(self._settings.session_timeout.total_seconds())
        if leaving.is_alive():
            _log.warning("left without Kafka's answer, others take over when the session ends", group=self._group.name)

    def _options(self) -> dict[str, Any]:
        session_ms = round(self._settings.session_timeout.total_seconds() * 1000)
        instance = self._settings.instance
        return {
            "client.id": self._group.name,
            "group.id": self._group.name,
            **({} if instance is None else {"group.instance.id": f"{self._group.name}.{instance}"}),
            # What a member has it keeps, where it can: others' work is not interrupted when one comes or goes.
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 6,
            "max.poll.interval.ms": max(session_ms, round(_LONGEST_STOP_SECONDS * 1000)),
            "socket.timeout.ms": session_ms,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "reconnect.backoff.max.ms": 2000,
            "on_commit": self._renewed,
            "error_cb": self._note,
        }

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        places = [TopicPartition(each.topic, each.partition, 0) for each in partitions]
        consumer.incremental_assign(places)
        consumer.pause(places)  # there is nothing to fetch
        self._last_error = None
        self.lease.take(each.partition for each in partitions)
        self._renew()
        self._on_change(self.lease.held)
        # Only now: before what is held runs, whoever asks would be told that all of it works.
        self.joined = True

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.lease.give_up(each.partition for each in partitions)
        self._on_change(self.lease.held)
        consumer.incremental_unassign(list(partitions))

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.lease.lose()
        _log.warning("taken for dead by Kafka, whatever was held is another's now", group=self._group.name)
        self._on_change(self.lease.held)
        consumer.incremental_unassign(list(partitions))

    # --- the lease

    def _renew(self) -> None:
        """Ask whether it is a member still. One at a time: so it is known which one an answer is to."""
        now, held = self._clock(), self.lease.held
        if not held or self._asked_at is not None or now < self._renew_at:
            return
        self._asked_at, self._renew_at = now, now + self._renew_seconds
        try:
            self._consumer.commit(offsets=[TopicPartition(self._group.topic, min(held), 0)], asynchronous=True)
        except KafkaException as error:
            self._asked_at = None
            _log.debug("not asked whether it is a member still", detail=str(error))

    def _renewed(self, error: KafkaError | None, _partitions: Sequence[TopicPartition]) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if error is None and asked_at is not None:
            self.lease.renewed(asked_at)
        elif error is not None:
            _log.debug("the lease is not renewed", group=self._group.name, error=error.name())

    # --- what may go wrong

    def _note(self, error: KafkaError) -> None:
        # "All brokers are down" follows each telling one.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def _require_let_in(self) -> None:
        error = self._last_error
        if error is None:
            return
        if (remedy := _REMEDIES.get(error.code())) is not None:
            told = remedy.format(topic=self._group.topic)
            raise UserError(f"kafka: this process cannot take part in the group {self._group.name}: {told}.")
        if error.fatal():
            raise UserError(f"kafka: this process cannot take part in the group {self._group.name}: {error.str()}.")

    def _follow_files(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _FINGERPRINT_SECONDS
        if self._connection.fingerprint() == self._fingerprint:
            return
        if (joining := renewed(self._join)) is None:
            return
        _log.info("connection files changed, joining the group anew", group=self._group.name)
        self.lease.lose()
        self._on_change(self.lease.held)
        self._leave()
        self._consumer, self._asked_at, self.joined = joining, None, False
