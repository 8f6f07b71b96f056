"""What each order of the registry writes, and that one which comes twice, or too late, changes nothing."""

import json
from os import getpid
from typing import Any
from urllib.parse import unquote

import pytest
from kazoo.exceptions import ConnectionLoss
from msgspec.structs import replace

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.reconciler import LEDGER_ORDERS
from connectors.switching.registry import HeldLease, Registry, ZooKeeperLease
from connectors.zookeeper.json_znodes import JsonZnodes, Step, ZnodeConflictError, ZnodeError
from policies.switching.decisions import ORDERS, SwitchVerdict
from policies.switching.readings import StatusAction, SwitchStatus
from policies.switching.state import ClusterStatus, Directive, RegistryEntry, SwitchProgress, SwitchStage
from tests.cases import for_each
from tests.connectors.switching.orders import order
from tests.fakes.zookeeper import Server

ENTRY: dict[str, Any] = {"uri": "zk+hierarchical://zk:2181/ledgers", "instance_id": "id", "root": "/ledgers"}


class World:
    """A registry in which `old` is active and `new` stands by."""

    def __init__(self) -> None:
        self.server = Server()
        self.registry = Registry(self.server.session(), "c1")
        self.carry_out(SwitchVerdict.WRITE_REGISTRY, name="old", status="active", bootstrap="old", **ENTRY)
        self.carry_out(SwitchVerdict.WRITE_REGISTRY, name="new", status="standby", **ENTRY)

    def carry_out(self, verdict: SwitchVerdict, epoch: int = 2, **args: Any) -> SwitchStatus | None:
        return self.registry.carry_out(order(verdict, ledger=None, epoch=epoch, args=args))

    def statuses(self, *, contested_too: bool = False) -> dict[str, str]:
        return {each.name: each.status.value for each in self.registry.read(contested_too=contested_too).clusters}

    def make_active(self, name: str, left: str = "old", version: int = 0, epoch: int = 2) -> tuple[bool, str | None]:
        """Whether it is written, and why not."""
        args = {"name": name, "status": "active", "expected_version": version, "deprecated": left}
        done = self.carry_out(SwitchVerdict.WRITE_STATUS, epoch, **args)
        assert done is not None
        assert done.action is StatusAction.STATUS_NEW
        return done.written, done.detail

    def permits(self) -> dict[str, int]:
        """The clusters whose clients may be closed, each with the epoch of the permit."""
        folder = f"{REGISTRY_ROOT}/clients/"
        znodes = {path.removeprefix(folder): data for path, (data, _) in self.server.tree.items() if folder in path}
        return {unquote(name): json.loads(data)["epoch"] for name, data in znodes.items()}

    def put(self, path: str, data: bytes) -> None:
        self.server.write(f"{REGISTRY_ROOT}/{path}", data)

    def register(self, name: str, status: str, version: int | None = None, bootstrap: str | None = None) -> None:
        entry = RegistryEntry(name, **ENTRY, status=ClusterStatus(status), version=version)
        self.registry.write_cluster(entry, bootstrap)


DONE = (True, None)


def test_clusters_are_registered_and_the_first_bootstrap_stays() -> None:
    world = World()
    world.carry_out(SwitchVerdict.WRITE_REGISTRY, name="third", status="standby", bootstrap="third", **ENTRY)
    seen = world.registry.read()
    assert world.statuses() == {"new": "standby", "old": "active", "third": "standby"}
    assert (seen.bootstrap, seen.active()) == ("old", "old")


@pytest.mark.parametrize(
    "args",
    [
        {"name": "new", "status": "standby", "uri": "zk://other"},
        {"name": "third", "status": "active"},
        {"name": "", "status": "standby"},
    ],
    ids=["there is another one", "a second one would be active", "it would be damaged"],
)
def test_what_does_not_fit_is_not_written_and_is_no_error(args: dict[str, Any]) -> None:
    world = World()
    before = dict(world.server.tree)
    assert world.carry_out(SwitchVerdict.WRITE_REGISTRY, **(ENTRY | args)) is None
    assert world.server.tree == before


@pytest.mark.parametrize("data", [{"epoch": 5, "target": "old"}, {"epoch": 8, "target": "old"}])
def test_a_directive_by_another_hand_is_read_as_it_is(data: dict[str, Any]) -> None:
    world = World()
    world.carry_out(SwitchVerdict.WRITE_DIRECTIVE, directive_epoch=7, target="new")
    assert json.loads(world.server.tree[f"{REGISTRY_ROOT}/directive"][0]) == {"epoch": 7, "target": "new"}
    world.server.write(f"{REGISTRY_ROOT}/directive", json.dumps(data).encode())
    assert world.registry.read().directive == Directive(**data)


def test_one_transaction_makes_the_target_active_and_the_source_deprecated() -> None:
    world = World()
    world.register("third", "standby")
    active: list[list[str]] = []

    def look() -> None:
        active.append([name for name, status in world.statuses().items() if status == "active"])

    world.server.before_commit.append(look)
    assert world.make_active("new") == DONE
    look()
    assert active == [["old"], ["new"]]
    assert world.statuses() == {"new": "active", "old": "deprecated", "third": "standby"}
    after = world.registry.read()
    assert after.committed_epoch == 2
    assert world.make_active("new") == DONE
    assert world.registry.read() == after, "an order that comes again writes nothing"
    world.put("clusters/new", json.dumps({**ENTRY, "status": "standby"}).encode())
    assert (world.make_active("new", version=2), world.statuses()["new"]) == (DONE, "active"), "unless a hand undid it"


def test_what_somebody_else_made_active_is_read_and_none_of_ours_becomes_active_beside_it() -> None:
    world = World()
    theirs = {"uri": "zk://third", "instance_id": "i-third", "root": "/l", "status": "active"}
    world.server.write(f"{REGISTRY_ROOT}/clusters/third", json.dumps(theirs).encode())
    with pytest.raises(ZnodeError, match="old and third are both active"):
        world.registry.read()
    assert world.statuses(contested_too=True) == {"new": "standby", "old": "active", "third": "active"}


def test_the_progress_of_the_last_switch_is_kept_and_a_damaged_one_stops_nothing() -> None:
    world = World()
    registry = world.registry
    assert registry.read_progress() is None
    first = SwitchProgress(
        source="old", target="new", stage=SwitchStage.HOLD, epoch=1, target_floor=2**32, started_ms=5, hold_ms=9
    )
    later = replace(first, stage=SwitchStage.ROLLBACK, epoch=2)
    again = replace(later, stage=SwitchStage.TRIGGERED, started_ms=99)
    for written in (first, later, first, again):
        registry.write_progress(written)
    assert registry.read_progress() == later, "neither an executor of before nor a switch that is begun again counts"
    third = replace(first, target="third", epoch=3, started_ms=7)
    registry.write_progress(third)
    assert registry.read_progress() == third
    world.put("orchestrator/third", b"{broken")
    assert registry.read_progress() == later


def test_an_order_that_comes_again_finds_its_work_done_or_completes_it() -> None:
    world = World()
    before = world.registry.read()
    for version in (None, 0, 7):
        world.register("old", "active", version)
    assert world.registry.read() == before, "whatever version is expected"
    del world.server.tree[f"{REGISTRY_ROOT}/bootstrap"]
    world.register("old", "active", bootstrap="old")
    assert world.registry.read().bootstrap == "old", "a crash had left it out"


@for_each(
    ("name", "version"), [("new", None), ("new", 1), ("third", 0)], ids=["there is one", "it was changed", "it is gone"]
)
def test_an_entry_other_than_expected_is_left_alone(name: str, version: int | None) -> None:
    world = World()
    before = world.registry.read()
    with pytest.raises(ZnodeConflictError, match=f"the entry of {name}"):
        world.register(name, "deprecated", version)
    assert world.registry.read() == before


@for_each("name", ["a/b", "..", ".", "50 % of é", "x%2Fy"])
def test_any_name_may_be_registered(name: str) -> None:
    world = World()
    world.register(name, "standby")
    world.registry.write_directive(1, name)
    world.registry.allow_close(name, 1)
    assert (world.statuses()[name], world.registry.read().active()) == ("standby", name)
    assert world.permits() == {name: 1}


@for_each(
    ("path", "data"),
    [
        ("bootstrap", b"old"),
        ("bootstrap", b""),
        ("bootstrap", b'{"name": ""}'),
        ("directive", b'{"epoch": -1, "target": "new"}'),
        ("directive", b'{"epoch": 3}'),
        ("directive", b'{"epoch": 9223372036854775808, "target": "new"}'),
        ("committed", b'{"epoch": "3"}'),
        ("clusters/old", b'{"uri": "u", "instance_id": "i", "root": "/l", "status": "busy"}'),
        ("clusters/new", b"\xff"),
    ],
)
def test_a_damaged_znode_is_named_and_nothing_is_guessed(path: str, data: bytes) -> None:
    world = World()
    world.put(path, data)
    with pytest.raises(ZnodeError, match=f"{REGISTRY_ROOT}/{path} is damaged"):
        world.registry.read()
    with pytest.raises(ZnodeError, match="is damaged"):
        world.registry.make_active("new", "old", 0, 2)
    if path in ("directive", "committed"):
        with pytest.raises(ZnodeError, match="is damaged"):
            world.registry.write_directive(9, "new")
    assert world.server.tree[f"{REGISTRY_ROOT}/{path}"][0] == data


def test_a_directive_is_replaced_by_later_ones_only() -> None:
    world = World()
    for epoch, target in ((2, "new"), (2, "new"), (3, "old")):
        world.registry.write_directive(epoch, target)
    for epoch, target in ((3, "new"), (2, "new")):
        with pytest.raises(ZnodeConflictError, match="epoch 3 directs to old"):
            world.registry.write_directive(epoch, target)
    assert world.registry.read().directive == Directive(epoch=3, target="old")
    assert world.carry_out(SwitchVerdict.WRITE_DIRECTIVE, directive_epoch=1, target="new") is None
    world.put("committed", b'{"epoch": 5}')
    with pytest.raises(ZnodeConflictError, match="epoch 5 is committed"):
        world.registry.write_directive(5, "new")


@for_each(
    ("name", "version", "epoch", "detail"),
    [
        ("new", 4, 2, "the entry of new has version 0 (standby), not 4"),
        ("new", 0, 1, "epoch 2 is committed, which is later than 1"),
        ("third", 0, 3, "third is not registered"),
    ],
)
def test_a_status_that_does_not_fit_is_refused_with_the_reason(
    name: str, version: int, epoch: int, detail: str
) -> None:
    world = World()
    world.put("committed", b'{"epoch": 2}')
    before = world.registry.read()
    assert (world.make_active(name, version=version, epoch=epoch), world.registry.read()) == ((False, detail), before)


def test_a_status_of_which_no_version_is_known_is_compared_with_what_was_read() -> None:
    registry = World().registry
    registry.make_active("old", "third", 7, 2)
    assert (registry.read().active(), registry.read().committed_epoch) == ("old", 2), "it is active already"
    registry.make_active("new", "old", None, 5)
    assert registry.read().committed_epoch == 5


def test_while_another_is_active_none_becomes_so_and_the_policy_hears_why() -> None:
    world = World()
    assert world.make_active("new", left="third") == (False, "old is active")
    assert world.registry.read().committed_epoch == 0


def test_a_status_that_somebody_writes_at_the_same_moment_is_seen_before_ours_is_written() -> None:
    world = World()
    world.register("old", "deprecated", 0)
    entry = b'{"uri": "u", "instance_id": "i", "root": "/l", "status": "active"}'
    world.server.before_commit.append(lambda: world.server.write(f"{REGISTRY_ROOT}/clusters/old", entry))
    assert world.make_active("new", left="third") == (False, "old is active")


def test_a_client_may_be_closed_from_an_epoch_on_and_never_from_an_earlier_one_again() -> None:
    world = World()
    for epoch in (3, 2):
        world.carry_out(SwitchVerdict.CLOSE_CLIENT, epoch, name="old")
    assert world.permits() == {"old": 3}


def test_a_cluster_that_is_removed_takes_its_permit_along_and_the_active_one_stays() -> None:
    world = World()
    world.carry_out(SwitchVerdict.CLOSE_CLIENT, name="new")
    world.carry_out(SwitchVerdict.REMOVE_REGISTRY, name="new", version=7)
    assert "new" in world.statuses(), "it has another version"
    for name in ("new", "old", "never"):
        world.carry_out(SwitchVerdict.REMOVE_REGISTRY, name=name, version=0)
    assert (world.statuses(), world.permits()) == ({"old": "active"}, {})


OTHERS = {SwitchVerdict.RUN_PRECHECK, SwitchVerdict.TAKE_INVENTORY, *LEDGER_ORDERS}


@pytest.mark.parametrize("verdict", sorted(ORDERS - OTHERS))
def test_while_zookeeper_is_away_an_order_is_to_be_tried_again(verdict: SwitchVerdict) -> None:
    world = World()
    world.server.away = ConnectionLoss()
    args: dict[str, Any] = {
        "name": "new",
        "status": "active",
        "deprecated": "old",
        "directive_epoch": 2,
        "target": "new",
    }
    with pytest.raises(ZnodeError) as raised:
        world.carry_out(verdict, **(ENTRY | args))
    assert not isinstance(raised.value, ZnodeConflictError)


# --- the lease: one holder at a time, each with a greater token, whatever crashes or is written by hand

LEASE = f"{REGISTRY_ROOT}/lease"


def test_a_free_lease_is_taken_and_stays_the_holders() -> None:
    lease = ZooKeeperLease(Server().session(), holder="h1")
    assert [lease.renew() for _ in range(2)] == [HeldLease(1, "h1")] * 2
    assert ZooKeeperLease(Server().session()).holder.endswith(f":{getpid()}"), "its name for people, unless given"


def test_another_waits_until_it_is_given_up_and_then_has_a_greater_token() -> None:
    server = Server()
    first, second = (ZooKeeperLease(server.session(), holder=holder) for holder in ("h1", "h2"))
    first.renew()
    assert second.renew() is None
    second.release()
    assert first.renew() == HeldLease(1, "h1"), "it releases only its own"
    first.release()
    assert second.renew() == HeldLease(2, "h2")
    assert first.renew() is None


def test_it_is_free_again_when_its_holders_session_ends() -> None:
    server = Server()
    session = server.session()
    ZooKeeperLease(session, holder="h1").renew()
    server.end(session)
    assert ZooKeeperLease(server.session(), holder="h2").renew() == HeldLease(2, "h2")


def test_a_token_that_was_written_by_hand_is_nobodys() -> None:
    server = Server()
    lease = ZooKeeperLease(server.session(), holder="h1")
    lease.renew()
    server.write(LEASE, b'{"token": 7, "holder": "h1"}')
    assert lease.renew() == HeldLease(8, "h1")


def test_who_is_outrun_while_taking_it_does_not_have_it() -> None:
    server = Server()
    slow, other = (ZooKeeperLease(server.session(), holder=holder) for holder in ("h1", "h2"))
    slow.renew()
    slow.release()
    server.before_commit.append(other.renew)
    assert slow.renew() is None
    assert other.renew() == HeldLease(2, "h2")


@pytest.mark.parametrize("trouble", ["away", "damaged"])
def test_what_is_not_known_is_no_lease(trouble: str) -> None:
    server = Server()
    lease = ZooKeeperLease(server.session(), holder="h1")
    lease.renew()
    if trouble == "away":
        server.away = ConnectionLoss()
    else:
        server.write(LEASE, b'{"token": "many"}')
    with pytest.raises(ZnodeError):
        lease.renew()


def test_a_token_whose_giving_was_not_answered_is_held_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    server, commit = Server(), JsonZnodes.commit
    server.write(LEASE, b'{"token": 7, "holder": ""}')
    lease = ZooKeeperLease(server.session(), holder="h1")

    def unanswered(nodes: JsonZnodes, *steps: Step) -> bool:
        commit(nodes, *steps)
        monkeypatch.setattr(JsonZnodes, "commit", commit)
        raise ZnodeError("the connection was lost")

    monkeypatch.setattr(JsonZnodes, "commit", unanswered)
    with pytest.raises(ZnodeError):
        lease.renew()
    assert lease.renew() == HeldLease(8, "h1")
