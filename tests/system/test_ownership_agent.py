"""The ownership agent on a real ZooKeeper: sessions expire, connections are cut, servers restart, others are faster."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from connectors.kafka.connection import KafkaConnection
from connectors.sessions.agent import (
    DecisionSource,
    LocalStrategy,
    LoopStrategy,
    MemberDecisions,
    NoSessionError,
    OwnedByOtherError,
    OwnershipAgent,
    OwnershipError,
)
from connectors.sessions.agent.contact import boot_seconds
from policies.errors import UserError
from policies.sessions.decisions import SessionStatus
from policies.sessions.settings import OnSessionLost, OwnershipRules, SessionsSettings
from tests.system.owners import BUNDLE, T_SECONDS, Member, member, value_of
from tests.system.server import close
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import ZooKeeper

CURRENT = LocalStrategy(SessionsSettings(ownership_rules=OwnershipRules.CURRENT))
_numbers = itertools.count(1)


@pytest.fixture
def servers(zookeeper: ZooKeeper) -> str:
    """The shared server, below a chroot of this test's own."""
    chroot = f"/ownership-{next(_numbers)}"
    with zookeeper.client() as client:
        client.ensure_path(chroot)
    return zookeeper.servers + chroot


@pytest.fixture
def other(zookeeper: ZooKeeper, servers: str) -> Iterator[KazooClient]:
    """Somebody else's client, below the same chroot."""
    with zookeeper.client(chroot=chroot_of(servers), timeout=20) as client:
        yield client


def chroot_of(servers: str) -> str:
    return "/" + servers.partition("/")[2]


def own_node_of_old_session(client: KazooClient, path: str = BUNDLE, name: str = "b1:8080") -> None:
    """What a member's crash leaves behind: a node with its value, of another session."""
    client.create(path, value_of(name), ephemeral=True, makepath=True)


def test_a_bundle_is_taken_served_and_released(servers: str, other: KazooClient) -> None:
    with member(servers) as b1:
        assert not b1.agent.serving(BUNDLE)
        b1.take()
        value, stat = other.get(BUNDLE)
        assert (value, f"{stat.ephemeralOwner:#x}") == (value_of("b1:8080"), b1.session)
        assert b1.agent.serving(BUNDLE)
        assert b1.agent.owned() == (BUNDLE,)
        b1.agent.release(BUNDLE)
        assert other.exists(BUNDLE) is None
        assert not b1.agent.serving(BUNDLE)
        assert b1.application.calls == [("preload", BUNDLE), ("unload", "released")]


def test_a_node_of_another_is_refused_with_who_owns_it_and_stays(servers: str, other: KazooClient) -> None:
    other.create(BUNDLE, value_of("b2:8080"), ephemeral=True, makepath=True)
    with member(servers) as b1:
        with pytest.raises(OwnedByOtherError, match="b2:8080") as refused:
            b1.own()
        assert refused.value.owner == "b2:8080"
        assert other.get(BUNDLE)[0] == value_of("b2:8080")
        assert b1.calls == []
        assert b1.agent.held() == ()


def test_a_node_that_is_not_ephemeral_is_refused(servers: str, other: KazooClient) -> None:
    other.create(BUNDLE, value_of("b1:8080"), makepath=True)
    with member(servers) as b1, pytest.raises(OwnedByOtherError, match="not_ephemeral"):
        b1.own()


def test_a_bundle_of_an_expired_session_is_owned_again_and_then_republished(servers: str, zookeeper: ZooKeeper) -> None:
    with member(servers) as b1:
        b1.take()
        old = b1.session
        b1.application.calls.clear()
        zookeeper.expire(b1.client.client_id[0])
        eventually("it owns the bundle in a new session", lambda: b1.has_new_session(old) and b1.owns())
        eventually("it is back", lambda: "invalidate" in b1.calls)
        assert b1.calls == ["preload", "republish", "invalidate"]
        assert b1.client.exists(BUNDLE).ephemeralOwner == b1.client.client_id[0]
        assert b1.reported() == [("re-own", "ok"), ("reconnect", "ok"), ("re-own", "ok"), ("republish-load-data", "ok")]
        assert b1.sessions_told() == [b1.session], "told before it registers, so that a loop can guide it"


def test_a_bundle_another_took_meanwhile_is_unloaded_and_stays_the_others(servers: str, zookeeper: ZooKeeper) -> None:
    proxied = TcpProxy(zookeeper.servers)
    with proxied as proxy, member(proxy.address + chroot_of(servers)) as b1, member(servers, "b2:8080") as b2:
        b1.take()
        session = b1.client.client_id[0]
        proxy.cut()
        zookeeper.expire(session)
        b2.take()
        assert b1.agent.serving(BUNDLE), "what is loaded is served while nothing better is known"
        proxy.heal()
        eventually("b1 unloads", lambda: ("unload", "other_owner") in b1.application.calls)
        assert not b1.agent.serving(BUNDLE)
        eventually("b1 is back", lambda: "invalidate" in b1.calls)
        assert (b1.agent.owned(), b2.agent.owned()) == ((), (BUNDLE,))
        assert b2.agent.serving(BUNDLE)
        assert b2.client.get(BUNDLE)[0] == value_of("b2:8080")


def test_with_the_fence_what_is_cut_off_stops_serving_before_its_session_can_expire(
    servers: str, zookeeper: ZooKeeper
) -> None:
    with TcpProxy(zookeeper.servers) as proxy, member(
        proxy.address + chroot_of(servers), fence=True
    ) as b1, member(servers, "b2:8080") as b2:  # fmt: skip
        b1.take()
        eventually("the first contact", lambda: b1.agent.serving(BUNDLE))
        assert 0 < b1.agent.seconds_left(BUNDLE) <= T_SECONDS * 5 / 6
        proxy.cut()
        cut_at = boot_seconds()
        assert b1.agent.serving(BUNDLE), "a moment's cut is no reason to stop"
        served_at = cut_at

        def stops() -> bool:
            nonlocal served_at
            asked_at = boot_seconds()
            if is_serving := b1.agent.serving(BUNDLE):
                served_at = asked_at
            return not is_serving

        eventually("it stops", stops)
        assert served_at - cut_at < T_SECONDS
        eventually("b2 may own it", lambda: _tries(b2))
        assert boot_seconds() - cut_at > T_SECONDS * 5 / 6
        proxy.heal()
        eventually("b1 unloads", lambda: "unload" in b1.calls)
        assert not b1.agent.serving(BUNDLE)


def _tries(one: Member) -> bool:
    try:
        return one.own()
    except OwnedByOtherError:
        return False


def test_a_cut_shorter_than_the_watch_is_held_out_and_resumed(servers: str, zookeeper: ZooKeeper) -> None:
    with TcpProxy(zookeeper.servers) as proxy, member(proxy.address + chroot_of(servers), timeout_seconds=6.0) as b1:
        b1.take()
        session = b1.session
        b1.application.calls.clear()
        proxy.cut()
        eventually("it notices", lambda: b1.agent.status is SessionStatus.CONNECTION_LOST)
        assert b1.agent.serving(BUNDLE)
        with pytest.raises(NoSessionError):
            b1.own("/namespace/t/ns/other")
        proxy.heal()
        eventually("it resumes", lambda: bool(b1.calls))
        assert b1.session == session
        assert b1.calls == ["invalidate"]
        assert b1.owns()


def test_a_longer_cut_ends_in_recovery(servers: str, zookeeper: ZooKeeper) -> None:
    with TcpProxy(zookeeper.servers) as proxy, member(proxy.address + chroot_of(servers)) as b1:
        b1.take()
        old = b1.session
        b1.application.calls.clear()
        proxy.cut()
        eventually("its session counts as lost", lambda: b1.agent.status is SessionStatus.SESSION_LOST)
        eventually("a failed attempt is reported", lambda: ("reconnect", "failed") in b1.reported())
        assert b1.agent.serving(BUNDLE)
        proxy.heal()
        eventually("it is back", lambda: b1.owns() and b1.calls == ["preload", "republish", "invalidate"])
        assert b1.has_new_session(old)


@pytest.mark.parametrize("policy", OnSessionLost)
def test_alone_it_obeys_shutdown_after_so_many_failed_attempts(
    servers: str, zookeeper: ZooKeeper, policy: OnSessionLost
) -> None:
    settings = SessionsSettings(on_session_lost=policy, reconnect_limit=2)
    address = chroot_of(servers)
    with (
        TcpProxy(zookeeper.servers) as proxy,
        member(proxy.address + address, timeout_seconds=3, settings=settings) as b1,
    ):
        b1.take()
        proxy.cut()
        eventually("two attempts have failed", lambda: b1.reported().count(("reconnect", "failed")) >= 2)
        if policy is OnSessionLost.SHUTDOWN:
            eventually("it is told to shut down", lambda: ("shut down", "reconnect_exhausted") in b1.application.calls)
        eventually("a third has failed", lambda: b1.reported().count(("reconnect", "failed")) >= 3)
        assert b1.calls.count("shut down") == (policy is OnSessionLost.SHUTDOWN)


def test_the_loss_of_a_separate_configuration_store_costs_caches_and_no_bundle(
    servers: str, zookeeper: ZooKeeper
) -> None:
    with TcpProxy(zookeeper.servers) as proxy:
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2)
        store = KazooClient(proxy.address, timeout=1, connection_retry=retry)
        with member(servers, configuration=store) as b1:
            store.start(timeout=DEADLINE_SECONDS)
            b1.take()
            mine, lost = b1.session, store.client_id[0]
            b1.application.calls.clear()
            proxy.cut()
            eventually("its session is lost", lambda: not store.connected)
            zookeeper.expire(lost)
            assert b1.agent.serving(BUNDLE)
            proxy.heal()
            eventually("caches are invalidated", lambda: b1.calls == ["invalidate"])
            assert (b1.session, b1.owns(), b1.agent.serving(BUNDLE)) == (mine, True, True)
        close(store)


def test_pip57_waits_for_the_node_of_the_old_session_and_owns_it_when_it_goes(servers: str, other: KazooClient) -> None:
    with member(servers, timeout_seconds=8, settings=SessionsSettings(ownership_rules=OwnershipRules.PIP57)) as b1:
        own_node_of_old_session(other)
        assert not b1.own(), "not yet"
        assert not b1.agent.serving(BUNDLE), "it has never owned it"
        other.delete(BUNDLE)
        eventually("it owns it", b1.owns)
        assert b1.calls == ["preload"]


def test_pip57_gives_up_a_node_of_the_old_session_that_persists(servers: str, other: KazooClient) -> None:
    with member(servers, settings=SessionsSettings(ownership_rules=OwnershipRules.PIP57)) as b1:
        own_node_of_old_session(other)
        assert not b1.own()
        eventually("it gives up", lambda: b1.agent.held() == ())
        assert not b1.agent.serving(BUNDLE)
        assert other.exists(BUNDLE) is not None


def test_current_rules_replace_the_node_of_the_old_session(servers: str, other: KazooClient) -> None:
    own_node_of_old_session(other)
    other.set(BUNDLE, value_of("b1:8080"))
    with member(servers, strategy=CURRENT) as b1:
        b1.take()
        assert other.exists(BUNDLE).ephemeralOwner == b1.client.client_id[0]


@pytest.mark.parametrize("when", ["while it preloads", "between reading and writing"])
@pytest.mark.parametrize("strategy", [None, CURRENT], ids=["create", "replace"])
def test_a_lost_race_is_an_unload(
    servers: str, other: KazooClient, monkeypatch: pytest.MonkeyPatch, strategy: LocalStrategy | None, when: str
) -> None:
    def another_is_faster() -> None:
        if strategy is CURRENT:
            other.set(BUNDLE, value_of("b2:8080"))
        else:
            other.create(BUNDLE, value_of("b2:8080"), ephemeral=True, makepath=True)

    if strategy is CURRENT:
        own_node_of_old_session(other)
    with member(servers, strategy=strategy) as b1:
        if when == "while it preloads":
            b1.application.before["preload"] = another_is_faster
        else:
            name = "create_async" if strategy is None else "transaction"
            write = getattr(b1.client, name)

            def write_late(*arguments: Any, **options: Any) -> Any:
                another_is_faster()
                return write(*arguments, **options)

            monkeypatch.setattr(b1.client, name, write_late)
        with pytest.raises(OwnedByOtherError):
            b1.own()
        assert b1.application.calls == [("preload", BUNDLE), ("unload", "other_owner")]
        assert other.get(BUNDLE)[0] == value_of("b2:8080")


def test_a_node_deleted_by_hand_is_owned_again(servers: str, other: KazooClient) -> None:
    with member(servers) as b1:
        b1.take()
        other.delete(BUNDLE)
        eventually("it owns it again", lambda: other.exists(BUNDLE) is not None and b1.owns())


def test_a_node_replaced_by_one_that_is_not_ephemeral_is_unloaded(servers: str, other: KazooClient) -> None:
    with member(servers) as b1:
        b1.take()
        replace = other.transaction()
        replace.delete(BUNDLE)
        replace.create(BUNDLE, value_of("b1:8080"))
        replace.commit()
        eventually("it unloads", lambda: ("unload", "not_ephemeral") in b1.application.calls)
        assert not b1.agent.serving(BUNDLE)


def test_callbacks_that_fail_are_reported_and_tried_again(servers: str, zookeeper: ZooKeeper) -> None:
    with member(servers) as b1:
        b1.application.failing = {"preload": 2}
        assert not b1.own()
        eventually("it owns it in the end", b1.owns)
        assert b1.reported() == [("re-own", "failed"), ("re-own", "failed"), ("re-own", "ok")]
        assert [said.attempt for said in b1.recoveries()] == [1, 2, 3]
        b1.application.failing = {"republish": 1, "invalidate": 1}
        zookeeper.expire(b1.client.client_id[0])
        eventually("it is back", lambda: b1.calls.count("invalidate") == 2)
        assert b1.calls.count("republish") == 2


def test_a_callback_that_always_fails_is_not_called_for_ever(servers: str, other: KazooClient) -> None:
    with member(servers) as b1:
        b1.application.failing = {"preload": 99}
        assert not b1.own()
        eventually("it gives up", lambda: b1.application.calls[-1] == ("unload", "released"))
        assert b1.calls.count("preload") == 5
        assert other.exists(BUNDLE) is None
        eventually("it is forgotten", lambda: b1.agent.held() == ())
        b1.application.failing = {"unload": 99}
        eventually("it may be tried again", b1.own)  # a moment after it was forgotten the giving up ends, too
        b1.agent.release(BUNDLE)
        eventually("released at last", lambda: other.exists(BUNDLE) is None)
        assert not b1.agent.serving(BUNDLE)


def test_a_session_lost_in_the_middle_of_a_recovery_starts_it_over(servers: str, zookeeper: ZooKeeper) -> None:
    with member(servers) as b1:
        b1.take()
        b1.application.before["preload"] = lambda: zookeeper.expire(b1.client.client_id[0])
        b1.application.calls.clear()
        zookeeper.expire(b1.client.client_id[0])
        eventually("it is back", lambda: b1.owns() and b1.calls[-1:] == ["invalidate"])
        assert b1.calls.count("preload") == 2, "once for each session"
        assert b1.client.exists(BUNDLE).ephemeralOwner == b1.client.client_id[0]


@contextmanager
def preloading(one: Member) -> Iterator[None]:
    """Within the block the member is busy with a preload that does not end."""
    begun, go_on = threading.Event(), threading.Event()

    def preload() -> None:
        begun.set()
        assert go_on.wait(120)

    one.application.before["preload"] = preload
    owner = threading.Thread(target=suppressed(one.own), args=("/namespace/t/ns/slow",))
    owner.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        go_on.set()
        owner.join(DEADLINE_SECONDS)


def suppressed(work: Callable[..., object]) -> Callable[..., None]:
    def run(*arguments: object) -> None:
        with suppress(OwnershipError):
            work(*arguments)

    return run


def test_a_long_preload_does_not_let_the_fence_fall(servers: str) -> None:
    with member(servers, fence=True) as b1:
        b1.take()
        eventually("the first contact", lambda: b1.agent.serving(BUNDLE))
        with preloading(b1):
            until = boot_seconds() + 1.5 * T_SECONDS
            while boot_seconds() < until:
                assert b1.agent.serving(BUNDLE)
                time.sleep(0.05)


def test_a_long_preload_does_not_prolong_the_serving_of_what_another_took(servers: str, zookeeper: ZooKeeper) -> None:
    proxied = TcpProxy(zookeeper.servers)
    with proxied as proxy, member(proxy.address + chroot_of(servers)) as b1, member(servers, "b2:8080") as b2:
        b1.take()
        session = b1.client.client_id[0]
        with preloading(b1):
            proxy.cut()
            zookeeper.expire(session)
            b2.take()
            assert b1.agent.serving(BUNDLE)
            proxy.heal()
            eventually("it is not served", lambda: not b1.agent.serving(BUNDLE))
            assert "unload" not in b1.calls, "the callback waits for its turn"
        eventually("it is unloaded", lambda: ("unload", "other_owner") in b1.application.calls)


def test_without_the_loops_kafka_the_rules_at_hand_are_followed_in_time(
    servers: str, other: KazooClient, free_port: int
) -> None:
    source = DecisionSource(KafkaConnection(bootstrap_servers=f"127.0.0.1:{free_port}"), "headgate.decided.sessions")
    strategy = LoopStrategy(
        MemberDecisions("local", "b1:8080"), source, fallback=CURRENT, decision_timeout=timedelta(seconds=1)
    )
    own_node_of_old_session(other)
    with member(servers, strategy=strategy) as b1:
        assert not b1.own(), "the loop is waited for"
        eventually("it owns it", b1.owns)
        assert b1.own("/namespace/t/ns/new"), "what the loop cannot know of does not wait for it"


def test_a_restarted_server_costs_nothing_but_time(bookkeeper_jars: tuple[Path, ...], tmp_path: Path) -> None:
    with ZooKeeper(tmp_path, bookkeeper_jars) as server, member(server.servers, timeout_seconds=10) as b1:
        b1.take()
        session = b1.session
        server.stop()
        eventually("it notices", lambda: b1.agent.status is SessionStatus.CONNECTION_LOST)
        assert b1.agent.serving(BUNDLE)
        server.start()
        eventually("it resumes", lambda: b1.calls[-1:] == ["invalidate"])
        assert (b1.session, b1.owns()) == (session, True)


def test_a_client_that_is_stopped_serves_nothing(servers: str) -> None:
    with member(servers) as b1:
        b1.take()
        b1.client.stop()
        eventually("it is gone", lambda: not b1.agent.serving(BUNDLE))
        assert b1.agent.status is SessionStatus.CLOSED


def test_the_fence_counts_on_what_the_server_granted(bookkeeper_jars: tuple[Path, ...], tmp_path: Path) -> None:
    bounded = ZooKeeper(tmp_path, bookkeeper_jars, properties={"maxSessionTimeout": 3000})
    with bounded as server, member(server.servers, timeout_seconds=60, fence=True) as b1:
        b1.take()
        eventually("the first contact", lambda: b1.agent.serving(BUNDLE))
        assert b1.agent.seconds_left(BUNDLE) <= 2.5


def test_the_fence_needs_a_client_that_has_not_connected_yet(servers: str, other: KazooClient) -> None:
    with member(servers) as b1, pytest.raises(UserError, match="make the OwnershipAgent before"):
        OwnershipAgent(b1.client, "b1:8080", b1.application, fence=True)
