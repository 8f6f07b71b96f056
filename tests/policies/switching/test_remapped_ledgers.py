"""Ledgers that get a new id in the target, over all rows."""

import pytest
from msgspec.structs import replace

from policies.switching.decisions import SwitchVerdict
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import LedgerOutcome
from policies.switching.settings import DAY_MS
from policies.switching.state import LedgerStage, SwitchStage
from tests.policies.switching.events import command
from tests.policies.switching.world import START_MS, Held, World, few, tell_of, verdicts

S, L = SwitchStage, LedgerStage

SCHEMAS_ANEW = {"schema": "remap"}


def test_ledgers_of_a_remapped_kind_get_new_ids() -> None:
    world = World(few(strategies=dict.fromkeys(LedgerKind, "remap")))
    world.to(S.HOLD)
    assert world.stages() == {"/c1": L.PROMOTED_VIA_ROLLOVER, "/c2": L.PROMOTED_VIA_ROLLOVER, "/s1": L.PROMOTED}
    for path in ("/c1", "/c2", "/s1"):
        ref = world.refs[path]
        assert (ref.attribution, ref.ledger_id >= 2**32) == ("new", True)
        assert world.clusters["new"].ledgers[ref.ledger_id].content == ref.content
    assert [task.paths for task in world.switch.tasks if task.copied] == [("/s1",)]


def anew(stage: SwitchStage) -> World:
    """Of which the schema's id is taken in the target, so that its ledger gets a new one."""
    world = World(few(copy_concurrency=8, retries=3, strategies=SCHEMAS_ANEW))
    world.clusters["new"].ledgers[world.refs["/s1"].ledger_id] = Held("foreign", world.now_ms)
    return world.to(stage)


def is_untouched(world: World, ledger_id: int) -> bool:
    """The foreign ledger, which has the schema's id in the target."""
    return world.clusters["new"].ledgers[ledger_id] == Held("foreign", START_MS)


def test_a_ledger_gets_a_new_id_where_its_own_is_taken_and_the_old_one_is_cleaned_up() -> None:
    world = anew(S.HOLD)
    ref, task = world.refs["/s1"], world.task("/s1")
    assert (task.stage, task.target_id, ref.ledger_id) == (L.PROMOTED, ref.ledger_id, ref.ledger_id)
    world.later(15 * DAY_MS).tell(command("cleanup", world.key()))
    world.work()
    assert world.is_at(S.DONE)
    assert task.ledger_id not in world.clusters["old"].ledgers
    assert is_untouched(world, task.ledger_id)


def test_what_stayed_behind_as_its_id_is_taken_is_driven_on_under_a_new_one() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/s1"].ledger_id] = Held("foreign", START_MS)
    world.work()
    world.later(15 * DAY_MS).tell(command("cleanup", world.key()))
    world.work()
    assert (world.stage, world.task("/s1").stage) == (S.DONE_WITH_FAILURES, L.FOREIGN_CONFLICT)
    world.limits = few(strategies=SCHEMAS_ANEW)
    world.later().tell(world.start_event())
    world.work()
    assert (world.task("/s1").stage, world.refs["/s1"].ledger_id) == (L.PROMOTED, world.task("/s1").target_id)
    assert is_untouched(world, world.task("/s1").ledger_id)


def test_a_copy_under_a_new_id_that_is_ordered_again_is_found_under_that_id() -> None:
    world = anew(S.BUILD)
    order = next(o for o in world.orders if o.task is not None and o.task.paths == ("/s1",))
    world.carry_out(order)  # and the answer is lost
    world.work()
    assert world.is_at(S.HOLD)
    assert world.task("/s1").stage is L.PROMOTED
    assert world.refs["/s1"].ledger_id == world.task("/s1").target_id
    assert is_untouched(world, world.task("/s1").ledger_id)


def test_what_stands_under_a_new_id_and_is_not_ours_is_never_promoted_nor_deleted() -> None:
    world = anew(S.BUILD)
    source = world.facts("old", world.task("/s1").ledger_id)
    said = tell_of(
        world, "/s1", LedgerOutcome.EXISTS, source=source, target=replace(source, ledger_id=99, provenance="")
    )
    assert verdicts(said) == [SwitchVerdict.REMAP_REQUIRED]
    assert world.task("/s1").stage is L.FOREIGN_CONFLICT


@pytest.mark.parametrize("changed", [("attribution",), ("ledger_id",), ("attribution", "ledger_id", "entry_id")])
def test_a_reference_gets_its_new_id_and_its_cluster_together_or_the_switch_halts(changed: tuple[str, ...]) -> None:
    world = anew(S.PROMOTE)
    assert verdicts(tell_of(world, "/s1", LedgerOutcome.PROMOTED, changed=changed)) == [SwitchVerdict.HALT]
    assert world.switch.halted


def test_what_was_promoted_before_the_answer_was_lost_changes_nothing_and_is_promoted() -> None:
    world = anew(S.PROMOTE)
    tell_of(world, "/s1", LedgerOutcome.PROMOTED, changed=())
    assert world.task("/s1").stage is L.PROMOTED


def test_after_a_rollback_references_have_their_old_ids_and_copies_under_new_ones_are_deleted() -> None:
    world = anew(S.ROLLED_BACK)
    task = world.task("/s1")
    assert (world.refs["/s1"].attribution, world.refs["/s1"].ledger_id) == ("old", task.ledger_id)
    assert task.target_id in world.clusters["new"].ledgers
    world.later(15 * DAY_MS).tell(world.members_event())
    world.work()
    assert task.target_id not in world.clusters["new"].ledgers
    assert is_untouched(world, task.ledger_id)


def test_a_copy_under_a_new_id_of_which_nobody_heard_is_deleted_after_a_rollback_too() -> None:
    world = anew(S.BUILD)
    lost = [event for order in world.orders for event in world.carry_out(order)]
    assert lost
    world.tell(command("rollback", world.key()))
    world.work()
    task = world.task("/s1")
    assert (world.stage, task.target_id) == (S.ROLLED_BACK, None)
    world.later(15 * DAY_MS).tell(world.members_event())
    world.work()
    assert not [held for held in world.clusters["new"].ledgers.values() if held.by_headgate]
    assert is_untouched(world, task.ledger_id)


@pytest.mark.parametrize("remapped", [{}, {"cursor": "remap"}], ids=["same id", "remap"])
def test_a_cursor_that_moved_to_the_target_by_itself_stays_there_in_a_rollback(remapped: dict[str, str]) -> None:
    world = World(few(strategies=remapped)).to(S.PROMOTE)
    if remapped:
        for order in list(world.orders):
            world.carry_out(order)  # the owners rolled them over, and nobody heard of it
        world.orders.clear()
    else:
        world.work()
        world.refs["/c1"].ledger_id = world.clusters["new"].allocate("/c1", world.now_ms)
    world.tell(command("rollback", world.key()))
    world.work()
    assert world.is_at(S.ROLLED_BACK)
    assert world.task("/c1").stage is L.PROMOTED_VIA_ROLLOVER
    assert (world.refs["/c1"].attribution, world.refs["/s1"].attribution) == ("new", "old")
    world.later(15 * DAY_MS).tell(world.members_event())
    world.work()
    assert world.refs["/c1"].ledger_id in world.clusters["new"].ledgers
