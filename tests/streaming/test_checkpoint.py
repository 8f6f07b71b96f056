"""A checkpoint's URI always has its scheme; if it cannot be reached, one sentence says why and what to do."""

import re
from pathlib import Path

import pyspark
import pytest

from streaming.settings import CheckpointPlace, explain_unreachable
from tests.cases import for_each


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


@pytest.mark.parametrize("text", ["hdfs:/a", "s3a://bucket", "s3a://bucket/", "file://elsewhere/a"])
def test_half_a_uri_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="URI"):
        CheckpointPlace.parse(text)


# Remote ones

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
    sentence = explain_unreachable(CheckpointPlace.parse(uri), said, "3.5.0")
    assert sentence.startswith("stream.checkpoint_dir: ")
    assert remedy in sentence


def test_the_docs_name_connectors_of_the_hadoop_that_spark_brings() -> None:
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    page = (Path(__file__).parents[2] / "docs/spark-cluster.md").read_text()
    assert set(re.findall(r"org\.apache\.hadoop:hadoop-\w+:([\d.]+)", page)) == {client.stem.rpartition("-")[2]}


@pytest.mark.parametrize("text", ["/srv/My Data/Zo\u00eb's 100%", "/srv/headgate", "file:///srv/My%20Data"])
def test_a_path_reaches_spark_as_it_is_and_not_percent_encoded(text: str) -> None:
    place = CheckpointPlace.parse(text)
    assert place.location == f"file://{place.folder}"
    assert "%20" not in place.location
    assert CheckpointPlace.parse(place.uri) == place
    remote = CheckpointPlace.parse("s3a://bucket/headgate")
    assert remote.location == remote.uri
