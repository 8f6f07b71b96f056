"""Interrupted anywhere, repeated, late and out of order: the same decisions, and the same end."""

from dataclasses import replace as change
from itertools import permutations

import pytest
from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.readings import LedgerOutcome
from policies.switching.state import LedgerStage, SwitchingState, SwitchStage
from policies.switching.transition import DecisionDraft
from tests.cases import for_each
from tests.policies.switching.events import BrokerSeen, Event, LedgerResult
from tests.policies.switching.judge.test_judge import bare
from tests.policies.switching.world import World, apply, stored, well_at

FULL = World().to(SwitchStage.DONE)
RUNS = {
    stage.value: World().to(stage)
    for stage in (SwitchStage.DONE, SwitchStage.ROLLED_BACK, SwitchStage.DONE_WITH_FAILURES)
}


def steps(world: World) -> list[tuple[SwitchingState, tuple[DecisionDraft, ...]]]:
    """A run's states and words, event by event."""
    state, run = SwitchingState(), []
    for now_ms, event in world.history:
        state, said = apply(state, (event,), world.limits, now_ms)
        run.append((state, said))
    return run


@pytest.mark.parametrize("name", RUNS)
def test_every_prefix_of_a_run_cut_and_resumed_decides_the_same(name: str) -> None:
    world = RUNS[name]
    run = steps(world)
    assert run[-1][0] == world.state
    for cut in range(len(run)):
        state = stored(run[cut][0])
        for (now_ms, event), (expected, words) in zip(world.history[cut + 1 :], run[cut + 1 :], strict=True):
            state, said = apply(state, (event,), world.limits, now_ms)
            assert said == words
            assert state == expected


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
    late = BrokerSeen("b1", 50, 1, failed=False, writes=(), reads=(), at_ms=world.now_ms)
    world.tell(late)
    assert world.state.brokers[0].acked_epoch != world.switch.epoch


def test_an_orchestrator_with_an_old_lease_is_turned_away_and_the_new_one_asks_again() -> None:
    world = World().to(SwitchStage.BUILD)
    asked = {(o.verdict, o.op) for o in world.orders if o.task}
    said = world.later().tell(world.lease_event(2))
    assert {(s.verdict, s.op) for s in said if s.task} == asked, "under the same numbers, so nothing is done twice"
    before = world.state
    said = world.tell(world.lease_event(1))
    assert [s.code for s in said] == [RejectCode.INVALID_TRANSITION]
    assert bare(world.state) == bare(before)


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


def test_a_late_answer_to_an_earlier_order_is_not_taken_for_the_present_one() -> None:
    world = World().to(SwitchStage.BUILD)
    task = world.task("/c1")
    facts = world.facts("old", task.ledger_id)
    world.tell(LedgerResult(task.ledger_id, task.op, LedgerOutcome.FAILED))
    before = world.state
    assert world.tell(LedgerResult(task.ledger_id, task.op, LedgerOutcome.COPIED, facts, facts)) == []
    assert bare(world.state) == bare(before)
