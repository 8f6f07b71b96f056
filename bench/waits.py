"""How long records wait for their batch, each from its append to the batch's end."""

import itertools
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, TopicPartition

from streaming.progress import BatchProgress

_AT_ONCE = 50_000
"""Records that are read together."""


def ends_of(servers: str, topic: str) -> dict[int, int]:
    """Return the next offset of each partition."""
    consumer = _consumer(servers)
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return {each: consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in partitions}
    finally:
        consumer.close()


def appended_ms(servers: str, topic: str, since: dict[int, int]) -> list[int]:
    """Return the append times (Kafka's own) of the records from these offsets on, in order."""
    left = sum(ends_of(servers, topic).values()) - sum(since.values())
    times: list[int] = []
    consumer = _consumer(servers)
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in since.items()])
        while len(times) < left:
            times += [message.timestamp()[1] for message in consumer.consume(_AT_ONCE, timeout=1)]
    finally:
        consumer.close()
    return sorted(times)


def waits_ms(batches: Iterable[BatchProgress], appended: Sequence[int], undecided: int = 0) -> list[float]:
    """Return the waiting time of each record of the batches, shortest first.

    Args:
        batches: in order; together they take the oldest records.
        appended: the append time of each record, in order.
        undecided: the number of earlier records that are taken first; they are left out.
    """
    ends = ((batch.began_ms + 1000 * batch.duration_seconds, batch.input_records) for batch in batches)
    each = itertools.chain.from_iterable(itertools.repeat(end_ms, records) for end_ms, records in ends)
    taken = itertools.islice(each, undecided, None)
    return sorted(end_ms - at_ms for end_ms, at_ms in zip(taken, appended, strict=False))


def _consumer(servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
