"""What readings do to the state."""

from hypothesis import given
from hypothesis import strategies as st

from policies.observations import Observation, Outcome
from policies.switching.fold import fold
from policies.switching.readings import CommandName, SwitchBrokers, SwitchCommand, SwitchInventory
from policies.switching.registration import KIND
from policies.switching.state import SwitchingState, SwitchStage
from policies.units import from_millis
from tests.policies.switching.events import inventory_readings
from tests.policies.switching.wire import CLUSTER, WireWorld


def test_what_could_not_be_read_changes_nothing() -> None:
    state = SwitchingState()
    for kind in KIND.readings:
        if kind is not SwitchBrokers:  # brokers that cannot be read are unknown
            bare = kind.model_construct(cluster=CLUSTER, outcome=Outcome.TIMEOUT, inventory="i", part=0)
            assert fold(state, Observation("o", from_millis(0), bare)) == (state, None)


@given(st.permutations(range(3)), st.sets(st.integers(0, 2)))
def test_an_inventory_counts_when_all_its_parts_and_its_manifest_are_there(order: list[int], lost: set[int]) -> None:
    world = WireWorld()
    world.to(SwitchStage.LIVE_DUAL_READ)
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
    world = WireWorld()
    world.to(SwitchStage.LIVE_DUAL_READ)
    *parts, manifest = inventory_readings(world.inventory_event(), world.now_ms)
    assert isinstance(manifest, SwitchInventory)
    wrong = manifest.model_copy(update={"references": manifest.references + 1})
    world.step(*(world.observation(r) for r in (*parts, wrong)))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)
    failed = manifest.model_copy(update={"outcome": Outcome.TIMEOUT})
    world.step(world.observation(failed))
    assert world.state.assembly is None


def test_a_reading_that_began_before_the_switch_was_live_is_too_old_however_late_it_comes() -> None:
    world = WireWorld()
    world.to(SwitchStage.LIVE_DUAL_READ)
    *parts, manifest = inventory_readings(world.inventory_event(), world.now_ms)
    early = manifest.model_copy(update={"took_ms": world.now_ms - world.switch.live_ms})
    world.step(*(world.observation(r) for r in (*parts, early)))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)


def test_cleaning_up_is_a_dry_run_unless_said_otherwise() -> None:
    plain = SwitchCommand(cluster=CLUSTER, command=CommandName.CLEANUP, idempotency_key="k")
    for given_, expected in ((None, True), (True, True), (False, False)):
        assert plain.model_copy(update={"dry_run": given_}).is_dry_run is expected
    assert not plain.model_copy(update={"command": CommandName.ROLLBACK}).is_dry_run
