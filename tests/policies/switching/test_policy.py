"""The policy over the wire: the same runs, and the same again from any stored state."""

from dataclasses import replace as change
from itertools import pairwise, permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies.decisions import Decision, Mode
from policies.observations import Observation, Reading
from policies.switching.decisions import RejectCode, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.ledgers import LedgerKind, Reference
from policies.switching.policy import SwitchingPolicy, renewal_ms
from policies.switching.readings import CommandName, LedgerOutcome, SwitchCommand, SwitchLease
from policies.switching.settings import DAY_MS, SwitchingSettings
from policies.switching.state import ClusterStatus, LedgerStage, SwitchingState, SwitchStage
from policies.switching.transition import DecisionDraft
from policies.units import from_millis, to_millis
from tests.cases import for_each
from tests.policies.switching.events import OK, Event, answer, command
from tests.policies.switching.judge.test_judge import bare
from tests.policies.switching.wire import CLUSTER, READER, SETTINGS, WireWorld
from tests.policies.switching.world import World, apply, codes, few, stored, tell_of, well_at
from tests.policies.virtual_run import NEVER_STEPPED, step_hosted

REACHABLE = [s for s in SwitchStage if s is not SwitchStage.NONE]


@pytest.mark.parametrize("stage", REACHABLE)
def test_every_stage_is_reached_over_the_wire(stage: SwitchStage) -> None:
    world = WireWorld().to(stage)
    assert world.is_at(stage)
    assert stored(world.state) == world.state


DONE = WireWorld().to(SwitchStage.DONE)


@for_each("stage", [SwitchStage.DONE, SwitchStage.ROLLED_BACK, SwitchStage.DONE_WITH_FAILURES])
def test_a_repeated_input_gives_the_same_decisions_from_any_stored_state(stage: SwitchStage) -> None:
    policy, kept, world = SwitchingPolicy(CLUSTER, SETTINGS), NEVER_STEPPED, WireWorld().to(stage)
    published: list[Decision] = []
    for now, observations in world.inputs:
        kept, step = step_hosted(policy, kept, observations[::-1] + observations, now)
        kept = kept.stored()
        published.extend(step.decisions)
    assert published == world.published
    assert kept == world.kept


@for_each("name", CommandName)
def test_a_command_without_its_arguments_is_rejected(name: CommandName) -> None:
    bare = SwitchCommand(cluster=CLUSTER, command=name, idempotency_key="k", dry_run=False)
    step = SwitchingPolicy(CLUSTER, SETTINGS).step(None, [Observation("o", from_millis(0), bare)], from_millis(0))
    [decision] = [d for d in step.decisions if isinstance(d, SwitchDecision)]
    assert decision.verdict is SwitchVerdict.REJECT
    assert decision.code in (RejectCode.NOT_FOUND, RejectCode.INVALID_TRANSITION)


def test_it_wakes_when_a_broker_would_fall_silent_and_for_its_windows() -> None:
    world = WireWorld().to(SwitchStage.HOLD)
    assert world.state.members is not None
    reported = (world.state.members.at_ms, *(b.at_ms for b in world.state.brokers))
    assert world.wake_at == from_millis(min(reported) + 60_000)
    world.now_ms = world.switch.rollback_until_ms - 1
    world.step()
    assert world.wake_at == from_millis(world.switch.rollback_until_ms)


def test_the_record_is_repeated_before_it_runs_out() -> None:
    world = WireWorld().to(SwitchStage.HOLD)
    before = world.state.sequence
    world.now_ms = renewal_ms(world.state)
    world.step()
    assert world.state.sequence == before + 1
    assert world.state.recorded_ms == world.now_ms


def test_our_copies_are_deleted_when_the_time_comes_without_any_observation() -> None:
    world = WireWorld().to(SwitchStage.ROLLED_BACK)
    assert world.orders == []
    world.now_ms = world.switch.cleanup_from_ms
    world.step()
    assert {o.verdict for o in world.orders} == {SwitchVerdict.DELETE_OWN_COPY}


def test_in_shadow_mode_decisions_say_so() -> None:
    shadow = SwitchingSettings.model_validate({"mode": "shadow"})
    lease: Reading = SwitchLease(**OK, token=1, valid_ms=1000)
    command = SwitchCommand(cluster=CLUSTER, command=CommandName.CLEANUP, idempotency_key="k")
    seen = [Observation(str(i), from_millis(0), r) for i, r in enumerate((lease, command))]
    step = SwitchingPolicy(CLUSTER, shadow).step(None, seen, from_millis(0))
    assert {d.mode for d in step.decisions} == {Mode.SHADOW}


@given(st.data())
def test_a_step_is_total(data: st.DataObject) -> None:
    """Whatever valid readings arrive in whatever stage, in whatever order."""
    world = WireWorld().to(data.draw(st.sampled_from(REACHABLE)))
    pool = [o for _, seen in DONE.inputs for o in seen]
    extremes = [2**63 - 1, 0, -1]
    wild: list[Any] = [
        {"type": "switch-ledger", "ledger_id": i, "op": max(0, o), "result": r}
        for i in extremes for o in extremes for r in ("exists", "rolled_over", "deleted")
    ]  # fmt: skip
    for _ in range(data.draw(st.integers(1, 5))):
        world.later(data.draw(st.sampled_from([0, 1, DAY_MS, 400 * DAY_MS])))
        seen = data.draw(st.lists(st.sampled_from(pool), max_size=6))
        odd = data.draw(st.sampled_from(wild))
        record = msgspec.json.encode(
            {
                "specversion": "1.0", "id": f"w{world.seen}", "source": "x", "type": f"headgate.{odd['type']}.v1",
                "data": {"cluster": CLUSTER, "outcome": "ok", **odd},
            }
        )  # fmt: skip
        world.step(*seen, Observation("wild", from_millis(world.now_ms), READER.read(record).data))
        assert stored(world.state) == world.state


def test_the_state_of_a_large_plan_stays_small_and_quick() -> None:
    world = WireWorld().to(SwitchStage.LIVE_DUAL_READ)
    path = "/managed-ledgers/tenant/namespace/persistent/topic-{}/cursor"
    references = tuple(Reference(LedgerKind.CURSOR, path.format(i), 10 + i) for i in range(20_000))
    big = change(world.inventory_event(), references=references, existing={})
    state, said = apply(world.state, (big,), world.limits, world.now_ms)
    assert len(said) == 3
    encoded = msgspec.msgpack.encode(state)
    assert len(encoded) < 100 * 20_000
    assert msgspec.msgpack.decode(encoded, type=SwitchingState) == state


S, L = SwitchStage, LedgerStage


def test_a_dry_run_lists_and_changes_nothing() -> None:
    world = World().to(S.HOLD)
    world.later(15 * DAY_MS)
    before = bare(world.state)
    [said] = world.tell(command("cleanup", world.key(), dry_run=True))
    assert said.verdict is SwitchVerdict.PREVIEW
    assert "3 ledgers are to be deleted from old: 2, 3, 4" in said.sentence
    assert bare(world.state) == before


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
    world.limits = few(strategies=dict.fromkeys(LedgerKind, "remap"))
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
    assert (world.stage, world.switch.ledgers, world.switch.tasks) == (SwitchStage.DONE, {LedgerStage.CLEANED: 3}, ())
    before = bare(world.state)
    assert world.tell(answer(LedgerOutcome.DELETED, last.ledger_id, last.op)) == []
    assert bare(world.state) == before


def test_a_halted_switch_alarms_until_it_is_driven_on() -> None:
    world = WireWorld().to(SwitchStage.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("attribution", "entry_id"))
    assert world.alerts() == [("switch-halted", "firing")]
    world.tell(world.start_event())
    assert world.alerts() == [("switch-halted", "firing"), ("switch-halted", "resolved")]


def test_other_troubles_alarm_as_well() -> None:
    world = WireWorld().to(SwitchStage.TRIGGERED)
    world.clusters["old"].hob = 2
    world.acks()
    assert world.alerts() == [("switch-blocked", "firing")]
    world = WireWorld().to(SwitchStage.TRIGGERED)
    world.tell(world.follow("b1"), world.broker_event("b2", failed=True, epoch=1))
    assert world.alerts() == [("switch-degraded", "firing")]
    world.tell(world.follow("b2"))
    assert world.alerts() == [("switch-degraded", "firing"), ("switch-degraded", "resolved")]
    assert not world.records()[-1].degraded
    world = WireWorld().to(SwitchStage.DONE_WITH_FAILURES)
    assert ("switch-ledgers-left-behind", "firing") in world.alerts()
    world = WireWorld().to(SwitchStage.BUILD)
    assert world.state.lease is not None
    world.now_ms = world.state.lease.valid_until_ms
    world.step()
    assert ("switch-unattended", "firing") in world.alerts()


def test_a_cluster_that_is_not_read_keeps_a_switch_from_going_live_and_is_an_alert_past_ack_timeout() -> None:
    world = WireWorld().to(SwitchStage.TRIGGERED)
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


def test_decisions_are_numbered_and_never_repeat_an_id() -> None:
    numbers = [d.sequence for d in DONE.published if isinstance(d, SwitchDecision | SwitchRecord)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] == to_millis(DONE.published[0].decided_at)
    assert len({d.decision_id for d in DONE.published}) == len(DONE.published)


def test_an_order_says_under_which_lease_at_which_epoch_and_what_it_must_find() -> None:
    decided = {d.verdict: d for d in DONE.published if isinstance(d, SwitchDecision)}
    promote = decided[SwitchVerdict.PROMOTE]
    assert (promote.lease_token, promote.epoch, promote.stage) == (1, 1, SwitchStage.PROMOTE)
    assert promote.ledger is not None
    assert (promote.ledger.place, promote.ledger.of) == (3, 3)
    assert promote.expects == {"attribution": "old", "legacy": "or_none", "ledger_id": promote.ledger.ledger_id}
    assert promote.subject == f"{CLUSTER}/ledgers/{promote.ledger.ledger_id}"
    assert promote.valid_until is not None
    assert len(promote.evidence) == 1
    assert decided[SwitchVerdict.WRITE_DIRECTIVE].args == {"target": "new", "directive_epoch": 1}
    assert decided[SwitchVerdict.WRITE_DIRECTIVE].expects == {"epoch_below": 1}
    assert decided[SwitchVerdict.DELETE_OLD].expects["attribution"] == "new"
    assert decided[SwitchVerdict.WRITE_REGISTRY].args["instance_id"] == "id-of-new"


def test_a_revert_takes_references_without_an_attribute_for_the_bootstrap_clusters() -> None:
    world = WireWorld().to(SwitchStage.ROLLED_BACK)
    reverts = [d for d in world.published if isinstance(d, SwitchDecision) and d.verdict is SwitchVerdict.REVERT]
    assert {(d.expects["attribution"], d.expects["legacy"]) for d in reverts} == {("new", "or_none")}


def test_the_record_of_the_switch_is_said_when_it_changes() -> None:
    records = DONE.records()
    stages = list(dict.fromkeys(r.verdict for r in records))
    assert stages == [S.NONE, S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.DONE]
    last = records[-1]
    assert last.ledgers == {LedgerStage.CLEANED: 3}
    assert (last.active, last.committed_epoch, last.registry) == ("new", 1, {"new": "active", "old": "deprecated"})
    assert last.cleanup_from is not None
    assert "3 of 3 ledgers moved" in last.explanation
    for one, other in pairwise(records):
        assert one.model_copy(update={"sequence": 0}) != other.model_copy(update={"sequence": 0})
    assert len({r.subject for r in records}) == 1


def test_a_clean_up_counts_what_is_deleted_and_never_what_was_moved_backwards() -> None:
    said = [r.explanation for r in DONE.records() if r.verdict is SwitchStage.CLEANUP]
    counted = list(dict.fromkeys(sentence.split(": ")[1].split(",")[0] for sentence in said))
    assert counted == [f"{n} of 3 moved ledgers deleted from old" for n in range(4)]


FULL = World().to(SwitchStage.DONE)


def test_a_batch_decides_as_its_events_one_by_one() -> None:
    """As far as the clock allows: events of one instant."""
    at_once: dict[int, list[Event]] = {}
    for now_ms, event in FULL.history:
        at_once.setdefault(now_ms, []).append(event)
    state = SwitchingState()
    words: list[DecisionDraft] = []
    for now_ms, events in at_once.items():
        state, said = apply(state, events, FULL.limits, now_ms)
        words.extend(change(s, cause=0) for s in said)
    assert state == FULL.state
    assert words == [change(s, cause=0) for s in FULL.said]


ORDERS_OF_A_RUN = (
    sum(s.verdict in (SwitchVerdict.START_COPY, SwitchVerdict.PROMOTE, SwitchVerdict.DELETE_OLD) for s in FULL.said) + 8
)


@for_each("lost", ["before the work", "after the work"])
@for_each("stage", [SwitchStage.LIVE_DUAL_READ, SwitchStage.CLEANUP])
@for_each("step", range(ORDERS_OF_A_RUN))
def test_a_run_killed_at_every_step_and_taken_over_comes_to_its_end(stage: SwitchStage, step: int, lost: str) -> None:
    world = well_at(stage)
    world.work(limit=step)
    if lost == "after the work" and world.orders:
        list(world.carry_out(world.orders[0]))
    world.orders.clear()
    world.state = stored(world.state)
    world.later().tell(world.lease_event(2))
    world.work()
    assert world.stage is (SwitchStage.HOLD if stage is SwitchStage.LIVE_DUAL_READ else SwitchStage.DONE)
    if stage is SwitchStage.LIVE_DUAL_READ:
        assert set(world.stages().values()) == {LedgerStage.PROMOTED}
    else:
        assert world.switch.ledgers == {LedgerStage.CLEANED: 3}


def test_every_event_heard_twice_changes_nothing() -> None:
    state = SwitchingState()
    for now_ms, event in FULL.history:
        state, _ = apply(state, (event,), FULL.limits, now_ms)
        again, said = apply(state, (event,), FULL.limits, now_ms)
        assert said == ()
        assert bare(again) == bare(state)


def test_everything_heard_again_at_the_end_changes_nothing() -> None:
    for order in (FULL.history, FULL.history[::-1]):
        state = FULL.state
        for _, event in order:
            state, said = apply(state, (event,), FULL.limits, FULL.now_ms)
            assert said == ()
        assert bare(state) == bare(FULL.state)


@for_each("order", list(permutations(range(4))))
def test_the_order_of_acks_and_sightings_does_not_matter(order: tuple[int, ...]) -> None:
    world = World().to(SwitchStage.TRIGGERED)
    events: list[Event] = [world.members_event(), world.follow("b1"), world.follow("b2"), world.cluster_event("old")]
    world.tell(*(events[i] for i in order))
    assert world.is_at(SwitchStage.TRIGGERED)
    world.later().tell(world.cluster_event("new"), world.cluster_event("old"))
    assert world.is_at(SwitchStage.LIVE_DUAL_READ)


def test_a_late_ack_of_an_earlier_switch_is_no_ack() -> None:
    world = World().to(SwitchStage.REJECTED)
    world.clusters["new"].hob = 5
    world.refresh().checked().triggered()
    late = world.report_event("b1", 1)
    world.tell(late)
    assert world.state.brokers[0].acked_epoch != world.switch.epoch


def test_without_a_valid_lease_nothing_is_ordered_and_with_one_it_goes_on() -> None:
    world = World().to(SwitchStage.BUILD)
    assert world.state.lease is not None
    world.state = replace(world.state, lease=replace(world.state.lease, valid_until_ms=world.now_ms))
    orders = list(world.orders)
    world.orders.clear()
    for order in orders:
        world.tell(*world.carry_out(order))
    assert world.orders == []
    world.tell(world.lease_event(1))
    world.work()
    assert world.is_at(SwitchStage.HOLD)


def test_a_lease_that_is_renewed_at_the_instant_of_its_end_repeats_open_orders() -> None:
    world = World().to(SwitchStage.BUILD)
    ordered = {order.op for order in world.orders}
    assert world.state.lease is not None
    world.state = replace(world.state, lease=replace(world.state.lease, valid_until_ms=world.now_ms))
    world.orders.clear()
    world.tell(world.lease_event(1))
    assert {order.op for order in world.orders} == ordered


def test_a_new_orchestrator_repeats_copies_although_a_broker_does_not_follow() -> None:
    world = World().to(SwitchStage.BUILD)
    world.tell(world.broker_event("b1", epoch=0, writes=("old",)))
    world.orders.clear()
    world.tell(world.lease_event(2))
    world.work()
    assert world.is_at(SwitchStage.HOLD)


def test_an_answer_to_an_order_before_the_present_one_changes_nothing() -> None:
    world = World().to(SwitchStage.PROMOTE)
    before, task = bare(world.state), world.task("/c1")
    assert world.tell(answer(LedgerOutcome.PROMOTED, task.ledger_id, task.op - 1)) == []
    assert bare(world.state) == before


def test_a_late_answer_to_an_earlier_order_is_not_taken_for_the_present_one() -> None:
    world = World().to(SwitchStage.BUILD)
    task = world.task("/c1")
    facts = world.facts("old", task.ledger_id)
    world.tell(answer(LedgerOutcome.FAILED, task.ledger_id, task.op))
    before = world.state
    late = answer(LedgerOutcome.COPIED, task.ledger_id, task.op, source=facts, target=facts)
    assert world.tell(late) == []
    assert bare(world.state) == bare(before)
