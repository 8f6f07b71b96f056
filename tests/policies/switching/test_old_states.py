"""States as an earlier version wrote them, at each stage: they are read, and the switch goes on from there."""

import base64
import json
from pathlib import Path

import msgspec
import pytest

from policies.switching.settings import DAY_MS
from policies.switching.state import SwitchingState, SwitchStage
from tests.policies.switching.commands import command
from tests.policies.switching.world import World

S = SwitchStage
STATES = json.loads((Path(__file__).parents[2] / "data" / "states" / "switching-1.json").read_text())
"""By stage, msgpack in base64. Made once, by the version before brokers were watched; never made anew."""


def resumed(stage: str) -> World:
    """The world at a stage, and of it what was remembered then."""
    world = World().to(S(stage))
    world.orders.clear()
    packed = base64.b64decode(STATES[stage])
    world.state = msgspec.msgpack.decode(packed, type=SwitchingState)
    return world.later()


@pytest.mark.parametrize("stage", STATES)
def test_a_state_of_before_is_read(stage: str) -> None:
    world = resumed(stage)
    switch = world.state.switch
    assert (switch.stage.value if switch else stage) == stage
    assert world.state.marks == ()


@pytest.mark.parametrize("stage", ["triggered", "live_dual_read", "build", "promote", "hold", "cleanup"])
def test_a_switch_of_before_goes_on_to_its_end(stage: str) -> None:
    world = resumed(stage)
    world.tell(world.lease_event(2))
    world.acks().work()
    if stage != "cleanup":
        assert world.is_at(S.HOLD)
        world.later(15 * DAY_MS).tell(command("cleanup", "new-key"))
        world.work()
    assert world.is_at(S.DONE)


@pytest.mark.parametrize("stage", ["triggered", "live_dual_read", "build", "promote", "hold", "rollback"])
def test_a_switch_of_before_is_ended(stage: str) -> None:
    world = resumed(stage)
    world.tell(world.cluster_event("new"), world.cluster_event("old"), command("abort", "new-key"))
    world.tell(world.lease_event(2))
    world.acks().work()
    world.later().acks().work()
    assert world.is_at(S.ABORTED if stage == "rollback" else S.ROLLED_BACK)
