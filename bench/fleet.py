"""How much of a fleet one query carries: brokers that do not exist each say every 10 s how full their volumes are.

All brokers know their whole trends first, at whatever pace the query takes. Then the fleet speaks at its own pace, and
what counts is whether the lag stays flat. `p50` and `p99` are of observations, each from its append, by Kafka's own
time, to the end of the batch it was in; records are taken in the order of their appends. Rates that a machine cannot
carry show as lag.
With `--backlog` all records are there before the measured time, so the load takes nothing of the machine within it.

    python bench/fleet.py                                      1,000 clusters of 30 brokers with 4 volumes
    python bench/fleet.py --clusters 1 --brokers 1000 --volumes 12
    python bench/fleet.py --master spark://127.0.0.1:7077 --partitions 2
    python bench/fleet.py --workers 2 --partitions 2 --clusters 100 --backlog 20     on a Spark cluster of its own
    python bench/fleet.py --speed 0.25 0.5 1                   where it breaks
    python bench/fleet.py --against HEAD~20
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fleet_load import AT_ONCE_SECONDS, OBSERVED, PREFIX, Fleet, FleetReadings
from bench.processes import cpu_seconds, own_cpu_seconds, resident_bytes
from bench.quantiles import quantile
from bench.turns import Figures, run
from bench.waits import appended_ms, ends_of, waits_ms
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topic_admin import create_topics
from connectors.kafka.topics import TopicSettings
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars, spark_group
from policies.throttle import ThrottleSettings
from streaming.host import PolicyHost
from streaming.progress import BatchProgress, RawProgressListener
from streaming.query import Wiring, start_query
from streaming.session import start_session, stop_session
from streaming.settings import StreamSettings
from tests.system.spark_cluster import SparkCluster

WARM_POLLS = 12
"""Number of readings until a volume's trend is full."""
_LONGEST_DRAIN = 120
"""Limit in seconds for deciding the backlog of one rate before the next begins."""


Executors = Callable[[], list[int]]
"""Returns the pids of the running executors, if there are any."""


@dataclass
class Batches:
    """The query's progress reports, from `begin` on."""

    taken: list[BatchProgress] = field(default_factory=list)

    def observed(self) -> int:
        """Number of records so far."""
        return sum(batch.input_records for batch in self.taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=30, help="of each cluster")
    parser.add_argument("--volumes", type=int, default=4, help="of each broker")
    parser.add_argument("--seconds", type=int, default=60, help="measured time")
    parser.add_argument("--speed", type=float, nargs="+", default=[1.0], help="times as often as every 10 s, in turn")
    parser.add_argument("--partitions", type=int, default=1, help="of topics and state")
    parser.add_argument("--most", type=int, default=20_000, help="records a batch: stream.max_records_per_batch")
    parser.add_argument("--master", help="a Spark master on this machine; by default local[2]")
    parser.add_argument("--workers", type=int, default=0, help="start a Spark cluster of so many, with one core each")
    parser.add_argument("--backlog", type=int, default=0, help="polls that wait to be decided on, in place of a pace")
    run(__doc__ or "", measure, parser)


def measure(given: argparse.Namespace) -> Figures:
    """One fleet at one rate."""
    fleet = Fleet(given.clusters, given.brokers, given.volumes)
    stream: dict[str, Any] = {"shuffle_partitions": given.partitions, "max_records_per_batch": given.most}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        executors: Executors = list
        if given.workers:
            cluster = stack.enter_context(SparkCluster(folder / "spark-cluster", given.workers))
            given.master, executors = cluster.master, cluster.executors
        if given.master:
            stream |= {"master": given.master, "spark": {"spark.executor.memory": "1g", "spark.executor.cores": 1}}
        kafka = stack.enter_context(EmbeddedKafka(folder / "kafka", jars=ensure_jars("kafka", default_cache_dir())))
        topics = TopicSettings(prefix=PREFIX, partitions=given.partitions)
        create_topics(KafkaConnection(bootstrap_servers=kafka.bootstrap_servers), topics)
        settings = StreamSettings.model_validate(stream)
        return _measured(given, fleet, kafka.bootstrap_servers, folder, settings, executors)


def _measured(
    given: argparse.Namespace,
    fleet: Fleet,
    servers: str,
    folder: Path,
    settings: StreamSettings,
    executors: Executors,
) -> Figures:
    batches = Batches()
    spark = start_session(settings, ensure_jars(spark_group(), default_cache_dir()), folder / "spark.log")
    try:
        spark.streams.addListener(RawProgressListener(batches.taken.append))
        limits = {"soft": {"available_ratio_below": 0.05}, "hard": {"available_ratio_below": 0.01}}
        host = PolicyHost({"throttle": ThrottleSettings.model_validate(limits)}, _names(fleet))
        start_query(spark, Wiring({"bootstrap.servers": servers}, PREFIX, folder / "checkpoint"), host, settings)
        readings = FleetReadings(fleet, servers)
        _warm(readings, batches)
        gateway: Any = spark.sparkContext._gateway
        figures: Figures = {}
        processor = _Processor(gateway.proc.pid, executors)
        if given.backlog:
            return _worked_off(readings, given.backlog, batches, processor)
        for speed in given.speed:
            found = _at_pace(readings, speed, given.seconds, batches, processor)
            found["checkpoint, MiB"] = _bytes_in(folder / "checkpoint") / 2**20
            mark = "" if len(given.speed) == 1 else f"at {fleet.per_second * speed:.0f}/s: "
            figures |= {f"{mark}{what}": value for what, value in found.items()}
        return figures
    finally:
        stop_session(spark)


@dataclass
class _Processor:
    """The processor time and memory of the query: of the driver, and of executors if there are any.

    Args:
        driver: pid of its JVM.
        executors: returns theirs.
    """

    driver: int
    executors: Executors

    def spent(self) -> Figures:
        """Seconds of processor time so far."""
        jvms = [self.driver, *self.executors()]
        alone = [own_cpu_seconds(jvm) for jvm in jvms]
        whole = sum(map(cpu_seconds, jvms))
        return {"whole": whole, "driver": alone[0], "executors": sum(alone[1:]), "python": whole - sum(alone)}

    def since(self, before: Figures) -> Figures:
        """Seconds of processor time from then on."""
        return {part: seconds - before[part] for part, seconds in self.spent().items()}


def _worked_off(readings: FleetReadings, polls: int, batches: Batches, processor: _Processor) -> Figures:
    """Decide a backlog as fast as possible while nothing is published, from the end of a batch to that of the last."""
    until = batches.observed() + readings.write(polls)
    written = len(batches.taken)
    while len(batches.taken) == written:
        time.sleep(AT_ONCE_SECONDS)
    seen, before, began = len(batches.taken), processor.spent(), time.monotonic()
    while batches.observed() < until:
        time.sleep(AT_ONCE_SECONDS)
    took, spent = time.monotonic() - began, processor.since(before)
    taken = batches.taken[seen:]
    observed = sum(batch.input_records for batch in taken)
    return {
        "decided on a second": observed / took,
        "observations a batch": observed / len(taken),
        "batch, ms": 1000 * _mean([batch.duration_seconds for batch in taken]),
        "CPU ms an observation": 1000 * spent["whole"] / observed,
        "of it in the driver": 1000 * spent["driver"] / observed,
        "of it in executors' JVMs": 1000 * spent["executors"] / observed,
        "of it in Python": 1000 * spent["python"] / observed,
        "cores": spent["whole"] / took,
        "of it executors, with Python": (spent["whole"] - spent["driver"]) / took,
    }


def _at_pace(readings: FleetReadings, speed: float, seconds: int, batches: Batches, processor: _Processor) -> Figures:
    """Run one rate, after all earlier records are decided."""
    offered = readings.fleet.per_second * speed * seconds
    known = ends_of(readings.servers, OBSERVED)
    spent_before = processor.spent()
    seen, before, began = len(batches.taken), batches.observed(), time.monotonic()
    readings.publish(seconds, speed)
    took, spent = time.monotonic() - began, processor.since(spent_before)
    taken = batches.taken[seen:]
    millions = max(1, sum(batch.input_records for batch in taken)) / 1e6
    figures = _figures(taken, offered, took) | {
        "CPU seconds a million observations": spent["whole"] / millions,
        "of it in Python": spent["python"] / millions,
        "cores": spent["whole"] / took,
        "resident, MiB": sum(map(resident_bytes, [processor.driver, *processor.executors()])) / 2**20,
    }
    while batches.observed() - before < 0.99 * offered and time.monotonic() - began < took + _LONGEST_DRAIN:
        time.sleep(0.1)
    decided = batches.taken[seen:]  # including the backlog when the fleet stopped: it contains the longest waits
    waits = waits_ms(decided, appended_ms(readings.servers, OBSERVED, known), sum(known.values()) - before)
    return {"p50, ms": quantile(waits, 50), "p99, ms": quantile(waits, 99)} | figures


def _names(fleet: Fleet) -> frozenset[str]:
    return frozenset(f"c{cluster}" for cluster in range(fleet.clusters))


def _warm(readings: FleetReadings, batches: Batches) -> None:
    """Publish full trends, one poll after the other."""
    until = 0
    for _ in range(WARM_POLLS):
        until += readings.write(1)
        while batches.observed() < until:
            time.sleep(AT_ONCE_SECONDS)


def _figures(taken: list[BatchProgress], offered: float, took: float) -> Figures:
    third = max(1, len(taken) // 3)
    observed = sum(batch.input_records for batch in taken)
    return {
        "offered, observations a second": offered / took,
        "decided on a second": observed / took,
        "lag in the first third, ms": 1000 * _mean([batch.lag_seconds for batch in taken[:third]]),
        "lag in the last third, ms": 1000 * _mean([batch.lag_seconds for batch in taken[-third:]]),
        "batch, ms": 1000 * _mean([batch.duration_seconds for batch in taken]),
        "observations a batch": observed / max(1, len(taken)),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _bytes_in(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


if __name__ == "__main__":
    main()
