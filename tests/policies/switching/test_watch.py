"""Every live broker is watched, in every stage: who deviates is named, and nothing irreversible goes on without it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from policies.decisions import Alert, AlertStatus
from policies.observations import Outcome
from policies.switching.alert_kinds import ASTRAY, AWAITED, CONTESTED, IMPOSTOR, LEFT_BEHIND, UNPLANNED, WAITING
from policies.switching.decisions import ORDERS, RejectCode, SwitchVerdict
from policies.switching.ledgers import ANY_CLUSTER, LedgerKind, StayingKind, StayingLedgers
from policies.switching.settings import DAY_MS
from policies.switching.state import ClusterStatus, Directive, SwitchStage
from policies.units import from_millis
from tests.cases import for_each
from tests.policies.switching.events import Made, command, listed
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import Bookies, Ref, World, codes

S = SwitchStage


def joins(world: World) -> None:
    """A broker is there of which nothing else is heard."""
    world.later().tell(world.members_event("b1", "b2", "b3"))


def joins_without_following(world: World) -> None:
    joins(world)
    world.brokers["b3"] = "old"
    world.later().tell(world.broker_event("b3", epoch=0))


def writes_to_old(world: World) -> None:
    world.tell(world.broker_event("b2", writes=("new", "old")))


def goes_back(world: World) -> None:
    world.tell(world.broker_event("b2", epoch=0, writes=("old",)))


DEVIATES: dict[str, tuple[Callable[[World], None], str, str]] = {
    "it writes to the old cluster": (writes_to_old, "b2", "writes to old"),
    "it acked and goes back": (goes_back, "b2", "follows epoch 0 and writes to old"),
    "it joined and does not follow": (joins_without_following, "b3", "follows epoch 0"),
    "it is never heard of": (joins, "b3", "is not heard of"),
}


def firing(world: WireWorld, alert: str) -> list[Alert]:
    found = [d for d in world.published if isinstance(d, Alert) and d.alert == alert]
    ended = {a.subject for a in found if a.status is AlertStatus.RESOLVED}
    return [a for a in found if a.subject not in ended]


@pytest.mark.parametrize("stage", [S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD])
@pytest.mark.parametrize(("deviates", "broker", "why"), DEVIATES.values(), ids=DEVIATES)
def test_after_going_live_a_broker_that_deviates_is_an_alert_with_its_name(
    stage: SwitchStage, deviates: Callable[[World], None], broker: str, why: str
) -> None:
    world = WireWorld().to(stage)
    deviates(world)
    world.later(60_000)
    world.step()
    [alert] = firing(world, ASTRAY)
    assert alert.labels["broker"] == broker
    assert f"pulsar-1: {broker} {why}" in alert.summary


@pytest.mark.parametrize(("deviates", "broker", "why"), DEVIATES.values(), ids=DEVIATES)
def test_it_stops_a_clean_up_under_way_until_it_follows(
    deviates: Callable[[World], None], broker: str, why: str
) -> None:
    world = World().to(S.CLEANUP)
    deviates(world)
    world.work()
    assert world.is_at(S.CLEANUP)
    assert not [s for s in world.said if s.verdict is SwitchVerdict.DELETE_OLD]
    assert f"{broker} {why}" in world.switch.blocked
    world.brokers.setdefault(broker, "new")
    world.later().tell(world.follow(broker))
    world.work()
    assert world.is_at(S.DONE)


def test_done_waits_for_a_broker_that_joined_while_statuses_were_written() -> None:
    world = World().to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.DELETE_OLD)
    joins(world)
    world.work()
    assert world.is_at(S.CLEANUP)
    world.brokers["b3"] = "new"
    world.later().tell(world.follow("b3"))
    assert world.is_at(S.DONE)


def test_who_is_awaited_is_on_the_record_and_past_ack_timeout_an_alert() -> None:
    world = WireWorld().to(S.TRIGGERED)
    directed = world.state.directed_ms
    world.tell(world.members_event(), world.follow("b1"))
    assert world.records()[-1].brokers.awaited == {"b2": from_millis(directed)}
    assert firing(world, AWAITED) == []
    assert world.wake_at == from_millis(directed + 60_000)
    world.now_ms = directed + 60_000
    world.step()
    [alert] = firing(world, AWAITED)
    assert "b2 is not heard of since" in alert.summary
    assert "unload their bundles first" in alert.summary
    world.tell(world.follow("b2"))
    assert firing(world, AWAITED) == []


def test_a_switch_that_no_live_broker_is_known_of_is_an_alert_past_ack_timeout() -> None:
    world = WireWorld().to(S.TRIGGERED)
    world.tell(world.members_event(brokers=()))
    started = world.switch.started_ms
    assert "brokers are told to write to new" in world.records()[-1].explanation, "nobody is known to do so"
    assert (firing(world, AWAITED), world.wake_at) == ([], from_millis(started + 60_000))
    world.now_ms = started + 60_000
    world.step()
    [alert] = firing(world, AWAITED)
    assert "waits for brokers: none is known to be alive, since" in alert.summary
    world.later().tell(world.members_event())
    assert firing(world, AWAITED) == []


def test_a_pause_while_brokers_are_between_two_clusters_is_an_alert_past_ack_timeout() -> None:
    world = WireWorld().to(S.TRIGGERED)
    world.tell(command("pause", "p"), world.members_event(), world.follow("b1"))
    world.later(60_000).tell(world.members_event(), world.broker_event("b1"))
    [alert] = firing(world, WAITING)
    assert "is paused while brokers are between two clusters" in alert.summary
    world.tell(world.follow("b2"))
    assert firing(world, WAITING) == []


def test_brokers_that_report_all_the_time_do_not_keep_a_switch_from_going_live() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers))
    for name in world.clusters:
        world.later(5).tell(world.cluster_event(name))
        world.later(5).tell(*(world.broker_event(b) for b in world.brokers))
    assert world.is_at(S.LIVE_DUAL_READ)


def test_a_broker_that_lapses_after_its_ack_is_read_after_again() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.members_event(), *(world.follow(b) for b in world.brokers))
    world.later().tell(world.broker_event("b1", writes=("old",)))
    world.tell(world.cluster_event("old"), world.cluster_event("new"))
    world.later().tell(world.broker_event("b1", writes=("new",)))
    assert world.is_at(S.TRIGGERED), "what it wrote may have come after the reading"
    world.later().tell(world.cluster_event("old"), world.cluster_event("new"))
    assert world.is_at(S.LIVE_DUAL_READ)


def theirs(world: World, epoch: int, target: str) -> Made:
    return world.later().registry_event(directive=Directive(epoch, target))


def two_active(world: World) -> Made:
    entries = tuple(replace(entry, status=ClusterStatus.ACTIVE, version=1) for entry in world.state.entries)
    return world.later().registry_event(clusters=entries)


def other_active(active: str) -> Callable[[World], Made]:
    def seen(world: World) -> Made:
        statuses = {active: ClusterStatus.ACTIVE}
        known = world.state.entries
        entries = tuple(replace(e, status=statuses.get(e.name, ClusterStatus.DEPRECATED)) for e in known)
        return world.later().registry_event(clusters=entries)

    return seen


CONTESTS: dict[str, Callable[[World], Made]] = {
    "a later directive": lambda w: theirs(w, w.state.epoch + 3, "new"),
    "another directive of our epoch": lambda w: theirs(w, w.state.epoch, "third"),
    "two active clusters": two_active,
    "another active cluster": other_active("third"),
    "no active cluster": other_active(""),
}


@for_each("stage", [S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK])
@for_each("contest", CONTESTS.values(), ids=CONTESTS)
def test_what_somebody_else_wrote_stops_all_orders(stage: SwitchStage, contest: Callable[[World], Made]) -> None:
    world = World().to(stage)
    world.tell(contest(world))
    world.orders.clear()
    world.tell(command("cleanup", "c"), command("rollback", "r"), world.start_event("new"), world.lease_event(2))
    world.later().acks().tell(world.inventory_event())
    assert [o.verdict for o in world.orders if o.verdict is not SwitchVerdict.RUN_PRECHECK] == []
    assert codes(world.tell(command("rollback", "s"))) == [RejectCode.CONTESTED]


def test_it_is_an_alert_until_the_registry_says_what_was_ordered() -> None:
    world = WireWorld().to(S.HOLD)
    world.tell(two_active(world))
    [alert] = firing(world, CONTESTED)
    assert "new and old are active in the registry at once" in alert.summary
    world.later().tell(world.registry_event())
    assert firing(world, CONTESTED) == []


def test_a_reading_without_a_foreign_directive_is_an_older_one_whatever_its_time() -> None:
    world = World().to(S.HOLD)
    ours = world.registry_event()
    world.tell(theirs(world, 7, "old"))
    for at_ms in (world.now_ms, world.later().now_ms):
        world.tell(ours.but(at_ms))
        assert world.state.contested_by == Directive(7, "old")
    world.tell(command("resume", "r"))
    assert world.state.contested_by is None


def test_resume_directs_by_the_next_epoch_after_theirs() -> None:
    world = World().to(S.HOLD)
    world.tell(theirs(world, 7, "new"))
    world.tell(command("resume", "r"))
    assert (world.state.epoch, world.state.directive, world.state.contested) == (8, Directive(8, "new"), "")
    world.later(15 * DAY_MS)
    assert codes(world.tell(world.members_event(), command("cleanup", "c"))) == [RejectCode.BROKERS_BEHIND]
    world.tell(*(world.follow(b) for b in world.brokers), command("cleanup", "d"))
    assert world.is_at(S.CLEANUP)


def test_what_was_to_be_deleted_waits_until_brokers_follow_the_directive_after_somebody_elses() -> None:
    world = World().to(S.CLEANUP).work(SwitchVerdict.TAKE_INVENTORY)
    assert SwitchVerdict.DELETE_OLD in [o.verdict for o in world.orders]
    world.tell(theirs(world, 7, "new"))
    world.orders.clear()
    said = world.tell(command("resume", "r"))
    assert SwitchVerdict.DELETE_OLD not in [s.verdict for s in said], "nobody follows epoch 8 yet"
    world.later().tell(world.members_event(), *(world.follow(b) for b in world.brokers))
    assert SwitchVerdict.DELETE_OLD not in [o.verdict for o in world.orders], "no inventory under epoch 8 yet"
    world.work(SwitchVerdict.TAKE_INVENTORY)
    assert SwitchVerdict.DELETE_OLD in [o.verdict for o in world.orders]
    world.work()
    assert world.is_at(S.DONE)


def test_resume_does_not_lead_back_from_a_cluster_that_gave_more() -> None:
    world = World().to(S.HOLD)
    world.clusters["old"].hob = 5
    world.later().tell(world.cluster_event("old"), theirs(world, 7, "old"))
    [refused] = world.tell(command("resume", "r"))
    assert refused.code is RejectCode.COLLISION
    assert refused.sentence.startswith("brokers cannot be sent to new again: new gives")
    [refused] = world.tell(command("end", "e"))
    assert "to go on: `resume`, once this is mended: new gives" in refused.sentence


def test_orders_are_given_again_once_it_is_resolved() -> None:
    world = World().to(S.BUILD)
    world.orders.clear()
    world.tell(two_active(world))
    said = world.later().tell(world.registry_event())
    assert [s.verdict for s in said if s.verdict in ORDERS].count(SwitchVerdict.START_COPY) == 2
    assert world.later().tell(world.registry_event()) == [], "once"


def test_a_broker_that_falls_silent_has_not_acked_any_more() -> None:
    world = WireWorld().to(S.HOLD)
    world.now_ms = world.switch.cleanup_from_ms
    world.tell(world.members_event(), world.broker_event("b1"))
    [alert] = firing(world, ASTRAY)
    assert alert.labels["broker"] == "b2"
    assert (world.records()[-1].brokers.acked, list(world.records()[-1].brokers.awaited)) == (1, ["b2"])
    [refused] = world.tell(command("cleanup", "c"))
    assert (refused.code, "b2 is not heard of" in refused.sentence) == (RejectCode.BROKERS_BEHIND, True)


def test_a_list_of_brokers_that_cannot_be_read_permits_nothing_and_is_an_alert() -> None:
    world = WireWorld().to(S.HOLD).later(15 * DAY_MS)
    world.later()
    world.tell(world.members_event(outcome=Outcome.TIMEOUT))
    [refused] = world.tell(command("cleanup", "c"))
    way = "it is not known which brokers are alive; to go on: start the brokers' agents, or `end`"
    assert (refused.code, refused.sentence) == (RejectCode.BROKERS_BEHIND, way)
    assert world.records()[-1].brokers.live is None
    world.later(60_000)
    world.step()
    assert [a.reason for a in firing(world, AWAITED)] == ["no_live_broker"]


def test_another_cluster_at_a_registered_address_is_one_refusal_and_an_alert_until_the_right_one_answers() -> None:
    world = WireWorld().to(S.HOLD)
    right = world.clusters["new"]
    world.clusters["new"] = Bookies("new", "id-of-another")
    for _ in range(3):
        world.later().tell(world.cluster_event("new"))
    [alert] = firing(world, IMPOSTOR)
    assert "pulsar-1: at the address of new another BookKeeper cluster answers" in alert.summary
    world.later(15 * DAY_MS).tell(world.members_event(), *(world.broker_event(b) for b in world.brokers))
    world.tell(command("cleanup", "c"))
    world.work()
    assert (world.stage, world.clusters["old"].deleted) == (S.CLEANUP, set()), "the copies are in another cluster"
    world.clusters["new"] = right
    world.later().tell(world.cluster_event("new"))
    assert firing(world, IMPOSTOR) == []
    world.work()
    assert world.is_at(S.DONE)
    world.clusters["old"] = Bookies("old", "id-of-another")
    world.later().tell(world.cluster_event("old"), world.inventory_event())
    world.refs.clear()
    world.later().tell(world.inventory_event(), world.members_event(), *(world.broker_event(b) for b in world.brokers))
    assert len(firing(world, IMPOSTOR)) == 1
    world.tell(command("unregister", "u", name="old"))
    assert firing(world, IMPOSTOR) == []


@pytest.mark.parametrize("path", ["/late", "/c1"], ids=["one of no plan", "a planned one that lives in another ledger"])
def test_a_reference_that_nobody_planned_for_keeps_a_switch_from_being_done_and_is_named(path: str) -> None:
    """The broker of a planned cursor did not follow: the ledger that was promoted is not the one it lives in."""
    world = WireWorld().to(S.HOLD)
    world.refs[path] = Ref(LedgerKind.CURSOR, world.clusters["old"].allocate(path, world.now_ms), path, "old")
    world.clean_up()
    assert world.is_at(S.DONE_WITH_FAILURES)
    assert f"1 reference names old that nobody planned for: {path}" in world.said[-1].sentence
    [alert] = firing(world, LEFT_BEHIND)
    assert alert.summary.endswith("from old to new is done, but 1 reference names old; to end it: `start --target new`")
    world.drive_on()
    world.clean_up()
    assert (world.stage, world.refs[path].attribution) == (S.DONE, "new")


def test_it_is_an_alert_as_soon_as_an_inventory_shows_it() -> None:
    world = WireWorld().to(S.HOLD)
    world.refs["/late"] = Ref(LedgerKind.CURSOR, 3, "/late", "old")
    world.later().tell(world.inventory_event())
    [alert] = firing(world, UNPLANNED)
    assert "/late" in alert.summary
    assert world.records()[-1].unplanned == ("/late",)
    del world.refs["/late"]
    world.later().tell(world.inventory_event())
    assert firing(world, UNPLANNED) == []


def test_once_a_switch_is_done_only_an_inventory_since_then_shows_such_references_and_another_way_is_named() -> None:
    """A start of the same target is refused, because the target is active."""
    world = WireWorld().to(S.HOLD)
    world.refs["/late"] = Ref(LedgerKind.CURSOR, 3, "/late", "old")
    early = world.later().inventory_event()
    del world.refs["/late"]
    world.clean_up()
    assert world.is_at(S.DONE)
    world.tell(early)
    assert firing(world, UNPLANNED) == []
    world.refs["/late"] = Ref(LedgerKind.CURSOR, 3, "/late", "old")
    world.later().tell(world.inventory_event())
    [alert] = firing(world, UNPLANNED)
    assert "unload their topics, so that they roll over, or `start --target old`" in alert.summary
    assert codes(world.tell(world.start_event("new"))) == [RejectCode.ALREADY_ACTIVE]
    assert codes(world.tell(world.start_event("old"))) == [RejectCode.PRECHECK_FAILED]


def test_topics_ledgers_that_are_the_targets_own_break_nothing() -> None:
    """A topic does not say which cluster holds its ledgers; an inventory may be newer than the generator's reading."""
    world = World().to(S.HOLD)
    staying = (StayingLedgers(StayingKind.TOPIC, ANY_CLUSTER, 1, 2**32 + 1000),)
    world.tell(listed(world.later().inventory_event(), staying=staying))
    assert not world.switch.halted
