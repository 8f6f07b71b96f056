"""Where a checkpoint is: a local folder, or a URI of a Hadoop file system."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
_RENAMED_ONCE = f"{_MANAGERS}.FileContextBasedCheckpointFileManager"
_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):/")

FILE_MANAGERS = MappingProxyType(
    {
        # Rename instead of create-with-checks: saves a directory listing and a checksum file a commit.
        "file": f"{_MANAGERS}.FileSystemBasedCheckpointFileManager",
        # Their rename is one step, and refuses what is there already: a second query on the same folder ends.
        **dict.fromkeys(("hdfs", "viewfs", "abfs", "abfss"), _RENAMED_ONCE),
        # A copy there, which appears when it is whole; who writes second is not always refused. The manager of Spark's
        # that saves the copy is in an artifact of its own, which is not there for each version.
        **dict.fromkeys(("s3a", "s3"), _RENAMED_ONCE),
    }
)
"""How a commit's file appears as a whole or not at all, by scheme; of others Spark chooses itself."""


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint's folder.

    Args:
        uri: as Spark is given it, with its scheme: without one Spark would take a cluster's own file system.
    """

    uri: str

    @classmethod
    def of(cls, text: str | Path) -> "CheckpointPlace":
        """From a path, or a URI.

        Raises:
            ValueError: it has a scheme, and is no URI.
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
        """Such as `file`, `hdfs` or `s3a`."""
        return self.uri.partition(":")[0]

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None: it is elsewhere."""
        return Path(unquote(urlsplit(self.uri).path)) if self.scheme == "file" else None

    @property
    def file_manager(self) -> str | None:
        """The class of Spark's that writes there; None: as Spark chooses."""
        return FILE_MANAGERS.get(self.scheme)
