"""What several read models say together; what is not known is not guessed."""

from typing import Any

import pytest
from msgspec.structs import replace

from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.ledgers import IdMark
from policies.switching.state import DeletedIds, SwitchingState, SwitchStage
from policies.switching.transition import Transition
from tests.policies.switching.world import World, few

S = SwitchStage


def facts(state: SwitchingState, now_ms: int = 0) -> SwitchFacts:
    return Transition(state, few(), now_ms).facts()


HOLD = World().to(S.HOLD)
DONE = World().to(S.DONE)
EMPTY = facts(SwitchingState())


def test_of_a_cluster_that_was_never_read_nothing_is_known() -> None:
    assert (EMPTY.instance("new"), EMPTY.generator("new")) == (None, None)


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
    later = facts(replace(HOLD.state, switch=switch))
    assert later.acked == ()


def test_ids_are_taken_by_the_source_by_references_and_by_what_was_deleted() -> None:
    known = facts(HOLD.state)
    source = known.generator("old")
    assert source is not None
    assert known.floor_of_ids(source, "new") == source.ceiling
    gone = DeletedIds("id-of-new", (1, source.ceiling + 5))
    assert facts(replace(HOLD.state, deleted=(gone,))).floor_of_ids(source, "new") == source.ceiling + 5


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


@pytest.mark.parametrize(("after_ms", "is_refused"), [(-1, True), (0, False), (1, False)])
def test_a_cluster_is_unread_by_an_inventory_that_is_no_older_than_the_end_of_the_switch(
    after_ms: int, is_refused: bool
) -> None:
    inventory = DONE.state.inventory
    assert inventory is not None
    known = facts(replace(DONE.state, inventory=replace(inventory, at_ms=DONE.switch.ended_ms + after_ms)), DONE.now_ms)
    assert (guards.refuse_read_cluster(known, "old") == "no inventory since the switch ended") is is_refused
