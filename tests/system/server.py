"""Test servers in JVMs: a client tests whether they are ready, and tests may stop, kill, freeze and thaw them."""

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient

from deploy.java.jvm import JvmCommand, JvmProcess
from tests.system.processes import freeze
from tests.system.waiting import DEADLINE_SECONDS


def run_tool(command: JvmCommand, run_dir: Path, *, timeout_seconds: float = DEADLINE_SECONDS) -> None:
    """Run a program in a JVM to its end; another exit code than 0 fails the test with the output."""
    process = JvmProcess(command, run_dir)
    try:
        ended = process.wait(timeout_seconds)
    finally:
        process.kill()
    printed = "\n".join(process.console_tail())
    assert ended, f"{command.main_class} takes too long:\n{printed}"
    assert process.exit_code == 0, f"{command.main_class} failed:\n{printed}"


@contextmanager
def zookeeper_client(servers: str, **options: Any) -> Iterator[KazooClient]:
    """A started kazoo client of `host:port[/chroot]`; `options` as `KazooClient` takes them."""
    client = KazooClient(servers, **options)
    try:
        client.start(timeout=DEADLINE_SECONDS)
        yield client
    finally:
        close(client)


def close(client: KazooClient) -> None:
    """Stop a kazoo client and free what it holds."""
    client.stop()
    client.close()


class JvmServer(ABC):
    """A server in a process of its own; all it keeps lies in `folder`, from one start to the next.

    A context manager starts it, and kills it at the end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._process: JvmProcess | None = None

    @abstractmethod
    def _prepare(self) -> JvmCommand:
        """Write the configuration, note the state before the start, and return the command of the server."""

    @abstractmethod
    def _serves(self) -> bool:
        """Whether a client sees that the server serves since this start."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server does not run"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, frozen or not."""
        return self._process is not None and self._process.is_alive

    @property
    def resident_mebibytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 2**20

    def start(self, *, timeout_seconds: float = DEADLINE_SECONDS) -> None:
        """Start it on its data and return when a client has seen it serve; harmless if it runs."""
        if self.is_alive:
            return
        self._process = JvmProcess(self._prepare(), self.folder / "run")
        try:
            self._await_ready(self._process, time.monotonic() + timeout_seconds)
        except BaseException:
            self.kill()
            raise

    def stop(self, *, grace_seconds: float = 15.0) -> None:
        """End it in order (SIGTERM), by force after the grace; harmless if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.request_end()
            if not process.wait(grace_seconds):
                process.kill()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL); harmless if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def freeze(self) -> None:
        """Stop the process (SIGSTOP): connections stay, answers do not come."""
        freeze(self.pid)

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it during a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def _await_ready(self, process: JvmProcess, deadline: float) -> None:
        while not self._serves():
            last_words = "\n".join(process.console_tail())
            assert process.is_alive, f"{self.folder.name} ended:\n{last_words}"
            assert time.monotonic() < deadline, f"{self.folder.name} is not ready:\n{last_words}"
            time.sleep(0.1)
