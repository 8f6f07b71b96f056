"""The rows of the table one by one, with what they order and what they refuse."""

from typing import Any

import pytest
from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import (
    Cleanup,
    InventorySeen,
    LedgerResult,
    Register,
    RegistrySeen,
    Rollback,
    StatusResult,
    Unregister,
)
from policies.switching.judge.changes import DecisionDraft
from policies.switching.readings import LedgerOutcome
from policies.switching.references import LedgerKind
from policies.switching.settings import DAY_MS, SwitchLimits
from policies.switching.state import ClusterStatus, LedgerStage, SwitchAction, SwitchingState, SwitchStage
from tests.policies.switching.world import START_MS, Bookies, Held, Ref, World

S, L = SwitchStage, LedgerStage


def codes(said: list[DecisionDraft]) -> list[RejectCode | None]:
    return [s.code for s in said if s.verdict is SwitchVerdict.REJECT]


def verdicts(said: list[DecisionDraft]) -> list[SwitchVerdict]:
    return [s.verdict for s in said]


def tell_of(world: World, path: str, outcome: LedgerOutcome, **more: Any) -> list[DecisionDraft]:
    """The executor's answer about the ledger of one reference."""
    task = world.task(path)
    world.orders = [o for o in world.orders if o.task is None or o.task.ledger_id != task.ledger_id]
    return world.tell(LedgerResult(task.ledger_id, task.op, outcome, **more))


# --- 1 to 4


def test_the_first_cluster_is_active_and_owns_legacy_references_for_good() -> None:
    world = World().to(S.DONE)
    assert world.state.bootstrap == "old"
    assert world.state.active() == "new"


def test_a_cluster_in_use_is_not_forgotten() -> None:
    world = World().to(S.REGISTERED)
    forget = Unregister(key=world.key(), name="new")
    assert codes(world.tell(forget)) == [RejectCode.IN_USE], "no inventory is known"
    world.refs["/c1"].attribution = "new"
    world.later().tell(world.inventory_event())
    assert codes(world.tell(replace_key(world, forget))) == [RejectCode.IN_USE]
    world.refs["/c1"].attribution = None
    world.later().tell(world.inventory_event())
    assert verdicts(world.tell(replace_key(world, forget))) == [SwitchVerdict.REMOVE_REGISTRY]
    assert world.state.entry("new") is None


def test_what_the_registry_lacks_is_written_again_until_it_is_seen_there() -> None:
    world = World().to(S.REGISTERED)
    held = list(world.state.entries)
    said = world.tell(RegistrySeen((replace(held[1], version=3),), "old", None, 0))
    assert [(s.verdict, s.reason, s.subject) for s in said] == [
        (SwitchVerdict.WRITE_REGISTRY, SwitchReason.NOT_SEEN, f"registry/{held[0].name}")
    ]
    assert said[0].details["bootstrap"] == "old"
    assert world.tell(RegistrySeen(tuple(replace(e, version=4) for e in held), "old", None, 0)) == []
    assert [e.version for e in world.state.entries] == [4, 4]


def test_what_was_unregistered_is_removed_again_until_the_registry_is_seen_without_it() -> None:
    world = World().to(S.REGISTERED)
    everything = tuple(replace(e, version=7) for e in world.state.entries)
    world.later().tell(world.inventory_event())
    world.tell(Unregister(key=world.key(), name="new"))
    said = world.tell(RegistrySeen(everything, "old", None, 0))
    assert [(s.verdict, s.reason, s.details["version"]) for s in said] == [
        (SwitchVerdict.REMOVE_REGISTRY, SwitchReason.NOT_SEEN, 7)
    ]
    left = tuple(e for e in everything if e.name != "new")
    assert world.tell(RegistrySeen(left, "old", None, 0)) == []
    assert world.tell(RegistrySeen(everything, "old", None, 0)) == [], "somebody else registered it since"


def test_without_the_lease_nothing_of_the_registry_is_written_again() -> None:
    world = World().to(S.REGISTERED)
    world.state = replace(world.state, lease=None)
    assert world.tell(RegistrySeen((), "old", None, 0)) == []


def replace_key(world: World, command: Unregister) -> Unregister:
    return Unregister(key=world.key(), name=command.name)


def test_an_expired_or_unready_precheck_does_not_start_a_switch() -> None:
    world = World().to(S.PRECHECKED)
    world.later(600_000)
    assert codes(world.tell(world.start_event())) == [RejectCode.PRECHECK_FAILED]
    world = World()
    world.clusters["new"].hob = None
    world.to(S.PRECHECKED)
    assert codes(world.tell(world.start_event())) == [RejectCode.PRECHECK_FAILED]


def test_a_foreign_ledger_found_by_the_precheck_is_a_collision() -> None:
    world = World()
    world.clusters["new"].ledgers[world.refs["/c1"].ledger_id] = Held("foreign", world.now_ms)
    assert codes(world.to(S.PRECHECKED).tell(world.start_event())) == [RejectCode.COLLISION]


def test_without_the_lease_no_switch_starts() -> None:
    world = World().to(S.PRECHECKED)
    world.state = replace(world.state, lease=None)
    assert codes(world.tell(world.start_event())) == [RejectCode.INVALID_TRANSITION]


def test_the_same_target_again_drives_on() -> None:
    world = World().to(S.BUILD)
    open_orders = {(o.verdict, o.op) for o in world.orders}
    said = world.tell(world.start_event())
    assert codes(said) == []
    assert open_orders <= {(s.verdict, s.op) for s in said}


def test_a_directive_carries_the_next_epoch() -> None:
    world = World().to(S.PRECHECKED)
    said = world.tell(world.start_event(expected_epoch=0))
    assert verdicts(said) == [SwitchVerdict.ADVANCE, SwitchVerdict.WRITE_DIRECTIVE]
    assert world.state.directive is not None
    assert (world.state.directive.epoch, world.state.directive.target) == (1, "new")
    assert world.state.active() == "new"


# --- 5 to 7


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


def test_a_precheck_from_another_source_does_not_start_a_switch() -> None:
    world = World().to(S.PRECHECKED)
    [check] = world.state.checks
    world.state = replace(world.state, checks=(replace(check, source="another"),))
    assert codes(world.tell(world.start_event())) == [RejectCode.PRECHECK_FAILED]


def test_no_broker_at_all_is_not_all_brokers() -> None:
    world = World().to(S.TRIGGERED)
    world.brokers.clear()
    world.acks()
    assert world.is_at(S.TRIGGERED)


def test_a_broker_that_writes_to_the_old_one_after_its_ack_blocks() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers))
    world.tell(world.broker_event("b2", writes=("old", "new")))
    said = world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.TRIGGERED)
    assert "b2 wrote to old" in world.switch.blocked
    assert SwitchVerdict.BLOCKED in verdicts(world.said)
    assert said == [], "it was said once"
    world.later().tell(world.follow("b2"))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.LIVE_DUAL_READ)
    assert world.switch.blocked == ""


@pytest.mark.parametrize("hob", [1, 2])
def test_a_source_that_overtook_the_target_meanwhile_blocks(hob: int) -> None:
    world = World().to(S.TRIGGERED)
    world.clusters["old"].hob = hob
    world.clusters["old"].created = 5
    world.acks()
    assert world.is_at(S.TRIGGERED)
    assert world.switch.blocked


def test_a_stale_ack_is_counted_and_ignored() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), world.follow("b1"), world.broker_event("b2", epoch=0))
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))
    assert world.is_at(S.TRIGGERED)
    assert world.state.counts.stale_acks == 1


def test_a_client_that_cannot_be_made_before_any_ack_takes_the_switch_back() -> None:
    world = World().to(S.REJECTED)
    assert world.is_at(S.REJECTED)
    assert world.state.directive is not None
    assert (world.state.directive.epoch, world.state.directive.target) == (2, "old")
    assert world.state.active() == "old"


def test_a_client_that_cannot_be_made_after_an_ack_leaves_it_to_a_person() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.follow("b1"))
    said = world.tell(world.broker_event("b2", failed=True, epoch=1))
    assert verdicts(said) == [SwitchVerdict.DEGRADED]
    assert world.is_at(S.TRIGGERED)
    assert world.switch.degraded
    assert world.state.active() == "new"


# --- 8 to 12


def test_an_inventory_from_before_the_switch_was_live_makes_no_plan() -> None:
    world = World().to(S.TRIGGERED)
    early = world.inventory_event()
    world.acks().tell(early)
    assert world.is_at(S.LIVE_DUAL_READ)


def test_an_inventory_that_did_not_ask_the_target_makes_no_plan() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.tell(world.inventory_event("old"))
    assert world.is_at(S.LIVE_DUAL_READ)


def test_what_is_attributed_to_nobody_belongs_to_the_bootstrap_cluster() -> None:
    world = World()
    world.refs["/elsewhere"] = Ref(LedgerKind.CURSOR, 77, "x", "elsewhere")
    world.to(S.BUILD)
    assert sorted(u.paths[0] for u in world.switch.tasks) == ["/c1", "/c2", "/s1"]


def test_no_more_copies_than_allowed_run_at_once() -> None:
    world = World().to(S.BUILD)
    assert [u.stage for u in world.switch.tasks] == [L.COPYING, L.COPYING, L.PENDING]
    world.work(SwitchVerdict.START_COPY, limit=1)
    assert [u.stage for u in world.switch.tasks] == [L.BUILT, L.COPYING, L.COPYING]


def test_a_foreign_ledger_at_the_inventory_is_a_conflict_and_the_others_go_on() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/c1"].ledger_id] = Held("/c1", world.now_ms)
    world.work()
    assert world.stages() == {"/c1": L.FOREIGN_CONFLICT, "/c2": L.PROMOTED, "/s1": L.PROMOTED}
    assert world.refs["/c1"].attribution is None


def test_a_foreign_ledger_of_equal_length_and_last_entry_is_refused() -> None:
    """It appears between inventory and copy, has one entry as ours, even the same content: it is not ours."""
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/c2"].ledger_id] = Held("/c2", world.now_ms - 1)
    clean = world.inventory_event()
    world.tell(type(clean)(clean.references, clean.at_ms, clean.target))
    world.orders = [o for o in world.orders if o.verdict is not SwitchVerdict.TAKE_INVENTORY]
    world.work()
    assert world.task("/c2").stage is L.FOREIGN_CONFLICT
    [said] = [s for s in world.said if s.verdict is SwitchVerdict.REMAP_REQUIRED]
    assert (said.code, said.reason) == (RejectCode.COLLISION, SwitchReason.FOREIGN_ID)
    assert not [
        s
        for s in world.said
        if s.verdict in (SwitchVerdict.DELETE_OWN_COPY,)
        or (s.verdict is SwitchVerdict.PROMOTE and s.task and s.task.paths == ("/c2",))
    ]
    assert world.clusters["new"].ledgers[world.refs["/c2"].ledger_id].by_headgate is False


@pytest.mark.parametrize("complete", [True, False])
def test_our_own_earlier_copy_is_taken_if_complete_and_made_anew_if_not(complete: bool) -> None:
    world = World().to(S.BUILD)
    ledger_id = world.refs["/c1"].ledger_id
    world.clusters["new"].ledgers[ledger_id] = Held("/c1", world.now_ms + 1, complete=complete, by_headgate=True)
    world.work(SwitchVerdict.START_COPY, limit=1)
    assert world.task("/c1").stage is (L.BUILT if complete else L.COPYING)
    world.work()
    assert world.stages() == dict.fromkeys(("/c1", "/c2", "/s1"), L.PROMOTED)


@pytest.mark.parametrize(
    "difference",
    [
        {"length_bytes": 11}, {"last_entry_id": 1}, {"entries_digest": "other"}, {"custom_metadata": (("a", "b"),)},
        {"entries_digest": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_copy_that_differs_is_made_again_and_given_up_after_a_while(difference: dict[str, Any]) -> None:
    world = World().to(S.BUILD)
    source = world.facts("old", world.refs["/c1"].ledger_id)
    for tries in (1, 2, 3):
        assert world.task("/c1").tries == tries - 1
        tell_of(world, "/c1", LedgerOutcome.COPIED, source=source, target=replace(source, **difference))
        if tries < 3:
            assert world.task("/c1").awaiting is SwitchAction.DELETE_COPY
            tell_of(world, "/c1", LedgerOutcome.COPY_DELETED)
            assert world.task("/c1").awaiting in (SwitchAction.COPY, SwitchAction.NONE)
            world.work(SwitchVerdict.START_COPY, limit=0)
            while world.task("/c1").awaiting is SwitchAction.NONE:
                world.work(limit=1)
    assert world.task("/c1").stage is L.BUILD_FAILED


def test_an_unreadable_source_leaves_the_attribution() -> None:
    world = World().to(S.BUILD)
    tell_of(world, "/c1", LedgerOutcome.SOURCE_UNREADABLE)
    world.work()
    assert world.stages() == {"/c1": L.BUILD_FAILED, "/c2": L.PROMOTED, "/s1": L.PROMOTED}
    assert world.refs["/c1"].attribution is None
    assert world.is_at(S.HOLD)


def test_a_switch_without_references_passes_through() -> None:
    world = World()
    world.refs.clear()
    assert world.to(S.DONE).stage is S.DONE


# --- 13 to 16


def test_a_promotion_that_changed_more_halts_the_switch() -> None:
    world = World().to(S.PROMOTE)
    said = tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("attribution", "ledger_id"))
    assert verdicts(said) == [SwitchVerdict.HALT]
    world.work()
    assert world.task("/c1").stage is L.PROMOTING
    assert world.task("/c2").stage is L.BUILT, "nothing more is ordered"
    assert world.is_at(S.PROMOTE)
    world.tell(world.start_event())
    world.work()
    assert world.is_at(S.HOLD)


def test_while_halted_nothing_is_asked_again_until_it_is_driven_on() -> None:
    world = World().to(S.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("entry_id",))
    assert tell_of(world, "/s1", LedgerOutcome.CONFLICT) == []
    said = world.tell(world.start_event())
    assert {s.task.paths[0] for s in said if s.verdict is SwitchVerdict.PROMOTE and s.task} == {"/c1", "/s1"}


def test_a_version_conflict_is_tried_again_and_then_deferred() -> None:
    world = World().to(S.PROMOTE)
    said: list[DecisionDraft] = []
    for _ in range(3):
        assert world.task("/c1").stage is L.PROMOTING
        said = tell_of(world, "/c1", LedgerOutcome.CONFLICT)
    assert world.task("/c1").stage is L.PROMOTE_DEFERRED
    assert said[0].reason is SwitchReason.RETRIES_EXHAUSTED


def test_a_cursor_that_rolled_over_to_the_target_is_promoted() -> None:
    world = World().to(S.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.ROLLED_OVER, new_id=2**32 + 5, attribution="new")
    assert (world.task("/c1").stage, world.task("/c1").target_id) == (L.PROMOTED_VIA_ROLLOVER, 2**32 + 5)


def test_a_cursor_that_rolled_over_elsewhere_is_looked_for_again() -> None:
    world = World().to(S.PROMOTE)
    ref = world.refs["/c1"]
    ref.ledger_id = world.clusters["old"].allocate("/c1", world.now_ms)
    tell_of(world, "/c1", LedgerOutcome.ROLLED_OVER, new_id=ref.ledger_id, attribution="old")
    assert world.task("/c1").awaiting is SwitchAction.INVENTORY
    world.work()
    assert world.is_at(S.HOLD)
    assert (world.task("/c1").ledger_id, world.task("/c1").stage) == (ref.ledger_id, L.PROMOTED)


def test_a_cursor_that_advanced_since_the_copy_is_copied_again() -> None:
    world = World().to(S.PROMOTE)
    ledger_id = world.refs["/c1"].ledger_id
    world.refs["/c1"].content = world.clusters["old"].ledgers[ledger_id].content = "/c1, further"
    tell_of(world, "/c1", LedgerOutcome.ADVANCED)
    assert world.task("/c1").awaiting is SwitchAction.DELETE_COPY
    world.work()
    assert world.task("/c1").stage is L.PROMOTED
    assert world.clusters["new"].ledgers[ledger_id].content == "/c1, further"


def test_a_cursor_that_always_advances_is_deferred() -> None:
    world = World().to(S.PROMOTE)
    for _ in range(3):
        while world.task("/c1").awaiting is not SwitchAction.PROMOTE:
            world.work(limit=1)
        tell_of(world, "/c1", LedgerOutcome.ADVANCED)
    assert world.task("/c1").stage is L.PROMOTE_DEFERRED


# --- 17 to 19: the windows


@pytest.mark.parametrize(
    ("early_ms", "code"), [(1, []), (0, [RejectCode.WINDOW_EXPIRED]), (-1, [RejectCode.WINDOW_EXPIRED])]
)
def test_a_rollback_fits_into_its_window_to_the_millisecond(early_ms: int, code: list[RejectCode]) -> None:
    world = World().to(S.HOLD)
    assert world.switch.rollback_until_ms == world.switch.live_ms + DAY_MS
    world.now_ms = world.switch.rollback_until_ms - early_ms
    assert codes(world.tell(Rollback(key=world.key()))) == code
    assert world.stage is (S.HOLD if code else S.ROLLBACK)


@pytest.mark.parametrize(("late_ms", "code"), [(-1, [RejectCode.WINDOW_NOT_ELAPSED]), (0, []), (1, [])])
def test_a_cleanup_waits_for_its_time_to_the_millisecond(late_ms: int, code: list[RejectCode]) -> None:
    world = World().to(S.HOLD)
    assert world.switch.cleanup_from_ms == world.switch.live_ms + 15 * DAY_MS
    world.now_ms = world.switch.cleanup_from_ms + late_ms
    assert codes(world.tell(Cleanup(key=world.key()))) == code
    assert world.stage is (S.HOLD if code else S.CLEANUP)


def test_nothing_is_cleaned_up_that_can_still_be_taken_back() -> None:
    world = World(SwitchLimits(rollback_window_ms=20 * DAY_MS)).to(S.HOLD)
    assert world.switch.cleanup_from_ms == world.switch.rollback_until_ms


def test_after_the_cleanup_has_begun_there_is_no_way_back() -> None:
    world = World(SwitchLimits(rollback_window_ms=DAY_MS, cleanup_after_ms=0)).to(S.HOLD)
    world.now_ms = world.switch.rollback_until_ms
    world.tell(Cleanup(key=world.key()))
    world.now_ms -= 1
    assert codes(world.tell(Rollback(key=world.key()))) == [RejectCode.CLEANUP_STARTED]


def test_a_rollback_puts_every_attribution_back_and_deletes_our_copies_later() -> None:
    world = World().to(S.ROLLED_BACK)
    assert {r.attribution for r in world.refs.values()} == {"old", None}
    assert set(world.stages().values()) == {L.REVERTED}
    copies = {p: world.refs[p].ledger_id for p in ("/c1", "/c2", "/s1")}
    world.now_ms = world.switch.cleanup_from_ms - 1
    world.tell(world.members_event())
    assert world.orders == []
    world.later(1).tell(world.members_event())
    world.work()
    assert not world.clusters["new"].ledgers.keys() & set(copies.values())
    assert world.clusters["old"].ledgers.keys() >= set(copies.values())
    assert world.state.journal == ()


@pytest.mark.parametrize("stage", [S.BUILD, S.PROMOTE])
def test_a_rollback_amid_the_work_ends_well_and_late_answers_change_nothing(stage: SwitchStage) -> None:
    world = World().to(stage)
    waiting = list(world.orders)
    answers_ = [event for order in waiting for event in world.carry_out(order)]
    world.tell(Rollback(key=world.key()))
    world.tell(*answers_)
    world.work()
    assert world.is_at(S.ROLLED_BACK)
    assert set(world.stages().values()) == {L.REVERTED}
    assert {r.attribution for r in world.refs.values()} == ({"old", None} if stage is S.PROMOTE else {None})


def test_brokers_go_back_only_to_ids_beyond_those_of_the_target() -> None:
    world = World().to(S.HOLD)
    world.tell(world.inventory_event())
    refused = world.tell(Rollback(key=world.key(), attribution_only=False))
    assert codes(refused) == [RejectCode.COLLISION]
    world.clusters["old"].hob, world.clusters["old"].created = 2, 0
    world.later().tell(world.cluster_event("new"), world.cluster_event("old"))
    assert "INV-2" in world.switch.halted, "until brokers go back, the old one must not be ahead"
    world.tell(Rollback(key=world.key(), attribution_only=False))
    assert (world.switch.halted, world.state.active()) == ("", "old")
    assert [o.verdict for o in world.orders] == [
        SwitchVerdict.WRITE_DIRECTIVE,
        SwitchVerdict.REVERT,
        SwitchVerdict.REVERT,
    ]
    world.work()
    assert world.is_at(S.ROLLED_BACK)
    world.acks()
    for broker, topic in (("b1", "t1"), ("b2", "t1"), ("b1", "t2")):
        world.write(topic, broker)


# --- 20 to 24


def test_a_dry_run_lists_and_changes_nothing() -> None:
    world = World().to(S.HOLD)
    world.later(15 * DAY_MS)
    before = replace(world.state, commands=())
    [said] = world.tell(Cleanup(key=world.key(), dry_run=True))
    assert said.verdict is SwitchVerdict.PREVIEW
    assert "3 ledgers are to be deleted from old: 2, 3, 4" in said.sentence
    assert replace(world.state, commands=()) == before


def test_nothing_is_deleted_before_an_inventory_from_after_the_cleanup_began() -> None:
    world = World().to(S.HOLD)
    world.later(15 * DAY_MS).tell(world.inventory_event())
    world.tell(Cleanup(key=world.key()))
    assert not [o for o in world.orders if o.verdict is SwitchVerdict.DELETE_OLD]
    world.work(SwitchVerdict.TAKE_INVENTORY)
    assert len([o for o in world.orders if o.verdict is SwitchVerdict.DELETE_OLD]) == 2, "max_deletions"


def test_what_is_still_referenced_is_not_deleted() -> None:
    world = World().to(S.HOLD)
    world.refs["/c1"].attribution = "old"
    world.later(15 * DAY_MS).tell(Cleanup(key=world.key()))
    world.work()
    assert world.is_at(S.DONE_WITH_FAILURES)
    assert world.stages() == {"/c1": L.PROMOTED, "/c2": L.CLEANED, "/s1": L.CLEANED}


def test_a_deletion_that_keeps_failing_is_a_failure() -> None:
    world = World().to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY)
    for _ in range(3):
        tell_of(world, "/c1", LedgerOutcome.FAILED)
    assert (world.task("/c1").stage, world.task("/c1").awaiting) == (L.DELETE_INTENT, SwitchAction.GIVEN_UP)
    world.work()
    assert world.is_at(S.DONE_WITH_FAILURES)
    world.tell(world.start_event())
    world.work()
    assert world.task("/c1").stage is L.DELETE_INTENT, "deleting is not resumed before the next clean-up"
    world.later().tell(Cleanup(key=world.key()))
    world.work()
    assert world.is_at(S.DONE)


def test_the_old_cluster_is_deprecated_before_the_new_one_is_active() -> None:
    world = World().to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.DELETE_OLD)
    assert world.awaits(SwitchAction.STATUS_OLD)
    world.tell(StatusResult(SwitchAction.STATUS_OLD, world.switch.op, ok=True))
    assert {e.name: e.status for e in world.state.entries} == {
        "old": ClusterStatus.DEPRECATED,
        "new": ClusterStatus.STANDBY,
    }
    assert world.state.active() == "new"
    world.tell(StatusResult(SwitchAction.STATUS_OLD, world.switch.op, ok=True))
    assert world.awaits(SwitchAction.STATUS_NEW), "a repeated answer is no answer to the next order"
    world.tell(StatusResult(SwitchAction.STATUS_NEW, world.switch.op, ok=True))
    assert world.is_at(S.DONE)


def test_a_status_that_cannot_be_written_is_a_failure_and_brokers_stay() -> None:
    world = World().to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.DELETE_OLD)
    world.tell(StatusResult(SwitchAction.STATUS_OLD, world.switch.op, ok=False))
    assert world.is_at(S.DONE_WITH_FAILURES)
    assert world.state.active() == "new"


def test_a_client_is_closed_when_all_say_that_nobody_reads() -> None:
    world = World().to(S.DONE)
    assert codes(world.tell(world.close_event())) == [RejectCode.CLIENT_IN_USE]
    world.later().tell(world.members_event(), world.inventory_event(), world.follow("b1"))
    assert codes(world.tell(world.close_event())) == [RejectCode.CLIENT_IN_USE], "b2 has not said so"
    world.tell(world.broker_event("b2", reads=("old",)))
    assert codes(world.tell(world.close_event())) == [RejectCode.CLIENT_IN_USE], "b2 reads"
    world.tell(world.follow("b2"))
    assert verdicts(world.tell(world.close_event())) == [SwitchVerdict.CLOSE_CLIENT]
    assert codes(world.tell(world.close_event("new"))) == [RejectCode.CLIENT_IN_USE], "the active one"
    assert codes(world.tell(world.close_event("fourth"))) == [RejectCode.NOT_FOUND]


def test_a_client_is_not_closed_while_a_reference_is_left() -> None:
    world = World().to(S.DONE_WITH_FAILURES)
    world.later().tell(world.members_event(), world.inventory_event(), *(world.follow(b) for b in world.brokers))
    assert codes(world.tell(world.close_event())) == [RejectCode.CLIENT_IN_USE]


def test_what_stayed_behind_is_driven_on() -> None:
    world = World().to(S.DONE_WITH_FAILURES)
    assert world.lost is not None
    world.clusters["old"].ledgers[world.refs["/s1"].ledger_id] = world.lost
    world.later().tell(world.start_event())
    assert (world.stage, world.switch.attempt) == (S.BUILD, 2)
    world.work()
    assert world.stages() == {"/c1": L.CLEANED, "/c2": L.CLEANED, "/s1": L.PROMOTED}
    assert codes(world.tell(Rollback(key=world.key()))) == [RejectCode.WINDOW_EXPIRED]
    world.tell(Cleanup(key=world.key()))
    world.work()
    assert world.is_at(S.DONE)


# --- remap


def test_ledgers_of_a_remapped_kind_get_new_ids() -> None:
    world = World(SwitchLimits(remapped=frozenset(LedgerKind)))
    world.to(S.HOLD)
    assert world.stages() == {"/c1": L.PROMOTED_VIA_ROLLOVER, "/c2": L.PROMOTED_VIA_ROLLOVER, "/s1": L.PROMOTED}
    for path in ("/c1", "/c2", "/s1"):
        ref = world.refs[path]
        assert (ref.attribution, ref.ledger_id >= 2**32) == ("new", True)
        assert world.clusters["new"].ledgers[ref.ledger_id].content == ref.content
    schema = world.task("/s1").ledger_id
    assert [(i.ledger_id, i.remap) for i in world.state.journal] == [(schema, True)]


SCHEMAS_ANEW = frozenset({LedgerKind.SCHEMA})


def anew(stage: SwitchStage) -> World:
    """Of which the schema's id is taken in the target, so that its ledger gets a new one."""
    world = World(SwitchLimits(copy_concurrency=8, retries=3, remapped=SCHEMAS_ANEW))
    world.clusters["new"].ledgers[world.refs["/s1"].ledger_id] = Held("foreign", world.now_ms)
    return world.to(stage)


def is_untouched(world: World, ledger_id: int) -> bool:
    """The foreign ledger, which has the schema's id in the target."""
    return world.clusters["new"].ledgers[ledger_id] == Held("foreign", START_MS)


def test_after_the_state_was_lost_the_executor_knows_its_copies_and_the_switch_is_made_again() -> None:
    world = World().to(S.PROMOTE)
    registered = RegistrySeen(world.state.entries, "old", world.state.directive, world.state.committed_epoch)
    world.state, world.orders = SwitchingState(), []
    world.later().tell(world.lease_event(2), registered, world.members_event())
    world.tell(*(world.cluster_event(name) for name in world.clusters), world.prechecked_event())
    again = world.tell(world.start_event())
    assert codes(again) == [RejectCode.COLLISION], "the precheck of this model goes by the journal that was lost"
    check = world.state.checks[0]
    world.state = replace(world.state, checks=(replace(check, ready=True, reasons=()),))
    world.tell(world.start_event())
    world.later().acks()
    seen = world.later().inventory_event()
    confirmed = {i: replace(ledger, provenance="id-of-old") for i, ledger in seen.existing.items()}
    world.tell(InventorySeen(seen.references, seen.at_ms, seen.target, confirmed))
    assert set(world.stages().values()) == {L.COPYING, L.PENDING}
    assert {intent.ledger_id for intent in world.state.journal} >= confirmed.keys()


def test_of_a_switch_that_is_done_the_ledgers_are_counted_and_forgotten() -> None:
    world = World().to(S.CLEANUP)
    last = world.task("/c1")
    world.work()
    assert (world.stage, world.switch.settled, world.switch.tasks) == (S.DONE, {L.CLEANED: 3}, ())
    assert world.state.journal == (), "what was copied is the target's own now"
    repeated = world.state.counts.repeated
    assert world.tell(LedgerResult(last.ledger_id, last.op, LedgerOutcome.DELETED)) == []
    assert world.state.counts.repeated == repeated + 1


def test_a_ledger_gets_a_new_id_where_its_own_is_taken_and_the_old_one_is_cleaned_up() -> None:
    world = anew(S.HOLD)
    ref, task = world.refs["/s1"], world.task("/s1")
    assert (task.stage, task.target_id, ref.ledger_id) == (L.PROMOTED, ref.ledger_id, ref.ledger_id)
    world.later(15 * DAY_MS).tell(Cleanup(key=world.key()))
    world.work()
    assert world.is_at(S.DONE)
    assert task.ledger_id not in world.clusters["old"].ledgers
    assert is_untouched(world, task.ledger_id)


def test_what_stayed_behind_as_its_id_is_taken_is_driven_on_under_a_new_one() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/s1"].ledger_id] = Held("foreign", START_MS)
    world.work()
    world.later(15 * DAY_MS).tell(Cleanup(key=world.key()))
    world.work()
    assert (world.stage, world.task("/s1").stage) == (S.DONE_WITH_FAILURES, L.FOREIGN_CONFLICT)
    world.limits = SwitchLimits(remapped=SCHEMAS_ANEW)
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


def test_a_copy_under_a_new_id_that_is_partial_is_deleted_and_made_again_under_another() -> None:
    world = anew(S.BUILD)
    source = world.facts("old", world.task("/s1").ledger_id)
    partial = replace(source, ledger_id=2**32 + 77, entries_digest=None, provenance="id-of-old")
    said = tell_of(world, "/s1", LedgerOutcome.EXISTS, source=source, target=partial)
    assert [(s.verdict, s.task.target_id) for s in said if s.task] == [(SwitchVerdict.DELETE_OWN_COPY, 2**32 + 77)]
    world.work()
    assert world.is_at(S.HOLD)
    assert world.task("/s1").stage is L.PROMOTED
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
    assert world.state.journal == ()
    assert is_untouched(world, world.task("/s1").ledger_id)


def test_a_copy_under_a_new_id_of_which_nobody_heard_is_deleted_after_a_rollback_too() -> None:
    world = anew(S.BUILD)
    lost = [event for order in world.orders for event in world.carry_out(order)]
    assert lost
    world.tell(Rollback(key=world.key()))
    world.work()
    assert (world.stage, world.task("/s1").target_id) == (S.ROLLED_BACK, None)
    world.later(15 * DAY_MS).tell(world.members_event())
    world.work()
    assert not [held for held in world.clusters["new"].ledgers.values() if held.by_headgate]
    assert is_untouched(world, world.task("/s1").ledger_id)


@pytest.mark.parametrize("remapped", [frozenset(), frozenset({LedgerKind.CURSOR})], ids=["same id", "remap"])
def test_a_cursor_that_moved_to_the_target_by_itself_stays_there_in_a_rollback(remapped: frozenset[LedgerKind]) -> None:
    world = World(SwitchLimits(remapped=remapped)).to(S.PROMOTE)
    if remapped:
        for order in list(world.orders):
            world.carry_out(order)  # the owners rolled them over, and nobody heard of it
        world.orders.clear()
    else:
        world.work()
        world.refs["/c1"].ledger_id = world.clusters["new"].allocate("/c1", world.now_ms)
    world.tell(Rollback(key=world.key()))
    world.work()
    assert world.is_at(S.ROLLED_BACK)
    assert world.task("/c1").stage is L.PROMOTED_VIA_ROLLOVER
    assert (world.refs["/c1"].attribution, world.refs["/s1"].attribution) == ("new", "old")
    world.later(15 * DAY_MS).tell(world.members_event())
    world.work()
    assert world.refs["/c1"].ledger_id in world.clusters["new"].ledgers


@pytest.mark.parametrize(("remap", "stage"), [(False, L.BUILT), (True, L.FOREIGN_CONFLICT)])
def test_the_strategy_of_another_time_is_no_record_of_a_copy(remap: bool, stage: LedgerStage) -> None:
    world = World(SwitchLimits(copy_concurrency=8)).to(S.BUILD)
    intents = world.state.journal
    assert intents
    world.state = replace(world.state, journal=tuple(replace(i, remap=remap) for i in intents))
    source = world.facts("old", world.task("/s1").ledger_id)
    tell_of(world, "/s1", LedgerOutcome.EXISTS, source=source, target=replace(source, created_ms=world.now_ms))
    assert world.task("/s1").stage is stage


# --- A, B, A


def test_the_way_back_needs_ids_beyond_and_never_creates_a_deleted_id() -> None:
    world = World().to(S.DONE)
    world.later().tell(world.inventory_event())
    world.tell(Unregister(key=world.key(), name="old"))
    world.tell(
        Register(key=world.key(), name="old", uri="zk://old", instance_id="id-of-old", root="/ledgers"),
        world.cluster_event("old"), world.cluster_event("new"),
    )  # fmt: skip
    assert [e.status for e in world.state.entries] == [ClusterStatus.ACTIVE, ClusterStatus.STANDBY]
    world.orders.clear()
    world.checked("old")
    assert codes(world.tell(world.start_event("old"))) == [RejectCode.COLLISION], "its ids were deleted from it"
    world.limits = SwitchLimits(remapped=frozenset(LedgerKind))
    world.checked("old")
    assert codes(world.tell(world.start_event("old"))) == [RejectCode.PRECHECK_FAILED], "its generator is behind"
    world.clusters["old"].hob, world.clusters["old"].created = 2, 0
    world.later().tell(world.cluster_event("old"), world.cluster_event("new"))
    world.checked("old").triggered("old")
    assert world.is_at(S.TRIGGERED)
    world.acks()
    for broker in world.brokers:
        for topic in world.topics:
            world.write(topic, broker)
    world.work()
    assert world.is_at(S.HOLD)
    assert {r.attribution for r in world.refs.values() if r.ledger_id >= 0} == {"old"}


def test_a_cluster_that_answers_with_another_identity_is_not_believed() -> None:
    world = World().to(S.HOLD)
    world.clusters["old"] = Bookies("old", "id-of-another")
    assert codes(world.later().tell(world.cluster_event("old"))) == [RejectCode.NAME_CONFLICT]
    seen = world.state.cluster("old")
    assert seen is not None
    assert seen.instance_id == "id-of-old"
