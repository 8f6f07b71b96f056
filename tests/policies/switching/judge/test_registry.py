"""Row 1, with a status: what a person may say a cluster is, and what only a switch makes it."""

import dataclasses

import pytest
from msgspec.structs import replace

from policies.decisions import Alert
from policies.switching.decisions import RejectCode, SwitchDecision, SwitchVerdict
from policies.switching.readings import SwitchCommand
from policies.switching.state import ClusterStatus, Directive, RegistryEntry, SwitchAction, SwitchingState, SwitchStage
from tests.cases import for_each
from tests.policies.switching.commands import command
from tests.policies.switching.events import RegistrySeen, StatusResult
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import World, codes

C, S = ClusterStatus, SwitchStage


def asked(name: str, status: ClusterStatus | None) -> SwitchCommand:
    key, identity = f"{name}-{status}", f"id-of-{name}"
    return command(
        "register", key=key, name=name, uri=f"zk://{name}", instance_id=identity, root="/ledgers", status=status
    )


def statuses(world: World) -> dict[str, str]:
    return {each.name: each.status.value for each in world.state.entries}


@pytest.mark.parametrize("status", [C.STANDBY, None])
def test_a_new_cluster_stands_by(status: ClusterStatus | None) -> None:
    world = World().to(S.PRECHECKED)
    world.tell(asked("third", status))
    assert statuses(world)["third"] == "standby"


@for_each(
    ("stage", "name", "status", "says"),
    [
        (S.PRECHECKED, "third", C.ACTIVE, "old is active: `register` without `--status`, and then"),
        (S.PRECHECKED, "third", C.DEPRECATED, "a clean-up deprecates"),
        (S.PRECHECKED, "old", C.STANDBY, "old is active"),
        (S.HOLD, "old", C.STANDBY, "old is active"),
        (S.HOLD, "new", C.ACTIVE, "the switch to new is at hold; to go on: `rollback` or `end`"),
        (S.ROLLED_BACK, "new", C.ACTIVE, "`start --target new`"),
        (S.DONE, "new", C.STANDBY, "new is active"),
    ],
)
def test_what_only_a_switch_does_is_refused_with_the_way(
    stage: SwitchStage, name: str, status: ClusterStatus, says: str
) -> None:
    world = World().to(stage)
    before = statuses(world)
    said = world.tell(asked(name, status))
    assert [each.code for each in said] == [RejectCode.INVALID_TRANSITION]
    assert says in said[0].sentence
    assert statuses(world) == before


@pytest.mark.parametrize(
    "directive", [None, Directive(1, "new")], ids=["nobody", "by a directive, its status unwritten"]
)
def test_where_no_cluster_is_active_a_person_says_which_one_is(directive: Directive | None) -> None:
    world = World().to(S.REGISTERED)
    entries = tuple(replace(e, status=C.DEPRECATED if e.name == "old" else C.STANDBY) for e in world.state.entries)
    world.state = SwitchingState()
    seen = RegistrySeen(entries, "old", directive, 0, world.now_ms)
    world.tell(seen, world.lease_event(), *(world.cluster_event(n) for n in world.clusters))
    [refused] = world.later().tell(command("start", "s", target="new", digest="x"))
    assert "`register` new with" in refused.sentence or "`register` the one" in refused.sentence
    said = world.tell(asked("new", C.ACTIVE))
    assert [each.verdict for each in said] == [SwitchVerdict.WRITE_REGISTRY]
    assert (world.state.active(), world.state.committed(), world.state.contested) == ("new", "new", "")
    assert world.later().tell(dataclasses.replace(seen, at_ms=world.now_ms)) == [], "not written yet"
    check = world.later().checked("old").state.check("old")
    assert check is not None
    assert check.source == "new"


def test_a_registry_without_an_active_cluster_is_one_alert_with_the_remedy() -> None:
    world = WireWorld()
    standby = tuple(RegistryEntry(n, f"zk://{n}", f"id-of-{n}", "/ledgers", C.STANDBY) for n in ("new", "old"))
    world.tell(RegistrySeen(standby, "old", None, 0), world.lease_event())
    for _ in range(3):
        world.later().tell(world.members_event())
    assert [(d.alert, "`--status active`" in d.summary) for d in world.published if isinstance(d, Alert)] == [
        ("switch-contested", True)
    ]
    assert [d for d in world.published if isinstance(d, SwitchDecision)] == []


@pytest.mark.parametrize("status", [C.STANDBY, C.DEPRECATED])
def test_the_first_cluster_is_active_and_not_said_to_be_before_it_is_known(status: ClusterStatus) -> None:
    [refused] = World().tell(asked("old", status))
    assert refused.sentence == "the first cluster is the one that brokers write to: it is registered as active"


def test_while_the_registry_is_contested_nothing_is_registered_or_removed_without_a_word() -> None:
    world = World().to(S.PRECHECKED)
    entries = tuple(replace(each, status=C.ACTIVE) for each in world.state.entries)
    world.later().tell(RegistrySeen(entries, "old", None, 0, world.now_ms), world.inventory_event())
    assert codes(world.tell(asked("third", None))) == [RejectCode.CONTESTED]
    assert codes(world.tell(command("unregister", "u", name="new"))) == [RejectCode.CONTESTED]
    assert list(statuses(world)) == ["new", "old"]


@pytest.mark.parametrize(
    "asked",
    [
        command("register", "x", name="", uri="", instance_id=None, root=None), command("unregister", "x", name=""),
        command("precheck", "x", target=""), command("start", "x", target=""), command("close-client", "x", name=""),
    ],
)  # fmt: skip
def test_a_command_that_names_no_cluster_is_told_so(asked: SwitchCommand) -> None:
    [refused] = World().to(S.PRECHECKED).tell(asked)
    assert refused.code is RejectCode.NOT_FOUND
    assert refused.sentence == "the command does not say which cluster it is about"


def test_a_deprecated_cluster_may_stand_by_again() -> None:
    world = World().to(S.DONE)
    said = world.tell(asked("old", C.STANDBY))
    assert [each.verdict for each in said] == [SwitchVerdict.WRITE_REGISTRY]
    assert statuses(world) == {"old": "standby", "new": "active"}


def test_what_is_so_already_is_only_written_again() -> None:
    world = World().to(S.DONE)
    world.tell(asked("new", C.ACTIVE))
    assert statuses(world) == {"old": "deprecated", "new": "active"}


def test_a_status_that_could_not_be_written_is_settled() -> None:
    world = World().to(S.CLEANUP).work(SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.DELETE_OLD)
    world.tell(StatusResult(SwitchAction.STATUS_NEW, world.switch.op, ok=False))
    assert world.stage is S.DONE_WITH_FAILURES
    world.orders.clear()
    world.tell(asked("new", C.ACTIVE))
    assert world.work().stage is S.DONE
    assert statuses(world) == {"old": "deprecated", "new": "active"}
