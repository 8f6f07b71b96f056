"""The isolation policy on real parts: a ZooKeeper, real bookies, and `headgate run` with quarantine on."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from policies.isolation.decisions import QUARANTINE_GROUP
from tests.system.bookkeeper import Bookie, init_cluster
from tests.system.isolation import AVAILABLE, CLUSTER, Metadata, WatchedLoop, instant_ms, watched_loop
from tests.system.loop import UNHURRIED, Entry
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper, free_port

# ZooKeeper's Java client gives a session up by itself when no server answers for 4/3 of its timeout: a restart of the
# server must be shorter than that.
LONG_SECONDS = 20
# And a bookie whose session is expired under it is back after its timeout and 1.6 s more, which must not be "gone".
SHORT_MS, CONFIRM_SECONDS = 3_000, 20
MISSING_SECONDS = 2
NAMESPACE = "t/ns"
ISOLATION = {
    "quarantine": "on",
    "grace": "0s",
    "settle": "1s",
    "member_missing_after": f"{MISSING_SECONDS}s",
    "max_quarantined": 100,
}


@dataclass
class World:
    """Two real bookies in the group `g1` of an isolated namespace, and a loop that watches them."""

    zookeeper: ZooKeeper
    metadata: Metadata
    members: tuple[Bookie, Bookie]
    loop: WatchedLoop
    folder: Path
    jars: tuple[Path, ...]

    @property
    def member_ids(self) -> list[str]:
        return sorted(bookie.bookie_id for bookie in self.members)

    @contextmanager
    def stranger(self, session_ms: int = SHORT_MS) -> Iterator[Bookie]:
        """One more real bookie, which nobody has assigned."""
        folder = self.folder / f"stranger-{uuid.uuid4().hex[:6]}"
        with Bookie(folder, self.jars, self.zookeeper.servers, session_timeout_ms=session_ms) as bookie:
            try:
                yield bookie
            finally:
                bookie.stop()
                self.metadata.unassign(bookie.bookie_id)

    @contextmanager
    def killed(self, bookie: Bookie) -> Iterator[None]:
        """A bookie is down for the while of a block, whatever comes of it."""
        bookie.kill()
        try:
            yield
        finally:
            bookie.start()

    def join(self, bookie: str) -> dict[str, Any]:
        """A session of ours registers as a bookie, is put into quarantine, and by the operator into a real group."""
        self.metadata.register(bookie)
        said = self.loop.await_quarantine(bookie)
        self.metadata.assign(bookie, "spare")
        self.loop.await_alert("unassigned-bookie", bookie, "resolved")
        return said

    def leave(self, bookie: str) -> None:
        self.metadata.leave(bookie)
        self.metadata.unassign(bookie)

    def catch_up(self) -> None:
        """Return when everything that has been the case before this call has been read, decided and said."""
        passing = f"passing-{uuid.uuid4().hex[:6]}:1"
        self.join(passing)
        self.leave(passing)


@pytest.fixture(scope="module")
def world(
    bookkeeper_jars: tuple[Path, ...], loop_kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("isolation")
    isolation = {**ISOLATION, "confirm_after": f"{CONFIRM_SECONDS}s"}
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper", bookkeeper_jars))
        init_cluster(folder / "init", bookkeeper_jars, zookeeper.servers)
        metadata = Metadata(stack.enter_context(zookeeper.client(timeout=60.0)))
        metadata.client.create("/bookies", b"{}")
        members = (
            Bookie(folder / "member-1", bookkeeper_jars, zookeeper.servers, session_timeout_ms=LONG_SECONDS * 1000),
            Bookie(folder / "member-2", bookkeeper_jars, zookeeper.servers, session_timeout_ms=LONG_SECONDS * 1000),
        )
        for member in members:
            stack.enter_context(member)
            metadata.assign(member.bookie_id, "g1")
        for spare in ("spare-1:1", "spare-2:1"):  # so that a bookie that leaves their group is not most of it
            metadata.register(spare)
            metadata.assign(spare, "spare")
        metadata.isolate(NAMESPACE, "g1")
        loop = stack.enter_context(
            watched_loop(
                zookeeper=zookeeper.servers,
                loop_kafka=loop_kafka,
                folder=folder,
                port=free_port(),
                isolation=isolation,
                stream=UNHURRIED,
            )
        )
        yield World(zookeeper, metadata, members, loop, folder, bookkeeper_jars)


def test_a_bookie_without_rack_info_is_named_quarantined_and_resolved_when_assigned(world: World) -> None:
    loop, metadata = world.loop, world.metadata
    loop.await_placement(NAMESPACE, verdict="isolated", candidates=world.member_ids)
    before = metadata.racks()["g1"]
    with world.stranger() as stranger:
        bookie = stranger.bookie_id
        fired = loop.await_alert("unassigned-bookie", bookie, "firing")
        registered = metadata.registered(bookie)
        named_ms = fired.appended_ms - registered.ctime
        assert named_ms >= 0
        assert (fired.data["severity"], fired.data["labels"]["bookie"]) == ("warning", bookie)

        said = loop.await_quarantine(bookie)
        written = metadata.client.exists("/bookies")
        assert instant_ms(said["quarantined_at"]) == written.mtime
        assert said["leak_window_seconds"] == pytest.approx((written.mtime - registered.ctime) / 1000)
        assert metadata.racks()[QUARANTINE_GROUP][bookie]["rack"] == f"/{QUARANTINE_GROUP}"
        assert metadata.racks()["g1"] == before
        assert loop.decided("placement", NAMESPACE)[-1].data["candidates"] == world.member_ids
        eventually("it is exported", lambda: loop.metric("headgate_unassigned_bookie", bookie=bookie) == 1)
        _print(f"registered → alert {named_ms} ms, → quarantine {said['leak_window_seconds'] * 1000:.0f} ms")

        metadata.assign(bookie, "g1")
        loop.await_alert("unassigned-bookie", bookie, "resolved")
        loop.await_placement(NAMESPACE, verdict="isolated", candidates=sorted([*world.member_ids, bookie]))
        world.catch_up()
        assert loop.statuses("unassigned-bookie", bookie) == ["firing", "resolved"]
        eventually("nor is it exported", lambda: loop.metric("headgate_unassigned_bookie", bookie=bookie) == 0)
        assert bookie in metadata.racks()["g1"], "nobody takes it out again"


def test_a_namespace_is_promised_something_else_by_command_and_back(world: World) -> None:
    loop = world.loop
    loop.await_placement(NAMESPACE, promise="strict")
    for rules, promised in (("current", "current"), ("settings", "strict")):
        said = loop.command("promise", rules, "--cluster", CLUSTER, "--namespace", NAMESPACE)
        assert said.startswith(f"promised: {promised}. {NAMESPACE} "), said
        assert loop.decided("placement", NAMESPACE)[-1].data["promise"] == promised


@pytest.mark.long  # varies `test_a_bookie_without_rack_info`
def test_a_bookie_whose_session_expires_while_it_runs_has_joined_again_and_when_killed_is_gone_with_its_session(
    world: World,
) -> None:
    loop = world.loop
    with world.stranger() as stranger:
        bookie = stranger.bookie_id
        loop.await_quarantine(bookie)
        first = world.metadata.registered(bookie)
        world.zookeeper.expire(first.ephemeralOwner)
        second = eventually("it registers again", lambda: world.metadata.registration(bookie))
        assert (second.ephemeralOwner, second.czxid) != (first.ephemeralOwner, first.czxid)
        world.catch_up()
        assert _joins(loop, bookie) == [_session(first)], "it is still in quarantine"
        assert loop.statuses("unassigned-bookie", bookie) == ["firing"], "it is still the same unassigned bookie"
        assert [said["outcome"] for said in loop.carried_out(bookie)] == ["done"]

        stranger.kill()
        last_seen_ms = _await_gone(world, bookie)
        resolved = loop.await_alert("unassigned-bookie", bookie, "resolved")
        assert resolved.appended_ms >= last_seen_ms + CONFIRM_SECONDS * 1000
        assert loop.statuses("unassigned-bookie", bookie) == ["firing", "resolved"]


def test_a_new_registration_is_a_join_even_when_no_reading_missed_the_bookie(world: World) -> None:
    """The next order, when an operator takes the bookie out of quarantine, covers the new one."""
    loop, bookie = world.loop, "bk31:3181"
    first = world.metadata.register(bookie)
    loop.await_quarantine(bookie)
    with world.zookeeper.client() as other:
        both = other.transaction()
        both.delete(f"{AVAILABLE}/{bookie}")
        both.create(f"{AVAILABLE}/{bookie}", ephemeral=True)
        both.commit()
        second = world.metadata.registered(bookie)
        world.catch_up()
        world.metadata.unassign(bookie)
        eventually("it has joined again", lambda: len(loop.decided("bookie-quarantine", bookie)) == 2)
        assert _joins(loop, bookie) == [_session(first), _session(second)]
        readings = [r for r in loop.readings("bookies") if _is_ok(r, first.ctime)]
        from_first = next(i for i, reading in enumerate(readings) if _lists(reading, bookie))
        assert all(_lists(reading, bookie) for reading in readings[from_first:])
        world.metadata.assign(bookie, "spare")
        loop.await_alert("unassigned-bookie", bookie, "resolved")
    world.metadata.unassign(bookie)


@pytest.mark.long  # varies `test_a_bookie_without_rack_info`
def test_while_zookeeper_is_away_nothing_begins_or_ends_and_afterwards_all_is_as_before(world: World) -> None:
    loop = world.loop
    with world.stranger(LONG_SECONDS * 1000) as stranger:
        loop.await_quarantine(stranger.bookie_id)
        world.catch_up()
        before = _picture(world)
        said = (len(loop.alerts()), len(loop.decided("placement")), len(loop.decided("bookie-quarantine")))
        away_ms = _now_ms()
        world.zookeeper.stop()
        eventually("two readings have failed", lambda: len(_failed(loop, away_ms)) >= 2)
        world.zookeeper.start()
        back_ms = _now_ms()
        eventually("it is read again", lambda: any(_is_ok(r, back_ms) for r in loop.readings("bookies")))
        _assert_sessions_kept(world, before)
        world.catch_up()
        assert _picture(world) == before
        alerts, placements = loop.alerts()[said[0] :], loop.decided("placement")[said[1] :]
        assert [a.data for a in alerts if "passing-" not in a.data["subject"]] == []
        assert placements == []
        assert [
            d.data for d in loop.decided("bookie-quarantine")[said[2] :] if "passing-" not in d.data["bookie"]
        ] == []
        assert {r.data["outcome"] for r in _failed(loop, away_ms)} <= {"unreachable", "timeout"}


def _await_gone(world: World, bookie: str) -> int:
    """Wait until its node is gone; gives the last instant at which ZooKeeper still showed it to us."""
    last_seen_ms = 0
    while True:
        asked_ms = _now_ms()
        if world.metadata.registration(bookie) is None:
            return last_seen_ms
        last_seen_ms = asked_ms
        time.sleep(0.02)


def _picture(world: World) -> dict[str, Any]:
    """Who is registered by which node, who is in which group, what fires, and the placements in force."""
    bookies = [name for name in world.metadata.client.get_children(AVAILABLE) if name != "readonly"]
    firing: dict[tuple[str, str], str] = {}
    for alert in world.loop.alerts():
        firing[alert.data["alert"], alert.data["subject"]] = alert.data["status"]
    return {
        "registered": {bookie: world.metadata.registered(bookie).czxid for bookie in sorted(bookies)},
        "groups": {group: sorted(members) for group, members in world.metadata.racks().items()},
        "firing": sorted(key for key, status in firing.items() if status == "firing"),
        "placements": {e.key: (e.data["verdict"], e.data["candidates"]) for e in world.loop.decided("placement")},
    }


def _assert_sessions_kept(world: World, before: dict[str, Any]) -> None:
    threading.Event().wait(LONG_SECONDS)  # a session that the restart had ended would be gone by then
    assert {b: world.metadata.registered(b).czxid for b in before["registered"]} == before["registered"]


def _failed(loop: WatchedLoop, since_ms: int) -> list[Entry]:
    return [r for r in loop.readings("bookies") if r.appended_ms >= since_ms and r.data["outcome"] != "ok"]


def _is_ok(reading: Entry, since_ms: int) -> bool:
    return reading.appended_ms >= since_ms and reading.data["outcome"] == "ok"


def _lists(reading: Entry, bookie: str) -> bool:
    return any(registration["bookie"] == bookie for registration in reading.data["writable"])


def _joins(loop: WatchedLoop, bookie: str) -> list[tuple[str, int]]:
    """The registrations about which it was decided."""
    decisions = loop.decided("bookie-quarantine", bookie)
    assert {d.data["verdict"] for d in decisions} == {"quarantine"}
    return [(d.data["session"], d.data["czxid"]) for d in decisions]


def _session(stat: Any) -> tuple[str, int]:
    return f"0x{stat.ephemeralOwner:x}", stat.czxid


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _print(line: str) -> None:
    print(line)  # noqa: T201 - for who measures
