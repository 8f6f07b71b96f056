"""The collector against a real cluster: disks truly read, brokers that hang, die and come back."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.log_dirs import LogDirsCollector
from deploy.embedded.kafka import EmbeddedKafka
from policies.observations import Outcome, Reading
from policies.throttle.readings import KafkaCluster, LogDirs
from policies.units import parse_duration
from tests.system.brokers import kill_broker
from tests.system.processes import freeze
from tests.system.waiting import eventually

TIMEOUT_SECONDS = 5.0
WAITED_SECONDS = 0.9 * TIMEOUT_SECONDS
"""So long takes at least who waits for a broker that hangs."""
DEAD_SERVER = "127.0.0.1:1"


@pytest.fixture(scope="module")
def kafka(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    fast = {"broker.session.timeout.ms": 2000}
    folder = tmp_path_factory.mktemp("kafka")
    with EmbeddedKafka(folder, kafka_jars, brokers=2, server_properties=fast, heap_mebibytes=96) as cluster:
        yield cluster


class Watch:
    """A collector, and what it published: when its poll began, and when each reading came."""

    def __init__(self, servers: str, *, interval: str = "10s", timeout: str = f"{TIMEOUT_SECONDS}s") -> None:
        self.registry = CollectorRegistry()
        self.readings: list[Reading] = []
        self.came: dict[str, float] = {}
        self.began = time.monotonic()
        settings = WatchedKafka(
            bootstrap_servers=servers, poll_interval=parse_duration(interval), timeout=parse_duration(timeout)
        )
        self.collector = LogDirsCollector("payments", settings, self._take, PollMetrics(self.registry))

    def _take(self, reading: Reading) -> None:
        self.readings.append(reading)
        self.came[reading.subject()] = time.monotonic()

    def poll(self) -> tuple[KafkaCluster, dict[int, LogDirs]]:
        self.readings.clear()
        self.began = time.monotonic()
        self.collector.poll_once()
        cluster, *brokers = self.readings
        assert isinstance(cluster, KafkaCluster)
        return cluster, {reading.broker: reading for reading in brokers if isinstance(reading, LogDirs)}

    def outcomes(self) -> dict[int, Outcome]:
        return {broker: reading.outcome for broker, reading in self.poll()[1].items()}

    def count(self, outcome: Outcome) -> float:
        labels = {"cluster": "payments", "outcome": outcome.value}
        return self.registry.get_sample_value("headgate_polls_total", labels) or 0.0


@pytest.fixture
def watch(kafka: EmbeddedKafka) -> Iterator[Watch]:
    # The first bootstrap server is dead, as one of three often is when it matters.
    watch = Watch(f"{DEAD_SERVER},{kafka.bootstrap_servers}")
    yield watch
    watch.collector.close()


BOTH_OK = {1: Outcome.OK, 2: Outcome.OK}


def test_every_brokers_volume_is_read_with_its_true_sizes(kafka: EmbeddedKafka, watch: Watch) -> None:
    cluster, brokers = watch.poll()
    assert cluster.outcome is Outcome.OK
    assert [(member.broker, member.fenced) for member in cluster.brokers] == [(1, False), (2, False)]
    disk = os.statvfs(kafka.data_dir)
    for broker in (1, 2):
        (volume,) = brokers[broker].volumes
        assert volume.log_dir == str(kafka.data_dir / f"broker-{broker}" / "logs")
        assert volume.total_bytes == disk.f_blocks * disk.f_frsize
        # Others write to this disk meanwhile.
        assert volume.usable_bytes == pytest.approx(shutil.disk_usage(kafka.data_dir).free, rel=0.1)
    assert watch.count(Outcome.OK) == 2


def test_a_broker_that_hangs_is_a_timeout_and_delays_nobody(kafka: EmbeddedKafka, watch: Watch) -> None:
    assert watch.outcomes() == BOTH_OK
    freeze(kafka.pids[2])
    try:
        for _ in range(2):
            cluster, brokers = watch.poll()
            assert cluster.outcome is Outcome.OK
            assert brokers[1].outcome is Outcome.OK
            assert brokers[2].outcome is Outcome.TIMEOUT
            assert brokers[2].detail == f"no answer within {TIMEOUT_SECONDS:g} s"
            assert watch.came["payments/2"] - watch.began > WAITED_SECONDS
            assert watch.came["payments/1"] < watch.came["payments/2"], "it waits for no broker's timeout"
        assert watch.count(Outcome.TIMEOUT) == 2
    finally:
        os.kill(kafka.pids[2], signal.SIGCONT)
    eventually("both are read", lambda: watch.outcomes() == BOTH_OK)


def test_a_killed_broker_is_unreachable_fenced_and_read_again_when_it_is_back(
    kafka: EmbeddedKafka, watch: Watch
) -> None:
    assert watch.outcomes() == BOTH_OK
    kill_broker(kafka, 2)
    assert watch.outcomes() == {1: Outcome.OK, 2: Outcome.UNREACHABLE}

    def is_fenced() -> bool:
        return [member.fenced for member in watch.poll()[0].brokers] == [False, True]

    eventually("it is fenced", is_fenced)
    assert watch.outcomes() == {1: Outcome.OK, 2: Outcome.UNREACHABLE}, "its silence is still an observation"
    kafka.start_broker(2)
    eventually("both are read", lambda: watch.outcomes() == BOTH_OK)


def test_a_cluster_that_was_away_is_read_again_without_a_restart(kafka: EmbeddedKafka, watch: Watch) -> None:
    assert watch.outcomes() == BOTH_OK
    kafka.stop()
    for _ in range(2):
        cluster, brokers = watch.poll()
        assert (cluster.outcome, cluster.brokers, brokers) == (Outcome.UNREACHABLE, (), {})
        assert "Connection refused" in (cluster.detail or "")
    kafka.start()
    eventually("both are read", lambda: watch.outcomes() == BOTH_OK)
