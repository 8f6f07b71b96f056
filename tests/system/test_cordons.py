"""A real broker of Kafka 4.3 with two log dirs: one is cordoned while its alert fires, and opened afterwards."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry

from connectors.kafka.cordons import CordonClient
from connectors.kafka.log_dirs import WatchedKafka
from connectors.throttle.cordon_actuator import CordonMetrics, CordonWorker, WatchedCordons
from connectors.throttle.cordons import check_cordons
from deploy.embedded.kafka import EmbeddedKafka
from policies.decisions import AlertStatus
from policies.observations import Outcome
from tests.connectors.actuation.virtual_clock import NOON
from tests.connectors.throttle.alerts import soft_limit_alert
from tests.policies.scenario import throttle
from tests.system.waiting import eventually

PARTITIONS = 6


@pytest.fixture
def dirs(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def kafka(kafka_jars: tuple[Path, ...], dirs: tuple[Path, Path], tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path / "kafka", kafka_jars, log_dirs={1: dirs}, heap_mebibytes=128) as cluster:
        yield cluster


def test_a_filling_volume_is_cordoned_and_opened_again(kafka: EmbeddedKafka, dirs: tuple[Path, Path]) -> None:
    full = str(dirs[0])
    watched = WatchedKafka(bootstrap_servers=kafka.bootstrap_servers)
    settings = throttle({"soft": {"available_ratio_below": 1.0}})
    worker = CordonWorker(
        WatchedCordons("payments", watched, settings), lambda *_: None, CordonMetrics(CollectorRegistry())
    )

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
