"""Partitions and their Python workers, in a real session with two of each."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from deploy.java.jars import default_cache_dir, ensure_jars
from streaming.session import start_session, stop_session
from streaming.settings import StreamSettings
from streaming.steady_workers import give_each_partition_its_worker

pytestmark = pytest.mark.streaming

PARTITIONS = 2


@pytest.fixture(scope="module")
def session(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = StreamSettings(master=f"local[{PARTITIONS}]", shuffle_partitions=PARTITIONS)
    jars = ensure_jars("spark", default_cache_dir())
    started = start_session(settings, jars, tmp_path_factory.mktemp("spark") / "spark.log")
    yield started
    stop_session(started)


def workers(session: SparkSession, slow: int) -> dict[int, int]:
    """The process of each partition's worker in one job, which one of them ends last."""

    def process(partition: int, _: Iterable[Any]) -> Iterator[tuple[int, int]]:
        if partition == slow:
            time.sleep(0.2)  # the other one's worker is idle first
        yield partition, os.getpid()

    rows = session.sparkContext.parallelize(range(PARTITIONS), PARTITIONS)
    return dict(rows.mapPartitionsWithIndex(process).collect())


def test_a_partition_keeps_its_worker_whichever_is_idle_first(session: SparkSession) -> None:
    first = workers(session, slow=0)
    assert len(set(first.values())) == PARTITIONS
    for slow in (1, 0, 1, 0):
        assert workers(session, slow) == first


@pytest.mark.parametrize("partitions", [1, PARTITIONS + 1])
def test_one_partition_and_more_than_there_are_cores_share_workers_as_spark_has_it(
    partitions: int, tmp_path: Path
) -> None:
    context = MagicMock(defaultParallelism=PARTITIONS, environment={})
    give_each_partition_its_worker(context, partitions, tmp_path)
    assert context.environment == {}
    assert list(tmp_path.iterdir()) == []
