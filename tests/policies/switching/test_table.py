"""Every stage, every event: what is listed happens, anything else changes nothing and says so."""

from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from policies.switching.events import (
    Cleanup,
    Event,
    LedgerDone,
    Outcome,
    Precheck,
    Register,
    RegistrySeen,
    Rollback,
    Start,
    StatusDone,
    Tick,
    Unregister,
)
from policies.switching.limits import DAY_MS
from policies.switching.orders import Code, Verdict
from policies.switching.state import ENDED, Action, Stage, SwitchingState
from tests.policies.switching.world import Bookies, World, answer, stored

COUNTED, TAKEN = "counted", "taken"
"""Nothing but a counter changes; something is learned or asked, but the stage stays."""
Expected = Stage | Code | str
S = Stage
REJECTED = Code.INVALID_TRANSITION


def world_at(stage: Stage) -> World:
    """The world at a stage; a third cluster is registered as well, and the stage's own work has begun."""
    world = World()
    if stage is Stage.NONE:
        del world.clusters["new"]
        return world.registered()
    world.clusters["third"] = Bookies("third", "id-of-third", hob=9)
    world.to(stage)
    if stage is Stage.CLEANUP:
        world.work(Verdict.TAKE_INVENTORY)
    return world.later()


def register(world: World, name: str, instance: str | None, root: str = "/ledgers") -> Event:
    return Register(key=world.key(), name=name, uri=f"zk://other-spelling/{name}", instance_id=instance, root=root)


def answered(outcome: Outcome) -> Callable[[World], Event]:
    def build(world: World) -> Event:
        switch = world.state.switch
        if switch is None or not switch.units:
            return LedgerDone(2, 1, outcome)
        unit = world.unit("/c1")
        facts = world.facts("old", unit.ledger_id) if unit.ledger_id in world.clusters["old"].ledgers else None
        more = {"source": facts, "target": facts, "new_id": 2**32 + 77, "attribution": "new"}
        done = answer(outcome, **more)
        return LedgerDone(unit.ledger_id, unit.op, outcome, done.source, done.target, (), done.new_id, done.attribution)

    return build


def status(action: Action, *, ok: bool) -> Callable[[World], Event]:
    return lambda w: StatusDone(action, w.state.switch.op if w.state.switch else 1, ok)


LIVE = (S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK, S.DONE_WITH_FAILURES)
AFTER_PLAN = (S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK, S.ROLLED_BACK, S.DONE, S.DONE_WITH_FAILURES)


def each(stages: tuple[Stage, ...], expected: Expected) -> dict[Stage, Expected]:
    return dict.fromkeys(stages, expected)


def answers(action_at: Mapping[Stage, Expected]) -> dict[Stage, Expected]:
    """Of an answer about /c1: an invalid one where something else is asked, a late one where nothing is."""
    idle = each((S.HOLD, S.ROLLED_BACK, S.DONE, S.DONE_WITH_FAILURES), COUNTED)
    return {**idle, **action_at}


EVENTS: dict[str, tuple[Callable[[World], Event], Expected, dict[Stage, Expected]]] = {
    # name: (event, what it does at most stages, at which it does something else)
    "register, new": (lambda w: register(w, "fourth", "id-of-fourth"), TAKEN, {}),
    "register, identical": (lambda w: register(w, "old", "id-of-old"), TAKEN, {}),
    "register, identical but for a slash": (lambda w: register(w, "old", "id-of-old", "/ledgers/"), TAKEN, {}),
    "register, the name of another": (lambda w: register(w, "old", "id-of-fourth"), Code.NAME_CONFLICT, {}),
    "register, another name of one": (lambda w: register(w, "fourth", "id-of-old"), Code.URI_DUPLICATE, {}),
    "register, another root of one": (lambda w: register(w, "fourth", "id-of-old", "/other"), TAKEN, {}),
    "register, unreadable": (lambda w: register(w, "fourth", None), Code.NOT_FOUND, {}),
    "unregister, active": (lambda w: Unregister(key=w.key(), name=w.state.active() or ""), Code.IN_USE, {}),
    "unregister, unknown": (lambda w: Unregister(key=w.key(), name="fourth"), Code.NOT_FOUND, {}),
    "unregister, the target": (
        lambda w: Unregister(key=w.key(), name="new"), Code.IN_USE, {S.NONE: Code.NOT_FOUND},
    ),
    "precheck": (
        lambda w: Precheck(key=w.key(), target="new"), REJECTED,
        {S.NONE: Code.NOT_FOUND, **each((S.REGISTERED, S.PRECHECKED, S.REJECTED, S.ROLLED_BACK, S.DONE), TAKEN)},
    ),
    "precheck, unknown": (lambda w: Precheck(key=w.key(), target="fourth"), Code.NOT_FOUND, {}),
    "prechecked": (
        lambda w: w.prechecked_event() if "new" in w.clusters else replace_check(w), REJECTED,
        {**each((S.REGISTERED, S.PRECHECKED), S.PRECHECKED), **each((S.REJECTED, S.ROLLED_BACK, S.DONE), TAKEN)},
    ),
    "start": (
        lambda w: w.start_event(), TAKEN,
        {
            S.NONE: Code.NOT_FOUND, S.REGISTERED: Code.PRECHECK_FAILED, S.PRECHECKED: S.TRIGGERED,
            S.DONE: Code.NOT_FOUND, S.DONE_WITH_FAILURES: S.BUILD, S.REJECTED: S.TRIGGERED,
            S.ROLLED_BACK: S.TRIGGERED,
        },
    ),
    "start, another": (
        lambda w: w.start_event("third"), Code.PRECHECK_FAILED,
        {S.NONE: Code.NOT_FOUND, **each(LIVE, Code.SWITCH_IN_PROGRESS)},
    ),
    "start, of another epoch": (lambda w: w.start_event(expected_epoch=99), REJECTED, {}),
    "rollback": (
        lambda w: Rollback(key=w.key()), REJECTED,
        {S.BUILD: S.ROLLED_BACK, **each((S.PROMOTE, S.HOLD), S.ROLLBACK), S.CLEANUP: Code.WINDOW_EXPIRED},
    ),
    "cleanup, too soon": (lambda w: Cleanup(key=w.key()), REJECTED, {S.HOLD: Code.WINDOW_NOT_ELAPSED}),
    "cleanup, too soon, dry run": (
        lambda w: Cleanup(key=w.key(), dry_run=True), REJECTED, {S.HOLD: Code.WINDOW_NOT_ELAPSED},
    ),
    "close-client": (
        lambda w: w.close_event(), REJECTED, each((S.DONE, S.DONE_WITH_FAILURES), Code.CLIENT_IN_USE),
    ),
    "ack": (lambda w: w.follow("b1"), TAKEN, {}),
    "ack, stale": (lambda w: w.broker_event("b1", epoch=-5), TAKEN, each(LIVE, COUNTED)),
    "client_init_failed": (
        lambda w: w.broker_event("b1", failed=True, epoch=w.state.epoch), TAKEN, {S.TRIGGERED: S.REJECTED},
    ),
    "members": (lambda w: w.members_event(), TAKEN, {}),
    "cluster": (lambda w: w.cluster_event("old"), TAKEN, {}),
    "inventory": (lambda w: w.inventory_event("new" if "new" in w.clusters else "old"), TAKEN, {
        S.LIVE_DUAL_READ: S.BUILD,
    }),
    "lease, newer": (lambda w: w.lease_event(2), TAKEN, {}),
    "lease, renewed": (lambda w: w.lease_event(1), TAKEN, {}),
    "lease, repeated": (lambda w: w.lease_event(1, -DAY_MS), COUNTED, {}),
    "lease, older": (lambda w: w.lease_event(0), REJECTED, {}),
    "registry": (
        lambda w: RegistrySeen(tuple(replace(e, version=7) for e in w.state.entries), "x", None, 0), TAKEN, {},
    ),
    "answer: copied": (answered(Outcome.COPIED), REJECTED, answers({S.BUILD: TAKEN})),
    "answer: exists": (answered(Outcome.EXISTS), REJECTED, answers({S.BUILD: TAKEN})),
    "answer: source unreadable": (answered(Outcome.SOURCE_UNREADABLE), REJECTED, answers({S.BUILD: TAKEN})),
    "answer: copy deleted": (answered(Outcome.COPY_DELETED), REJECTED, answers({})),
    "answer: promoted": (answered(Outcome.PROMOTED), REJECTED, answers({S.PROMOTE: TAKEN})),
    "answer: conflict": (answered(Outcome.CONFLICT), REJECTED, answers({S.PROMOTE: TAKEN, S.ROLLBACK: TAKEN})),
    "answer: rolled over": (
        answered(Outcome.ROLLED_OVER), REJECTED, answers({S.PROMOTE: TAKEN, S.ROLLBACK: TAKEN}),
    ),
    "answer: advanced": (answered(Outcome.ADVANCED), REJECTED, answers({S.PROMOTE: TAKEN})),
    "answer: reverted": (answered(Outcome.REVERTED), REJECTED, answers({S.ROLLBACK: TAKEN})),
    "answer: deleted": (answered(Outcome.DELETED), REJECTED, answers({S.CLEANUP: TAKEN})),
    "answer: failed": (
        answered(Outcome.FAILED), REJECTED, answers(each((S.BUILD, S.PROMOTE, S.ROLLBACK, S.CLEANUP), TAKEN)),
    ),
    "answer about no ledger of the plan": (lambda w: LedgerDone(99, 1, Outcome.COPIED), REJECTED, {S.DONE: COUNTED}),
    "answer to an order to come": (lambda w: LedgerDone(2, 10**9, Outcome.COPIED), REJECTED, {}),
    "status written": (status(Action.STATUS_OLD, ok=True), REJECTED, each((S.DONE, S.DONE_WITH_FAILURES), COUNTED)),
    "status failed": (status(Action.STATUS_NEW, ok=False), REJECTED, each((S.DONE, S.DONE_WITH_FAILURES), COUNTED)),
    "tick": (lambda w: Tick(), COUNTED, {}),
}  # fmt: skip


def replace_check(world: World) -> Event:
    """The report on a target that was never registered."""
    world.clusters["new"] = Bookies("new", "id-of-new", hob=1)
    event = world.prechecked_event()
    del world.clusters["new"]
    return event


CASES = [(stage, name) for stage in Stage for name in EVENTS]


def bare(state: SwitchingState) -> SwitchingState:
    """Without what counts events."""
    return replace(state, counts=SwitchingState().counts, commands=())


@pytest.mark.parametrize(("stage", "name"), CASES, ids=[f"{stage.value}-{name}" for stage, name in CASES])
def test_an_event_does_what_the_table_says_or_nothing(stage: Stage, name: str) -> None:
    build, most, at = EVENTS[name]
    expected = at.get(stage, most)
    world = world_at(stage)
    before, stage_before = world.state, world.state.stage("new", world.now_ms)
    switch_stage = before.switch.stage if before.switch else None
    said = world.tell(build(world))
    codes = [s.code for s in said if s.verdict in (Verdict.REJECT, Verdict.PREVIEW)]
    after, moved = world.state, world.state.stage("new", world.now_ms)
    if isinstance(expected, Code):
        assert codes == [expected]
        assert bare(after) == bare(before)
        assert after.counts != before.counts or said[0].verdict is Verdict.PREVIEW
    elif expected == COUNTED:
        assert said == []
        assert moved is stage_before
        if not name.startswith("ack"):
            assert bare(after) == bare(before)
    else:
        assert codes == []
        assert (after.switch.stage if after.switch else None) is (
            expected if isinstance(expected, Stage) and expected is not S.PRECHECKED else switch_stage
        )
        if isinstance(expected, Stage) and expected not in ENDED:
            assert moved is expected
    assert not [s for s in said if s.verdict is Verdict.HALT]
    assert stored(after) == after


def test_every_stage_is_reached() -> None:
    reached = {stage: world_at(stage) for stage in Stage}
    for stage, world in reached.items():
        if world.state.switch is not None:
            assert world.switch.stage is stage
        else:
            assert world.state.stage("new", world.now_ms) is stage


# --- the ledgers' own stages


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("action", [a for a in Action if a not in (Action.STATUS_OLD, Action.STATUS_NEW)])
@pytest.mark.parametrize("path", ["/c1", "/s1"])
def test_an_answer_fits_what_was_asked_or_is_invalid(path: str, action: Action, outcome: Outcome) -> None:
    """Every outcome, whatever an executor was asked; schemas neither advance nor roll over."""
    fits = {
        Action.COPY: {Outcome.COPIED, Outcome.EXISTS, Outcome.SOURCE_UNREADABLE, Outcome.FAILED},
        Action.DELETE_COPY: {Outcome.COPY_DELETED, Outcome.FAILED},
        Action.PROMOTE: {Outcome.PROMOTED, Outcome.CONFLICT, Outcome.FAILED},
        Action.ROLL_OVER: {Outcome.FAILED},
        Action.REVERT: {Outcome.REVERTED, Outcome.CONFLICT, Outcome.FAILED},
        Action.DELETE_OLD: {Outcome.DELETED, Outcome.FAILED},
    }.get(action, set())
    if path == "/c1" and action is Action.PROMOTE:
        fits |= {Outcome.ROLLED_OVER, Outcome.ADVANCED}
    if path == "/c1" and action in (Action.ROLL_OVER, Action.REVERT):
        fits |= {Outcome.ROLLED_OVER}
    world = World().to(Stage.HOLD)
    unit = replace(world.unit(path), awaiting=action)
    units = tuple(unit if u.ledger_id == unit.ledger_id else u for u in world.switch.units)
    world.state = replace(world.state, switch=replace(world.switch, units=units))
    before = world.state
    facts = world.facts("old", unit.ledger_id)
    said = world.tell(LedgerDone(unit.ledger_id, unit.op, outcome, facts, facts, (), 2**32 + 9, "new"))
    if action in (Action.NONE, Action.GIVEN_UP):
        assert said == []
        assert world.state.counts.repeated == before.counts.repeated + 1
    elif outcome in fits:
        assert world.unit(path) != unit
        assert REJECTED not in [s.code for s in said]
    else:
        assert [s.code for s in said] == [REJECTED]
        assert bare(world.state) == bare(before)


def test_a_command_is_heard_once() -> None:
    world = world_at(Stage.PRECHECKED)
    event = world.start_event()
    world.tell(event)
    before = world.state
    assert world.tell(event) == []
    assert bare(world.state) == bare(before)
    assert world.state.counts.repeated == before.counts.repeated + 1


def test_starting_needs_the_digest_of_the_last_report() -> None:
    world = world_at(Stage.PRECHECKED)
    for digest in (None, "another"):
        assert [s.code for s in world.tell(Start(key=world.key(), target="new", digest=digest))] == [
            Code.PRECHECK_FAILED
        ]
