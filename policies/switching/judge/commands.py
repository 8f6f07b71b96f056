"""Commands about the registry and those that carry a switch forward; readings of the registry and of prechecks.

Rows 1 to 4, 20, 23, 24, 28 and 29 of the table.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.events import repeat_orders
from policies.switching.judge.guards import Asked, Row
from policies.switching.ledgers import FindingReason
from policies.switching.readings import CommandArgs, SwitchCommand, SwitchRegistry
from policies.switching.state import (
    DELETING,
    ENDED,
    FAILED,
    UNDELETED,
    UNDONE,
    ClusterStatus,
    LedgerStage,
    PrecheckResult,
    RegistryEntry,
    Switch,
    SwitchAction,
    SwitchingState,
    SwitchStage,
    put,
)
from policies.switching.transition import Transition
from policies.units import counted, counted_with, name_some

NO_CLUSTER = "a cluster without a name"
_ENDED = (SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES)


def register(facts: SwitchFacts, command: SwitchCommand) -> Row:
    """Row 1: the first cluster ever registered becomes active, and references without attribution belong to it."""
    state, args = facts.state, command.args
    is_unread = args.uri is None or args.instance_id is None or args.root is None
    yield RejectCode.NOT_FOUND, is_unread and f"no BookKeeper cluster could be read at {args.uri or 'an empty address'}"
    entry = _make_entry(state, args)
    yield RejectCode.NAME_CONFLICT, guards.refuse_taken_name(facts, entry.name, entry.instance_id, entry.root)
    identity = (entry.instance_id, entry.root)
    same = (e.name for e in state.entries if (e.instance_id, e.root) == identity and e.name != entry.name)
    duplicate = (f"{entry.instance_id}{entry.root} is already registered as {other}" for other in same)
    yield RejectCode.URI_DUPLICATE, next(duplicate, None)
    yield RejectCode.CONTESTED, not _resolves_contest(state, entry) and facts.state.contested
    yield RejectCode.INVALID_TRANSITION, _refuse_status(facts, entry.name, args.status)
    step = yield None
    step.update(
        entries=put(state.entries, entry),
        bootstrap=state.bootstrap or entry.name,
        removed=tuple(name for name in state.removed if name != entry.name),
        contested="" if _resolves_contest(state, entry) else state.contested,
    )
    step.write_registry(entry, SwitchReason.COMMANDED)


def _make_entry(state: SwitchingState, args: CommandArgs) -> RegistryEntry:
    name, known = args.name or "", state.entry(args.name or "")
    version, root = known.version if known else None, (args.root or "").rstrip("/")
    status = args.status or _find_usual_status(state, name)
    return RegistryEntry(name, args.uri or "", args.instance_id or "", root, status, version)


def _find_usual_status(state: SwitchingState, name: str) -> ClusterStatus:
    """A cluster keeps the status that it has. The first one ever is active, every other new one a standby."""
    known = state.entry(name)
    return known.status if known else ClusterStatus.STANDBY if state.entries else ClusterStatus.ACTIVE


def _resolves_contest(state: SwitchingState, entry: RegistryEntry) -> bool:
    after = replace(state, entries=put(state.entries, entry))
    return state.contested == state.leaderless() and not after.leaderless()


def _refuse_status(facts: SwitchFacts, name: str, wanted: ClusterStatus | None) -> guards.Refusal:
    """Return why a cluster cannot be registered with the status that the command names; None if it can."""
    state, usual = facts.state, _find_usual_status(facts.state, name)
    if wanted in (None, usual):
        return None
    if not state.entries:
        return "the first cluster is the one that brokers write to: it is registered as active"
    if wanted is not ClusterStatus.ACTIVE:
        return f"{name} is {usual.value}: only a switch changes that"
    # Any cluster may become active if none is, and brokers write nowhere else.
    if state.committed() is None and state.active() in (None, name):
        return None
    way = f"`start --target {name}`" if state.entry(name) else "`register` without `--status`, and then a switch,"
    sentence = f"{state.active() or 'none'} is active: {way} moves brokers"
    return guards.refuse_other_switch(facts) or sentence


def unregister(facts: SwitchFacts, command: SwitchCommand) -> Row:
    """Row 2: remove a cluster that is not in use."""
    state, name = facts.state, command.args.name or NO_CLUSTER
    known = state.entry(name)
    yield RejectCode.NOT_FOUND, known is None and f"{name} is not registered"
    yield RejectCode.CONTESTED, facts.state.contested
    why = guards.refuse_cluster_in_use(facts, name)
    yield RejectCode.IN_USE, why and f"{name} cannot be removed: {why}"
    step = yield None
    step.update(
        entries=tuple(e for e in state.entries if e.name != name),
        checks=tuple(c for c in state.checks if c.target != name),
        removed=tuple(sorted({*state.removed, name})),
        clusters=tuple(c for c in state.clusters if c.name != name),
        impostors=tuple(n for n in state.impostors if n != name),
    )
    step.remove_registry(name, known.version if known else None, SwitchReason.COMMANDED)


def close_client(facts: SwitchFacts, command: SwitchCommand) -> Row:
    """Row 23: let brokers close their client of a cluster that a completed switch has left, and that nothing needs."""
    name = command.args.name or NO_CLUSTER
    yield RejectCode.NOT_FOUND, facts.state.entry(name) is None and f"{name} is not registered"
    yield RejectCode.INVALID_TRANSITION, _refuse_close(facts, name)
    yield RejectCode.CONTESTED, facts.state.contested
    yield RejectCode.CLIENT_IN_USE, guards.refuse_read_cluster(facts, name)
    step = yield None
    sentence = f"nothing needs {name} any more: brokers may close their client"
    step.publish(
        SwitchVerdict.CLOSE_CLIENT, SwitchReason.COMMANDED, sentence, subject=f"clients/{name}", details={"name": name}
    )


def _refuse_close(facts: SwitchFacts, name: str) -> guards.Refusal:
    """Return why no completed switch has left a cluster; None if one has.

    A cluster that an earlier switch left is deprecated, even if the last switch was undone.
    """
    switch, known = facts.state.switch, facts.state.entry(name)
    if switch is not None and switch.stage in _ENDED:
        return None
    if facts.state.live_switch() is not None:
        return f"the switch to {facts.switch.target} is not over"
    was_left = switch is not None and known is not None and known.status is ClusterStatus.DEPRECATED
    return None if was_left else f"no switch from {name} is done"


def judge_registry(facts: SwitchFacts, seen: SwitchRegistry, step: Transition) -> None:
    """Order again what the registry lacks, and what it should no longer have: no executor answers these orders."""
    if facts.state.contested or guards.refuse_without_lease(facts):
        return
    if step.is_resolved and facts.state.switch is not None:
        step.direct_brokers(SwitchReason.NOT_SEEN)
        repeat_orders(SwitchReason.NOT_SEEN, step)
    versions = {entry.name: entry.version for entry in seen.clusters}
    for entry in facts.state.entries:
        if entry.name not in versions:
            step.write_registry(entry, SwitchReason.NOT_SEEN)
    for name in facts.state.removed:
        step.remove_registry(name, versions[name], SwitchReason.NOT_SEEN)


_COLLISIONS = frozenset({FindingReason.FOREIGN_ID, FindingReason.DELETED_ID})
_STARTABLE = (SwitchStage.REGISTERED, SwitchStage.PRECHECKED)
_NOT_PAUSED = (ENDED - (UNDONE - {SwitchStage.ABORTED})) | {SwitchStage.DONE_WITH_FAILURES}
_COMMANDED = SwitchReason.COMMANDED
_INVALID = RejectCode.INVALID_TRANSITION


def precheck(facts: SwitchFacts, command: SwitchCommand) -> Row:
    """Row 3, the command: a target may be checked again, also once its last switch is over."""
    source, target = facts.state.committed(), command.args.target or NO_CLUSTER
    stage = facts.state.stage(target, facts.now_ms)
    yield RejectCode.NOT_FOUND, stage is SwitchStage.NONE and f"{target} is not registered"
    yield RejectCode.NOT_FOUND, source is None and _explain_vacancy(facts)
    yield _INVALID, stage not in _STARTABLE and f"the switch to {target} is at {stage.value}"
    step = yield None
    step.publish(
        SwitchVerdict.RUN_PRECHECK, _COMMANDED, f"check whether brokers can move from {source} to {target}",
        subject=f"prechecks/{target}", details={"source": source, "target": target},
    )  # fmt: skip


def _explain_vacancy(facts: SwitchFacts) -> str:
    if facts.state.contested_by is not None:  # then nothing is registered, before `resume`
        return f"no cluster is active in the registry, which is contested: {facts.state.contested}"
    name = facts.state.active() or "the one that brokers write to"
    return f"no cluster is active in the registry: `register` {name} with `--status active`"


def judge_precheck(facts: SwitchFacts, check: PrecheckResult, step: Transition) -> None:
    """Row 3, the report: a later one replaces an earlier one."""
    known, subject = facts.state.check(check.target), f"prechecks/{check.target}"
    stage = facts.state.stage(check.target, facts.now_ms)
    if known is not None and check.checked_ms <= known.checked_ms:
        return
    if stage not in _STARTABLE:
        step.reject(_INVALID, f"{check.target} is {stage.value}", subject)
    else:
        step.update(checks=put(facts.state.checks, check, "target"))
        verdict = "ready" if check.ready else f"not ready: {', '.join(dict.fromkeys(check.reasons))}"
        sentence = f"{check.target} is {verdict} (digest {check.digest[:12]})"
        details = {"digest": check.digest, "ready": check.ready, "target": check.target}
        step.publish(SwitchVerdict.ADVANCE, _COMMANDED, sentence, subject=subject, details=details)


def start(facts: SwitchFacts, command: SwitchCommand) -> Row:
    """Rows 4 and 24: begin a switch, or drive the live one on. Any other target must pass the guards of row 4."""
    state, target, source = facts.state, command.args.target or NO_CLUSTER, facts.state.committed() or ""
    live = state.live_switch()
    if live is not None and live.target == target:
        yield RejectCode.CONTESTED, facts.state.contested
        _drive_on(facts, live, (yield None))
        return
    for code, why in _ask_new_switch(facts, command, target):
        yield code, why and f"the switch to {target} does not start: {why}"
    step = yield None
    epoch, bypassed, generator = state.epoch + 1, is_check_bypassed(facts, target), facts.generator(target)
    switch = Switch(
        source=source, target=target, stage=SwitchStage.TRIGGERED, epoch=epoch, bypassed=bypassed,
        started_ms=facts.now_ms, target_floor=generator.next_id if generator else -1,
        brokers_from=state.active() or source,
    )  # fmt: skip
    step.adopt(replace(state, switch=switch, bypassed=state.bypassed or bypassed))
    risk = ", on a precheck that was bypassed: ids may collide" if bypassed else ""
    sentence = f"the switch from {source} to {target} begins, epoch {epoch}{risk}"
    step.publish(SwitchVerdict.ADVANCE, _COMMANDED, sentence)
    step.direct_brokers(_COMMANDED, target)


def _ask_new_switch(facts: SwitchFacts, command: SwitchCommand, target: str) -> Iterator[Asked]:
    state, source = facts.state, facts.state.committed()
    yield RejectCode.CONTESTED, state.live_switch() is not None and facts.state.contested
    yield RejectCode.SWITCH_IN_PROGRESS, guards.refuse_other_switch(facts)
    yield RejectCode.NOT_FOUND, state.entry(target) is None and f"{target} is not registered"
    yield RejectCode.NOT_FOUND, source is None and _explain_vacancy(facts)
    yield RejectCode.CONTESTED, facts.state.contested
    yield RejectCode.ALREADY_ACTIVE, guards.refuse_active_target(facts, target)
    check = state.check(target)
    is_fresh = check is not None and facts.now_ms < check.expires_ms
    collides = check is not None and is_fresh and bool(_COLLISIONS.intersection(check.reasons))
    code = RejectCode.COLLISION if collides else RejectCode.PRECHECK_FAILED
    yield code, guards.refuse_unready_precheck(facts, target)
    is_read = check is not None and check.digest == command.precheck_digest
    yield RejectCode.PRECHECK_FAILED, not is_read and "the digest quoted is not that of the last precheck"
    yield RejectCode.PRECHECK_FAILED, guards.refuse_same_identity(facts, source or "", target)
    if not is_check_bypassed(facts, target):
        yield RejectCode.PRECHECK_FAILED, guards.refuse_taken_ids(facts, source or "", target)
    yield _INVALID, guards.refuse_without_lease(facts)


def is_check_bypassed(facts: SwitchFacts, target: str) -> bool:
    """Whether a target is ready only because a lab's settings bypass a finding."""
    check = facts.state.check(target)
    return check is not None and check.bypassed


def _drive_on(facts: SwitchFacts, live: Switch, step: Transition) -> None:
    step.update_switch(**lift_holds(facts))
    if live.stage is not SwitchStage.DONE_WITH_FAILURES:
        sentence = f"the switch to {live.target} is driven on at {live.stage.value}"
        step.publish(SwitchVerdict.ADVANCE, SwitchReason.REDRIVEN, sentence)
        step.direct_brokers(SwitchReason.REDRIVEN)
        repeat_orders(SwitchReason.REDRIVEN, step)
        return
    left = [t for t in facts.plan if t.stage in FAILED or t.awaiting is SwitchAction.GIVEN_UP]
    for task in left:  # repeat only the deletion where that had begun, else plan the ledger again
        if task.stage in DELETING or task.stage is LedgerStage.PROMOTED:
            step.put(replace(task, awaiting=SwitchAction.NONE, tries=0))
        else:
            again = replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY, tries=0)
            step.put(again, numbered=True)
    sentence = f"the switch to {live.target} is driven on for {counted(len(left), 'ledger')}"
    step.advance(
        SwitchStage.BUILD, SwitchReason.REDRIVEN, sentence, attempt=live.attempt + 1, status_failed=False,
        awaiting=SwitchAction.NONE, ended_ms=-1, unplanned=(), unplanned_count=0, kept=False,
    )  # fmt: skip
    step.take_inventory()


def lift_holds(facts: SwitchFacts) -> dict[str, object]:
    """Return the fields of the switch that end a halt or pause.

    If INV-3 does not hold, but the target was advanced beyond all ids ever given, INV-3 counts from there on: the floor
    of the switch's start would block it for good.
    """
    fields, target = {"halted": "", "paused": False}, facts.generator(facts.switch.target)
    is_advanced = target is not None and not guards.refuse_lower_ids(facts, facts.switch.target)
    if target is not None and is_advanced and guards.refuse_broken_order(facts):
        fields["target_floor"] = target.next_id
    return fields


def pause(facts: SwitchFacts, _command: SwitchCommand) -> Row:
    """Row 28: order nothing more. Brokers and executors may still finish earlier orders."""
    switch = facts.state.switch
    yield _INVALID, (switch is None or switch.stage in _NOT_PAUSED) and "no switch is under way"
    switch = facts.switch
    yield _INVALID, switch.paused and "it is paused already"
    step = yield None
    step.update_switch(paused=True, paused_ms=facts.now_ms)
    sentence = f"the switch to {switch.target} is paused at {switch.stage.value}; `resume` lets it go on"
    step.publish(SwitchVerdict.ADVANCE, SwitchReason.PAUSED, sentence)


def resume(facts: SwitchFacts, _command: SwitchCommand) -> Row:
    """Row 29: end a halt or pause; after a foreign directive, direct brokers by a later epoch, to greater ids only."""
    switch = facts.state.switch
    if facts.state.contested_by is not None:
        ours = facts.state.active()
        yield RejectCode.NOT_FOUND, ours is None and "no cluster is active"
        behind = guards.refuse_lower_ids(facts, ours or "")
        yield RejectCode.COLLISION, behind and f"brokers cannot be sent to {ours} again: {behind}"
        _supersede_directive(facts, max(facts.state.contested_by.epoch, facts.state.epoch), (yield None))
        return
    yield RejectCode.CONTESTED, facts.state.contested
    at = f": it is at {switch.stage.value}" if switch else ""
    yield _INVALID, (switch is None or not (switch.halted or switch.paused)) and f"nothing is held{at}"
    step, switch = (yield None), facts.switch
    step.update_switch(**lift_holds(facts))
    sentence = f"the switch to {switch.target} goes on at {switch.stage.value}"
    step.publish(SwitchVerdict.ADVANCE, SwitchReason.RESUMED, sentence)
    step.direct_brokers(SwitchReason.RESUMED)
    repeat_orders(SwitchReason.RESUMED, step)


def _supersede_directive(facts: SwitchFacts, epoch: int, step: Transition) -> None:
    ours = facts.state.active()
    step.update(epoch=epoch, contested="", contested_by=None)
    if facts.state.switch is not None:
        step.update_switch(**lift_holds(facts))
    sentence = f"brokers are directed to {ours} again, by an epoch after {epoch}"
    step.publish(SwitchVerdict.ADVANCE, SwitchReason.RESUMED, sentence)
    step.direct_brokers(SwitchReason.RESUMED, ours)
    if facts.state.live_switch() is not None:
        repeat_orders(SwitchReason.RESUMED, step)


def cleanup(facts: SwitchFacts, _command: SwitchCommand) -> Row:
    """Row 20, in hold. Each deletion is decided ledger by ledger, on an inventory begun from now on."""
    live = facts.state.live_switch()
    yield RejectCode.CONTESTED, live is not None and facts.state.contested
    is_held = live is not None and live.stage is SwitchStage.HOLD
    yield _INVALID, not is_held and (guards.refuse_other_switch(facts) or "no switch is in hold")
    yield _INVALID, guards.refuse_unknown_plan(facts)
    yield RejectCode.WINDOW_NOT_ELAPSED, guards.refuse_early_cleanup(facts)
    yield _INVALID, facts.stands_still
    yield RejectCode.BROKERS_BEHIND, guards.refuse_straying_brokers(facts)
    step = yield None
    ids = [str(t.ledger_id) for t in facts.plan.at(*UNDELETED)]
    are = counted_with(len(ids), "ledger", "is", "are")
    sentence = f"{are} to be deleted from {facts.switch.source}: {name_some(ids) or 'none'}"
    step.advance(SwitchStage.CLEANUP, _COMMANDED, sentence, cleanup_ms=facts.now_ms)
    step.take_inventory()
