"""Reads what lies in topics between two instants, in the order it was appended."""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.kafka.connection import KafkaConnection
from policies.errors import UserError
from policies.units import from_millis, to_millis

_TIMEOUT_SECONDS = 10.0
_BATCH = 1000
_LATEST = -1


class AppendedRecord(NamedTuple):
    """One record. Tuples of it sort by when they were appended."""

    appended_at: datetime
    place: str
    offset: int
    value: bytes


def read_history(
    connection: KafkaConnection, topics: Sequence[str], since: datetime, to: datetime
) -> Iterator[AppendedRecord]:
    """Give the records appended from `since` up to `to`, by append time.

    Raises:
        UserError: the cluster does not answer, or a topic does not exist.
    """
    options = {**connection.for_confluent(), "group.id": "headgate-replay", "enable.auto.commit": False}
    consumer = Consumer(options)
    try:
        partitions = [p for topic in topics for p in _partitions(consumer, topic)]
        streams = [_read(consumer, partition, since, to) for partition in partitions]
        # One partition after the other: the whole range of each is merged by time.
        yield from heapq.merge(*(list(stream) for stream in streams))
    except KafkaException as error:
        raise UserError(f"kafka: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    found = consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
    if found.error is not None:
        raise UserError(f"{topic}: {found.error.str()}")
    return [TopicPartition(topic, partition) for partition in found.partitions]


def _read(consumer: Consumer, partition: TopicPartition, since: datetime, to: datetime) -> Iterator[AppendedRecord]:
    start = _offset_at(consumer, partition, since)
    end = _offset_at(consumer, partition, to)
    consumer.assign([TopicPartition(partition.topic, partition.partition, start)])
    position = start
    while position < end:
        # For no more than there are: it would wait for those that never come.
        messages = consumer.consume(min(_BATCH, end - position), timeout=_TIMEOUT_SECONDS)
        if not messages:
            raise UserError(f"{partition.topic}: Kafka gave no records for {_TIMEOUT_SECONDS:g} s")
        for message in messages:
            position = (message.offset() or 0) + 1
            if position <= end and message.error() is None:
                place = f"{partition.topic}/{partition.partition}/{position - 1}"
                yield AppendedRecord(from_millis(message.timestamp()[1]), place, position - 1, message.value() or b"")


def _offset_at(consumer: Consumer, partition: TopicPartition, instant: datetime) -> int:
    """The first offset at or after an instant; the end when there is none."""
    asked = TopicPartition(partition.topic, partition.partition, to_millis(instant))
    found = consumer.offsets_for_times([asked], timeout=_TIMEOUT_SECONDS)[0].offset
    return found if found != _LATEST else int(consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_SECONDS)[1])
