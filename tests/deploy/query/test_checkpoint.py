"""What is damaged in a checkpoint, and its reset."""

import os
import re
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.query.checkpoint import (
    Checkpoint,
    explain_unreachable,
    require_fitting,
    require_same_kafka,
    reset,
    reset_plan,
    sole_query,
    sole_query_in_turn,
)
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.units import UserError
from streaming.settings import CheckpointPlace
from tests.cases import for_each

# As Spark 4.2 wrote it for the first version of this query, shortened.
PLAN = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795313202639,"conf":{"spark.sql.streaming.stateStore.encodingFormat":'
    '"avro","spark.sql.shuffle.partitions":"1","spark.sql.streaming.stateStore.compression.codec":"lz4"}}\n'
    '{"headgate.commands":{"0":0},"headgate.observed.log-dirs":{"0":128}}'
)
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of three batches, the last of them not committed."""
    folder = tmp_path / "checkpoint"
    for log, content, batches in (("offsets", PLAN, range(3)), ("commits", COMMIT, range(2))):
        (folder / log).mkdir(parents=True)
        for batch in batches:
            (folder / log / str(batch)).write_text(content)
    (folder / "state/0/0").mkdir(parents=True)
    for version in (1, 2):
        (folder / f"state/0/0/{version}.changelog").write_bytes(b"state")
    (folder / "metadata").write_text('{"id":"2f87a521-3a9d-4788-8033-938a03e564ca"}')
    schema = folder / "state/0/_stateSchema/default/0_a"
    of_store = f'{{"storeName":"default","stateSchemaFilePaths":["file:{schema}"]}}'
    for path, content in (
        (schema, "v3"),
        (folder / "state/0/_metadata/v2/0", f'v2\n{{"stateStoreInfo":[{of_store}]}}'),
        (folder / "sources/0/0", "v1\n{}"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    return folder


def read(folder: Path) -> Checkpoint:
    return Checkpoint(CheckpointPlace.parse(folder))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_reset_deletes_nothing_and_never_overwrites_an_earlier_one(folder: Path) -> None:
    assert read(folder).damage is None
    before, at = contents(folder), folder.stat()
    assert "oldest records" in reset_plan(folder)[1]
    first = reset(folder)
    assert not folder.exists()
    folder.mkdir()
    os.utime(folder, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert reset(folder) != first
    assert contents(first) == before


def test_the_command_resets_nothing_until_told_yes_and_not_while_a_query_runs(folder: Path, tmp_path: Path) -> None:
    settings, before = tmp_path / "headgate.yaml", contents(folder)
    settings.write_text(f"data_dir: {tmp_path}\n")
    said = CliRunner().invoke(app, ["checkpoint", "reset", "-s", str(settings)])
    assert said.exit_code == 0
    assert said.output.startswith("Nothing is changed now. With --yes, while no query runs:")
    with sole_query(load_settings(settings)):  # as the query holds it, which writes nothing while nothing comes
        refused = CliRunner().invoke(app, ["checkpoint", "reset", "-s", str(settings), "--yes"])
    assert isinstance(refused.exception, UserError)
    assert "is in use by another query" in str(refused.exception)
    assert contents(folder) == before
    done = CliRunner().invoke(app, ["checkpoint", "reset", "-s", str(settings), "--yes"])
    assert (done.exit_code, folder.exists()) == (0, False)


def test_without_a_checkpoint_there_is_nothing_to_reset(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no checkpoint"):
        reset_plan(tmp_path / "checkpoint")
    assert read(tmp_path / "checkpoint").damage is None


# Settings that do not fit


def require(folder: Path, shuffle_partitions: int, prefix: str) -> None:
    given = {"stream": {"shuffle_partitions": shuffle_partitions}, "topics": {"prefix": prefix}}
    require_fitting(read(folder), Settings.model_validate(given))


def test_settings_it_was_made_with_fit_and_others_are_refused_with_the_remedy(folder: Path) -> None:
    require(folder, 1, "headgate")
    require(folder.with_name("none"), 7, "other")
    with pytest.raises(UserError, match=r"shuffle_partitions is 2, .*made with 1: set it back, .*checkpoint reset`"):
        require(folder, 2, "headgate")
    with pytest.raises(UserError, match=r"topics.prefix is prod, .* is at headgate\.commands: set it back"):
        require(folder, 1, "prod")


@for_each("plan", ["", "v1", "v1\n{}\n{}", "v1\n[]\n[]", 'v1\n{"conf":1}\n{}'])
def test_a_plan_that_cannot_be_read_refuses_nothing(folder: Path, plan: str) -> None:
    (folder / "offsets/2").write_text(plan)
    require(folder, 2, "prod")


def test_the_offsets_of_another_kafka_are_refused_with_the_remedy(folder: Path) -> None:
    require_same_kafka(folder, "first", is_new=False)
    require_same_kafka(folder, "first", is_new=False)
    with pytest.raises(UserError, match=r"leads to the Kafka second, .* offsets of first: set it back, .*reset`"):
        require_same_kafka(folder, "second", is_new=False)


def test_a_checkpoint_that_is_to_be_made_may_be_on_any_kafka(folder: Path) -> None:
    new = folder.with_name("new")
    for kafka in ("first", "second", None):
        require_same_kafka(new, kafka, is_new=True)
    assert not read(new).exists
    assert (new / "kafka").read_text() == "second\n"
    assert (new / "kafka").stat().st_mode & 0o077 == 0


# Files that are gone or damaged


def test_changes_before_a_snapshot_and_files_of_hadoops_own_are_not_needed(folder: Path) -> None:
    (folder / "sources/0/.0.crc").touch()
    (folder / "state/0/0/2.zip").write_bytes(b"snapshot")
    for version in (1, 2):
        (folder / f"state/0/0/{version}.changelog").unlink()
    assert read(folder).damage is None


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    """Another first line, as of a page that was never written."""
    path.write_bytes(b"\0" + path.read_bytes())


_FILES = (
    "metadata", "offsets/1", "offsets/2", "commits/0", "commits/1", "sources/0/0", "state/0/_metadata/v2/0",
    "state/0/_stateSchema/default/0_a", "state/0/0/1.changelog", "state/0/0/2.changelog",
)  # fmt: skip
_FOLDERS = ("state", "state/0", "state/0/0", "state/0/_metadata", "state/0/_stateSchema")
_NEEDED = (*(path for path in _FILES if path.startswith("state")), *_FOLDERS, "metadata", "offsets/1")
"""A commit or the newest plan may be absent: the batch is repeated, or has not begun."""


@pytest.mark.parametrize(
    ("damages", "path"), [*((empty, it) for it in _FILES), *((remove, it) for it in _NEEDED), (garble, "offsets/2")]
)
def test_what_is_damaged_or_gone_has_its_remedy(folder: Path, damages: Callable[[Path], None], path: str) -> None:
    damages(folder / path)
    said = read(folder).damage or ""
    assert path.partition("/")[0] in said
    assert said.endswith("start again with `headgate checkpoint reset`, which lists the losses")


def test_one_that_was_moved_is_to_be_moved_back(folder: Path) -> None:
    moved = folder.rename(folder.with_name("elsewhere"))
    assert "if the checkpoint was moved, move it back" in (read(moved).damage or "")


# --- The second query of a checkpoint is told who is first, and ends or waits its turn


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def test_a_second_query_on_a_checkpoint_is_refused_with_the_process_that_has_it(settings: Settings) -> None:
    says = rf"in use by another query, process {os.getpid()} on .*: stop that one"
    with sole_query(settings), pytest.raises(UserError, match=says):
        sole_query(settings).__enter__()
    with sole_query(settings):
        """It is free again."""


def test_queries_on_two_checkpoints_do_not_meet(settings: Settings, tmp_path: Path) -> None:
    elsewhere = {"checkpoint_dir": str(tmp_path / "new/other")}
    other = Settings.model_validate({"data_dir": str(settings.data_dir), "stream": elsewhere})
    with sole_query(settings), sole_query(other):
        """Both run."""


def test_who_waits_its_turn_has_it_when_the_one_before_has_ended(settings: Settings) -> None:
    entered, began, stop = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        with sole_query_in_turn(settings, stop) as is_ours:
            assert is_ours
            entered.set()
            stop.wait(30)

    with sole_query(settings):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert began.wait(30)
        assert not entered.wait(0.5), "the one before has not ended"
    assert entered.wait(30)
    stop.set()
    waiting.join(30)
    with sole_query(settings):
        """It was given back."""


def test_who_is_stopped_while_it_waits_has_no_turn(settings: Settings) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with sole_query(settings), sole_query_in_turn(settings, stop) as is_ours:
        assert not is_ours


REMOTE = CheckpointPlace.parse("s3a://loop/checkpoint")


class HadoopPath:
    """A path of Hadoop in the remote checkpoint, whose files lie in a folder here."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.file = folder / uri.removeprefix(REMOTE.uri).strip("/")

    def getFileSystem(self, _configuration: object) -> Any:  # noqa: N802 - Hadoop's name
        return SimpleNamespace(
            exists=lambda path: path.file.exists(),
            listStatus=lambda path: [Status(each) for each in path.file.iterdir()],
            open=lambda path: path.file.open("rb"),
        )


class Status:
    """The status of a file, as Hadoop lists it."""

    def __init__(self, file: Path) -> None:
        self.getLen = lambda: file.stat().st_size
        self.getPath = lambda: SimpleNamespace(getName=lambda: file.name)


def read_remote(folder: Path) -> Checkpoint:
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=partial(HadoopPath, folder)))
    utils = SimpleNamespace(IOUtils=SimpleNamespace(toByteArray=lambda stream: stream.read()))
    apache = SimpleNamespace(hadoop=hadoop, commons=SimpleNamespace(io=utils))
    jvm, jsc = SimpleNamespace(org=SimpleNamespace(apache=apache)), SimpleNamespace(hadoopConfiguration=lambda: None)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=jsc))
    return Checkpoint(REMOTE, session)


def test_a_remote_checkpoint_is_read_as_one_in_a_folder_and_its_remedy_is_the_storages_own_tool(folder: Path) -> None:
    assert (read_remote(folder).plan, read_remote(folder).damage) == (read(folder).plan, None)
    for path in ("state/0/0/2.changelog", "state/0/_metadata", "state"):
        remove(folder / path)
        named, remedy = read(folder).damage, read_remote(folder).damage
        assert named is not None
        assert remedy is not None
        assert remedy.startswith(named.partition("):")[0].replace(str(folder), REMOTE.uri))
        assert f"move it aside with `hadoop fs -mv {REMOTE.uri} {REMOTE.uri}.before`" in remedy


def test_a_checkpoint_without_a_finished_batch_has_no_state_to_lose(folder: Path) -> None:
    for path in ("commits", "state"):
        remove(folder / path)
    assert read_remote(folder).damage is None


MISSING = "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem"
OTHER_VERSION = "java.lang.NoSuchMethodError: org.apache.hadoop.util.Lists.of"
UNKNOWN = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs"'
REFUSED = "java.net.ConnectException: Connection refused"


@for_each(
    ("uri", "said", "remedy"),
    [
        ("s3a://bucket/x", MISSING, "spark.jars.packages: org.apache.hadoop:hadoop-aws:3.5.0;"),
        ("s3a://bucket/x", OTHER_VERSION, "spark.jars.packages: org.apache.hadoop:hadoop-aws:3.5.0;"),
        ("abfss://c@a.dfs.core.windows.net/x", MISSING, "org.apache.hadoop:hadoop-azure:3.5.0;"),
        ("gs://bucket/x", UNKNOWN, "name it in stream.spark (spark.jars.packages: …;"),
        ("hdfs://n:8020/x", REFUSED, f"hdfs://n:8020/x cannot be reached: {REFUSED}"),
    ],
)
def test_who_lacks_a_connector_is_told_which_and_in_what_version(uri: str, said: str, remedy: str) -> None:
    sentence = explain_unreachable(CheckpointPlace.parse(uri), said, "3.5.0")
    assert sentence.startswith("stream.checkpoint_dir: ")
    assert remedy in sentence


def test_the_docs_name_connectors_of_the_hadoop_that_spark_brings() -> None:
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    page = (Path(__file__).parents[3] / "docs/spark-cluster.md").read_text()
    assert set(re.findall(r"org\.apache\.hadoop:hadoop-\w+:([\d.]+)", page)) == {client.stem.rpartition("-")[2]}
