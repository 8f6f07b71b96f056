"""Whole courses: tried, lost, and back again."""

from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import LedgerOutcome
from policies.switching.settings import DAY_MS, SwitchLimits
from policies.switching.state import ClusterStatus, LedgerStage, SwitchingState, SwitchStage
from tests.cases import case
from tests.policies.switching.commands import command
from tests.policies.switching.events import LedgerResult, RegistrySeen
from tests.policies.switching.judge.test_judge import bare
from tests.policies.switching.world import World, codes

S, L = SwitchStage, LedgerStage


def test_a_dry_run_lists_and_changes_nothing() -> None:
    world = World().to(S.HOLD)
    world.later(15 * DAY_MS)
    before = bare(world.state)
    [said] = world.tell(command("cleanup", world.key(), dry_run=True))
    assert said.verdict is SwitchVerdict.PREVIEW
    assert "3 ledgers are to be deleted from old: 2, 3, 4" in said.sentence
    assert bare(world.state) == before


def test_after_the_state_was_lost_the_executor_knows_its_copies_and_the_switch_is_made_again() -> None:
    world = World().to(S.PROMOTE)
    registered = RegistrySeen(world.state.entries, "old", world.state.directive, world.state.committed_epoch)
    world.state, world.orders = SwitchingState(), []
    world.later().tell(world.lease_event(2), registered, world.members_event())
    world.tell(*(world.cluster_event(name) for name in world.clusters), world.prechecked_event())
    world.tell(world.start_event())
    world.later().acks()
    seen = world.later().inventory_event()
    world.tell(seen)
    assert set(world.stages().values()) == {L.COPYING, L.PENDING}
    assert {task.ledger_id for task in world.switch.tasks if task.copied} >= seen.existing.keys()


def test_a_cluster_is_registered_under_no_name_that_no_znode_may_have() -> None:
    world = World()
    for name in ("a/b", ".hidden", "a b", "ü", "x" * 64):
        with case(name):
            asked = command("register", name, name=name, uri="zk://x", instance_id="id-of-x", root="/ledgers")
            assert codes(world.tell(asked)) == [RejectCode.NAME_CONFLICT]
    assert world.state.entries == ()


def test_the_way_back_needs_ids_beyond_and_never_creates_a_deleted_id() -> None:
    world = World().to(S.DONE)
    world.later().refresh().tell(world.inventory_event())
    world.tell(command("unregister", world.key(), name="old"))
    world.tell(
        command("register", world.key(), name="old", uri="zk://old", instance_id="id-of-old", root="/ledgers"),
        world.cluster_event("old"), world.cluster_event("new"),
    )  # fmt: skip
    assert [e.status for e in world.state.entries] == [ClusterStatus.ACTIVE, ClusterStatus.STANDBY]
    world.orders.clear()
    world.checked("old")
    assert codes(world.tell(world.start_event("old"))) == [RejectCode.COLLISION], "its ids were deleted from it"
    world.limits = SwitchLimits(remapped=frozenset(LedgerKind))
    world.checked("old")
    assert codes(world.tell(world.start_event("old"))) == [RejectCode.PRECHECK_FAILED], "its generator is behind"
    world.clusters["old"].hob, world.clusters["old"].created = 2, 0
    world.later().tell(world.cluster_event("old"), world.cluster_event("new"))
    world.checked("old").triggered("old")
    assert world.is_at(S.TRIGGERED)
    world.acks()
    for broker in world.brokers:
        for topic in world.topics:
            world.write(topic, broker)
    world.work()
    assert world.is_at(S.HOLD)
    assert {r.attribution for r in world.refs.values() if r.ledger_id >= 0} == {"old"}


def test_of_a_switch_that_is_done_the_ledgers_are_counted_and_forgotten() -> None:
    world = World().to(SwitchStage.CLEANUP)
    last = world.task("/c1")
    world.work()
    assert (world.stage, world.switch.settled, world.switch.tasks) == (SwitchStage.DONE, {LedgerStage.CLEANED: 3}, ())
    before = bare(world.state)
    assert world.tell(LedgerResult(last.ledger_id, last.op, LedgerOutcome.DELETED)) == []
    assert bare(world.state) == before
