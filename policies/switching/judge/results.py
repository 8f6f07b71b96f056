"""Executors' results for single ledgers: rows 9 to 11, 13 to 16, 19 and 21 of the table.

Every result quotes the number of the order it answers. A result of an earlier order, or a second one, is late. The
executor carries an order out to its end before it answers: a failure is final, except for a deletion.
"""

from collections.abc import Callable
from functools import partial
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
    """Accept a result if it fits the open order of its ledger.

    A cursor and a schema may name the same ledger; the order's number decides for which of them the result is.
    """
    planned, subject = facts.plan.tasks_of(result.ledger_id), f"ledgers/{result.ledger_id}"
    task = next((t for t in planned if t.op == result.op), max(planned, key=lambda t: t.op, default=None))
    if task is None or result.op > task.op:
        switch = facts.state.switch
        if task is not None or switch is None or not switch.settled or result.op > facts.state.ops:
            sentence = f"nothing was asked of ledger {result.ledger_id} as {result.op}"
            step.reject(RejectCode.INVALID_TRANSITION, sentence, subject)
        return
    if result.op < task.op or task.awaiting in _IDLE:
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


def _leave(
    _facts: SwitchFacts,
    task: LedgerTask,
    result: SwitchLedger,
    step: Transition,
    *,
    stage: LedgerStage = LedgerStage.BUILD_FAILED,
    reason: SwitchReason = SwitchReason.RETRIES_EXHAUSTED,
    why: str = "no reason given",
) -> None:
    """Leave a ledger behind, after the executor has tried `retries` times."""
    _settle(step, task, stage, reason, result.detail or why, reason=reason.value)


_defer = partial(_leave, stage=LedgerStage.PROMOTE_DEFERRED)


# --- copying (rows 9 to 11)


def _copied(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    source, target, target_id = _get_ledgers(task, result)
    if why := guards.refuse_unequal_copy(source, target):
        reason = SwitchReason.COPY_DIFFERS
        _settle(step, task, LedgerStage.BUILD_FAILED, reason, why, target_id=target_id, reason=reason.value)
        return
    sentence = f"its copy is equal{_add_detail(result)}"
    _settle(step, task, LedgerStage.BUILT, SwitchReason.COPIED, sentence, target_id=target_id, cleared=True)


def _add_detail(result: SwitchLedger) -> str:
    """Return the executor's detail as a suffix: earlier tries may have deleted our own copy to make it again."""
    return f" ({result.detail})" if result.detail else ""


def _get_ledgers(task: LedgerTask, result: SwitchLedger) -> tuple[Ledger | None, Ledger | None, int | None]:
    """Return the source's ledger, the target's as if it had the same id, and its new id; None if it has no new id."""
    source = None if result.source is None else result.source.to_ledger()
    target = None if result.target is None else result.target.to_ledger()
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
        reason, why = SwitchReason.OURS_PARTIAL, "our earlier copy is not complete"
        _settle(step, task, LedgerStage.BUILD_FAILED, reason, why, target_id=target_id, reason=reason.value)
    else:
        # `cleared` comes from the provenance and not from the guard, so that a wrong guard is a breach of INV-1.
        cleared, sentence = is_ours(found, facts.source_instance), "our earlier copy is complete"
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


# --- taking back (row 19), deleting (row 21)


def _reverted(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    if why := guards.refuse_wide_change(task, result.changed):
        _halt(step, task, why, f"the rollback halts: {why}")
        return
    sentence = f"it is attributed to {facts.switch.source} again"
    _settle(step, task, LedgerStage.REVERTED, SwitchReason.REVERTED, sentence, reverted_op=task.op)


def _deleted(facts: SwitchFacts, task: LedgerTask, _result: SwitchLedger, step: Transition) -> None:
    if source := facts.source_instance:
        ids = tuple(sorted({*facts.deleted_ids(source), task.ledger_id}))
        step.update(deleted=put(facts.state.deleted, DeletedIds(source, ids), "instance"))
    sentence = f"it is gone from {facts.switch.source}"
    _settle(step, task, LedgerStage.CLEANED, SwitchReason.DELETED, sentence)


def _not_deleted(facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    """A deletion cannot be undone, so each try is ordered again, if it is still allowed."""
    again = replace(task, tries=task.tries + 1)
    why = guards.refuse_further_tries(again, facts.limits.retries)
    if why is None and (facts.switch.stage is SwitchStage.ABORTED or facts.switch.kept):
        why = "an operator ended it"
    if why is None:
        step.put(replace(again, awaiting=SwitchAction.NONE))
    else:
        _give_up(facts, again, result.model_copy(update={"detail": why}), step)


def _give_up(_facts: SwitchFacts, task: LedgerTask, result: SwitchLedger, step: Transition) -> None:
    after = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.RETRIES_EXHAUSTED.value)
    step.put(after)
    sentence = f"ledger {task.ledger_id} stays {task.stage.value}: {result.detail or 'no reason given'}"
    step.publish_ledger(after, SwitchVerdict.LEDGER, SwitchReason.RETRIES_EXHAUSTED, sentence)


_Row = Callable[[SwitchFacts, LedgerTask, SwitchLedger, Transition], None]
_ROWS: dict[tuple[SwitchAction, LedgerOutcome], _Row] = {
    (SwitchAction.COPY, LedgerOutcome.COPIED): _copied,
    (SwitchAction.COPY, LedgerOutcome.EXISTS): _exists,
    (SwitchAction.COPY, LedgerOutcome.SOURCE_UNREADABLE): partial(
        _leave, reason=SwitchReason.SOURCE_UNREADABLE, why="the source can't be read"
    ),
    (SwitchAction.COPY, LedgerOutcome.FAILED): _leave,
    (SwitchAction.DELETE_COPY, LedgerOutcome.COPY_DELETED): _copy_deleted,
    (SwitchAction.DELETE_COPY, LedgerOutcome.FAILED): _give_up,
    (SwitchAction.PROMOTE, LedgerOutcome.PROMOTED): _promoted,
    (SwitchAction.PROMOTE, LedgerOutcome.CONFLICT): partial(_defer, why="conflict"),
    (SwitchAction.PROMOTE, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.PROMOTE, LedgerOutcome.ADVANCED): partial(
        _defer, reason=SwitchReason.CURSOR_ADVANCED, why="advanced"
    ),
    (SwitchAction.PROMOTE, LedgerOutcome.FAILED): partial(_defer, why="failed"),
    (SwitchAction.ROLL_OVER, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.ROLL_OVER, LedgerOutcome.FAILED): partial(_defer, why="failed"),
    (SwitchAction.REVERT, LedgerOutcome.REVERTED): _reverted,
    (SwitchAction.REVERT, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.REVERT, LedgerOutcome.CONFLICT): _give_up,
    (SwitchAction.REVERT, LedgerOutcome.FAILED): _give_up,
    (SwitchAction.DELETE_OLD, LedgerOutcome.DELETED): _deleted,
    (SwitchAction.DELETE_OLD, LedgerOutcome.FAILED): _not_deleted,
}
"""The results that fit an order; any other result is an invalid transition."""
