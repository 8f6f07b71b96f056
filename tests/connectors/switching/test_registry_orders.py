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


def test_the_directive_is_written_as_the_proposal_has_it_and_as_agents_know_it() -> None:
    world = World()
    world.carry_out(SwitchVerdict.WRITE_DIRECTIVE, directive_epoch=7, target="new")
    written = {
        name: json.loads(world.server.tree[f"{REGISTRY_ROOT}/{name}"][0]) for name in ("switch-target", "directive")
    }
    assert written["directive"] == {"epoch": 7, "target": "new"}
    assert set(written["switch-target"]) == {"target", "origin", "epoch", "ts"}
    assert (written["switch-target"]["target"], written["switch-target"]["epoch"]) == ("new", 7)
    assert written["switch-target"]["ts"] > 1_700_000_000_000
    bootstrap = json.loads(world.server.tree[f"{REGISTRY_ROOT}/bootstrap"][0])
    assert (bootstrap["name"], bootstrap["bootstrapClusterName"]) == ("old", "old")


@pytest.mark.parametrize(
    ("path", "data", "directive"),
    [
        ("directive", {"epoch": 5, "target": "old"}, (7, "new")),
        ("directive", {"epoch": 8, "target": "old"}, (8, "old")),
        ("switch-target", {"epoch": 8, "target": "old", "origin": "https://b1:8080", "ts": 1}, (8, "old")),
        ("switch-target", {"epoch": 7, "target": "old"}, (7, "old")),
        ("switch-target", {"target": "old"}, (7, "old")),
        ("switch-target", {"target": "old", "epoch": 3}, (7, "old")),
    ],
    ids=[
        "an earlier one", "a later one", "a broker's later one", "another one of this epoch", "one without an epoch",
        "one of an earlier epoch, which brokers follow all the same",
    ],
)  # fmt: skip
def test_the_later_of_both_directives_stands(path: str, data: dict[str, Any], directive: tuple[int, str]) -> None:
    world = World()
    world.carry_out(SwitchVerdict.WRITE_DIRECTIVE, directive_epoch=7, target="new")
    world.server.write(f"{REGISTRY_ROOT}/{path}", json.dumps(data).encode())
    read = world.registry.read().directive
    assert read is not None
    assert (read.epoch, read.target) == directive


def as_proposed(world: World) -> dict[str, dict[str, str]]:
    """What a plugin made to the proposal finds of clusters."""
    found = {path.rpartition("/")[2]: data for path, (data, _) in world.server.tree.items() if data[:8] == b'{"name":'}
    return {name: json.loads(data) for name, data in found.items() if name != "bootstrap"}


def test_entries_stand_where_the_proposal_has_them_too() -> None:
    world = World()
    uri = ENTRY["uri"]
    assert as_proposed(world) == {
        "old": {"name": "old", "metadataServiceUri": uri, "status": "ACTIVE"},
        "new": {"name": "new", "metadataServiceUri": uri, "status": "STANDBY"},
    }
    world.carry_out(SwitchVerdict.WRITE_STATUS, name="old", status="deprecated", expected_version=0)
    world.active_is_to_be("new")
    assert {name: each["status"] for name, each in as_proposed(world).items()} == {"old": "DEPRECATED", "new": "ACTIVE"}
    world.carry_out(SwitchVerdict.REMOVE_REGISTRY, name="old", version=None)
    assert set(as_proposed(world)) == {"new"}


def test_one_transaction_makes_the_target_active_and_the_source_deprecated() -> None:
    world = World()
    active: list[list[str]] = []

    def look() -> None:
        active.append([name for name, each in as_proposed(world).items() if each["status"] == "ACTIVE"])
        active.append([name for name, status in world.statuses().items() if status == "active"])

    world.server.before_commit.append(look)
    done = world.carry_out(
        SwitchVerdict.WRITE_STATUS, name="new", status="active", expected_version=0, deprecated="old"
    )
    look()
    assert (done and done.written, active) == (True, [["old"], ["old"], ["new"], ["new"]])
    assert world.registry.read().committed_epoch == 2
    again = world.carry_out(
        SwitchVerdict.WRITE_STATUS, name="new", status="active", expected_version=0, deprecated="old"
    )
    assert again is not None
    assert again.written


def test_what_somebody_else_made_active_is_read_and_none_of_ours_becomes_active_beside_it() -> None:
    world = World()
    theirs = {"name": "third", "metadataServiceUri": "zk://third", "status": "ACTIVE"}
    world.server.write(f"{REGISTRY_ROOT}/third", json.dumps(theirs).encode())
    with pytest.raises(ZnodeError, match="old and third are both active"):
        world.registry.read()
    view = world.registry.read(contested_too=True)
    assert view.make_reading("c1").active_as_proposed == ("old", "third")
    assert world.statuses_of(view) == {"new": "standby", "old": "active"}, "it is not one of ours"


def test_a_znode_that_is_no_entry_is_nobodys() -> None:
    world = World()
    for data in (b"", b"hello", b'{"name": 1}'):
        world.server.write(f"{REGISTRY_ROOT}/somebody", data)
        assert world.registry.read().active_as_proposed == ("old",)


@pytest.mark.parametrize("data", [b"", b"hello"], ids=["empty", "no JSON"])
def test_what_somebody_else_has_where_an_entry_would_stand_is_left_alone_and_in_nobodys_way(data: bytes) -> None:
    world = World()
    world.server.write(f"{REGISTRY_ROOT}/old", data)
    world.carry_out(SwitchVerdict.WRITE_STATUS, name="old", status="deprecated", expected_version=0)
    assert world.server.tree[f"{REGISTRY_ROOT}/old"][0] == data
    assert world.statuses_of(world.registry.read())["old"] == "deprecated"


def test_a_directive_of_before_is_completed_when_it_is_ordered_again() -> None:
    world = World()
    world.server.write(f"{REGISTRY_ROOT}/directive", b'{"epoch": 7, "target": "new"}')
    world.carry_out(SwitchVerdict.WRITE_DIRECTIVE, directive_epoch=7, target="new")
    assert json.loads(world.server.tree[f"{REGISTRY_ROOT}/switch-target"][0])["target"] == "new"


def test_a_bootstrap_that_a_broker_wrote_counts_and_one_that_names_nobody_is_damage() -> None:
    world = World()
    world.server.write(f"{REGISTRY_ROOT}/bootstrap", b'{"bootstrapClusterName": "new", "recordedAt": 1}')
    assert world.registry.read().bootstrap == "new"
    world.server.write(f"{REGISTRY_ROOT}/bootstrap", b"{}")
    with pytest.raises(ZnodeError, match="it names no cluster"):
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
