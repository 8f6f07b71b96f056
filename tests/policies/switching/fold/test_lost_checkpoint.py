"""Beginning with nothing where a switch is under way: executors go on, and know orders of before."""

from policies.switching.events import RegistrySeen
from policies.switching.state import Directive, SwitchingState, SwitchStage
from tests.policies.switching.commands import command
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


def test_a_command_before_the_registry_is_read_does_not_make_a_cluster_the_first_one() -> None:
    """Brokers follow the directive that stands there, and its target stays what it is."""
    world = World().to(SwitchStage.TRIGGERED)
    before, world.state = world.state, SwitchingState()
    world.tell(command("register", "r", name="new", uri="zk://new", instance_id="id-of-new", root="/ledgers"))
    world.tell(command("register", "s", name="third", uri="zk://third", instance_id="id-of-third", root="/ledgers"))
    world.later().tell(_as_read(world, before))
    statuses = {entry.name: entry.status.value for entry in world.state.entries}
    assert statuses == {"new": "standby", "old": "active", "third": "standby"}
    assert (world.state.bootstrap, world.state.active(), world.state.epoch) == ("old", "new", 1)
    assert not world.state.contested


def test_a_switch_that_was_begun_before_the_registry_was_read_is_contested() -> None:
    world = World().to(SwitchStage.TRIGGERED)
    world.later().tell(RegistrySeen(world.state.entries, "old", Directive(7, "old"), 6, world.now_ms))
    assert "nobody here ordered" in world.state.contested


def _as_read(world: World, state: SwitchingState) -> RegistrySeen:
    return RegistrySeen(state.entries, state.bootstrap, state.directive, state.committed_epoch, world.now_ms)
