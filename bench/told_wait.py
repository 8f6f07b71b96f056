"""A sudden stop on a real broker: the wait that producers get, and how soon they write again when space is back.

One broker on a small real disk with a quota in force for every client; a librdkafka and a Java producer that use all
of it, with their libraries' own time-outs. They fill the disk up to its hard limit; a minute later it is freed. Four
ways to stop them, each on a new broker: Strimzi's released plugin; Headgate with `max_told_wait: none` (a quota is set
at once); with the default of 30 s (it goes down in steps, and the dead time is anticipated); and the same with
`anticipate: false`. Headgate is its policy and its quota actuator here, and this program reads the disk each five
seconds. docs/side-by-side.md has the time that Spark and Kafka add. Takes ten minutes, needs root (tmpfs)::

    python -m bench.told_wait
"""

import argparse
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from prometheus_client import CollectorRegistry

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import QuotaClient
from connectors.throttle.quotas.reports import QuotaMetrics, QuotaOutlets
from connectors.throttle.quotas.worker import QuotaWorker
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from deploy.java.jvm import find_java
from policies.free_space.orders import FactorOrder
from policies.observations import Observation, Outcome
from policies.throttle import LogDirs, ThrottleFactor, ThrottlePolicy, ThrottleSettings
from policies.throttle.quota_settings import Entity, QuotaSettings
from policies.throttle.quota_steps import full_rate_seconds
from policies.throttle.readings import VolumeReading
from policies.throttle.state import ThrottleState
from tests.system.disks import small_disk, why_not_mountable

MEGABYTE, RECORD = 10**6, 10_000
BASE = 4 * MEGABYTE
TOPIC, CLUSTER = "filled", "payments"
EVERYBODY = Entity(client_id="default")
FULL, AT_MOST_SECONDS, CROSS_SECONDS = 0.8, 75.0, 60.0
DISK_MEBIBYTES, MARGIN, LOOK_SECONDS = 800, 0.1, 5
LIMIT = DISK_MEBIBYTES * 1024 * 1024 - 240 * MEGABYTE
"""Free bytes, reached after half a minute at the full rate, when Kafka's window has been full for long."""
ROOM = 150 * MEGABYTE
"""Free bytes above the limit after which the disk counts as freed."""
PLUGIN = "plugin"
PROGRAM = Path(__file__).parent / "ThrottledProducer.java"


@dataclass
class Client:
    """A producer's reports: acknowledged bytes and the longest throttle time, sampled four times a second."""

    name: str
    samples: list[tuple[float, int]] = field(default_factory=list)
    told_seconds: float = 0.0

    def take(self, acknowledged: int, told_seconds: float) -> None:
        """The present report."""
        self.samples.append((time.monotonic(), acknowledged))
        self.told_seconds = max(self.told_seconds, told_seconds)

    def bytes_between(self, begin: float, end: float) -> int:
        """Bytes acknowledged within an interval."""
        taken = [count for at, count in self.samples if begin <= at <= end]
        return taken[-1] - taken[0] if taken else 0

    def back_after(self, opened: float) -> float | None:
        """Return when two seconds of nearly the full rate begin; None if not within the time."""
        for at, count in self.samples:
            later = next(((t, c) for t, c in self.samples if t >= at + 2.0), None)
            if at >= opened and later and (later[1] - count) / (later[0] - at) >= FULL * BASE:
                return at - opened
        return None


@contextmanager
def librdkafka(servers: str) -> Iterator[Client]:  # noqa: C901 - a producer and its two threads
    """A producer of librdkafka at the full rate."""
    client, stop, taken = Client("librdkafka"), threading.Event(), [0]
    told = [0.0]

    def hear(event: object) -> None:
        told[0] = max(told[0], event.throttle_time)  # type: ignore[attr-defined]

    def count(error: object, _message: object) -> None:
        taken[0] += 0 if error else RECORD

    settings = {"bootstrap.servers": servers, "client.id": "c", "acks": "all", "throttle_cb": hear, "log_level": 0}
    producer = Producer({**settings, "message.timeout.ms": 600_000})

    def write() -> None:
        payload, due = os.urandom(RECORD), time.monotonic()
        while not stop.wait(0.0):
            due = max(due + RECORD / BASE, time.monotonic() - 0.2)
            while time.monotonic() < due or len(producer) > 400:
                producer.poll(0.002)
                if stop.is_set():
                    return
            producer.produce(TOPIC, payload, on_delivery=count)

    def sample() -> None:
        while not stop.wait(0.25):
            client.take(taken[0], told[0])

    threads = [threading.Thread(target=work) for work in (write, sample)]
    for thread in threads:
        thread.start()
    yield client
    stop.set()
    for thread in threads:
        thread.join()
    producer.purge()


@contextmanager
def java(servers: str, jars: tuple[Path, ...]) -> Iterator[Client]:
    """Kafka's own producer at the full rate."""
    client = Client("kafka-clients")
    classes = ":".join(map(str, jars))
    arguments = (servers, TOPIC, "java", str(BASE))
    command = [str(find_java()), "-Xmx64m", "-cp", classes, str(PROGRAM), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:

        def read() -> None:
            for line in process.stdout or ():
                acknowledged, told_ms = map(int, line.split())
                client.take(acknowledged, told_ms / 1000)

        thread = threading.Thread(target=read)
        thread.start()
        yield client
        process.kill()
        thread.join()


def _ignore(*_: object) -> None:
    """This program reads Kafka itself."""


class Loop:
    """The policy, and the quota actuator's worker for this broker, on threads. The disk is read every five seconds.

    Args:
        way: the `max_told_wait`; with ``+plain`` the dead time is not anticipated.
        samples: the broker's `quota.window.num`.
    """

    def __init__(self, servers: str, disk: "Disk", way: str, samples: int) -> None:
        max_told_wait, _, plain = way.partition("+")
        quotas = QuotaSettings.model_validate({"entities": [{"client_id": "default"}], "max_told_wait": max_told_wait})
        wait, floor = quotas.max_told_wait, quotas.floor_bytes_per_second
        seconds = full_rate_seconds(BASE, floor, wait.total_seconds() if wait else None, samples)
        hard = {"available_bytes_below": LIMIT}
        throttle = ThrottleSettings.model_validate(
            {"hard": hard, "recovery_margin": MARGIN, "stop_time": f"{seconds:.1f}s", "anticipate": not plain}
        )
        kafka, outlets = WatchedKafka(bootstrap_servers=servers), QuotaOutlets(_ignore, _ignore, _ignore)
        self._worker = QuotaWorker(CLUSTER, kafka, quotas, throttle, outlets, QuotaMetrics(CollectorRegistry()))
        self._policy, self._disk = ThrottlePolicy(CLUSTER, throttle), disk
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._worker.run, args=(self._stop,)),
            threading.Thread(target=self._look),
        ]

    def __enter__(self) -> "Loop":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._worker.wake()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        state: ThrottleState | None = None
        while not self._stop.wait(LOOK_SECONDS):
            now, free = datetime.now(UTC), self._disk.free
            volume = VolumeReading(log_dir="/logs", total_bytes=DISK_MEBIBYTES * 1024 * 1024, usable_bytes=free)
            reading = LogDirs(cluster=CLUSTER, outcome=Outcome.OK, broker=1, volumes=(volume,))
            step = self._policy.step(state, [Observation(now.isoformat(), now, reading)], now)
            state = step.state
            for decision in step.decisions:
                if isinstance(decision, ThrottleFactor):
                    self._worker.receive(FactorOrder.build(decision, decision.factor, decision.valid_until), now)


class Disk:
    """The broker's disk."""

    def __init__(self, path: Path, admin: AdminClient) -> None:
        self._path, self._admin = path, admin

    @property
    def free(self) -> int:
        """Free bytes."""
        stat = os.statvfs(self._path)
        return stat.f_bavail * stat.f_frsize

    def await_free(self, *, above: int | None = None, below: int | None = None, within_seconds: float = inf) -> float:
        """Return when (monotonic) it has as much free, or at the end of the time."""
        until = time.monotonic() + within_seconds
        while not (self.free > above if above is not None else self.free <= (below or 0)):
            if time.monotonic() >= until:
                break
            time.sleep(0.05)
        return time.monotonic()

    def empty(self) -> None:
        """Have the broker delete records older than a second."""
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result()


def run(way: str, samples: int, servers: str, jars: tuple[Path, ...], disk: Disk, hold_seconds: float) -> Iterator[str]:
    """Run one stop and one release with both producers; return a row of the table for each."""
    with ExitStack() as stack:
        clients = (stack.enter_context(librdkafka(servers)), stack.enter_context(java(servers, jars)))
        if way != PLUGIN:
            stack.enter_context(Loop(servers, disk, way, samples))
        crossed = disk.await_free(below=LIMIT, within_seconds=CROSS_SECONDS)
        freed_at = crossed + LOOK_SECONDS + hold_seconds
        time.sleep(max(0.0, freed_at - time.monotonic()))
        freed, least = time.monotonic(), disk.free
        disk.empty()
        back = disk.await_free(above=LIMIT + ROOM, within_seconds=CROSS_SECONDS)
        while time.monotonic() < back + AT_MOST_SECONDS and None in [client.back_after(back) for client in clients]:
            time.sleep(1)
        for client in clients:
            full = client.back_after(back)
            yield (
                f"| {way} | {client.name} | {client.told_seconds:,.1f} "
                f"| {client.bytes_between(crossed, freed) / MEGABYTE:.1f} | {(LIMIT - least) / MEGABYTE:.0f} "
                f"| {f'{full:.1f}' if full is not None else f'more than {AT_MOST_SECONDS:.0f}'} |"
            )


@contextmanager
def broker(way: str, samples: int, folder: Path, jars: tuple[Path, ...]) -> Iterator[tuple[str, Disk]]:
    """Start a new broker on a new disk, with the topic; without the plugin, with a quota in force."""
    port = 21_000 + secrets.randbelow(8_900)
    properties: dict[str, str | int] = {
        "log.retention.check.interval.ms": 500,
        "log.segment.delete.delay.ms": 100,
        "log.segment.bytes": 4 * MEGABYTE,
        "quota.window.num": samples,
    }
    if way == PLUGIN:
        prefix = "client.quota.callback.static"
        properties |= {
            "client.quota.callback.class": "io.strimzi.kafka.quotas.StaticQuotaCallback",
            f"{prefix}.kafka.admin.bootstrap.servers": f"127.0.0.1:{port}",
            f"{prefix}.produce": 2 * BASE,
            f"{prefix}.storage.check-interval": LOOK_SECONDS,
            f"{prefix}.storage.per.volume.limit.min.available.bytes": LIMIT,
            f"{prefix}.excluded.principal.name.list": "User:ignored",
        }
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk", mebibytes=DISK_MEBIBYTES))
        embedded = EmbeddedKafka(
            folder / "kafka", jars, ports=[port], log_dirs={1: [disk / "logs"]}, heap_mebibytes=256,
            server_properties=properties,
        )  # fmt: skip
        kafka = stack.enter_context(embedded)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        if way != PLUGIN:
            client = QuotaClient(KafkaConnection(bootstrap_servers=kafka.bootstrap_servers), 5.0)
            client.describe()
            client.alter({EVERYBODY: BASE})
            client.close()
        yield kafka.bootstrap_servers, Disk(disk, admin)


def main() -> None:
    """Run all variants, one after the other."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--hold", type=float, default=60.0, metavar="SECONDS", help="how long they are stopped")
    arguments.add_argument("--ways", nargs="*", default=[PLUGIN, "none", "30s", "30s+plain"], help=Loop.__doc__)
    arguments.add_argument("--samples", type=int, default=11, help="the brokers' quota.window.num, of a second each")
    given = arguments.parse_args()
    if why := why_not_mountable():
        raise SystemExit(why)
    jars = ensure_jars("kafka", default_cache_dir())
    with_plugin = (*jars, *ensure_jars("quotas-plugin", default_cache_dir()))
    print(
        "| stopped by | producer | longest wait told, s | written from the limit to the opening, MB "
        "| past the limit, both together, MB | space back → full rate, s |\n" + "|---" * 6 + "|"
    )
    for way in given.ways:
        with (
            tempfile.TemporaryDirectory() as folder,
            broker(way, given.samples, Path(folder), with_plugin) as (servers, disk),
        ):
            for row in run(way, given.samples, servers, jars, disk, given.hold):
                print(row, flush=True)


if __name__ == "__main__":
    main()
