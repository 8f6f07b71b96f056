"""The collector of bookies, their groups and the namespaces' affinity: from ZooKeeper, or over HTTP without access."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

import httpx
from pydantic import ValidationError

from connectors.actuation.order_worker import ActionError, UnknownOutcomeError
from connectors.collection import DETAIL_LENGTH, Collector, PollMetrics, ReadErrors, first_problem
from connectors.http.client import MAX_CONNECTIONS
from connectors.http.rest import REST_READ_ERRORS, AdminError, describe_rest_error, was_not_done
from connectors.isolation.groups import (
    ConflictError,
    RacksSnapshot,
    RackStore,
    ZooKeeperRacks,
    find_group,
    parse_host,
)
from connectors.isolation.registration import WatchedBookies, WatchedPulsarBookies
from connectors.pulsar.admin import AdminApi, BookieHttp
from connectors.zookeeper.bookies import (
    LEDGERS_ELSEWHERE,
    AffinityDocument,
    GoodNodes,
    broker_isolations,
    namespace_affinity,
    read_affinity,
    read_bookies,
    read_racks,
    split_groups,
)
from connectors.zookeeper.session import ZOOKEEPER_READ_ERRORS, ZooKeeperSession
from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    BrokerGroups,
    BrokerIsolation,
    NamespaceAffinity,
)
from policies.observations import Outcome, Reading
from policies.units import UserError

DEBOUNCE_SECONDS = 0.1
"""Shortest time between two readings of the bookies, however many hints arrive."""

LeftSeconds = Callable[[], float]
"""Returns the time left for a reading; 0 once the collector must stop."""
Reads = Mapping[type[Reading], Callable[[LeftSeconds], Reading]]
Hint = Callable[..., None]


class BookieSource(ABC):
    """One way to read the bookies of a cluster. Each method raises `errors`."""

    errors: ClassVar[ReadErrors]
    name: ClassVar[str]
    """The CloudEvents `source` of its readings."""
    poll_limit_seconds: float
    """Time limit of the readings of bookies and groups together."""

    def __init__(self, cluster: str, settings: WatchedBookies | WatchedPulsarBookies) -> None:
        self.cluster = cluster
        self.poll_interval = settings.poll_interval
        self.affinity_seconds = settings.affinity_interval.total_seconds()
        """Interval between readings of the affinity, and time limit of each."""
        self.poll_limit_seconds = settings.poll_interval.total_seconds()

    @abstractmethod
    def read_bookies(self, left_seconds: LeftSeconds) -> Bookies:
        """Read the registered bookies."""

    @abstractmethod
    def read_racks(self, left_seconds: LeftSeconds) -> BookieRacks:
        """Read the groups of the bookies."""

    @abstractmethod
    def read_affinity(self, left_seconds: LeftSeconds) -> BookieAffinity:
        """Read the groups that the namespaces may use."""

    @abstractmethod
    def open_store(self) -> RackStore:
        """Return the store of the groups, for an actuator."""

    def listen(self, hint: Hint) -> None:  # noqa: B027 - some have no hints
        """Call a function, from any thread, when something may have changed."""

    def close(self) -> None:  # noqa: B027 - some use shared connections only
        """Close the connections that the source has opened; the next reading opens new ones."""


class BookieCollector(Collector):
    """Reads one cluster periodically, and at once after a hint at a change; publishes each reading, failures included.

    The bookies and their groups are read one after the other. The namespaces' affinity is read in a thread of its own,
    because thousands of namespaces must not delay the readings of bookies.

    Args:
        publish: called with each reading from several threads; must not block.
    """

    def __init__(self, source: BookieSource, publish: Callable[[Reading], None], metrics: PollMetrics) -> None:
        super().__init__(source.cluster, source.poll_interval, publish, metrics)
        self._source = source
        self._polling = threading.Lock()
        self._polled_at = 0.0
        self._hinted = threading.Event()
        source.listen(self.hint)

    def hint(self, _event: object = None) -> None:
        """Request a reading, because something may have changed. From any thread; never blocks."""
        self._hinted.set()

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set, whatever goes wrong in a poll."""
        self._stop = stop
        affinity = (self._cluster, self._source.affinity_seconds, stop, self.poll_affinity_once)
        with ThreadPoolExecutor(2, thread_name_prefix=f"bookies {self._cluster}") as helpers:
            helpers.submit(self._follow_hints)
            helpers.submit(self._metrics.run_polls, *affinity)
            try:
                super().run(stop)
            finally:
                stop.set()
                self._hinted.set()
        self.close()

    def close(self) -> None:
        """Close the connections of the source."""
        self._source.close()

    def poll_once(self) -> None:
        """Read and publish the bookies and their groups. One can fail without the other."""
        with self._polling:
            self._polled_at = time.monotonic()
            super().poll_once()

    def _poll(self) -> None:
        reads: Reads = {Bookies: self._source.read_bookies, BookieRacks: self._source.read_racks}
        self._read(self._source.poll_limit_seconds, reads)

    def poll_affinity_once(self) -> None:
        """Read and publish the affinity of all namespaces."""
        limit_seconds = self._source.affinity_seconds
        self._measure(lambda: self._read(limit_seconds, {BookieAffinity: self._source.read_affinity}))

    def _read(self, limit_seconds: float, wanted: Reads) -> None:
        until = time.monotonic() + limit_seconds
        for kind, read in wanted.items():
            try:
                reading = read(lambda: 0.0 if self._stop.is_set() else until - time.monotonic())
            except self._source.errors.expected as error:
                reading = kind(cluster=self._cluster, **self._source.errors.failure(error))
            except ValidationError as error:
                detail = f"more or longer than a reading may hold: {first_problem(error)}"[:DETAIL_LENGTH]
                reading = kind(cluster=self._cluster, outcome=Outcome.ERROR, detail=detail)
            self._publish_reading(reading, reading=kind.event_type)

    def _follow_hints(self) -> None:
        while self._hinted.wait():
            self._stop.wait(max(0.0, self._polled_at + DEBOUNCE_SECONDS - time.monotonic()))
            self._hinted.clear()  # the next poll covers the hints until now
            if self._stop.is_set():
                return
            self._metrics.run_poll(self._cluster, self.poll_once)


class ZooKeeperBookies(BookieSource):
    """Reads a cluster from its ZooKeeper; watches hint at changes. All sessions are shared, so not closed here.

    Args:
        session: the brokers' ZooKeeper.
        admin: the admin REST API, from which the groups of brokers are read; None if the settings have none.
        ledgers: BookKeeper's own ZooKeeper; None if it is the same one.
        store: the brokers' configuration store, likewise.
    """

    errors = ZOOKEEPER_READ_ERRORS
    name = "headgate/collector/zookeeper"

    def __init__(
        self,
        cluster: str,
        settings: WatchedBookies,
        session: ZooKeeperSession,
        admin: AdminApi | None = None,
        *,
        ledgers: ZooKeeperSession | None = None,
        store: ZooKeeperSession | None = None,
    ) -> None:
        super().__init__(cluster, settings)
        self.poll_limit_seconds = min(session.connection.timeout_seconds, self.poll_limit_seconds)
        self._settings = settings
        self._session = session
        self._admin = admin
        self._ledgers = ledgers or session
        self._store = store
        self._nodes = GoodNodes()
        self._has_seen_bookies = False
        self._hint: Hint = lambda _: None

    def listen(self, hint: Hint) -> None:
        """Call a function when a watched node changes, or a connection is made or lost."""
        self._hint = hint
        for session in {self._session, self._ledgers}:
            session.listen(hint)

    def read_bookies(self, left_seconds: LeftSeconds) -> Bookies:
        """Read the registration tree. One that never had a bookie, though groups have members, is not the brokers' one.

        Raises:
            UserError: no bookie has ever registered here.
        """
        reader, root = self._ledgers.reader(left_seconds), self._settings.ledgers_root
        reading = read_bookies(reader, self.cluster, root, self._hint)
        self._has_seen_bookies |= bool(reading.writable or reading.read_only or reading.known)
        if not self._has_seen_bookies and self._has_members(left_seconds):
            raise UserError(f"no bookie has ever registered below {reader.client.chroot}{root}: {LEDGERS_ELSEWHERE}")
        return reading

    def open_store(self) -> RackStore:
        """Return the znode with the groups, over sessions of its own."""
        paths, ledgers = (self._settings.bookies_path, self._settings.ledgers_root), self._ledgers.connection
        return ZooKeeperRacks(self.cluster, self._session.connection, *paths, ledgers)

    def _has_members(self, left_seconds: LeftSeconds) -> bool:
        with suppress(UserError):
            return any((self.read_racks(left_seconds).groups or {}).values())
        return False

    def read_racks(self, left_seconds: LeftSeconds) -> BookieRacks:
        """Read the znode with the groups."""
        return read_racks(self._session.reader(left_seconds), self.cluster, self._settings.bookies_path, self._hint)

    def read_affinity(self, left_seconds: LeftSeconds) -> BookieAffinity:
        """Read the policies of all namespaces, and the groups of brokers."""
        reader = self._session.reader(left_seconds)
        groups = None if self._admin is None else read_broker_groups(self._admin)
        store = None if self._store is None else self._store.reader(left_seconds)
        return read_affinity(reader, self.cluster, self._nodes, groups, store)


class PulsarBookies(BookieSource):
    """Reads a cluster over HTTP, and is the store of its groups.

    HTTP shows neither session nor transaction of a registration, so a bookie that registers again between two readings
    is not noticed. A missing znode `/bookies` looks like one without groups. A write is unconditional and removes the
    bookie from any other group: an assignment that another client makes between our read and our write is undone. The
    groups are read directly before and after, which makes this improbable, not impossible.

    Args:
        admin: the admin REST API; shared with others, so not closed here.
    """

    errors = REST_READ_ERRORS
    name = "headgate/collector/pulsar"

    def __init__(
        self,
        cluster: str,
        settings: WatchedPulsarBookies,
        admin: AdminApi,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(cluster, settings)
        self._admin = admin
        self._bookies = BookieHttp(settings.bookie_url, admin.settings, transport)
        self._clock = clock

    def close(self) -> None:
        """Close the connections to the bookies' endpoint; the next poll opens new ones."""
        self._bookies.close()

    def open_store(self) -> RackStore:
        """Return this source."""
        return self

    def read_groups(self, bookie: str) -> RacksSnapshot:
        """Read the groups, and whether a bookie is registered.

        Raises:
            ActionError: no usable answer.
        """
        try:
            # The groups come last: they must be the fresher ones.
            writable = frozenset(self._bookies.listed("rw"))
            groups = self._admin.racks()
        except REST_READ_ERRORS.expected as error:
            raise ActionError(describe_rest_error(error)) from None
        registration = BookieRegistration(bookie=bookie) if bookie in writable else None
        return RacksSnapshot(groups, registration, writable, self._clock(), partial(self._write, bookie))

    def _write(self, bookie: str, group: str, rack: str) -> datetime:
        try:
            self._admin.set_rack(bookie, group, rack, parse_host(bookie))
        except REST_READ_ERRORS.expected as error:
            kind = ActionError if was_not_done(error) else UnknownOutcomeError
            raise kind(describe_rest_error(error)) from None
        at = self._clock()
        try:
            groups = self._admin.racks()
        except REST_READ_ERRORS.expected as error:
            raise UnknownOutcomeError(describe_rest_error(error)) from None
        if find_group(groups, bookie) != group:
            raise ConflictError("others changed its group each time")
        return at

    def read_bookies(self, left_seconds: LeftSeconds) -> Bookies:  # noqa: ARG002 - each request has its own limit
        """Read the registered bookies from a bookie's endpoint, and all known ones from the admin REST API."""
        return Bookies(
            cluster=self.cluster,
            outcome=Outcome.OK,
            writable=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.listed("rw")),
            read_only=tuple(BookieRegistration(bookie=bookie) for bookie in self._bookies.listed("ro")),
            known=self._admin.known_bookies(),
        )

    def read_racks(self, left_seconds: LeftSeconds) -> BookieRacks:  # noqa: ARG002 - as for the bookies
        """Read the groups from the admin REST API."""
        return BookieRacks(cluster=self.cluster, outcome=Outcome.OK, groups=self._admin.racks())

    def read_affinity(self, left_seconds: LeftSeconds) -> BookieAffinity:
        """Read all namespaces: two requests for one with affinity, one for one without.

        Those without are omitted, unless brokers have groups for them.

        Raises:
            AdminError: the time is over, or a request failed; then no namespace can be reported.
        """
        admin = self._admin

        def list_namespaces(tenant: str) -> tuple[str, ...]:
            self._require_time(left_seconds)
            return admin.namespaces(tenant)

        def ask(name: str) -> NamespaceAffinity | None:
            self._require_time(left_seconds)
            affinity = admin.affinity(name) or (AffinityDocument() if groups else None)
            return None if affinity is None else namespace_affinity(affinity, admin.persistence(name))

        # The first failure cancels all requests but those that are under way, which end by their timeouts.
        with ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix=f"affinity {self.cluster}") as threads:
            names = [name for names in threads.map(list_namespaces, admin.tenants()) for name in names]
            groups = read_broker_groups(admin)
            affinities = list(threads.map(ask, names))
        found = {name: affinity for name, affinity in zip(names, affinities, strict=True) if affinity is not None}
        return BookieAffinity(
            cluster=self.cluster,
            outcome=Outcome.OK,
            namespaces=dict(sorted(found.items())),
            broker_groups=groups,
            broker_policies=self._read_broker_policies() if left_seconds() > 0 else None,
        )

    def _read_broker_policies(self) -> tuple[BrokerIsolation, ...] | None:
        """Return None if they cannot be read, for example without superuser rights; the affinity needs them not."""
        try:
            policies = self._admin.isolation_policies()
        except REST_READ_ERRORS.expected:
            return None
        return tuple(each for name, documents in policies.items() for each in broker_isolations(name, documents))

    def _require_time(self, left_seconds: LeftSeconds) -> None:
        if left_seconds() <= 0:
            message = f"not all namespaces answered within the affinity_interval, {self.affinity_seconds:g} s"
            raise AdminError(Outcome.TIMEOUT, message)


def read_broker_groups(admin: AdminApi) -> BrokerGroups | None:
    """Return the groups for namespaces without affinity, by one broker; None if they cannot be read."""
    try:
        return parse_broker_groups(admin.runtime_configuration())
    except REST_READ_ERRORS.expected:
        return None


def parse_broker_groups(configuration: Mapping[str, str | None]) -> BrokerGroups:
    """Return the groups for namespaces without affinity, by a broker's settings."""
    names = ("bookkeeperClientIsolationGroups", "bookkeeperClientSecondaryIsolationGroups")
    primary, secondary = (split_groups(configuration.get(name)) for name in names)
    return BrokerGroups(primary=primary, secondary=secondary)
