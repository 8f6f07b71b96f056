"""Ids of a topic only grow, over any history of switches; and an advance, which gives nobody an id, halts nothing."""

from msgspec.structs import replace

from policies.decisions import Alert
from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.ledgers import MAX_HOB
from policies.switching.settings import DAY_MS
from policies.switching.state import Directive, SwitchStage
from tests.cases import for_each
from tests.policies.switching.events import command
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import Bookies, World, codes

S = SwitchStage


def with_third(hob: int, stage: SwitchStage = S.ROLLED_BACK) -> World:
    world = World()
    world.clusters["third"] = Bookies("third", "id-of-third", hob=hob)
    world.to(stage)
    if stage is S.ROLLED_BACK:
        world.write("t1", "b1")
    return world.later()


def read(world: World) -> World:
    world.later().tell(*(world.cluster_event(n) for n in world.clusters), world.members_event())
    return world.later()


def start(world: World, target: str) -> list[RejectCode | None]:
    read(world).checked(target)
    return codes(world.tell(world.start_event(target)))


def test_a_rollback_leaves_brokers_on_a_cluster_that_counts() -> None:
    world = with_third(hob=1)
    assert start(world, "third") == [RejectCode.PRECHECK_FAILED]
    assert "taken by new, which brokers were sent to: advance to HOB-0000000002" in world.said[-1].sentence
    world.clusters["third"].hob = 2
    assert start(world, "third") == []
    world.later().acks()
    world.write("t1", "b1")


def test_a_target_whose_generator_went_back_is_not_started_to_until_it_is_advanced() -> None:
    world = World().to(S.PRECHECKED)
    world.clusters["new"].created = 5
    read(world).clusters["new"].created = 2
    assert start(world, "new") == [RejectCode.PRECHECK_FAILED]
    assert "new gives 4294967298 next, and gave 4294967300 before: advance to HOB-0000000002" in world.said[-1].sentence
    world.clusters["new"].hob = 2
    assert start(world, "new") == []


def test_a_target_whose_generator_goes_back_while_brokers_follow_does_not_go_live() -> None:
    world = World()
    world.clusters["new"].created = 5
    world.to(S.TRIGGERED)
    world.clusters["new"].created = 2
    world.acks()
    assert world.is_at(S.TRIGGERED)
    assert "gave 4294967300 before" in world.switch.blocked
    world.clusters["new"].hob = 2
    assert read(world).is_at(S.TRIGGERED), "clients that are open remember the lower HOB"
    assert world.acks().is_at(S.LIVE_DUAL_READ)


def test_a_generator_that_goes_back_under_the_brokers_is_an_alert_with_the_remedy() -> None:
    world = WireWorld().to(S.HOLD)
    for _ in range(3):
        world.write("t1", "b1")
    read(world)
    world.clusters["new"].created -= 2
    read(world)
    [alert] = [a for a in world.published if isinstance(a, Alert)]
    assert alert.alert == "switch-ids-behind"
    assert "write to new, which gives 4294967297 next, and already gave 4294967298" in alert.summary
    assert alert.summary.endswith("advance to HOB-0000000002")
    world.clusters["new"].hob = 2
    read(world)
    assert world.alerts()[-1] == ("switch-ids-behind", "resolved")


def test_a_report_that_comes_after_a_later_one_still_says_where_a_broker_wrote() -> None:
    world = World()
    world.clusters["third"] = Bookies("third", "id-of-third", hob=3)
    world.registered()
    read(world)
    late = world.broker_event("b1", writes=("third",))
    world.tell(world.broker_event("b1"))
    before = world.state.brokers
    world.tell(late)
    assert world.state.brokers == before, "nothing else of it counts"
    assert start(world, "new") == [RejectCode.PRECHECK_FAILED]
    assert "taken by third" in world.said[-1].sentence


def test_a_cluster_that_nobody_is_at_any_more_counts_for_what_it_gave() -> None:
    """Not for all it might have given: brokers left it, and it was read since."""
    world = World()
    world.clusters["third"] = Bookies("third", "id-of-third", hob=1, created=100)
    world.to(S.TRIGGERED)
    world.tell(world.cluster_event("new"), world.broker_event("b1", failed=True, epoch=world.switch.epoch))
    world.raise_ids()
    assert world.is_at(S.REJECTED)
    world.clusters["new"].advance(8)
    world.clusters["third"].hob = 8
    read(world)
    world.tell(*(world.follow(b) for b in world.brokers))
    assert start(world, "third") == []


def test_a_cluster_that_a_broker_said_it_wrote_to_counts_although_nobody_sent_it_there() -> None:
    world = with_third(hob=1, stage=S.REGISTERED)
    world.brokers["b2"] = "third"
    world.write("t2", "b2")
    world.tell(world.broker_event("b2", epoch=0))
    assert start(world, "new") == [RejectCode.PRECHECK_FAILED]
    assert "taken by third" in world.said[-1].sentence


def test_a_cluster_that_a_broker_wrote_to_counts_although_it_is_read_only_later() -> None:
    world = with_third(hob=1, stage=S.REGISTERED)
    world.state = replace(world.state, clusters=(), marks={})
    world.brokers["b2"] = "third"
    world.tell(world.broker_event("b2", epoch=0, writes=("third",)))
    world.brokers["b2"] = "old"
    world.tell(world.broker_event("b2", epoch=0))
    assert start(world, "new") == [RejectCode.PRECHECK_FAILED]
    assert "taken by third" in world.said[-1].sentence
    assert world.state.written_unread == ()


def test_the_cluster_that_brokers_would_go_back_to_is_in_use() -> None:
    world = with_third(hob=2)
    assert start(world, "third") == []
    world.later().acks()
    world.tell(world.later().inventory_event())
    [refused] = world.tell(command("unregister", "u", name="new"))
    assert (refused.code, "is not over" in refused.sentence) == (RejectCode.IN_USE, True)


def test_of_two_readings_of_one_millisecond_the_one_with_the_greater_ids_counts() -> None:
    world = World().to(S.HOLD)
    earlier = world.later().cluster_event("new")
    world.clusters["new"].hob = 2
    world.tell(earlier, world.cluster_event("new"), earlier)
    seen = world.state.cluster("new")
    assert seen is not None
    assert seen.generator is not None
    assert seen.generator.hob == 2


def test_brokers_open_new_clients_once_their_cluster_was_advanced() -> None:
    """Clients of two HOBs would give a topic that moves between their brokers a lower id."""
    world = World().to(S.HOLD)
    world.clusters["new"].hob = 2
    read(world)
    assert world.state.directive == Directive(2, "new")
    world.later(15 * DAY_MS).tell(command("cleanup", "c"))
    assert world.is_at(S.HOLD)
    world.later().acks()
    world.write("t1", "b1")
    world.tell(command("cleanup", "d"))
    assert world.is_at(S.CLEANUP)


@for_each("stage", [S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP])
@for_each("name", ["old", "new"])
def test_an_advance_halts_nothing(stage: SwitchStage, name: str) -> None:
    world = World().to(stage)
    world.clusters[name].hob, world.clusters[name].created = 4, 0
    read(world)
    assert not world.switch.halted
    if stage is not S.CLEANUP:
        world.work()
        world.later(15 * DAY_MS)
    world.work()
    assert not [s for s in world.said if s.verdict is SwitchVerdict.HALT]


def test_an_id_that_is_given_beyond_an_advance_halts_and_the_remedy_it_names_lets_it_go_on() -> None:
    world = World().to(S.HOLD)
    world.clusters["old"].hob, world.clusters["old"].created = 2, 1
    read(world)
    assert "old gave 8589934592, new began at 4294967296: advance to HOB-0000000003" in world.switch.halted
    world.clusters["new"].hob, world.clusters["new"].created = 3, 0
    read(world).tell(world.start_event("new"))
    assert not world.switch.halted
    read(world)
    assert not world.switch.halted


def test_no_remedy_is_named_that_cannot_be_done() -> None:
    world = with_third(hob=1)
    world.clusters["new"].hob = MAX_HOB
    assert start(world, "third") == [RejectCode.PRECHECK_FAILED]
    assert "no HOB lies beyond, so third cannot be used" in world.said[-1].sentence


def test_a_cluster_that_was_unregistered_is_not_forgotten() -> None:
    world = with_third(hob=1)
    world.tell(command("rollback", "x", attribution_only=False))
    world.clusters["old"].hob, world.clusters["old"].created = 2, 0
    read(world).tell(command("rollback", "y", attribution_only=False))
    world.later().acks().work()
    assert world.is_at(S.ROLLED_BACK)
    world.tell(world.inventory_event("new"), command("unregister", "u", name="new"))
    world.tell(command("register", "r", name="renamed", uri="zk://new", instance_id="id-of-new", root="/ledgers"))
    assert [name for name, mark in world.state.marks.items() if mark.written] == ["id-of-new", "id-of-old"]
