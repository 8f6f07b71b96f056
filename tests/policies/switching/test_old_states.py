"""States as an earlier version wrote them, at each stage: they are read, and the switch goes on from there."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from policies.switching.plan import LedgerPlan, load_plan
from policies.switching.settings import DAY_MS
from policies.switching.state import SwitchingState, SwitchStage
from policies.switching.upgrades import drop_journal
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
    world.state = msgspec.convert(drop_journal(msgspec.msgpack.decode(packed)), SwitchingState)
    return world.later()


@pytest.mark.parametrize("stage", STATES)
def test_a_state_of_before_is_read(stage: str) -> None:
    world = resumed(stage)
    switch = world.state.switch
    assert (switch.stage.value if switch else stage) == stage
    assert world.state.marks == ()


@pytest.mark.parametrize(
    ("stage", "count"), [("triggered", 0), ("live_dual_read", 0), ("build", 2), ("promote", 3), ("hold", 3)]
)
def test_of_a_journal_of_before_the_plan_keeps_which_ledgers_were_copied(stage: str, count: int) -> None:
    assert sum(task.copied for task in resumed(stage).switch.tasks) == count


def test_of_a_large_journal_of_before_as_well() -> None:
    state = World().to(S.BUILD).state
    assert state.switch is not None
    tasks = [replace(state.switch.tasks[0], ledger_id=number, copied=False) for number in range(600)]
    packed: dict[str, Any] = LedgerPlan(tasks).packed()
    large = replace(state, switch=replace(state.switch, **packed))
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(large))
    intents = [[number, "id-of-old", "id-of-new", 1] for number in range(300)]
    plain.insert(12, [])
    plain.insert(22, [[["id-of-new", 0, False], [], msgspec.msgpack.encode(intents)]])
    upgraded = msgspec.convert(drop_journal(plain), SwitchingState)
    assert [task.copied for task in load_plan(upgraded.switch)] == [True] * 300 + [False] * 300
    assert replace(upgraded, switch=None) == replace(large, switch=None)


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
