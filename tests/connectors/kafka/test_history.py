"""What lies between two instants comes in the order it was appended, from whatever partitions."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.kafka import history
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.history import read_history
from policies.units import UserError, to_millis
from policies.wire import ObservedRecord

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
START_MS = to_millis(NOON)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@dataclass
class Message:
    """One message of confluent-kafka."""

    at_ms: int
    number: int
    payload: bytes | None
    fault: KafkaError | None = None

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 2, self.at_ms

    def value(self) -> bytes | None:
        return self.payload

    def key(self) -> bytes:
        return b"payments"

    def error(self) -> KafkaError | None:
        return self.fault


MARKER = b"the end of a transaction"


class Consumer:
    """Topics in memory: each a list of partitions, each a list of (seconds after noon, value)."""

    topics: dict[str, list[list[tuple[float, bytes | None]]]]
    silent = False
    batch = 2
    closed = 0

    def __init__(self, options: dict[str, Any], logger: logging.Logger) -> None:
        assert options["enable.auto.commit"] is False
        self._tells_ends = options["enable.partition.eof"]
        assert logger.name == "headgate.librdkafka", "not what it says on standard error"
        self.assigned = TopicPartition("", 0, 0)

    def list_topics(self, topic: str, timeout: float) -> Any:
        error = None if topic in self.topics else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        partitions = range(len(self.topics.get(topic, ())))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        (place,) = asked
        later = (n for n, (seconds, _) in enumerate(self._records(place)) if to_millis(at(seconds)) >= place.offset)
        return [TopicPartition(place.topic, place.partition, next(later, -1))]

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return 0, len(self._records(place))

    def assign(self, places: list[TopicPartition]) -> None:
        (self.assigned,) = places

    def consume(self, count: int, timeout: float) -> list[Message]:
        if self.silent:
            return []
        start = self.assigned.offset
        found = self._records(self.assigned)[start : start + self.batch]
        self.assigned = TopicPartition(self.assigned.topic, self.assigned.partition, start + len(found))
        messages = [Message(to_millis(at(s)), start + n, v) for n, (s, v) in enumerate(found) if v is not MARKER]
        is_end = self._tells_ends and self.assigned.offset == len(self._records(self.assigned))
        end = Message(0, self.assigned.offset, None, KafkaError(KafkaError._PARTITION_EOF))
        return [*messages, end] if is_end else messages

    def close(self) -> None:
        type(self).closed += 1

    def _records(self, place: TopicPartition) -> list[tuple[float, bytes | None]]:
        return self.topics[place.topic][place.partition]


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Consumer]]:
    made: type[Consumer] = type("ConsumerOfTest", (Consumer,), {"topics": {}})
    monkeypatch.setattr(history, "Consumer", made)
    yield made
    assert made.closed == 1


def read(topics: list[str], since: float, to: float) -> list[ObservedRecord]:
    return list(read_history(KafkaConnection(bootstrap_servers="k:9092"), topics, at(since), at(to)))


def test_records_of_several_partitions_come_in_the_order_they_were_appended(consumer: type[Consumer]) -> None:
    consumer.topics = {"a": [[(1, b"1"), (4, b"4"), (6, b"6")], [(2, b"2"), (5, b"5")]], "b": [[(3, b"3")]]}
    assert [record.value for record in read(["a", "b"], 0, 10)] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_the_marker_that_ends_a_transaction_is_no_record_and_no_silence(consumer: type[Consumer]) -> None:
    consumer.topics = {"a": [[(1, b"1"), (2, MARKER)], [(3, MARKER), (4, b"4")]]}
    assert [record.value for record in read(["a"], 0, 10)] == [b"1", b"4"]


def test_the_range_begins_with_its_first_instant_and_ends_before_its_last(consumer: type[Consumer]) -> None:
    consumer.topics = {"a": [[(0, b"before"), (1, b"first"), (2, b"in it"), (3, b"after")]]}
    assert [record.value for record in read(["a"], 1, 3)] == [b"first", b"in it"]


def test_a_record_tells_where_it_lies_and_when_it_was_appended(consumer: type[Consumer]) -> None:
    consumer.topics = {"a": [[], [(1.5, None)]]}
    assert read(["a"], 0, 10) == [ObservedRecord("a", 1, 0, START_MS + 1500, None, None, b"payments")]


@pytest.mark.parametrize(("since", "to"), [(5, 9), (0, 0)], ids=["after the last record", "no time at all"])
def test_an_empty_range_asks_for_no_record(consumer: type[Consumer], since: float, to: float) -> None:
    consumer.topics, consumer.silent = {"a": [[(1, b"1")]]}, True
    assert read(["a"], since, to) == []


def test_a_topic_that_does_not_exist_is_named(consumer: type[Consumer]) -> None:
    with pytest.raises(UserError, match=r"^missing: "):
        read(["missing"], 0, 1)


def test_silence_in_the_middle_is_an_error_and_not_the_end(consumer: type[Consumer]) -> None:
    consumer.topics, consumer.silent = {"a": [[(1, b"1")]]}, True
    with pytest.raises(UserError, match=r"^a: Kafka returned no records for 10 s"):
        read(["a"], 0, 9)


def test_a_cluster_that_does_not_answer_is_the_users_error(
    consumer: type[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Consumer, topic: str, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker"))

    monkeypatch.setattr(consumer, "list_topics", refuse)
    monkeypatch.setattr(history, "reach", lambda *_, **__: 1)  # it answers others
    with pytest.raises(UserError, match="kafka: Kafka at k:9092 does not answer as it should: _TRANSPORT: no broker"):
        read(["a"], 0, 1)
