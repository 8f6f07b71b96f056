"""The Java runtime: finds it, runs servers in it, and leaves no process behind."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from policies.units import UserError, without_settings

MINIMUM_JAVA = 17

_NO_PERF_DATA = "-XX:-UsePerfData"  # a file in /tmp that a killed JVM leaves behind
_END_SECONDS = 10.0

_INSTALL = (
    f"install Java {MINIMUM_JAVA} or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) or set JAVA_HOME"
)

_LITTLE_MEMORY = re.compile(r"Could not (?:reserve|allocate) .*|There is insufficient memory .*")
_MORE_MEMORY = "raise the limit (`ulimit -v`; MemoryMax= of systemd; resources.limits.memory of Kubernetes)"


def find_java() -> Path:
    """Return the Java launcher: the one of JAVA_HOME if that is set, else the first on PATH. Its version is read once.

    Raises UserError if there is none, if it does not run (also for lack of memory), or if it is older than Java 17.
    """
    java = _locate_java()
    said = _ask_version(java)
    # 17 for "17.0.15", 8 for "1.8.0_402"; macOS has a launcher without a Java, which names no version.
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    version = int(found[1]) if found else None
    if (refused := _LITTLE_MEMORY.search(said)) is not None:
        raise UserError(f"{java} cannot start ({refused[0]}): this process may use too little memory; {_MORE_MEMORY}.")
    if version is None:
        raise UserError(f"{java} is no working Java: {_INSTALL}.")
    if version < MINIMUM_JAVA:
        raise UserError(f"Java {MINIMUM_JAVA} or newer is needed, but {java} is Java {version}: {_INSTALL}.")
    return java


@dataclass(frozen=True)
class JvmCommand:
    """A program for a JVM: a main class with its class path, JVM flags and program arguments."""

    main_class: str
    classpath: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


class JvmProcess:
    """A running server in a JVM of its own, started by the constructor.

    It has a session of its own, so a terminal's Ctrl-C reaches only this process, which ends the server in order.
    `run_dir` belongs to this one server: working directory, temporary files (`tmp/`), `jvm.pid`, which it locks, and
    `console.log` with its output since its start. If this process is killed, `end_orphan(run_dir)` of its successor
    finds the server by that lock. Raises UserError if there is no suitable Java.
    """

    def __init__(self, command: JvmCommand, run_dir: Path) -> None:
        self.run_dir = run_dir.resolve()
        self.console_log = self.run_dir / "console.log"
        # A killed JVM leaves native libraries in its temporary directory.
        shutil.rmtree(self.run_dir / "tmp", ignore_errors=True)
        (self.run_dir / "tmp").mkdir(parents=True)
        with self.console_log.open("wb") as console, (self.run_dir / "jvm.pid").open("w") as file:
            _lock(file)
            self._process = subprocess.Popen(
                self._command_line(command),
                cwd=self.run_dir,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(file.fileno(),),
                env=without_settings(os.environ),
            )
            file.write(f"{self._process.pid}\n")

    @property
    def pid(self) -> int:
        """The process id; the JVM's own, as the launcher becomes the JVM."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end of the process; return False if it still runs after the timeout."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_seconds)
        return not self.is_alive

    def request_end(self) -> None:
        """Ask the process to end in order (SIGTERM), and return at once."""
        self._process.terminate()

    def kill(self) -> None:
        """End the process by force (SIGKILL) and return when it has ended."""
        self._process.kill()
        self._process.wait()

    def console_tail(self) -> list[str]:
        """Return the last lines of the process's output."""
        return tail(self.console_log, 20)

    def _command_line(self, command: JvmCommand) -> list[str]:
        return [
            str(find_java()),
            f"-Djava.io.tmpdir={self.run_dir / 'tmp'}",
            _NO_PERF_DATA,
            *command.flags,
            "-cp",
            os.pathsep.join(str(path) for path in command.classpath),
            command.main_class,
            *command.arguments,
        ]


def end_orphan(run_dir: Path) -> int | None:
    """End the JVM that an earlier process left behind in `run_dir`; return its pid, or None if there is none.

    The JVM holds the lock on `jvm.pid` until its end, so the pid there cannot be another process's. Raises UserError if
    it cannot be ended.
    """
    try:
        file = (run_dir / "jvm.pid").open()
    except FileNotFoundError:
        return None
    with file:
        if _lock(file):
            return None
        pid = int(file.read() or 0)  # empty if the parent was killed in the moment in which it started the JVM
        try:
            if pid:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it is ending
        except PermissionError:
            raise UserError(
                f"process {pid} uses {run_dir} and belongs to another user: end it and start again."
            ) from None
        deadline = time.monotonic() + _END_SECONDS
        while not _lock(file):
            if time.monotonic() > deadline:
                raise UserError(f"process {pid}, left behind in {run_dir}, does not end: end it and start again.")
            time.sleep(0.02)
    return pid or None


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def tail(file: Path, lines: int = 20) -> list[str]:
    """Return the last lines of a text file within its last 64 KiB; empty if the file does not exist."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - 65_536))
            text = stream.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]


def _locate_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise UserError(f"JAVA_HOME is {home}, but there is no {java}: {_INSTALL} to where Java is.")
        return java
    found = shutil.which("java")
    if found is None:
        raise UserError(f"Java is needed and none was found: {_INSTALL}.")
    return Path(found)


@cache
def _ask_version(java: Path) -> str:
    """Return what a Java launcher prints about its version; empty if it does not run."""
    try:
        result = subprocess.run(  # the launcher that will run everything else
            [str(java), "-version"], capture_output=True, text=True, check=False, timeout=60,
            env=without_settings(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stderr + result.stdout
