"""What is concluded from looks at an ensemble: in virtual time, on a model of what its servers would say."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sessions.session_states import EnsembleSnapshot, MemberTracker, SessionConnections, SessionStates
from connectors.zookeeper.server_admin import SessionTable
from policies.sessions.readings import MAX_NAME, SessionState, ZkSession
from tests.cases import for_each

CONNECTED, DISCONNECTED = SessionState.CONNECTED, SessionState.DISCONNECTED
EXPIRED, CLOSED = SessionState.EXPIRED, SessionState.CLOSED

S = 0xA
T = 6.0
TICK = 0.5


@dataclass
class Servers:
    """An ensemble with one session of ours, as its servers would see it. Looks take `slow` seconds."""

    timeout: float = T
    now: float = 100.0
    where: str | None = "zk1"
    is_asked: bool = True
    complete: bool = True
    received: int = 1
    touched: float = 100.0
    slow: float = 0.01
    others: dict[int, int] = field(default_factory=dict)

    def ping(self) -> None:
        self.received += 1
        self.touched = self.now

    @property
    def expiry(self) -> float:
        return (int((self.touched + self.timeout) / TICK) + 1) * TICK

    def look(self, *, gone: bool = False) -> EnsembleSnapshot:
        began = self.now
        self.now += self.slow
        expiries = dict(self.others)
        # To the second, as in the answer to `dump`.
        expiries |= {} if gone else {S: int(self.expiry) * 1000}
        connections = {}
        if self.where is not None and self.is_asked and not gone:
            connections[S] = SessionConnections(int(self.timeout * 1000), frozenset({(self.where, self.received)}))
        return EnsembleSnapshot(began, self.now, SessionTable(expiries), connections, self.complete)


def state_of(states: SessionStates) -> SessionState:
    """An unknown session has expired."""
    return (states.find(S) or (EXPIRED, None))[0]


class Watcher:
    """Session states over looks at `servers`, once a second."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.states = SessionStates()

    def see(self, *, gone: bool = False) -> SessionState:
        self.states.update(self.servers.look(gone=gone))
        return self.state

    @property
    def state(self) -> SessionState:
        return state_of(self.states)

    def watch(self, seconds: int, *, ping_every: int | None = None) -> list[SessionState]:
        seen = []
        for second in range(seconds):
            self.servers.now = float(int(self.servers.now) + 1)
            if ping_every is not None and second % ping_every == 0:
                self.servers.ping()
            seen.append(self.see())
        return seen

    def set(self, **fields: object) -> "Watcher":
        """Change what the servers would say."""
        for name, value in fields.items():
            setattr(self.servers, name, value)
        return self

    def ping(self) -> "Watcher":
        self.servers.ping()
        return self


def watched() -> Watcher:
    """A session that has pinged in time."""
    watcher = Watcher(Servers())
    watcher.see()
    assert watcher.watch(6, ping_every=2) == [CONNECTED] * 6
    return watcher


UNASKED: dict[str, object] = {"is_asked": False, "complete": False}
"""The server with its connection does not answer."""


def cut_when_unread(watcher: Watcher) -> list[SessionState]:
    assert watcher.set(where=None).watch(1) == [DISCONNECTED]
    return watcher.set(complete=False).watch(3)


@for_each(
    ("course", "expected"),
    [
        pytest.param(lambda w: w.set(where=None).watch(4), [DISCONNECTED] * 4, id="its connection is cut"),
        pytest.param(
            lambda w: [w.set(where=None).see(), *w.set(touched=w.servers.now + 1.9).watch(4)], [DISCONNECTED] * 5,
            id="a sign of life from before that reaches the leader late",
        ),
        pytest.param(
            lambda w: w.ping().watch(6), [CONNECTED] * 4 + [DISCONNECTED] * 2, id="it is silent for half its timeout"
        ),
        pytest.param(lambda w: [w.watch(5)[-1], *w.ping().watch(1)], [DISCONNECTED, CONNECTED], id="and pings again"),
        pytest.param(
            # A new leader gives each session its whole timeout.
            lambda w: [
                *w.set(where=None, touched=w.servers.now + 2).watch(3), *w.set(where="zk1", received=1).watch(1)
            ],
            [DISCONNECTED] * 3 + [CONNECTED], id="its server restarts, and its client is back",
        ),
        pytest.param(
            lambda w: [w.ping().see(), *w.set(**UNASKED).watch(6)], [CONNECTED] * 6 + [DISCONNECTED],
            id="its server does not answer: it has the benefit of the doubt for five sixths",
        ),
        pytest.param(
            lambda w: w.set(**UNASKED).watch(60, ping_every=2), [CONNECTED] * 60, id="and its expiry moves"
        ),
        pytest.param(
            lambda w: [w.ping().see(), *w.set(**UNASKED).watch(4), *w.set(is_asked=True, complete=True).watch(1)],
            [CONNECTED] * 5 + [DISCONNECTED], id="to be asked again is no sign of life",
        ),
        pytest.param(cut_when_unread, [DISCONNECTED] * 3, id="it was cut before its server did not answer"),
        pytest.param(
            lambda w: [each for n, each in enumerate(w.set(is_asked=False).watch(60, ping_every=2)) if not 0 < n < 6],
            [DISCONNECTED] + [CONNECTED] * 54, id="a server that nobody named, while its expiry moves",
        ),
        pytest.param(
            lambda w: [w.set(is_asked=False).watch(12, ping_every=2)[-1], w.ping().watch(7)[-1]],
            [CONNECTED, DISCONNECTED], id="and when it does not move any more",
        ),
        pytest.param(
            lambda w: [w.set(now=w.servers.now + 10).see(gone=True), w.ping().see()], [EXPIRED, CONNECTED],
            id="it is back after a change of leaders",
        ),
    ],
)  # fmt: skip
def test_the_states_of_a_session(course: Callable[[Watcher], list[SessionState]], expected: list[SessionState]) -> None:
    assert course(watched()) == expected


def test_a_session_that_is_gone_long_before_its_timeout_was_closed() -> None:
    watcher = watched().set(now=107)
    assert watcher.see(gone=True) is CLOSED
    assert watcher.states.find(S) == (CLOSED, 6000)


def table_without_it(watcher: Watcher, *, nodes: bool, connected: bool = False) -> EnsembleSnapshot:
    """A look at an ensemble that has just elected a leader: no client is connected again yet, unless one is."""
    look = watcher.servers.look()
    table = SessionTable({}, {S: ("/loadbalance/brokers/b1:8080",)} if nodes else {})
    return EnsembleSnapshot(look.began_at, look.ended_at, table, look.connections if connected else {}, look.complete)


def test_a_session_that_the_table_misses_while_it_is_connected_or_has_nodes_was_not_closed() -> None:
    """As seen of a real server that moved it to another expiry, and of a new leader, to which its client came back."""
    watcher = watched()
    for nodes, connected, expected in ((False, True, CONNECTED), (True, False, CONNECTED), (False, False, CLOSED)):
        watcher.states.update(table_without_it(watcher, nodes=nodes, connected=connected))
        assert watcher.state is expected


def test_nodes_that_outlive_their_session_do_not_keep_it_alive() -> None:
    watcher = watched()
    watcher.states.update(table_without_it(watcher.set(now=watcher.servers.now + T + 1), nodes=True))
    assert watcher.state is EXPIRED


def test_a_session_that_began_and_was_closed_between_pings_was_closed() -> None:
    watcher = Watcher(Servers(others={0xB: 5}))
    watcher.see(gone=True)
    watcher.servers.now += 1
    watcher.servers.touched = watcher.servers.now
    assert watcher.see() is CONNECTED
    watcher.servers.now += 1
    assert watcher.see(gone=True) is CLOSED


def test_of_a_session_that_was_there_before_us_nobody_knows_how_long_it_had_to_live() -> None:
    watcher = Watcher(Servers())
    watcher.see()
    assert watcher.set(now=watcher.servers.now + 1).see(gone=True) is EXPIRED


def test_an_old_connection_that_is_cleared_away_is_no_sign_of_life() -> None:
    states = SessionStates()
    both = frozenset({("zk1", 7), ("zk2", 3)})
    for second, received in enumerate([both, both, both, both - {("zk1", 7)}, both - {("zk1", 7)}]):
        table = SessionTable({S: 200_000})
        states.update(
            EnsembleSnapshot(second, second + 0.1, table, {S: SessionConnections(6000, received)}, complete=True)
        )
    assert state_of(states) is DISCONNECTED


def looked(began_at: float, ended_at: float, received: int | None) -> EnsembleSnapshot:
    """A look at S over some time; None: it is gone."""
    if received is None:
        return EnsembleSnapshot(began_at, ended_at, SessionTable({}), {}, complete=True)
    contact = SessionConnections(int(T * 1000), frozenset({("zk1", received)}))
    return EnsembleSnapshot(began_at, ended_at, SessionTable({S: 0}), {S: contact}, complete=True)


def test_a_slow_look_makes_nobody_silent() -> None:
    states = SessionStates()
    states.update(looked(0.0, 0.1, 1))
    states.update(looked(0.1 + T / 2, 10.0, 1))
    assert state_of(states) is CONNECTED


def test_a_session_that_may_have_run_out_while_it_was_looked_at_has_expired() -> None:
    states = SessionStates()
    states.update(looked(0.0, 0.1, 1))
    states.update(looked(1.0, 1.1, 2))  # that packet may have come at 0.01
    states.update(looked(T - 0.5, T + 0.1, None))
    assert state_of(states) is EXPIRED


def test_a_date_that_flickers_by_a_second_is_no_sign_of_life() -> None:
    watcher = watched().set(where=None)
    for second in range(20):
        watcher.servers.now += 1
        look = watcher.servers.look()
        flickering = {S: look.table.expiries_ms[S] + 1000 * (second % 2)}
        watcher.states.update(
            EnsembleSnapshot(look.began_at, look.ended_at, SessionTable(flickering), {}, complete=True)
        )
        assert watcher.state is DISCONNECTED


STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 3.0), st.sampled_from(["ping", "ping", "quiet", "cut", "back", "unread"]), st.floats(0, 1)
    ),
    min_size=1,
    max_size=60,
)


@given(steps=STEPS, slow=st.floats(0, 1.0))
def test_no_session_that_ran_out_of_time_is_ever_called_closed(
    steps: list[tuple[float, str, float]], slow: float
) -> None:
    watcher = Watcher(Servers(slow=slow))
    servers = watcher.servers
    watcher.see()
    for seconds, what, share in [*steps, (100.0, "quiet", 0.0)]:
        # What happens, happens somewhere between two looks.
        servers.now += seconds * share
        if servers.now < servers.expiry:
            servers.where = {"cut": None, "back": "zk2"}.get(what, servers.where)
            if what == "back" or (what == "ping" and servers.where is not None):
                servers.ping()
        servers.now += seconds * (1 - share)
        servers.is_asked = servers.complete = what != "unread"
        if servers.now + slow >= servers.expiry:  # it may run out of time while it is being looked at
            assert watcher.see(gone=True) is EXPIRED
            return
        watcher.see()


@given(pauses=st.lists(st.floats(0.05, 5.0), min_size=1, max_size=60), slow=st.floats(0, T / 4))
def test_no_session_that_pings_in_time_is_ever_called_disconnected(pauses: list[float], slow: float) -> None:
    watcher = Watcher(Servers(slow=slow))
    servers = watcher.servers
    for pause in pauses:
        servers.now += pause
        servers.received = int(servers.now / (T / 3))  # however seldom or slowly it is looked at
        assert watcher.see() is CONNECTED


# --- Whose session is whose: a member is known by its registration node, and remembered when that is gone


BROKERS, OTHERS = "/loadbalance/brokers", "/services"
FORGET_SECONDS = 60.0
Sessions = dict[int, tuple[str, ...]]


@pytest.fixture
def tracker() -> MemberTracker:
    return MemberTracker("c1", {BROKERS: "broker", OTHERS: "service"}, forget_after_seconds=FORGET_SECONDS)


def seen_sessions(at: float, sessions: Sessions) -> EnsembleSnapshot:
    return EnsembleSnapshot(
        began_at=at, ended_at=at + 0.1, table=SessionTable({s: int(at * 1000) + 6_000 for s in sessions}, sessions),
        connections={}, complete=True,
    )  # fmt: skip


def known(tracker: MemberTracker, at: float, sessions: Sessions) -> dict[str | None, tuple[str, str | None]]:
    return {member.member: (member.role, member.session) for member in tracker.update(seen_sessions(at, sessions))}


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        (f"{BROKERS}/b1:8080", True),
        (f"{BROKERS}/b1:8080/below", False),
        (BROKERS, False),
        ("/elsewhere/b1:8080", False),
        (f"{BROKERS}/{'x' * MAX_NAME}", False),
    ],
)
def test_only_nodes_right_below_a_tree_are_registrations(tracker: MemberTracker, path: str, counts: bool) -> None:
    assert tracker.is_registration(path) is counts


def test_a_member_has_the_role_of_its_tree_and_the_session_that_owns_its_node(tracker: MemberTracker) -> None:
    sessions: Sessions = {1: (f"{BROKERS}/b1:8080",), 2: (f"{OTHERS}/s1",), 3: ("/else/where",)}
    assert known(tracker, 0, sessions) == {"b1:8080": ("broker", "0x1"), "s1": ("service", "0x2")}


def test_of_two_nodes_of_one_name_the_one_in_the_tree_named_first_counts(tracker: MemberTracker) -> None:
    assert known(tracker, 0, {1: (f"{OTHERS}/b1",), 2: (f"{BROKERS}/b1",)}) == {"b1": ("broker", "0x2")}


def test_a_member_without_its_node_is_known_as_long_as_its_session_lives(tracker: MemberTracker) -> None:
    known(tracker, 0, {1: (f"{BROKERS}/b1",)})
    assert known(tracker, 10 * FORGET_SECONDS, {1: ()}) == {"b1": ("broker", "0x1")}


def test_a_member_whose_session_ended_is_said_to_have_lost_it_and_then_forgotten(tracker: MemberTracker) -> None:
    known(tracker, 0, {1: (f"{BROKERS}/b1",)})
    (gone,) = tracker.update(seen_sessions(10, {}))
    assert (gone.member, gone.state) == ("b1", SessionState.EXPIRED)
    assert "b1" in known(tracker, 10 + FORGET_SECONDS, {})
    assert known(tracker, 10.1 + FORGET_SECONDS, {}) == {}


def test_a_member_that_comes_back_in_time_has_its_new_session(tracker: MemberTracker) -> None:
    known(tracker, 0, {1: (f"{BROKERS}/b1",)})
    known(tracker, 10, {})
    assert known(tracker, 20, {2: (f"{BROKERS}/b1",)}) == {"b1": ("broker", "0x2")}
    assert known(tracker, 20 + 2 * FORGET_SECONDS, {2: ()}) == {"b1": ("broker", "0x2")}


def test_members_that_were_read_before_this_start_are_known_though_they_have_no_session_now(
    tracker: MemberTracker,
) -> None:
    last = [("b7", "0x77", CONNECTED), ("b8", "0x88", CLOSED), ("b1", "0x11", CONNECTED), ("b6", "nonsense", CONNECTED)]
    for member, session, state in last:
        tracker.recall(ZkSession(cluster="c1", member=member, session=session, state=state, timeout_ms=9000))
    tracker.recall(ZkSession(cluster="other", member="b9", session="0x99", state=CONNECTED))
    tracker.recall(ZkSession(cluster="c1"))
    readings = tracker.update(seen_sessions(0, {1: (f"{BROKERS}/b1",)}))
    assert {each.member: (each.session, each.state, each.timeout_ms) for each in readings} == {
        "b7": ("0x77", EXPIRED, 9000), "b8": ("0x88", CLOSED, 9000), "b1": ("0x1", DISCONNECTED, None),
    }  # fmt: skip
