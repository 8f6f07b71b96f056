"""The ZooKeeper sessions of a broker cluster and of its BookKeeper clusters, one for each ensemble."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kazoo.exceptions import NodeExistsError

from connectors.bookkeeper.identity import read_cluster, read_layout, read_lower_counters
from connectors.bookkeeper.ledgers import FoundLedgers, read_ledgers
from connectors.bookkeeper.settings import BookKeeperCluster, BookKeeperClusters
from connectors.switching.topic_owner import find_topic_owner, parse_cursor
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.outcomes import UnreadError
from connectors.zookeeper.session import ZooKeeperSession
from policies.errors import UserError
from policies.switching.clusters import ClusterSnapshot
from policies.switching.id_generators import hob_name

_READ_SECONDS = 10.0
_LOOKUP_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A BookKeeper cluster, and the session to its metadata."""

    name: str
    session: ZooKeeperSession
    ledgers_root: str
    """Below the chroot."""


class ClusterSessions:
    """The sessions of one broker cluster; close it, or use it as a context manager.

    Args:
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
        """The session of the brokers' own ZooKeeper."""
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
        """The names of all BookKeeper clusters."""
        return tuple(self._clusters.clusters)

    @property
    def bootstrap(self) -> str:
        """The BookKeeper cluster of the ledgers without attribution."""
        return self._clusters.bootstrap

    @property
    def leave_out(self) -> tuple[str, ...]:
        """Znodes that an inventory does not read."""
        return self._clusters.leave_out

    def connection(self, name: str) -> ZooKeeperConnection:
        """Return the connection to the ZooKeeper of a BookKeeper cluster. Raises as `find_metadata` does."""
        return self._find_cluster(name).zookeeper or self._connection

    def find_metadata(self, name: str) -> ClusterMetadata:
        """Return a BookKeeper cluster.

        Raises:
            UserError: the settings have no such cluster.
        """
        return ClusterMetadata(name, self._sessions[self.connection(name)], self._find_cluster(name).ledgers_root)

    def read_cluster(self, name: str) -> ClusterSnapshot:
        """Read the identity, layout and id generator of a BookKeeper cluster. Raises as `find_ledgers` does."""
        metadata = self.find_metadata(name)
        return read_cluster(metadata.session.reader(time_limit(_READ_SECONDS)), name, metadata.ledgers_root, 0)

    def read_lower_counters(self, name: str, hob: int | None) -> dict[int | None, int]:
        """Read the counters below the present one, see `identity.read_lower_counters`."""
        metadata = self.find_metadata(name)
        return read_lower_counters(metadata.session.reader(time_limit(_READ_SECONDS)), metadata.ledgers_root, hob)

    def advance_ids(self, name: str, hob: int) -> None:
        """Create a `HOB` in a cluster's id generator, unless it exists, so that new clients get its ids.

        BookKeeper must be able to write below it, so it gets the ACL of the root.

        Raises:
            UserError: the settings have no such cluster.
            NotConnectedError: its ZooKeeper cannot be reached.
            KazooException: it cannot be written.
        """
        metadata = self.find_metadata(name)
        client, folder = metadata.session.client(), f"{metadata.ledgers_root}/idgen-long"
        acls, _ = client.get_acls(metadata.ledgers_root)
        for path in (folder, f"{folder}/{hob_name(hob)}"):
            with suppress(NodeExistsError):
                client.create(path, b"", acl=acls)

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        """Look up ledgers of a BookKeeper cluster.

        Raises:
            UnreadError: a znode cannot be read, or the cluster's layout is unknown.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings have no such cluster.
        """
        metadata = self.find_metadata(name)
        reader = metadata.session.reader(time_limit(_READ_SECONDS + len(ledger_ids) * _LOOKUP_SECONDS))
        layout = read_layout(reader, metadata.ledgers_root)
        if layout is None:
            raise UnreadError(f"{metadata.ledgers_root}/LAYOUT", ValueError("it is unknown, or cannot be served"))
        return read_ledgers(reader, metadata.ledgers_root, layout, ledger_ids)

    def find_owner(self, path: str) -> str | None:
        """Return the broker that has loaded the topic of a cursor's znode, as `host:port`; None if there is none.

        Raises:
            UnreadError: it cannot be read.
            NotConnectedError: the brokers' ZooKeeper cannot be reached.
            ValueError: the path is not a cursor's, or the owner's name cannot be read.
        """
        return find_topic_owner(self.brokers.reader(time_limit(_READ_SECONDS)), parse_cursor(path))

    def _find_cluster(self, name: str) -> BookKeeperCluster:
        if name not in self._clusters.clusters:
            known = ", ".join(self._clusters.clusters)
            raise UserError(f"clusters.{self._cluster}.bookkeeper names no cluster {name}; it names {known}")
        return self._clusters.clusters[name]


def time_limit(seconds: float) -> Callable[[], float]:
    """Return a function that returns the rest of a time limit, which begins now."""
    until = time.monotonic() + seconds
    return lambda: until - time.monotonic()
