"""A real ZooKeeper server on loopback, in a process of its own, which tests may stop, kill, freeze and expire."""

import os
import secrets
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from deploy.jvm import JvmCommand, JvmProcess

LOOPBACK = "127.0.0.1"

_FLAGS = (
    "-Xmx64m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    # Tests kill the process, not the machine: what it wrote is safe without fsync, and 64 MB logs are of no use.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=256",
)

_LOG4J = """\
status = error
name = test-zookeeper
shutdownHook = disable
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5p [%t] %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""

# The server's secret in the passwords of its sessions (SessionTrackerImpl and ZooKeeperServer.superSecret).
_SUPER_SECRET = 0xB3415C00


class ZooKeeper:
    """A standalone server on 127.0.0.1; all it keeps lies in `folder`, and its port stays the same over restarts.

    Args:
        folder: of its own.
        jars: `ensure_jars("bookkeeper", …)`.
        tick_ms: its unit of time; sessions expire on multiples of it.
        port: 0 for one that is free.
        properties: further lines of `zoo.cfg`.
        flags: further flags of the JVM.
    """

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        *,
        tick_ms: int = 500,
        port: int = 0,
        properties: Mapping[str, str | int] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.folder = folder.absolute()
        self.port = port or free_port()
        self._jars = tuple(jars)
        self._tick_ms = tick_ms
        self._properties = dict(properties or {})
        self._flags = tuple(flags)
        self._process: JvmProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def servers(self) -> str:
        """Its `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def start(self, *, timeout_seconds: float = 30.0) -> None:
        """Start it on its data and return when a client has been served; harmless when it runs."""
        if self._process is not None:
            return
        config = self._write_config()
        flags = (*_FLAGS, f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", *self._flags)
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._process = JvmProcess(JvmCommand(main_class, self._jars, flags, (str(config),)), self.folder / "run")
        try:
            self._await_ready(self._process, time.monotonic() + timeout_seconds)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it in order; harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate(grace_seconds=10.0)

    def kill(self) -> None:
        """End it as a crash would; harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def freeze(self) -> None:
        """Make it hang: connections stay, answers do not come."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it for the while of a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    @contextmanager
    def client(self, *, chroot: str = "", **options: Any) -> Iterator[KazooClient]:
        """A started kazoo client; `options` as `KazooClient` takes them."""
        client = KazooClient(self.servers + chroot, **options)
        client.start(timeout=15)
        try:
            yield client
        finally:
            close(client)

    def expire(self, session_id: int) -> None:
        """End a session of another client at once, with its ephemeral nodes, as its expiry would."""
        with self.client(client_id=(session_id, session_password(session_id))) as client:
            assert client.client_id[0] == session_id, f"session {session_id:#x} has ended already"

    def _write_config(self) -> Path:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(_LOG4J)
        settings = {
            "tickTime": self._tick_ms,
            "minSessionTimeout": 2 * self._tick_ms,
            "maxSessionTimeout": 60_000,
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "maxClientCnxns": 0,
            **self._properties,
        }
        file = self.folder / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    def _await_ready(self, process: JvmProcess, deadline: float) -> None:
        while not _serves(self.servers):
            assert process.is_alive, "ZooKeeper ended:\n" + "\n".join(process.console_tail())
            assert time.monotonic() < deadline, "ZooKeeper is not ready:\n" + "\n".join(process.console_tail())
            time.sleep(0.05)


def close(client: KazooClient) -> None:
    """Stop a kazoo client and free what it holds."""
    client.stop()
    client.close()


def session_password(session_id: int) -> bytes:
    """The password that every ZooKeeper server gives a session: 16 bytes of `java.util.Random(id ^ secret)`."""
    seed = ((session_id ^ _SUPER_SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    words = []
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        words.append(seed >> 16)
    return struct.pack("<4I", *words)


_given: set[int] = set()


def free_port() -> int:
    """A port nobody listens on, below those of outgoing connections: a server that is down must get it back.

    None is given twice: to a cluster a bookie is its port, and one that is gone has left its cookie there.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            if port not in _given:
                _given.add(port)
                return port


def _serves(servers: str) -> bool:
    # One try: a server that has just come up is asked again by the next client.
    once = KazooRetry(max_tries=0)
    client = KazooClient(servers, timeout=5.0, connection_retry=once)
    try:
        client.start(timeout=2.0)
        client.exists("/")
    except (KazooTimeoutError, KazooException):
        return False
    finally:
        close(client)
    return True
