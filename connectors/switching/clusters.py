"""The ZooKeeper sessions of a broker cluster and of its BookKeeper clusters, one for each ensemble."""

import re
import time
import zlib
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from urllib.parse import unquote_plus

from connectors.bookkeeper.cluster import (
    FoundLedgers,
    ListedLedgers,
    list_ledgers,
    metadata_service_uri,
    read_cluster,
    read_layout,
    read_ledgers,
    read_lower_counters,
)
from connectors.bookkeeper.settings import BookKeeperCluster, BookKeeperClusters
from connectors.pulsar.metadata import MANAGED_LEDGERS
from connectors.zookeeper.json_znodes import owner_member
from connectors.zookeeper.session import ZOOKEEPER_READ_ERRORS, Reader, UnreadError, ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome
from policies.sessions.readings import BROKERS, NAMESPACES
from policies.switching.ledgers import ClusterSnapshot, Layout
from policies.switching.readings import SwitchBrokers
from policies.units import UserError

_READ_SECONDS = 10.0
_LOOKUP_SECONDS = 0.001
_LIST_SECONDS = 600.0


class ClusterSessions(ExitStack):
    """The sessions of one broker cluster, to its own ZooKeeper and those of its BookKeeper clusters."""

    def __init__(self, cluster: str, brokers: ZooKeeperConnection, settings: BookKeeperClusters) -> None:
        super().__init__()
        self.settings = settings
        self.cluster = cluster
        self._connection = brokers
        self._sessions: dict[ZooKeeperConnection, ZooKeeperSession] = {}
        for name, connection in [("", brokers), *((name, self.connection(name)) for name in settings.clusters)]:
            if connection not in self._sessions:
                session = ZooKeeperSession(f"{cluster}/{name}" if name else cluster, connection)
                self._sessions[connection] = session
                self.callback(session.close)

    @property
    def brokers(self) -> ZooKeeperSession:
        """The session of the brokers' own ZooKeeper."""
        return self._sessions[self._connection]

    def connection(self, name: str) -> ZooKeeperConnection:
        """Return the connection to the ZooKeeper of a BookKeeper cluster. Raises as `session` does."""
        return self._find_cluster(name).zookeeper or self._connection

    def session(self, name: str) -> ZooKeeperSession:
        """Return the session of a BookKeeper cluster. Raises UserError if the settings have no such cluster."""
        return self._sessions[self.connection(name)]

    def read_cluster(self, name: str) -> ClusterSnapshot:
        """Read the identity, layout and id generator of a BookKeeper cluster. Raises as `find_ledgers` does."""
        return read_cluster(*self._open(name, _READ_SECONDS), name)

    def identify(self, name: str) -> dict[str, str]:
        """Return name, URI, INSTANCEID and root of a BookKeeper cluster, as read now, for the registry.

        Raises as `find_ledgers` does, and UnreadError if its identity or its layout is unknown.
        """
        seen, connection = self.read_cluster(name), self.connection(name)
        if seen.instance_id is None or seen.root is None:
            raise UnreadError(f"{seen.root}/INSTANCEID", ValueError("it is empty, so the cluster cannot be identified"))
        if seen.layout is None:
            raise UnreadError(f"{seen.root}/LAYOUT", ValueError("it names neither hierarchical nor longhierarchical"))
        uri = metadata_service_uri(connection, self._find_cluster(name).ledgers_root, seen.layout)
        return {"name": name, "uri": uri, "instance_id": seen.instance_id, "root": seen.root}

    def read_lower_counters(self, seen: ClusterSnapshot) -> dict[int | None, int]:
        """Read the counters below the present one of a cluster, as `bookkeeper.cluster.read_lower_counters` does."""
        hob = seen.generator.hob if seen.generator else None
        return read_lower_counters(*self._open(seen.name, _READ_SECONDS), hob)

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        """Look up ledgers of a BookKeeper cluster.

        Raises:
            UnreadError: a znode cannot be read, or the cluster's layout is unknown.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings have no such cluster.
        """
        reader, root = self._open(name, _READ_SECONDS + len(ledger_ids) * _LOOKUP_SECONDS)
        return read_ledgers(reader, root, _read_layout(reader, root), ledger_ids)

    def list_ledgers(self, name: str) -> ListedLedgers:
        """List all ledgers of a BookKeeper cluster. Raises as `find_ledgers` does."""
        reader, root = self._open(name, _LIST_SECONDS)
        return list_ledgers(reader, root, _read_layout(reader, root))

    def read_brokers(self) -> SwitchBrokers:
        """Read the live brokers."""
        try:
            reader = self.brokers.reader(time_limit(_READ_SECONDS))
            reader.read(reader.client.sync_async, BROKERS)
            names = reader.read(reader.client.get_children_async, BROKERS)
        except ZOOKEEPER_READ_ERRORS.expected as error:
            return SwitchBrokers(cluster=self.cluster, **ZOOKEEPER_READ_ERRORS.failure(error))
        return SwitchBrokers(cluster=self.cluster, outcome=Outcome.OK, brokers=tuple(sorted(names or ())))

    def find_owner(self, path: str) -> str | None:
        """Return the broker that has loaded the topic of a cursor's znode, or may load it any time, as `host:port`.

        Brokers with the extensible load manager keep ownership elsewhere, so every topic of theirs seems to have no
        owner (None). Source: `NamespaceBundles` and `OwnershipCache` of Pulsar 4.2.

        Raises:
            UnreadError: it cannot be read.
            NotConnectedError: the brokers' ZooKeeper cannot be reached.
            ValueError: the path is not a cursor's, or the owner's name cannot be read.
        """
        namespace, topic = parse_topic(path)
        reader = self.brokers.reader(time_limit(_READ_SECONDS))
        folder = f"{NAMESPACES}/{namespace}"
        bundle = find_bundle(topic, reader.read(reader.client.get_children_async, folder) or ())
        answer = None if bundle is None else reader.read(reader.client.get_async, f"{folder}/{bundle}")
        if answer is None:
            return None
        member = owner_member(answer[0] or b"")
        if member is None:
            raise ValueError(f"{folder}/{bundle} does not name its owner")
        return member

    def _open(self, name: str, limit_seconds: float) -> tuple[Reader, str]:
        """Return a reader of a BookKeeper cluster's metadata, and the path of their root below the chroot."""
        return self.session(name).reader(time_limit(limit_seconds)), self._find_cluster(name).ledgers_root

    def _find_cluster(self, name: str) -> BookKeeperCluster:
        if (found := self.settings.clusters.get(name)) is None:
            known = ", ".join(self.settings.clusters)
            raise UserError(f"clusters.{self.cluster}.bookkeeper names no cluster {name}; it names {known}")
        return found


def _read_layout(reader: Reader, root: str) -> Layout:
    if (layout := read_layout(reader, root)) is None:
        raise UnreadError(f"{root}/LAYOUT", ValueError("it is unknown, or cannot be served"))
    return layout


def time_limit(seconds: float) -> Callable[[], float]:
    """Return a function that returns the rest of a time limit, which begins now."""
    until = time.monotonic() + seconds
    return lambda: until - time.monotonic()


_CURSOR = re.compile(rf"{MANAGED_LEDGERS}/(?P<namespace>[^/]+/[^/]+(?:/[^/]+)?)/persistent/(?P<topic>[^/]+)/[^/]+")
_BUNDLE = re.compile(r"0x(?P<lower>[0-9a-f]{8})_0x(?P<upper>[0-9a-f]{8})")
_LAST = 0xFFFF_FFFF


def parse_topic(path: str) -> tuple[str, str]:
    """Return namespace and full name of the topic of a cursor's znode, in which the topic's name is URL-encoded.

    The namespace is `tenant/namespace`; in Pulsar's first topic names `tenant/cluster/namespace`.

    Raises ValueError if the path is not a cursor's.
    """
    match = _CURSOR.fullmatch(path)
    if match is None:
        raise ValueError(f"{path} is not the znode of a cursor")
    return match["namespace"], f"persistent://{match['namespace']}/{unquote_plus(match['topic'])}"


def find_bundle(topic: str, bundles: Iterable[str]) -> str | None:
    """Return the bundle whose range contains the CRC32 of a topic's name, such as `0x40000000_0x80000000`, or None.

    During a split, a bundle and its halves exist together; they have the same owner.
    """
    hashed = zlib.crc32(topic.encode())
    ranges = (
        (int(match["lower"], 16), int(match["upper"], 16), match[0])
        for match in map(_BUNDLE.fullmatch, bundles)
        if match is not None
    )
    # The upper end belongs to the next bundle, except for the last bundle.
    fitting = [(upper - lower, name) for lower, upper, name in ranges if lower <= hashed < upper + (upper == _LAST)]
    return min(fitting)[1] if fitting else None
