"""Simulated brokers and their readings."""

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Producer

PREFIX = "headgate"
OBSERVED = f"{PREFIX}.observed.log-dirs"
POLL_SECONDS = 10
_GB = 10**9
AT_ONCE_SECONDS = 0.05
"""Observations of this time span are published together."""


@dataclass(frozen=True)
class Fleet:
    """The size of the fleet."""

    clusters: int
    brokers: int
    volumes: int

    @property
    def per_second(self) -> float:
        """Return observations, each of one broker."""
        return self.clusters * self.brokers / POLL_SECONDS

    def observations(self, poll: int) -> Iterator[tuple[str, bytes]]:
        """Yield (cluster, record) of one poll, brokers of all clusters in turn."""
        for broker, cluster in itertools.product(range(self.brokers), range(self.clusters)):
            yield f"c{cluster}", self._record(cluster, broker, poll)

    def _record(self, cluster: int, broker: int, poll: int) -> bytes:
        """Format a reading as text, because building models would cost more than the measured code."""
        free = 50 * _GB - poll * 10**6 + broker
        volumes = ",".join(
            f'{{"log_dir":"/data/{each}","total_bytes":{100 * _GB},"usable_bytes":{free}}}'
            for each in range(self.volumes)
        )
        return (
            '{"specversion":"1.0","type":"headgate.log-dirs.v1","source":"bench","time":"2026-11-21T08:00:00.000Z",'
            f'"id":"{poll:08}-{cluster:08}-{broker:08}","subject":"c{cluster}/{broker}",'
            '"datacontenttype":"application/json",'
            f'"data":{{"cluster":"c{cluster}","outcome":"ok","broker":{broker},"volumes":[{volumes}]}}}}'
        ).encode()


@dataclass
class FleetReadings:
    """Publishes the fleet's readings, each one new."""

    fleet: Fleet
    servers: str
    polls: int = 0

    def publish(self, seconds: int, speed: float) -> None:
        """Continue at this rate."""
        given = (self.fleet, self.servers, seconds, speed, self.polls)
        load = multiprocessing.Process(target=_publish, args=given, daemon=True)
        load.start()
        load.join()
        self.polls += 1 + int(seconds * speed / POLL_SECONDS)

    def write(self, polls: int) -> int:
        """Publish this many at once; return the number of records."""
        producer = _producer(self.servers)
        for poll in range(self.polls, self.polls + polls):
            for cluster, record in self.fleet.observations(poll):
                producer.produce(OBSERVED, key=cluster, value=record)
                producer.poll(0)
        producer.flush()
        self.polls += polls
        return polls * self.fleet.clusters * self.fleet.brokers


def _publish(fleet: Fleet, servers: str, seconds: int, speed: float, first_poll: int) -> None:
    producer, began, sent = _producer(servers), time.monotonic(), 0
    polls = itertools.chain.from_iterable(fleet.observations(poll) for poll in itertools.count(first_poll))
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * fleet.per_second * speed) - sent
        for cluster, record in itertools.islice(polls, due):
            producer.produce(OBSERVED, key=cluster, value=record)
        sent += due
        producer.poll(0)
        time.sleep(AT_ONCE_SECONDS)
    producer.flush()


def _producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
