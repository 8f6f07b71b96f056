"""Executors' results for single ledgers: rows 9 to 11, 13 to 16, 19 and 21 of the table.

Every result quotes the number of the order it answers. A result of an earlier order, or a second one, is late. The
executor carries an order out to its end before it answers: a failure is final, except for a deletion.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.ledgers import Ledger, LedgerKind, is_ours, same_ledger
from policies.switching.readings import LedgerOutcome, SwitchLedger
from policies.switching.state import DeletedIds, LedgerStage, LedgerTask, SwitchAction, SwitchStage, put
from policies.switching.transition import Transition

_ONLY_FROM_CURSORS = frozenset({LedgerOutcome.ADVANCED, LedgerOutcome.ROLLED_OVER})
_IDLE = frozenset({SwitchAction.NONE, SwitchAction.GIVEN_UP, SwitchAction.SETTLED})


def judge_result(facts: SwitchFacts, result: SwitchLedger, step: Transition) -> None:
    """Accept a result if it fits the open order of its ledger."""
    task, subject, switch = _find_task(facts, result), f"ledgers/{result.ledger_id}", facts.state.switch
    is_after_end = task is None and switch is not None and switch.settled and result.op <= facts.state.ops
    if is_after_end or (task is not None and _is_late(task, result)):
        return
    if task is None or result.op > task.op:
        sentence = f"nothing was asked of ledger {result.ledger_id} as {result.op}"
        step.reject(RejectCode.INVALID_TRANSITION, sentence, subject)
    elif named := _find_other_ledgers(task, result):
        # It counts as a failure, whichever executor sent it.
        sentence = f"the answer about ledger {task.ledger_id} names ledger {named}"
        step.reject(RejectCode.INVALID_TRANSITION, sentence, subject)
        failure = result.model_copy(update={"result": LedgerOutcome.FAILED, "detail": sentence})
        if (row := _ROWS.get((task.awaiting, LedgerOutcome.FAILED))) is not None:
            row(facts, task, failure, step)
    elif (row := _ROWS.get((task.awaiting, result.result))) is None or (
        result.result in _ONLY_FROM_CURSORS and task.kind is not LedgerKind.CURSOR
    ):
        sentence = f"ledger {task.ledger_id}: {result.result.value} answers no {task.awaiting.value}"
        step.reject(RejectCode.INVALID_TRANSITION, sentence, subject)
    else:
        step.update_switch(progress_ms=facts.now_ms)
        row(facts, task, result, step)


def _is_late(task: LedgerTask, result: SwitchLedger) -> bool:
    return result.op < task.op or (result.op == task.op and task.awaiting in _IDLE)


def _find_task(facts: SwitchFacts, result: SwitchLedger) -> LedgerTask | None:
    """A cursor and a schema may name the same ledger; the order's number decides for which of them the result is."""
    planned = facts.plan.tasks_of(result.ledger_id) if facts.state.switch else ()
    ordered = next((t for t in planned if t.op == result.op), None)
    return ordered or max(planned, key=lambda t: t.op, default=None)


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


def _fail(step: Transition, task: LedgerTask, stage: LedgerStage, why: SwitchReason, sentence: str) -> None:
    """Leave a ledger behind, after the executor has tried `retries` times."""
    _settle(step, task, stage, why, sentence, reason=why.value)


# --- copying (rows 9 to 11)


def _copied(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    target, target_id = _get_copy(task, result)
    if why := guards.refuse_unequal_copy(_get_source(result), target):
        failed = replace(task, target_id=target_id)
        _fail(step, failed, LedgerStage.BUILD_FAILED, SwitchReason.COPY_DIFFERS, why)
        return
    sentence = f"its copy is equal{_add_detail(result)}"
    _settle(step, task, LedgerStage.BUILT, SwitchReason.COPIED, sentence, target_id=target_id, cleared=True)


def _add_detail(result: SwitchLedger) -> str:
    """Return the executor's detail as a suffix: earlier tries may have deleted our own copy to make it again."""
    return f" ({result.detail})" if result.detail else ""


def _get_copy(task: LedgerTask, result: SwitchLedger) -> tuple[Ledger | None, int | None]:
    """Return the target's ledger as if it had the source's id, and its new id; None if it has no new id."""
    target = None if result.target is None else result.target.to_ledger()
    if not task.remap or target is None:
        return target, None
    return replace(target, ledger_id=task.ledger_id), target.ledger_id


def _get_source(result: SwitchLedger) -> Ledger | None:
    return None if result.source is None else result.source.to_ledger()


def _exists(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    source, original = facts.source_instance, _get_source(result)
    found, target_id = _get_copy(task, result)
    if found is None:
        _copy_failed(facts, task, result, step)
    elif why := guards.refuse_foreign_ledger(found, source):
        refuse_import(facts, task, SwitchReason.FOREIGN_ID, why, step)
    elif original is None or not same_ledger(original, found):
        partial, why = replace(task, target_id=target_id), "our earlier copy is not complete"
        _fail(step, partial, LedgerStage.BUILD_FAILED, SwitchReason.OURS_PARTIAL, why)
    else:
        # `cleared` comes from the provenance and not from the guard, so that a wrong guard is a breach of INV-1.
        cleared, sentence = is_ours(found, source), "our earlier copy is complete"
        _settle(
            step, task, LedgerStage.BUILT, SwitchReason.OURS_COMPLETE, sentence, cleared=cleared, target_id=target_id
        )


def refuse_import(facts: SwitchFacts, task: LedgerTask, reason: SwitchReason, why: str, step: Transition) -> None:
    """Leave a ledger in the source because its id is taken in the target: that ledger is never overwritten."""
    stage = LedgerStage.FOREIGN_CONFLICT
    after = replace(task, stage=stage, awaiting=SwitchAction.NONE, reason=reason.value, cleared=False)
    step.put(after)
    sentence = f"ledger {task.ledger_id} stays in {facts.switch.source}: {why}; it needs another id"
    step.publish_ledger(after, SwitchVerdict.REMAP_REQUIRED, reason, sentence, code=RejectCode.COLLISION)


def _unreadable(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    why = result.detail or "the source can't be read"
    _fail(step, task, LedgerStage.BUILD_FAILED, SwitchReason.SOURCE_UNREADABLE, why)


def _copy_failed(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    why = result.detail or "no reason given"
    _fail(step, task, LedgerStage.BUILD_FAILED, SwitchReason.RETRIES_EXHAUSTED, why)


def _copy_deleted(_facts: SwitchFacts, task: LedgerTask, _result: SwitchLedger, step: Transition) -> None:
    _settle(step, task, task.stage, SwitchReason.DELETED, "our copy is deleted", copied=False)


# --- promoting (rows 13 to 16)


def _promoted(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    if why := guards.refuse_wide_change(task, result.changed):
        _halt(step, task, why, f"the switch halts: {why}")
        return
    sentence = f"it is attributed to {facts.switch.target}{_add_detail(result)}"
    _settle(step, task, LedgerStage.PROMOTED, SwitchReason.ATTRIBUTED, sentence, promoted_op=task.op, tries=0)


def _halt(step: Transition, task: LedgerTask, why: str, sentence: str) -> None:
    step.put(replace(task, awaiting=SwitchAction.NONE, reason=SwitchReason.WIDE_CHANGE.value))
    step.update_switch(halted=why)
    step.publish_ledger(task, SwitchVerdict.HALT, SwitchReason.WIDE_CHANGE, sentence)


def _not_promoted(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    is_late = result.result is LedgerOutcome.ADVANCED
    reason = SwitchReason.CURSOR_ADVANCED if is_late else SwitchReason.RETRIES_EXHAUSTED
    _fail(step, task, LedgerStage.PROMOTE_DEFERRED, reason, result.detail or result.result.value)


def _rolled_over(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    target = facts.switch.target
    if result.attribution == target and result.new_id is not None:
        stage, reason = LedgerStage.PROMOTED_VIA_ROLLOVER, SwitchReason.ROLLED_OVER
        sentence = f"its cursor lives in ledger {result.new_id} of {target} now"
        _settle(step, task, stage, reason, sentence, target_id=result.new_id)
    else:
        step.put(replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY), numbered=True)
        step.take_inventory()


# --- taking back (row 19), deleting (row 21)


def _reverted(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    if why := guards.refuse_wide_change(task, result.changed):
        _halt(step, task, why, f"the rollback halts: {why}")
        return
    sentence = f"it is attributed to {facts.switch.source} again"
    _settle(step, task, LedgerStage.REVERTED, SwitchReason.REVERTED, sentence, reverted_op=task.op)


def _not_reverted(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    """A cursor that lives in another ledger by now is not taken back: its owner's position there is newer."""
    in_target, where = result.attribution == facts.switch.target, result.attribution or facts.switch.source
    stage = LedgerStage.PROMOTED_VIA_ROLLOVER if in_target else LedgerStage.REVERTED
    sentence = f"its cursor lives in ledger {result.new_id} of {where} now"
    target_id = result.new_id if in_target else task.target_id
    _settle(step, task, stage, SwitchReason.ROLLED_OVER, sentence, target_id=target_id)


def _deleted(facts: SwitchFacts, task: LedgerTask, _result: SwitchLedger, step: Transition) -> None:
    source = facts.instance(facts.switch.source)
    if source is not None:
        ids = tuple(sorted({*facts.deleted_ids(source), task.ledger_id}))
        step.update(deleted=put(facts.state.deleted, DeletedIds(source, ids), "instance"))
    sentence = f"it is gone from {facts.switch.source}"
    _settle(step, task, LedgerStage.CLEANED, SwitchReason.DELETED, sentence)


def _not_taken_back(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    _give_up(step, task, result.detail or "")


def _not_deleted(facts: SwitchFacts, task: LedgerTask, _result: SwitchLedger, step: Transition) -> None:
    """A deletion cannot be undone, so each try is ordered again, if it is still allowed."""
    again = replace(task, tries=task.tries + 1)
    if why := guards.refuse_further_tries(again, facts.limits.retries):
        _give_up(step, again, why)
    elif facts.switch.stage is SwitchStage.ABORTED or facts.switch.kept:
        _give_up(step, again, "an operator ended it")
    else:
        step.put(replace(again, awaiting=SwitchAction.NONE))


def _give_up(step: Transition, task: LedgerTask, why: str) -> None:
    after = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.RETRIES_EXHAUSTED.value)
    step.put(after)
    sentence = f"ledger {task.ledger_id} stays {task.stage.value}: {why or 'no reason given'}"
    step.publish_ledger(after, SwitchVerdict.LEDGER, SwitchReason.RETRIES_EXHAUSTED, sentence)


_Row = Callable[[SwitchFacts, LedgerTask, SwitchLedger, Transition], None]
_ROWS: dict[tuple[SwitchAction, LedgerOutcome], _Row] = {
    (SwitchAction.COPY, LedgerOutcome.COPIED): _copied,
    (SwitchAction.COPY, LedgerOutcome.EXISTS): _exists,
    (SwitchAction.COPY, LedgerOutcome.SOURCE_UNREADABLE): _unreadable,
    (SwitchAction.COPY, LedgerOutcome.FAILED): _copy_failed,
    (SwitchAction.DELETE_COPY, LedgerOutcome.COPY_DELETED): _copy_deleted,
    (SwitchAction.DELETE_COPY, LedgerOutcome.FAILED): _not_taken_back,
    (SwitchAction.PROMOTE, LedgerOutcome.PROMOTED): _promoted,
    (SwitchAction.PROMOTE, LedgerOutcome.CONFLICT): _not_promoted,
    (SwitchAction.PROMOTE, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.PROMOTE, LedgerOutcome.ADVANCED): _not_promoted,
    (SwitchAction.PROMOTE, LedgerOutcome.FAILED): _not_promoted,
    (SwitchAction.ROLL_OVER, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.ROLL_OVER, LedgerOutcome.FAILED): _not_promoted,
    (SwitchAction.REVERT, LedgerOutcome.REVERTED): _reverted,
    (SwitchAction.REVERT, LedgerOutcome.ROLLED_OVER): _not_reverted,
    (SwitchAction.REVERT, LedgerOutcome.CONFLICT): _not_taken_back,
    (SwitchAction.REVERT, LedgerOutcome.FAILED): _not_taken_back,
    (SwitchAction.DELETE_OLD, LedgerOutcome.DELETED): _deleted,
    (SwitchAction.DELETE_OLD, LedgerOutcome.FAILED): _not_deleted,
}
"""The results that fit an order; any other result is an invalid transition."""
