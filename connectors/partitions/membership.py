"""Membership in a consumer group: the partitions that Kafka assigns to this process, and their lease.

No records are written to the partitions or read from them. The process confirms its membership with an offset commit:
Kafka accepts it only from a live member of the group's present generation, and it extends the member's session.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.http.tls import FileStamps
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.librdkafka import build_client, rebuild
from connectors.partitions.lease import CLOCK, PartitionLease
from connectors.partitions.settings import PartitionSettings
from policies.errors import UserError

_POLL_SECONDS = 0.2
_FINGERPRINT_SECONDS = 3.0
_LONGEST_STOP_SECONDS = 60.0
"""Limit for stopping revoked work; the lease ends long before."""

_REMEDIES = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant its user Read on this group, as `headgate topics acls` prints it",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant its user Read on {topic}, as `headgate topics acls` prints it",
    KafkaError.INVALID_SESSION_TIMEOUT: "set shares.session_timeout to a value between the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    KafkaError.FENCED_INSTANCE_ID: "another process has the same shares.instance: give each process its own",
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, and the topic whose partitions its members divide; both names with the loop's prefix."""

    name: str
    topic: str
    member: str = ""
    """Appended to the client id of this process."""


class Membership(AbstractContextManager["Membership"]):
    """Is a member of a group until it is closed. Use it from one thread; any thread may ask its lease.

    Args:
        connection: the connection to the loop's own Kafka. If its files change, the process joins again.
        on_change: called within `step` with the held partitions; with None if the membership has ended, so that none
            is held until Kafka assigns some again. When it returns, work on all other partitions must have stopped,
            because another process may hold them then.

    Raises:
        UserError: the connection's files cannot be used.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        group: Group,
        settings: PartitionSettings,
        on_change: Callable[[frozenset[int] | None], None],
        clock: Callable[[], float] = CLOCK,
    ) -> None:
        self._connection = connection
        self._group = group
        self._settings = settings
        self._on_change = on_change
        self._clock = clock
        session_seconds = settings.session_timeout.total_seconds()
        self.lease = PartitionLease(session_seconds, clock)
        self._renew_seconds = session_seconds / 6
        self._asked_at: float | None = None
        """The time of the pending renewal's request."""
        self._renew_at = 0.0
        self._check_files_at = 0.0
        self.joined = False
        """Whether it has an assignment, be it empty, and `on_change` has handled it."""
        self._fingerprint: FileStamps = ()
        self._last_error: KafkaError | None = None
        self._consumer = self._build()
        self._join()

    @property
    def problem(self) -> str | None:
        """Why it is no member yet; None if it is one."""
        if self.joined:
            return None
        why = f": {self._last_error.str()}" if self._last_error is not None else ""
        return f"waits for Kafka to assign its share{why}"

    def step(self) -> None:
        """Handle events of the group and renew the lease; call it repeatedly.

        Raises:
            UserError: Kafka refuses the membership; also any error of `on_change`.
        """
        self._follow_files()
        message = self._consumer.poll(_POLL_SECONDS)
        if message is not None and (error := message.error()) is not None:
            self._note(error)
        self._raise_refusal()
        self._renew()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, so that others need not wait for the session to end. All its work must have stopped."""
        self.lease.lose()
        self._leave()

    # --- the group

    def _build(self) -> Consumer:
        fingerprint = self._connection.fingerprint()
        consumer = build_client(Consumer, {**self._connection.for_confluent(), **self._options()})
        self._fingerprint = fingerprint  # stored only now, so that unusable files are tried again
        return consumer

    def _join(self) -> None:
        topics = [self._group.topic]
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _leave(self) -> None:
        """Close the consumer, and wait for the session timeout at most, after which Kafka drops this member anyway.

        If no broker answers any more, librdkafka sometimes waits forever for the answer to its request to leave.
        """
        leaving = threading.Thread(target=self._consumer.close, name=f"leaving {self._group.name}", daemon=True)
        leaving.start()
        leaving.join(self._settings.session_timeout.total_seconds())
        if leaving.is_alive():
            _log.warning(
                "left the group without Kafka's answer, others take over when the session ends", group=self._group.name
            )

    def _options(self) -> dict[str, Any]:
        session_ms = round(self._settings.session_timeout.total_seconds() * 1000)
        instance = self._settings.instance
        return {
            "client.id": f"{self._group.name}{self._group.member}",
            "group.id": self._group.name,
            **({} if instance is None else {"group.instance.id": f"{self._group.name}.{instance}"}),
            # Members keep their partitions if possible: a process that joins or leaves does not interrupt others.
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 6,
            "max.poll.interval.ms": max(session_ms, round(_LONGEST_STOP_SECONDS * 1000)),
            "socket.timeout.ms": session_ms,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "reconnect.backoff.max.ms": 2000,
            "on_commit": self._handle_commit,
            "error_cb": self._note,
        }

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        places = [TopicPartition(each.topic, each.partition, 0) for each in partitions]
        consumer.incremental_assign(places)
        consumer.pause(places)  # there are no records
        self._last_error = None
        self.lease.add(each.partition for each in partitions)
        self._renew()
        self._on_change(self.lease.held)
        # Only now: until the work runs, this process must not report itself ready.
        self.joined = True

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.lease.remove(each.partition for each in partitions)
        self._on_change(self.lease.held)
        consumer.incremental_unassign(list(partitions))

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.lease.lose()
        _log.warning(
            "Kafka no longer confirms the membership: this process stops its share, and another may take it over",
            group=self._group.name,
        )
        self._on_change(None)
        consumer.incremental_unassign(list(partitions))

    # --- the lease

    def _renew(self) -> None:
        """Request a renewal if it is due. Only one is pending at a time, so an answer belongs to a known request."""
        now, held = self._clock(), self.lease.held
        if not held or self._asked_at is not None or now < self._renew_at:
            return
        self._asked_at, self._renew_at = now, now + self._renew_seconds
        try:
            self._consumer.commit(offsets=[TopicPartition(self._group.topic, min(held), 0)], asynchronous=True)
        except KafkaException as error:
            self._asked_at = None
            _log.debug("no renewal of the lease was requested", detail=str(error))

    def _handle_commit(self, error: KafkaError | None, _partitions: Sequence[TopicPartition]) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if error is None and asked_at is not None:
            self.lease.renew(asked_at)
        elif error is not None:
            _log.debug("the lease is not renewed", group=self._group.name, error=error.name())

    # --- errors

    def _note(self, error: KafkaError) -> None:
        # "All brokers are down" follows each error that names a cause.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def _raise_refusal(self) -> None:
        error = self._last_error
        if error is None:
            return
        if (remedy := _REMEDIES.get(error.code())) is not None:
            todo = remedy.format(topic=self._group.topic)
            raise UserError(f"kafka: this process cannot take part in the group {self._group.name}: {todo}.")
        if error.fatal():
            raise UserError(f"kafka: this process cannot take part in the group {self._group.name}: {error.str()}.")

    def _follow_files(self) -> None:
        if time.monotonic() < self._check_files_at:
            return
        self._check_files_at = time.monotonic() + _FINGERPRINT_SECONDS
        if self._connection.fingerprint() == self._fingerprint:
            return
        if (consumer := rebuild(self._build)) is None:
            return
        _log.info("connection files changed, joining the group again", group=self._group.name)
        self.lease.lose()
        self._on_change(None)
        self._leave()
        # Joins only now: beside the member that leaves, it would be assigned nothing at first.
        self._consumer, self._asked_at, self.joined = consumer, None, False
        self._join()
