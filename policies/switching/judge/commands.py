"""Commands that carry a switch forward: precheck, start, pause, resume and clean-up.

Rows 3, 4, 20, 24, 28 and 29 of the table.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.observations import NO_NAME, open_new_clients, repeat_orders
from policies.switching.judge.results import (
    Advance,
    Change,
    Count,
    DecisionDraft,
    DirectBrokers,
    PutTask,
    Reject,
    TakeInventory,
    Update,
    UpdateSwitch,
    reject,
)
from policies.switching.precheck.findings import FindingReason
from policies.switching.readings import SwitchCommand
from policies.switching.state import (
    DELETING,
    ENDED,
    FAILED,
    UNDELETED,
    UNDONE,
    LedgerStage,
    LedgerTask,
    PrecheckResult,
    Switch,
    SwitchAction,
    SwitchStage,
    put,
)
from policies.units import counted, counted_with, name_some

_COLLISIONS = frozenset({FindingReason.FOREIGN_ID, FindingReason.DELETED_ID})
_STARTABLE = (SwitchStage.REGISTERED, SwitchStage.PRECHECKED)
_NOT_PAUSED = (ENDED - (UNDONE - {SwitchStage.ABORTED})) | {SwitchStage.DONE_WITH_FAILURES}
_COMMANDED = SwitchReason.COMMANDED
_INVALID = RejectCode.INVALID_TRANSITION


# --- precheck (row 3)


def precheck(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 3, the command. A target may be checked again, also once its last switch is over."""
    target, source = command.args.target or "", facts.state.committed()
    stage = facts.state.stage(target, facts.now_ms)
    if not target:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
    elif stage is SwitchStage.NONE:
        yield reject(command, RejectCode.NOT_FOUND, f"{target} is not registered")
    elif source is None:
        yield reject(command, RejectCode.NOT_FOUND, _explain_vacancy(facts))
    elif stage not in _STARTABLE:
        yield reject(command, _INVALID, f"the switch to {target} is at {stage.value}")
    else:
        sentence = f"check whether brokers can move from {source} to {target}"
        details = {"source": source, "target": target}
        yield DecisionDraft(
            SwitchVerdict.RUN_PRECHECK, _COMMANDED, sentence, subject=f"prechecks/{target}", details=details
        )


def _explain_vacancy(facts: SwitchFacts) -> str:
    if facts.state.contested_by is not None:  # then nothing is registered, before `resume`
        return f"no cluster is active in the registry, which is contested: {facts.state.contested}"
    name = facts.state.active() or "the one that brokers write to"
    return f"no cluster is active in the registry: `register` {name} with `--status active`"


def judge_precheck(facts: SwitchFacts, check: PrecheckResult) -> Iterator[Change]:
    """Row 3, the report: a later one replaces an earlier one."""
    known, subject = facts.state.check(check.target), f"prechecks/{check.target}"
    stage = facts.state.stage(check.target, facts.now_ms)
    if known is not None and check.checked_ms <= known.checked_ms:
        yield Count("repeated")
    elif stage not in _STARTABLE:
        yield Reject(_INVALID, f"{check.target} is {stage.value}", subject)
    else:
        yield Update({"checks": put(facts.state.checks, check, "target")})
        verdict = "ready" if check.ready else f"not ready: {', '.join(dict.fromkeys(check.reasons))}"
        sentence = f"{check.target} is {verdict} (digest {check.digest[:12]})"
        details = {"digest": check.digest, "ready": check.ready, "target": check.target}
        yield DecisionDraft(SwitchVerdict.ADVANCE, _COMMANDED, sentence, subject=subject, details=details)


# --- start (rows 4 and 24)


def start(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Rows 4 and 24: begin a switch; the target of the live switch drives that switch on."""
    state, target = facts.state, command.args.target
    live, source = state.live_switch(), state.committed()
    if not target:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
        return
    if live is not None and live.target == target:
        why = guards.refuse_contested(facts)
        yield from (reject(command, RejectCode.CONTESTED, why),) if why else _drive_on(facts, live)
        return
    refusal = _refuse_start(facts, command, target, source)
    if refusal is not None or source is None:
        code, why = refusal or (RejectCode.NOT_FOUND, "no cluster is active")
        yield reject(command, code, f"the switch to {target} does not start: {why}")
        return
    epoch, bypassed, generator = state.epoch + 1, is_check_bypassed(facts, target), facts.generator(target)
    switch = Switch(
        source=source, target=target, stage=SwitchStage.TRIGGERED, epoch=epoch, bypassed=bypassed,
        started_ms=facts.now_ms, target_floor=generator.next_id if generator else -1,
        brokers_from=state.active() or source,
    )  # fmt: skip
    yield Update({"switch": switch, "bypassed": state.bypassed or bypassed})
    risk = ", on a precheck that was bypassed: ids may collide" if bypassed else ""
    sentence = f"the switch from {source} to {target} begins, epoch {epoch}{risk}"
    yield DecisionDraft(SwitchVerdict.ADVANCE, _COMMANDED, sentence)
    yield DirectBrokers(_COMMANDED, target)


def _refuse_start(
    facts: SwitchFacts, command: SwitchCommand, target: str, source: str | None
) -> tuple[RejectCode, str] | None:
    """Return the first guard of row 4 that does not hold."""
    if facts.state.live_switch() is not None and (why := guards.refuse_contested(facts)):
        return RejectCode.CONTESTED, why
    if why := guards.refuse_other_switch(facts):
        return RejectCode.SWITCH_IN_PROGRESS, why
    if facts.state.entry(target) is None:
        return RejectCode.NOT_FOUND, f"{target} is not registered"
    if source is None:
        return RejectCode.NOT_FOUND, _explain_vacancy(facts)
    if why := guards.refuse_contested(facts):
        return RejectCode.CONTESTED, why
    if why := guards.refuse_active_target(facts, target):
        return RejectCode.ALREADY_ACTIVE, why
    if why := guards.refuse_unready_precheck(facts, target):
        check = facts.state.check(target)
        fresh = check is not None and facts.now_ms < check.expires_ms
        collides = check is not None and fresh and bool(_COLLISIONS.intersection(check.reasons))
        return RejectCode.COLLISION if collides else RejectCode.PRECHECK_FAILED, why
    whys = (
        guards.refuse_other_digest(facts, target, command.precheck_digest),
        guards.refuse_same_identity(facts, source, target),
        None if is_check_bypassed(facts, target) else guards.refuse_taken_ids(facts, source, target),
    )
    if why := next((w for w in whys if w), None):
        return RejectCode.PRECHECK_FAILED, why
    if why := guards.refuse_without_lease(facts):
        return _INVALID, why
    return None


def is_check_bypassed(facts: SwitchFacts, target: str) -> bool:
    """Whether a target is ready only because a lab's settings bypass a finding."""
    check = facts.state.check(target)
    return check is not None and check.bypassed


def _drive_on(facts: SwitchFacts, live: Switch) -> Iterator[Change]:
    yield UpdateSwitch(lift_holds(facts))
    if live.stage is not SwitchStage.DONE_WITH_FAILURES:
        sentence = f"the switch to {live.target} is driven on at {live.stage.value}"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.REDRIVEN, sentence)
        yield from _go_on(facts, SwitchReason.REDRIVEN)
        return
    left = [t for t in facts.plan if t.stage in FAILED or t.awaiting is SwitchAction.GIVEN_UP]
    for task in left:
        yield _retry_task(task)
    sentence = f"the switch to {live.target} is driven on for {counted(len(left), 'ledger')}"
    reset = {"attempt": live.attempt + 1, "status_failed": False, "awaiting": SwitchAction.NONE, "ended_ms": -1}
    reset |= {"unplanned": (), "unplanned_count": 0, "kept": False}
    yield Advance(SwitchStage.BUILD, SwitchReason.REDRIVEN, sentence, reset)
    yield TakeInventory()


def lift_holds(facts: SwitchFacts) -> dict[str, object]:
    """Return the fields of the switch that end a halt or pause.

    If INV-3 does not hold, but the target was advanced beyond all ids ever given, INV-3 counts from there on: the floor
    of the switch's start would block it for good.
    """
    fields: dict[str, object] = {"halted": "", "paused": False}
    target, begun = facts.generator(facts.switch.target), facts.switch.target_floor
    if target is None or target.next_id <= begun or not guards.refuse_broken_order(facts):
        return fields
    return fields if guards.refuse_lower_ids(facts, facts.switch.target) else fields | {"target_floor": target.next_id}


def _retry_task(task: LedgerTask) -> PutTask:
    """Plan a ledger that stayed behind again; repeat only the deletion where that had begun."""
    if task.stage in DELETING or task.stage is LedgerStage.PROMOTED:
        return PutTask(replace(task, awaiting=SwitchAction.NONE, tries=0))
    again = replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY, tries=0, reason="")
    return PutTask(again, numbered=True)


# --- pause and resume (rows 28 and 29)


def pause(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 28: order nothing more. Brokers and executors may still finish earlier orders."""
    switch = facts.state.switch
    if switch is None or switch.stage in _NOT_PAUSED:
        yield reject(command, _INVALID, "no switch is under way")
    elif switch.paused:
        yield reject(command, _INVALID, "it is paused already")
    else:
        yield UpdateSwitch({"paused": True, "paused_ms": facts.now_ms})
        sentence = f"the switch to {switch.target} is paused at {switch.stage.value}; `resume` lets it go on"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.PAUSED, sentence)


def resume(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 29: end a halt or pause; after a foreign directive, direct brokers by a later epoch."""
    switch, foreign = facts.state.switch, facts.state.contested_by
    if foreign is not None:
        yield from _supersede_directive(facts, command, max(foreign.epoch, facts.state.epoch))
    elif why := guards.refuse_contested(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif switch is None or not (switch.halted or switch.paused):
        at = f": it is at {switch.stage.value}" if switch else ""
        yield reject(command, _INVALID, f"nothing is held{at}")
    else:
        yield UpdateSwitch(lift_holds(facts))
        sentence = f"the switch to {switch.target} goes on at {switch.stage.value}"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.RESUMED, sentence)
        yield from _go_on(facts, SwitchReason.RESUMED)


def _go_on(facts: SwitchFacts, reason: SwitchReason) -> Iterator[Change]:
    """Repeat all open orders. If an operator advanced ids meanwhile, direct brokers again, to open new clients."""
    yield from open_new_clients(facts, reason) if facts.needs_new_clients else repeat_orders(facts, reason)


def _supersede_directive(facts: SwitchFacts, command: SwitchCommand, epoch: int) -> Iterator[Change]:
    """Brokers may already follow the foreign directive: they come back only to greater ids."""
    ours = facts.state.active()
    if ours is None:
        yield reject(command, RejectCode.NOT_FOUND, "no cluster is active")
    elif why := guards.refuse_lower_ids(facts, ours):
        yield reject(command, RejectCode.COLLISION, f"brokers cannot be sent to {ours} again: {why}")
    else:
        yield Update({"epoch": epoch, "contested": "", "contested_by": None})
        if facts.state.switch is not None:
            yield UpdateSwitch(lift_holds(facts))
        sentence = f"brokers are directed to {ours} again, by an epoch after {epoch}"
        yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.RESUMED, sentence)
        yield DirectBrokers(SwitchReason.RESUMED, ours)
        if facts.state.live_switch() is not None:
            yield from repeat_orders(facts, SwitchReason.RESUMED, redirected=True)


# --- clean-up (row 20)


def cleanup(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 20. Each deletion is decided ledger by ledger, on an inventory begun from now on."""
    live = facts.state.live_switch()
    if live is not None and (why := guards.refuse_contested(facts)):
        yield reject(command, RejectCode.CONTESTED, why)
    elif live is None or live.stage is not SwitchStage.HOLD:
        yield reject(command, _INVALID, guards.refuse_other_switch(facts) or "no switch is in hold")
    elif why := guards.refuse_unknown_plan(facts):
        yield reject(command, _INVALID, why)
    elif why := guards.refuse_early_cleanup(facts):
        yield reject(command, RejectCode.WINDOW_NOT_ELAPSED, why)
    elif why := facts.stands_still:
        yield reject(command, _INVALID, why)
    elif why := guards.refuse_straying_brokers(facts):
        yield reject(command, RejectCode.BROKERS_BEHIND, why)
    else:
        yield UpdateSwitch({"cleanup_ms": facts.now_ms})  # accepted, before the whole plan is read
        ids = [str(t.ledger_id) for t in facts.plan.at(*UNDELETED)]
        are = counted_with(len(ids), "ledger", "is", "are")
        sentence = f"{are} to be deleted from {live.source}: {name_some(ids) or 'none'}"
        yield Advance(SwitchStage.CLEANUP, _COMMANDED, sentence)
        yield TakeInventory()
