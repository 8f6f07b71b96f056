"""What fills a real disk of a real broker: its topics in order, and a file that is not Kafka's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.kafka import log_dirs
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.log_dirs import LogDirsCollector
from deploy.embedded.kafka import EmbeddedKafka
from policies.free_space.limits import Limit
from policies.observations import Observation, Reading
from policies.throttle.readings import ReplicaSizes
from tests.policies.scenario import Run, at, throttle
from tests.system.disks import small_disk, why_not_mountable
from tests.system.waiting import eventually

MEBIBYTE = 2**20
LIMIT = {"available_bytes_below": "1GB"}
"""More than the disk has: the volume is at its limit from the first reading on."""
WRITTEN = {"orders": 24, "clicks": 12}
"""Mebibytes between the two readings; a third topic has content and does not grow."""
BALLAST = 18


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if why := why_not_mountable():
        pytest.skip(why)
    with small_disk(tmp_path_factory.mktemp("disk"), mebibytes=300) as mounted:
        yield mounted


@pytest.fixture(scope="module")
def kafka(
    kafka_jars: tuple[Path, ...], disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(folder, kafka_jars, log_dirs={1: [disk / "logs"]}, heap_mebibytes=128) as cluster:
        yield cluster


def write(kafka: EmbeddedKafka, mebibytes: dict[str, int]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "none"})
    for topic, count in mebibytes.items():
        for _ in range(16 * count):
            producer.produce(topic, bytes(MEBIBYTE // 16))
            producer.poll(0)
    assert producer.flush(60) == 0


def test_the_sentence_names_the_topics_that_fill_a_disk_in_order(
    kafka: EmbeddedKafka, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dirs, "INTERVAL_SECONDS", 0.5)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for created in admin.create_topics([NewTopic(t, 1, 1) for t in ("orders", "clicks", "idle")]).values():
        created.result(30)
    write(kafka, {"orders": 1, "clicks": 1, "idle": 30})
    readings: list[tuple[float, Reading]] = []
    collector = LogDirsCollector(
        "payments",
        WatchedKafka(bootstrap_servers=kafka.bootstrap_servers),
        lambda reading: readings.append((time.monotonic(), reading)),
        PollMetrics(CollectorRegistry()),
        [Limit.model_validate(LIMIT)],
    )

    def sizes() -> list[tuple[float, ReplicaSizes]]:
        return [(when, reading) for when, reading in readings if isinstance(reading, ReplicaSizes)]

    def is_read_again() -> bool:
        collector.poll_once()
        return len(sizes()) > 1

    try:
        collector.poll_once()
        assert len(sizes()) == 1
        write(kafka, WRITTEN)
        (disk / "ballast").write_bytes(bytes(BALLAST * MEBIBYTE))
        eventually("they are read again", is_read_again)
    finally:
        collector.close()
    (began, _), (ended, second) = sizes()[:2]
    (usage,) = second.volumes
    grown = {each.topic: (each.bytes_per_second or 0.0) * (ended - began) / MEBIBYTE for each in usage.topics}
    assert list(grown)[:3] == ["orders", "clicks", "idle"]
    assert grown["orders"] == pytest.approx(WRITTEN["orders"], rel=0.1)
    assert grown["clicks"] == pytest.approx(WRITTEN["clicks"], rel=0.1)
    assert grown["idle"] == pytest.approx(0.0, abs=0.1)
    assert usage.other_bytes_per_second is not None
    assert usage.other_bytes_per_second * (ended - began) / MEBIBYTE == pytest.approx(BALLAST, rel=0.1)

    run = Run(throttle({"soft": {"available_ratio_below": 1.0}, "hard": {"available_ratio_below": 0.01}}))
    run.see(*(Observation(f"r{n}", at(n), reading) for n, (_, reading) in enumerate(readings)), seconds=len(readings))
    assert "filled by topic orders (" in run.last.explanation
    assert " and files that are not Kafka's (" in run.last.explanation
