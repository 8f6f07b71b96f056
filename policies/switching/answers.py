"""What executors answer about single ledgers: rows 9 to 11, 13 to 16, 19 and 21 of the table.

Every answer quotes the number of the order it answers. An answer to an earlier order, or a second answer, is late.
"""

from collections.abc import Callable

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import LedgerResult
from policies.switching.intents import ask, take_inventory
from policies.switching.ledgers import Ledger, is_ours, same_ledger
from policies.switching.readings import LedgerOutcome
from policies.switching.references import LedgerKind
from policies.switching.state import DeletedIds, LedgerStage, LedgerTask, SwitchAction, SwitchStage
from policies.switching.transition import Transition


def ledger_done(transition: Transition, event: LedgerResult) -> None:
    """Take one answer."""
    task = transition.plan.get(event.ledger_id) if transition.state.switch else None
    if (
        task is None
        and transition.state.switch is not None
        and transition.switch.settled
        and event.op <= transition.state.ops
    ):
        transition.count("repeated")
    elif task is None or event.op > task.op:
        transition.reject(
            RejectCode.INVALID_TRANSITION, f"nothing was asked of ledger {event.ledger_id} as {event.op}", _at(event)
        )
    elif event.op < task.op or task.awaiting in (SwitchAction.NONE, SwitchAction.GIVEN_UP):
        transition.count("repeated")
    elif (handler := _HANDLERS.get((task.awaiting, event.outcome))) is None or not _fits(task, event):
        asked = task.awaiting.value
        transition.reject(
            RejectCode.INVALID_TRANSITION,
            f"ledger {task.ledger_id}: {event.outcome.value} answers no {asked}",
            _at(event),
        )
    else:
        handler(transition, task, event)


def _at(event: LedgerResult) -> str:
    return f"ledgers/{event.ledger_id}"


def _fits(task: LedgerTask, event: LedgerResult) -> bool:
    """Only a cursor advances or rolls over."""
    return task.kind is LedgerKind.CURSOR or event.outcome not in (LedgerOutcome.ADVANCED, LedgerOutcome.ROLLED_OVER)


def _settle(
    transition: Transition, task: LedgerTask, stage: LedgerStage, why: SwitchReason, sentence: str, **changes: object
) -> None:
    """A ledger comes to another stage and nothing is asked of it."""
    after: LedgerTask = replace(task, stage=stage, awaiting=SwitchAction.NONE, **changes)
    transition.plan.put(after)
    transition.say_of(after, SwitchVerdict.LEDGER, why, f"ledger {task.ledger_id} is {stage.value}: {sentence}")


def _failed(transition: Transition, task: LedgerTask, stage: LedgerStage, reason: SwitchReason, sentence: str) -> None:
    _settle(transition, task, stage, reason, sentence, reason=reason.value)


# --- copying (rows 9 to 11)


def _copied(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    target, target_id = _copy_of(task, event)
    if why := guards.copy_is_equal(event.source, target):
        _copy_again(transition, replace(task, target_id=target_id), SwitchReason.COPY_DIFFERS, why)
    else:
        # While promoting, tries go on counting: a cursor that always advances must come to an end.
        tries = task.tries if transition.switch.stage is SwitchStage.PROMOTE else 0
        _settle(
            transition,
            task,
            LedgerStage.BUILT,
            SwitchReason.COPIED,
            "its copy is equal",
            target_id=target_id,
            tries=tries,
            cleared=True,
        )


def _copy_of(task: LedgerTask, event: LedgerResult) -> tuple[Ledger | None, int | None]:
    """What the target has of a ledger, and its id there where that is a new one; the rest must be as in the source."""
    if not task.remap or event.target is None:
        return event.target, None
    return replace(event.target, ledger_id=task.ledger_id), event.target.ledger_id


def _exists(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    source, target = (
        transition.instance(transition.switch.source) or "",
        transition.instance(transition.switch.target) or "",
    )
    intent, (found, target_id) = transition.intent(task), _copy_of(task, event)
    if found is None:
        _copy_failed(transition, task, event)
    elif why := guards.import_is_disjoint(found, intent, source, target):
        conflict(transition, task, SwitchReason.FOREIGN_ID, why)
    elif event.source is not None and same_ledger(event.source, found):
        # Asked of the journal itself, so that a guard gone wrong shows as a breach of INV-1.
        cleared = is_ours(found, intent, source, target)
        sentence = "our earlier copy is complete"
        _settle(
            transition,
            task,
            LedgerStage.BUILT,
            SwitchReason.OURS_COMPLETE,
            sentence,
            cleared=cleared,
            target_id=target_id,
        )
    else:
        _copy_again(
            transition,
            replace(task, target_id=target_id),
            SwitchReason.OURS_PARTIAL,
            "our earlier copy is not complete",
        )


def conflict(transition: Transition, task: LedgerTask, reason: SwitchReason, why: str) -> None:
    """A ledger that can't have its id in the target: never overwritten, never promoted."""
    after = replace(
        task, stage=LedgerStage.FOREIGN_CONFLICT, awaiting=SwitchAction.NONE, reason=reason.value, cleared=False
    )
    transition.plan.put(after)
    sentence = f"ledger {task.ledger_id} stays in {transition.switch.source}: {why}; it needs another id"
    transition.say_of(after, SwitchVerdict.REMAP_REQUIRED, reason, sentence, code=RejectCode.COLLISION)


def _unreadable(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    _failed(
        transition,
        task,
        LedgerStage.BUILD_FAILED,
        SwitchReason.SOURCE_UNREADABLE,
        event.detail or "the source can't be read",
    )


def _copy_failed(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    again = replace(task, tries=task.tries + 1)
    if why := guards.has_tries_left(again, transition.limits.retries):
        _failed(
            transition,
            again,
            _end_of_copying(transition),
            SwitchReason.RETRIES_EXHAUSTED,
            f"{why}: {event.detail or 'no reason given'}",
        )
    else:
        ask(transition, again, SwitchAction.COPY, SwitchReason.EXECUTOR_FAILED)


def _copy_again(transition: Transition, task: LedgerTask, reason: SwitchReason, why: str) -> None:
    """Delete our own copy and copy again, unless that was tried often enough."""
    again = replace(task, tries=task.tries + 1)
    if exhausted := guards.has_tries_left(again, transition.limits.retries):
        _failed(transition, again, _end_of_copying(transition), SwitchReason.RETRIES_EXHAUSTED, f"{why}; {exhausted}")
    elif unrecorded := guards.is_recorded(task, transition.intent(task)):
        _failed(transition, again, _end_of_copying(transition), SwitchReason.RETRIES_EXHAUSTED, unrecorded)
    else:
        ask(transition, again, SwitchAction.DELETE_COPY, reason)


def _end_of_copying(transition: Transition) -> LedgerStage:
    return LedgerStage.PROMOTE_DEFERRED if transition.switch.stage is SwitchStage.PROMOTE else LedgerStage.BUILD_FAILED


def _copy_deleted(transition: Transition, task: LedgerTask, _event: LedgerResult) -> None:
    transition.forget_intent(task)
    if transition.switch.stage is SwitchStage.ROLLED_BACK:
        _settle(transition, task, task.stage, SwitchReason.DELETED, "our copy is deleted", tries=0)
    else:
        _settle(transition, task, LedgerStage.PENDING, SwitchReason.DELETED, "our copy is deleted", target_id=None)


def _copy_not_deleted(transition: Transition, task: LedgerTask, _event: LedgerResult) -> None:
    again = replace(task, tries=task.tries + 1)
    if not (why := guards.has_tries_left(again, transition.limits.retries)):
        ask(transition, again, SwitchAction.DELETE_COPY, SwitchReason.EXECUTOR_FAILED)
    elif transition.switch.stage is SwitchStage.ROLLED_BACK:
        _give_up(transition, again, why)
    else:
        _failed(transition, again, _end_of_copying(transition), SwitchReason.RETRIES_EXHAUSTED, why)


# --- promoting (rows 13 to 16)


def _promoted(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    if why := guards.only_attribute_differs(task, event.changed):
        transition.plan.put(replace(task, awaiting=SwitchAction.NONE, reason=SwitchReason.WIDE_CHANGE.value))
        transition.set_switch(halted=why)
        transition.say_of(task, SwitchVerdict.HALT, SwitchReason.WIDE_CHANGE, f"the switch halts: {why}")
    else:
        sentence = f"it is attributed to {transition.switch.target}"
        _settle(transition, task, LedgerStage.PROMOTED, SwitchReason.ATTRIBUTED, sentence, promoted_op=task.op, tries=0)


def _promote_again(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    again = replace(task, tries=task.tries + 1)
    if why := guards.has_tries_left(again, transition.limits.retries):
        _failed(transition, again, LedgerStage.PROMOTE_DEFERRED, SwitchReason.RETRIES_EXHAUSTED, why)
    else:
        reason = (
            SwitchReason.VERSION_CONFLICT if event.outcome is LedgerOutcome.CONFLICT else SwitchReason.EXECUTOR_FAILED
        )
        ask(transition, again, task.awaiting, reason)


def _rolled_over(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    if event.attribution == transition.switch.target and event.new_id is not None:
        sentence = f"its cursor lives in ledger {event.new_id} of {transition.switch.target} now"
        _settle(
            transition,
            task,
            LedgerStage.PROMOTED_VIA_ROLLOVER,
            SwitchReason.ROLLED_OVER,
            sentence,
            target_id=event.new_id,
            tries=0,
        )
    else:
        transition.plan.put(
            replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY, op=transition.next_op())
        )
        take_inventory(transition)


def _advanced(transition: Transition, task: LedgerTask, _event: LedgerResult) -> None:
    _copy_again(transition, task, SwitchReason.CURSOR_ADVANCED, "the cursor moved on since it was copied")


# --- taking back (row 19), deleting (row 21)


def _reverted(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    if why := guards.only_attribute_differs(task, event.changed):
        transition.plan.put(replace(task, awaiting=SwitchAction.NONE, reason=SwitchReason.WIDE_CHANGE.value))
        transition.set_switch(halted=why)
        transition.say_of(task, SwitchVerdict.HALT, SwitchReason.WIDE_CHANGE, f"the rollback halts: {why}")
    else:
        sentence = f"it is attributed to {transition.switch.source} again"
        _settle(transition, task, LedgerStage.REVERTED, SwitchReason.REVERTED, sentence, reverted_op=task.op, tries=0)


def _stays(transition: Transition, task: LedgerTask, event: LedgerResult) -> None:
    """A cursor that lives in another ledger now is not taken back: what its owner wrote there is newer."""
    stage, where = LedgerStage.REVERTED, event.attribution or transition.switch.source
    if event.attribution == transition.switch.target:
        stage = LedgerStage.PROMOTED_VIA_ROLLOVER
    _settle(
        transition, task, stage, SwitchReason.ROLLED_OVER, f"its cursor lives in ledger {event.new_id} of {where} now",
        target_id=event.new_id if stage is LedgerStage.PROMOTED_VIA_ROLLOVER else task.target_id, tries=0,
    )  # fmt: skip


def _deleted(transition: Transition, task: LedgerTask, _event: LedgerResult) -> None:
    source = transition.instance(transition.switch.source)
    if source is not None:
        before = guards.deleted_ids(transition.state, source)
        others = [d for d in transition.state.deleted if d.instance != source]
        ids = tuple(sorted({*before, task.ledger_id}))
        transition.update(deleted=tuple(sorted([*others, DeletedIds(source, ids)], key=lambda d: d.instance)))
    _settle(transition, task, LedgerStage.CLEANED, SwitchReason.DELETED, f"it is gone from {transition.switch.source}")


def _try_again(transition: Transition, task: LedgerTask, _event: LedgerResult) -> None:
    again = replace(task, tries=task.tries + 1)
    if why := guards.has_tries_left(again, transition.limits.retries):
        _give_up(transition, again, why)
    else:
        ask(transition, again, task.awaiting, SwitchReason.EXECUTOR_FAILED)


def _give_up(transition: Transition, task: LedgerTask, why: str) -> None:
    after = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.RETRIES_EXHAUSTED.value)
    transition.plan.put(after)
    transition.say_of(
        after,
        SwitchVerdict.LEDGER,
        SwitchReason.RETRIES_EXHAUSTED,
        f"ledger {task.ledger_id} stays {task.stage.value}: {why}",
    )


_Handler = Callable[[Transition, LedgerTask, LedgerResult], None]
_HANDLERS: dict[tuple[SwitchAction, LedgerOutcome], _Handler] = {
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
"""Which answers fit what was asked; any other is an invalid transition."""
