"""Reads topics: follows them from a point in their past, through failures of brokers, or returns their past records.

There is no consumer group: every consumer reads all partitions and keeps its own position.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, NamedTuple

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.collection import Kind
from connectors.kafka.admin import reach
from connectors.kafka.clients import build_client
from connectors.kafka.connection import KafkaConnection
from policies.units import UserError, millis_of, to_millis
from policies.wire import BadRecordError, EventReader

PATIENCE_SECONDS = 15.0
"""How long `read_past` waits for the next record."""
_POLL_SECONDS = 0.2
_BATCH = 1000
_REFRESH_SECONDS = 10.0
_RETRY_REFRESH_SECONDS = 1.0
"""The interval while topics are missing or Kafka does not answer."""
_STUCK_SECONDS = 10.0
"""The interval between two checks for stuck partitions. A consumer that advances meanwhile is slow, not stuck."""
_REQUEST_SECONDS = 2.0
_TIMES_DIFFER = timedelta(minutes=1)
"""A history begins so much earlier: its first instant is later by the time that connecting takes."""

_log = structlog.get_logger(__name__)

Partition = tuple[str, int]
"""(topic, partition)."""


class Record(NamedTuple):
    """One record of a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    appended_ms: int
    """Its Kafka timestamp, in milliseconds since the epoch."""
    partition: int = 0
    offset: int = 0

    def position(self) -> str:
        """``topic/partition/offset``."""
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass
class Progress:
    """The position in each partition."""

    next_offsets: dict[Partition, int] = field(default_factory=dict)
    behind: dict[Partition, int] = field(default_factory=dict)
    """The end at the start, of partitions that have not been read up to it."""
    before: dict[Partition, int] = field(default_factory=dict)
    """The position at the last check, of partitions whose end was another offset."""

    def find_stuck(self, ends: Mapping[Partition, int]) -> list[Partition]:
        """Return partitions that did not advance since the last check although they end at another offset."""
        before, at = self.before, self.next_offsets
        self.before = {place: at[place] for place, end in ends.items() if end != at[place]}
        return [place for place, offset in self.before.items() if before.get(place) == offset]

    def advance(self, place: Partition, next_offset: int) -> None:
        """Store that everything before that offset has been read."""
        self.next_offsets[place] = next_offset
        if next_offset >= self.behind.get(place, 0):
            self.behind.pop(place, None)

    def forget(self, place: Partition) -> None:
        """Drop a partition."""
        self.next_offsets.pop(place, None)
        self.behind.pop(place, None)


_NO_ANSWER = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
_ELECTIONS = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
"""Errors that pass within seconds, as of a topic that was created a moment ago."""


class Tail(AbstractContextManager["Tail"]):
    """Reads topics, waits for new records, and finds new partitions and topics by itself.

    Use it from one thread, as a context manager. A topic that does not exist yet counts as read.
    Raises UserError if the connection's files cannot be used.

    Args:
        histories: the topics, each with the part of its past to read: None for all of it, zero for nothing.
        client_id: the client's name in the brokers' logs and quotas. The group id is the same, and is never used.
        until: where the past ends; None: at the start.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        histories: Mapping[str, timedelta | None],
        client_id: str,
        until: datetime | None = None,
    ) -> None:
        self._connection = connection
        self._histories = histories
        self._client_id = client_id
        self._until = until
        self.missing: list[str] = []
        """The topics that do not exist."""
        self._discovered = False
        self._refresh_at = 0.0
        self._look_at = 0.0
        self._progress = Progress()
        self._refusals: dict[Partition, str] = {}
        self._unreachable: str | None = None
        self._is_outage = False
        self._last_error: KafkaError | None = None
        self._must_renew: str | None = None
        """Why the clients must be replaced."""
        self._consumer, self._metadata_client = self._connect()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._metadata_client.close()

    @property
    def caught_up(self) -> bool:
        """Whether all of the past has been read; once true it stays so."""
        return self._discovered and not self._progress.behind

    @property
    def problem(self) -> str | None:
        """Why some records cannot be read at present; None if all can."""
        if self._unreachable is not None:
            return self._unreachable
        return next((f"{topic}/{number} is not read: {why}" for (topic, number), why in self._refusals.items()), None)

    @property
    def backlog(self) -> str:
        """The remaining history, in a clause."""
        if not self._discovered:
            return "its topics have not been found yet"
        places = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self._progress.behind)[:3])
        return f"{len(self._progress.behind)} partitions are behind ({places})"

    def poll(self, timeout_seconds: float) -> list[Record]:
        """Return the next records as soon as there is one; an empty list after the timeout."""
        if time.monotonic() >= self._refresh_at:
            self._maintain()
        first = self._consumer.poll(timeout_seconds)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(_BATCH - 1, timeout=0)]
        return [record for message in messages if (record := self._accept(message)) is not None]

    def _accept(self, message: Message) -> Record | None:
        """Store the position, and return the record; None if the message is an event of the client."""
        error, place = message.error(), (message.topic() or "", message.partition() or 0)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._refuse(error, place)
            return None
        if place not in self._progress.next_offsets:
            return None  # a late record of a topic that has been deleted
        self._refusals.pop(place, None)
        offset = message.offset() or 0
        if error is not None:
            # The end of the partition. Transactions or compaction may have left no record just before it.
            self._progress.advance(place, offset)
            return None
        self._progress.advance(place, offset + 1)
        key: Any = message.key()  # bytes; the library's types allow text, too
        value: Any = message.value()
        return Record(place[0], key, value, message.timestamp()[1], place[1], offset)

    def _refuse(self, error: KafkaError, place: Partition) -> None:
        _log.warning("a partition cannot be read", topic=place[0], partition=place[1], error=error.name())
        # Other errors pass by themselves, or the next refresh finds them.
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and place in self._progress.next_offsets:
            self._refusals[place] = f"{error.name()}: {error.str()}"

    def _maintain(self) -> None:
        """Find topics and partitions that are new or gone; connect again first where that is necessary."""
        self._renew()
        # Runs its callbacks, which receive the causes of failures, and tokens.
        self._metadata_client.poll(0)
        try:
            # Topic by topic, because the cluster may have thousands of others.
            found = [place for name in self._histories for place in self._partitions(name)]
            self._drop(found)
            self._leave_stuck()
            self._add(found)
        except KafkaException as error:
            self._metadata_client.poll(0)
            why: KafkaError = error.args[0]
            # A request that nobody answers fails without a cause; the client's callback received it before.
            why = self._last_error if why.code() in _NO_ANSWER and self._last_error is not None else why
            if not self._is_outage and why.code() not in _ELECTIONS:  # a new topic's election is no outage
                _log.warning("Kafka does not answer", error=why.name(), detail=why.str())
                self._is_outage = True
            servers = ",".join(self._connection.servers())
            self._unreachable = f"Kafka at {servers} does not answer as it should: {why.name()}: {why.str()}"
            self._refresh_at = time.monotonic() + _RETRY_REFRESH_SECONDS
            return
        if self._is_outage:
            _log.info("Kafka answers again")
        self._is_outage = False
        self._unreachable, self._last_error, self._discovered = None, None, True
        self.missing = sorted(self._histories.keys() - {topic for topic, _ in found})
        self._refresh_at = time.monotonic() + (_RETRY_REFRESH_SECONDS if self.missing else _REFRESH_SECONDS)

    def _partitions(self, name: str) -> list[Partition]:
        topic = self._metadata_client.list_topics(name, timeout=_REQUEST_SECONDS).topics[name]
        if topic.error is None:
            return [(name, number) for number in topic.partitions]
        if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise KafkaException(KafkaError(topic.error.code(), f"{name}: {topic.error.str()}"))

    def _drop(self, found: Iterable[Partition]) -> None:
        """Stop reading deleted partitions; if they are created again, a new client reads them from the start."""
        gone = set(self._progress.next_offsets).difference(found)
        if not gone:
            return
        _log.info("topics are gone", topics=sorted({topic for topic, _ in gone}))
        self._leave(gone)
        self._must_renew = "topics are gone"

    def _leave_stuck(self) -> None:
        """Connect again if a partition has records that the client does not receive.

        A topic may be deleted and created again between two refreshes. The client then remembers a higher leader epoch,
        and waits forever. A new client continues at the old offset, or from the start if the partition is shorter. The
        records that it misses do no harm, because readings and decisions are levels and are repeated.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _STUCK_SECONDS
        asked = [TopicPartition(*place, OFFSET_END) for place in self._progress.next_offsets]
        found = self._metadata_client.offsets_for_times(asked, timeout=_REQUEST_SECONDS) if asked else []
        ends = {(each.topic, each.partition): each.offset for each in found if each.error is None}
        if not (stuck := self._progress.find_stuck(ends)):
            return
        _log.warning("partitions return no records before their end", topics=sorted({name for name, _ in stuck}))
        self._leave([place for place in stuck if ends[place] < self._progress.next_offsets[place]])
        self._must_renew = "partitions return no records"
        self._renew()

    def _leave(self, places: Collection[Partition]) -> None:
        self._consumer.incremental_unassign([TopicPartition(*place) for place in places])
        for place in places:
            self._progress.forget(place)
            self._refusals.pop(place, None)

    def _add(self, found: Iterable[Partition]) -> None:
        """Start to read new partitions."""
        new = [place for place in found if place not in self._progress.next_offsets]
        spans = {place: self._span(place) for place in new}
        if not spans:
            return
        self._consumer.incremental_assign([TopicPartition(*place, span[0]) for place, span in spans.items()])
        for place, (start, end) in spans.items():
            self._progress.next_offsets[place] = start
            if not self._discovered and start < end:
                self._progress.behind[place] = end

    def _span(self, place: Partition) -> tuple[int, int]:
        """Return the start offset and the end of the past."""
        oldest, end = self._metadata_client.get_watermark_offsets(TopicPartition(*place), timeout=_REQUEST_SECONDS)
        # A partition that appears after the start is read from its beginning.
        history = None if self._discovered else self._histories[place[0]]
        if not history:
            return (oldest if history is None else end), end
        start = self._find_offset(place, time.time_ns() // 1_000_000 - millis_of(history), end)
        return start, end if self._until is None else self._find_offset(place, to_millis(self._until), end)

    def _find_offset(self, place: Partition, at_ms: int, end: int) -> int:
        """Return the offset of the first record from an instant on; the end if there is none."""
        (found,) = self._metadata_client.offsets_for_times([TopicPartition(*place, at_ms)], timeout=_REQUEST_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return end if found.offset == OFFSET_END else found.offset

    def _renew(self) -> None:
        """Connect again, at the same offsets, if the client must be replaced."""
        if self._must_renew is None:
            return
        clients = self._connect()
        _log.info("connecting again", reason=self._must_renew)
        clients[0].assign([TopicPartition(*place, at) for place, at in self._progress.next_offsets.items()])
        self.close()
        (self._consumer, self._metadata_client), self._must_renew = clients, None

    def _connect(self) -> tuple[Consumer, Consumer]:
        """Make the consumer of records, and the client that requests topics and offsets.

        A broker answers the requests of a connection in order, and fetches wait for records: so there are two. An admin
        client would need the controller where any broker suffices, and may create the topics that it asks for.
        """
        options = {**self._connection.for_confluent(), **_options(self._client_id), "error_cb": self._note}
        return build_client(Consumer, options), build_client(Consumer, options)

    def _note(self, error: KafkaError) -> None:
        # "All brokers are down" follows each error that names a cause.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error


def read_past(tail: Tail, stop: Event | None = None, *, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Record]:
    """Yield the records of the past, until the tail has caught up or `stop` is set.

    Raises UserError if records remain, and none has come for `patience_seconds`.
    """
    give_up_at = time.monotonic() + patience_seconds
    while not (tail.caught_up or (stop is not None and stop.is_set())):
        records = tail.poll(_POLL_SECONDS)
        yield from records
        if records:
            give_up_at = time.monotonic() + patience_seconds
        elif time.monotonic() > give_up_at:
            raise UserError(f"kafka: {tail.problem or tail.backlog}")


def read_history(connection: KafkaConnection, topics: Sequence[str], since: datetime, to: datetime) -> Iterator[Record]:
    """Yield the records appended from `since` up to `to`, by append time.

    Raises UserError if the cluster does not answer, or a topic does not exist.
    """
    reach(connection)
    history = max(timedelta(0), datetime.now(UTC) - since) + _TIMES_DIFFER
    with Tail(connection, dict.fromkeys(topics, history), "headgate-replay", until=to) as tail:
        first_ms, end_ms = to_millis(since), to_millis(to)
        found = [record for record in read_past(tail) if first_ms <= record.appended_ms < end_ms]
        if tail.missing:
            raise UserError(f"{tail.missing[0]}: Kafka has no such topic")
    yield from sorted(found, key=lambda each: (each.appended_ms, each.topic, each.partition, each.offset))


def last_readings(
    connection: KafkaConnection, topic: str, kind: type[Kind], history: timedelta, stop: Event
) -> list[Kind]:
    """Return the last reading of each subject from before this start; fewer, or none, if Kafka does not answer.

    A collector that learns of things only by seeing them starts from these readings, so a restart forgets nothing.
    `history` is the maximum age of a reading; `stop` ends the read early.
    """
    last: dict[str, Kind] = {}
    reader = EventReader((kind,))
    try:
        with Tail(connection, {topic: history}, "headgate-recall") as tail:
            for record in read_past(tail, stop):
                try:
                    reading = reader.read(record.value or b"").data
                except BadRecordError:
                    continue  # another kind, or a record that the query publishes as a dead letter
                last[reading.subject()] = reading
    except UserError as error:
        _log.warning("readings from before this start are incomplete", topic=topic, detail=str(error))
    return list(last.values())


def _options(client_id: str) -> dict[str, Any]:
    return {
        "client.id": client_id,
        # The client requires one, although nothing is committed and no group is joined.
        "group.id": client_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # If retention deleted the records at our offset, continue at the oldest one.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        # A writer that leaves a transaction open would hold back all records after it. No part of Headgate uses
        # transactions, so an aborted record is no less credible than any other of its writer.
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
        "reconnect.backoff.max.ms": 2000,
    }
