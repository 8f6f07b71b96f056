"""How much of a fleet one query carries: brokers that do not exist each say every 10 s how full their volumes are.

All brokers know their whole trends first, at whatever pace the query takes. Then the fleet speaks at its own pace, and
what counts is whether the lag stays flat. `p99` is per observation, from its append to the end of the batch it was in:
the age of a batch's oldest record when it began, and the batch. Rates that a machine cannot carry show as lag.

    python bench/fleet.py                                      1,000 clusters of 30 brokers with 4 volumes
    python bench/fleet.py --clusters 1 --brokers 1000 --volumes 12
    python bench/fleet.py --master spark://127.0.0.1:7077 --partitions 2
    python bench/fleet.py --speed 0.25 0.5 1 --record fleet.jsonl     where it breaks, for docs/draw_fleet.py
    python bench/fleet.py --against HEAD~20
"""

import argparse
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.processes import cpu_seconds, own_cpu_seconds, resident_bytes
from bench.turns import Figures, run
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topic_admin import create_topics
from connectors.kafka.topics import TopicSettings
from deploy.embedded import EmbeddedKafka
from deploy.jars import default_cache_dir, ensure_jars
from policies.throttle import ThrottleSettings
from streaming.host import PolicyHost
from streaming.progress import BatchProgress, ProgressListener
from streaming.query import Wiring, start_query
from streaming.session import start_session, stop_session
from streaming.settings import StreamSettings

PREFIX = "headgate"
OBSERVED = f"{PREFIX}.observed.log-dirs"
POLL_SECONDS = 10
WARM_POLLS = 12
"""So many readings have a volume's trend whole."""
_GB = 10**9
_AT_ONCE = 0.05
"""Seconds of the fleet's observations that are sent together."""
_LONGEST_DRAIN = 120
"""Seconds until what is left of one pace is decided on, before the next begins."""


@dataclass(frozen=True)
class Fleet:
    """What there is to watch."""

    clusters: int
    brokers: int
    volumes: int

    @property
    def per_second(self) -> float:
        """Observations, each of one broker."""
        return self.clusters * self.brokers / POLL_SECONDS

    def observations(self, poll: int) -> Iterator[tuple[str, bytes]]:
        """Of one poll, brokers of all clusters in turn: (cluster, record)."""
        for broker, cluster in itertools.product(range(self.brokers), range(self.clusters)):
            yield f"c{cluster}", self._record(cluster, broker, poll)

    def _record(self, cluster: int, broker: int, poll: int) -> bytes:
        """Written as text: building models would cost more than all that is measured."""
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
class Batches:
    """What the query says of its batches, from `begin` on."""

    taken: list[BatchProgress] = field(default_factory=list)

    def observed(self) -> int:
        """Records so far."""
        return sum(batch.input_records for batch in self.taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=30, help="of each cluster")
    parser.add_argument("--volumes", type=int, default=4, help="of each broker")
    parser.add_argument("--seconds", type=int, default=60, help="measured time")
    parser.add_argument("--speed", type=float, nargs="+", default=[1.0], help="times as often as every 10 s, in turn")
    parser.add_argument("--record", type=Path, help="write the figures of each speed there, as JSON lines")
    parser.add_argument("--partitions", type=int, default=1, help="of topics and state")
    parser.add_argument("--most", type=int, default=20_000, help="records a batch: stream.max_records_per_batch")
    parser.add_argument("--master", help="a Spark master on this machine; by default local[2]")
    parser.add_argument("--batches", type=Path, help="write what Spark says of each batch there, as JSON lines")
    run(__doc__ or "", measure, parser)


def measure(given: argparse.Namespace) -> Figures:
    """One fleet at one pace."""
    fleet = Fleet(given.clusters, given.brokers, given.volumes)
    stream: dict[str, Any] = {"shuffle_partitions": given.partitions, "max_records_per_batch": given.most}
    if given.master:
        stream |= {"master": given.master, "spark": {"spark.executor.memory": "1g", "spark.executor.cores": 1}}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka", jars=ensure_jars("kafka", default_cache_dir())) as kafka:
            topics = TopicSettings(prefix=PREFIX, partitions=given.partitions)
            create_topics(KafkaConnection(bootstrap_servers=kafka.bootstrap_servers), topics)
            return _measured(given, fleet, kafka.bootstrap_servers, folder, StreamSettings.model_validate(stream))


def _measured(given: argparse.Namespace, fleet: Fleet, servers: str, folder: Path, settings: StreamSettings) -> Figures:
    batches = Batches()
    spark = start_session(settings, ensure_jars("spark", default_cache_dir()), folder / "spark.log")
    try:
        listener = _Recorder(batches.taken.append, given.batches) if given.batches else None
        spark.streams.addListener(listener or ProgressListener(batches.taken.append))
        limits = {"soft": {"available_ratio_below": 0.05}, "hard": {"available_ratio_below": 0.01}}
        host = PolicyHost({"throttle": ThrottleSettings.model_validate(limits)}, _names(fleet))
        start_query(spark, Wiring({"bootstrap.servers": servers}, PREFIX, folder / "checkpoint"), host, settings)
        _warm(fleet, servers, batches)
        gateway: Any = spark.sparkContext._gateway
        figures: Figures = {}
        fleet_said = _Said(fleet, servers)
        for speed in given.speed:
            found = _at_pace(fleet_said, speed, given.seconds, batches, gateway.proc.pid)
            found["checkpoint, MiB"] = _bytes_in(folder / "checkpoint") / 2**20
            if given.record:
                _record(given.record, {"clusters": fleet.clusters, "volumes": fleet.volumes, "speed": speed, **found})
            mark = "" if len(given.speed) == 1 else f"at {fleet.per_second * speed:.0f}/s: "
            figures |= {f"{mark}{what}": value for what, value in found.items()}
        return figures
    finally:
        stop_session(spark)


@dataclass
class _Said:
    """What a fleet has said so far: no reading comes twice."""

    fleet: Fleet
    servers: str
    polls: int = WARM_POLLS

    def speak(self, seconds: int, speed: float) -> None:
        """Go on at this pace."""
        given = (self.fleet, self.servers, seconds, speed, self.polls)
        load = multiprocessing.Process(target=_speak, args=given, daemon=True)
        load.start()
        load.join()
        self.polls += 1 + int(seconds * speed / POLL_SECONDS)


def _at_pace(said: _Said, speed: float, seconds: int, batches: Batches, jvm: int) -> Figures:
    """One pace, from when all that was said before is decided on."""
    offered = said.fleet.per_second * speed * seconds
    whole, jvm_alone = cpu_seconds(jvm), own_cpu_seconds(jvm)
    seen, before, began = len(batches.taken), batches.observed(), time.monotonic()
    said.speak(seconds, speed)
    took = time.monotonic() - began
    whole, jvm_alone = cpu_seconds(jvm) - whole, own_cpu_seconds(jvm) - jvm_alone
    taken = batches.taken[seen:]
    millions = max(1, sum(batch.input_records for batch in taken)) / 1e6
    figures = _figures(taken, offered, took) | {
        "CPU seconds a million observations": whole / millions,
        "of it in Python": (whole - jvm_alone) / millions,
        "cores": whole / took,
        "resident, MiB": resident_bytes(jvm) / 2**20,
    }
    while batches.observed() - before < 0.99 * offered and time.monotonic() - began < took + _LONGEST_DRAIN:
        time.sleep(0.1)
    return figures


def _record(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps({name: round(value, 3) for name, value in line.items()}) + "\n")


class _Recorder(ProgressListener):
    """Writes down what Spark says of each batch, too."""

    def __init__(self, on_batch: Any, file: Path) -> None:
        super().__init__(on_batch)
        self._file = file

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """One line a batch."""
        with self._file.open("a") as lines:
            lines.write(json.dumps(json.loads(event.progress().json())) + "\n")
        super().onQueryProgress(event)


def _names(fleet: Fleet) -> frozenset[str]:
    return frozenset(f"c{cluster}" for cluster in range(fleet.clusters))


def _warm(fleet: Fleet, servers: str, batches: Batches) -> None:
    """Whole trends, one poll after the other."""
    producer = _producer(servers)
    for poll in range(WARM_POLLS):
        for cluster, record in fleet.observations(poll):
            producer.produce(OBSERVED, key=cluster, value=record)
            producer.poll(0)
        producer.flush()
        until = (poll + 1) * fleet.clusters * fleet.brokers
        while batches.observed() < until:
            time.sleep(0.1)


def _speak(fleet: Fleet, servers: str, seconds: int, speed: float, first_poll: int) -> None:
    producer, began, sent = _producer(servers), time.monotonic(), 0
    polls = itertools.chain.from_iterable(fleet.observations(poll) for poll in itertools.count(first_poll))
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * fleet.per_second * speed) - sent
        for cluster, record in itertools.islice(polls, due):
            producer.produce(OBSERVED, key=cluster, value=record)
        sent += due
        producer.poll(0)
        time.sleep(_AT_ONCE)
    producer.flush()


def _producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})


def _figures(taken: list[BatchProgress], offered: float, took: float) -> Figures:
    ends = sorted((batch.lag_seconds + batch.duration_seconds, batch.input_records) for batch in taken)
    third = max(1, len(taken) // 3)
    observed = sum(batch.input_records for batch in taken)
    return {
        "offered, observations a second": offered / took,
        "decided on a second": observed / took,
        "p50, ms": 1000 * _of_records(ends, 0.5),
        "p99, ms": 1000 * _of_records(ends, 0.99),
        "lag in the first third, ms": 1000 * _mean([batch.lag_seconds for batch in taken[:third]]),
        "lag in the last third, ms": 1000 * _mean([batch.lag_seconds for batch in taken[-third:]]),
        "batch, ms": 1000 * _mean([batch.duration_seconds for batch in taken]),
        "observations a batch": observed / max(1, len(taken)),
    }


def _of_records(ends: list[tuple[float, int]], share: float) -> float:
    """What so large a share of the records stays within."""
    left = share * sum(records for _, records in ends)
    for seconds, records in ends:
        left -= records
        if left <= 0:
            return seconds
    return float("nan")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _bytes_in(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


if __name__ == "__main__":
    main()
