"""The agent by itself, on nodes in memory; `tests/system/test_ownership_agent.py` has it on a real ZooKeeper."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState

from connectors.sessions.agent import NoSessionError, OwnedByOtherError, OwnershipAgent, agent
from connectors.sessions.agent.bundles import Bundles
from policies.errors import UserError
from policies.sessions.decisions import SessionStatus
from policies.sessions.judge.ownership_table import NodeNow
from tests.connectors.sessions.agent.test_contact import TIMEOUT_MS, Client
from tests.connectors.sessions.agent.test_reconciler import ME, OTHER, PATHS, App, FakeNodes, World
from tests.system.waiting import eventually

PATH = PATHS[0]
MINE = json.dumps({"brokerId": ME}).encode()


@dataclass
class ConnectedClient(Client):
    """A client whose state the test sets."""

    connected: bool = False
    client_state: str = KeeperState.CONNECTED
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.listeners.append(listener)

    def remove_listener(self, listener: Callable[[str], None]) -> None:
        self.listeners.remove(listener)

    def becomes_state(self, state: str) -> None:
        for listener in self.listeners:
            listener(state)


class Member:
    """An agent, its application and the nodes it sees; seconds stand still until the test lets them pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fence: bool = False) -> None:
        self.seconds = 100.0
        self.client, self.app, self.world = ConnectedClient(), App(), World(Bundles())
        nodes = FakeNodes(self.world)
        monkeypatch.setattr(agent, "ClientNodes", lambda *_: nodes)
        kazoo = cast("KazooClient", self.client)
        self.agent = OwnershipAgent(kazoo, ME, self.app, fence=fence, clock=lambda: self.seconds)
        self.world.bundles = self.agent._bundles

    def connect(self) -> None:
        self.client.becomes_state(KazooState.CONNECTED)
        eventually("it has a session", lambda: self.agent.status is SessionStatus.ESTABLISHED)


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Iterator[Member]:
    member = Member(monkeypatch)
    with member.agent:
        yield member


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("bundle", MINE, "is not the path of a node"),
        ("/", MINE, "is not the path of a node"),
        ("/a/../b", MINE, "is not the path of a node"),
        ("/a", json.dumps({"brokerId": OTHER}).encode(), f"does not name {ME}"),
        ("/a", b"b1", f"does not name {ME}"),
    ],
    ids=["no path", "the root", "a relative path", "another's value", "no JSON"],
)
def test_a_bundle_that_nobody_could_tell_the_owner_of_is_a_users_mistake(
    member: Member, path: str, value: bytes, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        member.agent.acquire(path, value)


def test_a_fence_on_a_client_that_is_connected_already_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client: Any = ConnectedClient(connected=True)
    with pytest.raises(UserError, match=r"make the OwnershipAgent before client\.start\(\)"):
        OwnershipAgent(client, ME, App(), fence=True)


def test_without_a_session_nothing_new_is_taken(member: Member) -> None:
    with pytest.raises(NoSessionError):
        member.agent.acquire(PATH, MINE)
    assert (member.agent.held(), member.agent.serving(PATH)) == ((), False)


def test_what_is_owned_is_served_until_it_is_released(member: Member) -> None:
    member.connect()
    assert member.agent.acquire(PATH, MINE)
    assert (member.agent.owned(), member.agent.held()) == ((PATH,), (PATH,))
    assert (member.world.owner(PATH), member.app.open) == (ME, {PATH})
    assert (member.agent.serving(PATH), member.agent.seconds_left(PATH)) == (True, math.inf)

    member.agent.release(PATH)
    assert (member.world.owner(PATH), member.app.open) == (None, set())
    assert (member.agent.held(), member.agent.serving(PATH)) == ((), False)


def test_what_is_anothers_is_not_taken_and_its_owner_is_named(member: Member) -> None:
    member.world.put(PATH, NodeNow(exists=True, owner=OTHER, session="0x9", version=0))
    member.connect()
    with pytest.raises(OwnedByOtherError, match=OTHER):
        member.agent.acquire(PATH, MINE)
    assert (member.world.owner(PATH), member.agent.serving(PATH)) == (OTHER, False)


def test_after_its_end_nothing_is_served_and_the_node_stays_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(monkeypatch)
    with member.agent:
        member.connect()
        member.agent.acquire(PATH, MINE)
    assert (member.agent.serving(PATH), member.agent.seconds_left(PATH)) == (False, 0.0)
    assert (member.world.owner(PATH), member.client.listeners) == (ME, [])


def test_fenced_it_serves_for_five_sixths_of_the_timeout_after_the_last_contact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = Member(monkeypatch, fence=True)
    with member.agent:
        member.connect()
        assert member.agent.acquire(PATH, MINE)
        eventually("a server has answered", lambda: member.agent.serving(PATH))
        assert member.agent.seconds_left(PATH) == pytest.approx(TIMEOUT_MS / 1000 * 5 / 6)
        member.client.client_id = None  # from here on nobody answers
        member.seconds += 4.9
        assert member.agent.seconds_left(PATH) == pytest.approx(0.1)
        member.seconds += 0.1
        assert not member.agent.serving(PATH)
