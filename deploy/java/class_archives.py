"""Class data sharing (CDS) archives of the JVMs, which shorten their start.

Loading classes takes half of the processor time that Spark and Kafka need to start. A first start therefore records
which classes it loads; once it is ready, a background process writes an archive of them to the data folder, and later
starts map it. Archives are optional: the JVM ignores one that does not fit (another Java, other jars).

Processes may share the folder and start at the same time: each records for itself, one writes the archive, and none
sees it before it is complete.
"""

import fcntl
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from deploy.java.jvm import run_behind
from deploy.processes.memory_room import memory_room_bytes

_log = structlog.get_logger(__name__)

_SETTLE_SECONDS = 20.0
"""From when all is ready until an archive is made: what the first minute still loads belongs in it, too."""
_NEEDED_BYTES = 3 * 2**29
"""Of memory, to make one: Spark's takes 983 MiB at the most. Where there is less nobody tries: whoever goes beyond a
limit may take all others along."""
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_GIVEN_IN = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""Where somebody may have named an archive of their own."""
_STALE_SECONDS = 3600.0
"""What was noted so long ago nobody makes an archive of any more: its process ended before."""
_THIS_PROCESS = uuid.uuid4().hex[:12]


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one program.

    Args:
        name: of the program.
        folder: where it lies; only our own user writes there, as what is in it is run.
        java: what runs the program.
        jars: all that the program loads classes from.
        process: tells what we note from what others do: of two containers both may have the same pid.
    """

    name: str
    folder: Path
    java: Path
    jars: tuple[Path, ...]
    process: str = _THIS_PROCESS

    @property
    def file(self) -> Path | None:
        """The one for this Java and these jars, which the JVM compares once more; None: there is none that is whole.

        Its size is in its name, as a JVM breaks off on one that was cut.
        """
        found = self.folder.glob(f"{self.name}-{self._key()}-*.jsa")
        return next((each for each in found if each.stem.endswith(f"-{each.stat().st_size}")), None)

    def _key(self) -> str:
        jars = (f"{jar} {jar.stat().st_size}" for jar in sorted(self.jars))
        return hashlib.sha256("\n".join([str(self.java.resolve()), *jars]).encode()).hexdigest()[:16]

    @property
    def noted(self) -> Path:
        """Where our JVM notes what it loads."""
        return self.folder / f"{self.name}.{self.process}.classes"

    def flags(self) -> tuple[str, ...]:
        """What the program's JVM is to be told: to take the archive; where there is none, to note what goes into it."""
        if any("SharedArchiveFile" in os.environ.get(name, "") for name in _GIVEN_IN):
            return ()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._forget(time.time() - _STALE_SECONDS)
            self.noted.unlink(missing_ok=True)
            file = self.file
        except OSError:  # it starts without
            return ()
        if file is None:
            return (f"-XX:DumpLoadedClassList={self.noted}",)
        return (f"-XX:SharedArchiveFile={file}", *_QUIET)

    def make(self, class_path: str, stop: threading.Event) -> None:
        """Make it of what was noted, unless it is there or somebody is about it; given up when `stop` is set.

        Args:
            class_path: of the JVM that noted it.
            stop: set when there is no more time.
        """
        if not self.noted.exists() or memory_room_bytes() < _NEEDED_BYTES:
            return
        with _alone(self.folder / f"{self.name}.lock") as is_ours:
            if is_ours and self.file is None:
                self._make(class_path, stop)

    def _make(self, class_path: str, stop: threading.Event) -> None:
        unfinished, began = self.folder / f"{self.name}.unfinished", time.monotonic()
        for older in (unfinished, *self.folder.glob(f"{self.name}-*")):
            older.unlink(missing_ok=True)
        if run_behind(self._command(unfinished, class_path), stop) and unfinished.exists():
            with unfinished.open("rb") as written:
                os.fsync(written.fileno())  # whole, before it is there
            made = self.folder / f"{self.name}-{self._key()}-{unfinished.stat().st_size}.jsa"
            unfinished.replace(made)
            self._forget(time.time())
            _log.info("later starts are faster", archive=str(made), seconds=round(time.monotonic() - began))
        unfinished.unlink(missing_ok=True)

    def _forget(self, before: float) -> None:
        """Remove what was noted before, by whom ever."""
        for noted in self.folder.glob(f"{self.name}*.classes"):
            with suppress(FileNotFoundError):  # others do so, too
                if noted.stat().st_mtime <= before:
                    noted.unlink()

    def _command(self, file: Path, class_path: str) -> list[str]:
        classes, archive = f"-XX:SharedClassListFile={self.noted}", f"-XX:SharedArchiveFile={file}"
        limits = ("-XX:+UseSerialGC", "-Xmx128m", "-XX:-UsePerfData")
        return [str(self.java), "-Xshare:dump", classes, archive, *limits, "-cp", class_path]


@contextmanager
def _alone(file: Path) -> Iterator[bool]:
    """Whether we have the lock; it goes with its process."""
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Archiving:
    """Makes archives once all is ready, on a thread of its own; `stop` gives up what is not done."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, wanted: Iterable[tuple[ClassArchive, str]]) -> None:
        """Make these, each with its class path, one after the other, a while from now."""
        self._thread = threading.Thread(target=self._run, args=(tuple(wanted),), name="class archives", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when nothing is made any more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, wanted: Sequence[tuple[ClassArchive, str]]) -> None:
        if self._stop.wait(_SETTLE_SECONDS):
            return
        for archive, class_path in wanted:
            try:
                archive.make(class_path, self._stop)
            except OSError as error:
                _log.debug("no archive of classes", of=archive.name, reason=str(error))
