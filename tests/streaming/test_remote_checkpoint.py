"""Where a checkpoint cannot be reached one sentence says why, and what to do."""

import re
from pathlib import Path

import pyspark
import pytest

from streaming.checkpoint_place import CheckpointPlace
from streaming.remote_checkpoint import why_unreachable

MISSING = "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem"
OTHER_VERSION = "java.lang.NoSuchMethodError: org.apache.hadoop.util.Lists.of"
UNKNOWN = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs"'
REFUSED = "java.net.ConnectException: Connection refused"


@pytest.mark.parametrize(
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
    sentence = why_unreachable(CheckpointPlace.of(uri), said, "3.5.0")
    assert sentence.startswith("stream.checkpoint_dir: ")
    assert remedy in sentence


def test_the_docs_name_connectors_of_the_hadoop_that_spark_brings() -> None:
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    page = (Path(__file__).parents[2] / "docs/spark-cluster.md").read_text()
    assert set(re.findall(r"org\.apache\.hadoop:hadoop-\w+:([\d.]+)", page)) == {client.stem.rpartition("-")[2]}
