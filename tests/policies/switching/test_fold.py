"""What readings do to the state."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observations import Observation, Outcome
from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.fold import fold
from policies.switching.ledgers import ANY_CLUSTER, StayingKind, StayingLedgers
from policies.switching.precheck import greatest_referenced
from policies.switching.readings import CommandName, SwitchBrokers, SwitchCommand, SwitchInventory, SwitchInventoryPart
from policies.switching.registration import KIND
from policies.switching.state import SwitchingState, SwitchStage
from policies.units import from_millis
from tests.policies.switching.events import command, inventory_readings, listed
from tests.policies.switching.snapshots import GOOD
from tests.policies.switching.wire import CLUSTER, WireWorld
from tests.policies.switching.world import World


def test_what_could_not_be_read_changes_nothing() -> None:
    state = SwitchingState()
    for kind in KIND.readings:
        if kind is not SwitchBrokers:  # brokers that cannot be read are unknown
            bare = kind.model_construct(cluster=CLUSTER, outcome=Outcome.TIMEOUT, inventory="i", part=0)
            assert fold(state, Observation("o", from_millis(0), bare)) == (state, None)


@given(st.permutations(range(3)), st.sets(st.integers(0, 2)))
def test_an_inventory_counts_when_all_its_parts_and_its_manifest_are_there(order: list[int], lost: set[int]) -> None:
    world = WireWorld().to(SwitchStage.LIVE_DUAL_READ)
    readings = inventory_readings(world.inventory_event(), world.now_ms)
    assert len(readings) == 3
    for i in order:
        if i not in lost:
            world.step(world.observation(readings[i]), world.observation(readings[i]))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ if lost else SwitchStage.BUILD)
    kept = world.state.assembly
    assert (kept is None) is (lost == {0, 1, 2})
    assert kept is None or kept.complete is (not lost)
    assert kept is None or not kept.parts or lost


def test_a_manifest_that_counts_more_references_is_not_complete() -> None:
    world = WireWorld().to(SwitchStage.LIVE_DUAL_READ)
    *parts, manifest = inventory_readings(world.inventory_event(), world.now_ms)
    assert isinstance(manifest, SwitchInventory)
    wrong = manifest.model_copy(update={"references": manifest.references + 1})
    world.step(*(world.observation(r) for r in (*parts, wrong)))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)
    failed = manifest.model_copy(update={"outcome": Outcome.TIMEOUT})
    world.step(world.observation(failed))
    assert world.state.assembly is None


def test_a_reading_that_began_before_the_switch_was_live_is_too_old_however_late_it_comes() -> None:
    world = WireWorld().to(SwitchStage.LIVE_DUAL_READ)
    *parts, manifest = inventory_readings(world.inventory_event(), world.now_ms)
    early = manifest.model_copy(update={"took_ms": world.now_ms - world.switch.live_ms})
    world.step(*(world.observation(r) for r in (*parts, early)))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)


def test_cleaning_up_is_a_dry_run_unless_said_otherwise() -> None:
    plain = SwitchCommand(cluster=CLUSTER, command=CommandName.CLEANUP, idempotency_key="k")
    for given_, expected in ((None, True), (True, True), (False, False)):
        assert plain.model_copy(update={"dry_run": given_}).is_dry_run is expected
    assert not plain.model_copy(update={"command": CommandName.ROLLBACK}).is_dry_run


# --- ledgers that stay where they are count: for ids, for unregistering and for closing clients


def topics(cluster: str, count: int = 7, greatest_id: int = 9) -> StayingLedgers:
    return StayingLedgers(StayingKind.TOPIC, cluster, count, greatest_id, ("/managed-ledgers/t/n/persistent/x",))


def done(*staying: StayingLedgers) -> World:
    """A world whose switch from old to new is done, and whose last inventory found these."""
    world = World().to(SwitchStage.DONE).later()
    world.tell(world.members_event(), *(world.follow(broker) for broker in world.brokers))
    world.later()
    world.tell(listed(world.inventory_event(), staying=staying))
    return world


def answer(world: World, asked: SwitchCommand) -> tuple[RejectCode | None, str]:
    world.tell(asked)
    said = world.said[-1]
    return (said.code, said.sentence) if said.verdict is SwitchVerdict.REJECT else (None, "")


COMMANDS: dict[str, tuple[SwitchCommand, RejectCode]] = {
    "unregister": (command("unregister", "x", name="old"), RejectCode.IN_USE),
    "close-client": (command("close-client", "x", name="old"), RejectCode.CLIENT_IN_USE),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("cluster", ["old", ANY_CLUSTER], ids=["in it", "nobody knows where"])
def test_a_cluster_that_still_holds_ledgers_is_kept(command: str, cluster: str) -> None:
    asked, code = COMMANDS[command]
    refused, why = answer(done(topics(cluster)), asked)
    assert refused is code
    assert "7 references" in why
    assert "7 topic" in why


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_that_holds_nothing_any_more_is_given_up(command: str) -> None:
    asked, _ = COMMANDS[command]
    assert answer(done(topics("new")), asked)[0] is None


def test_a_standby_that_brokers_never_wrote_to_holds_nothing_that_only_an_owner_knows() -> None:
    world = World().to(SwitchStage.PRECHECKED).later()
    world.tell(listed(world.inventory_event(), staying=(topics(ANY_CLUSTER),)))
    assert answer(world, command("unregister", "x", name="new"))[0] is None


def test_the_ids_of_what_stays_are_taken() -> None:
    seen = GOOD
    before = greatest_referenced(seen)
    high = replace(seen, staying=(topics("old", greatest_id=before + 100), topics("new", greatest_id=before + 900)))
    assert greatest_referenced(high) == before + 100


def test_a_manifest_brings_what_stays() -> None:
    world = WireWorld().to(SwitchStage.LIVE_DUAL_READ)
    *parts, manifest = inventory_readings(world.inventory_event(), world.now_ms)
    assert isinstance(manifest, SwitchInventory)
    counted = StayingLedgers(StayingKind.TOPIC, "old", 7, 9)
    whole = manifest.model_copy(update={"staying": (counted,)})
    world.step(*(world.observation(r) for r in (*parts, whole)))
    inventory = world.state.inventory
    assert inventory is not None
    assert inventory.staying == (counted,)
    moving = [r for p in parts if isinstance(p, SwitchInventoryPart) for r in p.references if r.ledger_id >= 0]
    assert inventory.counts["old"] == 7 + len(moving)
