"""A real broker of Kafka 4.3 with two log dirs: one is cordoned; later the other one has failed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import KafkaAdminClient
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.kafka import log_dirs
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.log_dirs import LogDirsCollector
from connectors.throttle.io import CORDONED_KEY, check_cordons
from deploy.embedded.kafka import EmbeddedKafka
from policies.free_space.limits import Limit
from policies.observations import Observation, Outcome, Reading
from policies.throttle.readings import KafkaReading, ReplicaSizes
from tests.policies.scenario import Run, at, throttle
from tests.system.brokers import kill_broker
from tests.system.waiting import eventually


@pytest.fixture(scope="module")
def dirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("disks")
    return folder / "a", folder / "b"


@pytest.fixture(scope="module")
def kafka(
    kafka_jars: tuple[Path, ...], dirs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(folder, kafka_jars, log_dirs={1: dirs}, heap_mebibytes=128) as cluster:
        yield cluster


def test_replicas_that_move_between_log_dirs_are_apart_from_what_their_topic_writes(
    kafka: EmbeddedKafka, dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cruise Control and `kafka-reassign-partitions` move data so; the broker's answer marks it (`is_future_key`)."""
    monkeypatch.setattr(log_dirs, "INTERVAL_SECONDS", 0.2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    slow = ConfigEntry(
        "replica.alter.log.dirs.io.max.bytes.per.second", "1000000", incremental_operation=AlterConfigOpType.SET
    )
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[slow])
    admin.incremental_alter_configs([broker])[broker].result(30)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "none"})
    for _ in range(320):
        producer.produce("orders", bytes(65_536))
        producer.poll(0)
    assert producer.flush(60) == 0
    source, target = sorted(map(str, dirs), key=lambda each: not (Path(each) / "orders-0").exists())
    mover = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    mover.alter_replica_log_dirs({("orders", 0, 1): target})
    mover.close()

    readings: list[Reading] = []
    collector = LogDirsCollector(
        "payments",
        WatchedKafka(bootstrap_servers=kafka.bootstrap_servers),
        readings.append,
        PollMetrics(CollectorRegistry()),
        [Limit.model_validate({"available_ratio_below": 1.0})],
    )

    def moved() -> list[tuple[str, bool]] | None:
        collector.poll_once()
        sizes = [each for each in readings if isinstance(each, ReplicaSizes)]
        growing = [
            (volume.log_dir, topic.is_moved)
            for volume in (sizes[-1].volumes if sizes else ())
            for topic in volume.topics
            if topic.topic == "orders" and (topic.bytes_per_second or 0) > 0
        ]
        return growing or None

    try:
        assert eventually("the target grows", moved) == [(target, True)]
    finally:
        collector.close()
    assert source != target


def test_a_volume_that_an_operator_cordons_is_named_no_more(kafka: EmbeddedKafka, dirs: tuple[Path, Path]) -> None:
    watched = WatchedKafka(bootstrap_servers=kafka.bootstrap_servers)
    settings = throttle({"soft": {"available_ratio_below": 1.0}})
    found = check_cordons("payments", watched, settings)
    assert found.outcome is Outcome.ERROR
    assert f"cordoned.log.dirs=[{dirs[0]},{dirs[1]}]" in found.remedies[0]
    assert f"{dirs[0]} is at its limit" in found.detail

    entry = ConfigEntry(CORDONED_KEY, str(dirs[0]), incremental_operation=AlterConfigOpType.APPEND)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.incremental_alter_configs([broker])[broker].result(30)
    is_open = f"{dirs[1]} is at its limit"
    eventually("the broker shows it", lambda: is_open in check_cordons("payments", watched, settings).detail)


def test_a_disk_that_failed_before_the_start_counts_as_the_fallback(
    kafka: EmbeddedKafka, dirs: tuple[Path, Path]
) -> None:
    kill_broker(kafka, 1)
    shutil.rmtree(dirs[1])
    dirs[1].write_text("no folder: this log dir cannot be used")
    kafka.start_broker(1)
    readings: list[Reading] = []
    watched = WatchedKafka(bootstrap_servers=kafka.bootstrap_servers)
    collector = LogDirsCollector("payments", watched, readings.append, PollMetrics(CollectorRegistry()))
    try:
        collector.poll_once()
    finally:
        collector.close()
    run = Run(throttle({"hard": {"available_bytes_below": 1}}, fallback_factor=0.0))
    for second in range(0, 400, 10):
        run.see(*(Observation(f"{n}@{second}", at(second), each) for n, each in enumerate(readings)), seconds=second)
    assert run.changes() == [(0, 1.0), (300, 0.0)]
    assert run.firing() == {("log-dir-offline", f"payments/1{dirs[1]}")}
    assert run.said("log-dir-offline")[0] == (0, "firing", "critical")
    assert f"reports its log dir {dirs[1]} as failed (KAFKA_STORAGE_ERROR)" in run.alerts[0].summary
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})  # its results end with it
    described = admin.describe_cluster().result(30)
    assert {each.cluster_id for each in readings if isinstance(each, KafkaReading)} == {described.cluster_id}
    assert run.last.volumes.model_dump() == {"counted": 1, "stale": 0, "departed": 0, "never_read": 1}
    assert f"broker 1 {dirs[1]} was never readable" in run.last.explanation
