"""Beginning with nothing where a switch is under way: executors go on, and know orders of before."""

from dataclasses import replace as replace_event

import pytest
from msgspec.structs import replace as replace_state

from policies.observations import Observation
from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.fold import fold
from policies.switching.judge.table import find_holds
from policies.switching.readings import SwitchCommand
from policies.switching.state import Directive, LedgerStage, SwitchingState, SwitchStage, make_progress
from policies.switching.transition import Transition
from policies.units import from_millis
from tests.cases import for_each
from tests.policies.switching.events import command, listed
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import World, codes


def test_no_order_after_a_lost_checkpoint_has_a_number_of_before() -> None:
    """An executor drops what has no greater number than the last order about the same ledger."""
    world = World().to(SwitchStage.BUILD)
    registry, before = world.state, world.state.ops
    world.state = SwitchingState()
    world.later().tell(world.registry_event(registry), world.lease_event(), world.members_event())
    world.orders.clear()
    told = len(world.said)
    world.tell(*(world.cluster_event(name) for name in world.clusters))
    world.checked().triggered()
    world.acks().work()
    numbers = [order.op for order in world.said[told:] if order.task is not None and order.op]
    assert numbers
    assert min(numbers) > before


def test_a_command_before_the_registry_is_read_does_not_make_a_cluster_the_first_one() -> None:
    """Brokers follow the directive that stands there, and its target stays what it is."""
    world = World().to(SwitchStage.TRIGGERED)
    before, world.state = world.state, SwitchingState()
    world.tell(command("register", "r", name="new", uri="zk://new", instance_id="id-of-new", root="/ledgers"))
    world.tell(command("register", "s", name="third", uri="zk://third", instance_id="id-of-third", root="/ledgers"))
    world.later().tell(world.registry_event(before))
    statuses = {entry.name: entry.status.value for entry in world.state.entries}
    assert statuses == {"new": "standby", "old": "active", "third": "standby"}
    assert (world.state.bootstrap, world.state.active(), world.state.epoch) == ("old", "new", 1)
    assert not world.state.contested


class Journalled(World):
    """Executors report which of the target's ledgers are Headgate's copies."""

    def provenance(self, cluster: str, ledger_id: int) -> str | None:
        return "id-of-old" if self.clusters[cluster].ledgers[ledger_id].by_headgate else ""


def after_loss(stage: SwitchStage) -> Journalled:
    """A switch at a stage whose policy has just lost its state, and has read the registry again."""
    world = Journalled().to(stage)
    return lose(world)


def lose(world: Journalled) -> Journalled:
    before, world.state = world.state, SwitchingState()
    assert before.switch is not None
    world.orders.clear()
    seen = world.later().registry_event(before, progress=make_progress(before.switch))
    world.tell(seen, world.lease_event(2))
    world.later().refresh()
    return world


S = SwitchStage
LIVE = [S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD]


@pytest.mark.parametrize("stage", LIVE)
def test_a_switch_goes_on_to_hold_and_can_still_be_taken_back(stage: SwitchStage) -> None:
    world = after_loss(stage)
    ordered = {order.verdict for order in world.orders}
    assert ordered == {SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.WRITE_DIRECTIVE}, "its directive is repeated"
    assert codes(world.tell(command("cleanup", "c"))) == [RejectCode.INVALID_TRANSITION]
    world.work()
    assert world.stages() == dict.fromkeys(("/c1", "/c2", "/s1"), LedgerStage.PROMOTED)
    assert (world.stage, world.switch.rollback_until_ms > world.now_ms) == (S.HOLD, True)
    world.tell(command("rollback", "r"))
    world.work()
    assert world.is_at(S.ROLLED_BACK)
    assert {ref.attribution for ref in world.refs.values() if ref.ledger_id >= 0} == {"old"}


def test_an_inventory_that_did_not_look_up_what_moved_shows_no_plan() -> None:
    world = after_loss(S.HOLD)
    world.tell(replace_event(listed(world.later().inventory_event(), moved_too=False), existing={}))
    assert (world.switch.recovering_ms >= 0, world.stages()) == (True, {})
    world.tell(world.later().inventory_event())
    assert set(world.stages().values()) == {LedgerStage.PROMOTED}


def test_a_clean_up_goes_back_to_hold_and_deletes_only_what_an_inventory_shows() -> None:
    world = after_loss(S.CLEANUP)
    world.work()
    assert world.is_at(S.HOLD)
    world.refs["/c1"].attribution = "old"
    world.tell(command("cleanup", "c"))
    world.work()
    assert world.is_at(S.DONE_WITH_FAILURES)
    assert world.refs["/c1"].ledger_id in world.clusters["old"].ledgers


def test_what_a_forgotten_clean_up_may_have_deleted_is_not_taken_back() -> None:
    world = Journalled().to(S.HOLD)
    world.tell(command("end", "e", delete=True))
    world.work(SwitchVerdict.TAKE_INVENTORY).orders.sort(key=str)
    world.tell(*world.carry_out(world.orders.pop()))
    lose(world)
    assert codes(world.tell(command("rollback", "q"))) == [RejectCode.CLEANUP_STARTED], "before its plan is read again"
    world.work()
    assert (world.stage, set(world.stages().values())) == (S.HOLD, {LedgerStage.DELETE_INTENT})
    assert codes(world.tell(command("rollback", "r"))) == [RejectCode.CLEANUP_STARTED]
    world.tell(command("end", "f", delete=True))
    world.work()
    assert world.is_at(S.DONE)


def test_a_rollback_goes_on_although_the_order_of_its_directive_was_lost() -> None:
    """An executor that lost its lease drops the order, and the next one keeps the progress of the record."""
    world = Journalled().to(S.HOLD)
    first = world.state.directive
    world.tell(command("rollback", "r", attribution_only=False))
    world.raise_ids()
    progress, before, world.state = make_progress(world.switch), world.state, SwitchingState()
    world.orders.clear()
    seen = world.later().registry_event(before, directive=first, progress=progress)
    world.tell(seen, world.lease_event(2))
    assert (world.stage, world.state.epoch, progress.epoch) == (S.ROLLBACK, 2, 2)
    world.later().refresh()
    world.work().later().acks().work()
    assert (world.stage, world.state.directive) == (S.ROLLED_BACK, Directive(3, "old"))


def test_a_switch_whose_directive_was_never_written_is_not_taken_up_although_brokers_are_at_its_target() -> None:
    world = World().to(S.ROLLED_BACK)
    first = world.state.directive
    world.later().acks().checked().triggered()
    progress, before, world.state = make_progress(world.switch), world.state, SwitchingState()
    world.tell(world.later().registry_event(before, directive=first, progress=progress))
    assert (progress.stage, world.state.switch, world.state.directive) == (S.TRIGGERED, None, first)


@for_each("stage", [S.TRIGGERED, S.REJECTED, S.ROLLBACK, S.ROLLED_BACK, S.ABORTED, S.DONE])
def test_at_each_other_stage_it_is_where_it_was(stage: SwitchStage) -> None:
    world = after_loss(stage)
    assert world.is_at(stage)
    world.acks().work()
    assert world.is_at({S.TRIGGERED: S.HOLD, S.ROLLBACK: S.ROLLED_BACK}.get(stage, stage))


def test_a_registry_that_was_read_long_ago_is_not_adopted() -> None:
    """The topic is read from its oldest record on, which may be from before the directive."""
    world = World().to(S.HOLD)
    before, world.state = world.state, SwitchingState()
    old = world.registry_event(before, directive=None)
    world.later(world.limits.ack_timeout_ms).tell(old)
    assert (world.state.entries, world.state.registry_ms) == ((), -1)
    world.tell(world.registry_event(before))
    assert (world.state.active(), world.state.contested) == ("new", "")


@for_each("first", [0, 1])
@for_each("stage", [S.TRIGGERED, *LIVE])
def test_a_reading_from_before_the_progress_that_comes_first_gives_way_to_it(stage: SwitchStage, first: int) -> None:
    """Its `start` comes again, too, but is refused, because no lease is in force any more."""
    world = Journalled().to(stage)
    before, world.state = world.state, SwitchingState()
    assert before.switch is not None
    world.orders.clear()
    full = world.later().registry_event(before, progress=make_progress(before.switch))
    started = full.but(full.at_ms - 1, progress=None)  # the directive is written before the progress
    early = started.but(full.at_ms - 2, directive=None)
    for seen in (early, started)[first:]:
        world.tell(seen)
    assert (world.state.switch, bool(world.state.contested)) == (None, not first)
    world.tell(full, world.lease_event(2))
    assert (world.state.switch is None, world.state.contested) == (False, "")
    world.later().refresh()
    world.acks().work()
    assert (world.stage, world.state.epoch) == (S.HOLD, before.epoch)


def test_a_switch_that_old_commands_begin_again_gives_way_to_the_one_that_began_before() -> None:
    world = Journalled().to(S.HOLD)
    progress, before = make_progress(world.switch), world.state
    world.state = SwitchingState()
    world.later().registered()
    world.later().tell(*(world.cluster_event(name) for name in world.clusters))
    world.tell(world.registry_event(before, directive=None))
    world.checked().triggered()
    assert (world.stage, world.switch.epoch) == (S.TRIGGERED, 1)
    world.later().tell(world.registry_event(before, progress=progress))
    world.acks().work()
    assert (world.stage, world.switch.live_ms) == (S.HOLD, progress.live_ms)
    assert world.stages() == dict.fromkeys(("/c1", "/c2", "/s1"), LedgerStage.PROMOTED)


@pytest.mark.parametrize("with_brokers", [False, True])
def test_an_early_progress_gives_way_to_the_one_that_went_live(with_brokers: bool) -> None:
    """Old readings of the registry come first, and may be young enough to be adopted."""
    world = Journalled().to(S.TRIGGERED)
    early, first = make_progress(world.switch), world.registry_event(world.state)
    world.acks().work()
    if with_brokers:
        world.tell(command("rollback", "r", attribution_only=False))
        world.raise_ids()
    kept, last = make_progress(world.switch), world.state
    world.state = SwitchingState()
    world.orders.clear()
    world.later().tell(first.but(world.now_ms, progress=early), world.lease_event(2))
    world.later().acks()
    world.later().tell(world.registry_event(last, progress=kept))
    assert (world.state.contested, world.switch.live_ms) == ("", kept.live_ms)
    world.later().acks().work()
    assert world.is_at(S.ROLLED_BACK if with_brokers else S.HOLD)
    assert set(world.stages().values()) == {LedgerStage.REVERTED if with_brokers else LedgerStage.PROMOTED}


def test_the_progress_of_a_switch_that_is_over_replaces_that_of_its_clean_up() -> None:
    """The former was adopted with a registry in which the source was still active."""
    world = Journalled().to(S.HOLD)
    world.tell(command("end", "e"))
    early, first = make_progress(world.switch), world.registry_event(world.state)
    world.work()
    kept, last = make_progress(world.switch), world.state
    world.state = SwitchingState()
    world.later().tell(first.but(world.now_ms, progress=early))
    assert world.is_at(S.CLEANUP)
    world.later().tell(world.registry_event(last, progress=kept))
    assert (world.stage, world.state.committed(), world.state.committed_epoch) == (S.DONE, "new", 1)
    assert codes(world.tell(command("rollback", "r"))) == [RejectCode.INVALID_TRANSITION]


def test_commands_that_were_judged_before_do_nothing_when_they_come_again() -> None:
    wired = WireWorld()
    wired.to(S.HOLD)
    kept = wired.records()[-1].progress
    assert kept is not None
    assert kept.commanded_ms == max(at_ms for at_ms, event in wired.history if isinstance(event, SwitchCommand))
    world = Journalled().to(S.HOLD)
    progress, before = make_progress(world.switch, commanded_ms=world.now_ms), world.state
    world.state = SwitchingState()
    world.later().tell(world.registry_event(before, progress=progress))
    again, later = (observed(command("abort", key), progress.commanded_ms + n) for n, key in enumerate("ab"))
    once, is_judged = fold(world.state, again)
    assert once is not None
    state, taken = fold(once, later)
    assert state is not None
    assert (state.commands[-1:], is_judged, taken) == (("b",), None, later.reading)


def observed(event: SwitchCommand, at_ms: int) -> Observation:
    return Observation(event.idempotency_key, from_millis(at_ms), event)


def test_the_progress_of_another_directive_is_not_taken_up() -> None:
    world = World().to(S.HOLD)
    progress, before = make_progress(world.switch), replace_state(world.state, directive=Directive(7, "third"))
    world.state = SwitchingState()
    world.later().tell(world.registry_event(before, progress=progress))
    assert world.state.switch is None
    world.later().refresh()
    written = {mark.name for mark in world.state.marks.values() if mark.written}
    assert written == {"new", "old"}, "brokers got ids of both"


def test_a_plan_that_no_inventory_shows_is_an_alert_and_end_ends_it() -> None:
    world = after_loss(S.HOLD)
    world.orders.clear()
    facts = Transition(world.state, world.limits, world.now_ms).facts()
    assert [(hold.key, hold.ends_with) for hold in find_holds(facts)][:1] == [("inventory", "`rollback` or `end`")]
    world.tell(command("rollback", "a"), command("end", "b"))
    assert world.is_at(S.ABORTED)
