"""What each order of the registry writes, and that one which comes twice, or too late, changes nothing."""

import json
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from connectors.bookkeeper.copy_journal import REGISTRY_ROOT
from connectors.switching.registry import REGISTRY_ORDERS, Registry, RegistryOrders
from connectors.switching.registry_content import RegistryView
from connectors.zookeeper.json_znodes import ZnodeError
from policies.switching.decisions import SwitchVerdict
from policies.switching.readings import StatusAction, SwitchStatus, WrittenDirective
from policies.switching.state import ClusterStatus
from tests.connectors.switching.memory_zookeeper import Server
from tests.connectors.switching.orders import order

ENTRY: dict[str, Any] = {
    "uri": "zk+hierarchical://zk:2181/ledgers",
    "instance_id": "id",
    "root": "/ledgers",
    "version": None,
}


class World:
    """A registry in which `old` is active and `new` stands by."""

    def __init__(self) -> None:
        self.server = Server()
        self.registry = Registry(self.server.session())
        self.orders = RegistryOrders("c1", self.registry)
        self.carry_out(SwitchVerdict.WRITE_REGISTRY, name="old", status="active", bootstrap="old", **ENTRY)
        self.carry_out(SwitchVerdict.WRITE_REGISTRY, name="new", status="standby", **ENTRY)

    def carry_out(self, verdict: SwitchVerdict, epoch: int = 2, **args: Any) -> SwitchStatus | None:
        return self.orders.carry_out(order(verdict, ledger=None, epoch=epoch, args=args))

    def statuses(self) -> dict[str, str]:
        return self.statuses_of(self.registry.read())

    @staticmethod
    def statuses_of(view: RegistryView) -> dict[str, str]:
        return {each.name: each.status.value for each in view.clusters}

    def active_is_to_be(self, name: str, epoch: int = 2) -> SwitchStatus | None:
        return self.carry_out(SwitchVerdict.WRITE_STATUS, epoch, name=name, status="active", expected_version=0)


def test_clusters_are_registered_and_the_first_bootstrap_stays() -> None:
    world = World()
    world.carry_out(SwitchVerdict.WRITE_REGISTRY, name="third", status="standby", bootstrap="third", **ENTRY)
    view = world.registry.read()
    assert world.statuses() == {"new": "standby", "old": "active", "third": "standby"}
    assert (view.bootstrap, view.active()) == ("old", "old")


@pytest.mark.parametrize(
    "args",
    [{"name": "new", "status": "standby", "uri": "zk://other"}, {"name": "third", "status": "active"}],
    ids=["there is another one", "a second one would be active"],
)
def test_what_does_not_fit_is_not_written_and_is_no_error(args: dict[str, Any]) -> None:
    world = World()
    before = world.server.tree
    assert world.carry_out(SwitchVerdict.WRITE_REGISTRY, **(ENTRY | args)) is None
    assert world.server.tree == before


@pytest.mark.parametrize(
    ("data", "directive"),
    [({"epoch": 5, "target": "old"}, (5, "old")), ({"epoch": 8, "target": "old"}, (8, "old"))],
    ids=["an earlier one", "a later one"],
)
def test_a_directive_by_another_hand_is_read_as_it_is(data: dict[str, Any], directive: tuple[int, str]) -> None:
    world = World()
    world.carry_out(SwitchVerdict.WRITE_DIRECTIVE, directive_epoch=7, target="new")
    assert json.loads(world.server.tree[f"{REGISTRY_ROOT}/directive"][0]) == {"epoch": 7, "target": "new"}
    world.server.write(f"{REGISTRY_ROOT}/directive", json.dumps(data).encode())
    read = world.registry.read().directive
    assert read is not None
    assert (read.epoch, read.target) == directive


def test_one_transaction_makes_the_target_active_and_the_source_deprecated() -> None:
    world = World()
    active: list[list[str]] = []

    def look() -> None:
        active.append([name for name, status in world.statuses().items() if status == "active"])

    world.server.before_commit.append(look)
    done = world.carry_out(
        SwitchVerdict.WRITE_STATUS, name="new", status="active", expected_version=0, deprecated="old"
    )
    look()
    assert (done and done.written, active) == (True, [["old"], ["new"]])
    assert world.registry.read().committed_epoch == 2
    again = world.carry_out(
        SwitchVerdict.WRITE_STATUS, name="new", status="active", expected_version=0, deprecated="old"
    )
    assert again is not None
    assert again.written


def test_what_somebody_else_made_active_is_read_and_none_of_ours_becomes_active_beside_it() -> None:
    world = World()
    theirs = {"uri": "zk://third", "instance_id": "i-third", "root": "/l", "status": "active"}
    world.server.write(f"{REGISTRY_ROOT}/clusters/third", json.dumps(theirs).encode())
    with pytest.raises(ZnodeError, match="old and third are both active"):
        world.registry.read()
    view = world.registry.read(contested_too=True)
    assert world.statuses_of(view) == {"new": "standby", "old": "active", "third": "active"}


def test_a_bootstrap_that_names_nobody_is_damage() -> None:
    world = World()
    assert world.registry.read().bootstrap == "old"
    world.server.write(f"{REGISTRY_ROOT}/bootstrap", b"{}")
    with pytest.raises(ZnodeError, match="bootstrap is damaged"):
        world.registry.read()


def test_a_directive_stands_until_a_later_one_comes() -> None:
    world = World()
    for epoch, target in ((2, "new"), (2, "new"), (1, "old")):
        world.carry_out(SwitchVerdict.WRITE_DIRECTIVE, directive_epoch=epoch, target=target)
    assert world.registry.read().directive == WrittenDirective(epoch=2, target="new")
    assert world.registry.read().active() == "new", "it is not committed, and counts all the same"


def test_the_new_cluster_becomes_active_and_the_epoch_is_committed_at_once() -> None:
    world = World()
    old = world.carry_out(SwitchVerdict.WRITE_STATUS, name="old", status="deprecated", expected_version=0)
    new = world.active_is_to_be("new")
    assert old is not None
    assert new is not None
    assert (old.written, new.action, new.written) == (True, StatusAction.STATUS_NEW, True)
    assert world.statuses() == {"new": "active", "old": "deprecated"}
    assert world.registry.read().committed_epoch == 2


def test_while_another_is_active_none_becomes_so_and_the_policy_hears_why() -> None:
    world = World()
    result = world.active_is_to_be("new")
    assert result is not None
    assert (result.written, result.detail) == (False, "old is active")
    assert world.registry.read().committed_epoch == 0


def test_a_status_that_somebody_writes_at_the_same_moment_is_seen_before_ours_is_written() -> None:
    world = World()
    world.carry_out(SwitchVerdict.WRITE_STATUS, name="old", status="deprecated", expected_version=0)
    entry = b'{"uri": "u", "instance_id": "i", "root": "/l", "status": "active"}'
    path = next(path for path in world.server.tree if path.endswith("/clusters/old"))
    world.server.before_commit.append(lambda: world.server.write(path, entry))
    result = world.active_is_to_be("new")
    assert result is not None
    assert (result.written, result.detail) == (False, "old is active")


def test_a_client_may_be_closed_from_an_epoch_on_and_never_from_an_earlier_one_again() -> None:
    world = World()
    for epoch in (3, 2):
        world.carry_out(SwitchVerdict.CLOSE_CLIENT, epoch, name="old")
    assert world.registry.read_permits() == {"old": 3}


def test_a_cluster_that_is_removed_takes_its_permit_along_and_the_active_one_stays() -> None:
    world = World()
    world.carry_out(SwitchVerdict.CLOSE_CLIENT, name="new")
    for name in ("new", "old", "never"):
        world.carry_out(SwitchVerdict.REMOVE_REGISTRY, name=name, version=0)
    assert (world.statuses(), world.registry.read_permits()) == ({"old": "active"}, {})


def test_a_status_of_which_no_version_is_known_is_compared_with_what_was_read() -> None:
    registry = World().registry
    assert registry.write_status("old", ClusterStatus.DEPRECATED, None) == ""
    assert registry.write_status("new", ClusterStatus.ACTIVE, None, 5) == ""
    assert registry.read().committed_epoch == 5


@pytest.mark.parametrize("path", ["directive", "committed"])
def test_over_a_damaged_directive_none_is_written(path: str) -> None:
    world = World()
    world.server.write(f"{REGISTRY_ROOT}/{path}", b"?")
    with pytest.raises(ZnodeError, match=f"{REGISTRY_ROOT}/{path} is damaged"):
        world.registry.write_directive(9, "new")


@pytest.mark.parametrize("verdict", sorted(REGISTRY_ORDERS))
def test_while_zookeeper_is_away_an_order_is_to_be_tried_again(verdict: SwitchVerdict) -> None:
    world = World()
    world.server.away = ConnectionLoss()
    args: dict[str, Any] = {"name": "new", "status": ClusterStatus.ACTIVE.value, "directive_epoch": 2, "target": "new"}
    with pytest.raises(ZnodeError):
        world.carry_out(verdict, **(ENTRY | args))
