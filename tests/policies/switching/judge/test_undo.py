"""From every stage a person gets out: what is taken back, stopped or let go on, and what a refusal names instead."""

from typing import Any

import pytest
from msgspec.structs import replace

from policies.switching.alert_kinds import LEFT_BEHIND
from policies.switching.decisions import ORDERS, RejectCode, SwitchVerdict
from policies.switching.facts import awaited
from policies.switching.judge.table import find_holds
from policies.switching.readings import LedgerOutcome, SwitchCommand
from policies.switching.settings import DAY_MS, HOUR_MS
from policies.switching.state import ClusterStatus, Directive, LedgerStage, SwitchingState, SwitchStage
from policies.switching.transition import DecisionDraft, Transition
from tests.cases import for_each
from tests.policies.switching.events import Event, answer, command
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import Bookies, World, codes, few, tell_of

S = SwitchStage
BACK: dict[str, Any] = {"attribution_only": False}


def directed_to(said: list[DecisionDraft]) -> list[object]:
    return [s.details["target"] for s in said if s.verdict is SwitchVerdict.WRITE_DIRECTIVE]


def advance(world: World, name: str, hob: int) -> None:
    """As a remedy says."""
    world.clusters[name].hob, world.clusters[name].created = hob, 0
    world.later().tell(*(world.cluster_event(n) for n in world.clusters))


def test_abort_sends_brokers_back_to_greater_ids_only_also_when_the_target_gave_nothing() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.cluster_event("new"), command("abort", "a"))
    assert (world.stage, world.state.active(), world.state.epoch) == (S.ROLLBACK, "new", 1)
    assert "old gives 5 next" in world.switch.blocked
    assert "advance to HOB-0000000002" in world.switch.blocked
    world.raise_ids()
    assert (world.stage, world.state.active(), world.state.epoch) == (S.ROLLBACK, "old", 2)
    world.later().acks().work()
    assert world.is_at(S.ROLLED_BACK)
    world.write("t1", "b1")


def test_a_reading_from_before_zookeeper_had_the_directive_sends_nobody_back() -> None:
    world = World().to(S.TRIGGERED)
    advance(world, "old", 2)
    world.tell(command("abort", "a"))
    registry = world.later().registry_event(directive=None)
    early = world.cluster_event("new")
    world.later().tell(registry)
    assert world.state.active() == "old", "what was read before shows the directive"
    world = World().to(S.TRIGGERED)
    world.clusters["old"].hob, world.clusters["old"].created = 2, 0
    early = replace(world.cluster_event("new"), epoch=0)
    world.later().tell(world.cluster_event("old"), early, command("abort", "a"))
    assert world.state.active() == "new", "it was read under the directive before"
    world.later().tell(replace(world.cluster_event("new"), epoch=1))
    assert world.state.active() == "old"


def test_a_broker_that_acks_while_a_rejection_waits_leaves_it_to_a_person() -> None:
    world = World().to(S.TRIGGERED)
    world.tell(world.broker_event("b2", failed=True, epoch=world.switch.epoch))
    world.later().tell(world.follow("b1"))
    facts = Transition(world.state, world.limits, world.now_ms).facts()
    assert (world.stage, facts.unreachable_before_moves) == (S.TRIGGERED, ())
    assert "client_init_failed" in [hold.key for hold in find_holds(facts)]


def test_a_target_whose_ids_are_behind_waits_until_it_is_advanced_and_brokers_open_new_clients() -> None:
    """A client that is open remembers the lower HOB, so the acks of the first directive do not count."""
    world = World().to(S.TRIGGERED)
    world.clusters["old"].hob, world.clusters["old"].created = 1, 7
    world.acks()
    assert "advance to HOB-0000000002" in world.switch.blocked
    world.raise_ids()
    assert (world.stage, world.state.epoch, world.state.active()) == (S.TRIGGERED, 2, "new")
    world.later().tell(*(world.broker_event(b, epoch=1) for b in world.brokers))
    assert world.is_at(S.TRIGGERED)
    world.acks()
    assert world.is_at(S.LIVE_DUAL_READ)
    world.write("t1", "b1")


@for_each("stage", [S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD])
@for_each("which", ["resume", "start"])
def test_after_the_remedy_of_a_halt_brokers_are_directed_again_to_open_new_clients(
    stage: SwitchStage, which: str
) -> None:
    world = World().to(stage)
    world.clusters["old"].hob, world.clusters["old"].created = 2, 1
    world.later().tell(world.cluster_event("old"))
    assert "then `resume`" in world.switch.halted
    advance(world, "new", 3)
    assert (directed_to(world.said), world.state.epoch, bool(world.switch.halted)) == (["new", "new"], 2, True)
    said = world.tell(command("resume", "r") if which == "resume" else world.start_event())
    assert (directed_to(said), world.state.epoch, world.switch.halted) == (["new"], 2, "")
    assert [d.broker for d in awaited(Transition(world.state, world.limits, world.now_ms).facts())] == ["b1", "b2"]
    world.later().acks()
    assert not list(awaited(Transition(world.state, world.limits, world.now_ms).facts()))


@for_each("stage", [S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK])
def test_paused_only_brokers_whose_cluster_was_advanced_are_directed_again(stage: SwitchStage) -> None:
    """With clients of two HOBs, a topic that moves between their brokers would get a lower id until `resume`."""
    world = World().to(stage)
    world.tell(command("pause", "p"))
    world.orders.clear()
    advance(world, "new", 3)
    assert [(o.verdict, o.details["target"]) for o in world.orders] == [(SwitchVerdict.WRITE_DIRECTIVE, "new")]
    assert (world.state.directive, world.switch.epoch, world.switch.paused) == (Directive(2, "new"), 2, True)
    assert world.switch.target_floor == (3 if stage is S.TRIGGERED else 1) << 32
    world.tell(*(world.follow(broker) for broker in world.brokers))
    world.orders.clear()
    world.tell(world.lease_event(2))  # its executor has not heard of the order to the first one
    assert directed_to(world.orders) == ["new"]
    active = tuple(replace(entry, status=ClusterStatus.ACTIVE) for entry in world.state.entries)
    world.later().tell(world.registry_event(clusters=active), world.lease_event(3))
    assert directed_to(world.orders) == ["new"]  # nothing more while the registry is contested


@for_each("stage", [S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK])
def test_paused_nothing_is_ordered_and_resumed_everything_goes_on(stage: SwitchStage) -> None:
    world = World().to(stage)
    world.tell(command("pause", "p"))
    world.orders.clear()
    world.later().acks()
    world.tell(world.inventory_event(), world.lease_event(2))
    assert not world.orders
    assert not [s for s in world.tell(world.members_event()) if s.verdict in ORDERS]
    assert world.is_at(stage)
    [refused] = world.tell(command("pause", "p2"))
    assert refused.sentence.startswith("it is paused already")
    world.tell(command("resume", "r"))
    world.work()
    assert world.stage not in (S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.CLEANUP, S.ROLLBACK)
    assert codes(world.tell(command("resume", "r2"))) == [RejectCode.INVALID_TRANSITION]


def test_resume_does_not_count_ids_anew_while_a_broker_may_get_greater_ones_elsewhere() -> None:
    world = World().to(S.HOLD)
    world.clusters["new"].created = 9
    world.clusters["old"].hob, world.clusters["old"].created = 1, 2
    world.later().tell(
        world.cluster_event("new"), world.cluster_event("old"), world.broker_event("b1", writes=("old",))
    )
    assert "INV-3: old gave 4294967297, new began at 4294967296" in world.switch.halted
    world.tell(command("resume", "r"))
    assert "INV-3" in world.switch.halted, "b1 may get the next ids of old"
    world.later().tell(world.broker_event("b1"))
    world.later().tell(world.cluster_event("old"), command("resume", "s"))
    assert world.switch.halted == ""


def test_a_paused_switch_is_not_cleaned_up() -> None:
    world = World().to(S.HOLD).later(15 * DAY_MS)
    world.tell(command("pause", "p"))
    [refused] = world.tell(command("cleanup", "c"))
    assert refused.sentence == "it is paused; to go on: `resume`, or `end`"


def test_end_stops_a_clean_up_and_start_takes_it_up_again() -> None:
    world = World(few(copy_concurrency=2, max_deletions=1, retries=3)).to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY)
    world.tell(command("end", "a"))
    world.work()
    assert world.is_at(S.DONE_WITH_FAILURES)
    assert sorted(world.stages().values()) == [LedgerStage.CLEANED, LedgerStage.PROMOTED, LedgerStage.PROMOTED]
    world.drive_on()
    world.clean_up()
    assert world.is_at(S.DONE)


def test_end_leads_out_of_a_clean_up_although_no_broker_can_follow_and_nothing_can_be_listed() -> None:
    """The target died in the clean-up: one `end` stops the deletions, a second one ends it where it stands."""
    world = World().to(S.CLEANUP)
    world.orders.clear()
    world.tell(*(world.broker_event(b, failed=True, epoch=world.state.epoch) for b in world.brokers))
    assert "cannot reach its target" in world.switch.blocked
    world.tell(command("end", "a"))
    assert (world.stage, world.switch.blocked) == (S.CLEANUP, "")
    assert "3 ledgers stay in old" in world.tell(command("end", "b"))[0].sentence
    assert world.is_at(S.ABORTED)


def test_after_end_a_clean_up_waits_for_deletions_that_were_begun_and_orders_none_again() -> None:
    world = World(few()).to(S.CLEANUP)
    world.work(SwitchVerdict.TAKE_INVENTORY)
    deletions, world.orders = world.orders, []
    world.tell(command("end", "a"))
    world.work()
    assert (world.stage, len(deletions)) == (S.CLEANUP, 2)
    failed, done = deletions
    world.tell(answer(LedgerOutcome.FAILED, failed.task.ledger_id, failed.op))  # type: ignore[union-attr]
    world.tell(*world.carry_out(done))
    world.work()
    assert world.is_at(S.DONE_WITH_FAILURES)
    assert sorted(world.stages().values()) == [LedgerStage.CLEANED, LedgerStage.DELETE_INTENT, LedgerStage.PROMOTED]


def test_end_ends_a_rollback_that_cannot_end_and_names_what_is_left() -> None:
    world = World().to(S.HOLD)
    advance(world, "old", 2)
    world.tell(command("rollback", "x", **BACK))
    world.later().tell(world.members_event())
    [said] = world.tell(command("end", "a"))
    assert world.is_at(S.ABORTED)
    assert "/c1, /s1, /c2 not taken back" in said.sentence
    assert "b1 follows epoch 1" in said.sentence
    world.tell(command("rollback", "y"))
    world.acks().work()
    assert world.is_at(S.ROLLED_BACK)


def test_end_names_brokers_that_were_not_sent_back() -> None:
    world = World().to(S.HOLD)
    world.tell(command("rollback", "x", **BACK))
    world.work(SwitchVerdict.REVERT)
    [said] = world.tell(command("end", "a"))
    assert said.sentence == "the rollback is ended where it stands: brokers are not directed to old yet"


def test_end_lets_go_of_what_stays_behind() -> None:
    world = World().to(S.DONE_WITH_FAILURES)
    world.tell(command("end", "a"))
    assert world.is_at(S.ABORTED)
    world.clusters["third"] = Bookies("third", "id-of-third", hob=9)
    world.registered().checked("third")
    world.tell(world.start_event("third"))
    assert world.switch.target == "third"


REFUSALS = {
    "rollback, before it is live": (S.TRIGGERED, command("rollback", "x"), "; to go on: `abort`"),
    "rollback, in the clean-up": (S.CLEANUP, command("rollback", "x"), "; to go on: `end`"),
    "abort, of nothing": (S.PRECHECKED, command("abort", "x"), "no switch is under way"),
    "end, of nothing": (S.PRECHECKED, command("end", "x"), "no switch is under way"),
    "rollback, twice": (S.ROLLBACK, command("rollback", "x"), "; to go on: `end`"),
    "abort, in the clean-up": (S.CLEANUP, command("abort", "x"), "; to go on: `end`"),
    "rollback, done": (S.DONE, command("rollback", "x"), "`start --target old` leads back"),
    "rollback, done with failures": (S.DONE_WITH_FAILURES, command("rollback", "x"), "leads back; to go on: `end`"),
    "start, the old one, done with failures": (S.DONE_WITH_FAILURES, None, "; to go on: `end`"),
    "start, another, in hold": (S.HOLD, None, "; to go on: `rollback` or `end`"),
    "end, before it is live": (S.TRIGGERED, command("end", "x"), "; to go on: `abort`"),
    "end, before hold": (S.BUILD, command("end", "x"), "; to go on: `rollback`"),
    "cleanup, too soon": (S.HOLD, command("cleanup", "x"), " UTC; to go on: `rollback` or `end`"),
    "start, another, in build": (S.BUILD, None, "; to go on: `rollback`"),
    "cleanup, twice": (S.CLEANUP, command("cleanup", "x"), "; to go on: `end`"),
    "cleanup, done with failures": (S.DONE_WITH_FAILURES, command("cleanup", "x"), "; to go on: `end`"),
    "cleanup, before hold": (S.BUILD, command("cleanup", "x"), "is at build; to go on: `rollback`"),
    "rollback, rolled back": (S.ROLLED_BACK, command("rollback", "x"), "with brokers, it brings them back to old"),
    "start, the old one, rolled back": (S.ROLLED_BACK, None, "`rollback --with-brokers` brings them back"),
}


@for_each(("stage", "asked", "names"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_the_command_that_is_right(stage: SwitchStage, asked: SwitchCommand | None, names: str) -> None:
    world = World().to(stage)
    [refused] = world.tell(asked or world.start_event("old"))
    assert refused.verdict is SwitchVerdict.REJECT
    assert names in refused.sentence


@pytest.mark.parametrize("hob", [1, 2], ids=["the HOB that it had", "a greater one"])
def test_after_the_window_a_target_that_is_lost_with_its_zookeeper_is_left_by_the_runbook(hob: int) -> None:
    """No inventory can be taken and no id of the target is read, until somebody makes its ZooKeeper again."""
    world = WireWorld().to(S.HOLD)
    world.later(2 * DAY_MS)

    def time_passes(*more: Event) -> str:
        world.orders = [o for o in world.orders if o.verdict is not SwitchVerdict.TAKE_INVENTORY]
        world.later().tell(world.members_event(), world.cluster_event("old"), *map(world.follow, world.brokers), *more)
        return "; ".join(hold.ends_with for hold in world.records()[-1].holds)

    assert codes(world.tell(command("rollback", "r"))) == [RejectCode.WINDOW_EXPIRED]
    world.tell(command("end", "e"))
    assert time_passes() == "`end`"
    world.tell(command("end", "a"))
    assert world.stage is S.ABORTED
    assert "`rollback --with-brokers` (back to old)" in time_passes()
    world.tell(command("rollback", "b", attribution_only=False))
    world.later(HOUR_MS // 30).work(SwitchVerdict.REVERT)
    assert {world.refs[path].attribution for path in ("/c1", "/c2", "/s1")} == {"old"}
    time_passes()
    assert world.switch.blocked == "what new gave since brokers were directed there is not read yet"
    world.clusters["new"].hob, world.clusters["new"].created = hob, 0
    time_passes(world.cluster_event("new"))
    time_passes(world.cluster_event("new"))  # since its advance brokers are directed there again
    world.raise_ids()
    time_passes(world.cluster_event("new"))
    assert world.state.active() == "old"
    world.acks().work()
    assert (world.stage, world.switch.halted) == (S.ROLLED_BACK, "")
    world.write("t1", "b1")


@for_each("stage", [S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE])
@for_each("is_paused", [False, True])
def test_after_the_window_a_switch_that_still_copies_ends_where_it_stands(stage: SwitchStage, is_paused: bool) -> None:
    world = World().to(stage)
    before = dict(world.clusters["old"].ledgers)
    world.tell(*([command("pause", "p")] if is_paused else []))
    [refused] = world.later(2 * DAY_MS).tell(command("rollback", "r"))
    assert refused.sentence.endswith("; to go on: `resume`, or `end`" if is_paused else "; to go on: `end`")
    assert codes(world.tell(command("end", "d", delete=True))) == [RejectCode.INVALID_TRANSITION]
    world.tell(command("end", "e"))
    world.orders = [o for o in world.orders if o.verdict in (SwitchVerdict.TAKE_INVENTORY, SwitchVerdict.WRITE_STATUS)]
    world.work()
    assert world.stage in (S.DONE, S.DONE_WITH_FAILURES)
    assert world.clusters["old"].ledgers == before
    if world.is_at(S.DONE_WITH_FAILURES):
        world.acks().tell(world.start_event())
        world.work()
        assert world.is_at(S.HOLD), "what stayed behind is tried again"


def test_brokers_that_a_rejected_switch_left_where_a_rollback_had_are_brought_back_as_the_refusal_says() -> None:
    world = World()
    world.clusters["third"] = Bookies("third", "id-of-third", hob=4)
    world.to(S.ROLLED_BACK)
    world.later().acks().checked("third").triggered("third")
    world.tell(world.cluster_event("third"))
    world.tell(world.broker_event("b1", failed=True, epoch=world.switch.epoch))
    world.raise_ids()
    assert (world.stage, world.state.active(), world.state.committed()) == (S.REJECTED, "new", "old")
    world.clusters["old"].hob, world.clusters["old"].created = 9, 0
    world.later().acks().checked("new")
    [refused] = world.tell(world.start_event("old"))
    assert "`rollback --with-brokers` brings them back" in refused.sentence
    assert "with brokers, it brings them back to old" in world.tell(command("rollback", "r"))[0].sentence
    assert codes(world.tell(command("rollback", "x", **BACK))) == []
    world.later().acks().work()
    assert (world.stage, world.state.active()) == (S.ROLLED_BACK, "old")
    world.write("t1", "b1")


def test_a_switch_that_is_taken_back_before_it_is_live_leaves_brokers_where_a_rollback_had_left_them() -> None:
    world = World().to(S.ROLLED_BACK)
    world.later().acks().checked("new").triggered("new")
    epoch = world.state.epoch
    taken_back, *_ = world.tell(command("abort", "a"))
    assert taken_back.sentence == "the switch to new is taken back; brokers wrote there before, and go on"
    world.later().acks().work()
    assert (world.stage, world.state.active(), world.state.epoch) == (S.ROLLED_BACK, "new", epoch)


def test_a_switch_that_was_forgotten_is_taken_up_again_as_the_refusal_says() -> None:
    world = World().to(S.HOLD)
    before, world.state = world.state, SwitchingState()
    world.later().tell(world.registry_event(before), world.lease_event(2))
    world.acks()
    [refused] = world.tell(world.start_event("old"))
    assert "`start --target new` takes their switch up again" in refused.sentence
    assert codes(world.tell(command("rollback", "r"))) == [RejectCode.INVALID_TRANSITION]
    world.checked("new").triggered("new").acks().work()
    assert world.is_at(S.HOLD)


def test_rolled_back_is_said_when_every_broker_is_back_and_an_inventory_shows_it() -> None:
    world = World().to(S.HOLD)
    advance(world, "old", 2)
    world.tell(command("rollback", "x", **BACK))
    world.later().tell(world.registry_event(directive=Directive(1, "new")))
    assert world.state.contested == "", "the directive to old is not written yet"
    world.work()
    assert world.is_at(S.ROLLBACK)
    world.later().tell(world.members_event(), world.follow("b1"))
    assert world.is_at(S.ROLLBACK), "b2 is not back"
    world.tell(world.follow("b2"))
    assert [o.verdict for o in world.orders] == [SwitchVerdict.TAKE_INVENTORY]
    assert world.is_at(S.ROLLBACK), "the last inventory is still to come"
    world.work()
    assert world.is_at(S.ROLLED_BACK)
    [refused] = world.tell(command("rollback", "y", **BACK))
    assert refused.sentence == "the switch to new is rolled_back already"


def test_what_could_not_be_taken_back_is_named() -> None:
    world = World().to(S.ROLLBACK)
    for _ in range(world.limits.retries):
        tell_of(world, "/s1", LedgerOutcome.FAILED)
    world.work()
    assert world.is_at(S.ROLLED_BACK_WITH_FAILURES)
    said = next(s.sentence for s in reversed(world.said) if s.verdict is SwitchVerdict.ADVANCE)
    assert "given up: /s1" in said
    assert "1 reference names new: /s1" in said
    facts = Transition(world.state, world.limits, world.now_ms).facts()
    assert next((h.key, h.ends_with) for h in find_holds(facts)) == ("not_taken_back", "`rollback`")
    world.later(16 * DAY_MS).tell(world.members_event())
    world.work()
    assert (world.switch.ledgers, world.task("/s1").stage) == ({}, LedgerStage.PROMOTED), "it stays in the plan"


def test_a_dry_run_says_what_each_would_do_and_does_nothing() -> None:
    world = World().to(S.TRIGGERED)
    before = world.state
    for which in ("abort", "pause", "resume"):
        [said] = world.tell(command(which, which, dry_run=True))
        assert said.verdict is SwitchVerdict.PREVIEW
        assert said.sentence.startswith("would: the switch to new is" if which != "resume" else "would be rejected")
    assert (world.state.switch, world.state.directive) == (before.switch, before.directive)


def test_hold_ends_at_any_hour_and_keeps_what_was_copied() -> None:
    world = World().to(S.HOLD)
    ledgers = dict(world.clusters["old"].ledgers)
    said = world.tell(command("end", "e"))
    assert "3 ledgers are kept in old" in said[0].sentence
    assert "the way back until" in said[0].sentence
    world.work()
    assert (world.stage, world.state.committed()) == (S.DONE, "new")
    assert world.clusters["old"].ledgers == ledgers
    assert "kept in old: 2, 3, 4" in world.said[-1].sentence


def test_hold_ends_although_no_broker_can_follow_when_nothing_is_deleted() -> None:
    """The target's bookies died on day 3: no command but this one leads away."""
    world = World().to(S.HOLD).later(3 * DAY_MS)
    world.tell(*(world.broker_event(b, failed=True, epoch=world.state.epoch) for b in world.brokers))
    [refused] = world.tell(command("end", "d", delete=True))
    assert (refused.code, "without `--delete`" in refused.sentence) == (RejectCode.BROKERS_BEHIND, True)
    world.tell(command("end", "e"))
    world.work()
    assert (world.stage, world.state.committed()) == (S.DONE_WITH_FAILURES, "new")
    assert "b1 cannot reach its target" in world.said[-1].sentence
    facts = Transition(world.state, world.limits, world.now_ms).facts()
    [why] = [hold.why for hold in find_holds(facts) if hold.kind.alert == LEFT_BEHIND]
    assert why == "is done, but not every broker followed when it ended"
    world.tell(command("end", "a"))
    assert world.is_at(S.ABORTED), "from here a switch may begin to any cluster"
    [refused] = world.tell(command("rollback", "r"))
    assert (refused.code, "`start --target old`" in refused.sentence) == (RejectCode.INVALID_TRANSITION, True)


def test_hold_ends_and_deletes_only_what_an_inventory_since_shows_to_be_unnamed() -> None:
    world = World(few(cleanup_after="0s")).to(S.HOLD)
    world.refs["/c1"].attribution = "old"
    world.limits = few(cleanup_after="0s")
    said = world.tell(command("end", "e", delete=True))
    assert "which cannot be undone" in said[0].sentence
    world.work()
    assert world.is_at(S.DONE_WITH_FAILURES)
    assert world.stages() == {"/c1": LedgerStage.PROMOTED, "/c2": LedgerStage.CLEANED, "/s1": LedgerStage.CLEANED}
