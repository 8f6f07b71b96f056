"""The sessions of a broker cluster, each on a ZooKeeper in memory: brokers with a cursor and a schema, two clusters."""

from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.switching.cluster_sessions import ClusterMetadata, ClusterSessions
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.session import ZooKeeperSession
from policies.switching.ledger_paths import Layout, path_of
from tests.connectors.bookkeeper.test_ledgers import captured
from tests.connectors.pulsar.znodes import cursor_info
from tests.connectors.switching.memory_zookeeper import Server

LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
CURSORS = "/managed-ledgers/t/n/persistent/topic"
BROKERS = "/loadbalance/brokers"


class MemorySessions(ClusterSessions):
    """`old` and `new`, in ZooKeepers of their own."""

    def __init__(self) -> None:
        clusters = BookKeeperClusters.model_validate(
            {
                "bootstrap": "old",
                "clusters": {name: {"zookeeper": {"servers": f"{name}:2181"}} for name in ("old", "new")},
            }
        )
        super().__init__("c1", ZooKeeperConnection(servers="brokers:2181"), clusters)
        self.servers = {name: Server() for name in ("brokers", "old", "new")}
        self._memory: dict[str, ZooKeeperSession] = {name: each.session() for name, each in self.servers.items()}
        for name in ("old", "new"):
            self._write(name, "/ledgers/INSTANCEID", f"i-{name}".encode())
            self._write(name, "/ledgers/LAYOUT", LAYOUT)
        self._write("brokers", f"{BROKERS}/b2:8080", b"")
        self._write("brokers", f"{BROKERS}/b1:8080", b"")

    @property
    def brokers(self) -> ZooKeeperSession:
        return self._memory["brokers"]

    def find_metadata(self, name: str) -> ClusterMetadata:
        known = super().find_metadata(name)
        return ClusterMetadata(name, self._memory[name], known.ledgers_root)

    def subscribe(self, *ledger_ids: int, attribution: str | None = None) -> None:
        """Make cursors of these ledgers."""
        for ledger_id in ledger_ids:
            self._write("brokers", f"{CURSORS}/s{ledger_id}", cursor_info(ledger_id, attribution=attribution))

    def has(self, name: str, *ledger_ids: int) -> None:
        """Make ledgers of a BookKeeper cluster, all with the same content."""
        for ledger_id in ledger_ids:
            self._write(name, f"/ledgers{path_of(Layout.HIERARCHICAL, ledger_id)}", captured("version 3, closed"))

    def _write(self, server: str, path: str, data: bytes) -> None:
        parts = path.strip("/").split("/")
        for length in range(1, len(parts)):
            above = "/" + "/".join(parts[:length])
            if above not in self.servers[server].tree:
                self.servers[server].write(above, b"")
        self.servers[server].write(path, data)
