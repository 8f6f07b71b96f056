"""Settings of the query that cannot work are refused, each with what to write instead."""

from typing import Any

import pytest
from pydantic import ValidationError

from streaming.settings import StreamSettings
from tests.cases import for_each

STANDALONE = {"master": "spark://master.example.org:7077"}
HDFS = {"checkpoint_dir": "hdfs://n:8020/headgate"}

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
    "timers": (
        {"spark": {"spark.sql.streaming.noDataMicroBatches.enabled": True}},
        "spark",
        "decisions depend on it",
    ),
    "a secret": ({"spark": {"spark.authenticate.secret": "x"}}, "spark", "is a secret: put it into"),
    "a key of S3": ({"spark": {"spark.hadoop.fs.s3a.secret.key": "x"}}, "spark", "is a secret: put it into"),
    "a driver nobody reaches": (
        {**STANDALONE, **HDFS, "spark": {"spark.driver.host": "127.0.0.1"}},
        "spark",
        "cannot reach this machine by 127.0.0.1",
    ),
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
