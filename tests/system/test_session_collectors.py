"""The collectors of sessions and ownership on a real ZooKeeper, with clients that freeze, are cut off and end."""

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.sessions.ownership import OwnedNodes, OwnershipCollector
from connectors.sessions.registration import WatchedOwnership, WatchedSessions
from connectors.sessions.zookeeper_sessions import SessionCollector
from connectors.zookeeper.server_admin import AdminServer
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome, Reading
from policies.sessions.readings import LEADER, NodeKind, Ownership, Ownerships, SessionState, ZkSession
from tests.system.processes import freeze
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import ZooKeeper, free_port

CONNECTED, DISCONNECTED = SessionState.CONNECTED, SessionState.DISCONNECTED
EXPIRED, CLOSED = SessionState.EXPIRED, SessionState.CLOSED

T = 12.0
"""Session timeout. A collector has half of it to notice that a client is silent before the session expires."""
POLL = 0.2

MEMBER = "b1:8080"
REGISTRATION = f"/loadbalance/brokers/{MEMBER}"

CLIENT = f"""
import sys, time
from kazoo.client import KazooClient
client = KazooClient(sys.argv[1], timeout={T})
client.start(timeout={DEADLINE_SECONDS})
client.create("{REGISTRATION}", b"{{}}", ephemeral=True, makepath=True)
print("registered", flush=True)
time.sleep(600)
"""


@pytest.fixture
def chroot(zookeeper: ZooKeeper) -> str:
    path = f"/sessions-{secrets.token_hex(4)}"
    with zookeeper.client() as client:
        client.create(path)
    return path


class Watch:
    """A collector that runs, and what it published, each reading with its time."""

    def __init__(self, server: ZooKeeper, servers: str, **settings: Any) -> None:
        self.readings: list[tuple[float, ZkSession]] = []
        watched = WatchedSessions(poll_interval=f"{int(POLL * 1000)}ms", admin_url=server.admin_url, **settings)
        connection = ZooKeeperConnection(servers=servers)
        metrics = PollMetrics(CollectorRegistry())
        self._collector = SessionCollector("payments", watched, connection, self._take, metrics)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._collector.run, args=(self._stop,))

    def _take(self, reading: Reading) -> None:
        assert isinstance(reading, ZkSession)
        self.readings.append((time.monotonic(), reading))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def _latest(self, member: str | None) -> tuple[float, ZkSession] | None:
        return next((each for each in reversed(self.readings) if each[1].member == member), None)

    def await_reading(
        self, wanted: Callable[[ZkSession], bool], member: str | None = MEMBER
    ) -> tuple[float, ZkSession]:
        """Wait until the latest reading is the wanted one, and return it with the time it was published."""

        def latest() -> tuple[float, ZkSession] | None:
            found = self._latest(member)
            return found if found is not None and wanted(found[1]) else None

        return eventually(f"the wanted reading of {member}, after {self.readings[-5:]}", latest)

    def await_state(self, state: SessionState, session: int | None = None, member: str = MEMBER) -> float:
        """Wait until the member's session is in this state; returns when that was published."""
        name = None if session is None else f"0x{session:x}"
        return self.await_reading(lambda each: each.state is state and name in (None, each.session), member)[0]

    def states(self) -> list[SessionState | None]:
        """In their order; of a member in trouble each poll tells again."""
        told = (reading.state for _, reading in self.readings if reading.member == MEMBER)
        return [state for state, _ in groupby(told)]


@contextmanager
def child(servers: str) -> Iterator[int]:
    """A process with a registered session, and its id; killed in the end."""
    process = subprocess.Popen([sys.executable, "-c", CLIENT, servers], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "registered\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def register(client: KazooClient, path: str = REGISTRATION) -> int:
    client.retry(client.create, path, b"{}", ephemeral=True, makepath=True)
    return int(client.client_id[0])


class TestStates:
    def test_a_frozen_process_is_disconnected_after_half_its_timeout_and_expired_after_all_of_it(
        self, zookeeper: ZooKeeper, chroot: str
    ) -> None:
        servers = zookeeper.servers + chroot
        with Watch(zookeeper, servers) as watch, child(servers) as pid:
            watch.await_state(CONNECTED)
            asked_at = time.monotonic()
            freeze(pid)
            # Its last sign of life is up to a third of T older.
            silent_at = watch.await_state(DISCONNECTED)
            assert silent_at - asked_at > T / 2 - T / 3 - POLL
            expired_at = watch.await_state(EXPIRED)
            assert expired_at - asked_at > T - T / 3 - POLL
            assert watch.states()[-3:] == [CONNECTED, DISCONNECTED, EXPIRED]

    def test_a_cut_connection_is_seen_and_its_healing_too(self, zookeeper: ZooKeeper, chroot: str) -> None:
        with (
            TcpProxy(zookeeper.servers) as proxy,
            Watch(zookeeper, zookeeper.servers + chroot) as watch,
            KazooSession(proxy.address + chroot) as client,
        ):
            session = register(client)
            watch.await_state(CONNECTED)
            proxy.cut()
            watch.await_state(DISCONNECTED)
            proxy.heal()
            watch.await_state(CONNECTED, session)
            proxy.cut()
            watch.await_state(EXPIRED, session)
            assert watch.states() == [CONNECTED, DISCONNECTED, CONNECTED, DISCONNECTED, EXPIRED]

    def test_an_orderly_shutdown_is_told_from_an_expiry(self, zookeeper: ZooKeeper, chroot: str) -> None:
        with Watch(zookeeper, zookeeper.servers + chroot) as watch:
            # The collector has to have looked before the session began, or to have seen a sign of life of it.
            watch.await_reading(lambda each: each.outcome is Outcome.OK, member=None)
            with KazooSession(zookeeper.servers + chroot) as client:
                register(client)
                reading = watch.await_reading(lambda each: each.state is CONNECTED)[1]
                assert (reading.role, reading.timeout_ms) == ("broker", int(T * 1000))
                assert reading.session == f"0x{client.client_id[0]:x}"
            watch.await_state(CLOSED)
            assert CONNECTED in watch.states()
            assert EXPIRED not in watch.states()


def test_a_server_that_was_restarted_is_unreachable_and_then_all_sessions_are_seen_again(
    bookkeeper_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    with ZooKeeper(tmp_path, bookkeeper_jars) as server, Watch(server, server.servers) as watch:
        with KazooSession(server.servers, timeout=20.0) as client:
            session = register(client)
            watch.await_state(CONNECTED)
            server.kill()
            down = watch.await_reading(lambda each: each.outcome is Outcome.UNREACHABLE, member=None)[0]
            judged = [reading for at, reading in watch.readings if at >= down and reading.member]
            assert judged == [], "nothing is said of any member"
            server.start()
            watch.await_reading(lambda each: each.outcome is Outcome.OK, member=None)
            watch.await_state(CONNECTED, session)
            assert not {EXPIRED, CLOSED} & set(watch.states())
        watch.await_state(CLOSED, session)


def test_a_server_that_hangs_is_a_timeout(bookkeeper_jars: tuple[Path, ...], tmp_path: Path) -> None:
    with ZooKeeper(tmp_path, bookkeeper_jars) as server, Watch(server, server.servers, timeout="500ms") as watch:
        watch.await_reading(lambda each: each.outcome is Outcome.OK, member=None)
        with server.frozen():
            reading = watch.await_reading(lambda each: each.outcome is Outcome.TIMEOUT, member=None)[1]
            assert reading.detail is not None
            assert reading.detail.startswith(server.admin_url.format(host=server.host))
        watch.await_reading(lambda each: each.outcome is Outcome.OK, member=None)


class KazooSession:
    """A kazoo client with the timeout of these tests."""

    def __init__(self, servers: str, timeout: float = T) -> None:
        self._client = KazooClient(servers, timeout=timeout)

    def __enter__(self) -> KazooClient:
        self._client.start(timeout=DEADLINE_SECONDS)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


@pytest.fixture(scope="module")
def ensemble(bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ZooKeeper]]:
    folder = tmp_path_factory.mktemp("ensemble")
    peers = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in (1, 2, 3)}
    properties: dict[str, str | int] = {**peers, "initLimit": 40, "syncLimit": 20}
    servers, admin_port = [], free_port()
    for number in (1, 2, 3):
        # Addresses of their own, because all have one port for the admin server.
        host = f"127.0.0.{number}"
        server = ZooKeeper(
            folder / str(number), bookkeeper_jars, host=host, admin_port=admin_port, properties=properties
        )
        (server.folder / "data").mkdir(parents=True)
        (server.folder / "data" / "myid").write_text(str(number))
        servers.append(server)
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
        starts = [threading.Thread(target=server.start) for server in servers]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        yield servers


class TestEnsemble:
    def mode(self, server: ZooKeeper) -> str:
        with closing(AdminServer(server.admin_url.format(host=server.host), 5.0)) as admin:
            return admin.role().mode

    def split(self, ensemble: Sequence[ZooKeeper]) -> tuple[ZooKeeper, list[ZooKeeper]]:
        """The leader and the followers."""
        modes = [self.mode(server) for server in ensemble]
        assert sorted(modes) == ["follower", "follower", "leader"]
        leader = ensemble[modes.index("leader")]
        return leader, [server for server in ensemble if server is not leader]

    @pytest.mark.long  # varies `TestStates`
    def test_a_session_connected_to_a_follower_is_connected_cut_and_closed_by_the_leaders_word(
        self, ensemble: list[ZooKeeper]
    ) -> None:
        _, followers = self.split(ensemble)
        servers = ",".join(server.servers for server in ensemble)
        with TcpProxy(followers[0].servers) as proxy, Watch(ensemble[0], servers) as watch:
            watch.await_reading(lambda each: each.outcome is Outcome.OK, member=None)
            with KazooSession(proxy.address) as client:
                register(client)
                watch.await_state(CONNECTED)
                proxy.cut()
                watch.await_state(DISCONNECTED)
                proxy.heal()
                watch.await_state(CONNECTED)
            watch.await_state(CLOSED)
            assert watch.states()[-4:] == [CONNECTED, DISCONNECTED, CONNECTED, CLOSED]

    @pytest.mark.long  # varies `TestStates`
    def test_a_session_on_a_server_that_is_not_asked_is_connected_by_its_moving_expiry(
        self, ensemble: list[ZooKeeper]
    ) -> None:
        leader, followers = self.split(ensemble)
        with (
            Watch(leader, f"{leader.servers},{followers[0].servers}") as watch,
            KazooSession(followers[1].servers) as client,
        ):
            register(client)
            watch.await_state(CONNECTED)
            known_at = time.monotonic()
            time.sleep(1.5 * T)
            late = [reading.state for at, reading in watch.readings if reading.member and at > known_at]
            assert DISCONNECTED not in late

    @pytest.mark.long  # varies `TestStates`
    def test_without_the_leader_nobody_is_judged_until_there_is_another(self, ensemble: list[ZooKeeper]) -> None:
        leader, followers = self.split(ensemble)
        servers = ",".join(server.servers for server in ensemble)
        with Watch(ensemble[0], servers) as watch, KazooSession(followers[0].servers, timeout=20.0) as client:
            session = register(client)
            watch.await_state(CONNECTED)
            leader.kill()
            watch.await_reading(lambda each: each.outcome is not Outcome.OK, member=None)
            watch.await_reading(lambda each: each.outcome is Outcome.OK, member=None)
            watch.await_state(CONNECTED, session)
            assert not {EXPIRED, CLOSED} & set(watch.states())
        leader.start()


BUNDLE = (
    b'{"nativeUrl":"pulsar://b1:6650","nativeUrlTls":"","httpUrl":"http://b1:8080","httpUrlTls":"","disabled":false}'
)


class Owners:
    """A collector of ownership on a chroot, polled by hand."""

    def __init__(self, servers: str) -> None:
        self.now = 0.0
        self.readings: list[Reading] = []
        self.session = ZooKeeperSession("payments", ZooKeeperConnection(servers=servers))
        self._collector = OwnershipCollector(
            "payments",
            WatchedOwnership(),
            self.session,
            self.readings.append,
            PollMetrics(CollectorRegistry()),
            clock=lambda: self.now,
        )

    def poll(self) -> dict[str, Ownerships]:
        self.readings.clear()
        self._collector.poll_once()
        return {reading.tree: reading for reading in self.readings if isinstance(reading, Ownerships)}


@pytest.fixture
def owners(zookeeper: ZooKeeper, chroot: str) -> Iterator[Owners]:
    owners = Owners(zookeeper.servers + chroot)
    yield owners
    owners.session.close()


class TestOwnership:
    def test_all_trees_are_told_whole_with_who_owns_what(
        self, zookeeper: ZooKeeper, chroot: str, owners: Owners
    ) -> None:
        empty = owners.poll()
        assert [len(empty[tree].nodes) for tree in ("/loadbalance/brokers", "/namespace")] == [0, 0]
        with KazooSession(zookeeper.servers + chroot) as client:
            session = f"0x{register(client):x}"
            bundle = "/namespace/public/default/0x00000000_0x40000000"
            client.create(bundle, BUNDLE, ephemeral=True, makepath=True)
            client.create(LEADER, b'{"serviceUrl":"http://b1:8080"}', ephemeral=True)
            client.create("/namespace/old/cluster/ns/0x00000000_0xffffffff", b"?", makepath=True)
            readings = owners.poll()
            brokers, bundles = readings["/loadbalance/brokers"], readings["/namespace"]
            (leader,) = (each for each in owners.readings if isinstance(each, Ownership))
            assert (leader.path, leader.exists, leader.owner_member, leader.session) == (LEADER, True, MEMBER, session)
            assert [(each.path, each.owner_member, each.session) for each in brokers.nodes] == [
                (REGISTRATION, MEMBER, session)
            ]
            old, new = bundles.nodes
            assert (old.path, old.ephemeral, old.session, old.owner_member) == (
                "/namespace/old/cluster/ns/0x00000000_0xffffffff",
                False,
                None,
                None,
            )
            stat = client.exists(bundle)
            assert (new.path, new.ephemeral, new.session, new.owner_member) == (bundle, True, session, MEMBER)
            assert (new.czxid, new.version, new.kind) == (stat.czxid, 0, NodeKind.BUNDLE)
            assert owners.poll() == {}, "the same again is no news"
            owners.now += 15
            assert len(owners.poll()) == 2
        gone = owners.poll()
        assert [each.session for each in gone["/namespace"].nodes] == [None]

    def test_a_node_made_again_by_another_session_between_two_polls_shows_as_another(
        self, zookeeper: ZooKeeper, chroot: str, owners: Owners
    ) -> None:
        bundle = "/namespace/public/default/0x00000000_0x40000000"
        with KazooSession(zookeeper.servers + chroot) as first, KazooSession(zookeeper.servers + chroot) as second:
            first.create(bundle, BUNDLE, ephemeral=True, makepath=True)
            (before,) = owners.poll()["/namespace"].nodes
            first.delete(bundle)
            second.create(bundle, BUNDLE, ephemeral=True)
            (after,) = owners.poll()["/namespace"].nodes
            assert (after.path, after.value_digest, after.version) == (before.path, before.value_digest, before.version)
            assert after.session == f"0x{second.client_id[0]:x}" != before.session
            assert after.czxid == second.exists(bundle).czxid != before.czxid

    @pytest.mark.long  # varies `test_all_trees`
    def test_thousands_of_bundles_are_read_once_and_then_only_listed(
        self, zookeeper: ZooKeeper, chroot: str, owners: Owners
    ) -> None:
        namespaces, bundles = 20, 2000
        tree = OwnedNodes("/namespace", NodeKind.BUNDLE, lambda name: name.startswith("0x"))

        def read() -> tuple[int, int]:
            """How many nodes there are, and how many requests that took."""
            reader = owners.session.reader(lambda: 30.0)
            return len(tree.read(reader)), reader.requests

        with KazooSession(zookeeper.servers + chroot, timeout=30) as client:
            for number in range(namespaces):
                client.ensure_path(f"/namespace/tenant/ns-{number}")
            path = [f"/namespace/tenant/ns-{n % namespaces}/0x{n:08x}_0x{n + 1:08x}" for n in range(bundles)]
            for made in [client.create_async(each, BUNDLE, ephemeral=True) for each in path]:
                made.get(timeout=DEADLINE_SECONDS)
            listing = 1 + 1 + namespaces
            owners.session.client()  # it asks once whether there is such a chroot
            assert read() == (bundles, listing + bundles)
            assert read() == (bundles, listing)
            client.delete(path[7])
            of_its_namespace = bundles // namespaces - 1
            assert read() == (bundles - 1, listing + of_its_namespace)
            assert read() == (bundles - 1, listing)
            tree.forget()
            assert read() == (bundles - 1, listing + bundles - 1)

    def test_a_value_that_was_set_is_read_again_in_its_time_also_after_our_own_session_was_lost(
        self, zookeeper: ZooKeeper, chroot: str, owners: Owners
    ) -> None:
        with KazooSession(zookeeper.servers + chroot) as client:
            register(client)
            (before,) = owners.poll()["/loadbalance/brokers"].nodes
            zookeeper.expire(owners.session.client().client_id[0])
            client.set(REGISTRATION, b'{"cpu": 1}')

            def is_seen() -> bool:
                owners.now += 15
                (after,) = owners.poll()["/loadbalance/brokers"].nodes or [before]
                return (after.version, after.czxid) == (1, before.czxid) and after.value_digest != before.value_digest

            eventually("the change is seen", is_seen)


def test_ownership_that_cannot_be_read_is_told_for_each_tree(bookkeeper_jars: tuple[Path, ...], tmp_path: Path) -> None:
    with ZooKeeper(tmp_path, bookkeeper_jars) as server:
        owners = Owners(server.servers)
        assert {reading.outcome for reading in owners.poll().values()} == {Outcome.OK}
        server.kill()
        readings: dict[str, Ownerships] = {}

        def all_told() -> bool:
            readings.update(owners.poll())
            return {reading.outcome for reading in readings.values()} == {Outcome.UNREACHABLE}

        eventually("each tree is told", all_told)
        assert set(readings) == {"/loadbalance/brokers", "/namespace"}
        assert all(reading.detail for reading in readings.values())
        owners.session.close()
