"""Executors' results for single ledgers: rows 9 to 11, 13 to 16, 19 and 21 of the table.

Every result quotes the number of the order it answers. A result of an earlier order, or a second one, is late.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import LedgerResult
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    AskExecutor,
    Change,
    Count,
    ForgetIntent,
    PutTask,
    Reject,
    TakeInventory,
    Update,
    UpdateSwitch,
    of_ledger,
)
from policies.switching.ledgers import Ledger, is_ours, same_ledger
from policies.switching.readings import LedgerOutcome
from policies.switching.references import LedgerKind
from policies.switching.state import DeletedIds, LedgerStage, LedgerTask, SwitchAction, SwitchStage

_OF_CURSORS = frozenset({LedgerOutcome.ADVANCED, LedgerOutcome.ROLLED_OVER})
"""Only a cursor advances or rolls over."""
_TAKEN_BACK = frozenset({SwitchStage.ROLLED_BACK, SwitchStage.ABORTED})
_IDLE = frozenset({SwitchAction.NONE, SwitchAction.GIVEN_UP})


def ledger_result(facts: SwitchFacts, result: LedgerResult) -> Iterator[Change]:
    """Take one result, when it fits what was asked."""
    task, subject = _task(facts, result), f"ledgers/{result.ledger_id}"
    if task is None and _is_settled(facts, result):
        yield Count("repeated")
    elif task is None or result.op > task.op:
        sentence = f"nothing was asked of ledger {result.ledger_id} as {result.op}"
        yield Reject(RejectCode.INVALID_TRANSITION, sentence, subject)
    elif result.op < task.op or task.awaiting in _IDLE:
        yield Count("repeated")
    elif _names_another(task, result):
        yield from _refused(facts, task, result)
    elif (row := _ROWS.get((task.awaiting, result.outcome))) is None or not _fits(task, result):
        sentence = f"ledger {task.ledger_id}: {result.outcome.value} answers no {task.awaiting.value}"
        yield Reject(RejectCode.INVALID_TRANSITION, sentence, subject)
    else:
        yield from row(facts, task, result)


def _task(facts: SwitchFacts, result: LedgerResult) -> LedgerTask | None:
    """What the answer is about: a ledger may be planned for a cursor and for a schema, and the order says for which."""
    planned = facts.plan.of(result.ledger_id) if facts.state.switch else ()
    asked = next((t for t in planned if t.op == result.op), None)
    return asked or max(planned, key=lambda t: t.op, default=None)


def _is_settled(facts: SwitchFacts, result: LedgerResult) -> bool:
    """Whether the switch is done, and the result comes late."""
    switch = facts.state.switch
    return switch is not None and bool(switch.settled) and result.op <= facts.state.ops


def _names_another(task: LedgerTask, result: LedgerResult) -> bool:
    """Whether what it says it found is of another ledger; only a copy under a new id has one of its own."""
    found = (result.source, None if task.remap else result.target)
    return any(ledger is not None and ledger.ledger_id != task.ledger_id for ledger in found)


def _refused(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    """It counts as a failure, whoever gave it: the order stands, and is given again."""
    found = ", ".join(str(each.ledger_id) for each in (result.source, result.target) if each is not None)
    sentence = f"the answer about ledger {task.ledger_id} names ledger {found}"
    yield Reject(RejectCode.INVALID_TRANSITION, sentence, f"ledgers/{task.ledger_id}")
    if (row := _ROWS.get((task.awaiting, LedgerOutcome.FAILED))) is not None:
        yield from row(facts, task, _failure(result, sentence))


def _failure(result: LedgerResult, detail: str) -> LedgerResult:
    """The same result, as a failure."""
    return LedgerResult(result.ledger_id, result.op, LedgerOutcome.FAILED, detail=detail)


def _fits(task: LedgerTask, result: LedgerResult) -> bool:
    return task.kind is LedgerKind.CURSOR or result.outcome not in _OF_CURSORS


def _settle(
    task: LedgerTask, stage: LedgerStage, why: SwitchReason, sentence: str, **fields: object
) -> Iterator[Change]:
    """A ledger comes to another stage and nothing is asked of it."""
    after: LedgerTask = replace(task, stage=stage, awaiting=SwitchAction.NONE, **fields)
    yield PutTask(after)
    yield of_ledger(after, SwitchVerdict.LEDGER, why, f"ledger {task.ledger_id} is {stage.value}: {sentence}")


def _fail(task: LedgerTask, stage: LedgerStage, reason: SwitchReason, sentence: str) -> Iterator[Change]:
    return _settle(task, stage, reason, sentence, reason=reason.value)


def _failed_once_more(task: LedgerTask) -> LedgerTask:
    return replace(task, tries=task.tries + 1)


# --- copying (rows 9 to 11)


def _copied(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    target, target_id = _copy_of(task, result)
    if why := guards.copy_is_equal(result.source, target):
        return _copy_again(facts, replace(task, target_id=target_id), SwitchReason.COPY_DIFFERS, why)
    # While promoting, tries go on counting: a cursor that always advances must come to an end.
    tries = task.tries if facts.switch.stage is SwitchStage.PROMOTE else 0
    fields: dict[str, object] = {"target_id": target_id, "tries": tries, "cleared": True}
    return _settle(task, LedgerStage.BUILT, SwitchReason.COPIED, "its copy is equal", **fields)


def _copy_of(task: LedgerTask, result: LedgerResult) -> tuple[Ledger | None, int | None]:
    """What the target has of a ledger, and its id there where that is a new one; the rest must be as in the source."""
    if not task.remap or result.target is None:
        return result.target, None
    return replace(result.target, ledger_id=task.ledger_id), result.target.ledger_id


def _exists(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    source, target, intent = facts.source_instance, facts.target_instance, facts.intent(task)
    found, target_id = _copy_of(task, result)
    if found is None:
        return _copy_failed(facts, task, result)
    if why := guards.import_is_disjoint(found, intent, source, target):
        return conflict(facts, task, SwitchReason.FOREIGN_ID, why)
    if result.source is None or not same_ledger(result.source, found):
        partial = replace(task, target_id=target_id)
        return _copy_again(facts, partial, SwitchReason.OURS_PARTIAL, "our earlier copy is not complete")
    # Asked of the journal itself, so that a guard gone wrong shows as a breach of INV-1.
    fields: dict[str, object] = {"cleared": is_ours(found, intent, source, target), "target_id": target_id}
    return _settle(task, LedgerStage.BUILT, SwitchReason.OURS_COMPLETE, "our earlier copy is complete", **fields)


def conflict(facts: SwitchFacts, task: LedgerTask, reason: SwitchReason, why: str) -> Iterator[Change]:
    """A ledger that can't have its id in the target: never overwritten, never promoted."""
    stage = LedgerStage.FOREIGN_CONFLICT
    after = replace(task, stage=stage, awaiting=SwitchAction.NONE, reason=reason.value, cleared=False)
    yield PutTask(after)
    sentence = f"ledger {task.ledger_id} stays in {facts.switch.source}: {why}; it needs another id"
    yield of_ledger(after, SwitchVerdict.REMAP_REQUIRED, reason, sentence, RejectCode.COLLISION)


def _unreadable(_facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    sentence = result.detail or "the source can't be read"
    return _fail(task, LedgerStage.BUILD_FAILED, SwitchReason.SOURCE_UNREADABLE, sentence)


def _copy_failed(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    again = _failed_once_more(task)
    if why := guards.has_tries_left(again, facts.limits.retries):
        return _end_copying(facts, again, f"{why}: {result.detail or 'no reason given'}")
    return iter([AskExecutor(again, SwitchAction.COPY, SwitchReason.EXECUTOR_FAILED)])


def _copy_again(facts: SwitchFacts, task: LedgerTask, reason: SwitchReason, why: str) -> Iterator[Change]:
    """Delete our own copy and copy again, unless that was tried often enough."""
    again = _failed_once_more(task)
    if exhausted := guards.has_tries_left(again, facts.limits.retries):
        return _end_copying(facts, again, f"{why}; {exhausted}")
    if guards.nobody_shares_the_copy(facts, task):
        return iter([AskExecutor(again, SwitchAction.COPY, reason)])
    return iter([AskExecutor(again, SwitchAction.DELETE_COPY, reason)])


def _end_copying(facts: SwitchFacts, task: LedgerTask, sentence: str) -> Iterator[Change]:
    promoting = facts.switch.stage is SwitchStage.PROMOTE
    stage = LedgerStage.PROMOTE_DEFERRED if promoting else LedgerStage.BUILD_FAILED
    return _fail(task, stage, SwitchReason.RETRIES_EXHAUSTED, sentence)


def _copy_deleted(facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    yield ForgetIntent(task)
    if facts.switch.stage in _TAKEN_BACK:
        yield from _settle(task, task.stage, SwitchReason.DELETED, "our copy is deleted", tries=0)
    else:
        yield from _settle(task, LedgerStage.PENDING, SwitchReason.DELETED, "our copy is deleted", target_id=None)


def _copy_not_deleted(facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    again = _failed_once_more(task)
    if not (why := guards.has_tries_left(again, facts.limits.retries)):
        return iter([AskExecutor(again, SwitchAction.DELETE_COPY, SwitchReason.EXECUTOR_FAILED)])
    if facts.switch.stage in _TAKEN_BACK:
        return _give_up(again, why)
    return _end_copying(facts, again, why)


# --- promoting (rows 13 to 16)


def _promoted(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    if why := guards.only_attribute_differs(task, result.changed):
        return _halt(task, why, f"the switch halts: {why}")
    sentence = f"it is attributed to {facts.switch.target}"
    return _settle(task, LedgerStage.PROMOTED, SwitchReason.ATTRIBUTED, sentence, promoted_op=task.op, tries=0)


def _halt(task: LedgerTask, why: str, sentence: str) -> Iterator[Change]:
    yield PutTask(replace(task, awaiting=SwitchAction.NONE, reason=SwitchReason.WIDE_CHANGE.value))
    yield UpdateSwitch({"halted": why})
    yield of_ledger(task, SwitchVerdict.HALT, SwitchReason.WIDE_CHANGE, sentence)


def _promote_again(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    again = _failed_once_more(task)
    if why := guards.has_tries_left(again, facts.limits.retries):
        sentence = f"{why}: {result.detail}" if result.detail else why
        return _fail(again, LedgerStage.PROMOTE_DEFERRED, SwitchReason.RETRIES_EXHAUSTED, sentence)
    changed = result.outcome is LedgerOutcome.CONFLICT
    reason = SwitchReason.VERSION_CONFLICT if changed else SwitchReason.EXECUTOR_FAILED
    return iter([AskExecutor(again, task.awaiting, reason)])


def _rolled_over(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    target = facts.switch.target
    if result.attribution == target and result.new_id is not None:
        stage, sentence = (
            LedgerStage.PROMOTED_VIA_ROLLOVER,
            f"its cursor lives in ledger {result.new_id} of {target} now",
        )
        yield from _settle(task, stage, SwitchReason.ROLLED_OVER, sentence, target_id=result.new_id, tries=0)
    else:
        unknown = replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY)
        yield PutTask(unknown, numbered=True)
        yield TakeInventory()


def _advanced(facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    return _copy_again(facts, task, SwitchReason.CURSOR_ADVANCED, "the cursor moved on since it was copied")


# --- taking back (row 19), deleting (row 21)


def _reverted(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    if why := guards.only_attribute_differs(task, result.changed):
        return _halt(task, why, f"the rollback halts: {why}")
    sentence = f"it is attributed to {facts.switch.source} again"
    return _settle(task, LedgerStage.REVERTED, SwitchReason.REVERTED, sentence, reverted_op=task.op, tries=0)


def _stays(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    """A cursor that lives in another ledger now is not taken back: what its owner wrote there is newer."""
    in_target, where = result.attribution == facts.switch.target, result.attribution or facts.switch.source
    stage = LedgerStage.PROMOTED_VIA_ROLLOVER if in_target else LedgerStage.REVERTED
    sentence = f"its cursor lives in ledger {result.new_id} of {where} now"
    target_id = result.new_id if in_target else task.target_id
    return _settle(task, stage, SwitchReason.ROLLED_OVER, sentence, target_id=target_id, tries=0)


def _deleted(facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    source = facts.instance(facts.switch.source)
    if source is not None:
        others = [d for d in facts.state.deleted if d.instance != source]
        ids = tuple(sorted({*facts.deleted_ids(source), task.ledger_id}))
        yield Update({"deleted": tuple(sorted([*others, DeletedIds(source, ids)], key=lambda d: d.instance))})
    yield from _settle(task, LedgerStage.CLEANED, SwitchReason.DELETED, f"it is gone from {facts.switch.source}")


def _try_again(facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    again = _failed_once_more(task)
    if why := guards.has_tries_left(again, facts.limits.retries):
        return _give_up(again, why)
    if facts.switch.stage is SwitchStage.ABORTED:
        return _give_up(again, "the switch is over")
    if task.awaiting is SwitchAction.DELETE_OLD:
        return iter([PutTask(replace(again, awaiting=SwitchAction.NONE))])  # asked again where it still may be
    return iter([AskExecutor(again, task.awaiting, SwitchReason.EXECUTOR_FAILED)])


def _give_up(task: LedgerTask, why: str) -> Iterator[Change]:
    after = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.RETRIES_EXHAUSTED.value)
    yield PutTask(after)
    sentence = f"ledger {task.ledger_id} stays {task.stage.value}: {why}"
    yield of_ledger(after, SwitchVerdict.LEDGER, SwitchReason.RETRIES_EXHAUSTED, sentence)


_Row = Callable[[SwitchFacts, LedgerTask, LedgerResult], Iterator[Change]]
_ROWS: dict[tuple[SwitchAction, LedgerOutcome], _Row] = {
    (SwitchAction.COPY, LedgerOutcome.COPIED): _copied,
    (SwitchAction.COPY, LedgerOutcome.EXISTS): _exists,
    (SwitchAction.COPY, LedgerOutcome.SOURCE_UNREADABLE): _unreadable,
    (SwitchAction.COPY, LedgerOutcome.FAILED): _copy_failed,
    (SwitchAction.DELETE_COPY, LedgerOutcome.COPY_DELETED): _copy_deleted,
    (SwitchAction.DELETE_COPY, LedgerOutcome.FAILED): _copy_not_deleted,
    (SwitchAction.PROMOTE, LedgerOutcome.PROMOTED): _promoted,
    (SwitchAction.PROMOTE, LedgerOutcome.CONFLICT): _promote_again,
    (SwitchAction.PROMOTE, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.PROMOTE, LedgerOutcome.ADVANCED): _advanced,
    (SwitchAction.PROMOTE, LedgerOutcome.FAILED): _promote_again,
    (SwitchAction.ROLL_OVER, LedgerOutcome.ROLLED_OVER): _rolled_over,
    (SwitchAction.ROLL_OVER, LedgerOutcome.FAILED): _promote_again,
    (SwitchAction.REVERT, LedgerOutcome.REVERTED): _reverted,
    (SwitchAction.REVERT, LedgerOutcome.ROLLED_OVER): _stays,
    (SwitchAction.REVERT, LedgerOutcome.CONFLICT): _try_again,
    (SwitchAction.REVERT, LedgerOutcome.FAILED): _try_again,
    (SwitchAction.DELETE_OLD, LedgerOutcome.DELETED): _deleted,
    (SwitchAction.DELETE_OLD, LedgerOutcome.FAILED): _try_again,
}
"""Which results fit what was asked; any other is an invalid transition."""
