"""A checkpoint's folder, on this machine or on a Hadoop file system, and the last plan of a remote one."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from policies.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import (
        SparkSession,  # loading it takes half a second, which commands without Spark need not wait for
    )

_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
_RENAMED_ONCE = f"{_MANAGERS}.FileContextBasedCheckpointFileManager"
_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):/")

FILE_MANAGERS = MappingProxyType(
    {
        # Rename instead of create-with-checks: saves a directory listing and a checksum file per commit.
        "file": f"{_MANAGERS}.FileSystemBasedCheckpointFileManager",
        # Their rename is atomic and refuses an existing file: a second query on the same folder ends.
        **dict.fromkeys(("hdfs", "viewfs", "abfs", "abfss"), _RENAMED_ONCE),
        # Their rename is a copy that appears when it is complete; a second writer is not always refused. Spark's
        # manager that avoids the copy is in an artifact of its own, which does not exist for every version.
        **dict.fromkeys(("s3a", "s3"), _RENAMED_ONCE),
    }
)
"""By scheme, the class that makes a commit's file appear as a whole or not at all; Spark chooses for other schemes."""
_NO_CODE = ("ClassNotFound", "NoClassDefFound", "NoSuchMethod", "NoSuchField", "No FileSystem for scheme")
"""Java's errors for a storage whose connector is missing, or belongs to another Hadoop."""
_CONNECTORS = MappingProxyType({"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"})
"""Hadoop's own connectors, by scheme."""


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint's folder.

    Args:
        uri: with its scheme: without one Spark would use the cluster's own file system.
    """

    uri: str

    @classmethod
    def parse(cls, text: str | Path) -> "CheckpointPlace":
        """Read a path or a URI.

        Raises:
            ValueError: the text has a scheme, but is no URI of a folder.
        """
        match = _SCHEME.match(str(text))
        if match is None:
            return cls(Path(text).absolute().as_uri())
        if match["scheme"] == "file":
            parts = urlsplit(str(text))
            if parts.netloc not in ("", "localhost"):
                raise ValueError("a file:// URI names no host: write file:///path")
            return cls(Path(unquote(parts.path)).as_uri())
        if not str(text).startswith(f"{match['scheme']}://") or not urlsplit(str(text)).path.strip("/"):
            raise ValueError("is no URI of a folder: write hdfs://host:8020/path or s3a://bucket/path")
        return cls(str(text).rstrip("/"))

    @property
    def scheme(self) -> str:
        """`file`, `hdfs`, `s3a`, ..."""
        return self.uri.partition(":")[0]

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for a remote one."""
        return Path(unquote(urlsplit(self.uri).path)) if self.scheme == "file" else None

    @property
    def location(self) -> str:
        """The location for Hadoop, which decodes no percent signs: a path is written with its blanks and letters."""
        return self.uri if self.folder is None else f"file://{self.folder}"

    @property
    def file_manager(self) -> str | None:
        """Spark's class that writes there; None: Spark chooses."""
        return FILE_MANAGERS.get(self.scheme)


def read_last_plan(session: "SparkSession", place: CheckpointPlace) -> str:
    """Read the plan of the newest batch through Spark; empty if no query has begun yet.

    Raises:
        UserError: the storage cannot be reached, or Spark has no code for its scheme.
    """
    from py4j.protocol import Py4JJavaError

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
        raise UserError(explain_unreachable(place, str(error.java_exception), hadoop)) from None


def explain_unreachable(place: CheckpointPlace, error: str, hadoop: str) -> str:
    """Say why a checkpoint cannot be reached, and what to do.

    Args:
        hadoop: the version that Spark brings, which a connector must have.
    """
    if not any(sign in error for sign in _NO_CODE):
        return f"stream.checkpoint_dir: {place.uri} cannot be reached: {error}"
    name = _CONNECTORS.get(place.scheme)
    remedy = f"spark.jars.packages: org.apache.hadoop:{name}:{hadoop}" if name else "spark.jars.packages: …"
    return (
        f"stream.checkpoint_dir: Spark has no code for {place.scheme}://, or code of another version "
        f"({error[:200]}): name it in stream.spark ({remedy}; docs/spark-cluster.md)"
    )
