"""Real brokers with the extensible load manager, which own bundles without a node in ZooKeeper."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.io import check_brokers
from connectors.sessions.ownership import OwnershipCollector
from connectors.sessions.registration import WatchedOwnership, WatchedSessions
from connectors.sessions.zookeeper_sessions import SessionCollector
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.alerts import Sender
from policies.book import Book, publish
from policies.decisions import Alert, Decision
from policies.observations import Observation, Outcome, Reading
from policies.sessions import OwnershipDecision, SessionDecision, SessionsSettings, SessionsState
from policies.sessions.policy import SessionsPolicy
from policies.sessions.readings import NAMESPACES
from tests.system.pulsar import CLUSTER, PulsarBroker, PulsarCluster
from tests.system.pulsar_topics import owner_of
from tests.system.waiting import DEADLINE_SECONDS, eventually

EXTENSIBLE = {"loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"}
TOPIC = "public/default/orders"


@pytest.fixture
def brokers(
    pulsar_jars: tuple[Path, ...], bookkeeper_jars: tuple[Path, ...], tmp_path: Path
) -> Iterator[PulsarCluster]:
    with PulsarCluster(tmp_path, pulsar_jars, bookkeeper_jars) as cluster:
        for _ in range(2):
            cluster.add_broker(properties=EXTENSIBLE, session_timeout_ms=12_000)
        yield cluster


class Decided:
    """The policy on what two collectors read of the cluster."""

    def __init__(self) -> None:
        settings = SessionsSettings(reconnect_deadline="1h", zombie_after="1h")
        self._policy, self._sender = SessionsPolicy(CLUSTER, settings), Sender.build("sessions", CLUSTER, settings)
        self._state: SessionsState | None = None
        self._book = Book()
        self._lock = threading.Lock()
        self._count = 0
        self.decisions: list[Decision] = []

    def take(self, reading: Reading) -> None:
        with self._lock:
            now = datetime.now(UTC)
            self._count += 1
            step = self._policy.step(self._state, [Observation(f"r{self._count}", now, reading)], now)
            self._state = step.state
            self._book, published = publish(self._book, step, now, self._sender)
            self.decisions += published.decisions

    def owners(self) -> dict[str, str | None]:
        """By path: the owners of the bundles that exist."""
        nodes = () if self._state is None else self._state.nodes
        return {node.path: node.owner for node in nodes if node.exists and node.path.startswith(f"{NAMESPACES}/")}

    def has_ordered(self, member: str, verdict: str) -> bool:
        """Whether the last decision on a member has this verdict."""
        orders = [d.verdict.value for d in self.decisions if isinstance(d, SessionDecision) and d.member == member]
        return orders[-1:] == [verdict]

    def find_recovery(self, member: str) -> SessionDecision:
        """The decision by which a member's recovery began."""
        orders = (d for d in self.decisions if isinstance(d, SessionDecision) and d.member == member)
        return next(d for d in orders if d.verdict == "recover")

    def rulings(self, member: str) -> dict[str, str]:
        """By path: the last verdict on each bundle of a member."""
        found = [d for d in self.decisions if isinstance(d, OwnershipDecision) and d.member == member]
        return {d.path: d.verdict.value for d in found}


@contextmanager
def watching(cluster: PulsarCluster, admin: AdminApi | None) -> Iterator[Decided]:
    decided, stop = Decided(), threading.Event()
    servers = cluster.zookeeper.servers
    session = ZooKeeperSession(CLUSTER, ZooKeeperConnection(servers=servers))
    metrics = PollMetrics(CollectorRegistry())
    settings = WatchedOwnership(poll_interval="300ms", republish="500ms")
    owned = OwnershipCollector(CLUSTER, settings, session, decided.take, metrics, admin=admin)
    watched = WatchedSessions(poll_interval="300ms", admin_url=cluster.zookeeper.admin_url)
    connection = ZooKeeperConnection(servers=servers)
    sessions = SessionCollector(CLUSTER, watched, connection, decided.take, PollMetrics(CollectorRegistry()))
    threads = [threading.Thread(target=each.run, args=(stop,)) for each in (owned, sessions)]
    for thread in threads:
        thread.start()
    try:
        yield decided
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        session.close()


def serving(admin: AdminApi, cluster: PulsarCluster) -> Callable[[], PulsarBroker | None]:
    """Find the broker that serves the topic by a lookup; None while there is none."""

    def find() -> PulsarBroker | None:
        url = owner_of(admin.settings.admin_url, TOPIC)
        return next((broker for broker in cluster.brokers if url.endswith(f":{broker.service_port}")), None)

    return find


def test_ownership_is_read_from_the_brokers_and_decided_on_and_unknown_without(brokers: PulsarCluster) -> None:
    with closing(AdminApi(PulsarAdmin(admin_url=brokers.admin_url))) as admin:
        found = check_brokers(admin)
        assert found.outcome is Outcome.OK
        assert found.detail.endswith("ExtensibleLoadManagerImpl, so ownership is read from the brokers")
        owner = eventually("the topic is served", serving(admin, brokers))
        with (
            closing(AdminApi(PulsarAdmin(admin_url=owner.admin_url))) as through_owner,
            watching(brokers, through_owner) as decided,
            watching(brokers, None) as blind,
        ):

            def find_path() -> str | None:
                owned = (p for p, name in decided.owners().items() if name == owner.broker_id)
                return next((path for path in owned if "public/default" in path), None)

            path = eventually("its owner is read", find_path)
            with brokers.zookeeper.client() as client:
                assert client.exists(path) is None, "or this test proves nothing"
            owner.freeze()
            for each in (decided, blind):
                eventually("its session is lost", partial(each.has_ordered, owner.broker_id, "reconnect"))
            owner.thaw()
            for each in (decided, blind):
                eventually("it has recovered", partial(each.has_ordered, owner.broker_id, "resume"))
        recover = decided.find_recovery(owner.broker_id)
        assert path in recover.bundles
        other = next(b for b in brokers.brokers if b is not owner)
        with closing(AdminApi(PulsarAdmin(admin_url=other.admin_url))) as others:
            now = eventually("the topic is served again", serving(others, brokers))
        assert decided.rulings(owner.broker_id)[path] == ("keep" if now is owner else "unload")
        recover = blind.find_recovery(owner.broker_id)
        assert (recover.bundle_count, blind.owners()) == (None, {})
        assert "it owned an unknown number of bundles" in recover.explanation
        unsupported = {d.alert for d in blind.decisions if isinstance(d, Alert) and d.reason == "unsupported"}
        assert unsupported == {"ownership-hidden"}, "ZooKeeper itself can be read"
