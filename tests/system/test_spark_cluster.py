"""The query on a standalone Spark cluster, whose executors may die, decides what it decides in one process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyspark
import pytest

from policies.registry import AUDIT, decided_topics
from policies.timers import TICKS, TIMERS
from tests.system.loop import Topic, await_ready
from tests.system.rounds import Run, has_decided
from tests.system.spark_cluster import SparkCluster
from tests.system.test_replay_live import read_all, replay
from tests.system.waiting import eventually

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
    """The one process is that of a replay, of the same batches."""
    run = Run(tmp_path / "run", loop_kafka, free_port, {"master": spark_cluster.master, "spark": SMALL})
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
    assert {str(each["payload"]) for each in shared} == set(replay(run.file, "--from", "2020-01-01T00:00:00Z"))


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
