"""Row 8: what an inventory brings into the plan."""

from policies.switching.decisions import SwitchVerdict
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import LedgerOutcome
from policies.switching.state import LedgerStage, SwitchAction, SwitchStage
from tests.policies.switching.world import Held, Ref, World, tell_of

S, L = SwitchStage, LedgerStage


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
    world = World().to(S.LIVE_DUAL_READ)
    world.refs["/elsewhere"] = Ref(LedgerKind.CURSOR, 77, "x", "elsewhere")
    world.work(SwitchVerdict.TAKE_INVENTORY)
    assert sorted(u.paths[0] for u in world.switch.tasks) == ["/c1", "/c2", "/s1"]


def test_a_foreign_ledger_at_the_inventory_is_a_conflict_and_the_others_go_on() -> None:
    world = World().to(S.LIVE_DUAL_READ)
    world.clusters["new"].ledgers[world.refs["/c1"].ledger_id] = Held("/c1", world.now_ms)
    world.work()
    assert world.stages() == {"/c1": L.FOREIGN_CONFLICT, "/c2": L.PROMOTED, "/s1": L.PROMOTED}
    assert world.refs["/c1"].attribution is None


def test_a_cursor_that_rolled_over_elsewhere_is_looked_for_again() -> None:
    world = World().to(S.PROMOTE)
    ref = world.refs["/c1"]
    ref.ledger_id = world.clusters["old"].allocate("/c1", world.now_ms)
    tell_of(world, "/c1", LedgerOutcome.ROLLED_OVER, new_id=ref.ledger_id, attribution="old")
    assert world.task("/c1").awaiting is SwitchAction.INVENTORY
    world.work()
    assert world.is_at(S.HOLD)
    assert (world.task("/c1").ledger_id, world.task("/c1").stage) == (ref.ledger_id, L.PROMOTED)
