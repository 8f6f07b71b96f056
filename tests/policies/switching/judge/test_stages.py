"""Rows 6, 12, 17, 19 and 22: how a switch goes on by itself."""

import pytest

from policies.switching.decisions import SwitchVerdict
from policies.switching.readings import LedgerOutcome
from policies.switching.settings import DAY_MS
from policies.switching.state import LedgerStage, SwitchAction, SwitchStage
from tests.policies.switching.events import command, status
from tests.policies.switching.world import Held, World, few, tell_of, verdicts

S, L = SwitchStage, LedgerStage


def test_a_switch_goes_live_when_the_last_broker_acked_and_all_was_read_afresh() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), world.follow("b1"))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.TRIGGERED), "b2 has not acked"
    world.later().tell(world.follow("b2"))
    assert world.is_at(S.TRIGGERED), "the id generators were not read since"
    world.later().tell(world.cluster_event("old"))
    assert world.is_at(S.TRIGGERED)
    world.later().tell(world.cluster_event("new"))
    assert world.is_at(S.LIVE_DUAL_READ)


def test_who_is_alive_must_be_known_since_the_directive() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(*(world.follow(b) for b in world.brokers))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.TRIGGERED)
    world.later().tell(world.members_event())
    assert world.is_at(S.LIVE_DUAL_READ)


def test_a_reading_of_the_instant_of_the_last_ack_may_be_from_before_it() -> None:
    world = World().to(S.TRIGGERED)
    readings = [world.cluster_event(n) for n in world.clusters]
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers), *readings)
    assert world.is_at(S.TRIGGERED)
    world.later(1).tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.LIVE_DUAL_READ)


def test_a_broker_that_writes_to_the_old_one_after_its_ack_blocks() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers))
    world.tell(world.broker_event("b2", writes=("old", "new")))
    said = world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.TRIGGERED)
    assert "b2 writes to old" in world.switch.blocked
    assert SwitchVerdict.BLOCKED in verdicts(world.said)
    assert said == [], "it was said once"
    world.later().tell(world.follow("b2"))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.LIVE_DUAL_READ)
    assert world.switch.blocked == ""


def test_orders_lie_ready_so_that_the_executor_never_waits() -> None:
    world = World(few(copy_concurrency=1, orders_ahead=1, retries=3)).to(S.BUILD)
    assert [u.stage for u in world.switch.tasks] == [L.COPYING, L.COPYING, L.PENDING]
    world.work(SwitchVerdict.START_COPY, limit=1)
    assert [u.stage for u in world.switch.tasks] == [L.BUILT, L.COPYING, L.COPYING]
    assert world.work().stage is S.HOLD


def test_a_switch_without_references_passes_through() -> None:
    world = World()
    world.refs.clear()
    assert world.to(S.DONE).stage is S.DONE


def test_a_rollback_puts_every_attribution_back_and_deletes_our_copies_later() -> None:
    world = World().to(S.ROLLED_BACK)
    assert world.said[-1].sentence == "3 ledgers are attributed to old; our copies are deleted later"
    assert {r.attribution for r in world.refs.values()} == {"old", None}
    assert set(world.stages().values()) == {L.REVERTED}
    copies = {p: world.refs[p].ledger_id for p in ("/c1", "/c2", "/s1")}
    world.now_ms = world.switch.cleanup_from_ms - 1
    world.tell(world.members_event())
    assert world.orders == []
    world.later(1).tell(world.members_event())
    assert set(world.stages()) == set(copies), "they are being deleted"
    world.work()
    assert not world.clusters["new"].ledgers.keys() & set(copies.values())
    assert world.clusters["old"].ledgers.keys() >= set(copies.values())
    assert (world.switch.tasks, world.switch.ledgers, world.stage) == ((), {L.REVERTED: 3}, S.ROLLED_BACK)
    before = world.state
    world.later().tell(world.members_event())
    assert (world.state.switch, world.orders) == (before.switch, [])


def test_what_an_order_that_failed_did_all_the_same_is_taken_back_and_its_copies_are_deleted() -> None:
    world = World().to(S.PROMOTE)
    promoted, built = world.task("/c1"), world.task("/s1")
    world.refs["/c1"].attribution = "new"  # the executor lost ZooKeeper's answer
    for task in (promoted, built):
        tell_of(world, task.paths[0], LedgerOutcome.FAILED)
    world.work()
    assert {world.stages()[path] for path in ("/c1", "/s1")} == {L.PROMOTE_DEFERRED}
    world.tell(command("rollback", "r"))
    world.work()
    assert (world.stage, world.refs["/c1"].attribution) == (S.ROLLED_BACK, "old")
    world.later(15 * DAY_MS).refresh()
    world.work()
    assert not world.clusters["new"].ledgers.keys() & {promoted.ledger_id, built.ledger_id}


def test_what_was_never_copied_is_not_deleted_after_a_rollback() -> None:
    world = World().to(S.BUILD)
    world.clusters["new"].ledgers[world.refs["/c2"].ledger_id] = Held("foreign", world.now_ms)
    world.tell(command("rollback", "x"))
    world.later(15 * DAY_MS).tell(world.members_event())
    world.work()
    assert world.clusters["new"].ledgers[world.refs["/c2"].ledger_id].content == "foreign"
    assert SwitchVerdict.HALT not in verdicts(world.said)


@pytest.mark.parametrize("stage", [S.BUILD, S.PROMOTE])
def test_a_rollback_amid_the_work_ends_well_and_late_answers_change_nothing(stage: SwitchStage) -> None:
    world = World().to(stage)
    waiting = list(world.orders)
    answers_ = [event for order in waiting for event in world.carry_out(order)]
    world.tell(command("rollback", world.key()))
    world.tell(*answers_)
    world.work()
    assert world.is_at(S.ROLLED_BACK)
    assert set(world.stages().values()) == {L.REVERTED}
    assert {r.attribution for r in world.refs.values()} == ({"old", None} if stage is S.PROMOTE else {None})


def test_nothing_is_deleted_before_an_inventory_from_after_the_cleanup_began() -> None:
    world = World().to(S.HOLD)
    world.later(15 * DAY_MS).tell(world.inventory_event())
    world.tell(command("cleanup", world.key()))
    assert not [o for o in world.orders if o.verdict is SwitchVerdict.DELETE_OLD]
    world.work(SwitchVerdict.TAKE_INVENTORY)
    assert len([o for o in world.orders if o.verdict is SwitchVerdict.DELETE_OLD]) == 2, "max_deletions"


def test_the_registry_has_one_active_entry_at_every_moment() -> None:
    world = World().to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.DELETE_OLD)
    assert world.awaits(SwitchAction.STATUS_NEW)
    [order] = [o for o in world.orders if o.verdict is SwitchVerdict.WRITE_STATUS]
    assert (order.details["name"], order.details["deprecated"]) == ("new", "old"), "one order for both"
    assert world.state.committed() == "old"
    world.tell(status(world.switch.op, ok=True))
    assert {e.name: e.status.value for e in world.state.entries} == {"old": "deprecated", "new": "active"}
    assert world.is_at(S.DONE)
