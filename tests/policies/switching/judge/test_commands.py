"""Rows 1 to 4, 18, 20, 23 and 24: what people ask for, with what it orders and what is refused."""

import pytest
from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.readings import SwitchCommand
from policies.switching.settings import DAY_MS, SwitchLimits
from policies.switching.state import LedgerStage, SwitchStage
from policies.units import from_millis
from tests.policies.switching.commands import command
from tests.policies.switching.world import Bookies, Held, World, codes, verdicts

S, L = SwitchStage, LedgerStage


def test_the_first_cluster_is_active_and_owns_legacy_references_for_good() -> None:
    world = World().to(S.DONE)
    assert world.state.bootstrap == "old"
    assert world.state.active() == "new"


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
    assert world.state.entry("new") is None


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


def test_a_cleanup_that_comes_too_soon_is_told_the_day_and_hour_of_its_time() -> None:
    world = World().to(S.HOLD)
    refused = next(said for said in world.tell(command("cleanup", world.key())) if said.code)
    assert (
        f"not before {from_millis(world.switch.cleanup_from_ms):%Y-%m-%d %H:%M:%S} UTC; to go on: `rollback` or `end`"
        in refused.sentence
    )


def test_nothing_is_cleaned_up_that_can_still_be_taken_back() -> None:
    world = World(SwitchLimits(rollback_window_ms=20 * DAY_MS)).to(S.HOLD)
    assert world.switch.cleanup_from_ms == world.switch.rollback_until_ms


def test_after_the_cleanup_has_begun_there_is_no_way_back() -> None:
    world = World(SwitchLimits(rollback_window_ms=DAY_MS, cleanup_after_ms=0)).to(S.HOLD)
    world.now_ms = world.switch.rollback_until_ms
    world.tell(*world.reported_again(), command("cleanup", world.key()))
    world.now_ms -= 1
    assert codes(world.tell(command("rollback", world.key()))) == [RejectCode.CLEANUP_STARTED]


def test_brokers_go_back_only_to_ids_beyond_those_of_the_target() -> None:
    world = World().to(S.HOLD)
    world.tell(world.inventory_event())
    assert codes(world.tell(command("rollback", world.key(), attribution_only=False))) == []
    assert world.state.active() == "new"
    assert [o.verdict for o in world.orders] == [SwitchVerdict.REVERT] * 2
    world.raise_ids()
    assert (world.switch.halted, world.state.active()) == ("", "old"), "what an advance skips was never given"
    world.work()
    assert world.is_at(S.ROLLBACK), "brokers were asked to go back, and none has said that it did"
    world.acks().work()
    assert world.is_at(S.ROLLED_BACK)
    for broker, topic in (("b1", "t1"), ("b2", "t1"), ("b1", "t2")):
        world.write(topic, broker)


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
    assert codes(world.tell(command("rollback", world.key()))) == [RejectCode.WINDOW_EXPIRED]
    world.tell(command("cleanup", world.key()))
    world.work()
    assert world.is_at(S.DONE)
