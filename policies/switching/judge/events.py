"""Judges the reports on inventories, the lease and brokers, and executors' results for single ledgers.

Rows 5, 7 to 11, 13 to 16, 19, 21 and 25, and the repetition of open orders. Every result quotes the number of the order
it answers. A result of an earlier order, or a second one, is late. The executor carries an order out to its end before
it answers: a failure is final, except for a deletion.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.fold import InventorySeen
from policies.switching.judge import guards
from policies.switching.ledgers import Ledger, LedgerKind, Reference, find_owner, is_ours, same_ledger
from policies.switching.readings import LedgerOutcome, SwitchBroker, SwitchLedger
from policies.switching.state import (
    IDLE,
    LIVE,
    NEVER,
    ORDERED,
    PLANNING,
    LedgerStage,
    LedgerTask,
    OrchestratorLease,
    Switch,
    SwitchAction,
    SwitchStage,
    plan_key,
)
from policies.switching.transition import Transition
from policies.units import counted_with

_NAMED = 10
"""The most unplanned paths that the switch keeps by name."""


def judge_inventory(facts: SwitchFacts, seen: InventorySeen, step: Transition) -> None:
    """While a plan is made: settle the ledgers that waited for an inventory, then plan those that are not planned."""
    switch = facts.state.switch
    if switch is None:
        return
    has_target = seen.manifest.target == switch.target
    if switch.recovering_ms >= 0:
        is_since = seen.manifest.moved_too and has_target and seen.at_ms > switch.recovering_ms
        if not is_since or not facts.source_instance or not facts.target_instance:
            return
        _recover_plan(facts, switch, seen, step)
    if switch.stage in (LIVE - PLANNING) | {SwitchStage.ROLLBACK} and seen.at_ms > switch.ended_ms:
        _count_unplanned(facts, switch, seen, step)
    if switch.stage not in PLANNING or not has_target or seen.at_ms <= switch.live_ms:
        return
    if facts.awaits_unplanned:
        return  # it began before the switch was driven on, and may show what an operator has removed since
    if not facts.stands_still and not guards.refuse_without_lease(facts):
        _plan(facts, switch, seen, step)


def _plan(facts: SwitchFacts, switch: Switch, seen: InventorySeen, step: Transition) -> None:
    dropped = dict[int, int]()
    for task, moved_to in _find_waiting(facts, seen):
        if moved_to is None:
            dropped[task.key] = task.op
            step.drop(task.key)
            continue
        stage = LedgerStage.PROMOTED_VIA_ROLLOVER
        moved = replace(task, stage=stage, awaiting=SwitchAction.NONE, target_id=moved_to.ledger_id)
        step.put(moved)
        sentence = f"ledger {task.ledger_id} is {stage.value}"
        step.publish_ledger(moved, SwitchVerdict.LEDGER, SwitchReason.ROLLED_OVER, sentence)
    # Late results of a ledger that was taken out of the plan stay late.
    planned = [
        LedgerTask(ledger_id, kind, paths, op=dropped.get(plan_key(ledger_id, kind), 0))
        for ledger_id, kind, paths in _list_ledgers(facts, seen, switch.source)
        if facts.plan.get(plan_key(ledger_id, kind)) is None
    ]
    source = facts.source_instance
    for task in planned:
        _plan_ledger(facts, task, seen, source, step)
    if switch.stage is SwitchStage.LIVE_DUAL_READ:
        sentence = f"{counted_with(len(facts.plan), 'ledger', 'is', 'are')} to move to {switch.target}"
        step.advance(SwitchStage.BUILD, SwitchReason.INVENTORY_COMPLETE, sentence)


def _list_ledgers(facts: SwitchFacts, seen: InventorySeen, owner: str) -> list[tuple[int, LedgerKind, tuple[str, ...]]]:
    """Return the ledgers that are attributed to a cluster, sorted, each with the paths that name it."""
    paths: dict[tuple[int, LedgerKind], set[str]] = {}
    for reference in seen.references:
        if find_owner(reference, facts.state.bootstrap) == owner:
            paths.setdefault((reference.ledger_id, reference.kind), set()).add(reference.path)
    return [(ledger_id, kind, tuple(sorted(named))) for (ledger_id, kind), named in sorted(paths.items())]


def _recover_plan(facts: SwitchFacts, switch: Switch, seen: InventorySeen, step: Transition) -> None:
    """After a lost checkpoint: references that name Headgate's own copies in the target were promoted.

    While a plan is made, a ledger that is also named in the source is planned there again.
    """
    is_planned = switch.stage in PLANNING
    left = {each[:2] for each in _list_ledgers(facts, seen, switch.source)} if is_planned else frozenset()
    # A clean-up that had begun may have deleted it from the source: then nothing may be taken back.
    stage, count = LedgerStage.PROMOTED if switch.cleanup_ms < 0 else LedgerStage.DELETE_INTENT, 0
    for ledger_id, kind, paths in _list_ledgers(facts, seen, switch.target):
        found = seen.existing.get(ledger_id)
        if found is not None and is_ours(found, facts.source_instance) and (ledger_id, kind) not in left:
            task = LedgerTask(ledger_id, kind, paths, stage, cleared=True, promoted=True, copied=True)
            step.put(task, numbered=True)
            count += 1
    step.update_switch(recovering_ms=NEVER, awaiting=SwitchAction.NONE)
    promoted = counted_with(count, "ledger", "is", "are")
    sentence = f"the switch to {switch.target} is taken up at {switch.stage.value}: {promoted} promoted"
    step.publish(SwitchVerdict.ADVANCE, SwitchReason.INVENTORY_COMPLETE, sentence)


def _count_unplanned(facts: SwitchFacts, switch: Switch, seen: InventorySeen, step: Transition) -> None:
    """Count references that should no longer name the source or, after a rollback, the target.

    A cursor of the plan may live in another ledger by now. It counts, because that ledger was not planned.
    """
    is_rollback = switch.stage is SwitchStage.ROLLBACK
    owner = switch.target if is_rollback else switch.source
    planned = {(p, t.ledger_id) for t in facts.plan for p in t.paths} if not is_rollback else frozenset()
    naming = (r for r in seen.references if find_owner(r, facts.state.bootstrap) == owner)
    paths = sorted({r.path for r in naming if (r.path, r.ledger_id) not in planned})
    if (tuple(paths[:_NAMED]), len(paths)) != (switch.unplanned, switch.unplanned_count):
        step.update_switch(unplanned=tuple(paths[:_NAMED]), unplanned_count=len(paths))
    if is_rollback and switch.confirm_ms != NEVER and switch.confirm_ms < seen.at_ms:
        _settle_failed(facts, switch, seen, step)


def _settle_failed(facts: SwitchFacts, switch: Switch, seen: InventorySeen, step: Transition) -> None:
    """Row 19: a ledger whose order failed may have moved all the same: take it back; delete the others' copies."""
    moved = {(r.path, r.ledger_id) for r in seen.references if find_owner(r, facts.state.bootstrap) == switch.target}
    for task in list(facts.plan.at(LedgerStage.BUILD_FAILED, LedgerStage.PROMOTE_DEFERRED)):
        target_id = task.ledger_id if task.target_id is None else task.target_id
        is_moved = any((path, target_id) in moved for path in task.paths)
        stage = LedgerStage.PROMOTING if is_moved else LedgerStage.REVERTED
        step.put(replace(task, stage=stage, awaiting=SwitchAction.NONE, tries=0), numbered=True)
        if is_moved:
            step.update_switch(confirm_ms=NEVER)


def _find_waiting(facts: SwitchFacts, seen: InventorySeen) -> list[tuple[LedgerTask, Reference | None]]:
    """Pair each ledger that waits for an inventory with its cursor's reference in the target.

    The reference is None if the cursor did not roll over to the target: the ledger is gone, or is planned again.
    """
    tasks = [t for t in facts.plan if t.awaiting is SwitchAction.INVENTORY]
    cursors = {r.path: r for r in seen.references if r.kind is LedgerKind.CURSOR} if tasks else {}
    found: list[tuple[LedgerTask, Reference | None]] = []
    for task in tasks:
        now = next((cursors[p] for p in task.paths if p in cursors), None)
        rolled_over = task.kind is LedgerKind.CURSOR and now is not None and now.ledger_id != task.ledger_id
        in_target = now is not None and find_owner(now, facts.state.bootstrap) == facts.switch.target
        found.append((task, now if rolled_over and in_target else None))
    return found


def _plan_ledger(facts: SwitchFacts, task: LedgerTask, seen: InventorySeen, source: str, step: Transition) -> None:
    """Check INV-1 and INV-6 for one ledger. The caller looks up the instance id once, for up to a million ledgers."""
    if task.kind in facts.limits.remapped:
        # A cursor's owner makes its new ledger itself, so there is nothing to copy.
        stage = LedgerStage.BUILT if task.kind is LedgerKind.CURSOR else LedgerStage.PENDING
        step.put(replace(task, stage=stage, cleared=True, remap=True))
        return
    found = seen.existing.get(task.ledger_id)
    if why := guards.refuse_foreign_ledger(found, source):
        refuse_import(facts, task, SwitchReason.FOREIGN_ID, why, step)
    elif why := guards.refuse_deleted_id(facts, task.ledger_id):
        refuse_import(facts, task, SwitchReason.DELETED_ID, why, step)
    else:
        is_copied = found is not None and is_ours(found, source)
        step.put(replace(task, cleared=found is None or is_copied, copied=is_copied))


def judge_lease(facts: SwitchFacts, new: OrchestratorLease, step: Transition) -> None:
    """Row 25: a newer orchestrator repeats all open orders; an older one is rejected."""
    known = facts.state.lease
    if known is not None and new.token < known.token:
        step.reject(RejectCode.INVALID_TRANSITION, f"lease {new.token} is older than {known.token}", "lease")
    elif known is not None and new.token == known.token and new.valid_until_ms <= known.valid_until_ms:
        return  # it is known
    else:
        step.update(lease=new)
        lapsed = known is None or new.token != known.token or facts.now_ms >= known.valid_until_ms
        if lapsed and facts.state.switch is not None:
            step.direct_brokers(SwitchReason.LEASE_TAKEN)
            repeat_orders(SwitchReason.LEASE_TAKEN, step)


def repeat_orders(reason: SwitchReason, step: Transition) -> None:
    """Repeat every order without a result, under its number, but not the directive."""
    facts = step.facts()
    is_behind = guards.refuse_straying_brokers(facts) is not None
    for task in [t for t in facts.plan if t.awaiting in ORDERED]:
        if task.awaiting is SwitchAction.DELETE_OLD and is_behind:
            step.put(replace(task, awaiting=SwitchAction.NONE), numbered=True)  # ordered once brokers follow
        else:
            step.order_ledger(task, reason)
    if facts.needs_inventory or facts.plan.count_ordered(SwitchAction.INVENTORY):
        step.take_inventory()
    if facts.switch.awaiting is SwitchAction.STATUS_NEW:
        step.write_status(reason, again=True)


def open_new_clients(facts: SwitchFacts, step: Transition) -> None:
    """Direct brokers again to the cluster that was advanced, so that they open new clients; repeat all open orders.

    Before a switch is live, INV-3 counts from the ids that new clients get.
    """
    switch, generator = facts.switch, facts.generator(facts.switch.target)
    if switch.stage is SwitchStage.TRIGGERED and generator is not None:
        step.update_switch(target_floor=max(switch.target_floor, generator.next_id))
    step.direct_brokers(SwitchReason.NOT_READY, facts.state.active(), renews=True)
    repeat_orders(SwitchReason.NOT_READY, step)


def judge_broker(facts: SwitchFacts, seen: SwitchBroker, step: Transition) -> None:
    """Row 5: a broker follows the directive; its ack counts in `facts`. A broker that cannot is judged in `stages`."""
    live = facts.state.live_switch()
    if live is not None and seen.epoch == live.epoch and not seen.client_init_failed and not live.moved:
        step.update_switch(moved=True)


_ONLY_FROM_CURSORS = frozenset({LedgerOutcome.ADVANCED, LedgerOutcome.ROLLED_OVER})


def judge_result(facts: SwitchFacts, result: SwitchLedger, step: Transition) -> None:
    """Accept a result if it fits the open order of its ledger.

    A cursor and a schema may name the same ledger; the order's number decides for which of them the result is.
    """
    planned, subject = facts.plan.tasks_of(result.ledger_id), f"ledgers/{result.ledger_id}"
    task = next((t for t in planned if t.op == result.op), max(planned, key=lambda t: t.op, default=None))
    if task is None or result.op > task.op:
        switch = facts.state.switch
        if task is not None or switch is None or not switch.ledgers or result.op > facts.state.ops:
            sentence = f"nothing was asked of ledger {result.ledger_id} as {result.op}"
            step.reject(RejectCode.INVALID_TRANSITION, sentence, subject)
        return
    if result.op < task.op or task.awaiting in IDLE:
        return  # it is late
    row = _ROWS.get((task.awaiting, result.result))
    if named := _find_other_ledgers(task, result):
        # It counts as a failure, whichever executor sent it.
        sentence = f"the answer about ledger {task.ledger_id} names ledger {named}"
        step.reject(RejectCode.INVALID_TRANSITION, sentence, subject)
        if (row := _ROWS.get((task.awaiting, LedgerOutcome.FAILED))) is not None:
            row(facts, task, result.model_copy(update={"result": LedgerOutcome.FAILED, "detail": sentence}), step)
    elif row is None or (result.result in _ONLY_FROM_CURSORS and task.kind is not LedgerKind.CURSOR):
        sentence = f"ledger {task.ledger_id}: {result.result.value} answers no {task.awaiting.value}"
        step.reject(RejectCode.INVALID_TRANSITION, sentence, subject)
    else:
        step.update_switch(progress_ms=facts.now_ms)
        row(facts, task, result, step)


def _find_other_ledgers(task: LedgerTask, result: SwitchLedger) -> str:
    """List the result's ledger ids if one of them is another ledger's; only a copy under a new id has its own."""
    same_id = (result.source, None if task.remap else result.target)
    if all(ledger is None or ledger.ledger_id == task.ledger_id for ledger in same_id):
        return ""
    return ", ".join(str(ledger.ledger_id) for ledger in (result.source, result.target) if ledger is not None)


def _settle(
    step: Transition, task: LedgerTask, stage: LedgerStage, why: SwitchReason, sentence: str, **fields: Any
) -> None:
    """Move a ledger to another stage, without an order."""
    after: LedgerTask = replace(task, stage=stage, awaiting=SwitchAction.NONE, **fields)
    step.put(after)
    sentence = f"ledger {task.ledger_id} is {stage.value}: {sentence}"
    step.publish_ledger(after, SwitchVerdict.LEDGER, why, sentence)


_BUILD_FAILED, _DEFERRED = LedgerStage.BUILD_FAILED, LedgerStage.PROMOTE_DEFERRED
_EXHAUSTED = SwitchReason.RETRIES_EXHAUSTED
_LEFT = {
    (SwitchAction.COPY, LedgerOutcome.SOURCE_UNREADABLE): (
        _BUILD_FAILED, SwitchReason.SOURCE_UNREADABLE, "the source can't be read",
    ),
    (SwitchAction.COPY, LedgerOutcome.FAILED): (_BUILD_FAILED, _EXHAUSTED, "no reason given"),
    (SwitchAction.COPY, LedgerOutcome.EXISTS): (_BUILD_FAILED, _EXHAUSTED, "no reason given"),
    (SwitchAction.PROMOTE, LedgerOutcome.CONFLICT): (_DEFERRED, _EXHAUSTED, "conflict"),
    (SwitchAction.PROMOTE, LedgerOutcome.ADVANCED): (_DEFERRED, SwitchReason.CURSOR_ADVANCED, "advanced"),
    (SwitchAction.PROMOTE, LedgerOutcome.FAILED): (_DEFERRED, _EXHAUSTED, "failed"),
    (SwitchAction.ROLL_OVER, LedgerOutcome.FAILED): (_DEFERRED, _EXHAUSTED, "failed"),
}  # fmt: skip
"""The results after which a ledger stays behind, because the executor has tried `retries` times."""


def _leave(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    stage, reason, why = _LEFT[task.awaiting, result.result]
    _settle(step, task, stage, reason, result.detail or why)


def _copied(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    source, target, target_id = _get_ledgers(task, result)
    if why := guards.refuse_unequal_copy(source, target):
        _settle(step, task, LedgerStage.BUILD_FAILED, SwitchReason.COPY_DIFFERS, why, target_id=target_id)
        return
    sentence = f"its copy is equal{_add_detail(result)}"
    _settle(step, task, LedgerStage.BUILT, SwitchReason.COPIED, sentence, target_id=target_id, cleared=True)


def _add_detail(result: SwitchLedger) -> str:
    """Return the executor's detail as a suffix: earlier tries may have deleted our own copy to make it again."""
    return f" ({result.detail})" if result.detail else ""


def _get_ledgers(task: LedgerTask, result: SwitchLedger) -> tuple[Ledger | None, Ledger | None, int | None]:
    """Return the source's ledger, the target's as if it had the same id, and its new id; None if it has no new id."""
    source, target = result.source, result.target
    if not task.remap or target is None:
        return source, target, None
    return source, replace(target, ledger_id=task.ledger_id), target.ledger_id


def _exists(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    original, found, target_id = _get_ledgers(task, result)
    if found is None:
        _leave(facts, task, result, step)
    elif why := guards.refuse_foreign_ledger(found, facts.source_instance):
        refuse_import(facts, task, SwitchReason.FOREIGN_ID, why, step)
    elif original is None or not same_ledger(original, found):
        why = "our earlier copy is not complete"
        _settle(step, task, LedgerStage.BUILD_FAILED, SwitchReason.OURS_PARTIAL, why, target_id=target_id)
    else:
        # `cleared` comes from the provenance and not from the guard, so that a wrong guard is a breach of INV-1.
        cleared, sentence = is_ours(found, facts.source_instance), "our earlier copy is complete"
        _settle(
            step, task, LedgerStage.BUILT, SwitchReason.OURS_COMPLETE, sentence, cleared=cleared, target_id=target_id
        )


def refuse_import(facts: SwitchFacts, task: LedgerTask, reason: SwitchReason, why: str, step: Transition) -> None:
    """Leave a ledger in the source because its id is taken in the target: that ledger is never overwritten."""
    stage = LedgerStage.FOREIGN_CONFLICT
    after = replace(task, stage=stage, awaiting=SwitchAction.NONE, cleared=False)
    step.put(after)
    sentence = f"ledger {task.ledger_id} stays in {facts.switch.source}: {why}; it needs another id"
    step.publish_ledger(after, SwitchVerdict.REMAP_REQUIRED, reason, sentence, code=RejectCode.COLLISION)


def _attributed(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    """A promotion or a revert is done; if it changed more than it should, the switch halts."""
    is_revert = task.awaiting is SwitchAction.REVERT
    if why := guards.refuse_wide_change(task, result.changed):
        step.put(replace(task, awaiting=SwitchAction.NONE))
        step.update_switch(halted=why)
        sentence = f"the {'rollback' if is_revert else 'switch'} halts: {why}"
        step.publish_ledger(task, SwitchVerdict.HALT, SwitchReason.WIDE_CHANGE, sentence)
    elif is_revert:
        sentence = f"it is attributed to {facts.switch.source} again"
        _settle(step, task, LedgerStage.REVERTED, SwitchReason.REVERTED, sentence, promoted=False)
    else:
        sentence = f"it is attributed to {facts.switch.target}{_add_detail(result)}"
        _settle(step, task, LedgerStage.PROMOTED, SwitchReason.ATTRIBUTED, sentence, promoted=True, tries=0)


def _rolled_over(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    """The cursor lives in another ledger by now; its owner's position there is newer, so it is not taken back."""
    is_revert, target = task.awaiting is SwitchAction.REVERT, facts.switch.target
    where = result.attribution or facts.switch.source
    if not is_revert and (where != target or result.new_id is None):
        step.put(replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY), numbered=True)
        step.take_inventory()
        return
    stage = LedgerStage.PROMOTED_VIA_ROLLOVER if where == target else LedgerStage.REVERTED
    sentence = f"its cursor lives in ledger {result.new_id} of {where} now"
    target_id = result.new_id if where == target else task.target_id
    _settle(step, task, stage, SwitchReason.ROLLED_OVER, sentence, target_id=target_id)


def _deleted(facts: SwitchFacts, task: LedgerTask, _result: SwitchLedger, step: Transition) -> None:
    if source := facts.source_instance:
        ids = tuple(sorted({*facts.deleted_ids(source), task.ledger_id}))
        step.update(deleted=dict(sorted((facts.state.deleted | {source: ids}).items())))
    sentence = f"it is gone from {facts.switch.source}"
    _settle(step, task, LedgerStage.CLEANED, SwitchReason.DELETED, sentence)


def _not_deleted(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    """A deletion cannot be undone, so each try is ordered again, if it is still allowed."""
    again = replace(task, tries=task.tries + 1)
    is_ended = facts.switch.stage is SwitchStage.ABORTED or facts.switch.kept
    if again.tries < facts.limits.retries and not is_ended:
        step.put(replace(again, awaiting=SwitchAction.NONE))
        return
    why = "an operator ended it" if is_ended else f"{again.tries} tries failed"
    _give_up(facts, again, result.model_copy(update={"detail": why}), step)


def _give_up(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    after = replace(task, awaiting=SwitchAction.GIVEN_UP)
    step.put(after)
    sentence = f"ledger {task.ledger_id} stays {task.stage.value}: {result.detail or 'no reason given'}"
    step.publish_ledger(after, SwitchVerdict.LEDGER, SwitchReason.RETRIES_EXHAUSTED, sentence)


_Row = Callable[[SwitchFacts, LedgerTask, SwitchLedger, Transition], None]
_ROWS: dict[tuple[SwitchAction, LedgerOutcome], _Row] = {
    **dict.fromkeys(_LEFT, _leave),
    (SwitchAction.COPY, LedgerOutcome.COPIED): _copied,
    (SwitchAction.COPY, LedgerOutcome.EXISTS): _exists,
    (SwitchAction.DELETE_COPY, LedgerOutcome.COPY_DELETED): lambda _facts, task, _result, step: _settle(
        step, task, task.stage, SwitchReason.DELETED, "our copy is deleted", copied=False
    ),
    (SwitchAction.DELETE_COPY, LedgerOutcome.FAILED): _give_up,
    (SwitchAction.PROMOTE, LedgerOutcome.PROMOTED): _attributed,
    (SwitchAction.PROMOTE, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.ROLL_OVER, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.REVERT, LedgerOutcome.REVERTED): _attributed,
    (SwitchAction.REVERT, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.REVERT, LedgerOutcome.CONFLICT): _give_up,
    (SwitchAction.REVERT, LedgerOutcome.FAILED): _give_up,
    (SwitchAction.DELETE_OLD, LedgerOutcome.DELETED): _deleted,
    (SwitchAction.DELETE_OLD, LedgerOutcome.FAILED): _not_deleted,
}
"""The results that fit an order; any other result is an invalid transition."""
