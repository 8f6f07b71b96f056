"""Settings of the query that cannot work are refused, each with what to write instead."""

import ast
import resource
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from policies.units import UserError, without_settings
from streaming import session
from streaming.session import require_resources
from streaming.settings import CheckpointPlace, StreamSettings
from tests.cases import for_each

STANDALONE = {"master": "spark://master.example.org:7077"}
HDFS = {"checkpoint_dir": "hdfs://n:8020/headgate"}
HERE = {"spark.driver.host": "127.0.0.1"}

GOOD: dict[str, dict[str, Any]] = {
    "one process": {},
    "all cores": {"master": "local[*]"},
    "one thread": {"master": "local"},
    "retries": {"master": "local[4,2]"},
    "one process, state elsewhere": {**HDFS},
    "standalone": {**STANDALONE, **HDFS},
    "two masters": {"master": "spark://m1:7077,m2:7077", **HDFS},
    "standalone on this machine, which has the folder": {"master": "spark://127.0.0.1:7077"},
    "standalone on this machine by name": {"master": "spark://localhost:7077", "checkpoint_dir": "/srv/x"},
    "yarn": {"master": "yarn", **HDFS},
    "kubernetes": {"master": "k8s://https://api:6443", "checkpoint_dir": "s3a://bucket/headgate"},
    "kubernetes, no port": {"master": "k8s://https://api.example.org/k8s/clusters/c-1", **HDFS},
    "a shared folder": {**STANDALONE, "checkpoint_is_shared": True, "checkpoint_dir": "/mnt/headgate"},
    "many partitions": {"shuffle_partitions": 200},
    "numbers and switches of Spark's": {"spark": {"spark.executor.cores": 2, "spark.speculation": False}},
}

BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a host alone": ({"master": "spark-master:7077"}, "master", "is no Spark master: write"),
    "no port": ({"master": "spark://host"}, "master", "is no Spark master"),
    "no core": ({"master": "local[0]"}, "master", "is no Spark master"),
    "not closed": ({"master": "local[2"}, "master", "is no Spark master"),
    "for Spark's own tests": ({"master": "local-cluster[2,1,1024]"}, "master", "is no Spark master"),
    "gone from Spark": ({"master": "mesos://m:5050"}, "master", "is no Spark master"),
    "yarn of old": ({"master": "yarn-client"}, "master", "is no Spark master"),
    "a folder of this machine": ({**STANDALONE, "checkpoint_dir": "/srv/x"}, "checkpoint_dir", "name one on HDFS"),
    "as a URI": ({**STANDALONE, "checkpoint_dir": "file:///srv/x"}, "checkpoint_dir", "name one on HDFS"),
    "the default folder": ({"master": "yarn"}, "checkpoint_dir", "name one on HDFS"),
    "kubernetes, too": ({"master": "k8s://api:6443"}, "checkpoint_dir", "name one on HDFS"),
    "shared, but which": ({**STANDALONE, "checkpoint_is_shared": True}, "checkpoint_dir", "is needed with"),
    "one of two masters is elsewhere": ({"master": "spark://127.0.0.1:1,m2:1"}, "checkpoint_dir", "name one on HDFS"),
    "half a URI": ({"checkpoint_dir": "s3a://bucket"}, "checkpoint_dir", "is no URI of a folder"),
    "no property": ({"spark": {"executor.cores": 2}}, "spark", "executor.cores: is no Spark property"),
    "a setting of its own": ({"spark": {"spark.master": "yarn"}}, "spark", "is set by stream.master"),
    "partitions": ({"spark": {"spark.sql.shuffle.partitions": 2}}, "spark", "is set by stream.shuffle_partitions"),
    "timers": ({"spark": {"spark.sql.streaming.noDataMicroBatches.enabled": True}}, "spark", "decisions depend on it"),
    "a secret": ({"spark": {"spark.authenticate.secret": "x"}}, "spark", "is a secret: put it into"),
    "a key of S3": ({"spark": {"spark.hadoop.fs.s3a.secret.key": "x"}}, "spark", "is a secret: put it into"),
    "a driver nobody reaches": ({**STANDALONE, **HDFS, "spark": HERE}, "spark", "reach this machine by 127.0.0.1"),
    "too many partitions": ({"shuffle_partitions": 1001}, "shuffle_partitions", "less than or equal to 1000"),
}


@for_each("given", GOOD.values(), ids=GOOD.keys())
def test_what_can_work_is_taken(given: dict[str, Any]) -> None:
    StreamSettings.model_validate(given)


@for_each(("given", "field", "says"), BAD.values(), ids=BAD.keys())
def test_what_cannot_work_is_refused(given: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        StreamSettings.model_validate(given)
    (error,) = refused.value.errors()
    assert error["loc"] == (field,)
    assert says in error["msg"]


def test_a_folder_is_a_path_and_what_is_elsewhere_stays_a_uri() -> None:
    given = StreamSettings.model_validate({"checkpoint_dir": "file:///srv/x"})
    assert str(given.checkpoint_dir) == "/srv/x"
    assert StreamSettings.model_validate(HDFS).checkpoint_dir == "hdfs://n:8020/headgate"


# --- Limits with which no query can start are told in one sentence before one is started

UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[int, tuple[int, int]]:
    """The process's limits, as the test sets them; its control group is `tmp_path`."""
    given = {resource.RLIMIT_NOFILE: UNLIMITED, resource.RLIMIT_AS: UNLIMITED}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: given[kind])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: given.update({kind: pair}))
    monkeypatch.setattr(session, "_CGROUP", tmp_path)
    return given


@for_each("count", [64, 256, 1023])
def test_too_few_open_files_are_refused(limits: dict[int, tuple[int, int]], count: int) -> None:
    limits[resource.RLIMIT_NOFILE] = (count, count)
    with pytest.raises(UserError, match=rf"^this process may open {count} files, and the query needs 1024: raise"):
        require_resources()


def test_the_limit_of_open_files_is_raised_as_far_as_the_process_may(limits: dict[int, tuple[int, int]]) -> None:
    limits[resource.RLIMIT_NOFILE] = (256, 8192)
    require_resources()
    assert limits[resource.RLIMIT_NOFILE] == (8192, 8192)


def test_too_little_memory_is_refused(limits: dict[int, tuple[int, int]], tmp_path: Path) -> None:
    limits[resource.RLIMIT_AS] = (300_000_000, 300_000_000)
    with pytest.raises(UserError, match=r"may use 300 MB of memory, and the query needs 600 MB to start.*`ulimit -v`"):
        require_resources()
    limits[resource.RLIMIT_AS] = UNLIMITED
    require_resources()
    (tmp_path / "memory.max").write_text("314572800\n")
    with pytest.raises(UserError, match="may use 315 MB of memory"):
        require_resources()
    (tmp_path / "memory.max").write_text("max\n")
    require_resources()


def test_a_user_without_a_name_is_refused(limits: dict[int, tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_123)
    with pytest.raises(UserError, match=r"^user 4000000123 has no name on this machine, and Spark needs one: add"):
        require_resources()


def test_a_child_inherits_no_settings() -> None:
    given = {"HEADGATE_KAFKA__SASL__PASSWORD": "secret", "headgate_http__port": "1", "PATH": "/bin", "JAVA_HOME": "/j"}
    assert without_settings(given) == {"PATH": "/bin", "JAVA_HOME": "/j"}


def test_every_child_is_started_without_settings() -> None:
    """Each call that starts a process passes it an environment; Spark's JVM gets this process's, for that moment."""
    root = Path(__file__).parents[2]
    calls = [
        (file.name, node)
        for folder in ("connectors", "deploy", "streaming")
        for file in (root / folder).rglob("*.py")
        if "subprocess." in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("subprocess.run", "subprocess.Popen")
    ]
    assert len(calls) >= 3
    assert [f"{name}:{node.lineno}" for name, node in calls if all(each.arg != "env" for each in node.keywords)] == []


# --- A checkpoint's URI always has its scheme; if it cannot be reached, one sentence says why and what to do.


@for_each(
    ("text", "uri", "folder"),
    [
        ("/srv/check point", "file:///srv/check%20point", Path("/srv/check point")),
        (Path("/srv/x"), "file:///srv/x", Path("/srv/x")),
        ("file:///srv/x", "file:///srv/x", Path("/srv/x")),
        ("file:/srv/x", "file:///srv/x", Path("/srv/x")),
        ("file://localhost/srv/x", "file:///srv/x", Path("/srv/x")),
        ("hdfs://n:8020/a/b/", "hdfs://n:8020/a/b", None),
        ("hdfs:///a/b", "hdfs:///a/b", None),
        ("s3a://bucket/a", "s3a://bucket/a", None),
    ],
)
def test_a_path_is_a_folder_and_a_uri_names_its_storage(text: str | Path, uri: str, folder: Path | None) -> None:
    place = CheckpointPlace.parse(text)
    assert (place.uri, place.folder) == (uri, folder)


@for_each("text", ["hdfs:/a", "s3a://bucket", "s3a://bucket/", "file://elsewhere/a"])
def test_half_a_uri_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="URI"):
        CheckpointPlace.parse(text)


@pytest.mark.parametrize("text", ["/srv/My Data/Zo\u00eb's 100%", "/srv/headgate", "file:///srv/My%20Data"])
def test_a_path_reaches_spark_as_it_is_and_not_percent_encoded(text: str) -> None:
    place = CheckpointPlace.parse(text)
    assert place.location == f"file://{place.folder}"
    assert "%20" not in place.location
    assert CheckpointPlace.parse(place.uri) == place
    remote = CheckpointPlace.parse("s3a://bucket/headgate")
    assert remote.location == remote.uri
