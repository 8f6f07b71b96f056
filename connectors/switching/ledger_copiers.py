"""The ledger copiers of one broker cluster: one for each pair of source and target BookKeeper cluster."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from connectors.bookkeeper.copier import LedgerCopier
from connectors.bookkeeper.copy_clusters import LedgerCluster, metadata_service_uri
from connectors.bookkeeper.copy_journal import COPIES, CopyJournal
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.switching.settings import SwitchExecution
from connectors.zookeeper.outcomes import UnreadError


@dataclass(frozen=True)
class JournaledCopier:
    """A copier from one BookKeeper cluster to another, and the journal of its copies."""

    copier: LedgerCopier
    journal: CopyJournal


class LedgerCopiers:
    """Makes each copier at its first use. Thread-safe; must be closed."""

    def __init__(
        self,
        sessions: ClusterSessions,
        settings: SwitchExecution,
        jvm: Callable[[], BookKeeperJvm],
        concurrency: int,
    ) -> None:
        self._sessions = sessions
        self._settings = settings
        self._jvm = jvm
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._bytes_per_second = 0
        self._copiers: dict[tuple[str, str], JournaledCopier] = {}
        self._password = b""
        """The password of these copiers."""

    def get(self, source: str, target: str) -> JournaledCopier:
        """Return the copier from one cluster to another. After the password has changed, it is another one.

        Raises:
            UnreadError: a cluster's identity cannot be read.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings have no such cluster, its settings are wrong, or both are the same.
        """
        if (password := self._settings.password()) != self._password:
            self.close()
        with self._lock:
            self._password = password
            if (source, target) not in self._copiers:
                self._copiers[(source, target)] = self._make(source, target)
            return self._copiers[(source, target)]

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes per second of each copier from now on; 0: no limit."""
        with self._lock:
            self._bytes_per_second = bytes_per_second
            for each in self._copiers.values():
                each.copier.limit(bytes_per_second)

    def close(self) -> None:
        """Close all copiers."""
        with self._lock:
            copiers, self._copiers = self._copiers, {}
        for each in copiers.values():
            each.copier.close()

    def _make(self, source: str, target: str) -> JournaledCopier:
        one, other = self._describe_cluster(source), self._describe_cluster(target)
        journal = CopyJournal(self._sessions.brokers, COPIES, source=one.instance_id, target=other.instance_id)
        copier = LedgerCopier(
            self._jvm(),
            one,
            other,
            journal,
            replication=self._settings.replication,
            concurrency=self._concurrency,
            timeout=self._settings.copy_timeout,
        )
        copier.limit(self._bytes_per_second)
        return JournaledCopier(copier, journal)

    def _describe_cluster(self, name: str) -> LedgerCluster:
        metadata, seen = self._sessions.find_metadata(name), self._sessions.read_cluster(name)
        if seen.instance_id is None or seen.layout is None:
            raise UnreadError(f"{metadata.ledgers_root}/INSTANCEID", ValueError("its identity or layout is unknown"))
        uri = metadata_service_uri(self._sessions.connection(name), metadata.ledgers_root, seen.layout)
        return LedgerCluster(seen.instance_id, uri, password=self._password)
