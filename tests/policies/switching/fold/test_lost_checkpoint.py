"""Beginning with nothing where a switch is under way: executors go on, and know orders of before."""

from policies.switching.events import RegistrySeen
from policies.switching.state import SwitchingState, SwitchStage
from tests.policies.switching.world import World


def test_no_order_after_a_lost_checkpoint_has_a_number_of_before() -> None:
    """An executor drops what has no greater number than the last order about the same ledger."""
    world = World().to(SwitchStage.BUILD)
    registry, before = world.state, world.state.ops
    world.state = SwitchingState()
    world.later().tell(_as_read(world, registry), world.lease_event(), world.members_event())
    world.orders.clear()
    told = len(world.said)
    world.tell(*(world.cluster_event(name) for name in world.clusters))
    world.checked().triggered()
    world.acks().work()
    numbers = [order.op for order in world.said[told:] if order.task is not None and order.op]
    assert numbers
    assert min(numbers) > before


def test_a_registry_that_is_empty_begins_with_the_first_number() -> None:
    world = World()
    world.tell(_as_read(world, world.state))
    assert world.state.ops == 0


def _as_read(world: World, state: SwitchingState) -> RegistrySeen:
    return RegistrySeen(state.entries, state.bootstrap, state.directive, state.committed_epoch, world.now_ms)
