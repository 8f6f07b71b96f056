"""A sudden stop on a real broker: what producers are told to wait, and how soon they write again when space is back.

One broker with a quota in force for every client, a librdkafka and a Java producer that use all of it, and the quota
actuator's own worker, which is told to stop (factor 0.0), then after a while to open (1.0): with `max_told_wait` of 30
s, and with `none`, which is how a quota is set at once. The plugin's figures are those of bench/side_by_side.py. Takes
about five minutes, needs no root::

    python -m bench.told_wait --hold 60
"""

import argparse
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import QuotaClient
from connectors.quotas.reports import QuotaMetrics
from connectors.quotas.worker import QuotaWorker, WatchedQuotas
from deploy.embedded import EmbeddedKafka
from deploy.jars import default_cache_dir, ensure_jars
from deploy.jvm import find_java
from policies.decisions import Mode
from policies.throttle.quota_orders import QuotaOrder
from policies.throttle.quota_settings import Entity, QuotaSettings

MEGABYTE, RECORD = 10**6, 10_000
BASE = 4 * MEGABYTE
TOPIC, CLUSTER = "filled", "payments"
EVERYBODY = Entity(client_id="default")
FULL, AT_MOST_SECONDS = 0.8, 90.0
PROGRAM = Path(__file__).parent / "ThrottledProducer.java"


@dataclass
class Client:
    """What a producer tells: bytes taken and the longest wait it was told, sampled four times a second."""

    name: str
    samples: list[tuple[float, int]] = field(default_factory=list)
    told_seconds: float = 0.0

    def take(self, acknowledged: int, told_seconds: float) -> None:
        """What it tells now."""
        self.samples.append((time.monotonic(), acknowledged))
        self.told_seconds = max(self.told_seconds, told_seconds)

    def bytes_between(self, begin: float, end: float) -> int:
        """Taken within an interval."""
        taken = [count for at, count in self.samples if begin <= at <= end]
        return taken[-1] - taken[0] if taken else 0

    def back_after(self, opened: float) -> float | None:
        """From then on until two seconds of nearly the full rate begin; None: not within the time."""
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
    producer = Producer({**settings, "message.timeout.ms": 600_000, "socket.timeout.ms": 300_000})

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


class Actuator:
    """The quota actuator's worker for this broker, on a thread."""

    def __init__(self, servers: str, max_told_wait: str) -> None:
        settings = QuotaSettings.model_validate(
            {"entities": [{"client_id": "default"}], "max_told_wait": max_told_wait, "verify_interval": "1s"}
        )
        watched = WatchedQuotas(CLUSTER, WatchedKafka(bootstrap_servers=servers), settings, 1.0)
        metrics = QuotaMetrics(CollectorRegistry())
        self._worker = QuotaWorker(watched, lambda _: None, lambda *_: None, metrics)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._worker.run, args=(self._stop,))
        self._sequence = 0

    def __enter__(self) -> "Actuator":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._worker.wake()
        self._thread.join()

    def order(self, factor: float) -> float:
        """Decide; when."""
        self._sequence += 1
        now = datetime.now(UTC)
        until = now + timedelta(hours=1)
        self._worker.arrived(QuotaOrder(CLUSTER, "bench", self._sequence, factor, Mode.ACTIVE, until), now)
        return time.monotonic()


def run(servers: str, jars: tuple[Path, ...], max_told_wait: str, hold_seconds: float) -> None:
    """One stop and one opening, with both producers."""
    with librdkafka(servers) as first, java(servers, jars) as second, Actuator(servers, max_told_wait) as actuator:
        time.sleep(25)
        for client in (first, second):
            client.told_seconds = 0.0
        stopped = actuator.order(0.0)
        time.sleep(hold_seconds)
        opened = actuator.order(1.0)
        while time.monotonic() < opened + AT_MOST_SECONDS and None in (
            first.back_after(opened), second.back_after(opened),
        ):  # fmt: skip
            time.sleep(1)
        for client in (first, second):
            back = client.back_after(opened)
            print(
                f"max_told_wait {max_told_wait:5} {client.name:14} told {client.told_seconds:6.1f} s, "
                f"written after the stop {client.bytes_between(stopped, opened) / MEGABYTE:6.1f} MB, back to the full "
                f"rate after {f'{back:.1f} s' if back is not None else f'more than {AT_MOST_SECONDS:.0f} s'}",
                flush=True,
            )


def main() -> None:
    """Both ways, one after the other."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--hold", type=float, default=60.0, metavar="SECONDS", help="from the stop to the opening")
    arguments.add_argument("--wait", nargs="*", default=["30s", "none"], help="the settings to compare")
    given = arguments.parse_args()
    jars = ensure_jars("kafka", default_cache_dir())
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder), jars, heap_mebibytes=256) as kafka:
        servers = kafka.bootstrap_servers
        topic = NewTopic(TOPIC, 1, 1, config={"retention.bytes": str(200 * MEGABYTE)})
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([topic])[TOPIC].result()
        client = QuotaClient(KafkaConnection(bootstrap_servers=servers), 5.0)
        try:
            for way in given.wait:
                client.describe()
                client.alter({EVERYBODY: BASE})
                run(servers, jars, way, given.hold)
        finally:
            client.close()


if __name__ == "__main__":
    main()
