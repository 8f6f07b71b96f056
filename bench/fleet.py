"""How much of a fleet one query carries: brokers that do not exist each say every 10 s how full their volumes are.

All brokers know their whole trends first, at whatever pace the query takes. Then the fleet speaks at its own pace, and
what counts is whether the lag stays flat. `p50` and `p99` are of observations, each from its append, by Kafka's own
time, to the end of the batch it was in; records are taken in the order of their appends. Rates that a machine cannot
carry show as lag.

    python bench/fleet.py                                      1,000 clusters of 30 brokers with 4 volumes
    python bench/fleet.py --clusters 1 --brokers 1000 --volumes 12
    python bench/fleet.py --speed 0.25 0.5 1                   where it breaks
    python bench/fleet.py --against HEAD~20
"""

import argparse
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from bench.loop import PREFIX, Topics, loop_kafka, quantile, start_throttle, waits_ms
from bench.processes import cpu_seconds, own_cpu_seconds, resident_bytes
from bench.turns import Figures, run
from streaming.query import BatchProgress, RawProgressListener
from streaming.session import stop_session

WARM_POLLS = 12
"""Number of readings until a volume's trend is full."""
POLL_SECONDS = 10
_OBSERVED = f"{PREFIX}.observed.log-dirs"
_GB = 10**9
_AT_ONCE_SECONDS = 0.05
"""Observations of this time span are published together."""
_LONGEST_DRAIN_SECONDS = 120
"""Limit for deciding the backlog of one rate before the next begins."""
_LIMITS = {"soft": {"available_ratio_below": 0.05}, "hard": {"available_ratio_below": 0.01}}


def measure(given: argparse.Namespace) -> Figures:
    """One fleet at each rate."""
    fleet = Fleet(given.clusters, given.brokers, given.volumes)
    stream: dict[str, Any] = {"shuffle_partitions": given.partitions, "max_records_per_batch": given.most}
    with ExitStack() as stack:
        folder, servers = stack.enter_context(loop_kafka(PREFIX, partitions=given.partitions))
        names = frozenset(f"c{number}" for number in range(fleet.clusters))
        spark = start_throttle(folder, servers, stream, _LIMITS, names)
        stack.callback(stop_session, spark)
        query = _Query(fleet, servers, spark.sparkContext._gateway.proc.pid)
        spark.streams.addListener(RawProgressListener(query.batches.append))
        for _ in range(WARM_POLLS):
            query.write_poll()
        figures: Figures = {}
        for speed in given.speed:
            found = _at_pace(query, speed, given.seconds)
            files = (folder / "checkpoint").rglob("*")
            found["checkpoint, MiB"] = sum(each.stat().st_size for each in files if each.is_file()) / 2**20
            mark = "" if len(given.speed) == 1 else f"at {fleet.per_second * speed:.0f}/s: "
            figures |= {f"{mark}{what}": value for what, value in found.items()}
        return figures


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
class _Query:
    """The query, with the pid of its JVM, its progress, and the fleet's readings for it, each one new."""

    fleet: Fleet
    servers: str
    pid: int
    batches: list[BatchProgress] = field(default_factory=list)
    polls: int = 0

    def observed(self, first_batch: int = 0) -> int:
        """Return the number of records that were in batches."""
        return sum(batch.input_records for batch in self.batches[first_batch:])

    def write_poll(self) -> None:
        """Publish one poll at once, and wait until all its records were in batches."""
        producer = _producer(self.servers)
        for cluster, record in self.fleet.observations(self.polls):
            producer.produce(_OBSERVED, key=cluster, value=record)
            producer.poll(0)
        producer.flush()
        self.polls += 1
        while self.observed() < self.polls * self.fleet.clusters * self.fleet.brokers:
            time.sleep(_AT_ONCE_SECONDS)

    def publish(self, seconds: int, speed: float) -> None:
        """Continue at this rate."""
        given = (self.fleet, self.servers, seconds, speed, self.polls)
        load = multiprocessing.Process(target=_publish, args=given, daemon=True)
        load.start()
        load.join()
        self.polls += 1 + int(seconds * speed / POLL_SECONDS)

    def cpu_seconds(self) -> tuple[float, float]:
        """Return the seconds of processor time so far: of all processes, and of those of Python."""
        whole = cpu_seconds(self.pid)
        return whole, whole - own_cpu_seconds(self.pid)


def _publish(fleet: Fleet, servers: str, seconds: int, speed: float, first_poll: int) -> None:
    producer, began, sent = _producer(servers), time.monotonic(), 0
    polls = itertools.chain.from_iterable(fleet.observations(poll) for poll in itertools.count(first_poll))
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * fleet.per_second * speed) - sent
        for cluster, record in itertools.islice(polls, due):
            producer.produce(_OBSERVED, key=cluster, value=record)
        sent += due
        producer.poll(0)
        time.sleep(_AT_ONCE_SECONDS)
    producer.flush()


def _producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})


def _at_pace(query: _Query, speed: float, seconds: int) -> Figures:
    """Run one rate, after all earlier records are decided."""
    topics, offered = Topics(query.servers), query.fleet.per_second * speed * seconds
    known = topics.ends(_OBSERVED)
    spent_before, seen, before, began = query.cpu_seconds(), len(query.batches), query.observed(), time.monotonic()
    query.publish(seconds, speed)
    took = time.monotonic() - began
    spent, in_python = (now - then for now, then in zip(query.cpu_seconds(), spent_before, strict=True))
    taken, observed = query.batches[seen:], query.observed(seen)
    third, lags = max(1, len(taken) // 3), [1000 * batch.lag_seconds for batch in taken]
    figures = {
        "offered, observations a second": offered / took,
        "decided on a second": observed / took,
        "lag in the first third, ms": _mean(lags[:third]),
        "lag in the last third, ms": _mean(lags[-third:]),
        "batch, ms": 1000 * _mean([batch.duration_seconds for batch in taken]),
        "observations a batch": observed / max(1, len(taken)),
        "CPU seconds a million observations": spent / max(1, observed) * 1e6,
        "of it in Python": in_python / max(1, observed) * 1e6,
        "cores": spent / took,
        "resident, MiB": resident_bytes(query.pid) / 2**20,
    }
    while query.observed() - before < 0.99 * offered and time.monotonic() - began < took + _LONGEST_DRAIN_SECONDS:
        time.sleep(0.1)
    appended = sorted(record.appended_ms for record in topics.records(_OBSERVED, known))
    # The batches after the fleet stopped contain the longest waits.
    waits = waits_ms(query.batches[seen:], appended, sum(known.values()) - before)
    return {"p50, ms": quantile(waits, 50), "p99, ms": quantile(waits, 99)} | figures


def _mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else float("nan")


if __name__ == "__main__":
    run(
        measure,
        clusters=(1000, "of the fleet"),
        brokers=(30, "of each cluster"),
        volumes=(4, "of each broker"),
        seconds=(60, "measured time"),
        speed=([1.0], "times as often as every 10 s, in turn"),
        partitions=(1, "of topics and state"),
        most=(20_000, "records a batch: stream.max_records_per_batch"),
    )
