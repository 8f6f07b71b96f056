"""A real ZooKeeper server on loopback. Tests may stop, kill and freeze its process, and expire its sessions."""

import os
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from deploy.java.jvm import JvmCommand
from tests.system.server import JvmServer, close, zookeeper_client
from tests.system.small_servers import LOOPBACK, small_jvm, write_properties

HEAP_MEBIBYTES = 64

_FLAGS = (
    # Tests kill the process, not the machine: what it wrote is safe without fsync, and 64 MB logs are of no use.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=256",
)

# The server's secret in the passwords of its sessions (SessionTrackerImpl and ZooKeeperServer.superSecret).
_SUPER_SECRET = 0xB3415C00


class ZooKeeper(JvmServer):
    """A standalone server on 127.0.0.1; all it keeps lies in `folder`, and its port stays the same over restarts.

    Args:
        folder: of its own.
        jars: `ensure_jars("bookkeeper", …)`.
        tick_ms: its unit of time; sessions expire on multiples of it.
        port: 0 for one that is free.
        host: its address.
        admin_port: of its admin server; 0 for one that is free.
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
        host: str = LOOPBACK,
        admin_port: int = 0,
        properties: Mapping[str, str | int] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self.port = port or free_port()
        self.host = host
        self._admin_port = admin_port or free_port()
        self._jars = tuple(jars)
        self._tick_ms = tick_ms
        self._properties = dict(properties or {})
        self._flags = tuple(flags)

    @property
    def servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def admin_url(self) -> str:
        """The address of its admin server, as in settings."""
        return f"http://{{host}}:{self._admin_port}"

    @contextmanager
    def client(self, *, chroot: str = "", **options: Any) -> Iterator[KazooClient]:
        """A started kazoo client; `options` as `KazooClient` takes them."""
        with zookeeper_client(self.servers + chroot, **options) as client:
            yield client

    def expire(self, session_id: int) -> None:
        """End a session of another client at once, with its ephemeral nodes, as its expiry would."""
        with self.client(client_id=(session_id, session_password(session_id))) as client:
            assert client.client_id[0] == session_id, f"session {session_id:#x} has ended already"

    def _prepare(self) -> JvmCommand:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        config = write_properties(
            self.folder / "zoo.cfg",
            {
                "tickTime": self._tick_ms,
                "minSessionTimeout": 2 * self._tick_ms,
                "maxSessionTimeout": 600_000,
                "dataDir": self.folder / "data",
                "clientPort": self.port,
                "clientPortAddress": self.host,
                "admin.serverAddress": self.host,
                "admin.serverPort": self._admin_port,
                "maxClientCnxns": 0,
                **self._properties,
            },
        )
        flags = (*small_jvm(self.folder, HEAP_MEBIBYTES), *_FLAGS, *self._flags)
        return JvmCommand("org.apache.zookeeper.server.quorum.QuorumPeerMain", self._jars, flags, (str(config),))

    def _serves(self) -> bool:
        # One try: a server that has just come up is asked again by the next client.
        once = KazooRetry(max_tries=0)
        client = KazooClient(self.servers, timeout=5.0, connection_retry=once)
        try:
            client.start(timeout=5.0)
            client.exists("/")
        except (KazooTimeoutError, KazooException):
            return False
        finally:
            close(client)
        return True


def session_password(session_id: int) -> bytes:
    """The password that every ZooKeeper server gives a session: 16 bytes of `java.util.Random(id ^ secret)`."""
    seed = ((session_id ^ _SUPER_SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    words = []
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        words.append(seed >> 16)
    return struct.pack("<4I", *words)


_PORTS = 2_500
_FIRST_PORT = 10_000 + _PORTS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4)
"""Workers that test at once, four at the most, must not take each other's ports while a server is down."""
_given: set[int] = set()


def free_port() -> int:
    """A free port below the range of outgoing connections, so that a stopped server gets it again.

    No port is returned twice: a bookie's port is its id, and a bookie leaves its cookie in the cluster.
    """
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            if port not in _given:
                _given.add(port)
                return port
