"""Reads the last plan of a checkpoint that is not on this machine, through Spark's file system access."""

from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from policies.errors import UserError
from streaming.checkpoint_place import CheckpointPlace

_NO_CODE = ("ClassNotFound", "NoClassDefFound", "NoSuchMethod", "NoSuchField", "No FileSystem for scheme")
"""What Java says of a storage whose connector is missing, or belongs to another Hadoop."""
_CONNECTORS = MappingProxyType({"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"})
"""Hadoop's own, by scheme."""


def last_plan(session: SparkSession, place: CheckpointPlace) -> str:
    """What the newest batch takes, as Spark wrote it down; empty where no query has begun yet.

    Raises:
        UserError: the storage cannot be reached, or Spark has no code for its scheme.
    """
    jvm: Any = session.sparkContext._jvm
    try:
        folder = jvm.org.apache.hadoop.fs.Path(f"{place.uri}/offsets")
        files: Any = folder.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
        if not files.exists(folder):
            return ""
        names = [status.getPath().getName() for status in files.listStatus(folder)]
        batches = sorted(int(name) for name in names if name.isdigit())
        if not batches:
            return ""
        stream = files.open(jvm.org.apache.hadoop.fs.Path(folder, str(batches[-1])))
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
        finally:
            stream.close()
    except Py4JJavaError as error:
        hadoop = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        raise UserError(why_unreachable(place, str(error.java_exception), hadoop)) from None


def why_unreachable(place: CheckpointPlace, said: str, hadoop: str) -> str:
    """What is wrong, and what to do about it.

    Args:
        place: of the checkpoint.
        said: by Java.
        hadoop: the version of what Spark brings, which a connector must have.
    """
    if not any(sign in said for sign in _NO_CODE):
        return f"stream.checkpoint_dir: {place.uri} cannot be reached: {said}"
    name = _CONNECTORS.get(place.scheme)
    remedy = f"spark.jars.packages: org.apache.hadoop:{name}:{hadoop}" if name else "spark.jars.packages: …"
    return (
        f"stream.checkpoint_dir: Spark has no code of its own for {place.scheme}://, or one of another version "
        f"({said[:200]}): name it in stream.spark ({remedy}; docs/spark-cluster.md)"
    )
