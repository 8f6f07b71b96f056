"""The collector of bookies against a real ZooKeeper: every shape of its nodes, and everything that may befall it."""

import json
import logging
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics
from connectors.isolation.collector import BookieCollector, ZooKeeperBookies
from connectors.isolation.registration import WatchedBookies
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.java.jvm import find_java
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies, NamespaceAffinity
from policies.observations import Outcome, Reading
from policies.units import parse_duration
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import ZooKeeper, free_port

TIMEOUT_SECONDS = 1.5
HANDSHAKE = "2m"
"""For a first connection over TLS, on a busy machine."""
LOST = "the connection was lost"
Kind = TypeVar("Kind", bound=Reading)


class Watch:
    """A collector, and what it published."""

    def __init__(self, servers: str, *, interval: str = "1h", **connection: Any) -> None:
        self.readings: list[Reading] = []
        self.registry = CollectorRegistry()
        times = {"timeout": f"{TIMEOUT_SECONDS}s", "session_timeout": "3s"}
        self.session = ZooKeeperSession("c1", ZooKeeperConnection(servers=servers, **{**times, **connection}))
        settings = WatchedBookies(poll_interval=parse_duration(interval), affinity_interval=parse_duration("1h"))
        metrics = PollMetrics(self.registry)
        self.collector = BookieCollector(ZooKeeperBookies("c1", settings, self.session), self.readings.append, metrics)

    def poll(self) -> tuple[Bookies, BookieRacks]:
        self.readings.clear()
        self.collector.poll_once()
        bookies, racks = self.readings
        assert isinstance(bookies, Bookies)
        assert isinstance(racks, BookieRacks)
        return bookies, racks

    def poll_affinity(self) -> BookieAffinity:
        self.readings.clear()
        self.collector.poll_affinity_once()
        (affinity,) = self.readings
        assert isinstance(affinity, BookieAffinity)
        return affinity

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [reading for reading in self.readings if isinstance(reading, kind)]

    def last(self, kind: type[Kind]) -> Kind | None:
        found = self.of(kind)
        return found[-1] if found else None

    def own_session(self) -> int:
        return int(self.session.client().client_id[0])

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self.collector.run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


@contextmanager
def watching(servers: str, **options: Any) -> Iterator[Watch]:
    watch = Watch(servers, **options)
    try:
        yield watch
    finally:
        watch.session.close()


class Tree:
    """The metadata of one cluster, below a chroot of its own."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        for path in ("/ledgers/available/readonly", "/ledgers/cookies"):
            client.ensure_path(path)

    def join(self, bookie: str, *, below: str = "/ledgers/available") -> None:
        self.client.create(f"{below}/{bookie}", b"", ephemeral=True)

    def leave(self, bookie: str, *, below: str = "/ledgers/available") -> None:
        self.client.delete(f"{below}/{bookie}")

    def put(self, path: str, value: Any) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        if path.startswith("/admin/local-policies"):  # a namespace that exists has policies, too
            self.client.ensure_path(path.replace("local-policies", "policies"))
        self.client.ensure_path(path)
        self.client.set(path, data)


def fresh_tree(client: KazooClient, chroot: str) -> Tree:
    client.ensure_path(chroot)
    client.chroot = chroot
    return Tree(client)


@pytest.fixture
def tree(zookeeper: ZooKeeper) -> Iterator[Tree]:
    with zookeeper.client() as client:
        yield fresh_tree(client, f"/c-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def watch(zookeeper: ZooKeeper, tree: Tree) -> Iterator[Watch]:
    with watching(zookeeper.servers + tree.client.chroot) as watch:
        yield watch


@pytest.fixture
def own_server(bookkeeper_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[ZooKeeper]:
    """A server to do harm to."""
    with ZooKeeper(tmp_path / "zookeeper", bookkeeper_jars) as server:
        yield server


@pytest.fixture
def own_watch(own_server: ZooKeeper) -> Iterator[Watch]:
    with own_server.client() as client:
        fresh_tree(client, "/c")
        client.create("/ledgers/available/durable", b"")  # it stays while the server is away
        client.create("/bookies", b"{}")
    with watching(own_server.servers + "/c") as watch:
        yield watch


def names(bookies: Bookies | None) -> list[str]:
    return [] if bookies is None else [each.bookie for each in bookies.writable]


# --- bookies


def test_every_registration_is_read_with_its_session_transaction_and_time(watch: Watch, tree: Tree) -> None:
    for bookie in ("bk2:3181", "bk1:3181"):
        tree.join(bookie)
    tree.join("bk3:3181", below="/ledgers/available/readonly")
    for bookie in ("bk1:3181", "bk9:3181"):
        tree.put(f"/ledgers/cookies/{bookie}", b"4")
    bookies, _ = watch.poll()
    assert bookies.outcome is Outcome.OK
    assert names(bookies) == ["bk1:3181", "bk2:3181"]
    assert [each.bookie for each in bookies.read_only] == ["bk3:3181"]
    assert bookies.known == ("bk1:3181", "bk9:3181")
    stat = tree.client.exists("/ledgers/available/bk1:3181")
    first = bookies.writable[0]
    assert (first.session, first.czxid) == (hex(tree.client.client_id[0]), stat.czxid)
    assert first.registered_at is not None
    assert first.registered_at.timestamp() * 1000 == pytest.approx(stat.ctime)


def test_without_bookkeepers_metadata_the_reading_is_an_error_not_empty(watch: Watch, tree: Tree) -> None:
    tree.client.delete("/ledgers", recursive=True)
    bookies, racks = watch.poll()
    assert bookies.outcome is Outcome.ERROR
    assert f"there is no node {tree.client.chroot}/ledgers/available" in (bookies.detail or "")
    assert racks.outcome is Outcome.ABSENT, "it fails by itself"


def test_a_bookie_that_goes_while_it_is_read_is_left_out(
    watch: Watch, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bookie in ("bk1", "bk2"):
        tree.join(bookie)
    client = watch.session.client()
    list_children = client.get_children_async

    def list_and_lose(path: str, **options: Any) -> Any:
        listing = list_children(path, **options)
        if path == "/ledgers/cookies":
            listing.get(timeout=DEADLINE_SECONDS)
            tree.leave("bk1")
        return listing

    monkeypatch.setattr(client, "get_children_async", list_and_lose)
    assert names(watch.poll()[0]) == ["bk2"]


# --- watches


def test_a_join_and_a_change_of_groups_are_seen_long_before_the_next_poll(watch: Watch, tree: Tree) -> None:
    with watch.running():
        eventually("a first reading", lambda: watch.last(BookieRacks))
        for number in range(3):  # the next poll is an hour away, and a watch fires only once
            bookie = f"bk{number}"
            tree.join(bookie)
            eventually("the join", lambda: bookie in names(watch.last(Bookies)))  # noqa: B023 - called at once
        racks = watch.last(BookieRacks)
        assert racks is not None
        assert racks.outcome is Outcome.ABSENT
        for group in ("g1", "g2"):
            tree.put("/bookies", {group: {}})
            expected = BookieRacks(cluster="c1", outcome=Outcome.OK, groups={group: {}})
            eventually("the group", lambda: watch.last(BookieRacks) == expected)  # noqa: B023


# --- what befalls servers and sessions


def test_a_server_that_goes_and_comes_back_is_never_read_as_empty(own_server: ZooKeeper, own_watch: Watch) -> None:
    def outcomes() -> set[Outcome]:
        return {reading.outcome for reading in (own_watch.last(Bookies), own_watch.last(BookieRacks)) if reading}

    with own_watch.running():
        eventually("a first reading", lambda: outcomes() == {Outcome.OK})
        own_server.kill()
        eventually("that it is away", lambda: outcomes() == {Outcome.UNREACHABLE})
        away = own_watch.last(Bookies)
        # A reading that was under way meets the end of its connection, a later one the closed port.
        assert away is not None
        assert re.search("Connection refused|the connection was lost", away.detail or "")
        own_server.start()
        # By the connection's coming back: the next poll is an hour away.
        eventually("that it is back", lambda: outcomes() == {Outcome.OK})
    read = [reading for reading in own_watch.of(Bookies) if reading.outcome is Outcome.OK]
    assert {tuple(names(reading)) for reading in read} == {("durable",)}


def test_a_frozen_server_is_a_timeout_within_the_time_limit(own_server: ZooKeeper, own_watch: Watch) -> None:
    assert own_watch.poll()[0].outcome is Outcome.OK
    details = []

    def said() -> tuple[Outcome, str | None]:
        bookies, racks = own_watch.poll()
        # Unreachable for the one that kazoo's own giving up falls into.
        assert {bookies.outcome, racks.outcome} <= {Outcome.TIMEOUT, Outcome.UNREACHABLE}
        details.append(bookies.detail)
        return bookies.outcome, bookies.detail

    with own_server.frozen():
        # Over the loss of the connection, into attempts to connect again: the fourth or so.
        no_session = f"{own_server.servers}: accepts the connection, but gives no session"
        eventually("it tries to connect again", lambda: said() == (Outcome.TIMEOUT, no_session))
        # The connection's own loss may come first, and some of the answers before the server is frozen.
        assert (details[0] or "").rpartition(": ")[2] in ("no answer within 1.5 s", LOST)
    eventually("an answer", lambda: own_watch.poll()[0].outcome is Outcome.OK)


def test_stopping_does_not_wait_for_a_frozen_server(own_server: ZooKeeper, own_watch: Watch) -> None:
    with own_watch.running():
        eventually("a reading of everything", lambda: len({type(reading) for reading in own_watch.readings}) == 3)
        own_server.freeze()
        eventually("its silence", lambda: own_watch.readings[-1].outcome is Outcome.TIMEOUT)
    own_server.thaw()


def test_the_loss_of_its_own_session_is_survived(zookeeper: ZooKeeper, watch: Watch, tree: Tree) -> None:
    with watch.running():
        eventually("a first reading", lambda: watch.last(BookieRacks))
        lost = watch.own_session()
        zookeeper.expire(lost)
        tree.join("bk1")
        eventually("a join after it", lambda: names(watch.last(Bookies)) == ["bk1"])
        assert watch.own_session() != lost
        tree.join("bk2")
        eventually("a watch of the new session", lambda: names(watch.last(Bookies)) == ["bk1", "bk2"])


def test_a_client_whose_thread_died_is_replaced(watch: Watch) -> None:
    assert watch.poll()[0].outcome is Outcome.OK
    watch.session.client().stop()
    assert watch.poll()[0].outcome is Outcome.OK


def test_a_chroot_that_does_not_exist_is_an_error_not_an_empty_cluster(zookeeper: ZooKeeper) -> None:
    with watching(f"{zookeeper.servers}/nowhere") as watch:
        readings = [*watch.poll(), watch.poll_affinity()]
    assert {reading.outcome for reading in readings} == {Outcome.ERROR}
    assert {reading.detail for reading in readings} == {"there is no node /nowhere, the chroot that `servers` names."}


# --- access

PASSWORD = "hunter2-never-shown"


def test_what_an_acl_hides_is_unauthorized_until_the_password_is_right(
    zookeeper: ZooKeeper,
    tree: Tree,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    tree.client.create("/bookies", b"{}", acl=[make_digest_acl("headgate", PASSWORD, all=True)])
    file = tmp_path / "password"
    file.write_text("wrong\n")
    with watching(zookeeper.servers + tree.client.chroot, user="headgate", password_file=file) as watch:
        assert watch.poll()[0].outcome is Outcome.UNAUTHORIZED, "no bookie yet: hidden groups may have members"
        tree.join("bk1:3181")
        bookies, racks = watch.poll()
        assert bookies.outcome is Outcome.OK
        assert (racks.outcome, racks.detail) == (
            Outcome.UNAUTHORIZED,
            f"{tree.client.chroot}/bookies: its ACL does not let us read it",
        )
        file.write_text(f"{PASSWORD}\n")
        assert watch.poll()[1].groups == {}
    assert PASSWORD not in "".join((*capfd.readouterr(), caplog.text))


def make_stores(folder: Path) -> None:
    """A self-signed certificate of 127.0.0.1 as a Java key store, and as PEM."""
    store = folder / "store.p12"
    keytool = [str(find_java().with_name("keytool")), *f"-keystore {store} -storepass changeit -alias zk".split()]
    options = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=zk", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"]
    subprocess.run([*keytool, *options], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(folder / "ca.pem")], check=True, capture_output=True)


@pytest.fixture(scope="module")
def secure(bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server that also speaks TLS: where, and its certificate."""
    folder = tmp_path_factory.mktemp("secure")
    make_stores(folder)
    port = free_port()
    netty = "org.apache.zookeeper.server.NettyServerCnxnFactory"
    server = ZooKeeper(
        folder / "zookeeper",
        bookkeeper_jars,
        flags=(f"-Dzookeeper.serverCnxnFactory={netty}",),
        properties={
            "secureClientPort": port,
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(folder / "store.p12"),
            "ssl.keyStore.password": "changeit",
            "ssl.clientAuth": "none",
        },
    )
    with server:
        with server.client() as client:
            tree = fresh_tree(client, "/c")
            for number in range(1000):
                tree.put(f"/admin/local-policies/t{number % 10}/ns{number}", affinity("g1"))
        yield f"127.0.0.1:{port}/c", folder / "ca.pem"


def test_over_tls_everything_is_read_without_a_pause(secure: tuple[str, Path]) -> None:
    servers, certificate = secure
    with watching(servers, tls={"ca_file": certificate}, timeout=HANDSHAKE) as watch:
        assert watch.poll()[0].outcome is Outcome.OK
        for _ in range(3):
            assert len(watch.poll_affinity().namespaces) == 1000


def test_a_server_that_is_not_trusted_is_an_error_that_says_so(secure: tuple[str, Path]) -> None:
    # It tries again for as long as it may.
    with watching(secure[0], tls={}, timeout="10s") as watch:
        bookies, _ = watch.poll()
    assert bookies.outcome is Outcome.ERROR
    assert "certificate verify failed" in (bookies.detail or "").lower()


# --- affinity


def affinity(primary: str, secondary: str | None = None) -> dict[str, Any]:
    groups = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary}
    return {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}, "bookieAffinityGroup": groups}


def test_namespaces_are_read_with_their_groups_and_their_persistence(watch: Watch, tree: Tree) -> None:
    assert watch.poll_affinity().outcome is Outcome.ABSENT, "neither tree exists"
    tree.put("/admin/local-policies/t/ns", affinity("a,b", "c"))
    tree.put("/admin/local-policies/t/free", {"bookieAffinityGroup": None})
    tree.put("/admin/local-policies/old/cluster/ns", affinity("a"))
    quorums = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}
    tree.put("/admin/policies/t/ns", {"persistence": quorums, "replication_clusters": ["x"]})
    tree.client.delete("/admin/policies/old", recursive=True)
    reading = watch.poll_affinity()
    assert (reading.outcome, reading.detail) == (Outcome.OK, None)
    both = NamespaceAffinity(primary=("a", "b"), secondary=("c",), ensemble_size=3, write_quorum=2, ack_quorum=2)
    assert reading.namespaces == {"t/ns": both, "old/cluster/ns": NamespaceAffinity(primary=("a",), has_policies=False)}


def test_policies_and_ledgers_that_lie_elsewhere_are_no_empty_ones(watch: Watch, tree: Tree) -> None:
    tree.put("/bookies", {"g": {"bk1:3181": {"rack": "/r1"}}})
    bookies, _ = watch.poll()
    assert bookies.outcome is Outcome.ERROR
    assert "set bookies.ledgers" in (bookies.detail or "")
    tree.join("bk1:3181")
    assert watch.poll()[0].outcome is Outcome.OK
    tree.leave("bk1:3181")
    assert watch.poll()[0].outcome is Outcome.OK, "that one was here"
    tree.put("/admin/local-policies/t/ns", affinity("g"))
    tree.client.delete("/admin/policies", recursive=True)
    reading = watch.poll_affinity()
    assert reading.outcome is Outcome.ERROR
    assert "set clusters.c1.configuration_store" in (reading.detail or "")


def test_which_brokers_serve_which_namespaces_is_read_beside_them(watch: Watch, tree: Tree) -> None:
    tree.put("/admin/local-policies/t/one", affinity("a"))
    assert watch.poll_affinity().broker_policies == ()
    policy = {
        "namespaces": ["t/.*"],
        "primary": ["broker-1.*"],
        "secondary": [],
        "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "2"}},
    }
    tree.put("/admin/clusters/local/namespaceIsolationPolicies", {"own-brokers": policy})
    (read,) = watch.poll_affinity().broker_policies or ()
    assert (read.pulsar_cluster, read.name, read.namespaces) == ("local", "own-brokers", ("t/.*",))
    assert (read.primary, read.secondary, read.min_available) == (("broker-1.*",), (), 2)


def test_a_node_that_never_could_be_parsed_fails_the_whole_reading_and_is_named(watch: Watch, tree: Tree) -> None:
    tree.put("/bookies", {"g1": ["bk1:3181"]})
    _, racks = watch.poll()
    assert (racks.outcome, racks.groups) == (Outcome.ERROR, None)
    assert f"{tree.client.chroot}/bookies cannot be parsed: " in (racks.detail or "")
    tree.put("/admin/local-policies/t/bad", b"{nonsense")
    tree.put("/admin/local-policies/t/good", affinity("b"))
    reading = watch.poll_affinity()
    assert (reading.outcome, reading.namespaces) == (Outcome.ERROR, {})
    assert f"{tree.client.chroot}/admin/local-policies/t/bad cannot be parsed: " in (reading.detail or "")


def test_one_namespace_that_cannot_be_parsed_any_more_spoils_no_other_and_keeps_its_last_good_value(
    watch: Watch, tree: Tree
) -> None:
    tree.put("/admin/local-policies/t/bad", affinity("a"))
    assert watch.poll_affinity().detail is None
    tree.put("/admin/local-policies/t/bad", b"{nonsense")
    tree.put("/admin/local-policies/t/good", affinity("b"))
    for _ in range(2):
        reading = watch.poll_affinity()
        assert {name: each.primary for name, each in reading.namespaces.items()} == {"t/bad": ("a",), "t/good": ("b",)}
        assert "/admin/local-policies/t/bad" in (reading.detail or "")
    tree.put("/admin/local-policies/t/bad", affinity("c"))
    reading = watch.poll_affinity()
    assert (reading.detail, reading.namespaces["t/bad"].primary) == (None, ("c",))


def test_a_hidden_namespace_makes_the_reading_unauthorized_rather_than_incomplete(watch: Watch, tree: Tree) -> None:
    tree.put("/admin/local-policies/t/ns", affinity("a"))
    acl = [make_digest_acl("pulsar", PASSWORD, all=True)]
    tree.client.create("/admin/local-policies/t/hidden", b"{}", acl=acl)
    reading = watch.poll_affinity()
    assert (reading.outcome, reading.namespaces) == (Outcome.UNAUTHORIZED, {})
    assert "/admin/local-policies/t/hidden" in (reading.detail or "")
