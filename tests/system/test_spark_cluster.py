"""The query on a standalone Spark cluster, whose executors may die, decides what it decides in one process."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest

from deploy.settings.file import load_settings
from policies.observations import Outcome
from policies.policy import TICKS, TIMERS
from policies.registry import AUDIT, decided_topics
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from tests.eager import EAGER, TOTAL_BYTES
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, make_topics, produce, write_settings
from tests.system.spark_cluster import SparkCluster
from tests.system.undisturbed import EVERY_PLAN, decided_alone, read_all
from tests.system.waiting import eventually

CLUSTERS = ("a", "b", "c", "d", "e")
DECIDED = ("verdict", "reason", "factor", "previous_factor", "raw_factor", "volumes", "brokers", "mode")
"""Of a decision, what no clock has a part in."""


class Run:
    """A query on topics of its own.

    Args:
        folder: for its data.
        servers: of the loop's Kafka.
        port: of /metrics.
        stream: its `stream` block.
    """

    def __init__(self, folder: Path, servers: str, port: int, stream: dict[str, Any]) -> None:
        self.folder, self.servers, self.port = folder, servers, port
        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        self.file = write_settings(
            folder / "headgate.yaml",
            kafka={"bootstrap_servers": servers},
            topics={"prefix": self.prefix, "partitions": 1},
            data_dir=str(folder / "data"),
            http={"port": port},
            policies={"throttle": EAGER},
            clusters={cluster: {} for cluster in CLUSTERS},
            # Four JVMs that start at once on a busy machine are slow, and not stalled.
            stream={**UNHURRIED, "shuffle_partitions": 2, "stall_timeout": "20m", **stream},
        )
        make_topics(self.file)

    def query(self) -> Headgate:
        return Headgate(["decide", "-s", str(self.file)], self.folder / "decide.log")

    def decided(self) -> Topic:
        return Topic(self.servers, f"{self.prefix}.decided.throttle")

    def observe(self, round_: int) -> None:
        """Publish a reading of each cluster, with other values each round."""
        records = [(name, reading(name, round_, number)) for number, name in enumerate(CLUSTERS)]
        produce(self.servers, f"{self.prefix}.observed.log-dirs", *records)


def reading(cluster: str, round_: int, number: int) -> bytes:
    usable = 100_000 * (1 + (round_ * 3 + number) % 8)
    volume = VolumeReading(log_dir="/data", total_bytes=TOTAL_BYTES, usable_bytes=usable)
    data = LogDirs(cluster=cluster, outcome=Outcome.OK, broker=1, volumes=(volume,))
    return observation_event(data, id=str(uuid.uuid4()), source="test", time=datetime.now(UTC))


def decisions(decided: Topic) -> dict[str, list[dict[str, Any]]]:
    """Decisions by cluster, each once, in order, without fields that depend on the time; their numbers have no gap."""
    by_id = {each["decision_id"]: each for each in decided.data()}
    found: dict[str, list[dict[str, Any]]] = {cluster: [] for cluster in CLUSTERS}
    numbers: dict[str, list[int]] = {cluster: [] for cluster in CLUSTERS}
    for each in sorted(by_id.values(), key=lambda each: each["sequence"]):
        found[each["cluster"]].append({name: each[name] for name in DECIDED})
        numbers[each["cluster"]].append(each["sequence"])
    assert all(given == list(range(given[0], given[0] + len(given))) for given in numbers.values() if given)
    return found


def has_decided(decided: Topic, rounds: int) -> bool:
    return all(len(each) == rounds for each in decisions(decided).values())


SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": 1,
    "spark.cores.max": 2,
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def spark_cluster(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers of one core each."""
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster


def query_failures(run: Run) -> int:
    return (run.folder / "decide.log").read_text().count("query failed")


def test_a_cluster_whose_executor_is_killed_decides_as_one_process_does(
    spark_cluster: SparkCluster, loop_kafka: str, tmp_path: Path, free_port: int
) -> None:
    stream = {"master": spark_cluster.master, "spark": {**SMALL, **EVERY_PLAN}}
    run = Run(tmp_path / "run", loop_kafka, free_port, stream)
    with run.query() as query, run.decided() as decided:
        await_ready(query, run.port)
        for round_ in range(1, 6):
            run.observe(round_)
            if round_ == 3:
                before = spark_cluster.executors()
                assert len(before) == 2, "work is shared"
                failures = query_failures(run)
                os.kill(before[0], signal.SIGKILL)
            eventually(f"round {round_}", partial(has_decided, decided, round_))
            assert query.process.poll() is None
        eventually("an executor in place of the killed one", lambda: len(spark_cluster.executors()) == 2)
        assert query.stop() == 0
    assert query_failures(run) == failures, "a task is repeated, not the query"
    for name in ("decided.throttle", AUDIT, TIMERS, TICKS):
        with Topic(loop_kafka, f"{run.prefix}.{name}") as kept:
            said = {entry.content_type for entry in kept.entries()}
            assert said == {"application/cloudevents+json; charset=UTF-8"}, name
    shared = read_all(loop_kafka, [f"{run.prefix}.{topic}" for topic in decided_topics()])
    checkpoint, host = run.folder / "data" / "checkpoint", load_settings(run.file).policy_host()
    alone = decided_alone(checkpoint, loop_kafka, run.prefix, host)
    assert {each["payload"].decode() for each in shared} == set(alone)


@pytest.mark.long
def test_the_line_that_is_printed_runs_under_spark_submit_whose_configuration_counts(
    spark_cluster: SparkCluster, loop_kafka: str, tmp_path: Path, free_port: int
) -> None:
    run = Run(tmp_path / "run", loop_kafka, free_port, {"master": spark_cluster.master, "spark": SMALL})
    line = _printed(["decide", "--print-submit", "-s", str(run.file)]).replace(
        "app.name=headgate", "app.name=submitted"
    )
    submit = ["bash", "-c", f"exec {Path(pyspark.__file__).parent}/bin/{line}"]
    with (tmp_path / "submit.log").open("wb") as log, run.decided() as decided:
        process = subprocess.Popen(submit, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            run.observe(1)
            eventually("decided", lambda: has_decided(decided, 1) or process.poll())
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert has_decided(decided, 1), (tmp_path / "submit.log").read_text()
    assert spark_cluster.has_run("submitted")


def _printed(arguments: Sequence[str]) -> str:
    done = subprocess.run([sys.executable, "-m", "deploy.cli", *arguments], capture_output=True, text=True, check=True)
    return done.stdout
