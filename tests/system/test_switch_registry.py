"""Registry and lease on a real ZooKeeper: races, lost sessions, crashes and damaged znodes."""

import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.registry import HeldLease, Registry, ZooKeeperLease
from connectors.zookeeper.json_znodes import ZnodeConflictError, ZnodeError
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.readings import SwitchRegistry
from policies.switching.state import ClusterStatus, RegistryEntry
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper

LEASE = f"{REGISTRY_ROOT}/lease"
HOLDER = f"{LEASE}/holder"
_numbers = itertools.count(1)

Open = Callable[..., ZooKeeperSession]


@pytest.fixture
def servers(zookeeper: ZooKeeper) -> str:
    """The shared server, below a chroot of this test's own."""
    chroot = f"/switch-registry-{next(_numbers)}"
    with zookeeper.client() as client:
        client.ensure_path(chroot)
    return zookeeper.servers + chroot


@pytest.fixture
def tree(zookeeper: ZooKeeper, servers: str) -> Iterator[KazooClient]:
    """Somebody with a client of their own, below the same chroot."""
    with zookeeper.client(chroot=chroot_of(servers), timeout=20) as client:
        yield client


@pytest.fixture
def opened(servers: str) -> Iterator[Open]:
    """Opens sessions, each of a process as it were, and closes them."""
    with ExitStack() as stack:

        def open_session(at: str = servers, *, session_timeout: str = "10s") -> ZooKeeperSession:
            connection = ZooKeeperConnection.model_validate(
                {"servers": at, "session_timeout": session_timeout, "timeout": "3s"}
            )
            session = ZooKeeperSession("c1", connection)
            stack.callback(session.close)
            return session

        yield open_session


@pytest.fixture
def registry(opened: Open) -> Registry:
    return Registry(opened(), "c1")


def chroot_of(servers: str) -> str:
    return "/" + servers.partition("/")[2]


def put(tree: KazooClient, path: str, data: bytes) -> None:
    tree.ensure_path(path)
    tree.set(path, data)


def document(tree: KazooClient, path: str) -> Any:
    return json.loads(tree.get(path)[0])


def register(
    registry: Registry, name: str, status: ClusterStatus, version: int | None = None, bootstrap: str | None = None
) -> None:
    entry = RegistryEntry(name, f"zk://{name}/ledgers", f"id-{name}", "/ledgers", status, version)
    registry.write_cluster(entry, bootstrap)


def statuses(view: SwitchRegistry) -> dict[str, str]:
    return {each.name: each.status.value for each in view.clusters}


def suppressed(ask: Callable[[], Any]) -> Any:
    with suppress(ZnodeError):
        return ask()
    return None


# --- the directive


def is_written(registry: Registry, epoch: int, target: str) -> bool:
    try:
        registry.write_directive(epoch, target)
    except ZnodeConflictError:
        return False
    return True


def test_a_directive_never_goes_back_however_many_write(opened: Open, tree: KazooClient) -> None:
    seen: list[int] = []

    @tree.DataWatch(f"{REGISTRY_ROOT}/directive")  # type: ignore[untyped-decorator]  # kazoo is untyped
    def _note(data: bytes | None, _: object) -> None:
        if data:
            seen.append(json.loads(data)["epoch"])

    def write(who: int) -> list[int]:
        registry, epochs = Registry(opened(), "c1"), list(range(1, 41))
        random.Random(who).shuffle(epochs)
        return [e for e in epochs if is_written(registry, e, f"t{who}")]

    with ThreadPoolExecutor(4) as workers:
        written = list(itertools.chain.from_iterable(workers.map(write, range(4))))
    assert len(written) == len(set(written)), "an epoch was given to two targets"
    assert max(written) == document(tree, f"{REGISTRY_ROOT}/directive")["epoch"] == 40
    assert tree.get(f"{REGISTRY_ROOT}/directive")[1].version == len(written) - 1, "one was written over unseen"
    eventually("the last one is seen", lambda: seen[-1] == 40)
    assert seen == sorted(set(seen))


# --- the lease


def test_of_many_who_take_it_each_gets_a_token_of_its_own_and_greater_than_before(opened: Open) -> None:
    taken: list[int] = []
    holding = threading.Lock()

    def take(who: int) -> None:
        lease = ZooKeeperLease(opened(), holder=f"h{who}")
        for _ in range(25):
            while (held := suppressed(lease.renew)) is None:
                pass
            assert holding.acquire(blocking=False), "two hold it at once"
            assert lease.renew() == held
            taken.append(held.token)
            holding.release()
            lease.release()

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(take, range(4)))
    assert taken == list(range(1, 101))


def test_who_was_cut_off_for_longer_than_its_session_finds_that_it_holds_nothing(
    zookeeper: ZooKeeper, servers: str, opened: Open
) -> None:
    with TcpProxy(zookeeper.servers) as proxy:
        paused = ZooKeeperLease(opened(proxy.address + chroot_of(servers), session_timeout="3s"), holder="h1")
        other = ZooKeeperLease(opened(), holder="h2")
        assert paused.renew() == HeldLease(1, "h1")
        proxy.cut()
        assert eventually("the other takes it", other.renew) == HeldLease(2, "h2")
        with pytest.raises(ZnodeError):
            paused.renew()
        proxy.heal()
        answers: list[HeldLease | None] = []

        def told() -> bool:
            answers.append(paused.renew())
            return True

        eventually("it is told", lambda: suppressed(told))
        assert answers == [None]
        paused.release()
        assert other.renew() == HeldLease(2, "h2"), "who holds it no more takes it from nobody"
        other.release()
        assert paused.renew() == HeldLease(3, "h1")


# --- who may write it


def test_what_a_user_writes_is_the_users_alone(servers: str, opened: Open, tree: KazooClient) -> None:
    with ExitStack() as stack:

        def session(**user: str) -> ZooKeeperSession:
            made = ZooKeeperSession("c1", ZooKeeperConnection.model_validate({"servers": servers, **user}))
            stack.callback(made.close)
            return made

        mine = Registry(session(user="headgate", password="s3cret"), "c1")
        register(mine, "old", ClusterStatus.ACTIVE, bootstrap="old")
        register(mine, "new", ClusterStatus.STANDBY)
        mine.write_directive(1, "new")
        mine.allow_close("old", 1)
        assert ZooKeeperLease(session(user="headgate", password="s3cret")).renew() is not None
        paths = [REGISTRY_ROOT, *below(session(user="headgate", password="s3cret").client(), REGISTRY_ROOT)]
        assert {LEASE, HOLDER, f"{REGISTRY_ROOT}/directive", f"{REGISTRY_ROOT}/clusters/old"} <= set(paths)
        attacks = (lambda p: tree.set(p, b"{}"), tree.get, lambda p: tree.create(f"{p}/x"), lambda p: tree.delete(p))
        for path in paths:
            # The topmost could be removed, as its parent is everybody's, but for what is below it.
            for attack in attacks if path != REGISTRY_ROOT else attacks[:-1]:
                with pytest.raises(NoAuthError):
                    attack(path)
        tree.create("/admin/policies")  # what is above is everybody's, as before
        again = Registry(session(user="headgate", password="s3cret"), "c1")
        assert statuses(again.read()) == {"old": "active", "new": "standby"}
        with pytest.raises(ZnodeError, match="ACL"):
            Registry(opened(), "c1").read()


OPEN_TO_OTHERS = (
    OPEN_ACL_UNSAFE,
    [*CREATOR_ALL_ACL, make_acl("ip", "0.0.0.0/0", all=True)],
    [*CREATOR_ALL_ACL, make_digest_acl("mallory", "guessed", write=True)],
    [*CREATOR_ALL_ACL, make_digest_acl("headgate", "guessed", all=True)],
)


@pytest.fixture
def mine(servers: str) -> Iterator[ZooKeeperSession]:
    """A session with a user."""
    connection = ZooKeeperConnection.model_validate({"servers": servers, "user": "headgate", "password": "s3cret"})
    session = ZooKeeperSession("c1", connection)
    yield session
    session.close()


def test_nothing_is_ordered_below_a_node_that_others_may_change(mine: ZooKeeperSession, tree: KazooClient) -> None:
    """Another client made it before: it could delete the directive and write another one."""
    tree.create(f"{REGISTRY_ROOT}/directive", b"{}", makepath=True)
    tree.create(f"{REGISTRY_ROOT}/clusters/old", b"{}", makepath=True)
    tree.create(f"{REGISTRY_ROOT}/clients/old", b"{}", makepath=True)
    folders = [f"{REGISTRY_ROOT}/{name}" for name in ("directive", "clusters", "clients")]
    paths = (REGISTRY_ROOT, *folders, f"{REGISTRY_ROOT}/clusters/old", f"{REGISTRY_ROOT}/clients/old")
    for path in paths:
        mine.client().set_acls(path, CREATOR_ALL_ACL)
    for path in paths:
        for acl in OPEN_TO_OTHERS:
            mine.client().set_acls(path, acl)
            with pytest.raises(ZnodeError, match=f"the ACL of {path} lets others change it .*setAcl"):
                ZooKeeperLease(mine).renew()
        mine.client().set_acls(path, CREATOR_ALL_ACL)
    assert ZooKeeperLease(mine).renew() is not None


def below(client: KazooClient, path: str) -> list[str]:
    """All nodes below one."""
    children = [f"{path}/{name}" for name in client.get_children(path)]
    return [*children, *itertools.chain.from_iterable(below(client, child) for child in children)]
