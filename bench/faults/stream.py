"""A seeded stream of observations of every policy: random levels, repeated examples, and some garbage."""

import threading
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from random import Random
from typing import Self

from confluent_kafka import KafkaException, Producer

from bench.faults.world import FED, PREFIX
from policies.observations import Outcome, Reading
from policies.registry import POLICIES, observed_topic
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from streaming.transition import reading_reader
from tests.golden import read_reference

TOTAL_BYTES = 1_000_000
_LONGEST_PAUSE_SECONDS = 0.3
_GARBAGE_EACH = 25
_EXAMPLE_EACH = 3


class Stream:
    """Feeds the loop from a thread of its own while it is entered, but when paused."""

    def __init__(self, servers: str, seed: int) -> None:
        self._random = Random(seed)
        self._producer = Producer(
            {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "message.timeout.ms": 0,
             "linger.ms": 0, "log_level": 0}
        )  # fmt: skip
        golden = (event for policy in POLICIES for _, _, event in read_reference(policy).records())
        self._examples = [reading_reader().read(event).data for event in golden]
        self.fed: dict[str, list[float]] = {cluster: [] for cluster in FED}
        """By cluster, the factors that an undisturbed run decides one by one."""
        self._usable: dict[str, int] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._count = 0
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.purge()

    def probe(self) -> dict[str, float]:
        """Publish a new level of each cluster, and nothing after it until `go_on`; returns the factors."""
        self._lock.acquire()
        levels = {cluster: self._level(cluster) for cluster in FED}
        self._producer.flush(240)
        return levels

    def say_again(self) -> None:
        """Publish the last level of each cluster again, as a collector does, while the stream is paused."""
        for cluster in FED:
            self._say(cluster, self._usable[cluster])
        self._producer.poll(0)

    def go_on(self) -> None:
        """Continue the stream."""
        self._lock.release()

    def _run(self) -> None:
        while not self._over.wait(self._random.uniform(0.02, _LONGEST_PAUSE_SECONDS)):
            with self._lock:
                self._feed()
            self._producer.poll(0)

    def _feed(self) -> None:
        self._count += 1
        if self._count % _GARBAGE_EACH == 0:
            self._send("observed.log-dirs", "a", self._random.randbytes(40))
        elif self._count % _EXAMPLE_EACH == 0:
            self._read(self._random.choice(self._examples))
        else:
            self._level(self._random.choice(FED))

    def _level(self, cluster: str) -> float:
        """Publish a level that differs from the last one."""
        last = self.fed[cluster][-1] if self.fed[cluster] else -1.0
        factor = last
        while factor == last:
            usable = 1 + self._random.randrange(1000) * 999
            factor = round((usable - 1) / 999_998, 6)
        self.fed[cluster].append(factor)
        self._say(cluster, usable)
        return factor

    def _say(self, cluster: str, usable_bytes: int) -> None:
        self._usable[cluster] = usable_bytes
        volume = VolumeReading(log_dir="/data", total_bytes=TOTAL_BYTES, usable_bytes=usable_bytes)
        self._read(LogDirs(cluster=cluster, outcome=Outcome.OK, broker=1, volumes=(volume,)))

    def _read(self, reading: Reading) -> None:
        value = observation_event(reading, id=str(uuid.uuid4()), source="faults", time=datetime.now(UTC))
        self._send(observed_topic(type(reading)), reading.cluster, value)

    def _send(self, topic: str, key: str, value: bytes) -> None:
        with suppress(KafkaException):  # while the topic is gone
            self._producer.produce(f"{PREFIX}.{topic}", key=key, value=value)
