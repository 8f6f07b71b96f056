"""Real bookies on loopback, each in a process of its own, which tests may stop, kill and freeze."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.java.jvm import JvmCommand
from tests.system import metadata_again
from tests.system.server import JvmServer, run_tool, zookeeper_client
from tests.system.small_servers import LOOPBACK, SMALL_BOOKIE, small_jvm, write_properties
from tests.system.zookeeper import free_port

HEAP_MEBIBYTES = 24


def init_cluster(folder: Path, jars: Sequence[Path], zookeeper_servers: str) -> None:
    """Write the metadata of a new BookKeeper cluster below `/ledgers`. Pulsar's set-up does that by itself.

    Args:
        folder: for the configuration and the console.
        jars: `ensure_jars("bookkeeper", …)`.
        zookeeper_servers: `host:port[/chroot]`; a missing chroot is created.
    """
    config = write_properties(folder / "bk.conf", {"metadataServiceUri": _metadata_uri(zookeeper_servers)})
    arguments = ("-conf", str(config), "initnewcluster")
    flags = small_jvm(folder, HEAP_MEBIBYTES)
    command = JvmCommand("org.apache.bookkeeper.bookie.BookieShell", tuple(jars), flags, arguments)
    metadata_again.make(zookeeper_servers, jars, lambda: run_tool(command, folder / "run"))


class Bookie(JvmServer):
    """One bookie on 127.0.0.1; its port, and so its id, stay the same over restarts.

    Args:
        folder: of its own.
        jars: `ensure_jars("bookkeeper", …)`.
        zookeeper_servers: `host:port[/chroot]` of an initialised cluster.
        port: 0 for one that is free.
        session_timeout_ms: of its ZooKeeper session: so long after a crash it stays registered.
        properties: laid over the small defaults, such as `bookieId` or `forceReadOnlyBookie`.
    """

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        zookeeper_servers: str,
        *,
        port: int = 0,
        session_timeout_ms: int = 3_000,
        properties: Mapping[str, str | int | Path] | None = None,
    ) -> None:
        super().__init__(folder)
        self.port = port or free_port()
        self._jars = tuple(jars)
        self._zookeeper_servers = zookeeper_servers
        self._session_timeout_ms = session_timeout_ms
        self._properties = dict(properties or {})
        self._registration_before: int | None = None

    @property
    def bookie_id(self) -> str:
        """The id under which it registers: `127.0.0.1:port`, unless the properties name another."""
        return str(self._properties.get("bookieId", f"{LOOPBACK}:{self.port}"))

    def registration(self) -> int | None:
        """The czxid of its node, writable or read-only; None while it is not registered."""
        with zookeeper_client(self._zookeeper_servers) as client:
            for parent in ("/ledgers/available", "/ledgers/available/readonly"):
                stat = client.exists(f"{parent}/{self.bookie_id}")
                if stat is not None:
                    return int(stat.czxid)
        return None

    def _prepare(self) -> JvmCommand:
        # What a killed bookie left behind is still there until its session expires.
        self._registration_before = self.registration()
        config = write_properties(
            self.folder / "bk.conf",
            {
                "bookiePort": self.port,
                "listeningInterface": "lo",
                "allowLoopback": "true",
                "advertisedAddress": LOOPBACK,
                "metadataServiceUri": _metadata_uri(self._zookeeper_servers),
                "zkTimeout": self._session_timeout_ms,
                "journalDirectories": self.folder / "journal",
                "ledgerDirectories": self.folder / "ledgers",
                **SMALL_BOOKIE,
                **self._properties,
            },
        )
        flags = small_jvm(self.folder, HEAP_MEBIBYTES)
        return JvmCommand("org.apache.bookkeeper.server.Main", self._jars, flags, ("-c", str(config)))

    def _serves(self) -> bool:
        return self.registration() not in (None, self._registration_before)


def _metadata_uri(zookeeper_servers: str) -> str:
    return f"zk+hierarchical://{zookeeper_servers}/ledgers"
