"""The query's checkpoint as files: its settings, its damage, and its reset.

Spark's layout: ``offsets/N`` is the plan of batch N (its records and its time), ``commits/N`` exists once the batch is
committed, and ``state`` has the policies' state after each batch. Spark repeats an uncommitted batch with the same
records and the same time. If a file is lost, the same batch numbers could return with other content, and consumers
could not distinguish that from a repetition. So a damaged checkpoint is reset, and not repaired.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import structlog

from deploy.locks import InUseError, exclusive_lock
from policies.units import UserError
from streaming.settings import CheckpointPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deploy.settings.application import Settings


_SHUFFLE = "spark.sql.shuffle.partitions"
_KAFKA = "kafka"
"""Headgate's own file with the id of the Kafka cluster whose offsets the checkpoint has."""
_UNREADABLE = "it is empty or cut"
_SCHEMA_PATH = re.compile(r'"file:(/[^"]+/state/[^"]+)"')
_CHANGELOG = re.compile(r"(\d+)(?:_[\w-]+)?\.(changelog|delta|zip)")
_NO_CODE = ("ClassNotFound", "NoClassDefFound", "NoSuchMethod", "NoSuchField", "No FileSystem for scheme")
"""Java's errors for a storage whose connector is missing, or belongs to another Hadoop."""
_CONNECTORS = MappingProxyType({"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"})
"""Hadoop's own connectors, by scheme."""


@dataclass(frozen=True)
class Checkpoint:
    """The files of a checkpoint, read by a session if it is remote, which may raise UserError; nothing is changed."""

    place: CheckpointPlace
    session: "SparkSession | None" = None

    def __str__(self) -> str:
        """Its folder, or its URI."""
        return str(self.place.folder or self.place.uri)

    @property
    def exists(self) -> bool:
        """Whether a query has ever started there."""
        return "offsets" in self._sizes("")

    @cached_property
    def plan(self) -> str:
        """The plan of the newest batch; empty for a new checkpoint."""
        batches = self._batches("offsets")
        return self._text(f"offsets/{batches[-1]}") if batches else ""

    @property
    def shuffle_partitions(self) -> int | None:
        """The number of state partitions of the newest batch; None if unknown."""
        try:
            return int(json.loads(self.plan.splitlines()[1])["conf"][_SHUFFLE])
        except (IndexError, KeyError, ValueError, TypeError):
            return None

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the newest batch."""
        try:
            return frozenset(json.loads(self.plan.splitlines()[2]))
        except (IndexError, ValueError, TypeError):
            return frozenset()

    def require_whole(self) -> None:
        """Raise UserError if it is damaged."""
        if self.damage is not None:
            raise UserError(self.damage)

    @cached_property
    def damage(self) -> str | None:
        """The first damaged file among those that the next start reads, with its fault and the remedy; None: none."""
        path, what = next(self._damages(), ("", "")) if self.exists else ("", "")
        return f"The checkpoint is damaged ({self}/{path}: {what}): {begin_anew(self.place)}" if path else None

    def _damages(self) -> Iterator[tuple[str, str]]:
        """Yield each file that is missing or that Spark cannot read, and its fault."""
        if not _is_json(self._text("metadata")):
            yield "metadata", _UNREADABLE
        offsets, commits = self._batches("offsets"), self._batches("commits")
        if commits and commits[-1] not in offsets:
            yield f"offsets/{commits[-1]}", "the plan of a committed batch is gone"
        # Spark needs the plan before the newest one, too.
        plans = range(max(0, offsets[-1] - 1), offsets[-1] + 1) if offsets else ()
        for file in [*(f"offsets/{batch}" for batch in plans), *(f"commits/{batch}" for batch in commits[-2:])]:
            version, *lines = self._text(file).splitlines() or [""]
            if not (re.fullmatch(r"v\d+", version) and lines and all(_is_json(line) for line in lines if line != "-")):
                yield file, _UNREADABLE
        yield from ((file, _UNREADABLE) for name in self._sizes("sources") for file in self._empty(f"sources/{name}"))
        if commits:
            yield from self._damaged_formats()
            for partition in range(self.shuffle_partitions or 1):
                yield from self._missing_state(f"state/0/{partition}", commits[-1])

    def _damaged_formats(self) -> Iterator[tuple[str, str]]:
        """The format of the policies' state, in each of two folders of folders."""
        gone = "the format of the policies' state is gone"
        for kind in ("_metadata", "_stateSchema"):
            folders = [f"state/0/{kind}/{name}" for name in self._sizes(f"state/0/{kind}")]
            files = [f"{folder}/{name}" for folder in folders for name in self._sizes(folder) if name[0].isdigit()]
            if not files:
                yield f"state/0/{kind}", gone
            yield from ((file, _UNREADABLE) for folder in folders for file in self._empty(folder))
            for path in (path for file in files for path in _SCHEMA_PATH.findall(self._text(file))):
                if not Path(path).is_file():
                    yield path, f"{gone}; if the checkpoint was moved, move it back"

    def _missing_state(self, partition: str, newest: int) -> Iterator[tuple[str, str]]:
        """The newest snapshot up to the last committed batch, and all changes since, are needed."""
        sizes = self._sizes(partition)
        if not sizes:
            yield partition, "the policies' state is gone"
            return
        found = [match for name, size in sizes.items() if size and (match := _CHANGELOG.fullmatch(name))]
        snapshot = max([0, *(int(each[1]) for each in found if each[2] == "zip" and int(each[1]) <= newest + 1)])
        changes = {int(each[1]) for each in found if each[2] != "zip"}
        for version in range(snapshot + 1, newest + 2):
            if version not in changes:
                yield f"{partition}/{version}.changelog", "it is missing or empty, and the policies' state with it"

    def _batches(self, log: str) -> list[int]:
        return sorted(int(name) for name in self._sizes(log) if name.isdigit())

    def _empty(self, folder: str) -> list[str]:
        sizes = self._sizes(folder)
        return [f"{folder}/{name}" for name in sorted(sizes) if name[0].isdigit() and not sizes[name]]

    def _sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each file of a folder, by name; nothing if there is no such folder."""
        if self.session is None:
            sizes, here = dict[str, int](), (self.place.folder or Path()) / folder
            for each in here.iterdir() if here.is_dir() else ():
                with suppress(FileNotFoundError):  # of a query that runs
                    sizes[each.name] = each.stat().st_size
            return sizes
        with self._reaching(folder) as (files, path):
            listed = files.listStatus(path) if files.exists(path) else ()
            return {str(each.getPath().getName()): int(each.getLen()) for each in listed}

    def _text(self, file: str) -> str:
        """Return the text of a file; empty if there is none."""
        if self.session is None:
            with suppress(OSError):
                return ((self.place.folder or Path()) / file).read_text(errors="replace")
            return ""
        with self._reaching(file) as (files, path):
            if not files.exists(path):
                return ""
            jvm: Any = self.session.sparkContext._jvm
            stream = files.open(path)
            try:
                return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
            finally:
                stream.close()

    @contextmanager
    def _reaching(self, name: str) -> Iterator[tuple[Any, Any]]:
        """Yield Hadoop's file system of the checkpoint, and the path of a file or folder in it."""
        from py4j.protocol import Py4JJavaError

        spark: Any = self.session
        hadoop = spark.sparkContext._jvm.org.apache.hadoop
        try:
            path = hadoop.fs.Path(f"{self.place.uri}/{name}")
            yield path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path
        except Py4JJavaError as error:
            version = str(hadoop.util.VersionInfo.getVersion())
            raise UserError(explain_unreachable(self.place, str(error.java_exception), version)) from None


def explain_unreachable(place: CheckpointPlace, error: str, hadoop: str) -> str:
    """Say why a checkpoint cannot be reached, and what to do; `hadoop` is the version that Spark brings."""
    if not any(sign in error for sign in _NO_CODE):
        return f"stream.checkpoint_dir: {place.uri} cannot be reached: {error}"
    name = _CONNECTORS.get(place.scheme)
    remedy = f"spark.jars.packages: org.apache.hadoop:{name}:{hadoop}" if name else "spark.jars.packages: …"
    return (
        f"stream.checkpoint_dir: Spark has no code for {place.scheme}://, or code of another version "
        f"({error[:200]}): name it in stream.spark ({remedy}; docs/spark-cluster.md)"
    )


def require_fitting(checkpoint: Checkpoint, settings: "Settings") -> None:
    """Refuse settings that differ from those of the checkpoint.

    Spark would silently keep the old value, or read other topics with the old numbers of batches.
    """
    made_with, shuffle_partitions = checkpoint.shuffle_partitions, settings.stream.shuffle_partitions
    if made_with not in (None, shuffle_partitions):
        raise UserError(
            f"stream.shuffle_partitions is {shuffle_partitions}, and the checkpoint in {checkpoint} was made "
            f"with {made_with}: set it back, name another stream.checkpoint_dir, or begin anew with "
            "`headgate checkpoint reset`"
        )
    prefix = settings.topics.prefix
    foreign = sorted(topic for topic in checkpoint.topics if not topic.startswith(f"{prefix}."))
    if foreign:
        raise UserError(
            f"topics.prefix is {prefix}, and the checkpoint in {checkpoint} is at {foreign[0]}: set it back, "
            "name another stream.checkpoint_dir, or start again with `headgate checkpoint reset`"
        )


def require_same_kafka(folder: Path, cluster_id: str | None, *, is_new: bool) -> None:
    """Refuse a checkpoint with the offsets of another Kafka; store the Kafka's id in a new one.

    The query would skip the first records of this Kafka, because their offsets seem to have been read.
    """
    note, made_on = folder / _KAFKA, ""
    with suppress(OSError):  # there is none, or it cannot be read, and so not be written either
        made_on = note.read_text().strip()
    if cluster_id is None or made_on == cluster_id:
        return
    if made_on and not is_new:
        raise UserError(
            f"kafka.bootstrap_servers leads to the Kafka {cluster_id}, and the checkpoint in {folder} "
            f"counts the offsets of {made_on}: set it back, name another stream.checkpoint_dir, or begin anew with "
            "`headgate checkpoint reset`"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(f"{cluster_id}\n")
        note.chmod(0o600)
    except OSError as error:
        raise UserError(f"{folder} cannot be written to ({error.strerror})") from None


def begin_anew(place: CheckpointPlace) -> str:
    """Return the command by which the query begins without a damaged checkpoint."""
    if place.folder is not None:
        return "start again with `headgate checkpoint reset`, which lists the losses"
    return (
        f"move it aside with `hadoop fs -mv {place.uri} {place.uri}.before`, or that storage's own tools, and start "
        "again; pauses and firing alerts go on, what only the state knew is lost"
    )


def reset_plan(folder: Path) -> list[str]:
    """Return the consequences of `reset`; raises UserError if there is no checkpoint."""
    if not (folder / "offsets").is_dir():
        raise UserError(f"{folder}: there is no checkpoint; the settings name it in stream.checkpoint_dir")
    return [
        f"{folder} is moved to {_move_aside(folder)}; nothing is deleted",
        "the query starts with the oldest records in the observed topics; sequences of decisions keep growing",
        "what only the state knew begins anew: holds and graces, trends, which bundles a "
        "member owned before its loss, a switch that is under way (docs/switching.md)",
    ]


def reset(folder: Path) -> Path:
    """Move the checkpoint aside, while the caller holds the lock `sole_query`; return its new folder."""
    aside = _move_aside(folder)
    try:
        folder.rename(aside)
    except OSError as error:
        raise UserError(f"{folder} cannot be moved ({error.strerror})") from None
    return aside


def _move_aside(folder: Path) -> Path:
    name = f"{folder.name}.before-{datetime.fromtimestamp(folder.stat().st_mtime, UTC):%Y%m%dT%H%M%SZ}"
    taken = sum(1 for each in folder.parent.glob(f"{name}*"))
    return folder.with_name(f"{name}-{taken + 1}" if taken else name)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


# An exclusive lock on the checkpoint's folder: a second process gets an error that names the holder.
#
# The lock is a file lock, which ends with its process. It works on one machine, and on several machines that share
# the folder through a file system with locks (NFS 4, CephFS). Which process may decide at all is settled by the
# consumer group of the checkpoint's queries (`connectors.membership`). This lock only prevents a process from
# starting while a predecessor that is stopping, or frozen, still holds the checkpoint.

_AGAIN_SECONDS = 0.2

_log = structlog.get_logger(__name__)


@contextmanager
def sole_query(settings: "Settings") -> Iterator[None]:
    """Hold the lock on a checkpoint, because two queries would overwrite each other's state; InUseError: it is held.

    If the checkpoint is remote, the lock is on this data folder.
    """
    place, data = settings.checkpoint(), settings.create_data_dir()
    folder = place.folder
    elsewhere = data / "locks" / f"{quote(place.uri, safe='')[-200:]}.lock"
    lock = elsewhere if folder is None else folder.with_name(f"{folder.name}.lock")
    what = f"the checkpoint {folder or place.uri} is in use by another query,"
    with exclusive_lock(lock, what, "set another stream.checkpoint_dir"):
        yield


@contextmanager
def sole_query_in_turn(settings: "Settings", stop: threading.Event) -> Iterator[bool]:
    """Wait until the present holder has released the lock, and hold it; yield False if `stop` was set before."""
    with ExitStack() as stack:
        told = ""
        while not stop.is_set():
            try:
                stack.enter_context(sole_query(settings))
            except InUseError as error:
                if (said := str(error)) != told:
                    _log.warning("waiting until the previous query has ended", detail=said)
                told = said
                stop.wait(_AGAIN_SECONDS)
            else:
                break
        yield not stop.is_set()
