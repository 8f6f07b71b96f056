"""What people ask for: rows 1 to 4, 18, 20, 23 and 24 of the table."""

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import Cleanup, CloseClient, Precheck, Register, Rollback, Start, Unregister
from policies.switching.intents import direct, issue_again, remove_registry, take_inventory, write_registry
from policies.switching.precheck.findings import FindingReason
from policies.switching.state import (
    DELETING,
    FAILED,
    ClusterStatus,
    LedgerStage,
    RegistryEntry,
    Switch,
    SwitchAction,
    SwitchStage,
    put,
)
from policies.switching.transition import Transition

_COLLISIONS = frozenset({FindingReason.FOREIGN_ID, FindingReason.DELETED_ID})
_CAN_ROLL_BACK = frozenset({SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD})


def register(transition: Transition, asked: Register) -> None:
    """Row 1. The first cluster ever registered is the active one, and the one that legacy references belong to."""
    if asked.instance_id is None or asked.root is None:
        transition.reject(
            RejectCode.NOT_FOUND, f"no BookKeeper cluster could be read at {asked.uri}", _command(asked.key)
        )
        return
    state, identity = transition.state, (asked.instance_id, asked.root.rstrip("/"))
    if why := guards.name_is_free(state, asked.name, *identity):
        transition.reject(RejectCode.NAME_CONFLICT, why, _command(asked.key))
        return
    if why := guards.identity_is_new(state, asked.name, *identity):
        transition.reject(RejectCode.URI_DUPLICATE, why, _command(asked.key))
        return
    known = state.entry(asked.name)
    status = known.status if known else ClusterStatus.STANDBY if state.entries else ClusterStatus.ACTIVE
    entry = RegistryEntry(asked.name, asked.uri, *identity, status, known.version if known else None)
    transition.update(
        entries=put(state.entries, entry), bootstrap=state.bootstrap or asked.name,
        removed=tuple(name for name in state.removed if name != asked.name),
    )  # fmt: skip
    write_registry(transition, entry, SwitchReason.COMMANDED)


def unregister(transition: Transition, asked: Unregister) -> None:
    """Row 2."""
    known = transition.state.entry(asked.name)
    if known is None:
        transition.reject(RejectCode.NOT_FOUND, f"{asked.name} is not registered", _command(asked.key))
    elif why := guards.is_unused(transition.state, asked.name):
        transition.reject(RejectCode.IN_USE, f"{asked.name} cannot be removed: {why}", _command(asked.key))
    else:
        transition.update(
            entries=tuple(e for e in transition.state.entries if e.name != asked.name),
            checks=tuple(c for c in transition.state.checks if c.target != asked.name),
            removed=tuple(sorted({*transition.state.removed, asked.name})),
        )
        remove_registry(transition, asked.name, known.version, SwitchReason.COMMANDED)


def precheck(transition: Transition, asked: Precheck) -> None:
    """Row 3, its request; also when it was checked before, or its last switch is over."""
    stage, source = transition.state.stage(asked.target, transition.now_ms), transition.state.committed()
    if stage is SwitchStage.NONE or source is None:
        transition.reject(RejectCode.NOT_FOUND, f"{asked.target} is not registered", _command(asked.key))
    elif stage not in (SwitchStage.REGISTERED, SwitchStage.PRECHECKED):
        transition.reject(
            RejectCode.INVALID_TRANSITION, f"the switch to {asked.target} is at {stage.value}", _command(asked.key)
        )
    else:
        transition.say(
            SwitchVerdict.RUN_PRECHECK,
            SwitchReason.COMMANDED,
            f"check whether brokers can move from {source} to {asked.target}",
            subject=f"prechecks/{asked.target}",
            details={"source": source, "target": asked.target},
        )


def start(transition: Transition, asked: Start) -> None:
    """Rows 4 and 24; the same target again drives its switch on."""
    live, source = transition.state.live(), transition.state.committed()
    if live is not None and live.target == asked.target:
        _drive_on(transition, live)
        return
    refusal = _refusal_to_start(transition, asked, source)
    if refusal is not None or source is None:
        code, why = refusal or (RejectCode.NOT_FOUND, "no cluster is active")
        transition.reject(code, f"the switch to {asked.target} does not start: {why}", _command(asked.key))
        return
    epoch = transition.state.epoch + 1
    floor = _next_id(transition, asked.target)
    transition.begin(
        Switch(
            source=source, target=asked.target, stage=SwitchStage.TRIGGERED, epoch=epoch,
            started_ms=transition.now_ms, target_floor=floor,
        )
    )  # fmt: skip
    transition.say(
        SwitchVerdict.ADVANCE,
        SwitchReason.COMMANDED,
        f"the switch from {source} to {asked.target} begins, epoch {epoch}",
    )
    direct(transition, asked.target, SwitchReason.COMMANDED)


def _refusal_to_start(transition: Transition, asked: Start, source: str | None) -> tuple[RejectCode, str] | None:
    """The first guard of row 4 that does not hold."""
    state, target, now_ms = transition.state, asked.target, transition.now_ms
    if why := guards.no_other_switch(state):
        return RejectCode.SWITCH_IN_PROGRESS, why
    if state.entry(target) is None or source is None:
        return RejectCode.NOT_FOUND, f"{target} is not registered"
    if why := guards.target_is_standby(state, target):
        return RejectCode.NOT_FOUND, why
    if why := guards.precheck_is_ready(state, target, now_ms):
        check = state.check(target)
        collides = check is not None and now_ms < check.expires_ms and bool(_COLLISIONS.intersection(check.reasons))
        return RejectCode.COLLISION if collides else RejectCode.PRECHECK_FAILED, why
    whys = (
        guards.digest_is_quoted(state, target, asked.digest),
        guards.identities_differ(state, source, target),
        guards.future_is_disjoint(state, source, target),
    )
    if why := next((w for w in whys if w), None):
        return RejectCode.PRECHECK_FAILED, why
    if why := guards.holds_lease(state, now_ms):
        return RejectCode.INVALID_TRANSITION, why
    return None


def _drive_on(transition: Transition, live: Switch) -> None:
    transition.set_switch(halted="")
    if live.stage is not SwitchStage.DONE_WITH_FAILURES:
        transition.say(
            SwitchVerdict.ADVANCE,
            SwitchReason.REDRIVEN,
            f"the switch to {live.target} is driven on at {live.stage.value}",
        )
        issue_again(transition, SwitchReason.REDRIVEN)
        return
    left = [u for u in transition.plan if u.stage in FAILED or u.awaiting is SwitchAction.GIVEN_UP]
    for task in left:
        # What stayed behind is looked at afresh; what was being deleted is only tried again.
        back = (
            replace(task, awaiting=SwitchAction.NONE, tries=0)
            if task.stage in DELETING or task.stage is LedgerStage.PROMOTED
            else replace(
                task,
                stage=LedgerStage.PENDING,
                awaiting=SwitchAction.INVENTORY,
                op=transition.next_op(),
                tries=0,
                reason="",
            )
        )
        transition.plan.put(back)
    transition.advance(
        SwitchStage.BUILD, SwitchReason.REDRIVEN, f"the switch to {live.target} is driven on for {len(left)} ledgers",
        attempt=live.attempt + 1, status_failed=False, awaiting=SwitchAction.NONE, ended_ms=-1,
    )  # fmt: skip
    take_inventory(transition)


def rollback(transition: Transition, asked: Rollback) -> None:
    """Row 18."""
    live = transition.state.live()
    if live is None or live.stage not in _CAN_ROLL_BACK | {SwitchStage.CLEANUP}:
        transition.reject(RejectCode.INVALID_TRANSITION, "there is no switch to roll back", _command(asked.key))
    elif why := guards.before_rollback_end(live, transition.now_ms):
        transition.reject(RejectCode.WINDOW_EXPIRED, why, _command(asked.key))
    elif live.stage is SwitchStage.CLEANUP:
        transition.reject(RejectCode.CLEANUP_STARTED, "the clean-up has begun", _command(asked.key))
    elif why := guards.no_delete_intent(live):
        transition.reject(RejectCode.CLEANUP_STARTED, why, _command(asked.key))
    elif not asked.attribution_only and (why := guards.future_is_disjoint(transition.state, live.target, live.source)):
        transition.reject(RejectCode.COLLISION, f"brokers cannot go back: {why}", _command(asked.key))
    else:
        transition.advance(
            SwitchStage.ROLLBACK, SwitchReason.COMMANDED, f"the switch to {live.target} is rolled back",
            halted="", attribution_only=asked.attribution_only,
        )  # fmt: skip
        for task in [
            u for u in transition.plan if u.stage in (LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT)
        ]:
            # Never promoted, so nothing is to be taken back; an answer that is still under way is late.
            reverted = replace(
                task, stage=LedgerStage.REVERTED, awaiting=SwitchAction.NONE, op=transition.next_op(), tries=0
            )
            transition.plan.put(reverted)
        for task in [u for u in transition.plan if u.stage in (LedgerStage.PROMOTING, LedgerStage.PROMOTED)]:
            transition.plan.put(replace(task, awaiting=SwitchAction.NONE, op=transition.next_op(), tries=0))
        if not asked.attribution_only:
            direct(transition, live.source, SwitchReason.COMMANDED)


def cleanup(transition: Transition, asked: Cleanup) -> None:
    """Row 20. What is deleted is decided ledger by ledger, on an inventory taken from now on."""
    live = transition.state.live()
    if live is None or live.stage is not SwitchStage.HOLD:
        transition.reject(RejectCode.INVALID_TRANSITION, "there is no switch in hold to clean up", _command(asked.key))
    elif why := guards.window_elapsed(live, transition.now_ms):
        transition.reject(RejectCode.WINDOW_NOT_ELAPSED, why, _command(asked.key))
    else:
        ids = [u.ledger_id for u in transition.plan if u.stage is LedgerStage.PROMOTED]
        named = ", ".join(map(str, ids[:10])) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
        sentence = f"{len(ids)} ledgers are to be deleted from {live.source}: {named or 'none'}"
        transition.advance(SwitchStage.CLEANUP, SwitchReason.COMMANDED, sentence, cleanup_ms=transition.now_ms)
        take_inventory(transition)


def close_client(transition: Transition, asked: CloseClient) -> None:
    """Row 23."""
    switch = transition.state.switch
    if switch is None or switch.stage not in (SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES):
        transition.reject(RejectCode.INVALID_TRANSITION, "no switch is done", _command(asked.key))
    elif transition.state.entry(asked.name) is None:
        transition.reject(RejectCode.NOT_FOUND, f"{asked.name} is not registered", _command(asked.key))
    elif why := guards.is_unread(transition.state, asked.name, switch.ended_ms):
        transition.reject(RejectCode.CLIENT_IN_USE, why, _command(asked.key))
    else:
        transition.say(
            SwitchVerdict.CLOSE_CLIENT,
            SwitchReason.COMMANDED,
            f"nothing needs {asked.name} any more: brokers may close their client",
            subject=f"clients/{asked.name}",
            details={"name": asked.name},
        )


def _command(key: str) -> str:
    return f"commands/{key}"


def _next_id(transition: Transition, name: str) -> int:
    seen = transition.state.cluster(name)
    return seen.generator.next_id if seen and seen.generator else -1
