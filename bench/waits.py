"""How long records wait for the batch that takes them, each from its append to that batch's end."""

import itertools
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, TopicPartition

from streaming.progress import BatchProgress

_AT_ONCE = 50_000
"""Records read together."""


def ends_of(servers: str, topic: str) -> dict[int, int]:
    """The next offset of each partition."""
    consumer = _consumer(servers)
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return {each: consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in partitions}
    finally:
        consumer.close()


def appended_ms(servers: str, topic: str, since: dict[int, int]) -> list[int]:
    """When (Kafka's own time) each record from these offsets on was appended, in that order."""
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
    """Of each record that a batch took, shortest first.

    Args:
        batches: in order; together they take the oldest records.
        appended: when each record was, in order.
        undecided: how many records of before are taken first; of them nothing is said.
    """
    ends = ((batch.began_ms + 1000 * batch.duration_seconds, batch.input_records) for batch in batches)
    each = itertools.chain.from_iterable(itertools.repeat(end_ms, records) for end_ms, records in ends)
    taken = itertools.islice(each, undecided, None)
    return sorted(end_ms - at_ms for end_ms, at_ms in zip(taken, appended, strict=False))


def _consumer(servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
