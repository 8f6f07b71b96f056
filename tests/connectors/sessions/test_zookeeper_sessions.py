"""The collector of sessions on servers that say what a test wants, in virtual time."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.collection import PollMetrics, ReadingHistory, no_history
from connectors.sessions import zookeeper_sessions
from connectors.sessions.registration import WatchedSessions
from connectors.sessions.session_states import Ensemble, EnsembleSnapshot
from connectors.sessions.zookeeper_sessions import SessionCollector, status_sources
from connectors.zookeeper.server_admin import AdminServer, Connection, KeepPath, ServerRole, SessionTable
from connectors.zookeeper.session import StatusError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome, Reading
from policies.sessions.readings import SessionState, ZkSession
from tests.cases import for_each

B1, B2, NEW = 0xB1, 0xB2, 0xB11
CONNECTED, DISCONNECTED = SessionState.CONNECTED, SessionState.DISCONNECTED
EXPIRED, CLOSED = SessionState.EXPIRED, SessionState.CLOSED


@dataclass
class Server(AdminServer):
    """One server that says what it is told to say."""

    mode: str = "standalone"
    zxid: int = 0
    expiries_ms: dict[int, int] = field(default_factory=dict)
    ephemerals: dict[int, tuple[str, ...]] = field(default_factory=dict)
    clients: dict[int, int] = field(default_factory=dict)
    """Packets by session."""
    fails: Exception | None = None
    fails_at_connections: Exception | None = None
    hangs: threading.Event | None = None
    asked: int = 0

    def role(self) -> ServerRole:
        self.asked += 1
        if self.hangs is not None:
            self.hangs.wait()
        if self.fails is not None:
            raise self.fails
        return ServerRole(self.mode, self.zxid)

    def sessions(self, keep: KeepPath) -> SessionTable:
        assert self.mode in ("leader", "standalone"), "only a leader knows"
        kept = {session: tuple(filter(keep, paths)) for session, paths in self.ephemerals.items()}
        return SessionTable(dict(self.expiries_ms), kept)

    def connections(self) -> tuple[Connection, ...]:
        if self.fails_at_connections is not None:
            raise self.fails_at_connections
        return tuple(Connection(session, 6000, packets) for session, packets in self.clients.items())

    def close(self) -> None:
        """It has no connections."""

    def register(self, session: int, *paths: str) -> None:
        """A connected session that owns these nodes."""
        self.expiries_ms[session] = 100_000
        self.ephemerals[session] = paths
        self.clients[session] = 1

    def ping(self) -> None:
        self.clients = {session: packets + 1 for session, packets in self.clients.items()}

    def end(self, session: int) -> None:
        for table in (self.expiries_ms, self.ephemerals, self.clients):
            table.pop(session, None)


def every(path: str) -> bool:
    return True


def look(servers: Mapping[str, AdminServer]) -> EnsembleSnapshot:
    with closing(Ensemble(servers, 1.0)) as ensemble:
        return ensemble.snapshot(every)


def test_a_session_that_is_connected_to_any_server_is_connected_and_a_moving_one_to_both() -> None:
    leader = Server("leader", expiries_ms={B1: 1, B2: 1, NEW: 1}, clients={B1: 5})
    snapshot = look({"zk1": Server("follower", clients={B1: 7, B2: 7}), "zk2": leader})
    assert {session: contact.received for session, contact in snapshot.connections.items()} == {
        B1: {("zk1", 7), ("zk2", 5)},
        B2: {("zk1", 7)},
    }
    assert set(snapshot.table.expiries_ms) == {B1, B2, NEW}
    assert snapshot.complete


def test_of_two_that_believe_they_lead_the_one_further_on_counts() -> None:
    old = Server("leader", zxid=0x1_0000_00FF, expiries_ms={})
    new = Server("leader", zxid=0x2_0000_0000, expiries_ms={B1: 1})
    assert set(look({"zk1": old, "zk2": new, "zk3": Server("follower")}).table.expiries_ms) == {B1}


@for_each(
    "broken",
    [
        Server("follower", fails=ConnectionRefusedError(111, "refused")),
        Server("observer", fails_at_connections=TimeoutError("no answer")),
    ],
    ids=["down", "slow"],
)
def test_a_server_that_cannot_be_asked_makes_the_look_incomplete(broken: Server) -> None:
    with closing(Ensemble({"zk1": broken, "zk2": Server("leader", clients={B1: 1})}, 1.0)) as ensemble:
        snapshot = ensemble.snapshot(every)
        assert not snapshot.complete
        assert set(snapshot.connections) == {B1}
        assert set(ensemble.unread) == {"zk1"}


def test_a_server_that_hangs_is_waited_for_once_and_not_asked_again_meanwhile() -> None:
    release = threading.Event()
    hanging = Server("follower", hangs=release)
    with closing(Ensemble({"zk1": hanging, "zk2": Server("leader")}, 0.1)) as ensemble:
        for _ in range(2):
            assert not ensemble.snapshot(every).complete
        assert hanging.asked == 1
        release.set()


@for_each(
    ("servers", "outcome", "says"),
    [
        ({"zk1": Server("follower"), "zk2": Server("observer")}, Outcome.ERROR, "no server leads"),
        ({"zk1": Server(fails=ConnectionRefusedError(111, "no"))}, Outcome.UNREACHABLE, "zk1: no"),
        (
            {"zk1": Server(fails=TimeoutError("no answer within 2 s")), "zk2": Server("follower")},
            Outcome.TIMEOUT,
            "zk2 (follower)",
        ),
        (
            {
                "zk1": Server(fails=TimeoutError("no answer")),
                "zk2": Server(fails=StatusError(Outcome.UNSUPPORTED, "dump is not allowed")),
            },
            Outcome.UNSUPPORTED,
            "dump is not allowed",
        ),
    ],
    ids=["no leader", "down", "leader down", "not allowed"],
)
def test_without_a_leaders_table_the_most_telling_failure_is_told(
    servers: dict[str, AdminServer], outcome: Outcome, says: str
) -> None:
    with pytest.raises(StatusError) as caught:
        look(servers)
    assert caught.value.outcome is outcome
    assert says in str(caught.value)
    assert len(str(caught.value)) <= 200


class Watch:
    """A collector on fake servers, and what it published since the last poll."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        servers: dict[str, Server],
        *,
        recall: ReadingHistory[ZkSession] = no_history,
        **settings: Any,
    ) -> None:
        self.now = 1000.0
        self.readings: list[Reading] = []
        self.registry = CollectorRegistry()
        monkeypatch.setattr(zookeeper_sessions, "status_sources", lambda *_: servers)
        connection = ZooKeeperConnection(servers="zk1:2181,zk2:2181/pulsar")
        self.collector = SessionCollector(
            "payments", WatchedSessions(**settings), connection, self.readings.append, PollMetrics(self.registry),
            history=recall, clock=lambda: self.now,
        )  # fmt: skip

    def poll(self, after: float = 1.0) -> dict[str | None, ZkSession]:
        self.now += after
        self.readings.clear()
        self.collector.poll_once()
        assert all(isinstance(reading, ZkSession) for reading in self.readings)
        return {reading.member: reading for reading in self.readings if isinstance(reading, ZkSession)}

    def states(self, after: float = 1.0) -> dict[str, SessionState | None]:
        return {member: reading.state for member, reading in self.poll(after).items() if member is not None}


@pytest.fixture
def server() -> Server:
    server = Server()
    server.register(B1, "/pulsar/loadbalance/brokers/b1:8080", "/pulsar/namespace/t/n/0x00000000_0xffffffff")
    server.register(B2, "/pulsar/loadbalance/brokers/b2:8080")
    server.register(0xC, "/loadbalance/brokers/outside-the-chroot:1", "/pulsar/loadbalance/brokers/b3:8080/below")
    return server


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, server: Server) -> Iterator[Watch]:
    watch = Watch(monkeypatch, {"zk1": server})
    yield watch
    watch.collector.close()


def test_members_are_those_registered_below_the_chroot(watch: Watch) -> None:
    readings = watch.poll()
    assert set(readings) == {None, "b1:8080", "b2:8080"}
    assert readings["b1:8080"] == ZkSession(
        cluster="payments", member="b1:8080", role="broker", session="0xb1", state=CONNECTED, timeout_ms=6000
    )
    assert readings[None] == ZkSession(cluster="payments")


def test_a_reading_is_published_when_it_has_changed_and_else_every_quarter_of_a_minute(
    watch: Watch, server: Server
) -> None:
    watch.poll()
    published = 0
    for _ in range(14):
        server.ping()
        published += len(watch.poll())
    assert published == 0
    server.ping()
    assert set(watch.poll()) == {None, "b1:8080", "b2:8080"}
    del server.clients[B1]
    server.ping()
    assert watch.states() == {"b1:8080": DISCONNECTED}


def test_an_ensemble_that_cannot_be_read_is_one_reading_and_no_member_is_judged(watch: Watch, server: Server) -> None:
    watch.poll()
    server.fails = TimeoutError("no answer within 2 s")
    readings = watch.poll()
    assert set(readings) == {None}
    assert (readings[None].outcome, readings[None].state) == (Outcome.TIMEOUT, None)
    assert readings[None].detail == "zk1: no answer within 2 s"
    assert watch.poll() == {}, "the same again is no news"
    server.fails = None
    server.ping()
    assert set(watch.poll()) == {None, "b1:8080", "b2:8080"}, "all is news after a failure"
    server.fails = TimeoutError("no answer within 2 s")
    assert set(watch.poll()) == set(watch.poll(after=15)) == {None}, "a failure is said again in its time"


def test_each_servers_answer_is_counted(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    down = Server(fails=ConnectionRefusedError(111, "Connection refused"))
    watch = Watch(monkeypatch, {"zk1": server, "zk2": down})
    for _ in range(3):
        watch.poll()
    for outcome in (Outcome.OK, Outcome.UNREACHABLE):
        labels = {"cluster": "payments", "outcome": outcome.value}
        assert watch.registry.get_sample_value("headgate_polls_total", labels) == 3
    watch.collector.close()


class TestSettings:
    @pytest.mark.parametrize(
        ("servers", "settings", "asked"),
        [
            ("zk-1:2181, zk-2:2182/chroot", {}, ["http://zk-1:8080", "http://zk-2:8080"]),
            ("zk:2181", {"servers": ("[::1]:1", "o-1:2181")}, ["http://[::1]:8080", "http://o-1:8080"]),
            ("zk-1:2181,[::1]:2182", {"admin_url": "http://{host}:9990"}, ["http://zk-1:9990", "http://[::1]:9990"]),
        ],
        ids=["of the connection", "others", "at another port"],
    )
    def test_the_servers_that_are_asked(self, servers: str, settings: dict[str, Any], asked: list[str]) -> None:
        sources = status_sources(WatchedSessions(**settings), ZooKeeperConnection(servers=servers))
        assert list(sources) == asked

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"servers": ("zk-1",)}, "not host:port"),
            ({"servers": ("zk-1:70000",)}, "not host:port"),
            ({"admin_url": "http://zk-1:8080"}, r"\{host\}"),
            ({"admin_url": "ftp://{host}:8080"}, r"\{host\}"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, settings: dict[str, Any], says: str) -> None:
        with pytest.raises(ValidationError, match=says):
            WatchedSessions(**settings)


def test_who_is_cut_off_or_lost_is_told_of_every_few_seconds(watch: Watch, server: Server) -> None:
    watch.poll()
    server.end(B1)
    assert "b1:8080" in watch.poll()
    told = []
    for _ in range(6):
        server.ping()
        told.append(set(watch.poll()))
    assert sum("b1:8080" in each for each in told) >= 2
    assert not any("b2:8080" in each for each in told)


def was(member: str, session: str, state: SessionState, cluster: str = "payments") -> ZkSession:
    return ZkSession(cluster=cluster, member=member, role="broker", session=session, state=state, timeout_ms=9000)


def test_the_last_readings_are_asked_for_before_the_first_poll(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    stop, asked = threading.Event(), []

    def recall(history: timedelta, ended: threading.Event) -> list[ZkSession]:
        asked.append((history, ended, list(begun.readings)))
        stop.set()
        return [was("b7:8080", "0x77", CONNECTED)]

    begun = Watch(monkeypatch, {"zk1": server}, recall=recall)
    begun.collector.run(stop)
    assert asked == [(timedelta(hours=1), stop, [])]
