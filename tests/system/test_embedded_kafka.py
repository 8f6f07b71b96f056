"""The embedded cluster with real brokers: starting, resuming, refusing, dying."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.embedded.kafka import EmbeddedKafka
from policies.units import UserError
from tests.system.disks import small_disk, why_not_mountable
from tests.system.private_net import why_not_private
from tests.system.processes import is_running
from tests.system.waiting import DEADLINE_SECONDS, eventually

ROOT = Path(__file__).parents[2]
HEAP_MEBIBYTES = 96


def create_topic(kafka: EmbeddedKafka, topic: str, *, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(timeout=DEADLINE_SECONDS)


def produce(kafka: EmbeddedKafka, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(kafka: EmbeddedKafka, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=DEADLINE_SECONDS)
    finally:
        consumer.close()
    assert all(message.error() is None for message in messages)
    return [message.value() for message in messages]


def serving_brokers(kafka: EmbeddedKafka) -> set[int]:
    """Return the ids of the brokers that are in the cluster's metadata, as broker 1 sees it; fenced ones are not."""
    # Not `describe_cluster`: librdkafka sends that to the broker it takes for the controller, maybe the killed one.
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers.split(",")[0]})
    return set(admin.list_topics(timeout=DEADLINE_SECONDS).brokers)


def test_second_start_resumes_records_and_ports_and_beside_it_there_is_no_third(
    tmp_path: Path, kafka_jars: tuple[Path, ...]
) -> None:
    with EmbeddedKafka(tmp_path, kafka_jars, heap_mebibytes=HEAP_MEBIBYTES) as first:
        create_topic(first, "observed")
        produce(first, "observed", b"one", b"two")
        assert consume(first, "observed", 2) == [b"one", b"two"]
        ports, pid = first.bootstrap_servers, first.pids[1]
        assert "started" in first.log_file(1).read_text()
    assert not is_running(pid)
    with EmbeddedKafka(tmp_path, kafka_jars, heap_mebibytes=HEAP_MEBIBYTES) as second:
        assert second.bootstrap_servers == ports
        produce(second, "observed", b"three")
        assert consume(second, "observed", 3) == [b"one", b"two", b"three"]
        third = EmbeddedKafka(tmp_path, kafka_jars)
        with pytest.raises(UserError, match=f"{tmp_path} is in use by process {os.getpid()}"):
            third.start()
        third.stop()
        assert serving_brokers(second) == {1}


def test_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path, kafka_jars: tuple[Path, ...]) -> None:
    refused = EmbeddedKafka(tmp_path, kafka_jars, server_properties={"num.io.threads": "many"})
    with pytest.raises(UserError, match=r"Invalid value many for configuration num\.io\.threads"):
        refused.start()
    assert refused.pids == {}
    with EmbeddedKafka(tmp_path, kafka_jars, heap_mebibytes=HEAP_MEBIBYTES) as mended:
        assert serving_brokers(mended) == {1}


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    reason = why_not_mountable()
    if reason is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield [stack.enter_context(small_disk(tmp_path / f"disk-{number}", mebibytes=64)) for number in (1, 2)]


def test_log_dirs_may_lie_on_disks_of_their_own(
    tmp_path: Path, kafka_jars: tuple[Path, ...], disks: list[Path]
) -> None:
    with EmbeddedKafka(
        tmp_path / "data",
        kafka_jars,
        heap_mebibytes=HEAP_MEBIBYTES,
        log_dirs={1: [disk / "logs" for disk in disks]},
        server_properties={"log.segment.bytes": 2 * 1024 * 1024, "message.max.bytes": 1024 * 1024},
    ) as kafka:
        create_topic(kafka, "observed", partitions=2)
        eventually("each disk has one", lambda: [len(list(disk.glob("logs/observed-*"))) for disk in disks] == [1, 1])


_WITHOUT_A_NETWORK = """
import sys
from pathlib import Path
from tests.system.private_net import enter
enter({})
from deploy.embedded.kafka import EmbeddedKafka
with EmbeddedKafka(Path(sys.argv[1]), [Path(jar) for jar in sys.argv[2:]], heap_mebibytes=96) as kafka:
    print("ready on", kafka.bootstrap_servers)
"""


def test_it_starts_on_a_machine_without_any_network(kafka_jars: tuple[Path, ...], tmp_path: Path) -> None:
    if (why := why_not_private()) is not None:
        pytest.skip(why)
    command = [sys.executable, "-c", _WITHOUT_A_NETWORK, str(tmp_path / "kafka"), *map(str, kafka_jars)]
    started = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert started.stdout.startswith("ready on 127.0.0.1:"), started.stderr
