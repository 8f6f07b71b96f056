"""The collector for a cluster without access to its ZooKeeper: bookies, groups and affinity over HTTP."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Generic, TypeVar

from pydantic import ValidationError

from connectors.collection import DETAIL_LENGTH, Collector, PollMetrics, ReadErrors, first_problem
from connectors.isolation.registration import WatchedBookies, WatchedPulsarBookies
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.metadata import AffinityReader, read_broker_groups
from connectors.pulsar.referrers import BookieHttp
from connectors.pulsar.rest import PULSAR_READ_ERRORS
from connectors.zookeeper.affinity import AffinityTree
from connectors.zookeeper.json_znodes import LEDGERS_ELSEWHERE, read_bookies, read_racks
from connectors.zookeeper.session import ZOOKEEPER_READ_ERRORS, Reader, ZooKeeperSession
from policies.bookie_readings import BookieAffinity, BookieRacks, BookieRegistration, Bookies
from policies.observations import Outcome, Reading
from policies.units import UserError

# The base of both collectors of bookies: when they read, and how they publish.

DEBOUNCE_SECONDS = 0.1
"""Shortest time between two readings of the bookies, however many hints arrive."""

LeftSeconds = Callable[[], float]
"""Returns the time left for a reading; 0 once the collector must stop."""

Source = TypeVar("Source")
"""The client of one reading, or of two that share a time limit."""


class BookieCollector(Collector, Generic[Source]):
    """Reads one cluster periodically, and at once after a hint at a change; publishes each reading, failures included.

    The bookies and their groups are read one after the other. The namespaces' affinity is read in a thread of its own,
    because thousands of namespaces must not delay the readings of bookies.

    Args:
        poll_interval: interval between readings of the bookies and their groups.
        poll_limit_seconds: time limit of both together.
        affinity_seconds: interval between readings of the affinity, and time limit of each.
        publish: called with each reading from several threads; must not block.
    """

    def __init__(
        self,
        cluster: str,
        *,
        poll_interval: timedelta,
        poll_limit_seconds: float,
        affinity_seconds: float,
        errors: ReadErrors,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        super().__init__(cluster, poll_interval, publish, metrics)
        self._poll_limit_seconds = poll_limit_seconds
        self._affinity_seconds = affinity_seconds
        self._errors = errors
        self._polling = threading.Lock()
        self._polled_at = 0.0
        self._hinted = threading.Event()

    @abstractmethod
    def connect(self, left_seconds: LeftSeconds) -> Source:
        """Return the client of the next readings."""

    @abstractmethod
    def read_bookies(self, source: Source) -> Bookies:
        """Read the registered bookies."""

    @abstractmethod
    def read_racks(self, source: Source) -> BookieRacks:
        """Read the groups of the bookies."""

    @abstractmethod
    def read_affinity(self, source: Source) -> BookieAffinity:
        """Read the groups that the namespaces may use."""

    def hint(self, _event: object = None) -> None:
        """Request a reading, because something may have changed. From any thread; never blocks."""
        self._hinted.set()

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set, whatever goes wrong in a poll."""
        self._stop = stop
        helpers = [
            threading.Thread(target=target, name=f"{name} {self._cluster}", daemon=True)
            for name, target in (("hints", self._follow_hints), ("affinity", self._poll_affinity))
        ]
        for helper in helpers:
            helper.start()
        try:
            self._metrics.run_polls(self._cluster, self._poll_seconds, stop, self.poll_once)
        finally:
            stop.set()
            self._hinted.set()
            for helper in helpers:
                helper.join()
            self.close()

    def poll_once(self) -> None:
        """Read and publish the bookies and their groups. One can fail without the other."""
        with self._polling:
            self._polled_at = time.monotonic()
            super().poll_once()

    def _poll(self) -> None:
        self._read(self._poll_limit_seconds, ((Bookies, self.read_bookies), (BookieRacks, self.read_racks)))

    def poll_affinity_once(self) -> None:
        """Read and publish the affinity of all namespaces."""
        self._measure(lambda: self._read(self._affinity_seconds, ((BookieAffinity, self.read_affinity),)))

    def _read(self, limit_seconds: float, wanted: Sequence[tuple[type[Reading], Callable[[Source], Reading]]]) -> None:
        started = time.monotonic()
        try:
            source = self.connect(lambda: 0.0 if self._stop.is_set() else started + limit_seconds - time.monotonic())
        except self._errors.expected as error:
            for kind, _ in wanted:
                self._publish_reading(self._failure(kind, error), reading=kind.event_type)
        else:
            for kind, read in wanted:
                self._publish_reading(self._read_one(kind, read, source), reading=kind.event_type)

    def _read_one(self, kind: type[Reading], read: Callable[[Source], Reading], source: Source) -> Reading:
        try:
            return read(source)
        except self._errors.expected as error:
            return self._failure(kind, error)
        except ValidationError as error:
            detail = f"more or longer than a reading may hold: {first_problem(error)}"[:DETAIL_LENGTH]
            return kind(cluster=self._cluster, outcome=Outcome.ERROR, detail=detail)

    def _failure(self, kind: type[Reading], error: BaseException) -> Reading:
        return kind(cluster=self._cluster, **self._errors.failure(error))

    def _follow_hints(self) -> None:
        while self._hinted.wait():
            self._stop.wait(max(0.0, self._polled_at + DEBOUNCE_SECONDS - time.monotonic()))
            self._hinted.clear()  # the next poll covers the hints until now
            if self._stop.is_set():
                return
            self._metrics.run_poll(self._cluster, self.poll_once)

    def _poll_affinity(self) -> None:
        self._metrics.run_polls(self._cluster, self._affinity_seconds, self._stop, self.poll_affinity_once)


# The collector that reads bookies, their groups and the namespaces' affinity from ZooKeeper.

ZOOKEEPER_SOURCE = "headgate/collector/zookeeper"
"""The CloudEvents `source` of this collector's readings."""


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
        """Read the policies of all namespaces, and the groups of brokers; raises `ZOOKEEPER_READ_ERRORS`."""
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
            errors=ZOOKEEPER_READ_ERRORS,
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


PULSAR_SOURCE = "headgate/collector/pulsar"
"""The CloudEvents `source` of this collector's readings."""


class PulsarBookieCollector(BookieCollector[LeftSeconds]):
    """Reads a cluster over HTTP.

    HTTP shows neither session nor transaction of a registration, so a bookie that registers again between two readings
    is not noticed. A missing znode `/bookies` looks like one without groups.

    Args:
        admin: the admin REST API; shared with others, so not closed here.
        publish: called with each reading from two threads; must not block.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedPulsarBookies,
        admin: AdminApi,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        super().__init__(
            cluster,
            poll_interval=settings.poll_interval,
            poll_limit_seconds=settings.poll_interval.total_seconds(),
            affinity_seconds=settings.affinity_interval.total_seconds(),
            errors=PULSAR_READ_ERRORS,
            publish=publish,
            metrics=metrics,
        )
        self._admin = admin
        self._bookies = BookieHttp(settings.bookie_url, admin.settings)

    def close(self) -> None:
        """Close the connections to the bookies' endpoint; the next poll opens new ones."""
        self._bookies.close()

    def connect(self, left_seconds: LeftSeconds) -> LeftSeconds:
        """Return the time left. Each request connects by itself, with its own timeout."""
        return left_seconds

    def read_bookies(self, source: LeftSeconds) -> Bookies:  # noqa: ARG002 - see `connect`
        """Read the registered bookies from a bookie's endpoint, and all known ones from the admin REST API."""
        return Bookies(
            cluster=self._cluster,
            outcome=Outcome.OK,
            writable=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.writable()),
            read_only=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.read_only()),
            known=self._admin.known_bookies(),
        )

    def read_racks(self, source: LeftSeconds) -> BookieRacks:  # noqa: ARG002 - see `connect`
        """Read the groups from the admin REST API."""
        return BookieRacks(cluster=self._cluster, outcome=Outcome.OK, groups=self._admin.racks())

    def read_affinity(self, source: LeftSeconds) -> BookieAffinity:
        """Read the affinity with one or two requests for each namespace."""
        return AffinityReader(self._admin, self._affinity_seconds, source).read(self._cluster)
