"""Rows 9 to 16, 19 and 21: what becomes of a ledger by what an executor says."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from policies.switching.decisions import ORDERS, RejectCode, SwitchReason, SwitchVerdict
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import LedgerOutcome
from policies.switching.settings import DAY_MS
from policies.switching.state import LedgerStage, SwitchAction, SwitchStage
from tests.policies.switching.events import command
from tests.policies.switching.world import START_MS, Held, Ref, World, few, tell_of, verdicts

S, L = SwitchStage, LedgerStage


def test_a_foreign_ledger_of_equal_length_and_last_entry_is_refused() -> None:
    """It appears between inventory and copy, has one entry as ours, even the same content: it is not ours."""
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/c2"].ledger_id] = Held("/c2", world.now_ms - 1)
    world.tell(dataclasses.replace(world.inventory_event(), existing={}))
    world.orders = [o for o in world.orders if o.verdict is not SwitchVerdict.TAKE_INVENTORY]
    world.work()
    assert world.task("/c2").stage is L.FOREIGN_CONFLICT
    [said] = [s for s in world.said if s.verdict is SwitchVerdict.REMAP_REQUIRED]
    assert (said.code, said.reason) == (RejectCode.COLLISION, SwitchReason.FOREIGN_ID)
    assert SwitchVerdict.DELETE_OWN_COPY not in verdicts(world.said)
    assert not [s for s in world.said if s.verdict is SwitchVerdict.PROMOTE and s.task and s.task.paths == ("/c2",)]
    assert world.clusters["new"].ledgers[world.refs["/c2"].ledger_id].by_headgate is False


@pytest.mark.parametrize("complete", [True, False])
def test_our_own_earlier_copy_is_taken_if_complete_and_made_anew_if_not(complete: bool) -> None:
    world = World().to(S.BUILD)
    ledger_id = world.refs["/c1"].ledger_id
    world.clusters["new"].ledgers[ledger_id] = Held("/c1", world.now_ms + 1, complete=complete, by_headgate=True)
    world.work(SwitchVerdict.START_COPY, limit=1)
    assert world.task("/c1").stage is L.BUILT
    world.work()
    assert world.stages() == dict.fromkeys(("/c1", "/c2", "/s1"), L.PROMOTED)


@pytest.mark.parametrize(
    "difference",
    [
        {"length_bytes": 11}, {"last_entry_id": 1}, {"entries_digest": "other"}, {"custom_metadata": {"a": "b"}},
        {"entries_digest": None},
    ],
)  # fmt: skip
def test_a_copy_that_differs_is_not_built(difference: dict[str, Any]) -> None:
    """The executor makes such a copy again; one that still differs leaves the ledger in the source."""
    world = World().to(S.BUILD)
    source = world.facts("old", world.refs["/c1"].ledger_id)
    tell_of(world, "/c1", LedgerOutcome.COPIED, source=source, target=replace(source, **difference))
    assert world.task("/c1").stage is L.BUILD_FAILED
    assert SwitchReason.COPY_DIFFERS in [s.reason for s in world.said]


def test_an_earlier_copy_of_ours_that_still_differs_leaves_the_ledger_in_the_source() -> None:
    world = World().to(S.BUILD)
    source = world.facts("old", world.refs["/c1"].ledger_id)
    copy = replace(source, provenance="id-of-old", length_bytes=9)
    [said, *_] = tell_of(world, "/c1", LedgerOutcome.EXISTS, source=source, target=copy)
    assert (world.task("/c1").stage, said.reason) == (L.BUILD_FAILED, SwitchReason.OURS_PARTIAL)


@pytest.mark.parametrize(("stage", "outcome"), [(S.BUILD, LedgerOutcome.COPIED), (S.PROMOTE, LedgerOutcome.PROMOTED)])
def test_a_decision_names_what_earlier_tries_did(stage: SwitchStage, outcome: LedgerOutcome) -> None:
    world = World().to(stage)
    facts = world.facts("old", world.refs["/c1"].ledger_id)
    said = tell_of(world, "/c1", outcome, source=facts, target=facts, detail="our copy was deleted")
    assert said[0].sentence.endswith(" (our copy was deleted)")


def test_an_unreadable_source_leaves_the_attribution() -> None:
    world = World().to(S.BUILD)
    tell_of(world, "/c1", LedgerOutcome.SOURCE_UNREADABLE)
    world.work()
    assert world.stages() == {"/c1": L.BUILD_FAILED, "/c2": L.PROMOTED, "/s1": L.PROMOTED}
    assert world.refs["/c1"].attribution is None
    assert world.is_at(S.HOLD)


def test_a_promotion_that_changed_more_halts_the_switch() -> None:
    world = World().to(S.PROMOTE)
    said = tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("attribution", "ledger_id"))
    assert verdicts(said) == [SwitchVerdict.HALT]
    world.work()
    assert world.task("/c1").stage is L.PROMOTING
    assert world.task("/c2").stage is L.BUILT, "nothing more is ordered"
    assert world.is_at(S.PROMOTE)
    world.drive_on()
    assert world.is_at(S.HOLD)


def test_while_halted_results_count_and_nothing_is_asked_until_it_is_driven_on() -> None:
    world = World().to(S.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("entry_id",))
    assert verdicts(tell_of(world, "/s1", LedgerOutcome.CONFLICT)) == [SwitchVerdict.LEDGER]
    said = world.tell(world.start_event())
    assert {s.task.paths[0] for s in said if s.verdict is SwitchVerdict.PROMOTE and s.task} == {"/c1", "/c2"}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (LedgerOutcome.CONFLICT, SwitchReason.RETRIES_EXHAUSTED),
        (LedgerOutcome.FAILED, SwitchReason.RETRIES_EXHAUSTED),
        (LedgerOutcome.ADVANCED, SwitchReason.CURSOR_ADVANCED),
    ],
)
def test_a_promotion_that_the_executor_gives_up_is_deferred(outcome: LedgerOutcome, reason: SwitchReason) -> None:
    world = World().to(S.PROMOTE)
    said = tell_of(world, "/c1", outcome)
    assert (world.task("/c1").stage, said[0].reason) == (L.PROMOTE_DEFERRED, reason)
    assert world.refs["/c1"].attribution is None


def test_a_deletion_that_keeps_failing_is_a_failure() -> None:
    world = World().to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY)
    said = [tell_of(world, "/c1", LedgerOutcome.FAILED)[0] for _ in range(3)]
    assert said[-1].sentence.endswith("3 tries failed")
    assert (world.task("/c1").stage, world.task("/c1").awaiting) == (L.DELETE_INTENT, SwitchAction.GIVEN_UP)
    world.work()
    assert world.is_at(S.DONE_WITH_FAILURES)
    world.drive_on()
    assert world.task("/c1").stage is L.DELETE_INTENT, "deleting is not resumed before the next clean-up"
    world.later().tell(command("cleanup", world.key()))
    world.work()
    assert world.is_at(S.DONE)


@pytest.mark.parametrize("outcome", [LedgerOutcome.COPIED, LedgerOutcome.EXISTS])
@pytest.mark.parametrize("which", ["source", "target"])
def test_an_answer_that_names_another_ledger_is_refused_and_its_own_stays_behind(
    outcome: LedgerOutcome, which: str
) -> None:
    world = World().to(S.BUILD)
    task = world.task("/c1")
    facts = world.facts("old", task.ledger_id)
    found = {"source": facts, "target": facts} | {which: replace(facts, ledger_id=99)}
    said = tell_of(world, "/c1", outcome, **found)
    assert (said[0].verdict, "names ledger" in said[0].sentence) == (SwitchVerdict.REJECT, True)
    assert world.task("/c1").stage is L.BUILD_FAILED


def one_ledger_twice() -> World:
    world = World()
    world.refs["/s2"] = Ref(LedgerKind.SCHEMA, world.refs["/c1"].ledger_id, "/c1")
    return world


def test_a_schema_and_a_cursor_that_share_an_id_both_stay_in_the_plan_and_their_orders_say_so() -> None:
    world = one_ledger_twice().to(S.HOLD)
    assert len(world.switch.tasks) == 4
    assert set(world.stages()) == {"/c1", "/c2", "/s1", "/s2"}
    assert {r.attribution for p, r in world.refs.items() if p != "/none"} == {"new"}
    shared = {s.task.paths[0]: "shared" in s.details for s in world.said if s.task and s.verdict in ORDERS}
    assert shared == {"/c1": True, "/s2": True, "/c2": False, "/s1": False}, "the executor does not make that copy anew"


@pytest.mark.parametrize("stage", [S.ROLLED_BACK, S.DONE])
def test_their_one_ledger_is_deleted_when_neither_needs_it(stage: SwitchStage) -> None:
    world = one_ledger_twice().to(stage)
    if stage is S.ROLLED_BACK:
        world.later(15 * DAY_MS).tell(world.members_event(), world.lease_event(2))
        world.work()
    shared = world.refs["/c1"].ledger_id
    assert (shared in world.clusters["old"].ledgers) is (stage is S.ROLLED_BACK)
    assert (shared in world.clusters["new"].ledgers) is (stage is S.DONE)
    assert world.is_at(stage)


def test_an_inventory_that_did_not_ask_the_target_makes_no_plan() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.tell(world.inventory_event("old"))
    assert world.is_at(S.LIVE_DUAL_READ)


def test_what_is_attributed_to_nobody_belongs_to_the_bootstrap_cluster() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.refs["/elsewhere"] = Ref(LedgerKind.CURSOR, 77, "x", "elsewhere")
    world.work(SwitchVerdict.TAKE_INVENTORY)
    assert sorted(u.paths[0] for u in world.switch.tasks) == ["/c1", "/c2", "/s1"]


def test_a_cursor_that_rolled_over_elsewhere_is_looked_for_again() -> None:
    world = World().to(S.PROMOTE)
    ref = world.refs["/c1"]
    ref.ledger_id = world.clusters["old"].allocate("/c1", world.now_ms)
    tell_of(world, "/c1", LedgerOutcome.ROLLED_OVER, new_id=ref.ledger_id, attribution="old")
    assert world.task("/c1").awaiting is SwitchAction.INVENTORY
    world.work()
    assert world.is_at(S.HOLD)
    assert (world.task("/c1").ledger_id, world.task("/c1").stage) == (ref.ledger_id, L.PROMOTED)


def test_what_the_registry_lacks_is_written_again_until_it_is_seen_there() -> None:
    world = World().to(S.REGISTERED)
    held = list(world.state.entries)
    said = world.tell(world.registry_event(clusters=(replace(held[1], version=3),)))
    assert [(s.verdict, s.reason, s.subject) for s in said] == [
        (SwitchVerdict.WRITE_REGISTRY, SwitchReason.NOT_SEEN, f"registry/{held[0].name}")
    ]
    assert said[0].details["bootstrap"] == "old"
    assert world.tell(world.registry_event(clusters=tuple(replace(e, version=4) for e in held))) == []
    assert [e.version for e in world.state.entries] == [4, 4]


def test_what_was_unregistered_is_removed_again_until_the_registry_is_seen_without_it() -> None:
    world = World().to(S.REGISTERED)
    everything = tuple(replace(e, version=7) for e in world.state.entries)
    world.later().tell(world.inventory_event())
    world.tell(command("unregister", world.key(), name="new"))
    said = world.tell(world.registry_event(clusters=everything))
    assert [(s.verdict, s.reason, s.details["version"]) for s in said] == [
        (SwitchVerdict.REMOVE_REGISTRY, SwitchReason.NOT_SEEN, 7)
    ]
    left = tuple(e for e in everything if e.name != "new")
    assert world.tell(world.registry_event(clusters=left)) == []
    assert world.tell(world.registry_event(clusters=everything)) == [], "somebody else registered it since"


def test_without_the_lease_nothing_of_the_registry_is_written_again() -> None:
    world = World().to(S.REGISTERED)
    world.state = replace(world.state, lease=None)
    assert world.tell(world.registry_event(clusters=())) == []


def test_a_paused_switch_is_not_taken_back_by_itself_as_no_directive_would_say_so() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(command("pause", "p"), *(world.cluster_event(n) for n in world.clusters))
    assert world.later().tell(world.broker_event("b1", failed=True, epoch=world.switch.epoch)) == []
    world.tell(command("resume", "r"))
    world.raise_ids()
    assert world.is_at(S.REJECTED)


SCHEMAS_ANEW = {"schema": "remap"}


def test_ledgers_of_a_remapped_kind_get_new_ids() -> None:
    world = World(few(strategies=dict.fromkeys(LedgerKind, "remap"))).to(S.HOLD)
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
    world.clean_up()
    assert world.is_at(S.DONE)
    assert task.ledger_id not in world.clusters["old"].ledgers
    assert is_untouched(world, task.ledger_id)


def test_what_stayed_behind_as_its_id_is_taken_is_driven_on_under_a_new_one() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/s1"].ledger_id] = Held("foreign", START_MS)
    world.work()
    world.clean_up()
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
    foreign = replace(source, ledger_id=99, provenance="")
    said = tell_of(world, "/s1", LedgerOutcome.EXISTS, source=source, target=foreign)
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
