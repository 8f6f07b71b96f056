"""A look into a checkpoint that is not on this machine, by Spark's own way to it."""

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from policies.errors import UserError
from streaming.checkpoint_place import CheckpointPlace


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
        raise UserError(f"stream.checkpoint_dir: {place.uri} cannot be reached: {error.java_exception}") from None
