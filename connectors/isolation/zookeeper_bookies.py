"""The collector that reads bookies, their groups and the namespaces' affinity from ZooKeeper."""

from collections.abc import Callable
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, Field

from connectors.collection.poll_metrics import PollMetrics
from connectors.isolation.bookie_collector import BookieCollector, LeftSeconds
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.affinity import read_broker_groups
from connectors.zookeeper.affinity import AffinityTree
from connectors.zookeeper.connection import ZnodePath, ZooKeeperConnection
from connectors.zookeeper.outcomes import READ_ERRORS
from connectors.zookeeper.registrations import LEDGERS_ELSEWHERE, read_bookies, read_racks
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.tree import Reader
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.errors import UserError
from policies.observations import Reading
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/zookeeper"
"""The CloudEvents `source` of this collector's readings."""


class WatchedBookies(BaseModel):
    """Settings of the collector from ZooKeeper."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("5s"),
        description="Interval between readings of the bookies and their groups; watches show most changes at once.",
    )
    affinity_interval: PositiveDuration = Field(
        default=parse_duration("30s"),
        description="Interval between readings of the namespaces' affinity; with thousands of namespaces not short.",
    )
    ledgers: ZooKeeperConnection | None = Field(
        default=None,
        description="The ZooKeeper with BookKeeper's metadata (the brokers' bookkeeperMetadataServiceUri), if it is "
        "not `zookeeper`.",
    )
    ledgers_root: ZnodePath = Field(default="/ledgers", description="Root of BookKeeper's metadata, below the chroot.")
    bookies_path: ZnodePath = Field(
        default="/bookies", description="The znode with the groups of bookies, below the chroot."
    )


class ZooKeeperPolicies:
    """The policies of one cluster's namespaces, and the groups of its brokers.

    Args:
        session: the brokers' ZooKeeper; shared with others, so not closed here.
        store: their configuration store, likewise; None if it is the same ZooKeeper.
        admin: the admin REST API, from which the groups of brokers are read; None if the settings have none.
    """

    def __init__(
        self, cluster: str, session: ZooKeeperSession, store: ZooKeeperSession | None, admin: AdminApi | None
    ) -> None:
        self._cluster = cluster
        self._session = session
        self._store = store
        self._admin = admin
        self._tree = AffinityTree()

    def read(self, left_seconds: LeftSeconds) -> BookieAffinity:
        """Read the policies of all namespaces, and the groups of brokers; raises the errors of `READ_ERRORS`."""
        groups = None if self._admin is None else read_broker_groups(self._admin)
        store = None if self._store is None else self._store.reader(left_seconds)
        return self._tree.read(self._session.reader(left_seconds), self._cluster, groups, store)


class ZooKeeperBookieCollector(BookieCollector[Reader]):
    """Reads a cluster from its ZooKeeper; watches hint at changes.

    Args:
        session: the ZooKeeper session; shared with others, so not closed here.
        admin: the admin REST API, from which the groups of brokers are read; None if the settings have none.
        ledgers: the session of BookKeeper's own ZooKeeper, likewise shared; None if it is the same one.
        store: the session of the brokers' configuration store, likewise.
        publish: called with each reading from several threads; must not block.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedBookies,
        session: ZooKeeperSession,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        admin: AdminApi | None = None,
        *,
        ledgers: ZooKeeperSession | None = None,
        store: ZooKeeperSession | None = None,
    ) -> None:
        super().__init__(
            cluster,
            poll_interval=settings.poll_interval,
            poll_limit_seconds=min(session.connection.timeout_seconds, settings.poll_interval.total_seconds()),
            affinity_seconds=settings.affinity_interval.total_seconds(),
            errors=READ_ERRORS,
            publish=publish,
            metrics=metrics,
        )
        self._settings = settings
        self._session = session
        self._policies = ZooKeeperPolicies(cluster, session, store, admin)
        self._ledgers = ledgers
        self._has_seen_bookies = False
        for each in (session, ledgers):
            if each is not None:
                each.listen(self.hint)

    def connect(self, left_seconds: LeftSeconds) -> Reader:
        """Return a reader of the session."""
        return self._session.reader(left_seconds)

    def read_bookies(self, source: Reader) -> Bookies:
        """Read the registration tree. One that never had a bookie, though groups have members, is not the brokers' one.

        Raises:
            UserError: no bookie has ever registered here.
        """
        reader = source if self._ledgers is None else self._ledgers.reader(source.left_seconds)
        root = self._settings.ledgers_root
        reading = read_bookies(reader, self._cluster, root, self.hint)
        self._has_seen_bookies |= bool(reading.writable or reading.read_only or reading.known)
        if not self._has_seen_bookies and self._has_members(source):
            raise UserError(f"no bookie has ever registered below {reader.client.chroot}{root}: {LEDGERS_ELSEWHERE}")
        return reading

    def _has_members(self, source: Reader) -> bool:
        with suppress(UserError):
            return any((self.read_racks(source).groups or {}).values())
        return False

    def read_racks(self, source: Reader) -> BookieRacks:
        """Read the znode with the groups."""
        return read_racks(source, self._cluster, self._settings.bookies_path, self.hint)

    def read_affinity(self, source: Reader) -> BookieAffinity:
        """Read the policies of all namespaces, and the groups of brokers."""
        return self._policies.read(source.left_seconds)
