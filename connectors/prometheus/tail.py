"""Follows topics from a point in their past, for as long as it is polled, whatever happens to the brokers.

There is no consumer group: every exporter reads everything, and where it is in a topic is nobody else's business.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from connectors.kafka.connection import KafkaConnection
from connectors.prometheus.records import Record
from policies.errors import UserError
from policies.units import millis_of

_BATCH = 1000
_SURVEY_SECONDS = 10.0
_HASTY_SURVEY_SECONDS = 1.0
"""While topics are missing or Kafka does not answer."""
_REQUEST_SECONDS = 2.0

_LIBRDKAFKA = logging.getLogger("headgate.librdkafka")

_log = structlog.get_logger(__name__)

# Untyped upstream.
_OffsetSpec: Any = OffsetSpec

Place = tuple[str, int]
"""(topic, partition)."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic as it exists: one that was deleted and made again has another id."""

    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class _Clients:
    """The two clients of one connection.

    The consumer's connections are busy with fetches that wait for news; what else is asked has connections of its own.
    """

    fingerprint: str
    consumer: Consumer
    admin: AdminClient


@dataclass
class _Progress:
    """How far each partition is read."""

    next_offsets: dict[Place, int] = field(default_factory=dict)
    behind: dict[Place, int] = field(default_factory=dict)
    """The end, as seen at the start, of those not read so far yet."""

    def reached(self, place: Place, next_offset: int) -> None:
        self.next_offsets[place] = next_offset
        if next_offset >= self.behind.get(place, 0):
            self.behind.pop(place, None)

    def forget(self, place: Place) -> None:
        self.next_offsets.pop(place, None)
        self.behind.pop(place, None)


class Tail:
    """Reads topics as they are and grow; new partitions and topics are found by themselves.

    Use it from one thread, as a context manager. What does not exist yet has nothing to catch up with.

    Args:
        connection: how to reach the cluster; connected anew when the content of its files changes.
        histories: the topics, and how much of their past is read; null means all of it, zero nothing.
        client_id: how the brokers' logs and quotas name this client; the consumer's group id too, which is never used.

    Raises:
        UserError: the connection's files cannot be used.
    """

    def __init__(self, connection: KafkaConnection, histories: Mapping[str, timedelta | None], client_id: str) -> None:
        self._connection = connection
        self._histories = histories
        self._client_id = client_id
        self._topics: dict[str, _Topic] = {}
        self._surveyed = False
        self._survey_at = 0.0
        self._progress = _Progress()
        self._refusals: dict[Place, str] = {}
        self._unreachable: str | None = None
        self._last_error: KafkaError | None = None
        self._fatal = False
        self._clients = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clients.consumer.close()

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at the start has been read; once true it stays so."""
        return self._surveyed and not self._progress.behind

    @property
    def problem(self) -> str | None:
        """Why nothing can be read at present, or not everything; null when all is well."""
        if self._unreachable is not None:
            return self._unreachable
        return next((f"{topic}/{number} is not read: {why}" for (topic, number), why in self._refusals.items()), None)

    @property
    def backlog(self) -> str:
        """How much is missing to be caught up, in a clause."""
        if not self._surveyed:
            return "its topics have not been found yet"
        places = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self._progress.behind)[:3])
        return f"{len(self._progress.behind)} partitions are behind ({places})"

    def poll(self, timeout_seconds: float) -> list[Record]:
        """The next records, as soon as there is one; none when there is none in time."""
        if time.monotonic() >= self._survey_at:
            self._maintain()
        first = self._clients.consumer.poll(timeout_seconds)
        if first is None:
            return []
        messages = [first, *self._clients.consumer.consume(_BATCH - 1, timeout=0)]
        return [record for message in messages if (record := self._accept(message)) is not None]

    def _accept(self, message: Message) -> Record | None:
        """Note how far we are; null for what is an event of the client's, not a record."""
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
        return Record(place[0], _bytes(message.key()), _bytes(message.value()), message.timestamp()[1])

    def _refuse(self, error: KafkaError, place: Place) -> None:
        self._fatal = self._fatal or error.fatal()
        if place in self._progress.next_offsets and place not in self._refusals:
            _log.warning("a partition cannot be read", topic=place[0], partition=place[1], error=error.name())
            self._refusals[place] = f"{error.name()}: {error.str()}"

    def _maintain(self) -> None:
        """Follow the connection's files, and look for topics and partitions that are new or gone."""
        self._follow_files()
        try:
            found = self._describe()
            self._drop(found)
            self._add(found)
        except KafkaException as error:
            self._note_failure(error.args[0])
            self._survey_at = time.monotonic() + _HASTY_SURVEY_SECONDS
            return
        if self._unreachable is not None:
            _log.info("Kafka answers again")
        self._unreachable, self._last_error, self._surveyed = None, None, True
        complete = len(found) == len(self._histories)
        self._survey_at = time.monotonic() + (_SURVEY_SECONDS if complete else _HASTY_SURVEY_SECONDS)

    def _note_failure(self, error: KafkaError) -> None:
        # librdkafka says that it timed out, and why only to the callback.
        why = self._last_error if error.code() == KafkaError._TIMED_OUT and self._last_error else error
        if self._unreachable is None:
            _log.warning("Kafka does not answer", error=why.name(), detail=why.str())
        servers = ",".join(self._connection.servers())
        self._unreachable = f"Kafka at {servers} does not answer as it should: {why.name()}: {why.str()}"

    def _describe(self) -> dict[str, _Topic]:
        """The topics that exist."""
        futures = self._clients.admin.describe_topics(
            TopicCollection(list(self._histories)), request_timeout=_REQUEST_SECONDS
        )
        found: dict[str, _Topic] = {}
        for name, future in futures.items():
            try:
                topic = future.result()
            except KafkaException as error:
                refusal = error.args[0]
                if refusal.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise KafkaException(KafkaError(refusal.code(), f"{name}: {refusal.str()}")) from None
            found[name] = _Topic(str(topic.topic_id), tuple(partition.id for partition in topic.partitions))
        return found

    def _drop(self, found: Mapping[str, _Topic]) -> None:
        """Leave topics that are gone, and those that were made anew under the same name."""
        for name, topic in list(self._topics.items()):
            if name in found and found[name].id == topic.id:
                continue
            _log.info("a topic is gone", topic=name)
            places = [place for place in self._progress.next_offsets if place[0] == name]
            self._clients.consumer.incremental_unassign([TopicPartition(*place) for place in places])
            for place in places:
                self._progress.forget(place)
                self._refusals.pop(place, None)
            del self._topics[name]

    def _add(self, found: Mapping[str, _Topic]) -> None:
        """Begin with partitions that are new to us."""
        places = [(name, number) for name, topic in found.items() for number in topic.partitions]
        new = [place for place in places if place not in self._progress.next_offsets]
        if new:
            # What appears after our start is new as a whole.
            history = (lambda topic: self._histories[topic]) if not self._surveyed else (lambda _: None)
            starts, ends = self._starts(new, history), self._offsets({place: _OffsetSpec.latest() for place in new})
            self._clients.consumer.incremental_assign([TopicPartition(*p, starts.get(p, ends[p])) for p in new])
            for place in new:
                start = starts.get(place, ends[place])
                self._progress.next_offsets[place] = start
                if not self._surveyed and start < ends[place]:
                    self._progress.behind[place] = ends[place]
        self._topics = dict(found)

    def _starts(self, places: Iterable[Place], history: Callable[[str], timedelta | None]) -> dict[Place, int]:
        """Where to begin; partitions to be read from their end are left out, and those without so recent a record."""
        now_ms = time.time_ns() // 1_000_000
        specs = {place: _spec(history(place[0]), now_ms) for place in places}
        offsets = self._offsets({place: spec for place, spec in specs.items() if spec is not None})
        return {place: offset for place, offset in offsets.items() if offset >= 0}

    def _offsets(self, specs: Mapping[Place, Any]) -> dict[Place, int]:
        if not specs:
            return {}
        asked = {TopicPartition(*place): spec for place, spec in specs.items()}
        futures = self._clients.admin.list_offsets(asked, request_timeout=_REQUEST_SECONDS)
        return {(p.topic, p.partition): future.result().offset for p, future in futures.items()}

    def _follow_files(self) -> None:
        """Connect anew when the files have changed, or the client is beyond repair; go on where we were."""
        if not self._fatal and self._connection.fingerprint() == self._clients.fingerprint:
            return
        try:
            clients = self._connect()
        except UserError as error:
            # Half of the files may have been written so far; the old client is kept, and the next look tries again.
            _log.warning("connection files changed but cannot be used", detail=str(error))
            return
        _log.info("connecting anew", reason="fatal error" if self._fatal else "connection files changed")
        clients.consumer.assign([TopicPartition(*place, at) for place, at in self._progress.next_offsets.items()])
        self._clients.consumer.close()
        self._clients, self._fatal = clients, False

    def _connect(self) -> _Clients:
        fingerprint = self._connection.fingerprint()
        common = {**self._connection.for_confluent(), "client.id": self._client_id, "error_cb": self._note}
        try:
            consumer = Consumer({**common, **_consumer_options(self._client_id)}, logger=_LIBRDKAFKA)
            return _Clients(fingerprint, consumer, AdminClient(common, logger=_LIBRDKAFKA))
        except KafkaException as error:
            raise UserError(f"kafka: {error.args[0].str()}.") from None

    def _note(self, error: KafkaError) -> None:
        self._fatal = self._fatal or error.fatal()
        # "All brokers are down" follows each telling one.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error


def _consumer_options(group: str) -> dict[str, Any]:
    return {
        # The client wants one even where nothing is committed and nobody joins.
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Where retention overtook us: the oldest there is.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "reconnect.backoff.max.ms": 2000,
    }


def _spec(history: timedelta | None, now_ms: int) -> Any:
    """Which offset to ask for; null for the end."""
    if history is None:
        return _OffsetSpec.earliest()
    return _OffsetSpec.for_timestamp(now_ms - millis_of(history)) if history else None


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
