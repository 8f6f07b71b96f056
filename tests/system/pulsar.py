"""Real Pulsar clusters on loopback, whose brokers and bookies tests may stop, kill and freeze."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from deploy.java.jvm import JvmCommand
from tests.system import metadata_again
from tests.system.bookkeeper import Bookie
from tests.system.server import JvmServer, run_tool
from tests.system.small_servers import LOOPBACK, SMALL_BROKER, small_jvm, write_properties
from tests.system.zookeeper import ZooKeeper, free_port

CLUSTER = "test"

HEAP_MEBIBYTES = 64


class PulsarBroker(JvmServer):
    """One broker of the cluster `test` on 127.0.0.1; its ports, and so its id, stay the same over restarts.

    Args:
        folder: of its own.
        jars: what `pulsar_jars` gives.
        zookeeper_servers: `host:port`, after `set_up_metadata`.
        ensemble_size: of its ledgers, and how many copies of each entry are written and awaited.
        session_timeout_ms: of its ZooKeeper session.
        properties: laid over the small defaults, such as `bookkeeperClientIsolationGroups`.
        token: to ask with whether it serves, where the properties make it want one.
    """

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        zookeeper_servers: str,
        *,
        ensemble_size: int = 2,
        session_timeout_ms: int = 6_000,
        properties: Mapping[str, str | int | Path] | None = None,
        token: str | None = None,
    ) -> None:
        super().__init__(folder)
        self.service_port, self.web_port = free_port(), free_port()
        self._jars = tuple(jars)
        self._zookeeper_servers = zookeeper_servers
        self._ensemble_size = ensemble_size
        self._session_timeout_ms = session_timeout_ms
        self._properties = dict(properties or {})
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def admin_url(self) -> str:
        return f"http://{LOOPBACK}:{self.web_port}"

    @property
    def broker_id(self) -> str:
        """The id under which it registers."""
        return f"{LOOPBACK}:{self.web_port}"

    def _prepare(self) -> JvmCommand:
        store = f"zk:{self._zookeeper_servers}"
        config = write_properties(
            self.folder / "broker.conf",
            {
                "metadataStoreUrl": store,
                "configurationMetadataStoreUrl": store,
                "metadataStoreSessionTimeoutMillis": self._session_timeout_ms,
                "clusterName": CLUSTER,
                "brokerServicePort": self.service_port,
                "webServicePort": self.web_port,
                "bindAddress": LOOPBACK,
                "advertisedAddress": LOOPBACK,
                "managedLedgerDefaultEnsembleSize": self._ensemble_size,
                "managedLedgerDefaultWriteQuorum": self._ensemble_size,
                "managedLedgerDefaultAckQuorum": self._ensemble_size,
                **SMALL_BROKER,
                **self._properties,
            },
        )
        flags = small_jvm(self.folder, HEAP_MEBIBYTES)
        arguments = ("--broker-conf", str(config))
        return JvmCommand("org.apache.pulsar.PulsarBrokerStarter", self._jars, flags, arguments)

    def _serves(self) -> bool:
        # Its registration may be an old one, of before it was killed; that it is ready, it says itself.
        try:
            ready = httpx.get(f"{self.admin_url}/admin/v2/brokers/ready", headers=self._headers, timeout=5)
            listed = httpx.get(f"{self.admin_url}/admin/v2/brokers/{CLUSTER}", headers=self._headers, timeout=5)
        except httpx.TransportError:
            return False
        return ready.is_success and listed.is_success and self.broker_id in listed.json()


def set_up_metadata(folder: Path, jars: Sequence[Path], zookeeper_servers: str) -> None:
    """Write the metadata of a new Pulsar cluster to ZooKeeper, with that of BookKeeper and an empty `/bookies`."""
    store = f"zk:{zookeeper_servers}"
    # Where brokers are is only noted for other clusters to read; each broker registers by itself.
    arguments = {
        "--cluster": CLUSTER,
        "--metadata-store": store,
        "--configuration-metadata-store": store,
        "--web-service-url": f"http://{LOOPBACK}:1",
        "--broker-service-url": f"pulsar://{LOOPBACK}:1",
    }
    words = tuple(word for pair in arguments.items() for word in pair)
    flags = small_jvm(folder, HEAP_MEBIBYTES)
    command = JvmCommand("org.apache.pulsar.PulsarClusterMetadataSetup", tuple(jars), flags, words)
    metadata_again.make(zookeeper_servers, jars, lambda: run_tool(command, folder / "run"))


class PulsarCluster:
    """A ZooKeeper, bookies and brokers, on loopback; a context manager that kills them all at the end.

    One bookie and one broker more take 1 s and 5 s to start, and 90 and 200 MiB.

    Args:
        folder: of its own.
        jars: what `pulsar_jars` gives.
        bookkeeper_jars: `ensure_jars("bookkeeper", …)`.
        bookies: how many are started with it.
        zookeeper_flags: further flags of ZooKeeper's JVM.
    """

    def __init__(
        self,
        folder: Path,
        jars: Sequence[Path],
        bookkeeper_jars: Sequence[Path],
        *,
        bookies: int = 2,
        zookeeper_flags: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.zookeeper = ZooKeeper(folder / "zookeeper", bookkeeper_jars, flags=zookeeper_flags)
        self.bookies: list[Bookie] = []
        self.brokers: list[PulsarBroker] = []
        self._jars = tuple(jars)
        self._bookkeeper_jars = tuple(bookkeeper_jars)
        self._first_bookies = bookies

    def __enter__(self) -> Self:
        try:
            self.zookeeper.start()
            set_up_metadata(self.folder / "set-up", self._jars, self.zookeeper.servers)
            for _ in range(self._first_bookies):
                self.add_bookie()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def admin_url(self) -> str:
        return self.brokers[0].admin_url

    @property
    def bookie_ids(self) -> list[str]:
        return [bookie.bookie_id for bookie in self.bookies]

    def add_bookie(self, **options: Any) -> Bookie:
        """Start another bookie; `options` are those of `Bookie`."""
        folder = self.folder / f"bookie-{len(self.bookies)}"
        self.bookies.append(Bookie(folder, self._bookkeeper_jars, self.zookeeper.servers, **options))
        self.bookies[-1].start()
        return self.bookies[-1]

    def add_http_bookie(self, **more: str | int | Path) -> tuple[Bookie, str]:
        """Start another bookie with the HTTP endpoint and more properties; also returns the endpoint's address."""
        port = free_port()
        properties: dict[str, str | int | Path] = {
            "httpServerEnabled": "true",
            "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
            "httpServerHost": LOOPBACK,
            "httpServerPort": port,
            **more,
        }
        # Pulsar brings the HTTP server, plain BookKeeper leaves it out.
        folder = self.folder / f"bookie-{len(self.bookies)}"
        self.bookies.append(Bookie(folder, self._jars, self.zookeeper.servers, properties=properties))
        self.bookies[-1].start()
        return self.bookies[-1], f"http://{LOOPBACK}:{port}"

    def add_broker(self, **options: Any) -> PulsarBroker:
        """Start another broker; `options` are those of `PulsarBroker`."""
        folder = self.folder / f"broker-{len(self.brokers)}"
        self.brokers.append(PulsarBroker(folder, self._jars, self.zookeeper.servers, **options))
        self.brokers[-1].start()
        return self.brokers[-1]

    def kill(self) -> None:
        for server in (*self.brokers, *self.bookies):
            server.kill()
        self.zookeeper.kill()
