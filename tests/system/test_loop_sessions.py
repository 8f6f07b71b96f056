"""The sessions policy under `headgate run` on a real ZooKeeper, whose members are cut off, killed and started again.

Two clusters in one loop. `kept` is told to reconnect, `strict` to shut down. A member here does what the decisions ask
for when the test tells it to.
"""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from policies.sessions.readings import registration_path
from policies.sessions.settings import monitor_ms
from tests.system.loop import SOON
from tests.system.sessions import ZOOKEEPER, Member, SessionsLoop, sessions_loop
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper, free_port

T_SECONDS = 15.0
"""Timeout of the members' sessions. The loop has most of it to decide on a member that is cut off."""
MONITOR_SECONDS = monitor_ms(int(T_SECONDS * 1000)) / 1000
"""How long the loop holds a member that is cut off."""
WAIT_SECONDS = 6 * 3600
"""How long a bundle waits for the node of an old session: the tests delete it, and never wait for the end."""
SETTLE_SECONDS = 5

KEPT, STRICT = "kept", "strict"
SHARED, OF_B1, OF_B2, *PRIVATE = (f"t/ns/0x{n:08x}_0x{n + 1:08x}" for n in range(13))
B1, B2 = "b1:8080", "b2:8080"
TEN = [f"s{number}:8080" for number in range(10)]
OWNERSHIP = {"poll_interval": "300ms", "republish": "1s"}


POLICY: dict[str, Any] = {
    "settle": f"{SETTLE_SECONDS}s",
    "ownership_rules": "pip57",
    "fleet_window": "5s",  # short, so that losses of two tests do not count as one loss
    "wait_for_deletion": f"{WAIT_SECONDS}s",
    "clusters": {STRICT: {"on_session_lost": "shutdown", "fleet_ratio": 0.5, "shutdown_delay": "5s"}},
}


@dataclass
class World:
    """All parts, and what becomes of them over the whole run."""

    zookeeper: ZooKeeper
    loop: SessionsLoop
    client: KazooClient
    stack: ExitStack
    members: dict[str, Member]

    def start(self, cluster: str, name: str, *bundles: str) -> None:
        """Start a member, or a successor of one, which owns some bundles."""
        member = self.stack.enter_context(Member(name, cluster, self.zookeeper.servers, T_SECONDS))
        member.own(*bundles)
        self.members[name] = member

    def start_the_ten(self) -> None:
        """Each has a bundle of its own."""
        if TEN[0] not in self.members:
            for name in TEN:
                self.start(STRICT, name, private(name))
            self.await_established(STRICT, len(TEN))

    def await_established(self, cluster: str, count: int) -> None:
        labels = {"cluster": cluster, "role": "broker", "status": "established"}
        eventually(f"{count} are established", lambda: self.loop.metric("headgate_sessions", **labels) == count)

    def is_registered(self, cluster: str, name: str) -> bool:
        return self.client.exists(f"/{cluster}{registration_path(name)}") is not None

    @contextmanager
    def cut(self, *names: str) -> Iterator[None]:
        """Cut members off ZooKeeper during a block."""
        for name in names:
            self.members[name].cut()
        try:
            yield
        finally:
            for name in names:
                self.members[name].heal()

    def take_over(self, cluster: str, gone: str, bundle: str, other: str) -> None:
        """Another member owns a bundle as soon as the session of the one before is over."""
        eventually("its session is over", lambda: not self.is_registered(cluster, gone))
        eventually("its bundle is free", lambda: self.client.exists(f"/{cluster}/namespace/{bundle}") is None)
        self.members[other].own(bundle)

    def sharers(self) -> tuple[str, str, str]:
        """The owner of the shared bundle, the other member, and the first one's own bundle."""
        return (B1, B2, OF_B1) if self.members[B1].owns(SHARED) else (B2, B1, OF_B2)


def private(name: str) -> str:
    """The bundle of one of the ten."""
    return PRIVATE[TEN.index(name)]


@pytest.fixture(scope="module")
def world(
    bookkeeper_jars: tuple[Path, ...], loop_kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder, port = tmp_path_factory.mktemp("sessions"), free_port()
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper", bookkeeper_jars))
        client = stack.enter_context(zookeeper.client(timeout=60.0))
        for cluster in (KEPT, STRICT):
            client.ensure_path(f"/{cluster}")
        clusters = {
            name: {
                "zookeeper": {"servers": f"{zookeeper.servers}/{name}", **ZOOKEEPER},
                "sessions": {"poll_interval": "300ms", "admin_url": zookeeper.admin_url},
                "ownership": OWNERSHIP,
            }
            for name in (KEPT, STRICT)
        }
        loop = stack.enter_context(
            sessions_loop(
                loop_kafka=loop_kafka, folder=folder, port=port, clusters=clusters, sessions=POLICY, stream=SOON
            )
        )
        world = World(zookeeper, loop, client, stack, {})
        world.start(KEPT, B1, OF_B1, SHARED)
        world.start(KEPT, B2, OF_B2)
        world.await_established(KEPT, 2)
        eventually("bundles are known", lambda: loop.metric("headgate_bundles", cluster=KEPT, state="owned") == 3)
        yield world


def test_a_longer_cut_loses_the_session_and_the_loop_guides_the_way_back(world: World) -> None:
    owner, other, own = world.sharers()
    before, mark = world.members[owner].session, world.loop.mark()
    with world.cut(owner):
        lost = world.loop.await_decision(KEPT, owner, "reconnect", "session_lost", since=mark)
        world.take_over(KEPT, owner, SHARED, other)
    assert lost.data["session"] == before
    comes_back(world, owner, own, mark)


def comes_back(world: World, name: str, own: str, mark: int) -> None:
    """A member with a new session owns again what is still its own, and is told to unload what is another's."""
    loop, member = world.loop, world.members[name]
    member.register()
    recover = loop.await_decision(KEPT, name, "recover", "session_reestablished", since=mark)
    assert recover.data["plan"] == ["re-own", "republish-load-data", "invalidate-caches"]
    assert f"/namespace/{own}" in recover.data["bundles"]
    assert recover.data["session"] == member.session
    loop.await_decision(KEPT, name, "unload", "other_owner", "double_ownership", bundle=SHARED, since=mark)
    loop.await_decision(KEPT, name, "re-own", "absent", bundle=own, since=mark)
    member.own(own)
    loop.await_decision(KEPT, name, "keep", "own_session", bundle=own, since=mark)
    resume = loop.await_decision(KEPT, name, "resume", "recovered", since=mark)
    assert resume.data["recovery_seconds"] > 0
    loop.await_alert(KEPT, "session-lost", f"{KEPT}/{name}", "resolved")


def test_zookeeper_restarted_and_a_whole_fleet_lost_is_no_reason_to_shut_anybody_down(world: World) -> None:
    loop = world.loop
    world.start_the_ten()
    sessions = {name: world.members[name].session for name in (*TEN, B1, B2)}
    mark = loop.mark()
    with world.cut(*TEN):
        stopped_ms = time.time() * 1000 - 1000
        world.zookeeper.stop()
        for cluster in (KEPT, STRICT):
            loop.await_alert(cluster, "zookeeper-unread", cluster, "firing")
        world.zookeeper.start()
        for name in TEN:
            loop.await_decision(STRICT, name, "reconnect", "fleet_wide", since=mark)
        fleet_wide = loop.await_alert(STRICT, "session-fleet-wide", f"{STRICT}/broker", "firing")
        assert fleet_wide.data["severity"] == "critical"
        loop.await_alert(STRICT, "zookeeper-unread", STRICT, "resolved")
        eventually("all sessions are over", lambda: not any(world.is_registered(STRICT, name) for name in TEN))
    for name in TEN:
        _recovers(world, name, mark)
        assert world.members[name].session != sessions[name]
    loop.await_alert(STRICT, "session-fleet-wide", f"{STRICT}/broker", "resolved")
    assert not [each for each in loop.verdicts_of_cluster(STRICT) if each[1] in ("shutdown", "restart")]
    # Who comes back last is named by itself once the others are back, and no longer than that.
    last = {alert.key: alert.data["status"] for alert in loop.alerts(STRICT, "session-lost")}
    assert set(last.values()) <= {"resolved"}
    # Members that were connected again in time have lost nothing, though ZooKeeper was away.
    held = [name for name in (B1, B2) if _longest_cut_seconds(loop, name, sessions[name], stopped_ms) < MONITOR_SECONDS]
    of_held = [each for each in loop.verdicts_of_cluster(KEPT, mark) if each[0] in held]
    assert not [each for each in of_held if each[1] not in ("hold", "resume")]


def _longest_cut_seconds(loop: SessionsLoop, name: str, session: str, since_ms: float) -> float:
    """The longest time for which readings show a session as not connected; it counts as lost from 5T/6 on.

    A client that connects while the server starts may wait T for its answer. It may keep its session, but come late.
    """
    longest_ms, cut_ms = 0.0, math.nan
    for entry in loop.readings("zk-session", KEPT):
        at_ms = entry.appended_ms - entry.data["age_ms"]
        if entry.data["member"] != name or at_ms < since_ms:
            continue
        if entry.data["session"] != session:
            return math.inf
        longest_ms = max(longest_ms, at_ms - cut_ms)
        is_connected = entry.data["state"] == "connected"
        cut_ms = math.nan if is_connected else at_ms if math.isnan(cut_ms) else cut_ms
    return longest_ms / 1000


def _recovers(world: World, name: str, mark: int) -> None:
    member = world.members[name]
    member.register()
    world.loop.await_decision(STRICT, name, "recover", since=mark)
    member.own(private(name))
    world.loop.await_decision(STRICT, name, "resume", "recovered", since=mark)


def test_of_three_lost_of_ten_one_is_shut_down_and_the_guard_keeps_the_others(world: World) -> None:
    loop = world.loop
    world.start_the_ten()
    time.sleep(SETTLE_SECONDS + 1)  # else three losses might be the second ones of a flapping fleet
    lost, mark, cut_ms = TEN[2:5], loop.mark(), time.time() * 1000
    with world.cut(*lost):
        for name in lost:
            loop.await_decision(STRICT, name, "hold", "confirming", since=mark)
        (gone,) = eventually("one is shut down", lambda: _shut_down(loop, mark) or None)
        others = [name for name in lost if name != gone]
        for name in others:
            loop.await_decision(STRICT, name, "reconnect", "shutdown_budget", since=mark)
        down = loop.await_decision(STRICT, gone, "shutdown", "session_lost", since=mark)
        assert down.appended_ms > cut_ms + MONITOR_SECONDS * 1000
    for name in others:
        _recovers(world, name, mark)
    world.start(STRICT, gone, private(gone))  # which is the platform's part
    world.await_established(STRICT, len(TEN))
    assert _shut_down(loop, 0) == [gone], "one in the whole run"
    unlost = {each[0] for each in loop.verdicts_of_cluster(STRICT, mark)} - set(lost)
    assert unlost == set(), "nothing is said of the seven"


def _shut_down(loop: SessionsLoop, since: int) -> list[str]:
    return [name for name, verdict, _ in loop.verdicts_of_cluster(STRICT, since) if verdict == "shutdown"]
