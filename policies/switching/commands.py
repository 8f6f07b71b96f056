"""What people ask for: rows 1 to 4, 18, 20, 23 and 24 of the table."""

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.events import Cleanup, CloseClient, Precheck, Register, Rollback, Start, Unregister
from policies.switching.intents import direct, issue_again, remove_registry, take_inventory, write_registry
from policies.switching.orders import Code, Verdict, Why
from policies.switching.precheck import Reason
from policies.switching.state import (
    DELETING,
    FAILED,
    Action,
    Entry,
    LedgerStage,
    Stage,
    Status,
    Switch,
    put,
)
from policies.switching.turn import Turn

_COLLISIONS = frozenset({Reason.FOREIGN_ID, Reason.DELETED_ID})
_CAN_ROLL_BACK = frozenset({Stage.BUILD, Stage.PROMOTE, Stage.HOLD})


def register(turn: Turn, asked: Register) -> None:
    """Row 1. The first cluster ever registered is the active one, and the one that legacy references belong to."""
    if asked.instance_id is None or asked.root is None:
        turn.reject(Code.NOT_FOUND, f"no BookKeeper cluster could be read at {asked.uri}", _command(asked.key))
        return
    state, identity = turn.state, (asked.instance_id, asked.root.rstrip("/"))
    if why := guards.name_is_free(state, asked.name, *identity):
        turn.reject(Code.NAME_CONFLICT, why, _command(asked.key))
        return
    if why := guards.identity_is_new(state, asked.name, *identity):
        turn.reject(Code.URI_DUPLICATE, why, _command(asked.key))
        return
    known = state.entry(asked.name)
    status = known.status if known else Status.STANDBY if state.entries else Status.ACTIVE
    entry = Entry(asked.name, asked.uri, *identity, status, known.version if known else None)
    turn.update(
        entries=put(state.entries, entry), bootstrap=state.bootstrap or asked.name,
        removed=tuple(name for name in state.removed if name != asked.name),
    )  # fmt: skip
    write_registry(turn, entry, Why.COMMANDED)


def unregister(turn: Turn, asked: Unregister) -> None:
    """Row 2."""
    known = turn.state.entry(asked.name)
    if known is None:
        turn.reject(Code.NOT_FOUND, f"{asked.name} is not registered", _command(asked.key))
    elif why := guards.is_unused(turn.state, asked.name):
        turn.reject(Code.IN_USE, f"{asked.name} cannot be removed: {why}", _command(asked.key))
    else:
        turn.update(
            entries=tuple(e for e in turn.state.entries if e.name != asked.name),
            checks=tuple(c for c in turn.state.checks if c.target != asked.name),
            removed=tuple(sorted({*turn.state.removed, asked.name})),
        )
        remove_registry(turn, asked.name, known.version, Why.COMMANDED)


def precheck(turn: Turn, asked: Precheck) -> None:
    """Row 3, its request; also when it was checked before, or its last switch is over."""
    stage, source = turn.state.stage(asked.target, turn.now_ms), turn.state.committed()
    if stage is Stage.NONE or source is None:
        turn.reject(Code.NOT_FOUND, f"{asked.target} is not registered", _command(asked.key))
    elif stage not in (Stage.REGISTERED, Stage.PRECHECKED):
        turn.reject(Code.INVALID_TRANSITION, f"the switch to {asked.target} is at {stage.value}", _command(asked.key))
    else:
        turn.say(
            Verdict.RUN_PRECHECK, Why.COMMANDED, f"check whether brokers can move from {source} to {asked.target}",
            subject=f"prechecks/{asked.target}", details={"source": source, "target": asked.target},
        )  # fmt: skip


def start(turn: Turn, asked: Start) -> None:
    """Rows 4 and 24; the same target again drives its switch on."""
    live, source = turn.state.live(), turn.state.committed()
    if live is not None and live.target == asked.target:
        _drive_on(turn, live)
        return
    refusal = _refusal_to_start(turn, asked, source)
    if refusal is not None or source is None:
        code, why = refusal or (Code.NOT_FOUND, "no cluster is active")
        turn.reject(code, f"the switch to {asked.target} does not start: {why}", _command(asked.key))
        return
    epoch = turn.state.epoch + 1
    floor = _next_id(turn, asked.target)
    turn.begin(
        Switch(
            source=source, target=asked.target, stage=Stage.TRIGGERED, epoch=epoch,
            started_ms=turn.now_ms, target_floor=floor,
        )
    )  # fmt: skip
    turn.say(Verdict.ADVANCE, Why.COMMANDED, f"the switch from {source} to {asked.target} begins, epoch {epoch}")
    direct(turn, asked.target, Why.COMMANDED)


def _refusal_to_start(turn: Turn, asked: Start, source: str | None) -> tuple[Code, str] | None:
    """The first guard of row 4 that does not hold."""
    state, target, now_ms = turn.state, asked.target, turn.now_ms
    if why := guards.no_other_switch(state):
        return Code.SWITCH_IN_PROGRESS, why
    if state.entry(target) is None or source is None:
        return Code.NOT_FOUND, f"{target} is not registered"
    if why := guards.target_is_standby(state, target):
        return Code.NOT_FOUND, why
    if why := guards.precheck_is_ready(state, target, now_ms):
        check = state.check(target)
        collides = check is not None and now_ms < check.expires_ms and bool(_COLLISIONS.intersection(check.reasons))
        return Code.COLLISION if collides else Code.PRECHECK_FAILED, why
    whys = (
        guards.digest_is_quoted(state, target, asked.digest),
        guards.identities_differ(state, source, target),
        guards.future_is_disjoint(state, source, target),
    )
    if why := next((w for w in whys if w), None):
        return Code.PRECHECK_FAILED, why
    if why := guards.holds_lease(state, now_ms):
        return Code.INVALID_TRANSITION, why
    return None


def _drive_on(turn: Turn, live: Switch) -> None:
    turn.set_switch(halted="")
    if live.stage is not Stage.DONE_WITH_FAILURES:
        turn.say(Verdict.ADVANCE, Why.REDRIVEN, f"the switch to {live.target} is driven on at {live.stage.value}")
        issue_again(turn, Why.REDRIVEN)
        return
    left = [u for u in turn.plan if u.stage in FAILED or u.awaiting is Action.GIVEN_UP]
    for unit in left:
        # What stayed behind is looked at afresh; what was being deleted is only tried again.
        back = (
            replace(unit, awaiting=Action.NONE, tries=0)
            if unit.stage in DELETING or unit.stage is LedgerStage.PROMOTED
            else replace(
                unit, stage=LedgerStage.PENDING, awaiting=Action.INVENTORY, op=turn.next_op(), tries=0, reason=""
            )
        )
        turn.plan.put(back)
    turn.advance(
        Stage.BUILD, Why.REDRIVEN, f"the switch to {live.target} is driven on for {len(left)} ledgers",
        attempt=live.attempt + 1, status_failed=False, awaiting=Action.NONE, ended_ms=-1,
    )  # fmt: skip
    take_inventory(turn)


def rollback(turn: Turn, asked: Rollback) -> None:
    """Row 18."""
    live = turn.state.live()
    if live is None or live.stage not in _CAN_ROLL_BACK | {Stage.CLEANUP}:
        turn.reject(Code.INVALID_TRANSITION, "there is no switch to roll back", _command(asked.key))
    elif why := guards.before_rollback_end(live, turn.now_ms):
        turn.reject(Code.WINDOW_EXPIRED, why, _command(asked.key))
    elif live.stage is Stage.CLEANUP:
        turn.reject(Code.CLEANUP_STARTED, "the clean-up has begun", _command(asked.key))
    elif why := guards.no_delete_intent(live):
        turn.reject(Code.CLEANUP_STARTED, why, _command(asked.key))
    elif not asked.attribution_only and (why := guards.future_is_disjoint(turn.state, live.target, live.source)):
        turn.reject(Code.COLLISION, f"brokers cannot go back: {why}", _command(asked.key))
    else:
        turn.advance(
            Stage.ROLLBACK, Why.COMMANDED, f"the switch to {live.target} is rolled back",
            halted="", attribution_only=asked.attribution_only,
        )  # fmt: skip
        for unit in [u for u in turn.plan if u.stage in (LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT)]:
            # Never promoted, so nothing is to be taken back; an answer that is still under way is late.
            reverted = replace(unit, stage=LedgerStage.REVERTED, awaiting=Action.NONE, op=turn.next_op(), tries=0)
            turn.plan.put(reverted)
        for unit in [u for u in turn.plan if u.stage in (LedgerStage.PROMOTING, LedgerStage.PROMOTED)]:
            turn.plan.put(replace(unit, awaiting=Action.NONE, op=turn.next_op(), tries=0))
        if not asked.attribution_only:
            direct(turn, live.source, Why.COMMANDED)


def cleanup(turn: Turn, asked: Cleanup) -> None:
    """Row 20. What is deleted is decided ledger by ledger, on an inventory taken from now on."""
    live = turn.state.live()
    if live is None or live.stage is not Stage.HOLD:
        turn.reject(Code.INVALID_TRANSITION, "there is no switch in hold to clean up", _command(asked.key))
    elif why := guards.window_elapsed(live, turn.now_ms):
        turn.reject(Code.WINDOW_NOT_ELAPSED, why, _command(asked.key))
    else:
        ids = [u.ledger_id for u in turn.plan if u.stage is LedgerStage.PROMOTED]
        named = ", ".join(map(str, ids[:10])) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
        sentence = f"{len(ids)} ledgers are to be deleted from {live.source}: {named or 'none'}"
        turn.advance(Stage.CLEANUP, Why.COMMANDED, sentence, cleanup_ms=turn.now_ms)
        take_inventory(turn)


def close_client(turn: Turn, asked: CloseClient) -> None:
    """Row 23."""
    switch = turn.state.switch
    if switch is None or switch.stage not in (Stage.DONE, Stage.DONE_WITH_FAILURES):
        turn.reject(Code.INVALID_TRANSITION, "no switch is done", _command(asked.key))
    elif turn.state.entry(asked.name) is None:
        turn.reject(Code.NOT_FOUND, f"{asked.name} is not registered", _command(asked.key))
    elif why := guards.is_unread(turn.state, asked.name, switch.ended_ms):
        turn.reject(Code.CLIENT_IN_USE, why, _command(asked.key))
    else:
        turn.say(
            Verdict.CLOSE_CLIENT, Why.COMMANDED, f"nothing needs {asked.name} any more: brokers may close their client",
            subject=f"clients/{asked.name}", details={"name": asked.name},
        )  # fmt: skip


def _command(key: str) -> str:
    return f"commands/{key}"


def _next_id(turn: Turn, name: str) -> int:
    seen = turn.state.cluster(name)
    return seen.generator.next_id if seen and seen.generator else -1
