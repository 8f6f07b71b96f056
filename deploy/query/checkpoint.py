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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from deploy.locks import InUseError, exclusive_lock
from policies.units import UserError
from streaming.settings import CheckpointPlace

if TYPE_CHECKING:
    from deploy.settings.application import Settings


_SHUFFLE = "spark.sql.shuffle.partitions"
_KAFKA = "kafka"
"""Headgate's own file with the id of the Kafka cluster whose offsets the checkpoint has."""
_UNREADABLE = "it is empty or cut"
RESET = "`headgate checkpoint reset`, which lists the losses"
_SCHEMA_PATH = re.compile(r'"file:(/[^"]+/state/[^"]+)"')
_CHANGELOG = re.compile(r"(\d+)(?:_[\w-]+)?\.(?:changelog|delta|zip)")


Damage = tuple[Path, str]
"""A file that is missing or that Spark cannot read, and its fault."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of the newest batch, as Spark wrote it: its settings and its topics.

    Args:
        place: the checkpoint's folder, or its URI.
        text: of the plan; empty for a new checkpoint.
    """

    place: str
    text: str

    @property
    def shuffle_partitions(self) -> int | None:
        """The number of state partitions; None if unknown."""
        try:
            return int(json.loads(self.text.splitlines()[1])["conf"][_SHUFFLE])
        except (IndexError, KeyError, ValueError, TypeError):
            return None

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the batch."""
        try:
            return frozenset(json.loads(self.text.splitlines()[2]))
        except (IndexError, ValueError, TypeError):
            return frozenset()


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder; reading it changes nothing."""

    folder: Path

    @property
    def exists(self) -> bool:
        """Whether a query has ever started there."""
        return (self.folder / "offsets").is_dir()

    @cached_property
    def damages(self) -> tuple[Damage, ...]:
        """The damaged files among those that the next start reads."""
        return tuple(self._damages()) if self.exists else ()

    @property
    def plan(self) -> Plan:
        """The plan of the newest batch."""
        batches = self._batches("offsets")
        return Plan(str(self.folder), _text(self.folder / "offsets" / str(batches[-1])) if batches else "")

    def _batches(self, log: str) -> list[int]:
        folder = self.folder / log
        return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []

    def _damages(self) -> Iterator[Damage]:
        if not _is_json(_text(self.folder / "metadata")):
            yield self.folder / "metadata", _UNREADABLE
        offsets, commits = self._batches("offsets"), self._batches("commits")
        if commits and commits[-1] not in offsets:
            yield self.folder / "offsets" / str(commits[-1]), "the plan of a committed batch is gone"
        # Spark needs the plan before the newest one, too.
        plans = range(max(0, offsets[-1] - 1), offsets[-1] + 1) if offsets else ()
        logs = [("offsets", batch) for batch in plans] + [("commits", batch) for batch in commits[-2:]]
        for log, batch in logs:
            if not _is_log(path := self.folder / log / str(batch)):
                yield path, _UNREADABLE
        for path in sorted(self.folder.glob("sources/*/[0-9]*")):
            if not path.stat().st_size:
                yield path, _UNREADABLE
        if commits:
            yield from self._damaged_state(commits[-1])

    def _damaged_state(self, newest: int) -> Iterator[Damage]:
        state = self.folder / "state" / "0"
        for kind in ("_metadata/v2", "_stateSchema/*"):
            formats = sorted(state.glob(f"{kind}/[0-9]*"))
            if not formats:
                yield state / kind.partition("/")[0], "the format of the policies' state is gone"
            yield from ((path, _UNREADABLE) for path in formats if not path.stat().st_size)
            named = [Path(path) for each in formats for path in _SCHEMA_PATH.findall(_text(each))]
            moved = "the format of the policies' state is gone; if the checkpoint was moved, move it back"
            yield from ((path, moved) for path in named if not path.is_file())
        for partition in range(self.plan.shuffle_partitions or 1):
            yield from self._missing_state(state / str(partition), newest)

    def _missing_state(self, partition: Path, newest: int) -> Iterator[Damage]:
        """The newest snapshot up to the last committed batch, and all changes since, are needed."""
        if not partition.is_dir():
            yield partition, "the policies' state is gone"
            return
        versions: dict[str, set[int]] = {"zip": {0}, "changelog": set()}
        for path in partition.iterdir():
            found = _CHANGELOG.fullmatch(path.name)
            if found is not None and path.stat().st_size:
                versions["zip" if path.suffix == ".zip" else "changelog"].add(int(found[1]))
        snapshot = max(version for version in versions["zip"] if version <= newest + 1)
        for version in range(snapshot + 1, newest + 2):
            if version not in versions["changelog"]:
                path = partition / f"{version}.changelog"
                yield path, "it is missing or empty, and the policies' state with it"


def require_fitting(plan: Plan, settings: "Settings") -> None:
    """Refuse settings that differ from those of the checkpoint.

    Raises:
        UserError: with these settings Spark would silently keep the old value, or read other topics with the old
            numbers of batches.
    """
    made_with, shuffle_partitions = plan.shuffle_partitions, settings.stream.shuffle_partitions
    if made_with not in (None, shuffle_partitions):
        raise UserError(
            f"stream.shuffle_partitions is {shuffle_partitions}, and the checkpoint in {plan.place} was made "
            f"with {made_with}: set it back, name another stream.checkpoint_dir, or begin anew with "
            "`headgate checkpoint reset`"
        )
    prefix = settings.topics.prefix
    foreign = sorted(topic for topic in plan.topics if not topic.startswith(f"{prefix}."))
    if foreign:
        raise UserError(
            f"topics.prefix is {prefix}, and the checkpoint in {plan.place} is at {foreign[0]}: set it back, "
            "name another stream.checkpoint_dir, or start again with `headgate checkpoint reset`"
        )


def require_same_kafka(checkpoint: Checkpoint, cluster_id: str | None) -> None:
    """Refuse a checkpoint with the offsets of another Kafka; store the Kafka's id in a new one.

    Raises:
        UserError: the query would skip the first records of this Kafka, because their offsets seem to have been read.
    """
    note = checkpoint.folder / _KAFKA
    made_on = _text(note).strip()
    if cluster_id is None or made_on == cluster_id:
        return
    if made_on and checkpoint.exists:
        raise UserError(
            f"kafka.bootstrap_servers leads to the Kafka {cluster_id}, and the checkpoint in {checkpoint.folder} "
            f"counts the offsets of {made_on}: set it back, name another stream.checkpoint_dir, or begin anew with "
            "`headgate checkpoint reset`"
        )
    try:
        checkpoint.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(f"{cluster_id}\n")
        note.chmod(0o600)
    except OSError as error:
        raise UserError(f"{checkpoint.folder} cannot be written to ({error.strerror})") from None


def remedy_for(checkpoint: Checkpoint) -> str | None:
    """Return a sentence with the damaged file and the command to start again; None without damage."""
    if not checkpoint.damages:
        return None
    path, what = checkpoint.damages[0]
    return f"The checkpoint is damaged ({path}: {what}): start again with {RESET}"


def remedy_for_start(place: CheckpointPlace) -> str:
    """Return what to do about a query that never finished a batch on a checkpoint without visible damage."""
    where = place.folder or place.uri
    return f"If the reason names a file of the checkpoint {where}, that file is damaged: {begin_anew(place)}"


def require_state(place: CheckpointPlace, lost: str | None) -> None:
    """Raise UserError if a folder of a remote checkpoint's state is lost."""
    if lost is not None:
        raise UserError(f"The checkpoint is damaged ({lost}: the policies' state is gone): {begin_anew(place)}")


def begin_anew(place: CheckpointPlace) -> str:
    """Return the command by which the query begins without a damaged checkpoint."""
    if place.folder is not None:
        return f"start again with {RESET}"
    return (
        f"move it aside with `hadoop fs -mv {place.uri} {place.uri}.before`, or that storage's own tools, and start "
        "again; pauses and firing alerts go on, what only the state knew is lost"
    )


def reset_plan(checkpoint: Checkpoint) -> list[str]:
    """Return the consequences of `reset`.

    Raises:
        UserError: there is no checkpoint.
    """
    if not checkpoint.exists:
        raise UserError(f"{checkpoint.folder}: there is no checkpoint; the settings name it in stream.checkpoint_dir")
    return [
        f"{checkpoint.folder} is moved to {_move_aside(checkpoint)}; nothing is deleted",
        "the query starts with the oldest records in the observed topics; sequences of decisions keep growing",
        "what only the state knew begins anew: holds and graces, trends, which bundles a "
        "member owned before its loss, a switch that is under way (docs/switching.md)",
    ]


def reset(checkpoint: Checkpoint) -> Path:
    """Move the checkpoint aside, while the caller holds the lock `sole_query`; return its new folder.

    Raises:
        UserError: it cannot be moved.
    """
    aside = _move_aside(checkpoint)
    try:
        checkpoint.folder.rename(aside)
    except OSError as error:
        raise UserError(f"{checkpoint.folder} cannot be moved ({error.strerror})") from None
    return aside


def _move_aside(checkpoint: Checkpoint) -> Path:
    newest = datetime.fromtimestamp(checkpoint.folder.stat().st_mtime, UTC)
    name = f"{checkpoint.folder.name}.before-{newest:%Y%m%dT%H%M%SZ}"
    taken = sum(1 for each in checkpoint.folder.parent.glob(f"{name}*"))
    return checkpoint.folder.with_name(f"{name}-{taken + 1}" if taken else name)


def _is_log(path: Path) -> bool:
    """Return whether a log file is complete: a version, and lines of JSON."""
    version, *lines = _text(path).splitlines() or [""]
    return bool(re.fullmatch(r"v\d+", version)) and bool(lines) and all(_is_json(line) for line in lines if line != "-")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


# An exclusive lock on the checkpoint's folder: a second process gets an error that names the holder.
#
# The lock is a file lock, which ends with its process. It works on one machine, and on several machines that share
# the folder through a file system with locks (NFS 4, CephFS). Which process may decide at all is settled by the
# consumer group of the checkpoint's queries (`connectors.partitions`). This lock only prevents a process from
# starting while a predecessor that is stopping, or frozen, still holds the checkpoint.

_AGAIN_SECONDS = 0.2

_log = structlog.get_logger(__name__)


@contextmanager
def sole_query(settings: "Settings") -> Iterator[None]:
    """Hold the lock on a checkpoint, because two queries would overwrite each other's state.

    If the checkpoint is remote, the lock is on this data folder.

    Raises:
        InUseError: another process holds the lock.
        UserError: the lock cannot be made.
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
