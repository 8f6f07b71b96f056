"""Three real brokers on small real disks, producers that fill them, and a recorder.

Shared by test_closed_loop.py, bench/side_by_side.py and docs/draw_fill.py, so that all of them run the same fill.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.quotas import FAILURES, QuotaClient
from deploy.demo.run import Load
from deploy.embedded.kafka import EmbeddedKafka
from policies.free_space.levels import Rate
from policies.throttle.settings import DEFAULT, Entity
from tests.system.disks import small_disk
from tests.system.waiting import DEADLINE_SECONDS, eventually

MEBIBYTE = 1024 * 1024
MEGABYTE = 1_000_000
CLUSTER, TOPIC, PARTITIONS, BROKERS = "payments", "orders", 6, (1, 2, 3)
ANY_CLIENT = Entity(client_id=DEFAULT)

_SEGMENT_BYTES = 2 * MEBIBYTE
_SAMPLE_SECONDS = 0.1
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""Discarded at the end of a load."""


class FillLoad(Load):
    """A load that also remembers what the brokers told its producers."""

    def __init__(self, servers: str, topic: str, bytes_per_second: float) -> None:
        self.last_offset: dict[int, int] = {}
        self.failed = 0
        self.throttled: list[tuple[float, float]] = []
        """Throttle events of the brokers: when (monotonic), and for how many seconds."""
        super().__init__(servers, topic, bytes_per_second, {"throttle_cb": self._on_throttle})

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        super()._on_delivery(error, message)
        if error is not None:
            self.failed += error.code() not in _PURGED
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        self.last_offset[partition] = max(offset, self.last_offset.get(partition, -1))

    def _on_throttle(self, event: Any) -> None:
        if event.throttle_time > 0:
            self.throttled.append((time.monotonic(), event.throttle_time))


class FillCluster:
    """Three brokers, each with a disk of its own that holds every record of the topic."""

    def __init__(self, kafka: EmbeddedKafka, disks: Mapping[int, Path]) -> None:
        self.kafka = kafka
        self.disks = disks
        self.servers = kafka.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(self) -> None:
        """Create the topic: each partition on every broker, two copies per write, no retention yet."""
        config = {"segment.bytes": str(_SEGMENT_BYTES), "retention.ms": "-1", "min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, PARTITIONS, len(BROKERS), config=config)
        self._admin.create_topics([topic])[TOPIC].result(timeout=DEADLINE_SECONDS)

    def retain(self, milliseconds: int) -> None:
        """Set the retention; -1 keeps records for ever. A short retention frees the disks within two seconds."""
        entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(timeout=DEADLINE_SECONDS)

    def free_bytes(self) -> dict[int, int]:
        """Free bytes of each disk, as the operating system reports them."""
        stats = {broker: os.statvfs(disk) for broker, disk in self.disks.items()}
        return {broker: stat.f_bavail * stat.f_frsize for broker, stat in stats.items()}

    def dead(self) -> set[int]:
        return set(BROKERS) - set(self.kafka.pids)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each partition, as its leader reports them."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "fill"})
        try:
            return {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), 10) for p in range(PARTITIONS)}
        finally:
            consumer.close()


@contextmanager
def fill_cluster(
    folder: Path,
    jars: Sequence[Path],
    *,
    disk_bytes: int,
    ports: Sequence[int] = (),
    properties: Mapping[str, str | int] | None = None,
) -> Iterator[FillCluster]:
    """Start three brokers on new disks, and create the topic."""
    with ExitStack() as stack:
        size = disk_bytes // MEBIBYTE
        disks = {b: stack.enter_context(small_disk(folder / f"disk-{b}", mebibytes=size)) for b in BROKERS}
        kafka = EmbeddedKafka(
            folder / "watched",
            jars,
            brokers=len(BROKERS),
            ports=ports,
            log_dirs={broker: [disk / "logs"] for broker, disk in disks.items()},
            heap_mebibytes=160,
            server_properties={
                "log.retention.check.interval.ms": 500,
                "log.segment.delete.delay.ms": 100,
                **(properties or {}),
            },
        )
        cluster = FillCluster(stack.enter_context(kafka), disks)
        cluster.create_topic()
        yield cluster


@dataclass(frozen=True)
class Sample:
    """Disks, acknowledged bytes and quota at one moment."""

    at: float
    """Monotonic seconds."""
    free: dict[int, int]
    acknowledged_bytes: int
    quota: Rate
    """Of the default client id, as DescribeClientQuotas has it."""

    @property
    def least_free(self) -> int:
        return min(self.free.values())


class Recorder:
    """Samples disks, acknowledged bytes and the quota ten times a second, from entering to leaving."""

    def __init__(self, cluster: FillCluster, load: Load, *, quotas: bool = True) -> None:
        self.samples: list[Sample] = []
        self._cluster = cluster
        self._load = load
        self._quotas = quotas
        self._quota: Rate = None
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._sample, name="recorder")]
        if quotas:
            self._threads.append(threading.Thread(target=self._follow_quota, name="quota recorder"))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def rate(self, seconds: float = 1.0) -> float:
        """Bytes per second acknowledged in the last seconds."""
        return rate_at(self.samples, len(self.samples) - 1, seconds)

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            free, taken = self._cluster.free_bytes(), self._load.acknowledged_bytes
            self.samples.append(Sample(time.monotonic(), free, taken, self._quota))

    def _follow_quota(self) -> None:
        client = QuotaClient(KafkaConnection(bootstrap_servers=self._cluster.servers), 2.0)
        try:
            while not self._stop.wait(2 * _SAMPLE_SECONDS):
                try:
                    client.describe()
                    self._quota = client.read().rates.get(ANY_CLIENT)
                except FAILURES:
                    continue  # a busy broker; the next look is near
        finally:
            client.close()


def rate_at(samples: Sequence[Sample], index: int, seconds: float = 1.0) -> float:
    """Bytes per second acknowledged in the `seconds` before a sample; 0 if the recording is shorter."""
    last = samples[index] if samples else None
    first = next((s for s in reversed(samples[:index]) if last is not None and last.at - s.at >= seconds), None)
    if last is None or first is None:
        return 0.0
    return (last.acknowledged_bytes - first.acknowledged_bytes) / (last.at - first.at)


def quota_now(servers: str) -> Rate:
    """The present quota of the default client id."""
    client = QuotaClient(KafkaConnection(bootstrap_servers=servers), 5.0)
    try:
        client.describe()
        return client.read().rates.get(ANY_CLIENT)
    finally:
        client.close()


def set_quota(servers: str, rate: Rate) -> None:
    """Set a quota of the default client id, as an operator would."""
    client = QuotaClient(KafkaConnection(bootstrap_servers=servers), 5.0)
    try:
        client.describe()
        assert client.alter({ANY_CLIENT: rate}) == {}
    finally:
        client.close()
    eventually(f"the quota is {rate}", lambda: quota_now(servers) == rate)


def headgate_settings(
    *,
    watched: str,
    loop: str,
    folder: Path,
    port: int,
    limits: Mapping[str, Any],
    base: int | None,
    poll: str,
    max_told_wait: str = "none",
) -> dict[str, Any]:
    """Settings of a whole loop that carries its decisions out with the quota of the default client id."""
    entity = {"client_id": "default", **({"base": base} if base is not None else {})}
    return {
        "kafka": {"bootstrap_servers": loop},
        "topics": {"prefix": f"fill{port}"},
        "data_dir": str(folder / "data"),
        "http": {"port": port},
        "clusters": {
            CLUSTER: {
                "kafka": {"bootstrap_servers": watched, "poll_interval": poll, "timeout": "3s"},
                "quotas": {"entities": [entity], "max_told_wait": max_told_wait},
            }
        },
        "policies": {"throttle": dict(limits)},
    }


def await_or_death(cluster: FillCluster, find: Callable[[], bool], seconds: float) -> bool:
    """Whether `find` became true before a broker ended or the time was over."""
    deadline = time.monotonic() + seconds
    while not find():
        if cluster.dead() or time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
