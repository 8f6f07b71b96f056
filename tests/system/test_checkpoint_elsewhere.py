"""A query with its checkpoint on another storage is killed twice, and decides as one that nothing happened to."""

import getpass
import re
import subprocess
import sys
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import pyspark
import pytest

from deploy.java.jvm import JvmCommand
from deploy.settings.application import default_cache_dir
from policies.units import UserError
from tests.progress import tell
from tests.system.loop import await_ready
from tests.system.maven import ALONE, dependency, ensure_fetched, pom_of
from tests.system.server import JvmServer
from tests.system.small_servers import LOOPBACK, small_jvm
from tests.system.test_spark_cluster import Run, decisions, has_decided
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
HADOOP = "3.5.0"
"""The version of what Spark brings, which all else of Hadoop's must have."""

_HDFS = (
    dependency("org.apache.hadoop", "hadoop-client-minicluster", HADOOP, ALONE),
    dependency("org.junit.jupiter", "junit-jupiter-api", "5.11.4"),
    dependency("org.assertj", "assertj-core", "3.26.3"),
)
_SDK = "2.35.4"
# Amazon's own parts in place of its `bundle`, which has all of its services: 14 MB for some 600.
_S3A = (
    dependency("org.apache.hadoop", "hadoop-aws", HADOOP, ALONE),
    dependency("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1", ALONE),
    *(dependency("software.amazon.awssdk", part, _SDK) for part in ("s3", "s3-transfer-manager", "sts")),
)
_DIGESTS = {
    "hdfs": "22f107b97893b79b6557b7772cf8efe700932daee9880c51e2f0245be712df7a",
    "s3a": "182352e59ac1e8a99802fa2522d245f61a28c54d50825d87d4e6e046c57acd81",
}
_MOTO = "moto[s3]==5.2.5"
_SERVER = ("flask==3.1.3", "flask-cors==6.0.5")


class Storage(ABC):
    """Has a checkpoint, at `uri`."""

    uri: str

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Of what is in a folder of it."""

    def batches(self, folder: str) -> list[int]:
        """The batches that have a file there, in order; what is still being written is none."""
        return sorted(int(name) for name in self.names(folder) if name.isdigit())


class Hdfs(JvmServer, Storage):
    """One name node and one data node, in one process.

    Args:
        folder: of its own.
        jars: `hdfs_jars()`.
    """

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        super().__init__(folder)
        self._jars = tuple(jars)
        self._port, self._http_port = free_port(), free_port()
        self.uri = f"hdfs://{LOOPBACK}:{self._port}/headgate/checkpoint"

    def names(self, folder: str) -> list[str]:
        """Of what is in a folder of the checkpoint."""
        return re.findall(r'"pathSuffix":"([^"]+)"', self._listed(f"/headgate/checkpoint/{folder}"))

    def _listed(self, path: str) -> str:
        who = getpass.getuser()  # the folders are for the query's user alone
        return _got(f"http://{LOOPBACK}:{self._http_port}/webhdfs/v1{path}?op=LISTSTATUS&user.name={who}") or ""

    def _prepare(self) -> JvmCommand:
        flags = (*small_jvm(self.folder, 256), f"-Dtest.build.data={self.folder / 'data'}")
        ports = ("-nnport", str(self._port), "-httpport", str(self._http_port))
        classes = (*self._jars, *sorted(SPARK_JARS.glob("*.jar")))
        return JvmCommand(
            "org.apache.hadoop.test.MiniDFSClusterManager", classes, flags, ("-format", "-datanodes", "1", *ports)
        )

    def _serves(self) -> bool:
        return "FileStatuses" in self._listed("/")


class ObjectStore(Storage):
    """A server of objects that speaks S3; runs while it is used in a with statement.

    Args:
        folder: for its log.
        python: `object_store_python()`.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self.log = folder / "object-store.log"
        self._python = python
        self._address = f"http://{LOOPBACK}:{free_port()}"
        self.uri = "s3a://headgate/loop/checkpoint"

    def __enter__(self) -> Self:
        arguments = ["-m", "moto.server", "-H", LOOPBACK, "-p", self._address.rpartition(":")[2]]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([self._python, *arguments], stdout=log, stderr=subprocess.STDOUT)
        made = urllib.request.Request(f"{self._address}/headgate", method="PUT")
        eventually("a bucket is made", lambda: _got(made) is not None)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def names(self, folder: str) -> list[str]:
        """Of what is in a folder of the checkpoint."""
        below = f"loop/checkpoint/{folder}/"
        listed = _got(f"{self._address}/headgate?list-type=2&prefix={below}") or ""
        return re.findall(f"<Key>{below}([^<]+)</Key>", listed)

    def spark(self, jars: Sequence[Path]) -> dict[str, str]:
        """What a query is told of it, with `s3a_jars()`."""
        return {
            "spark.jars": ",".join(map(str, jars)),
            "spark.hadoop.fs.s3a.endpoint": self._address,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }


def hdfs_jars() -> tuple[Path, ...]:
    """What HDFS needs beside Spark's own; fetched once (62 MB).

    Raises:
        UserError: they are missing and cannot be fetched.
    """
    return ensure_fetched(_folder("hdfs"), pom_of(_HDFS), expected_digest=_DIGESTS["hdfs"])


def s3a_jars() -> tuple[Path, ...]:
    """What Spark needs to read and write objects; fetched once (14 MB). Raises as `hdfs_jars` does."""
    ours = ("-DexcludeGroupIds=io.netty,org.slf4j",)  # Spark has them
    return ensure_fetched(_folder("s3a"), pom_of(_S3A), ours, _DIGESTS["s3a"])


def object_store_python() -> Path:
    """The interpreter of an environment with the server, made once.

    Raises:
        UserError: it is missing and cannot be made.
    """
    folder = default_cache_dir().parent / f"object-store-{_MOTO.rpartition('=')[2]}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", _MOTO, *_SERVER], check=True)
        except subprocess.CalledProcessError as error:
            raise UserError(f"{_MOTO} could not be installed ({error}); the network is needed once.") from error
        ready.touch()
    return python


def _folder(what: str) -> Path:
    return default_cache_dir().parent / "storages" / f"{what}-{HADOOP}"


def _got(what: str | urllib.request.Request) -> str | None:
    """The answer's body; None where there is none yet."""
    with suppress(OSError), urllib.request.urlopen(what, timeout=30) as answer:
        return str(answer.read().decode())
    return None


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
