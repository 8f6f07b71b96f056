"""The ZooKeeper sessions of a broker cluster and of its BookKeeper clusters, one for each ensemble."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from connectors.bookkeeper.identity import read_cluster, read_layout
from connectors.bookkeeper.ledgers import FoundLedgers, read_ledgers
from connectors.bookkeeper.settings import BookKeeperCluster, BookKeeperClusters
from connectors.switching.topic_owner import cursor_of, owner_of_topic
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.outcomes import UnreadError
from connectors.zookeeper.session import ZooKeeperSession
from policies.errors import UserError
from policies.switching.clusters import ClusterSnapshot

_READ_SECONDS = 10.0
_LOOKUP_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A BookKeeper cluster, and how its metadata is reached."""

    name: str
    session: ZooKeeperSession
    ledgers_root: str
    """Below the chroot."""


class ClusterSessions:
    """The sessions of one broker cluster; close it, or use it as a context manager.

    Args:
        cluster: the broker cluster's name.
        brokers: its own ZooKeeper.
        clusters: the BookKeeper clusters it may write to.
    """

    def __init__(self, cluster: str, brokers: ZooKeeperConnection, clusters: BookKeeperClusters) -> None:
        self._cluster = cluster
        self._connection = brokers
        self._clusters = clusters
        self._sessions: dict[ZooKeeperConnection, ZooKeeperSession] = {brokers: ZooKeeperSession(cluster, brokers)}
        for name in clusters.clusters:
            connection = self.connection(name)
            if connection not in self._sessions:
                self._sessions[connection] = ZooKeeperSession(f"{cluster}/{name}", connection)

    @property
    def brokers(self) -> ZooKeeperSession:
        """Of the brokers' own ZooKeeper."""
        return self._sessions[self._connection]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all sessions."""
        for session in self._sessions.values():
            session.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Of all BookKeeper clusters."""
        return tuple(self._clusters.clusters)

    @property
    def bootstrap(self) -> str:
        """The BookKeeper cluster that holds what is not attributed."""
        return self._clusters.bootstrap

    @property
    def leave_out(self) -> tuple[str, ...]:
        """Znodes that an inventory does not read."""
        return self._clusters.leave_out

    def connection(self, name: str) -> ZooKeeperConnection:
        """How the ZooKeeper of a BookKeeper cluster is reached; raises as `metadata_of` does."""
        return self._known(name).zookeeper or self._connection

    def metadata_of(self, name: str) -> ClusterMetadata:
        """A BookKeeper cluster.

        Raises:
            UserError: the settings name no such cluster.
        """
        return ClusterMetadata(name, self._sessions[self.connection(name)], self._known(name).ledgers_root)

    def read_cluster(self, name: str) -> ClusterSnapshot:
        """What a BookKeeper cluster is now: identity, layout, id generator. Raises as `find_ledgers` does."""
        metadata = self.metadata_of(name)
        return read_cluster(metadata.session.reader(within(_READ_SECONDS)), name, metadata.ledgers_root, 0)

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        """Look ledgers of a BookKeeper cluster up.

        Raises:
            UnreadError: a znode cannot be read, or the cluster's layout is unknown.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings name no such cluster.
        """
        metadata = self.metadata_of(name)
        reader = metadata.session.reader(within(_READ_SECONDS + len(ledger_ids) * _LOOKUP_SECONDS))
        layout = read_layout(reader, metadata.ledgers_root)
        if layout is None:
            raise UnreadError(f"{metadata.ledgers_root}/LAYOUT", ValueError("it is unknown, or cannot be served"))
        return read_ledgers(reader, metadata.ledgers_root, layout, ledger_ids)

    def owner_of(self, path: str) -> str | None:
        """Who has the topic of a cursor's znode loaded, as `host:port`; None: nobody.

        Raises:
            UnreadError: it cannot be read.
            NotConnectedError: the brokers' ZooKeeper cannot be reached.
            ValueError: the path is no cursor's, or its owner does not say who it is.
        """
        return owner_of_topic(self.brokers.reader(within(_READ_SECONDS)), cursor_of(path))

    def _known(self, name: str) -> BookKeeperCluster:
        if name not in self._clusters.clusters:
            known = ", ".join(self._clusters.clusters)
            raise UserError(f"clusters.{self._cluster}.bookkeeper names no cluster {name}; it names {known}")
        return self._clusters.clusters[name]


def within(seconds: float) -> Callable[[], float]:
    """How much is left of a time that begins now."""
    until = time.monotonic() + seconds
    return lambda: until - time.monotonic()
