"""What several read models say together; what is not known is not guessed."""

from typing import Any

import pytest
from msgspec.structs import replace

from policies.switching.facts import SwitchFacts
from policies.switching.machine import Transition
from policies.switching.settings import SwitchLimits
from policies.switching.state import DeletedIds, SwitchingState, SwitchStage
from tests.policies.switching.world import World

S = SwitchStage


def facts(state: SwitchingState, now_ms: int = 0) -> SwitchFacts:
    return Transition(state, SwitchLimits(), now_ms).facts()


HOLD = World().to(S.HOLD)
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
