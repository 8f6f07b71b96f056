"""The example service, several at once: frozen, cut off, killed; and who served what when, held against the bounds."""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from connectors.kafka.topics import TopicSettings
from connectors.sessions.agent.contact import boot_seconds
from connectors.zookeeper.server_status import session_name
from policies.sessions.decisions import OwnershipDecision, SessionDecision
from policies.wire import decision_event
from tests.connectors.sessions.agent.decided import ownership_decision, session_decision
from tests.system.loop import Topic, produce
from tests.system.owners import BundleService, overlap_seconds
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper

T_SECONDS = 4.0
LAST_HEARD_SECONDS = T_SECONDS / 3
"""How far back the last heartbeat or ping may lie when a service is cut off or frozen."""
TIMEOUT = ("--session-timeout", str(T_SECONDS))
FENCED = pytest.mark.parametrize(
    "fence", [True, pytest.param(False, marks=pytest.mark.long)], ids=["fence", "no fence"]
)
"""Without a fence is how `test_loop_sessions` has it, which holds the whole run against the same bound."""
_numbers = itertools.count(1)


@pytest.fixture
def chroot(zookeeper: ZooKeeper) -> str:
    """A place of this test's own on the shared server."""
    chroot = f"/services-{next(_numbers)}"
    with zookeeper.client() as client:
        client.ensure_path(chroot)
    return chroot


@pytest.fixture
def client(zookeeper: ZooKeeper, chroot: str) -> Iterator[KazooClient]:
    """An onlooker."""
    with zookeeper.client(chroot=chroot) as client:
        yield client


@FENCED
def test_a_frozen_service_is_replaced_and_lets_go_when_it_thaws(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path, *, fence: bool
) -> None:
    options = (*TIMEOUT, "--fence") if fence else TIMEOUT
    servers = zookeeper.servers + chroot
    with BundleService(servers, "b1:8080", tmp_path, *options) as b1:
        b1.await_line("serve")
        with BundleService(servers, "b2:8080", tmp_path, *options) as b2:
            b2.await_line("republish")
            frozen_at = boot_seconds()
            b1.freeze()
            taken = b2.await_line("serve", frozen_at)
            assert taken["at"] >= frozen_at + T_SECONDS - LAST_HEARD_SECONDS, "its session was alive"
            b1.thaw()
            unloaded = b1.await_line("unload")
            b1.await_line("invalidate-caches", unloaded["at"])
            b2.await_line("serve", unloaded["at"])
            after = [line["at"] for line in b1.lines("serve") if line["at"] > taken["at"]]
            assert not [at for at in after if at > unloaded["at"]], "unloaded is unloaded"
            if fence:
                assert not after
                assert overlap_seconds(b1, b2) == 0


@FENCED
def test_a_service_that_is_cut_off_overlaps_its_successor_within_the_bound(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path, *, fence: bool
) -> None:
    options = (*TIMEOUT, "--fence") if fence else TIMEOUT
    with TcpProxy(zookeeper.servers) as proxy, ExitStack() as services:
        b1 = services.enter_context(BundleService(proxy.address + chroot, "b1:8080", tmp_path, *options))
        b1.await_line("serve")
        with BundleService(zookeeper.servers + chroot, "b2:8080", tmp_path, *options) as b2:
            b2.await_line("republish")
            proxy.cut()
            cut_at = boot_seconds()
            taken = b2.await_line("serve")
            b2.await_line("serve", taken["at"] + 1.0)
            proxy.heal()
            unloaded = b1.await_line("unload")
            b2.await_line("serve", unloaded["at"] + 0.5)
            assert taken["at"] >= cut_at + T_SECONDS - LAST_HEARD_SECONDS
            last = max(line["at"] for line in b1.lines("serve"))
            if fence:
                assert overlap_seconds(b1, b2) == 0
                assert last <= cut_at + T_SECONDS * 5 / 6
            else:
                without_contact = unloaded["at"] - (cut_at - LAST_HEARD_SECONDS)
                assert 1.0 <= overlap_seconds(b1, b2) <= without_contact - T_SECONDS
                assert last <= unloaded["at"]


def test_a_killed_service_owns_its_bundle_again_when_its_old_session_has_expired(
    zookeeper: ZooKeeper, chroot: str, client: KazooClient, tmp_path: Path
) -> None:
    servers = zookeeper.servers + chroot
    with BundleService(servers, "b1:8080", tmp_path, *TIMEOUT) as first:
        first.await_line("serve")
        old = client.exists("/namespace/t/ns/1").ephemeralOwner
        first.process.kill()
        first.wait()
    with BundleService(servers, "b1:8080", tmp_path, *TIMEOUT) as second:
        second.await_line("serve", boot_seconds())
        assert client.exists("/namespace/t/ns/1").ephemeralOwner != old
        assert second.stop() == 0
    assert client.exists("/namespace/t/ns/1") is None


def create(servers: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        created.result(60)


def test_a_service_follows_the_loop_and_reports_to_it(
    zookeeper: ZooKeeper, chroot: str, client: KazooClient, loop_kafka: str, tmp_path: Path
) -> None:
    topics = TopicSettings(prefix=f"ownership-{next(_numbers)}")
    create(loop_kafka, topics.topic("decided.sessions"), topics.topic("observed.sessions"))
    path = "/namespace/t/ns/1"
    client.create(path, json.dumps({"brokerId": "b1:8080"}).encode(), ephemeral=True, makepath=True)
    mine = session_name(client.client_id[0])
    loop = ("--loop-kafka", loop_kafka, "--loop-prefix", topics.prefix, "--cluster", "c1", "--session-timeout", "30")

    def decide(decision: OwnershipDecision | SessionDecision) -> None:
        topic = topics.topic(decision.topic)
        produce(loop_kafka, topic, (decision.record_key(), decision_event(decision)))

    with BundleService(zookeeper.servers + chroot, "b1:8080", tmp_path, *loop) as b1:
        b1.await_line("republish")
        session = session_name(client.exists("/loadbalance/brokers/b1:8080").ephemeralOwner)
        now = datetime.now(UTC)
        fields = {"cluster": "c1", "session": session, "decided_at": now, "valid_until": now + timedelta(minutes=5)}
        # By the rules at hand it would wait for T; the loop's are the current ones.
        replace = {"node_session": mine, "owner": "b1:8080", "delete_first": True, "expected_version": 0}
        decide(ownership_decision(path, "re-own", "old_session", **replace, **fields))
        b1.await_line("serve")
        with Topic(loop_kafka, topics.topic("observed.sessions")) as observed:
            reported = eventually("its report", lambda: [entry.data for entry in observed.entries()] or None)
        assert {"member": "b1:8080", "action": "re-own", "result": "ok", "path": path}.items() <= reported[0].items()
        decide(session_decision("shutdown", "not_ready", **{**fields, "session": "0x1"}, sequence=1))
        decide(session_decision("shutdown", "not_ready", **fields, sequence=2))
        b1.await_line("shut-down")
        assert b1.wait() == 0


def test_a_mistake_is_told_in_a_sentence(tmp_path: Path) -> None:
    with BundleService("127.0.0.1:no-port", "b1:8080", tmp_path) as b1:
        assert b1.wait() == 2
        assert (tmp_path / "b1-8080.console").read_text().startswith("--zookeeper: ")
