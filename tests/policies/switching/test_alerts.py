"""What a person is told of a switch."""

from policies.switching.readings import LedgerOutcome
from policies.switching.state import SwitchStage
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import tell_of


def test_a_halted_switch_alarms_until_it_is_driven_on() -> None:
    world = WireWorld()
    world.to(SwitchStage.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("attribution", "entry_id"))
    assert world.alerts() == [("switch-halted", "firing")]
    world.tell(world.start_event())
    assert world.alerts() == [("switch-halted", "firing"), ("switch-halted", "resolved")]


def test_other_troubles_alarm_as_well() -> None:
    world = WireWorld()
    world.to(SwitchStage.TRIGGERED)
    world.clusters["old"].hob = 2
    world.acks()
    assert world.alerts() == [("switch-blocked", "firing")]
    world = WireWorld()
    world.to(SwitchStage.TRIGGERED)
    world.tell(world.follow("b1"), world.broker_event("b2", failed=True, epoch=1))
    assert world.alerts() == [("switch-degraded", "firing")]
    world.tell(world.follow("b2"))
    assert world.alerts() == [("switch-degraded", "firing"), ("switch-degraded", "resolved")]
    assert not world.records()[-1].degraded
    world = WireWorld()
    world.to(SwitchStage.DONE_WITH_FAILURES)
    assert ("switch-ledgers-left-behind", "firing") in world.alerts()
    world = WireWorld()
    world.to(SwitchStage.BUILD)
    assert world.state.lease is not None
    world.now_ms = world.state.lease.valid_until_ms
    world.step()
    assert ("switch-unattended", "firing") in world.alerts()


def test_a_cluster_that_is_not_read_keeps_a_switch_from_going_live_and_is_an_alert_past_ack_timeout() -> None:
    world = WireWorld()
    world.to(SwitchStage.TRIGGERED)
    world.tell(world.members_event(), world.follow("b1"), world.follow("b2"))
    for _ in range(6):
        reports = (world.broker_event(name) for name in world.brokers)
        world.later(10_000).tell(world.members_event(), *reports, world.cluster_event("old"))
        assert world.is_at(SwitchStage.TRIGGERED)
    assert world.alerts() == [("switch-blocked", "firing")]
    [hold] = world.records()[-1].holds
    assert (hold.name, hold.ends_with) == ("unread-ids", "make its ZooKeeper answer, or `abort`")
    world.later().tell(world.cluster_event("new"))
    assert world.alerts()[-1] == ("switch-blocked", "resolved")
