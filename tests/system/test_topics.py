"""The loop's topics on a real cluster, and records that reach them."""

import json
import time
import uuid

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, Producer, TopicPartition
from prometheus_client import CollectorRegistry

from connectors.kafka.admin import check_topics, create_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics, observations_to
from connectors.kafka.topics import TopicSettings, plan
from policies.observations import Outcome
from policies.throttle.readings import KafkaCluster
from tests.system.brokers import alter_topic
from tests.system.waiting import DEADLINE_SECONDS, eventually

SETTINGS = TopicSettings(prefix=f"topics{uuid.uuid4().hex[:8]}")
OBSERVED = SETTINGS.topic("observed.log-dirs")


@pytest.fixture
def connection(loop_kafka: str) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=loop_kafka)


def last_message(connection: KafkaConnection, topic: str) -> Message:
    consumer = Consumer({**connection.for_confluent(), "group.id": "test", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_SECONDS)
        consumer.assign([TopicPartition(topic, 0, end - 1)])
        message = consumer.poll(60)
        assert message is not None
        return message
    finally:
        consumer.close()


def test_topics_are_created_once_and_are_then_as_planned(connection: KafkaConnection) -> None:
    names = tuple(topic.topic for topic in plan(SETTINGS))
    missing = check_topics(connection, SETTINGS)
    assert (missing.missing, missing.existing, missing.as_planned) == (names, (), False)
    first = create_topics(connection, SETTINGS)
    assert (first.created, first.existing, first.differences) == (names, (), ())
    second = create_topics(connection, SETTINGS)
    assert (second.created, second.existing, second.differences) == ((), names, ())
    assert check_topics(connection, SETTINGS).as_planned


def test_a_changed_config_is_told_and_not_changed_back(connection: KafkaConnection) -> None:
    create_topics(connection, SETTINGS)
    alter_topic(connection.bootstrap_servers, OBSERVED, "message.timestamp.type", "CreateTime")
    try:
        eventually("the broker tells of it", lambda: check_topics(connection, SETTINGS).differences or None)
        for report in (create_topics(connection, SETTINGS), check_topics(connection, SETTINGS)):
            (difference,) = report.differences
            assert (difference.topic, difference.key) == (OBSERVED, "message.timestamp.type")
            assert (difference.expected, difference.found) == ("LogAppendTime", "CreateTime")
            assert "--add-config message.timestamp.type=LogAppendTime" in difference.remedy
    finally:
        alter_topic(connection.bootstrap_servers, OBSERVED, "message.timestamp.type", "LogAppendTime")
        eventually("it is as planned again", lambda: check_topics(connection, SETTINGS).as_planned or None)
    other = check_topics(connection, TopicSettings(prefix=SETTINGS.prefix, partitions=2, replication_factor=3))
    assert {difference.key for difference in other.differences} == {"partitions", "replication factor"}


def test_a_reading_is_published_as_an_event_with_the_brokers_time(connection: KafkaConnection) -> None:
    create_topics(connection, SETTINGS)
    registry, began = CollectorRegistry(), time.time()
    with Publisher(connection, PublisherMetrics(registry)) as publisher:
        sink = observations_to(publisher.publish, OBSERVED, "headgate/collector/kafka")
        sink(KafkaCluster(cluster="payments", outcome=Outcome.TIMEOUT))
        assert publisher.flush(DEADLINE_SECONDS) == 0
    assert registry.get_sample_value("headgate_records_published_total", {"topic": OBSERVED}) == 1.0
    message = last_message(connection, OBSERVED)
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert began - 1 <= timestamp_ms / 1000 <= time.time() + 1
    assert message.key() == b"payments"
    event = json.loads(message.value() or b"")
    assert event["type"] == "headgate.kafka-cluster.v1"
    assert (event["source"], event["subject"]) == ("headgate/collector/kafka", "payments")
    assert event["data"]["outcome"] == "timeout"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_large_only_when_it_is_unpacked_is_refused_by_the_brokers(
    connection: KafkaConnection, codec: str
) -> None:
    create_topics(connection, SETTINGS)
    limit = {"message.max.bytes": 100_000_000, "compression.type": codec}
    producer = Producer({**connection.for_confluent(), **limit})
    refused: list[KafkaError | None] = []
    producer.produce(OBSERVED, b" " * 12_000_000, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert [error and error.code() for error in refused] == [KafkaError.MSG_SIZE_TOO_LARGE]
