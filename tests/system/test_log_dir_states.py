"""A real broker of Kafka 4.3 with two log dirs: one is cordoned and opened again; later the other one has failed."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry

from connectors.collection.poll_metrics import PollMetrics
from connectors.kafka.cordons import CordonClient
from connectors.kafka.log_dirs import LogDirsCollector, WatchedKafka
from connectors.throttle.cordon_actuator import CordonMetrics, CordonWorker
from connectors.throttle.cordons import check_cordons
from deploy.embedded.kafka import EmbeddedKafka
from policies.decisions import AlertStatus
from policies.observations import Observation, Outcome, Reading
from tests.connectors.actuation.virtual_clock import NOON
from tests.connectors.throttle.test_cordon_actuator import soft_limit_alert
from tests.policies.scenario import Run, at, throttle
from tests.system.brokers import kill_broker
from tests.system.waiting import eventually

PARTITIONS = 6


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


def test_a_filling_volume_is_cordoned_and_opened_again(kafka: EmbeddedKafka, dirs: tuple[Path, Path]) -> None:
    full = str(dirs[0])
    watched = WatchedKafka(bootstrap_servers=kafka.bootstrap_servers)
    settings = throttle({"soft": {"available_ratio_below": 1.0}})
    worker = CordonWorker("payments", watched, settings, lambda *_: None, CordonMetrics(CollectorRegistry()))

    def cordoned() -> set[str]:
        with closing(CordonClient(watched, 5.0)) as client:
            return {log_dir for (_, log_dir), is_cordoned in client.read_cordons("payments").items() if is_cordoned}

    def records() -> set[tuple[int, str]]:
        with closing(CordonClient(watched, 5.0)) as client:
            client.describe()
            return client.read_records()

    def placed(topic: str) -> set[str]:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)

        def folders() -> list[Path]:
            return [folder for log_dir in dirs for folder in log_dir.glob(f"{topic}-*")]

        eventually("the partitions are there", lambda: len(folders()) == PARTITIONS)
        return {folder.parent.name for folder in folders()}

    found = check_cordons("payments", watched, settings)
    assert found.outcome is Outcome.ERROR
    assert f"cordoned.log.dirs=[{dirs[0]},{dirs[1]}]" in found.remedies[0]

    worker.receive(soft_limit_alert(AlertStatus.FIRING, 1, full), NOON)
    worker.reconcile(Event())
    eventually("the broker shows it", lambda: cordoned() == {full})
    assert records() == {(1, full)}
    assert placed("while-cordoned") == {"b"}

    worker.receive(soft_limit_alert(AlertStatus.RESOLVED, 2, full), NOON)
    worker.reconcile(Event())
    eventually("it is open again", lambda: cordoned() == set())
    assert records() == set()
    assert placed("afterwards") == {"a"}, "the broker prefers the log dir with fewer partitions"


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
    assert run.firing() == {("log-dirs-unread", f"payments/1{dirs[1]}")}
    assert run.last.volumes.model_dump() == {"counted": 1, "stale": 0, "departed": 0, "never_read": 1}
    assert f"broker 1 {dirs[1]} was never readable" in run.last.explanation
