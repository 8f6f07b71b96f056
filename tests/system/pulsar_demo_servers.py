"""The servers of the demo of Pulsar: a ZooKeeper, three bookies with a small disk each, and a broker."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from deploy.java.jvm import JvmCommand, JvmProcess
from policies.units import UserError
from tests.system.small_servers import LOOPBACK, SMALL_BOOKIE, SMALL_BROKER, small_jvm, write_properties

CLUSTER = "demo"
NAMESPACE = "demo/orders"
ENSEMBLE = 3
"""Each ledger is striped over all three bookies, so that their disks fill evenly."""
_COPIES = 2

_START_SECONDS = 120.0
_POLL_SECONDS = 0.2
_CAPACITIES: Mapping[str, str | int] = {
    "diskUsageThreshold": "0.95",
    "diskUsageWarnThreshold": "0.90",
    "diskCheckInterval": 500,
    "gcWaitTime": 1000,
    "logSizeLimit": 4 * 1024 * 1024,
}


@dataclass
class PulsarServers:
    """The running servers."""

    folder: Path
    jars: tuple[Path, ...]
    disks: Sequence[Path]
    zookeeper: str = field(default_factory=lambda: f"{LOOPBACK}:{_free_port()}")
    service_port: int = field(default_factory=lambda: _free_port())
    web_port: int = field(default_factory=lambda: _free_port())
    bookie_urls: dict[str, str] = field(default_factory=dict)
    """The HTTP server of each bookie, by its id."""
    _processes: list[JvmProcess] = field(default_factory=list)

    @property
    def admin_url(self) -> str:
        """The broker's admin REST API."""
        return f"http://{LOOPBACK}:{self.web_port}"

    @property
    def service_url(self) -> str:
        """The broker's address for producers."""
        return f"pulsar://{LOOPBACK}:{self.service_port}"

    @property
    def are_alive(self) -> bool:
        """Whether no server has ended."""
        return all(process.is_alive for process in self._processes)

    def start(self) -> None:
        """Start all servers, in the order in which they need each other."""
        self._start("zookeeper", 64, "org.apache.zookeeper.server.quorum.QuorumPeerMain", self._zookeeper_settings())
        _await("ZooKeeper", self._is_zookeeper_ready, self._processes[-1])
        self._set_up_metadata()
        ports = [(number, _free_port(), _free_port()) for number in range(len(self.disks))]
        with ThreadPoolExecutor(len(ports)) as pool:
            for done in [pool.submit(self._start_bookie, *each) for each in ports]:
                done.result()
        self._start("broker", 96, "org.apache.pulsar.PulsarBrokerStarter", self._broker_settings(), "--broker-conf")
        _await("the broker", lambda: _answers(f"{self.admin_url}/admin/v2/brokers/ready"), self._processes[-1])
        self.call("PUT", "tenants/demo", {"allowedClusters": [CLUSTER], "adminRoles": []})
        self.call("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 1}})
        for_ever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        self.call("POST", f"namespaces/{NAMESPACE}/retention", for_ever)

    def delete_topic(self, topic: str) -> None:
        """Do as an operator would: delete a topic with its ledgers."""
        self.call("DELETE", f"persistent/{NAMESPACE}/{topic}?force=true")

    def call(self, method: str, path: str, body: object = None) -> None:
        """Send a request to the admin REST API."""
        url = f"{self.admin_url}/admin/v2/{path}"
        httpx.request(method, url, json=body, timeout=30, follow_redirects=True).raise_for_status()

    def kill(self) -> None:
        """End all servers; none of their data is kept."""
        for process in reversed(self._processes):
            process.kill()

    def _start(self, name: str, heap_mebibytes: int, main: str, settings: Path, *arguments: str) -> JvmProcess:
        flags = small_jvm(self.folder / name, heap_mebibytes)
        process = JvmProcess(
            JvmCommand(main, self.jars, flags, (*arguments, str(settings))), self.folder / name / "run"
        )
        self._processes.append(process)
        return process

    def _zookeeper_settings(self) -> Path:
        folder = self.folder / "zookeeper"
        (folder / "data").mkdir(parents=True)
        return write_properties(
            folder / "zoo.cfg",
            {
                "tickTime": 500,
                "dataDir": folder / "data",
                "clientPort": self.zookeeper.rpartition(":")[2],
                "clientPortAddress": LOOPBACK,
                "admin.enableServer": "false",
            },
        )

    def _is_zookeeper_ready(self) -> bool:
        client = KazooClient(self.zookeeper)
        try:
            client.start(timeout=2)
        except KazooTimeoutError:
            return False
        finally:
            client.stop()
            client.close()
        return True

    def _set_up_metadata(self) -> None:
        store = f"zk:{self.zookeeper}"
        arguments = {
            "--cluster": CLUSTER,
            "--metadata-store": store,
            "--configuration-metadata-store": store,
            "--web-service-url": self.admin_url,
            "--broker-service-url": self.service_url,
        }
        words = tuple(word for pair in arguments.items() for word in pair)
        flags = small_jvm(self.folder / "set-up", 64)
        main = "org.apache.pulsar.PulsarClusterMetadataSetup"
        process = JvmProcess(JvmCommand(main, self.jars, flags, words), self.folder / "set-up" / "run")
        if not process.wait(_START_SECONDS) or process.exit_code != 0:
            process.kill()
            raise UserError(f"Pulsar's metadata could not be set up: {_last_words(process)}")

    def _start_bookie(self, number: int, port: int, http_port: int) -> None:
        folder, disk = self.folder / f"bookie-{number}", self.disks[number]
        settings = write_properties(
            folder / "bk.conf",
            {
                "bookiePort": port,
                "listeningInterface": "lo",
                "allowLoopback": "true",
                "advertisedAddress": LOOPBACK,
                "metadataServiceUri": f"zk+hierarchical://{self.zookeeper}/ledgers",
                "journalDirectories": folder / "journal",
                "ledgerDirectories": disk / "ledgers",
                **SMALL_BOOKIE,
                **_CAPACITIES,
                "httpServerEnabled": "true",
                "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
                "httpServerHost": LOOPBACK,
                "httpServerPort": http_port,
            },
        )
        url = f"http://{LOOPBACK}:{http_port}"
        process = self._start(f"bookie-{number}", 32, "org.apache.bookkeeper.server.Main", settings, "-c")
        _await(f"bookie {number + 1}", lambda: _answers(f"{url}/api/v1/bookie/is_ready"), process)
        self.bookie_urls[f"{LOOPBACK}:{port}"] = url

    def _broker_settings(self) -> Path:
        store = f"zk:{self.zookeeper}"
        return write_properties(
            self.folder / "broker" / "broker.conf",
            {
                "metadataStoreUrl": store,
                "configurationMetadataStoreUrl": store,
                "clusterName": CLUSTER,
                "brokerServicePort": self.service_port,
                "webServicePort": self.web_port,
                "bindAddress": LOOPBACK,
                "advertisedAddress": LOOPBACK,
                "managedLedgerDefaultEnsembleSize": ENSEMBLE,
                "managedLedgerDefaultWriteQuorum": _COPIES,
                "managedLedgerDefaultAckQuorum": _COPIES,
                **SMALL_BROKER,
                # Small ledgers, so that a deleted topic leaves whole entry logs without data.
                "managedLedgerMaxEntriesPerLedger": 10,
                "backlogQuotaDefaultLimitGB": -1,
            },
        )


@contextmanager
def running_pulsar(folder: Path, jars: Sequence[Path], disks: Sequence[Path]) -> Iterator[PulsarServers]:
    """Start the servers; kill them at the end.

    Raises:
        UserError: a server does not start; the message says why.
    """
    servers = PulsarServers(folder, tuple(jars), disks)
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False


def _await(what: str, is_ready: Callable[[], bool], process: JvmProcess) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not is_ready():
        if not process.is_alive or time.monotonic() > deadline:
            raise UserError(f"{what} does not start: {_last_words(process)}")
        time.sleep(_POLL_SECONDS)


def _last_words(process: JvmProcess) -> str:
    return " ".join(process.console_tail(3)) or "it printed nothing"
