"""The collector that reads bookies, their groups and the namespaces' affinity from ZooKeeper."""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from connectors.collection.poll_metrics import PollMetrics
from connectors.isolation.bookie_collector import BookieCollector, LeftSeconds
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.affinity import read_broker_groups
from connectors.zookeeper.affinity import AffinityTree
from connectors.zookeeper.connection import ZnodePath
from connectors.zookeeper.outcomes import READ_ERRORS
from connectors.zookeeper.registrations import read_bookies, read_racks
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.tree import Reader
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
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
    ledgers_root: ZnodePath = Field(default="/ledgers", description="Root of BookKeeper's metadata, below the chroot.")
    bookies_path: ZnodePath = Field(
        default="/bookies", description="The znode with the groups of bookies, below the chroot."
    )


class ZooKeeperBookieCollector(BookieCollector[Reader]):
    """Reads a cluster from its ZooKeeper; watches hint at changes.

    Args:
        session: the ZooKeeper session; shared with others, so not closed here.
        admin: the admin REST API, from which the groups of brokers are read; None if the settings have none.
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
        self._affinity = AffinityTree()
        self._admin = admin
        session.listen(self.hint)

    def connect(self, left_seconds: LeftSeconds) -> Reader:
        """Return a reader of the session."""
        return self._session.reader(left_seconds)

    def read_bookies(self, source: Reader) -> Bookies:
        """Read the registration tree."""
        return read_bookies(source, self._cluster, self._settings.ledgers_root, self.hint)

    def read_racks(self, source: Reader) -> BookieRacks:
        """Read the znode with the groups."""
        return read_racks(source, self._cluster, self._settings.bookies_path, self.hint)

    def read_affinity(self, source: Reader) -> BookieAffinity:
        """Read the policies of all namespaces, and the groups of brokers."""
        groups = None if self._admin is None else read_broker_groups(self._admin)
        return self._affinity.read(source, self._cluster, groups)
