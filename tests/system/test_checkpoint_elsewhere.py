"""A query with its checkpoint on another storage is killed twice, and decides as one that nothing happened to."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from policies.errors import UserError
from tests.progress import tell
from tests.system.loop import await_ready
from tests.system.rounds import Run, decisions, has_decided
from tests.system.storages import HADOOP, Hdfs, ObjectStore, Storage, hdfs_jars, object_store_python, s3a_jars
from tests.system.waiting import eventually

pytestmark = pytest.mark.long

LAST = 5
Found = TypeVar("Found")


@pytest.fixture(scope="module")
def undisturbed(
    loop_kafka: str, tmp_path_factory: pytest.TempPathFactory, free_tcp_port_factory: Callable[[], int]
) -> dict[str, list[dict[str, Any]]]:
    """What is decided where nothing happens, with a checkpoint in a folder."""
    run = Run(tmp_path_factory.mktemp("undisturbed") / "run", loop_kafka, free_tcp_port_factory(), {})
    with run.query() as query, run.decided() as decided:
        await_ready(query, run.port)
        for round_ in range(1, LAST + 1):
            run.observe(round_)
            eventually(f"round {round_}", partial(has_decided, decided, round_))
        assert query.stop() == 0
        return decisions(decided)


def test_on_hdfs_a_killed_query_goes_on_where_it_was(
    undisturbed: dict[str, list[dict[str, Any]]], loop_kafka: str, tmp_path: Path, free_port: int
) -> None:
    with Hdfs(tmp_path / "hdfs", _or_skip(hdfs_jars)) as hdfs:
        run = Run(tmp_path / "run", loop_kafka, free_port, {"checkpoint_dir": hdfs.uri})
        assert _killed_twice(run, hdfs) == undisturbed


def test_on_an_object_store_a_killed_query_goes_on_where_it_was(
    undisturbed: dict[str, list[dict[str, Any]]],
    loop_kafka: str,
    tmp_path: Path,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    jars = _or_skip(s3a_jars)
    with ObjectStore(tmp_path, _or_skip(object_store_python)) as store:
        stream = {"checkpoint_dir": store.uri, "spark": store.spark(jars)}
        run = Run(tmp_path / "run", loop_kafka, free_port, stream)
        assert _killed_twice(run, store) == undisturbed


def test_who_lacks_the_connector_of_a_storage_is_told_which(loop_kafka: str, tmp_path: Path, free_port: int) -> None:
    with Run(tmp_path / "run", loop_kafka, free_port, {"checkpoint_dir": "s3a://headgate/x"}).query() as query:
        assert query.wait() != 0
        assert f"spark.jars.packages: org.apache.hadoop:hadoop-aws:{HADOOP}" in query.output()
        assert "Traceback" not in query.output(), query.output()


def _killed_twice(run: Run, storage: Storage) -> dict[str, list[dict[str, Any]]]:
    """Once in the middle of a batch, once just after it has decided; what it decided in all."""
    with run.decided() as decided:

        def decides(round_: int) -> None:
            eventually(f"round {round_}", partial(has_decided, decided, round_))

        with run.query() as query:
            await_ready(query, run.port)
            for round_ in (1, 2):
                run.observe(round_)
                decides(round_)
            planned = storage.batches("offsets")[-1]
            run.observe(3)
            eventually("a batch has begun", lambda: storage.batches("offsets")[-1] > planned)
            query.kill()
        committed = storage.batches("commits")
        tell(f"planned {storage.batches('offsets')[-1]}, committed {committed[-1]} when it was killed")
        with run.query() as query:
            decides(3)
            run.observe(4)
            decides(4)
            query.kill()
        with run.query() as query:
            run.observe(LAST)
            decides(LAST)
            assert query.stop() == 0, query.output()
        assert storage.batches("commits")[-1] >= committed[-1] + 3, "it went on where it was"
        assert "Traceback" not in query.output(), query.output()
        return decisions(decided)


def _or_skip(find: Callable[[], Found]) -> Found:
    try:
        return find()
    except UserError as error:
        pytest.skip(str(error))
