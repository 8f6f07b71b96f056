"""Observations that each change a factor, and the time from Kafka's append of each to that of its decision.

Both times are Kafka's own (LogAppendTime) on one broker, so no two clocks are compared.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from policies.observations import Outcome
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from tests.eager import TOTAL_BYTES
from tests.system.waiting import eventually


@dataclass(frozen=True)
class Load:
    """Observations a second, spread over clusters."""

    per_second: int
    clusters: int

    @classmethod
    def build(cls, per_second: int) -> "Load":
        """One cluster for a low rate, ten for higher ones."""
        return cls(per_second, 1 if per_second < 10 else 10)


class Appended(NamedTuple):
    """A record of one of the two topics."""

    event: dict[str, Any]
    appended_ms: int

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return str(self.event["data"]["cluster"])

    @property
    def id(self) -> str:
        """The event's id."""
        return str(self.event["id"])

    @property
    def rests_on(self) -> str:
        """For a decision, the id of its observation."""
        return str(self.event["data"]["evidence"][0])


class Throttled:
    """The two topics of the throttle policy under one prefix.

    Args:
        servers: of the broker.
        prefix: of the topics.
    """

    def __init__(self, servers: str, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self.observed, self.decided = f"{prefix}.observed.log-dirs", f"{prefix}.decided.throttle"

    def produce(self, load: Load, seconds: int) -> None:
        """Publish observations at an even rate; return when all are appended."""
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0, "acks": "all"})
        start = time.monotonic()
        for number in range(load.per_second * seconds):
            pause = start + number / load.per_second - time.monotonic()
            if pause > 0:
                threading.Event().wait(pause)
            reading = _reading(number, load)
            at = datetime.now(UTC)
            event = observation_event(reading, id=f"{time.monotonic_ns()}-{number}", source="bench", time=at)
            producer.produce(self.observed, key=reading.cluster, value=event)
            producer.poll(0)
        producer.flush()

    def ends(self) -> dict[str, int]:
        """Return the next offset of both topics, as soon as they have a leader."""
        return eventually(f"{self.observed} and {self.decided} have a leader", self._ends)

    def latencies(self, since: dict[str, int]) -> list[float] | None:
        """Return the sorted latencies in ms; None while some observations are undecided."""
        try:
            return sorted(self._latencies(since))
        except _UndecidedError:
            return None

    def records(self, topic: str, offset: int) -> Iterator[Appended]:
        """Return the records from an offset to the end."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, offset)])
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0))[1]
        while offset < end:
            for message in consumer.consume(10_000, timeout=1):
                yield Appended(json.loads(message.value() or b""), message.timestamp()[1])
                offset = (message.offset() or 0) + 1
        consumer.close()

    def _ends(self) -> dict[str, int] | None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "bench"})
        partitions = {topic: TopicPartition(topic, 0) for topic in (self.observed, self.decided)}
        try:
            return {topic: consumer.get_watermark_offsets(each)[1] for topic, each in partitions.items()}
        except KafkaException:
            return None
        finally:
            consumer.close()

    def _latencies(self, since: dict[str, int]) -> Iterator[float]:
        """Return the latency from each observation to the first decision that uses it or a later one of its cluster."""
        waiting: dict[str, list[Appended]] = defaultdict(list)
        for observed in self.records(self.observed, since[self.observed]):
            waiting[observed.cluster].append(observed)
        places = {each.id: number for several in waiting.values() for number, each in enumerate(several)}
        done: dict[str, int] = defaultdict(int)
        for decided in self.records(self.decided, since[self.decided]):
            first, end = done[decided.cluster], places.get(decided.rests_on, -1) + 1
            yield from (decided.appended_ms - each.appended_ms for each in waiting[decided.cluster][first:end])
            done[decided.cluster] = max(first, end)
        if any(done[cluster] < len(several) for cluster, several in waiting.items()):
            raise _UndecidedError


class _UndecidedError(Exception):
    """Some observations have no decision yet."""


def _reading(number: int, load: Load) -> LogDirs:
    # Never publish the same free space twice in a row, so that every reading changes the factor.
    usable = 100_000 + (number // load.clusters) % 500_000
    volume = VolumeReading(log_dir="/data", total_bytes=TOTAL_BYTES, usable_bytes=usable)
    return LogDirs(cluster=f"c{number % load.clusters}", outcome=Outcome.OK, broker=1, volumes=(volume,))
