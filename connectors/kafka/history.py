"""Reads past records: all of a time range, the last reading of each subject, or those of foreign writers."""

import heapq
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.collection import Kind
from connectors.kafka.connection import KafkaConnection, build_client, no_answer
from connectors.kafka.tail import Tail
from connectors.kafka.topic_admin import reach
from connectors.kafka.topics import TopicSettings, encoded
from policies.registry import decided_topics, decision_types
from policies.units import UserError, counted, to_millis
from policies.wire import BadRecordError, EventReader, ObservedRecord

RECENT = timedelta(minutes=10)
"""The past in which foreign records are looked for."""
GIVE_UP_SECONDS = 15.0
"""Limit of `last_readings`: an hour of readings takes less. Without them a collector starts with less knowledge."""
_POLL_SECONDS = 0.2
_TIMEOUT_SECONDS = 10.0
_CAUSE_SECONDS = 3.0
_BATCH = 1000
_LATEST = -1

_log = structlog.get_logger(__name__)


def read_history(
    connection: KafkaConnection, topics: Sequence[str], since: datetime, to: datetime
) -> Iterator[ObservedRecord]:
    """Yield the records appended from `since` up to `to`, by append time.

    Raises:
        UserError: the cluster does not answer, or a topic does not exist.
    """
    with _consumer(connection) as consumer:
        ranges = [
            (p, _offset_at(consumer, p, since), _offset_at(consumer, p, to))
            for topic in topics
            for p in _partitions(consumer, topic)
        ]
        # Each partition is read completely, one after the other; then the partitions are merged by time.
        parts = (list(_read(consumer, *each)) for each in ranges)
        yield from heapq.merge(*parts, key=lambda each: (each.appended_ms, each.topic, each.partition))


def last_readings(
    connection: KafkaConnection, topic: str, kind: type[Kind], history: timedelta, stop: Event
) -> list[Kind]:
    """Return the last reading of each subject from before this start; fewer, or none, if the time limit ends the read.

    A collector that learns of things only by seeing them starts from these readings, so a restart forgets nothing.
    `history` is the maximum age of a reading; `stop` ends the read early.
    """
    last: dict[str, Kind] = {}
    reader, give_up_at = EventReader((kind,)), time.monotonic() + GIVE_UP_SECONDS
    try:
        with Tail(connection, {topic: history}, "headgate-recall") as tail:
            while not (tail.caught_up or stop.is_set() or time.monotonic() > give_up_at):
                for record in tail.poll(_POLL_SECONDS):
                    try:
                        reading = reader.read(record.value or b"").data
                    except BadRecordError:
                        continue  # another kind, or a record that the query publishes as a dead letter
                    last[reading.subject()] = reading
            if not (tail.caught_up or stop.is_set()):
                why = tail.problem or tail.backlog
                _log.warning("readings from before this start are incomplete", topic=topic, detail=why)
    except UserError as error:
        _log.warning("readings from before this start cannot be read", topic=topic, detail=str(error))
    return list(last.values())


def find_foreign_records(connection: KafkaConnection, topics: TopicSettings) -> Iterator[str]:
    """Yield one sentence for each decided topic with recent records that the query cannot have written.

    Raises:
        UserError: the cluster does not answer, or a topic does not exist.
    """
    reader, now, found = EventReader(decision_types()), datetime.now(UTC), Counter[str]()
    for record in read_history(connection, [topics.topic(name) for name in decided_topics()], now - RECENT, now):
        try:
            if record.value is not None:
                reader.read(record.value)
        except BadRecordError:
            found[record.topic] += 1
    yield from (describe_foreign(topic, count) for topic, count in sorted(found.items()))


def describe_foreign(topic: str, count: int) -> str:
    """Return the sentence about the records of another writer, for people."""
    return (
        f"{topic}: {counted(count, 'record')} of the last {RECENT // timedelta(minutes=1)} min "
        "are no decisions: another process writes there, which `headgate topics acls decide` excludes"
    )


@contextmanager
def _consumer(connection: KafkaConnection) -> Iterator[Consumer]:
    options = {**connection.for_confluent(), "group.id": "headgate-replay", "enable.auto.commit": False}
    # The last offsets of a partition may be a transaction's, and have no record.
    consumer = build_client(Consumer, {**options, "enable.partition.eof": True})
    try:
        yield consumer
    except KafkaException as error:
        # If Kafka does not answer at all, this raises an error that names the remedy.
        reach(connection, timeout_seconds=_CAUSE_SECONDS)
        raise UserError(f"kafka: {no_answer(connection.servers(), error.args[0])}") from None
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    found = consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
    if found.error is not None:
        raise UserError(f"{topic}: {found.error.str()}")
    return [TopicPartition(topic, partition) for partition in found.partitions]


def _read(consumer: Consumer, partition: TopicPartition, start: int, end: int) -> Iterator[ObservedRecord]:
    consumer.assign([TopicPartition(partition.topic, partition.partition, start)])
    position = start
    while position < end:
        # A larger count would wait for records that never come.
        messages = consumer.consume(min(_BATCH, end - position), timeout=_TIMEOUT_SECONDS)
        if not messages:
            raise UserError(f"{partition.topic}: Kafka returned no records for {_TIMEOUT_SECONDS:g} s")
        for message in messages:
            position = (message.offset() or 0) + 1
            if position <= end and message.error() is None:
                place = (partition.topic, partition.partition, position - 1, message.timestamp()[1])
                yield ObservedRecord(*place, encoded(message.value()), None, encoded(message.key()))


def _offset_at(consumer: Consumer, partition: TopicPartition, instant: datetime) -> int:
    """Return the first offset at or after an instant; the end if there is none."""
    asked = TopicPartition(partition.topic, partition.partition, to_millis(instant))
    found = consumer.offsets_for_times([asked], timeout=_TIMEOUT_SECONDS)[0].offset
    return found if found != _LATEST else int(consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_SECONDS)[1])
