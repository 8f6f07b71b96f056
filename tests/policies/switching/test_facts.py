"""What several read models say together; what is not known is not guessed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies.decisions import Alert, Severity
from policies.switching.alert_kinds import IDS_BEHIND
from policies.switching.decisions import RejectCode
from policies.switching.facts import LedgerPlan, SwitchFacts
from policies.switching.judge import guards
from policies.switching.ledgers import ClusterSnapshot, IdMark, LedgerKind
from policies.switching.settings import DAY_MS, HOUR_MS
from policies.switching.state import LedgerStage, LedgerTask, SwitchAction, SwitchingState, SwitchStage
from policies.switching.transition import Transition
from tests.cases import for_each
from tests.policies.switching.events import command, listed
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import World, codes, few

S = SwitchStage


def facts(state: SwitchingState, now_ms: int = 0) -> SwitchFacts:
    return Transition(state, few(), now_ms).facts()


HOLD = World().to(S.HOLD)
DONE = World().to(S.DONE)
EMPTY = facts(SwitchingState())


@pytest.mark.parametrize(
    ("change", "is_known"),
    [({}, True), ({"epoch": -1}, False), ({"is_unread": True}, False), ({"at_ms": -60_000}, False)],
    ids=["just now", "before the directive", "the last attempt failed", "too long ago"],
)
def test_brokers_are_alive_by_a_recent_reading_since_the_directive(change: dict[str, Any], is_known: bool) -> None:
    members = HOLD.state.members
    assert members is not None
    found = facts(replace(HOLD.state, members=replace(members, **change))).live_brokers
    assert found == (members.brokers if is_known else ())
    assert EMPTY.live_brokers == ()


def test_a_broker_has_acked_by_the_epoch_of_the_switch_alone() -> None:
    assert [b.name for b in facts(HOLD.state).acked] == ["b1", "b2"]
    switch = replace(HOLD.switch, epoch=HOLD.switch.epoch + 1)
    assert facts(replace(HOLD.state, switch=switch)).acked == ()


def test_ids_are_taken_by_the_source_by_references_and_by_what_was_deleted() -> None:
    known = facts(HOLD.state)
    source = known.generator("old")
    assert source is not None
    assert known.floor_of_ids(source, "new") == source.ceiling
    gone = {"id-of-new": (1, source.ceiling + 5)}
    assert facts(replace(HOLD.state, deleted=gone)).floor_of_ids(source, "new") == source.ceiling + 5


@pytest.mark.parametrize(("beyond", "is_refused"), [(-1, False), (0, True), (1, True)])
def test_inv_2_the_next_id_of_the_target_lies_beyond_the_greatest_id_referenced(beyond: int, is_refused: bool) -> None:
    next_id, inventory = HOLD.clusters["new"].generator.next_id, HOLD.state.inventory
    assert inventory is not None
    known = facts(replace(HOLD.state, inventory=replace(inventory, greatest_id=next_id + beyond)))
    assert bool(guards.refuse_taken_ids(known, "old", "new")) is is_refused


@pytest.mark.parametrize(("given", "to_us"), [(6, -1), (7, 7), (8, 8)])
def test_a_cluster_gave_this_fleet_the_ids_from_its_floor_on(given: int, to_us: int) -> None:
    """The floor was its next id when brokers were sent there, so the first id that they got."""
    assert IdMark("id-of-new", "new", given=given, floor=7).given_to_us == to_us


def test_a_cluster_that_no_broker_is_known_to_have_left_may_give_all_of_its_hob() -> None:
    world = World().to(S.HOLD)
    world.tell(world.later().cluster_event("old"))
    mark, members = world.state.marks["id-of-old"], world.state.members
    assert members is not None
    assert facts(world.state, world.now_ms).may_have_given(mark) == mark.given
    unread = replace(world.state, members=replace(members, is_unread=True))
    assert facts(unread, world.now_ms).may_have_given(mark) == mark.ceiling > mark.given


@pytest.mark.parametrize(("after_ms", "is_refused"), [(-1, True), (0, False), (1, False)])
def test_a_cluster_is_unread_by_an_inventory_that_is_no_older_than_the_end_of_the_switch(
    after_ms: int, is_refused: bool
) -> None:
    inventory = DONE.state.inventory
    assert inventory is not None
    known = facts(replace(DONE.state, inventory=replace(inventory, at_ms=DONE.switch.ended_ms + after_ms)), DONE.now_ms)
    assert (guards.refuse_read_cluster(known, "old") == "no inventory since the switch ended") is is_refused


# --- what deletes, forgets or sends brokers on rests on readings under the directive in force, whatever their time


def read_under(world: World, name: str, epoch: int) -> ClusterSnapshot:
    """A reading of a cluster, made while ZooKeeper had the directive of an epoch."""
    return replace(world.cluster_event(name), epoch=epoch)


@pytest.mark.parametrize(("early", "late"), [("old", "new"), ("new", "old")])
def test_a_generator_read_under_the_directive_before_lets_no_switch_go_live(early: str, late: str) -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers))
    world.later().tell(read_under(world, late, 1), read_under(world, early, 0))
    assert world.is_at(S.TRIGGERED)
    world.later().tell(read_under(world, early, 1))
    assert world.is_at(S.LIVE_DUAL_READ)


def settled() -> World:
    """A switch that is done, with an inventory and reports since."""
    world = World().to(S.DONE)
    world.tell(world.later().inventory_event())
    return world.later().refresh()


def test_a_report_on_the_directive_before_forgets_no_cluster() -> None:
    world = settled()
    world.tell(world.broker_event("b2", epoch=0, writes=("new",)))
    assert codes(world.tell(world.close_event())) == [RejectCode.CLIENT_IN_USE]
    assert codes(world.tell(command("unregister", "u", name="old"))) == [RejectCode.IN_USE]
    world.tell(world.broker_event("b2"))
    assert codes(world.tell(world.close_event())) == []


def test_a_list_of_brokers_read_under_the_directive_before_forgets_no_cluster() -> None:
    world = settled()
    world.tell(world.members_event(epoch=0))
    assert codes(world.tell(command("unregister", "u", name="old"))) == [RejectCode.IN_USE]


@pytest.mark.parametrize("stage", [S.LIVE_DUAL_READ, S.CLEANUP])
def test_an_inventory_taken_under_the_directive_before_plans_and_deletes_nothing(stage: SwitchStage) -> None:
    world = World().to(stage)
    world.orders.clear()
    world.later().tell(listed(world.inventory_event(), epoch=0))
    assert (world.stage, world.orders) == (stage, [])
    world.later().tell(world.inventory_event())
    world.work()
    assert world.stage in (S.HOLD, S.DONE)


def test_an_agent_that_does_not_report_its_client_is_not_back_where_a_cluster_was_advanced() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.cluster_event("new"), command("abort", "a"))
    world.raise_ids().later()
    world.tell(world.members_event(), *(world.follow(b).but(client_epoch=None) for b in world.brokers))
    assert world.is_at(S.ROLLBACK)
    world.later().tell(*(world.broker_event(b) for b in world.brokers))
    assert world.work().is_at(S.ROLLED_BACK)


def test_brokers_are_not_sent_back_to_a_cluster_that_was_not_read_for_twice_ack_timeout() -> None:
    world = World().to(S.HOLD)
    world.clusters["old"].advance(2)
    world.later().tell(world.cluster_event("old"))
    world.goes_on_reporting = False
    world.later(2 * world.limits.ack_timeout_ms)
    world.tell(world.members_event(), *(world.broker_event(b) for b in world.brokers))
    world.tell(world.cluster_event("new"), command("rollback", "r", attribution_only=False))
    assert world.state.active() == "new"
    assert "the id generator of old was not read just now" in world.switch.blocked
    world.tell(world.cluster_event("old"))
    assert world.state.active() == "old"


@pytest.mark.parametrize("name", ["old", "new"])
def test_a_lower_hob_that_moves_is_an_alert_on_either_side_of_a_live_switch(name: str) -> None:
    world = WireWorld().to(S.HOLD)
    world.later().tell(world.cluster_event(name))
    world.clusters[name].advance((world.clusters[name].hob or 0) + 1)
    world.later().tell(world.cluster_event(name))
    world.clusters[name].lower_given += 1
    world.later().tell(world.cluster_event(name))
    alerts = [d for d in world.published if isinstance(d, Alert) and d.alert == IDS_BEHIND]
    assert [(a.severity, f"a client of {name} still" in a.summary) for a in alerts] == [(Severity.CRITICAL, True)]
    world.later(world.limits.ack_timeout_ms)
    world.step()
    assert world.alerts()[-1] == (IDS_BEHIND, "resolved"), "no client has taken one since"


@for_each("deletes", [False, True])
@for_each("hours", [0, 25, 15 * 24 - 1, 40 * 24])
def test_hold_ends_at_any_hour(hours: int, deletes: bool) -> None:
    world = World().to(S.HOLD)
    world.later(hours * HOUR_MS).refresh()
    assert codes(world.tell(command("end", "e", delete=deletes))) == []
    world.work()
    assert (world.stage, len(world.clusters["old"].deleted)) == (S.DONE, 3 if deletes else 0)


def test_reports_of_weeks_ago_delete_nothing() -> None:
    world = World().to(S.HOLD)
    world.goes_on_reporting = False
    world.later(16 * DAY_MS)
    assert codes(world.tell(command("cleanup", "c"))) == [RejectCode.BROKERS_BEHIND]
    assert codes(world.tell(command("end", "e", delete=True))) == [RejectCode.BROKERS_BEHIND]


# --- the plan: idle ledgers come in the order of ids, however they came in

L, A = LedgerStage, SwitchAction


def task(ledger_id: int, stage: LedgerStage = L.PENDING, awaiting: SwitchAction = A.NONE) -> LedgerTask:
    return LedgerTask(ledger_id, LedgerKind.CURSOR, (f"/c{ledger_id}",), stage, awaiting)


def test_ledgers_are_counted_as_they_move() -> None:
    plan = LedgerPlan([task(1), task(2, awaiting=A.COPY), task(3, L.PROMOTED, A.GIVEN_UP)])
    assert (plan.count(L.PENDING), plan.count_ordered(A.COPY), plan.count_unfinished(L.PROMOTED)) == (2, 1, 0)
    plan.put(task(2, L.BUILT))
    plan.drop(task(1).key)
    assert (plan.count(L.PENDING), plan.count(L.PENDING, L.BUILT), plan.count_ordered(A.COPY)) == (0, 1, 0)
    assert plan.touched == {task(2).key}


TASKS = st.builds(task, st.integers(0, 40), st.sampled_from([L.PENDING, L.BUILT]), st.sampled_from([A.NONE, A.COPY]))


@given(st.lists(st.lists(TASKS | st.integers(0, 40), max_size=12), max_size=6), st.integers(0, 50))
def test_a_plan_is_a_sorted_dictionary_over_any_steps(steps: list[list[LedgerTask | int]], most: int) -> None:
    expected: dict[int, LedgerTask] = {}
    found = LedgerPlan()
    for step in steps:
        for each in step:
            if isinstance(each, LedgerTask):
                found.put(each)
                expected[each.key] = each
            else:
                key = task(each).key
                assert found.get(key) == expected.get(key)
                found.drop(key)
                expected.pop(key, None)
        in_order = [expected[key] for key in sorted(expected)]
        assert [found.place(each.key) for each in in_order] == list(range(1, len(expected) + 1))
        idle = [t for stage in (L.BUILT, L.PENDING) for t in in_order if (t.stage, t.awaiting) == (stage, A.NONE)]
        assert found.idle(most, L.BUILT, L.PENDING) == idle[:most]
        found = LedgerPlan(found)
        assert (list(found), len(found)) == (in_order, len(expected))
        assert list(found.at(L.BUILT)) == [each for each in in_order if each.stage is L.BUILT]
        assert found.count(L.BUILT) == sum(each.stage is L.BUILT for each in expected.values())
        assert found.idle(most, L.BUILT, L.PENDING) == found.idle(most, L.BUILT, L.PENDING) == idle[:most]
