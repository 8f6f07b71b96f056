"""Every stage, every event: what is listed happens, anything else changes nothing and says so."""

from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchVerdict
from policies.switching.readings import LedgerOutcome
from policies.switching.settings import DAY_MS
from policies.switching.state import ENDED, SwitchAction, SwitchingState, SwitchStage
from tests.cases import case
from tests.policies.switching.events import Event, answer, command, status
from tests.policies.switching.world import Bookies, World, built_once, stored, well_at

IGNORED, TAKEN = "ignored", "taken"
"""Nothing changes; something is learned or asked, but the stage stays."""
Expected = SwitchStage | RejectCode | str
S = SwitchStage
REJECTED = RejectCode.INVALID_TRANSITION


@built_once
def world_at(stage: SwitchStage) -> World:
    """The world at a stage; a third cluster is registered as well, and the stage's own work has begun."""
    world = World()
    if stage is SwitchStage.NONE:
        del world.clusters["new"]
        return world.registered()
    world.clusters["third"] = Bookies("third", "id-of-third", hob=9)
    world.to(stage)
    if stage is SwitchStage.CLEANUP:
        world.work(SwitchVerdict.TAKE_INVENTORY)
    return world.later()


def register(world: World, name: str, instance: str | None, root: str = "/ledgers") -> Event:
    uri = f"zk://other-spelling/{name}"
    return command("register", world.key(), name=name, uri=uri, instance_id=instance, root=root)


def answered(outcome: LedgerOutcome) -> Callable[[World], Event]:
    def build(world: World) -> Event:
        switch = world.state.switch
        if switch is None or not switch.tasks:
            return answer(outcome, 2, 1)
        task = world.task("/c1")
        facts = world.facts("old", task.ledger_id) if task.ledger_id in world.clusters["old"].ledgers else None
        more = {"source": facts, "target": facts, "new_id": 2**32 + 77, "attribution": "new"}
        return answer(outcome, task.ledger_id, task.op, **more)

    return build


def written(*, ok: bool) -> Callable[[World], Event]:
    return lambda w: status(w.state.switch.op if w.state.switch else 1, ok=ok)


OVER = (S.REJECTED, S.ROLLED_BACK, S.ROLLED_BACK_WITH_FAILURES, S.ABORTED)
LIVE = (S.TRIGGERED, S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD, S.CLEANUP, S.ROLLBACK, S.DONE_WITH_FAILURES)


REVERTS = (S.PROMOTE, S.ROLLBACK, S.ABORTED)
"""Stages in which something is asked of /c1 that may conflict."""


def each(stages: tuple[SwitchStage, ...], expected: Expected) -> dict[SwitchStage, Expected]:
    return dict.fromkeys(stages, expected)


def answers(action_at: Mapping[SwitchStage, Expected]) -> dict[SwitchStage, Expected]:
    """Of an answer about /c1: an invalid one where something else is asked, a late one where nothing is."""
    idle = each((S.HOLD, S.ROLLED_BACK, S.ROLLED_BACK_WITH_FAILURES, S.DONE, S.DONE_WITH_FAILURES), IGNORED)
    return {**idle, **action_at}


EVENTS: dict[str, tuple[Callable[[World], Event], Expected, dict[SwitchStage, Expected]]] = {
    # name: (event, what it does at most stages, at which it does something else)
    "register, new": (lambda w: register(w, "fourth", "id-of-fourth"), TAKEN, {}),
    "register, identical": (lambda w: register(w, "old", "id-of-old"), TAKEN, {}),
    "register, identical but for a slash": (lambda w: register(w, "old", "id-of-old", "/ledgers/"), TAKEN, {}),
    "register, the name of another": (lambda w: register(w, "old", "id-of-fourth"), RejectCode.NAME_CONFLICT, {}),
    "register, another name of one": (lambda w: register(w, "fourth", "id-of-old"), RejectCode.URI_DUPLICATE, {}),
    "register, another root of one": (lambda w: register(w, "fourth", "id-of-old", "/other"), TAKEN, {}),
    "register, unreadable": (lambda w: register(w, "fourth", None), RejectCode.NOT_FOUND, {}),
    "unregister, active": (lambda w: command("unregister", w.key(), name=w.state.active()), RejectCode.IN_USE, {}),
    "unregister, unknown": (lambda w: command("unregister", w.key(), name="fourth"), RejectCode.NOT_FOUND, {}),
    "unregister, the target": (
        lambda w: command("unregister", w.key(), name="new"), RejectCode.IN_USE, {S.NONE: RejectCode.NOT_FOUND},
    ),
    "precheck": (
        lambda w: command("precheck", w.key(), target="new"), REJECTED,
        {S.NONE: RejectCode.NOT_FOUND, **each((S.REGISTERED, S.PRECHECKED, *OVER, S.DONE), TAKEN)},
    ),
    "precheck, unknown": (lambda w: command("precheck", w.key(), target="fourth"), RejectCode.NOT_FOUND, {}),
    "prechecked": (
        lambda w: w.prechecked_event() if "new" in w.clusters else replace_check(w), REJECTED,
        {**each((S.REGISTERED, S.PRECHECKED), S.PRECHECKED), **each((*OVER, S.DONE), TAKEN)},
    ),
    "start": (
        lambda w: w.start_event(), TAKEN,
        {
            S.NONE: RejectCode.NOT_FOUND, S.REGISTERED: RejectCode.PRECHECK_FAILED, S.PRECHECKED: S.TRIGGERED,
            S.DONE: RejectCode.ALREADY_ACTIVE, S.DONE_WITH_FAILURES: S.BUILD, **each(OVER, S.TRIGGERED),
            S.REJECTED: RejectCode.PRECHECK_FAILED,  # old was advanced, so that brokers got greater ids there
        },
    ),
    "start, another": (
        lambda w: w.start_event("third"), RejectCode.PRECHECK_FAILED,
        {S.NONE: RejectCode.NOT_FOUND, **each(LIVE, RejectCode.SWITCH_IN_PROGRESS)},
    ),
    "start, of another epoch": (lambda w: w.start_event(expected_epoch=99), REJECTED, {}),
    "rollback": (
        lambda w: command("rollback", w.key()), REJECTED,
        {
            **each((S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD), S.ROLLBACK),
            S.CLEANUP: RejectCode.WINDOW_EXPIRED, **each((S.ABORTED, S.ROLLED_BACK_WITH_FAILURES), S.ROLLBACK),
        },
    ),
    "rollback, with brokers": (
        lambda w: command("rollback", w.key(), attribution_only=False), REJECTED,
        {
            **each((S.LIVE_DUAL_READ, S.BUILD, S.PROMOTE, S.HOLD), S.ROLLBACK),
            S.CLEANUP: RejectCode.WINDOW_EXPIRED,
            **each((S.ROLLED_BACK, S.ROLLED_BACK_WITH_FAILURES, S.ABORTED), S.ROLLBACK),
        },
    ),
    "abort": (lambda w: command("abort", w.key()), REJECTED, {S.TRIGGERED: S.ROLLBACK}),
    "pause": (
        lambda w: command("pause", w.key()), REJECTED,
        each((*(s for s in LIVE if s is not S.DONE_WITH_FAILURES), S.ROLLED_BACK, S.ROLLED_BACK_WITH_FAILURES), TAKEN),
    ),
    "resume, nothing held": (lambda w: command("resume", w.key()), REJECTED, {}),
    "cleanup, too soon": (lambda w: command("cleanup", w.key()), REJECTED, {S.HOLD: RejectCode.WINDOW_NOT_ELAPSED}),
    "cleanup, too soon, dry run": (
        lambda w: command("cleanup", w.key(), dry_run=True), REJECTED, {S.HOLD: RejectCode.WINDOW_NOT_ELAPSED},
    ),
    "end": (
        lambda w: command("end", w.key()), REJECTED,
        {S.HOLD: S.CLEANUP, S.CLEANUP: TAKEN, S.ROLLBACK: S.ABORTED, S.DONE_WITH_FAILURES: S.ABORTED},
    ),
    "end, and delete": (lambda w: command("end", w.key(), delete=True), REJECTED, {S.HOLD: S.CLEANUP}),
    "close-client": (
        lambda w: w.close_event(), REJECTED, each((S.DONE, S.DONE_WITH_FAILURES), RejectCode.CLIENT_IN_USE),
    ),
    "ack": (lambda w: w.follow("b1"), TAKEN, {}),
    "ack, stale": (lambda w: w.broker_event("b1", epoch=0), TAKEN, {**each(LIVE, IGNORED), S.CLEANUP: TAKEN}),
    "client_init_failed": (lambda w: w.broker_event("b1", failed=True, epoch=w.state.epoch), TAKEN, {}),
    "members": (lambda w: w.members_event(), TAKEN, {}),
    "cluster": (lambda w: w.cluster_event("old"), TAKEN, {}),
    "inventory": (
        lambda w: w.inventory_event("new" if "new" in w.clusters else "old"), TAKEN, {S.LIVE_DUAL_READ: S.BUILD},
    ),
    "lease, newer": (lambda w: w.lease_event(2), TAKEN, {}),
    "lease, renewed": (lambda w: w.lease_event(1), TAKEN, {}),
    "lease, repeated": (lambda w: w.lease_event(1, -DAY_MS), IGNORED, {}),
    "lease, older": (lambda w: w.lease_event(0), REJECTED, {}),
    "registry": (
        lambda w: w.registry_event(clusters=tuple(replace(e, version=7) for e in w.state.entries)), TAKEN, {},
    ),
    "answer: copied": (answered(LedgerOutcome.COPIED), REJECTED, answers({S.BUILD: TAKEN})),
    "answer: exists": (answered(LedgerOutcome.EXISTS), REJECTED, answers({S.BUILD: TAKEN})),
    "answer: source unreadable": (answered(LedgerOutcome.SOURCE_UNREADABLE), REJECTED, answers({S.BUILD: TAKEN})),
    "answer: copy deleted": (answered(LedgerOutcome.COPY_DELETED), REJECTED, answers({})),
    "answer: promoted": (answered(LedgerOutcome.PROMOTED), REJECTED, answers({S.PROMOTE: TAKEN})),
    "answer: conflict": (answered(LedgerOutcome.CONFLICT), REJECTED, answers(each(REVERTS, TAKEN))),
    "answer: rolled over": (answered(LedgerOutcome.ROLLED_OVER), REJECTED, answers(each(REVERTS, TAKEN))),
    "answer: advanced": (answered(LedgerOutcome.ADVANCED), REJECTED, answers({S.PROMOTE: TAKEN})),
    "answer: reverted": (answered(LedgerOutcome.REVERTED), REJECTED, answers(each((S.ROLLBACK, S.ABORTED), TAKEN))),
    "answer: deleted": (answered(LedgerOutcome.DELETED), REJECTED, answers({S.CLEANUP: TAKEN})),
    "answer: failed": (answered(LedgerOutcome.FAILED), REJECTED, answers(each((*REVERTS, S.BUILD, S.CLEANUP), TAKEN))),
    "answer about no ledger of the plan": (
        lambda w: answer(LedgerOutcome.COPIED, 99, 1), REJECTED, {S.DONE: IGNORED},
    ),
    "answer to an order to come": (lambda w: answer(LedgerOutcome.COPIED, 2, 10**9), REJECTED, {}),
    "status written": (
        written(ok=True), REJECTED, each((S.DONE, S.DONE_WITH_FAILURES), IGNORED),
    ),
    "status failed": (
        written(ok=False), REJECTED, each((S.DONE, S.DONE_WITH_FAILURES), IGNORED),
    ),
    "tick": (lambda w: None, IGNORED, {}),
}  # fmt: skip


def replace_check(world: World) -> Event:
    """The report on a target that was never registered."""
    world.clusters["new"] = Bookies("new", "id-of-new", hob=1)
    event = world.prechecked_event()
    del world.clusters["new"]
    return event


def bare(state: SwitchingState) -> SwitchingState:
    """Without the commands, which are kept however they are judged."""
    return replace(state, commands=(), commanded_ms=-1)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_does_what_the_table_says_or_nothing(name: str) -> None:
    for stage in SwitchStage:
        with case(stage):
            it_does_what_the_table_says_or_nothing(stage, name)


def it_does_what_the_table_says_or_nothing(stage: SwitchStage, name: str) -> None:
    build, most, at = EVENTS[name]
    expected = at.get(stage, most)
    world = world_at(stage)
    before, stage_before = world.state, world.state.stage("new", world.now_ms)
    switch_stage = before.switch.stage if before.switch else None
    said = world.tell(build(world))
    codes = [s.code for s in said if s.verdict in (SwitchVerdict.REJECT, SwitchVerdict.PREVIEW)]
    after, moved = world.state, world.state.stage("new", world.now_ms)
    if isinstance(expected, RejectCode):
        assert codes == [expected]
        assert bare(after) == bare(before)
    elif expected == IGNORED:
        assert said == []
        assert moved is stage_before
        if not name.startswith("ack"):
            assert bare(after) == bare(before)
    else:
        assert codes == []
        assert (after.switch.stage if after.switch else None) is (
            expected if isinstance(expected, SwitchStage) and expected is not S.PRECHECKED else switch_stage
        )
        if isinstance(expected, SwitchStage) and expected not in ENDED:
            assert moved is expected
    assert not [s for s in said if s.verdict is SwitchVerdict.HALT]
    assert stored(after) == after


ASKED = [a for a in SwitchAction if a is not SwitchAction.STATUS_NEW]


@pytest.mark.parametrize("action", ASKED)
@pytest.mark.parametrize("path", ["/c1", "/s1"])
def test_an_answer_fits_what_was_asked_or_is_invalid(path: str, action: SwitchAction) -> None:
    """Every outcome, whatever an executor was asked; schemas neither advance nor roll over."""
    fits = {
        SwitchAction.COPY: {LedgerOutcome(name) for name in ("copied", "exists", "source_unreadable", "failed")},
        SwitchAction.DELETE_COPY: {LedgerOutcome.COPY_DELETED, LedgerOutcome.FAILED},
        SwitchAction.PROMOTE: {LedgerOutcome.PROMOTED, LedgerOutcome.CONFLICT, LedgerOutcome.FAILED},
        SwitchAction.ROLL_OVER: {LedgerOutcome.FAILED},
        SwitchAction.REVERT: {LedgerOutcome.REVERTED, LedgerOutcome.CONFLICT, LedgerOutcome.FAILED},
        SwitchAction.DELETE_OLD: {LedgerOutcome.DELETED, LedgerOutcome.FAILED},
    }.get(action, set())
    if path == "/c1" and action is SwitchAction.PROMOTE:
        fits |= {LedgerOutcome.ROLLED_OVER, LedgerOutcome.ADVANCED}
    if path == "/c1" and action in (SwitchAction.ROLL_OVER, SwitchAction.REVERT):
        fits |= {LedgerOutcome.ROLLED_OVER}
    for outcome in LedgerOutcome:
        with case(outcome):
            it_fits_or_is_invalid(path, action, outcome, fits=outcome in fits)


def it_fits_or_is_invalid(path: str, action: SwitchAction, outcome: LedgerOutcome, *, fits: bool) -> None:
    world = well_at(SwitchStage.HOLD)
    task = replace(world.task(path), awaiting=action)
    tasks = tuple(task if u.ledger_id == task.ledger_id else u for u in world.switch.tasks)
    world.state = replace(world.state, switch=replace(world.switch, tasks=tasks))
    before = world.state
    facts = world.facts("old", task.ledger_id)
    more = {"source": facts, "target": facts, "new_id": 2**32 + 9, "attribution": "new"}
    said = world.tell(answer(outcome, task.ledger_id, task.op, **more))
    if action in (SwitchAction.NONE, SwitchAction.GIVEN_UP):
        assert said == []
        assert bare(world.state) == bare(before)
    elif fits:
        assert world.task(path) != task
        assert REJECTED not in [s.code for s in said]
    else:
        assert [s.code for s in said] == [REJECTED]
        assert bare(world.state) == bare(before)


def test_starting_needs_the_digest_of_the_last_report() -> None:
    world = world_at(SwitchStage.PRECHECKED)
    for digest in (None, "another"):
        said = world.tell(command("start", world.key(), target="new", digest=digest))
        assert [each.code for each in said] == [RejectCode.PRECHECK_FAILED]
