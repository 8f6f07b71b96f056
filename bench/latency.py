"""How long from an observation's append to the append of the decision of its batch, per event, none left out.

Every observation changes its cluster's factor (holds and min_change are 0), so each batch that holds one decides. Both
instants are Kafka's own (LogAppendTime), on one broker, so no two clocks are compared.

    python bench/latency.py --rates 1 100 1000 --seconds 60 --warmup 60
    python bench/latency.py --against HEAD~20 --turns 2
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.turns import Figures, run
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topic_admin import create_topics
from connectors.kafka.topics import TopicSettings
from deploy.embedded import EmbeddedKafka
from deploy.jars import default_cache_dir, ensure_jars
from policies.observations import Outcome
from policies.throttle import LogDirs, ThrottleSettings
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from streaming.host import PolicyHost
from streaming.query import Wiring, start_query
from streaming.session import start_session
from streaming.settings import StreamSettings
from tests.system.waiting import eventually

PREFIX = "headgate"
OBSERVED, DECIDED = f"{PREFIX}.observed.log-dirs", f"{PREFIX}.decided.throttle"
TOTAL_BYTES = 1_000_000


@dataclass(frozen=True)
class Load:
    """Observations a second, spread over clusters."""

    per_second: int
    clusters: int

    @classmethod
    def of(cls, per_second: int) -> "Load":
        """One cluster for a trickle, ten for more."""
        return cls(per_second, 1 if per_second < 10 else 10)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", type=int, nargs="+", default=[1, 100, 1000], help="observations a second")
    parser.add_argument("--seconds", type=int, default=60, help="measured time for each rate")
    parser.add_argument("--warmup", type=int, default=60, help="seconds of the first rate that do not count")
    parser.add_argument("--trigger", help="trigger_interval; by default what the commit has")
    run(__doc__ or "", measure, parser)


def measure(given: argparse.Namespace) -> Figures:
    """Each rate in turn."""
    settings = StreamSettings.model_validate({"trigger_interval": given.trigger} if given.trigger else {})
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, _broker(Path(folder)) as broker:
        servers = broker.bootstrap_servers
        _create_topics(servers)
        _start(servers, Path(folder), settings)
        _produce(servers, Load.of(given.rates[0]), 1)
        eventually("the first decision", lambda: _ends(servers)[DECIDED])
        _produce(servers, Load.of(given.rates[0]), given.warmup)
        for rate in given.rates:
            marks = _ends(servers)
            _produce(servers, Load.of(rate), given.seconds)
            time.sleep(3)  # the last batch
            millis = eventually("all are decided on", partial(_all_latencies, servers, marks))
            for percent in (50, 99):
                figures[f"{rate}/s, p{percent}, ms"] = _quantile(millis, percent)
            figures[f"{rate}/s, longest, ms"] = millis[-1]
    return figures


def _broker(folder: Path) -> EmbeddedKafka:
    return EmbeddedKafka(folder / "kafka", jars=ensure_jars("kafka", default_cache_dir()))


def _create_topics(servers: str) -> None:
    create_topics(KafkaConnection(bootstrap_servers=servers), TopicSettings(prefix=PREFIX))


def _start(servers: str, folder: Path, settings: StreamSettings) -> None:
    limits = {"hard": {"available_bytes_below": 1}, "soft": {"available_bytes_below": TOTAL_BYTES - 1}}
    eager = {"min_hold": "0s", "min_change": 0.0, "recovery_margin": 0.0, "heartbeat": "1h"}
    host = PolicyHost({"throttle": ThrottleSettings.model_validate({**limits, **eager})})
    spark = start_session(settings, ensure_jars("spark", default_cache_dir()), folder / "spark.log")
    start_query(spark, Wiring({"bootstrap.servers": servers}, PREFIX, folder / "checkpoint"), host, settings)


def _produce(servers: str, load: Load, seconds: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})
    start = time.monotonic()
    for number in range(load.per_second * seconds):
        pause = start + number / load.per_second - time.monotonic()
        if pause > 0:
            threading.Event().wait(pause)
        reading = _reading(number, load)
        event = observation_event(reading, id=str(uuid.uuid4()), source="bench", time=datetime.now(UTC))
        producer.produce(OBSERVED, key=reading.cluster, value=event)
        producer.poll(0)
    producer.flush()


def _reading(number: int, load: Load) -> LogDirs:
    # Never the same free space twice in a row, so that every reading changes the factor.
    usable = 100_000 + (number // load.clusters) % 500_000
    volume = VolumeReading(log_dir="/data", total_bytes=TOTAL_BYTES, usable_bytes=usable)
    return LogDirs(cluster=f"c{number % load.clusters}", outcome=Outcome.OK, broker=1, volumes=(volume,))


def _ends(servers: str) -> dict[str, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    ends = {topic: consumer.get_watermark_offsets(TopicPartition(topic, 0))[1] for topic in (OBSERVED, DECIDED)}
    consumer.close()
    return ends


class _UndecidedError(Exception):
    """Some observations have no decision yet."""


def _all_latencies(servers: str, since: dict[str, int]) -> list[float] | None:
    """In order; None while some are undecided."""
    try:
        return sorted(_latencies(servers, since))
    except _UndecidedError:
        return None


def _latencies(servers: str, since: dict[str, int]) -> Iterator[float]:
    """From each observation to the first decision that rests on it or on a later one of its cluster."""
    waiting: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for cluster, id_, appended_ms in _records(servers, OBSERVED, since[OBSERVED]):
        waiting[cluster].append((id_, appended_ms))
    for cluster, id_, appended_ms in _records(servers, DECIDED, since[DECIDED]):
        ids = [i for i, _ in waiting[cluster]]
        covered = ids.index(id_) + 1 if id_ in ids else 0
        yield from (appended_ms - observed_ms for _, observed_ms in waiting[cluster][:covered])
        del waiting[cluster][:covered]
    if any(waiting.values()):
        raise _UndecidedError


def _records(servers: str, topic: str, offset: int) -> Iterator[tuple[str, str, int]]:
    """(cluster, id of the observation, append time in ms)."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, offset)])
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0))[1]
    while offset < end:
        for message in consumer.consume(10_000, timeout=1):
            event = json.loads(message.value() or b"")
            id_ = event["data"]["evidence"][0] if topic == DECIDED else event["id"]
            yield event["data"]["cluster"], id_, message.timestamp()[1]
            offset = (message.offset() or 0) + 1
    consumer.close()


def _quantile(ordered: Sequence[float], percent: int) -> float:
    return statistics.quantiles(ordered, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    main()
