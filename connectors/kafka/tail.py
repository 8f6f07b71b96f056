"""Follows topics from a point in their past, for as long as it is polled, through failures of brokers.

There is no consumer group: every consumer reads all partitions and keeps its own position.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.closing import Closing
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.headers import Unbelieved, refusal
from connectors.kafka.librdkafka import LOGGER, renewed, telling, unanswered
from policies.errors import UserError
from policies.signatures import Signatures
from policies.units import millis_of

_BATCH = 1000
_REFRESH_SECONDS = 10.0
_RETRY_REFRESH_SECONDS = 1.0
"""While topics are missing or Kafka does not answer."""
_STUCK_SECONDS = 10.0
"""Between two looks at where partitions end: who moves on is slow, not stuck."""
_REQUEST_SECONDS = 2.0

_log = structlog.get_logger(__name__)

Partition = tuple[str, int]
"""(topic, partition)."""


class Record(NamedTuple):
    """A record as it lies in Kafka."""

    topic: str
    key: bytes | None
    value: bytes | None
    appended_ms: int
    """Its Kafka timestamp, in milliseconds since the epoch."""


@dataclass(frozen=True)
class _Clients:
    """The two clients of one connection.

    The consumer's connections are busy with fetches that wait for records, and brokers answer in turn; so there is a
    second consumer that only asks for topics and offsets. Not an admin client: that asks the controller, where any
    broker would do, and may create the topics it asks for.
    """

    fingerprint: str
    signatures: Signatures | None
    consumer: Consumer
    metadata_client: Consumer

    def close(self) -> None:
        self.consumer.close()
        self.metadata_client.close()


@dataclass
class Progress:
    """How far each partition is read."""

    next_offsets: dict[Partition, int] = field(default_factory=dict)
    behind: dict[Partition, int] = field(default_factory=dict)
    """The end, as seen at the start, of those not read so far yet."""

    elsewhere: dict[Partition, int] = field(default_factory=dict)
    """Where we were at the last look, of those that ended elsewhere then."""

    def stuck(self, ends: Mapping[Partition, int]) -> list[Partition]:
        """Those where we have not moved since the last look, and that end elsewhere now as then."""
        before, at = self.elsewhere, self.next_offsets
        self.elsewhere = {place: at[place] for place, end in ends.items() if end != at[place]}
        return [place for place, offset in self.elsewhere.items() if before.get(place) == offset]

    def reached(self, place: Partition, next_offset: int) -> None:
        """Everything before that offset is read."""
        self.next_offsets[place] = next_offset
        if next_offset >= self.behind.get(place, 0):
            self.behind.pop(place, None)

    def forget(self, place: Partition) -> None:
        """It is followed no longer, or will begin anew."""
        self.next_offsets.pop(place, None)
        self.behind.pop(place, None)


class Tail(Closing):
    """Reads topics as they are and grow; new partitions and topics are found by themselves.

    Where the connection has keys, a record whose signature does not hold is as if it were not there.

    Use it from one thread, as a context manager. What does not exist yet has nothing to catch up with.

    Args:
        connection: how to reach the cluster; connected anew when the content of its files changes.
        histories: the topics, and how much of their past is read; None means all of it, zero nothing.
        client_id: how the brokers' logs and quotas name this client; the consumer's group id too, which is never used.

    Raises:
        UserError: the connection's files cannot be used.
    """

    def __init__(self, connection: KafkaConnection, histories: Mapping[str, timedelta | None], client_id: str) -> None:
        self._connection = connection
        self._histories = histories
        self._client_id = client_id
        self._discovered = False
        self._refresh_at = 0.0
        self._look_at = 0.0
        self._progress = Progress()
        self._refusals: dict[Partition, str] = {}
        self._unreachable: str | None = None
        self._last_error: KafkaError | None = None
        self._must_renew: str | None = None
        """Why the clients are of no use any more."""
        self._unbelieved = Unbelieved()
        self._clients = self._connect()

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at the start has been read; once true it stays so."""
        return self._discovered and not self._progress.behind

    @property
    def problem(self) -> str | None:
        """Why nothing can be read at present, or not everything; None when all is well."""
        if self._unreachable is not None:
            return self._unreachable
        return next((f"{topic}/{number} is not read: {why}" for (topic, number), why in self._refusals.items()), None)

    @property
    def backlog(self) -> str:
        """How much is missing to be caught up, in a clause."""
        if not self._discovered:
            return "its topics have not been found yet"
        places = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self._progress.behind)[:3])
        return f"{len(self._progress.behind)} partitions are behind ({places})"

    def poll(self, timeout_seconds: float) -> list[Record]:
        """The next records, as soon as there is one; none when there is none in time."""
        if time.monotonic() >= self._refresh_at:
            self._maintain()
        first = self._clients.consumer.poll(timeout_seconds)
        if first is None:
            return []
        messages = [first, *self._clients.consumer.consume(_BATCH - 1, timeout=0)]
        return [record for message in messages if (record := self._accept(message)) is not None]

    def _accept(self, message: Message) -> Record | None:
        """Note how far we are; None for what is an event of the client's, not a record."""
        error, place = message.error(), (message.topic() or "", message.partition() or 0)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._refuse(error, place)
            return None
        if place not in self._progress.next_offsets:
            # Of a topic that has been deleted: read, but late.
            return None
        self._refusals.pop(place, None)
        offset = message.offset() or 0
        if error is not None:
            # The end: where transactions or compaction left no record before it, no record says that we are there.
            self._progress.reached(place, offset)
            return None
        self._progress.reached(place, offset + 1)
        if (why := refusal(self._clients.signatures, message)) is not None:
            self._unbelieved.note(place[0], f"{place[0]}/{place[1]}/{offset}: {why}")
            return None
        return Record(place[0], _bytes(message.key()), _bytes(message.value()), message.timestamp()[1])

    def _refuse(self, error: KafkaError, place: Partition) -> None:
        self._note_fatal(error)
        _log.warning("a partition cannot be read", topic=place[0], partition=place[1], error=error.name())
        # Anything else passes by itself or is found by the next refresh, and no record need tell that it has.
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and place in self._progress.next_offsets:
            self._refusals[place] = f"{error.name()}: {error.str()}"

    def _maintain(self) -> None:
        """Follow the connection's files, and look for topics and partitions that are new or gone."""
        self._follow_files()
        # Serves its callbacks: the reasons of failures, and tokens.
        self._clients.metadata_client.poll(0)
        try:
            found = self._find()
            self._drop(found)
            self._leave_stuck()
            self._add(found)
        except KafkaException as error:
            self._clients.metadata_client.poll(0)
            self._note_failure(error.args[0])
            self._refresh_at = time.monotonic() + _RETRY_REFRESH_SECONDS
            return
        if self._unreachable is not None:
            _log.info("Kafka answers again")
        self._unreachable, self._last_error, self._discovered = None, None, True
        complete = {topic for topic, _ in found} == set(self._histories)
        self._refresh_at = time.monotonic() + (_REFRESH_SECONDS if complete else _RETRY_REFRESH_SECONDS)

    def _note_failure(self, error: KafkaError) -> None:
        why = telling(error, self._last_error)
        if self._unreachable is None:
            _log.warning("Kafka does not answer", error=why.name(), detail=why.str())
        self._unreachable = unanswered(self._connection.servers(), why)

    def _find(self) -> list[Partition]:
        """The partitions that exist."""
        # Topic by topic: the cluster may have thousands of others.
        return [place for name in self._histories for place in self._partitions(name)]

    def _partitions(self, name: str) -> list[Partition]:
        topic = self._clients.metadata_client.list_topics(name, timeout=_REQUEST_SECONDS).topics[name]
        if topic.error is None:
            return [(name, number) for number in topic.partitions]
        if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise KafkaException(KafkaError(topic.error.code(), f"{name}: {topic.error.str()}"))

    def _drop(self, found: Iterable[Partition]) -> None:
        """Leave partitions that are gone with their topic: when they come again, they begin anew, of a new client."""
        gone = set(self._progress.next_offsets).difference(found)
        if not gone:
            return
        _log.info("topics are gone", topics=sorted({topic for topic, _ in gone}))
        self._leave(gone)
        self._must_renew = "topics are gone"

    def _leave_stuck(self) -> None:
        """Connect anew where there are other records than we were given.

        A client that knew a topic with a higher epoch of its leader waits for ever when that is made anew, and between
        two looks it is not seen to be gone. A new one goes on at the old offset; where there is none such, the
        partition begins anew. What is missed is repeated: readings and decisions are levels.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at, ends = time.monotonic() + _STUCK_SECONDS, self._ends()
        if not (stuck := self._progress.stuck(ends)):
            return
        _log.warning("partitions give nothing, and do not end where we are", topics=sorted({name for name, _ in stuck}))
        self._leave([place for place in stuck if ends[place] < self._progress.next_offsets[place]])
        self._must_renew = "partitions give nothing"
        self._follow_files()

    def _leave(self, places: Collection[Partition]) -> None:
        """Read no more of them; what comes there again is new."""
        self._clients.consumer.incremental_unassign([TopicPartition(*place) for place in places])
        for place in places:
            self._progress.forget(place)
            self._refusals.pop(place, None)

    def _ends(self) -> dict[Partition, int]:
        """Where partitions end now, of those that say so; one request a broker."""
        asked = [TopicPartition(*place, OFFSET_END) for place in self._progress.next_offsets]
        found = self._clients.metadata_client.offsets_for_times(asked, timeout=_REQUEST_SECONDS) if asked else []
        return {(each.topic, each.partition): each.offset for each in found if each.error is None}

    def _add(self, found: Iterable[Partition]) -> None:
        """Begin with partitions that are new to us."""
        new = [place for place in found if place not in self._progress.next_offsets]
        spans = {place: self._span(place) for place in new}
        if not spans:
            return
        self._clients.consumer.incremental_assign([TopicPartition(*place, span[0]) for place, span in spans.items()])
        for place, (start, end) in spans.items():
            self._progress.next_offsets[place] = start
            if not self._discovered and start < end:
                self._progress.behind[place] = end

    def _span(self, place: Partition) -> tuple[int, int]:
        """Where to begin, and the end that is there now."""
        client = self._clients.metadata_client
        oldest, end = client.get_watermark_offsets(TopicPartition(*place), timeout=_REQUEST_SECONDS)
        # What appears after our start is new as a whole.
        history = None if self._discovered else self._histories[place[0]]
        if history is None:
            return oldest, end
        return (self._since(place, history, end) if history else end), end

    def _since(self, place: Partition, history: timedelta, end: int) -> int:
        """The first record so young; the end when there is none."""
        since_ms = time.time_ns() // 1_000_000 - millis_of(history)
        (found,) = self._clients.metadata_client.offsets_for_times(
            [TopicPartition(*place, since_ms)], timeout=_REQUEST_SECONDS
        )
        if found.error is not None:
            raise KafkaException(found.error)
        return end if found.offset == OFFSET_END else found.offset

    def _follow_files(self) -> None:
        """Connect anew when the files have changed, or the client is beyond repair; go on where we were."""
        if self._must_renew is not None:
            self._renew(self._must_renew)
        elif self._connection.fingerprint() != self._clients.fingerprint:
            self._renew("connection files changed")

    def _renew(self, reason: str) -> None:
        if (clients := renewed(self._connect)) is None:
            return
        _log.info("connecting anew", reason=reason)
        clients.consumer.assign([TopicPartition(*place, at) for place, at in self._progress.next_offsets.items()])
        self._clients.close()
        self._clients, self._must_renew = clients, None

    def _connect(self) -> _Clients:
        fingerprint, signatures = self._connection.fingerprint(), self._connection.signatures()
        options = {**self._connection.for_confluent(), **_options(self._client_id), "error_cb": self._note}
        try:
            consumer, metadata_client = (Consumer(options, logger=LOGGER) for _ in range(2))
        except KafkaException as error:
            raise UserError(f"kafka: {error.args[0].str()}.") from None
        return _Clients(fingerprint, signatures, consumer, metadata_client)

    def _note_fatal(self, error: KafkaError) -> None:
        if error.fatal():
            self._must_renew = "fatal error"

    def _note(self, error: KafkaError) -> None:
        self._note_fatal(error)
        # "All brokers are down" follows each telling one.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error


def _options(client_id: str) -> dict[str, Any]:
    return {
        "client.id": client_id,
        # The client wants one even where nothing is committed and nobody joins.
        "group.id": client_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Where retention overtook us: the oldest there is.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "reconnect.backoff.max.ms": 2000,
    }


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
