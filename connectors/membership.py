"""Divides work among identical processes with Kafka's consumer groups, on topics without records.

Each watched cluster always belongs to the same work partition (`policies.wire`), a partition of such a topic. Kafka
assigns each to one member of the group. Settings, topics and metrics call a work partition a share.

No records are written to the partitions or read from them. The process confirms its membership with an offset commit:
Kafka accepts it only from a live member of the group's present generation, and it extends the member's session.
"""

import hashlib
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry, Gauge

from connectors.kafka.clients import build_client
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import PartitionSettings, TopicSettings
from policies.units import UserError
from policies.wire import DECIDER_TOPIC, SHARE_COUNT

# Metrics of a process's work partitions.


class PartitionMetrics:
    """The metrics of all components that one process shares with others: one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.held = Gauge(
            "headgate_shares_held",
            f"Shares this process holds: of {SHARE_COUNT} for collectors and actuators, of 1 for the query. All "
            "processes together hold all of them.",
            ("part",),
            registry=registry,
        )
        self.valid = Gauge(
            "headgate_share_lease_valid",
            "0: for nearly `shares.session_timeout` Kafka has not confirmed that this process holds its shares, so its "
            "actuators stand still.",
            ("part",),
            registry=registry,
        )


# The time until which a process holds its work partitions, so that a frozen or isolated process does not act.
#
# Kafka assigns a member's partitions to others when it has not heard from the member for the session timeout. The
# member counts that time from before its request, and Kafka from its answer. So the member's time always ends first,
# whatever delays the request or the answer.

_MARGIN = 1 / 6
"""Fraction of the session timeout that is left for an action that started while the lease was valid."""

_NEVER = float("-inf")

_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", None)
CLOCK: Callable[[], float] = time.monotonic if _BOOT_TIME is None else partial(time.clock_gettime, _BOOT_TIME)
"""Seconds that never go backwards; where the system has such a clock, they count while it is suspended, too."""


class PartitionLease:
    """The work partitions of one process. Safe from any thread.

    `session_seconds` is the session timeout.
    """

    def __init__(self, session_seconds: float, clock: Callable[[], float] = CLOCK) -> None:
        self._valid_seconds = session_seconds * (1 - _MARGIN)
        self._clock = clock
        self._lock = threading.Lock()
        self._held: frozenset[int] = frozenset()
        self._renewed_at = _NEVER

    @property
    def held(self) -> frozenset[int]:
        """The assigned partitions, as far as this process knows."""
        return self._held

    def holds(self, partition: int) -> bool:
        """Whether no other process can hold the partition now; ask before each action."""
        with self._lock:
            return partition in self._held and self._is_renewed()

    @property
    def is_valid(self) -> bool:
        """Whether no other process can hold a partition of this one; true without partitions."""
        with self._lock:
            return not self._held or self._is_renewed()

    def _is_renewed(self) -> bool:
        return self._clock() < self._renewed_at + self._valid_seconds

    def add(self, partitions: Iterable[int]) -> None:
        """Add newly assigned partitions; they are held once the lease has been renewed lately."""
        with self._lock:
            self._held = self._held.union(partitions)

    def remove(self, partitions: Iterable[int]) -> None:
        """Remove revoked partitions at once."""
        with self._lock:
            self._held = self._held.difference(partitions)

    def lose(self) -> None:
        """Drop all partitions and past renewals, because Kafka considers this process dead."""
        with self._lock:
            self._held, self._renewed_at = frozenset(), _NEVER

    def renew(self, asked_at: float) -> None:
        """Store that Kafka confirmed the membership, in answer to a request of that time (by `clock`)."""
        with self._lock:
            self._renewed_at = max(self._renewed_at, asked_at)


_POLL_SECONDS = 0.2
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
        connection: the connection to the loop's own Kafka.
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
        self.joined = False
        """Whether it has an assignment, be it empty, and `on_change` has handled it."""
        self._last_error: KafkaError | None = None
        self._consumer = build_client(Consumer, {**connection.for_confluent(), **self._options()})
        self._consumer.subscribe([group.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

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
        message = self._consumer.poll(_POLL_SECONDS)
        if message is not None and (error := message.error()) is not None:
            self._note(error)
        self._raise_refusal()
        self._renew()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, so that others need not wait for the session to end. All its work must have stopped.

        It takes the session timeout at most, after which Kafka drops this member anyway: if no broker answers any more,
        librdkafka sometimes waits forever for the answer to its request to leave.
        """
        self.lease.lose()
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


# The processes that decide on a prefix, or stand by to: the members of one consumer group.
#
# Each member's client id names its host and its checkpoint. Members with the same checkpoint are one loop and its
# stand-bys. Another checkpoint is another loop: copied settings with another `data_dir`.

_GROUP = "decide.query"
_SECONDS = 5.0


class Decider(NamedTuple):
    """A process that decides, or stands by."""

    host: str
    loop: str
    """Eight hexadecimal digits that identify its checkpoint's path."""


def deciders_group(topics: TopicSettings, checkpoint: str) -> Group:
    """Return the group in which processes take turns deciding; its name depends on the prefix alone."""
    loop = hashlib.sha256(checkpoint.encode()).hexdigest()[:8]
    return Group(topics.topic(_GROUP), topics.topic(DECIDER_TOPIC), f"@{socket.gethostname()}/{loop}")


def find_deciders(connection: KafkaConnection, topics: TopicSettings) -> list[Decider]:
    """Return the processes that are members now.

    Raises:
        KafkaException: Kafka does not answer, or forbids it.
        UserError: a file of the connection cannot be used.
    """
    group = topics.topic(_GROUP)
    admin = build_client(AdminClient, {**connection.for_confluent(), "client.id": group})
    (future,) = admin.describe_consumer_groups([group], request_timeout=_SECONDS).values()
    try:
        members = future.result(timeout=_SECONDS + 1).members
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise
    names = (str(member.client_id).rpartition("@")[2].rpartition("/") for member in members)
    return sorted(Decider(host, loop) for host, _, loop in names)


def describe_loops(deciders: Sequence[Decider], prefix: str) -> str | None:
    """Return one sentence that names the hosts, if there is more than one loop; else None."""
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    for decider in deciders:
        hosts[decider.loop].append(decider.host)
    if len(hosts) < 2:
        return None
    loops = "; ".join(f"{', '.join(dict.fromkeys(names))} (checkpoint {loop})" for loop, names in sorted(hosts.items()))
    return (
        f"{len(hosts)} loops with checkpoints of their own are started on the prefix {prefix}: {loops}. One of them "
        "decides; another continues from another state when that one ends"
    )
