"""Rows 1 to 4, 18, 20, 23 and 24: what people ask for, with what it orders and what is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from policies.decisions import Alert
from policies.switching.decisions import RejectCode, SwitchDecision, SwitchVerdict
from policies.switching.readings import SwitchCommand
from policies.switching.settings import DAY_MS
from policies.switching.state import (
    ClusterStatus,
    Directive,
    LedgerStage,
    RegistryEntry,
    SwitchingState,
    SwitchStage,
)
from tests.cases import for_each
from tests.policies.switching.events import command, listed
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import Bookies, World, codes, few, verdicts

C, S, L = ClusterStatus, SwitchStage, LedgerStage


def test_a_cluster_in_use_is_not_forgotten() -> None:
    world = World().to(S.REGISTERED)
    forget = command("unregister", world.key(), name="new")
    assert codes(world.tell(forget)) == [RejectCode.IN_USE], "no inventory is known"
    world.refs["/c1"].attribution = "new"
    world.later().tell(world.inventory_event())
    assert codes(world.tell(replace_key(world, forget))) == [RejectCode.IN_USE]
    world.refs["/c1"].attribution = None
    world.later().tell(world.inventory_event())
    assert verdicts(world.tell(replace_key(world, forget))) == [SwitchVerdict.REMOVE_REGISTRY]
    assert (world.state.entry("new"), [each.name for each in world.state.clusters]) == (None, ["old"])


def replace_key(world: World, asked: SwitchCommand) -> SwitchCommand:
    return asked.model_copy(update={"idempotency_key": world.key()})


def test_an_expired_or_unready_precheck_does_not_start_a_switch() -> None:
    world = World().to(S.PRECHECKED)
    world.later(600_000)
    assert codes(world.tell(world.start_event())) == [RejectCode.PRECHECK_FAILED]
    world = World()
    world.clusters["new"].hob = None
    world.to(S.PRECHECKED)
    assert codes(world.tell(world.start_event())) == [RejectCode.PRECHECK_FAILED]


def test_a_precheck_from_another_source_does_not_start_a_switch() -> None:
    world = World().to(S.PRECHECKED)
    [check] = world.state.checks
    world.state = replace(world.state, checks=(replace(check, source="another"),))
    assert codes(world.tell(world.start_event())) == [RejectCode.PRECHECK_FAILED]


@pytest.mark.parametrize(
    ("early_ms", "code"), [(1, []), (0, [RejectCode.WINDOW_EXPIRED]), (-1, [RejectCode.WINDOW_EXPIRED])]
)
def test_a_rollback_fits_into_its_window_to_the_millisecond(early_ms: int, code: list[RejectCode]) -> None:
    world = World().to(S.HOLD)
    assert world.switch.rollback_until_ms == world.switch.live_ms + DAY_MS
    world.now_ms = world.switch.rollback_until_ms - early_ms
    assert codes(world.tell(command("rollback", world.key()))) == code
    assert world.stage is (S.HOLD if code else S.ROLLBACK)


@pytest.mark.parametrize(("late_ms", "code"), [(-1, [RejectCode.WINDOW_NOT_ELAPSED]), (0, []), (1, [])])
def test_a_cleanup_waits_for_its_time_to_the_millisecond(late_ms: int, code: list[RejectCode]) -> None:
    world = World().to(S.HOLD)
    assert world.switch.cleanup_from_ms == world.switch.live_ms + 15 * DAY_MS
    world.now_ms = world.switch.cleanup_from_ms + late_ms
    world.tell(*world.reported_again())
    assert codes(world.tell(command("cleanup", world.key()))) == code
    assert world.stage is (S.HOLD if code else S.CLEANUP)


def test_nothing_is_cleaned_up_that_can_still_be_taken_back() -> None:
    world = World(few(rollback_window="20d")).to(S.HOLD)
    assert world.switch.cleanup_from_ms == world.switch.rollback_until_ms


def test_after_the_cleanup_has_begun_there_is_no_way_back() -> None:
    world = World(few(rollback_window="1d", cleanup_after="0s")).to(S.HOLD)
    world.now_ms = world.switch.rollback_until_ms
    world.tell(*world.reported_again(), command("cleanup", world.key()))
    world.now_ms -= 1
    assert codes(world.tell(command("rollback", world.key()))) == [RejectCode.CLEANUP_STARTED]


def test_a_client_is_closed_when_all_say_that_nobody_reads() -> None:
    world = World().to(S.DONE)
    assert codes(world.tell(world.close_event())) == [RejectCode.CLIENT_IN_USE]
    world.later().tell(world.members_event(), world.inventory_event(), world.follow("b1"))
    assert codes(world.tell(world.close_event())) == [RejectCode.CLIENT_IN_USE], "b2 has not said so"
    world.tell(world.broker_event("b2", reads=("old",)))
    [refused] = world.tell(world.close_event())
    assert (refused.code, refused.sentence) == (RejectCode.CLIENT_IN_USE, "b2 reads it")
    world.tell(world.follow("b2"))
    assert verdicts(world.tell(world.close_event())) == [SwitchVerdict.CLOSE_CLIENT]
    assert codes(world.tell(world.close_event("new"))) == [RejectCode.CLIENT_IN_USE], "the active one"
    assert codes(world.tell(world.close_event("fourth"))) == [RejectCode.NOT_FOUND]


def test_a_client_may_be_closed_after_a_later_switch_came_to_nothing() -> None:
    world = World().to(S.DONE)
    world.clusters["third"] = Bookies("third", "id-of-third", hob=4)
    world.registered().checked("third").triggered("third")
    [refused] = world.tell(world.close_event())
    assert refused.sentence == "the switch to third is not over; to go on: `abort`"
    world.tell(world.cluster_event("third"), world.broker_event("b1", failed=True, epoch=world.switch.epoch))
    world.raise_ids()
    assert world.is_at(S.REJECTED)
    world.later().acks().tell(world.inventory_event())
    assert verdicts(world.tell(world.close_event())) == [SwitchVerdict.CLOSE_CLIENT]
    [refused] = world.tell(world.close_event("third"))
    assert refused.sentence == "no switch from third is done"


def test_what_stayed_behind_is_driven_on() -> None:
    world = World().to(S.DONE_WITH_FAILURES)
    assert world.lost is not None
    world.clusters["old"].ledgers[world.refs["/s1"].ledger_id] = world.lost
    world.later().tell(world.start_event())
    assert (world.stage, world.switch.attempt) == (S.BUILD, 2)
    taken, before = world.later().inventory_event(), world.stages()
    world.tell(listed(taken, attempt=1))
    assert (world.stage, world.stages()) == (S.BUILD, before), "it began before, although it was appended after"
    world.work()
    assert world.stages() == {"/c1": L.CLEANED, "/c2": L.CLEANED, "/s1": L.PROMOTED}
    assert codes(world.tell(command("rollback", world.key()))) == [RejectCode.WINDOW_EXPIRED]
    world.tell(command("cleanup", world.key()))
    world.work()
    assert world.is_at(S.DONE)


def asked(name: str, status: ClusterStatus | None) -> SwitchCommand:
    given: Any = {"name": name, "uri": f"zk://{name}", "instance_id": f"id-of-{name}", "root": "/ledgers"}
    return command("register", f"{name}-{status}", **given, status=status)


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
        (S.PRECHECKED, "third", C.DEPRECATED, "third is standby: only a switch"),
        (S.PRECHECKED, "old", C.STANDBY, "old is active"),
        (S.HOLD, "old", C.STANDBY, "old is active"),
        (S.HOLD, "new", C.ACTIVE, "the switch to new is at hold; to go on: `rollback` or `end`"),
        (S.ROLLED_BACK, "new", C.ACTIVE, "`start --target new`"),
        (S.DONE, "new", C.STANDBY, "new is active"),
        (S.DONE, "old", C.STANDBY, "old is deprecated"),
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
    seen = world.registry_event(clusters=entries, bootstrap="old", directive=directive)
    world.tell(seen, world.lease_event(), *(world.cluster_event(n) for n in world.clusters))
    [refused] = world.later().tell(command("start", "s", target="new", digest="x"))
    assert "`register` new with" in refused.sentence or "`register` the one" in refused.sentence
    said = world.tell(asked("new", C.ACTIVE))
    assert [each.verdict for each in said] == [SwitchVerdict.WRITE_REGISTRY]
    assert (world.state.active(), world.state.committed(), world.state.contested) == ("new", "new", "")
    assert world.later().tell(seen.but(world.now_ms)) == [], "not written yet"
    check = world.later().checked("old").state.check("old")
    assert check is not None
    assert check.source == "new"


def test_a_registry_without_an_active_cluster_is_one_alert_with_the_remedy() -> None:
    world = WireWorld()
    standby = tuple(RegistryEntry(n, f"zk://{n}", f"id-of-{n}", "/ledgers", C.STANDBY) for n in ("new", "old"))
    world.tell(world.registry_event(clusters=standby, bootstrap="old"), world.lease_event())
    for _ in range(3):
        world.later().tell(world.members_event())
    [alert] = [d for d in world.published if isinstance(d, Alert)]
    assert (alert.alert, "`--status active`" in alert.summary) == ("switch-contested", True)
    assert [d for d in world.published if isinstance(d, SwitchDecision)] == []


@pytest.mark.parametrize("status", [C.STANDBY, C.DEPRECATED])
def test_the_first_cluster_is_active_and_not_said_to_be_before_it_is_known(status: ClusterStatus) -> None:
    [refused] = World().tell(asked("old", status))
    assert refused.sentence == "the first cluster is the one that brokers write to: it is registered as active"


def test_while_the_registry_is_contested_nothing_is_registered_or_removed_without_a_word() -> None:
    world = World().to(S.PRECHECKED)
    entries = tuple(replace(each, status=C.ACTIVE) for each in world.state.entries)
    world.later().tell(world.registry_event(clusters=entries), world.inventory_event())
    assert codes(world.tell(asked("third", None))) == [RejectCode.CONTESTED]
    assert codes(world.tell(command("unregister", "u", name="new"))) == [RejectCode.CONTESTED]
    assert list(statuses(world)) == ["new", "old"]
