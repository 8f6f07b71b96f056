"""The sessions policy on real parts: a ZooKeeper, agents as processes that follow `headgate run`, and their mishaps.

Two clusters in one loop. `kept` is told to reconnect; its agents serve unfenced, as PIP-57 has it. `strict` is told to
shut down; its ten agents serve fenced. At the end everything that anybody served is held against the bounds.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from connectors.sessions.agent.contact import boot_seconds
from policies.sessions.settings import monitor_ms
from tests.system.loop import SOON
from tests.system.sessions import ZOOKEEPER, Fleet, Incident, SessionsLoop, sessions_loop
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper, free_port

T_SECONDS = 15.0
"""Timeout of the agents' sessions. The loop has most of it to decide on a member that is cut off."""
MONITOR_SECONDS = monitor_ms(int(T_SECONDS * 1000)) / 1000
"""How long the loop holds a member that is cut off."""
LAST_HEARD_SECONDS = T_SECONDS / 3
"""The most by which the last ping may lie back when an agent is cut off or frozen."""
WAIT_SECONDS = 6 * 3600
"""How long a bundle waits for the node of an old session: the tests delete it, and never wait for the end."""
SETTLE_SECONDS = 5

KEPT, STRICT = "kept", "strict"
SHARED, OF_B1, OF_B2, *PRIVATE = (f"t/ns/0x{n:08x}_0x{n + 1:08x}" for n in range(13))
PAIRS = [f"t/pairs/0x{n:08x}_0x{n + 1:08x}" for n in range(5)]
B1, B2 = "b1:8080", "b2:8080"
TEN = [f"s{number}:8080" for number in range(10)]
WATCHED = {"sessions": {"poll_interval": "300ms"}, "ownership": {"poll_interval": "300ms", "republish": "1s"}}


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
    kept: Fleet
    strict: Fleet

    def start_the_ten(self) -> None:
        """Each has a bundle of its own, and shares one with its neighbour."""
        if self.strict.services:
            return
        for number, member in enumerate(TEN):
            self.strict.start(member, private(member), PAIRS[number // 2])
        for member in TEN:
            self.strict.await_serving(member, private(member))
        eventually("the loop knows them all", self._knows_the_ten)

    def _knows_the_ten(self) -> bool:
        return self.loop.metric("headgate_sessions", cluster=STRICT, role="broker", status="established") == len(TEN)


def private(member: str) -> str:
    """The bundle that only one of the ten wants."""
    return PRIVATE[TEN.index(member)]


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
            name: {"zookeeper": {"servers": f"{zookeeper.servers}/{name}", **ZOOKEEPER}, **WATCHED}
            for name in (KEPT, STRICT)
        }
        loop = stack.enter_context(
            sessions_loop(
                loop_kafka=loop_kafka, folder=folder, port=port, clusters=clusters, sessions=POLICY, stream=SOON
            )
        )
        timeout = ("--session-timeout", str(T_SECONDS))
        kept = Fleet(KEPT, zookeeper.servers, client, folder, loop, timeout)
        strict = Fleet(STRICT, zookeeper.servers, client, folder, loop, (*timeout, "--fence"))
        world = World(zookeeper, loop, stack.enter_context(kept), stack.enter_context(strict))
        kept.start(B1, OF_B1, SHARED)
        kept.start(B2, OF_B2, SHARED)
        kept.await_serving(B1, OF_B1)
        kept.await_serving(B2, OF_B2)
        eventually(
            "the loop knows them",
            lambda: (
                loop.metric("headgate_bundles", cluster=KEPT, state="owned") == 3
                and loop.metric("headgate_sessions", cluster=KEPT, role="broker", status="established") == 2
            ),
        )
        yield world


def sharers(world: World) -> tuple[str, str, str]:
    """Who owns the shared bundle, who else would, and the first one's own bundle."""
    owner = world.kept.await_owner(SHARED)
    other, own = (B2, OF_B1) if owner == B1 else (B1, OF_B2)
    return owner, other, own


def test_a_cut_shorter_than_the_watch_is_held_and_resumed(world: World) -> None:
    loop, kept = world.loop, world.kept
    owner, _, own = sharers(world)
    session, mark = kept.read_session(own), loop.mark()
    with kept.cut(owner) as cut_at:
        held = loop.await_decision(KEPT, owner, "hold", "connection_lost", since=mark)
        assert 0 < held.data["seconds_left"] <= MONITOR_SECONDS
        kept.await_serving(owner, SHARED, cut_at + 1.0)
    loop.await_decision(KEPT, owner, "resume", "reconnected", since=mark)
    kept.services[owner].await_line("invalidate-caches", cut_at)
    assert (kept.read_session(own), kept.read_session(SHARED)) == (session, session)
    assert not [line for line in kept.services[owner].lines("unload") if line["at"] > cut_at]
    assert loop.alerts(KEPT, "session-lost") == []


@pytest.mark.lean
def test_a_longer_cut_loses_the_session_and_the_loop_guides_the_way_back(world: World) -> None:
    owner, other, own = sharers(world)
    before, mark = world.kept.read_session(own), world.loop.mark()
    with world.kept.cut(owner) as cut_at:
        lost = world.loop.await_decision(KEPT, owner, "reconnect", "session_lost", since=mark)
        taken_at = world.kept.await_serving(other, SHARED, cut_at)
        assert taken_at >= cut_at + T_SECONDS - LAST_HEARD_SECONDS, "its session was alive"
    assert lost.data["session"] == before
    comes_back(world, owner, own, mark, cut_at)


@pytest.mark.long  # as a cut; and `test_bundle_service` and `test_loop_sessions_pulsar` freeze processes
def test_a_process_stopped_past_its_expiry_is_replaced_and_comes_back(world: World) -> None:
    owner, other, own = sharers(world)
    mark = world.loop.mark()
    with world.kept.frozen(owner) as frozen_at:
        world.loop.await_decision(KEPT, owner, "hold", "connection_lost", since=mark)
        world.loop.await_decision(KEPT, owner, "reconnect", "session_lost", since=mark)
        taken_at = world.kept.await_serving(other, SHARED, frozen_at)
        assert taken_at >= frozen_at + T_SECONDS - LAST_HEARD_SECONDS, "its session was alive"
    comes_back(world, owner, own, mark, frozen_at)


@pytest.mark.parametrize(
    "lose_checkpoint", [False, pytest.param(True, marks=pytest.mark.long)], ids=["state kept", "state lost"]
)
def test_who_has_no_session_when_headgate_is_killed_is_known_when_it_is_back(
    world: World, *, lose_checkpoint: bool
) -> None:
    """Neither its session nor its registration is there to be read: with the state its bundles are known, too."""
    loop, kept = world.loop, world.kept
    owner, other, own = sharers(world)
    mark = loop.mark()
    with kept.cut(owner) as cut_at:
        loop.await_decision(KEPT, owner, "reconnect", "session_lost", since=mark)
        eventually("its registration is gone", lambda: kept.registered_session(owner) is None)
        with loop.dead(lose_checkpoint=lose_checkpoint):
            kept.await_serving(other, SHARED, cut_at)
        labels = {"cluster": KEPT, "role": "broker"}
        eventually("it is known", lambda: loop.metric("headgate_sessions", status="session_lost", **labels) == 1)
        eventually("so is the other", lambda: loop.metric("headgate_sessions", status="established", **labels) == 1)
        again = mark if not lose_checkpoint else loop.mark()
    if lose_checkpoint:
        loop.await_decision(KEPT, owner, "recover", "session_reestablished", since=again)
        kept.await_serving(owner, own, cut_at)
        loop.await_decision(KEPT, owner, "resume", "recovered", since=again)
    else:
        comes_back(world, owner, own, again, cut_at)


def comes_back(world: World, member: str, own: str, mark: int, lost_at: float) -> None:
    """A member without contact since a moment owns again what is still its own, and lets go of what is another's."""
    loop, kept = world.loop, world.kept
    recover = loop.await_decision(KEPT, member, "recover", "session_reestablished", since=mark)
    assert recover.data["plan"] == ["re-own", "republish-load-data", "invalidate-caches"]
    assert f"/namespace/{own}" in recover.data["bundles"]
    loop.await_decision(KEPT, member, "keep", "own_session", bundle=own, since=mark)
    resume = loop.await_decision(KEPT, member, "resume", "recovered", since=mark)
    assert ("re-own", "absent") in loop.verdicts(KEPT, member, own, since=mark)
    # A member gives up what is another's at once: if it reports that before the loop decides, no order is needed.
    unloaded = kept.services[member].await_line("unload", lost_at)
    again = kept.services[member].await_line("preload", lost_at)
    assert (unloaded["bundle"], again["bundle"]) == (SHARED, own)
    kept.services[member].await_line("republish", again["at"])
    assert kept.read_session(own) == kept.registered_session(member) == recover.data["session"]
    loop.await_alert(KEPT, "session-lost", f"{KEPT}/{member}", "resolved")
    for said in loop.alerts(KEPT, "double-ownership"):
        loop.await_alert(KEPT, "double-ownership", said.data["subject"], "resolved")
    print(f"\n{member}: lost → all re-owned {resume.data['recovery_seconds']:.1f} s")  # noqa: T201


def test_a_node_of_the_old_session_is_waited_for_and_owned_when_it_is_deleted(world: World) -> None:
    loop, kept = world.loop, world.kept
    owner, _, own = sharers(world)
    old, before, mark = kept.services[owner], kept.read_session(own), loop.mark()
    kept.start(owner)  # the platform has started its successor before the old process has ended
    waits = loop.await_decision(KEPT, owner, "wait", "old_session", bundle=own, since=mark)
    assert waits.data["node_session"] == before != waits.data["session"]
    assert 0 < waits.data["seconds_left"] <= WAIT_SECONDS
    assert kept.services[owner].lines("serve") == []
    asked_at = boot_seconds()  # it lets its bundles go first, and on a busy machine its process ends long after
    assert old.stop() == 0
    assert kept.await_serving(owner, own) > asked_at
    loop.await_decision(KEPT, owner, "keep", "own_session", bundle=own, since=mark)
    decided = loop.verdicts(KEPT, owner, own, since=mark)
    # On a busy machine the agent may own it by the rules at hand, when it has waited for the loop long enough.
    assert [each for each in decided if each != ("wait", "unread")] in (
        [("wait", "old_session"), ("re-own", "absent"), ("keep", "own_session")],
        [("wait", "old_session"), ("keep", "own_session")],
    )
    assert kept.read_session(own) == kept.registered_session(owner)


def test_zookeeper_restarted_and_a_whole_fleet_lost_is_no_reason_to_shut_anybody_down(world: World) -> None:
    loop, strict = world.loop, world.strict
    world.start_the_ten()
    kept_sessions = {member: world.kept.registered_session(member) for member in (B1, B2)}
    sessions = {member: strict.registered_session(member) for member in TEN}
    mark = loop.mark()
    with strict.cut(*TEN) as cut_at:
        world.zookeeper.stop()
        for cluster in (KEPT, STRICT):
            loop.await_alert(cluster, "zookeeper-unread", cluster, "firing")
        world.zookeeper.start()
        for member in TEN:
            loop.await_decision(STRICT, member, "reconnect", "fleet_wide", since=mark)
        fleet_wide = loop.await_alert(STRICT, "session-fleet-wide", f"{STRICT}/broker", "firing")
        assert fleet_wide.data["severity"] == "critical"
        loop.await_alert(STRICT, "zookeeper-unread", STRICT, "resolved")
        eventually("all sessions are over", lambda: not any(map(strict.registered_session, TEN)))
    for member in TEN:
        loop.await_decision(STRICT, member, "recover", since=mark)
        strict.await_serving(member, private(member), cut_at + T_SECONDS)
        loop.await_decision(STRICT, member, "resume", "recovered", since=mark)
        assert strict.registered_session(member) not in (None, sessions[member])
    loop.await_alert(STRICT, "session-fleet-wide", f"{STRICT}/broker", "resolved")
    said = loop.verdicts_of_cluster(STRICT)
    assert not [each for each in said if each[1] in ("shutdown", "restart")]
    # Who comes back last is named by itself once the others are back, and no longer than that.
    last = {alert.key: alert.data["status"] for alert in loop.alerts(STRICT, "session-lost")}
    assert set(last.values()) <= {"resolved"}
    assert all(strict.services[member].process.poll() is None for member in TEN)
    # Who could connect again in time has lost nothing; on a busy machine a session may end before.
    held = {member for member, session in kept_sessions.items() if world.kept.registered_session(member) == session}
    of_held = [each for each in loop.verdicts_of_cluster(KEPT, mark) if each[0] in held]
    assert not [each for each in of_held if each[1] not in ("hold", "resume")]


def test_of_three_lost_of_ten_one_is_shut_down_and_the_guard_keeps_the_others(world: World) -> None:
    loop, strict = world.loop, world.strict
    world.start_the_ten()
    time.sleep(SETTLE_SECONDS + 1)  # else three losses might be the second ones of a flapping fleet
    lost, mark = TEN[2:5], loop.mark()
    with strict.cut(*lost) as cut_at:
        for member in lost:
            loop.await_decision(STRICT, member, "hold", "confirming", since=mark)
        down = eventually("one is shut down", lambda: _shut_down(loop, mark) or None)
        others = [member for member in lost if member not in down]
        for member in others:
            loop.await_decision(STRICT, member, "reconnect", "shutdown_budget", since=mark)
        (gone,) = down
        assert strict.services[gone].wait() == 0
        (said,) = strict.services[gone].lines("shut-down")
        assert said["why"] == "session_lost"
        assert said["at"] > cut_at + MONITOR_SECONDS
    for member in others:
        loop.await_decision(STRICT, member, "recover", since=mark)
        strict.await_serving(member, private(member), cut_at + T_SECONDS)
        loop.await_decision(STRICT, member, "resume", "recovered", since=mark)
    strict.start(gone)  # which is the platform's part
    strict.await_serving(gone, private(gone))
    assert _shut_down(loop, 0) == [gone], "one in the whole run"
    unlost = {each[0] for each in loop.verdicts_of_cluster(STRICT, mark)} - set(lost)
    assert unlost == set(), "nothing is said of the seven"


def _shut_down(loop: SessionsLoop, since: int) -> list[str]:
    return [member for member, verdict, _ in loop.verdicts_of_cluster(STRICT, since) if verdict == "shutdown"]


def _change_hands(world: World) -> None:
    owner, other, _ = sharers(world)
    mark = world.loop.mark()
    with world.kept.cut(owner) as cut_at:
        world.kept.await_serving(other, SHARED, cut_at)
    world.loop.await_decision(KEPT, owner, "resume", "recovered", since=mark)


def _unloaded_at(fleet: Fleet, incident: Incident) -> float:
    """When the member first unloaded a bundle after an incident had begun."""
    return min(
        (line["at"] for line in fleet.lines(incident.member, "unload") if line["at"] > incident.began_at), default=0
    )


def test_over_the_whole_run_nobody_served_a_bundle_of_another_beyond_the_bound(world: World) -> None:
    """Fenced: never two at once. Unfenced: only while one has no contact, after its session's end, until it unloads.

    So an overlap lasts for at most (time without contact - T) + the time until the agent has read and unloads.
    """
    kept, strict = world.kept, world.strict
    while len(kept.servers_of(SHARED)) < 3:  # less would show nothing, and not all tests may have run before
        _change_hands(world)
    assert strict.overlaps() == []
    overlaps = kept.overlaps()
    for overlap in overlaps:
        assert any(
            incident.member in overlap.members
            and incident.began_at + T_SECONDS - LAST_HEARD_SECONDS <= overlap.began_at
            and overlap.ended_at <= _unloaded_at(kept, incident)
            for incident in kept.incidents
        ), overlap
    assert overlaps, "an unfenced agent that is cut off serves on"
    longest = max(overlap.ended_at - overlap.began_at for overlap in overlaps)
    print(f"\nfenced: 0 overlaps; unfenced: {len(overlaps)}, the longest {longest:.2f} s")  # noqa: T201
