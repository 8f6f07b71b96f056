"""The loop under measurement: a broker with the loop's topics, the query on it, and the times of its records.

All times of records are Kafka's own (LogAppendTime) on one broker, so no two clocks are compared.
"""

import itertools
import json
import math
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from connectors.kafka.admin import create_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import TopicSettings
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import ensure_jars, spark_group
from deploy.settings.application import default_cache_dir
from policies.observations import Outcome
from policies.throttle import LogDirs, ThrottleSettings
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from streaming.host import PolicyHost
from streaming.query import BatchProgress, Query
from streaming.session import start_session
from streaming.settings import CheckpointPlace, StreamSettings
from tests.eager import TOTAL_BYTES
from tests.system.waiting import eventually

PREFIX = "headgate"
_AT_ONCE = 10_000
"""Records that are read together."""


@contextmanager
def loop_kafka(*prefixes: str, partitions: int = 1) -> Iterator[tuple[Path, str]]:
    """Start a broker with the topics of a loop under each prefix; return a folder and the broker's address."""
    jars = ensure_jars("kafka", default_cache_dir())
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        EmbeddedKafka(Path(folder) / "kafka", jars) as kafka,
    ):
        for prefix in prefixes:
            topics = TopicSettings(prefix=prefix, partitions=partitions)
            create_topics(KafkaConnection(bootstrap_servers=kafka.bootstrap_servers), topics)
        yield Path(folder), kafka.bootstrap_servers


def start_throttle(
    folder: Path,
    servers: str,
    stream: Mapping[str, Any],
    throttle: Mapping[str, Any],
    clusters: frozenset[str] | None = None,
) -> Any:
    """Start a Spark session and the query of the throttle policy in this process; return the session."""
    settings = StreamSettings.model_validate(stream)
    spark = start_session(settings, ensure_jars(spark_group(), default_cache_dir()), folder / "spark.log")
    host = PolicyHost({"throttle": ThrottleSettings.model_validate(throttle)}, clusters)
    place = CheckpointPlace.parse(folder / "checkpoint")
    Query({"bootstrap.servers": servers}, PREFIX, place, host, settings).start(spark)
    return spark


class Appended(NamedTuple):
    """A record of a topic."""

    value: bytes
    appended_ms: int

    @property
    def event(self) -> dict[str, Any]:
        """The event with its data."""
        return dict(json.loads(self.value))


class Topics:
    """Reads topics of a broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def ends(self, topic: str) -> dict[int, int]:
        """Return the next offset of each partition, as soon as all have a leader."""
        return eventually(f"{topic} has leaders", lambda: self._ends(topic))

    def records(self, topic: str, since: Mapping[int, int]) -> list[Appended]:
        """Return the records between these offsets and the ends."""
        left = sum(self.ends(topic).values()) - sum(since.values())
        found: list[Appended] = []
        with closing(self._consumer()) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in since.items()])
            while len(found) < left:
                messages = consumer.consume(min(_AT_ONCE, left - len(found)), timeout=1)
                found += [Appended(message.value() or b"", message.timestamp()[1]) for message in messages]
        return found

    def _ends(self, topic: str) -> dict[int, int] | None:
        with closing(self._consumer()) as consumer:
            try:
                found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
                return {each: consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in found}
            except KafkaException:
                return None

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.servers, "group.id": "bench", "enable.auto.commit": False})


class Throttled(Topics):
    """Publishes observations that each change a factor, and reads the decisions, on topics of one partition."""

    def __init__(self, servers: str, prefix: str = PREFIX) -> None:
        super().__init__(servers)
        self.observed, self.decided = f"{prefix}.observed.log-dirs", f"{prefix}.decided.throttle"

    def produce(self, per_second: int, seconds: int) -> None:
        """Publish observations at an even rate, a low one of one cluster, others of ten; return when all are stored."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0, "acks": "all"})
        start, clusters = time.monotonic(), 1 if per_second < 10 else 10
        for number in range(per_second * seconds):
            pause = start + number / per_second - time.monotonic()
            if pause > 0:
                threading.Event().wait(pause)
            # Never publish the same free space twice in a row, so that every reading changes the factor.
            usable = 100_000 + (number // clusters) % 500_000
            volume = VolumeReading(log_dir="/data", total_bytes=TOTAL_BYTES, usable_bytes=usable)
            reading = LogDirs(cluster=f"c{number % clusters}", outcome=Outcome.OK, broker=1, volumes=(volume,))
            id_ = f"{time.monotonic_ns()}-{number}"
            event = observation_event(reading, id=id_, source="bench", time=datetime.now(UTC))
            producer.produce(self.observed, key=reading.cluster, value=event)
            producer.poll(0)
        producer.flush()

    def marks(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the next offsets of both topics."""
        return self.ends(self.observed), self.ends(self.decided)

    def since(self, marks: tuple[Mapping[int, int], Mapping[int, int]]) -> tuple[list[Appended], list[Appended]]:
        """Return the observations and the decisions since some offsets."""
        return self.records(self.observed, marks[0]), self.records(self.decided, marks[1])

    def await_latencies(self, marks: tuple[Mapping[int, int], Mapping[int, int]]) -> list[float]:
        """Wait until each observation since some offsets is decided on; return the latencies in ms, sorted."""
        time.sleep(3)  # the last batch
        return eventually("all are decided on", lambda: latencies(*self.since(marks)))


def latencies(observed: Iterable[Appended], decided: Iterable[Appended]) -> list[float] | None:
    """Return the time from each observation to the first decision that uses it or a later one of its cluster.

    None if some observations have no decision yet.
    """
    waiting: dict[str, list[int]] = defaultdict(list)
    places: dict[str, int] = {}
    for each in observed:
        times = waiting[each.event["data"]["cluster"]]
        places[each.event["id"]] = len(times)
        times.append(each.appended_ms)
    found: list[float] = []
    done: dict[str, int] = defaultdict(int)
    for each in decided:
        data = each.event["data"]
        first, end = done[data["cluster"]], places.get(data["evidence"][0], -1) + 1
        found += [each.appended_ms - at_ms for at_ms in waiting[data["cluster"]][first:end]]
        done[data["cluster"]] = max(first, end)
    return sorted(found) if all(done[cluster] == len(times) for cluster, times in waiting.items()) else None


def waits_ms(batches: Iterable[BatchProgress], appended: Sequence[int], undecided: int = 0) -> list[float]:
    """Return the waiting time of each record of the batches, shortest first.

    Args:
        batches: in order; together they take the oldest records.
        appended: the append time of each record, in order.
        undecided: the number of earlier records that are taken first; they are left out.
    """
    ends = ((batch.began_ms + 1000 * batch.duration_seconds, batch.input_records) for batch in batches)
    each = itertools.chain.from_iterable(itertools.repeat(end_ms, records) for end_ms, records in ends)
    taken = itertools.islice(each, undecided, None)
    return sorted(end_ms - at_ms for end_ms, at_ms in zip(taken, appended, strict=False))


def quantile(values: Sequence[float], percent: int) -> float:
    """Return a percentile (1 to 99), interpolated between two values; NaN without values."""
    if len(values) < 2:
        return values[0] if values else math.nan
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
