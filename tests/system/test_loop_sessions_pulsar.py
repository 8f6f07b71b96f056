"""A real Pulsar broker under `headgate run`: what it does when its session is lost, and what headgate says of it."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from connectors.zookeeper.server_admin import session_name
from policies.sessions.readings import BROKERS, registration_path
from tests.system.loop import UNHURRIED, Entry
from tests.system.pulsar import CLUSTER, PulsarBroker, PulsarCluster
from tests.system.pulsar_topics import create_namespace, produce
from tests.system.runbooks import Operator, commands_of, find_commands
from tests.system.sessions import ZOOKEEPER, SessionsLoop, sessions_loop
from tests.system.waiting import eventually, within
from tests.system.zookeeper import ZooKeeper, free_port

T_SECONDS = 10
BOOKIE_T_SECONDS = 60
"""As long as may be: this is not about the bookie, and without it the broker cannot say that it is well.

With 3 s each outage ended its session (the Java client gives one up by itself after 4/3 of its timeout without an
answer), and one that finds its old registration still there after its timeout ends itself.
"""
NO_CLEANING = ("-Dznode.container.checkIntervalMs=3600000",)
"""Pulsar makes the registrations' parent a container: left empty for a minute, it would go, and its rights with it."""
ZOMBIE_AFTER_SECONDS = 30
"""A broker that comes back takes up to 9 s."""
AWAY_SECONDS = 20
BACK_SECONDS = 10.0
"""In which its old node is gone, and a broker that comes back has mostly registered: measured 1 to 9 s."""
SERVES_SECONDS = 30.0
"""A broker that is going to serve again by itself does so within this; another is restarted."""

NODES_ONLY = "nodes-only"
"""The same cluster, watched without its health: a broker that does not answer is not given up."""
TOPIC = "t/ns/topic"
OWNERSHIP = {"poll_interval": "500ms", "republish": "1s"}
HEALTH = {"poll_interval": "1s", "timeout": "10s", "republish": "3s"}
SESSIONS = {
    "ownership_rules": "current",
    "settle": "1s",  # so that no outage is taken for flapping
    "shutdown_budget": 1,
    "orphan_after": "10s",
}


@dataclass
class World:
    """A Pulsar of one broker, which owns a bundle, and a loop that watches it in two ways."""

    pulsar: PulsarCluster
    loop: SessionsLoop
    client: KazooClient

    @property
    def broker(self) -> PulsarBroker:
        return self.pulsar.brokers[0]

    @property
    def member(self) -> str:
        return self.broker.broker_id

    @property
    def zookeeper(self) -> ZooKeeper:
        return self.pulsar.zookeeper

    def registered(self) -> bool:
        return self.node(registration_path(self.member)) is not None

    def node(self, path: str) -> dict[str, Any] | None:
        """A node's session and transaction; None while there is none."""
        try:
            stat = self.client.exists(path)
        except NoNodeError:
            return None
        return None if stat is None else {"session": session_name(stat.ephemeralOwner), "czxid": stat.czxid}

    def bundle(self) -> str:
        """The path of the one bundle of `t/ns`, as its owner made it."""
        (child,) = self.client.get_children("/namespace/t/ns")
        return f"/namespace/t/ns/{child}"

    def is_healthy(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.broker.admin_url}/admin/v2/brokers/health", timeout=30).is_success
        return False

    def may_register(self, *, yes: bool) -> None:
        """Whether the broker can make its registration: ZooKeeper's access rights of the nodes' parent."""
        forbidding = [make_acl("world", "anyone", read=True, delete=True, admin=True)]
        self.client.retry(self.client.set_acls, BROKERS, OPEN_ACL_UNSAFE if yes else forbidding)

    def await_well(self) -> None:
        """Return when the broker is registered, serves, and headgate knows that it does."""
        eventually("it is registered", self.registered)
        eventually("it serves", self._serves)
        labels = {"cluster": CLUSTER, "role": "broker", "status": "established"}
        eventually("headgate knows", lambda: self.loop.metric("headgate_sessions", **labels) == 1)

    def mend(self) -> None:
        """Make it well, whatever a test before has left behind."""
        self.zookeeper.start()
        self.may_register(yes=True)
        parts = (*self.pulsar.bookies, self.broker)
        for part in parts:
            part.start()
        if not self._serves_in_time():
            for part in reversed(parts):
                part.stop()
            for part in parts:
                part.start()
        self.await_well()

    def _serves_in_time(self) -> bool:
        return bool(within(SERVES_SECONDS, lambda: self.registered() and self._serves()))

    def _serves(self) -> bool:
        try:
            produce(self.pulsar, TOPIC, 1)
        except (AssertionError, httpx.TransportError, json.JSONDecodeError):
            return False
        return True


@pytest.fixture
def world(running: World) -> World:
    """All parts, well: no test hands its troubles on."""
    running.mend()
    return running


@pytest.fixture(scope="module")
def running(
    pulsar_jars: tuple[Path, ...],
    bookkeeper_jars: tuple[Path, ...],
    loop_kafka: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    folder, port = tmp_path_factory.mktemp("pulsar-sessions"), free_port()
    sessions = {**SESSIONS, "zombie_after": f"{ZOMBIE_AFTER_SECONDS}s"}
    with ExitStack() as stack:
        pulsar = PulsarCluster(folder / "pulsar", pulsar_jars, bookkeeper_jars, bookies=0, zookeeper_flags=NO_CLEANING)
        stack.enter_context(pulsar)
        pulsar.add_bookie(session_timeout_ms=BOOKIE_T_SECONDS * 1000)
        # A topic without a subscription would be deleted after a minute, and with it what a lookup of its bundle needs.
        kept = {"brokerDeleteInactiveTopicsEnabled": "false"}
        pulsar.add_broker(ensemble_size=1, session_timeout_ms=T_SECONDS * 1000, properties=kept)
        create_namespace(pulsar, "t/ns")
        produce(pulsar, TOPIC, 1)
        zookeeper = {"servers": pulsar.zookeeper.servers, **ZOOKEEPER}
        watched = {
            "zookeeper": zookeeper,
            "sessions": {"poll_interval": "500ms", "admin_url": pulsar.zookeeper.admin_url},
            "ownership": OWNERSHIP,
        }
        clusters = {
            CLUSTER: {**watched, "pulsar": {"admin_url": pulsar.admin_url}, "health": HEALTH},
            NODES_ONLY: watched,
        }
        loop = stack.enter_context(
            sessions_loop(
                loop_kafka=loop_kafka, folder=folder, port=port, clusters=clusters, sessions=sessions, stream=UNHURRIED
            )
        )
        yield World(pulsar, loop, stack.enter_context(pulsar.zookeeper.client(timeout=60.0)))


def make_a_zombie(world: World, *, by_an_outage: bool) -> tuple[int, float]:
    """Gives when the broker's registration went for good, and what had been decided by then.

    ZooKeeper is away for 20 s, which may do: once 4 of 4 brokers did not come back, on a busier day 1 of 9, and then
    one 17 s after ZooKeeper. So whoever is not back yet may not register any more, and if it is back, its registration
    is deleted besides: it is healthy and registered nowhere, too. Which is all that is done without an outage.
    """
    mark, gone_ms = world.loop.mark(), time.time() * 1000
    if by_an_outage:
        world.zookeeper.stop()
        time.sleep(AWAY_SECONDS)
        world.zookeeper.start()
        gone_ms = time.time() * 1000
        time.sleep(BACK_SECONDS)
    world.may_register(yes=False)
    if world.registered():
        eventually("it is well, and may not register again", lambda: well_for_the_last_time(world))
        mark, gone_ms = world.loop.mark(), time.time() * 1000
        world.client.delete(registration_path(world.member))
    assert not world.registered()
    return mark, gone_ms


def well_for_the_last_time(world: World) -> bool:
    """Whether it is registered now that it may not register; if not, what was seen was its old registration."""
    world.may_register(yes=True)
    world.await_well()
    world.may_register(yes=False)
    return world.registered()


@pytest.mark.parametrize(
    "lose_checkpoint", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "an outage, a new Headgate"]
)
def test_a_zombie_is_named_with_its_evidence_and_a_restart_cures_it(world: World, *, lose_checkpoint: bool) -> None:
    loop, member = world.loop, world.member
    mark, gone_ms = make_a_zombie(world, by_an_outage=lose_checkpoint)
    fired = loop.await_alert(CLUSTER, "zombie-member", f"{CLUSTER}/{member}", "firing")
    restart = loop.await_decision(CLUSTER, member, "restart", "zombie", since=mark)
    health = loop.readings("member-health", CLUSTER)
    (of_health,) = (each for each in health if each.event["id"] in restart.data["evidence"])
    ownerships = loop.readings("ownerships", CLUSTER)
    (of_nodes,) = (each for each in ownerships if each.event["id"] in restart.data["evidence"])
    # From when it was last read to be unwell, the broker had the chance to register itself; and who was read to be gone
    # before ZooKeeper was seen here to be back, has had its time since.
    unwell_ms = [_fetched_ms(each) for each in health if each.offset < of_health.offset and not each.data["healthy"]]
    named_seconds = (fired.appended_ms - max([gone_ms, *unwell_ms])) / 1000
    since_read_seconds = (fired.appended_ms - max([_read_gone_ms(ownerships, of_nodes), *unwell_ms])) / 1000
    assert world.broker.is_alive
    eventually("it says it is well", world.is_healthy)
    assert not world.registered(), "but it is a zombie"  # its list of brokers may be an old one, with its own name
    print(f"\nzombie: no registration → named after {named_seconds:.1f} s")  # noqa: T201
    assert since_read_seconds >= ZOMBIE_AFTER_SECONDS - 1
    assert fired.data["severity"] == "critical"
    assert (of_health.data["member"], of_health.data["healthy"]) == (member, True)
    assert (of_nodes.data["tree"], of_nodes.data["nodes"]) == ("/loadbalance/brokers", [])
    assert len([each for each in loop.verdicts_of_cluster(CLUSTER, mark) if each[1] == "restart"]) == 1

    if lose_checkpoint:
        # It has neither a registration nor a place on a list: a new Headgate knows of it by the readings of before.
        with loop.dead(lose_checkpoint=True):
            killed = loop.mark()
        restart = loop.await_decision(CLUSTER, member, "restart", "zombie", since=killed)
        loop.await_alert(CLUSTER, "zombie-member", f"{CLUSTER}/{member}", "firing")

    world.may_register(yes=True)
    world.broker.kill()
    world.broker.start()
    loop.await_alert(CLUSTER, "zombie-member", f"{CLUSTER}/{member}", "resolved")
    world.await_well()
    # What it owned before the readings there still are, a new Headgate does not know: nothing is waited for then.
    loop.await_decision(CLUSTER, member, "recover" if lose_checkpoint else "resume", since=restart.offset)


def _read_gone_ms(ownerships: Sequence[Entry], of_nodes: Entry) -> float:
    """When registrations were first read to be none, of the readings of that kind that end with this one."""
    ended = _fetched_ms(of_nodes)
    for each in reversed([each for each in ownerships if each.offset <= of_nodes.offset]):
        if each.data["tree"] == of_nodes.data["tree"] and each.data["outcome"] == "ok":
            if each.data["nodes"]:
                break
            ended = _fetched_ms(each)
    return ended


def _fetched_ms(reading: Entry) -> float:
    """From when on it counts: of a health check that took long, its beginning."""
    return reading.appended_ms - float(reading.data.get("age_ms") or 0)


def test_a_bundle_is_unloaded_and_found_again_by_the_commands_of_runbooks(
    world: World, pulsar_admin_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    """`double-ownership` does not come about at one real broker; its command is that of `heartbeat-bundle-taken`."""
    loop, path = world.loop, world.bundle()
    bundle = path.removeprefix("/namespace/")
    operator = Operator(tmp_path / "tools")
    operator.install_pulsar_admin(pulsar_admin_jars, world.pulsar.admin_url)
    operator.run(commands_of("sessions", "double-ownership", bundle=bundle))
    assert world.node(path) is None
    loop.await_alert(NODES_ONLY, "orphan-bundle", f"{NODES_ONLY}/{bundle}", "firing")
    explained = loop.command("explain", f"{NODES_ONLY}/{bundle}")
    *find, look_up = find_commands(explained, "sessions", "orphan-bundle")
    topics = operator.run(find).split()
    assert topics == [f"persistent://{TOPIC}"]
    operator.run([look_up], {"TOPIC": topics[0]})
    loop.await_alert(NODES_ONLY, "orphan-bundle", f"{NODES_ONLY}/{bundle}", "resolved")


@pytest.mark.long  # varies `test_a_zombie`
def test_what_a_frozen_broker_does_when_it_thaws_is_what_headgate_says(world: World) -> None:
    loop, member, path = world.loop, world.member, world.bundle()
    before, mark, bundle = world.node(path), loop.mark(), path.removeprefix("/namespace/")
    with world.broker.frozen():
        eventually("its nodes are gone", lambda: world.node(path) is None and not world.registered())
        loop.await_decision(NODES_ONLY, member, "reconnect", "session_lost", since=mark)
        # It does not answer in time: slow, not dead, so nothing of its is given up.
        loop.await_decision(CLUSTER, member, "reconnect", "session_lost", since=mark)
    loop.await_decision(CLUSTER, member, "recover", "session_reestablished", since=mark)
    loop.await_decision(NODES_ONLY, member, "recover", "session_reestablished", since=mark)
    eventually("it owns its bundle again", lambda: world.node(path) or None)
    kept = loop.await_decision(NODES_ONLY, member, "keep", "own_session", bundle=bundle, since=mark)
    loop.await_decision(NODES_ONLY, member, "resume", "recovered", since=mark)
    after = world.node(path)
    assert before is not None
    assert after is not None
    assert (after["session"], after["czxid"] > before["czxid"]) == (kept.data["session"], True)
    assert after["session"] == (world.node(registration_path(member)) or {})["session"] != before["session"]
    verdicts = [entry.data["verdict"] for entry in loop.decided(NODES_ONLY, member, bundle, mark)]
    assert verdicts in (["keep"], ["re-own", "keep"], ["wait", "keep"], ["wait", "re-own", "keep"])
    assert ("gone", "unreachable") not in loop.verdicts(CLUSTER, member, since=mark)
    # Each bundle it held gets its verdict at thaw.
    loop.await_decision(CLUSTER, member, "keep", "own_session", bundle=bundle, since=mark)
