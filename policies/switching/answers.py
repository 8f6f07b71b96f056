"""What executors answer about single ledgers: rows 9 to 11, 13 to 16, 19 and 21 of the table.

Every answer quotes the number of the order it answers. An answer to an earlier order, or a second answer, is late.
"""

from collections.abc import Callable

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.events import LedgerDone, Outcome
from policies.switching.intents import ask, take_inventory
from policies.switching.ledgers import Ledger, is_ours, same_ledger
from policies.switching.orders import Code, Verdict, Why
from policies.switching.references import Kind
from policies.switching.state import Action, Deleted, LedgerStage, Stage, Unit
from policies.switching.turn import Turn


def ledger_done(turn: Turn, event: LedgerDone) -> None:
    """Take one answer."""
    unit = turn.plan.get(event.ledger_id) if turn.state.switch else None
    if unit is None and turn.state.switch is not None and turn.switch.settled and event.op <= turn.state.ops:
        turn.count("repeated")
    elif unit is None or event.op > unit.op:
        turn.reject(Code.INVALID_TRANSITION, f"nothing was asked of ledger {event.ledger_id} as {event.op}", _at(event))
    elif event.op < unit.op or unit.awaiting in (Action.NONE, Action.GIVEN_UP):
        turn.count("repeated")
    elif (handler := _HANDLERS.get((unit.awaiting, event.outcome))) is None or not _fits(unit, event):
        asked = unit.awaiting.value
        turn.reject(
            Code.INVALID_TRANSITION, f"ledger {unit.ledger_id}: {event.outcome.value} answers no {asked}", _at(event)
        )
    else:
        handler(turn, unit, event)


def _at(event: LedgerDone) -> str:
    return f"ledgers/{event.ledger_id}"


def _fits(unit: Unit, event: LedgerDone) -> bool:
    """Only a cursor advances or rolls over."""
    return unit.kind is Kind.CURSOR or event.outcome not in (Outcome.ADVANCED, Outcome.ROLLED_OVER)


def _settle(turn: Turn, unit: Unit, stage: LedgerStage, why: Why, sentence: str, **changes: object) -> None:
    """A ledger comes to another stage and nothing is asked of it."""
    after: Unit = replace(unit, stage=stage, awaiting=Action.NONE, **changes)
    turn.plan.put(after)
    turn.say_of(after, Verdict.LEDGER, why, f"ledger {unit.ledger_id} is {stage.value}: {sentence}")


def _failed(turn: Turn, unit: Unit, stage: LedgerStage, reason: Why, sentence: str) -> None:
    _settle(turn, unit, stage, reason, sentence, reason=reason.value)


# --- copying (rows 9 to 11)


def _copied(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    target, target_id = _copy_of(unit, event)
    if why := guards.copy_is_equal(event.source, target):
        _copy_again(turn, replace(unit, target_id=target_id), Why.COPY_DIFFERS, why)
    else:
        # While promoting, tries go on counting: a cursor that always advances must come to an end.
        tries = unit.tries if turn.switch.stage is Stage.PROMOTE else 0
        _settle(
            turn,
            unit,
            LedgerStage.BUILT,
            Why.COPIED,
            "its copy is equal",
            target_id=target_id,
            tries=tries,
            cleared=True,
        )


def _copy_of(unit: Unit, event: LedgerDone) -> tuple[Ledger | None, int | None]:
    """What the target has of a ledger, and its id there where that is a new one; the rest must be as in the source."""
    if not unit.remap or event.target is None:
        return event.target, None
    return replace(event.target, ledger_id=unit.ledger_id), event.target.ledger_id


def _exists(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    source, target = turn.instance(turn.switch.source) or "", turn.instance(turn.switch.target) or ""
    intent, (found, target_id) = turn.intent(unit), _copy_of(unit, event)
    if found is None:
        _copy_failed(turn, unit, event)
    elif why := guards.import_is_disjoint(found, intent, source, target):
        conflict(turn, unit, Why.FOREIGN_ID, why)
    elif event.source is not None and same_ledger(event.source, found):
        # Asked of the journal itself, so that a guard gone wrong shows as a breach of INV-1.
        cleared = is_ours(found, intent, source, target)
        sentence = "our earlier copy is complete"
        _settle(turn, unit, LedgerStage.BUILT, Why.OURS_COMPLETE, sentence, cleared=cleared, target_id=target_id)
    else:
        _copy_again(turn, replace(unit, target_id=target_id), Why.OURS_PARTIAL, "our earlier copy is not complete")


def conflict(turn: Turn, unit: Unit, reason: Why, why: str) -> None:
    """A ledger that can't have its id in the target: never overwritten, never promoted."""
    after = replace(unit, stage=LedgerStage.FOREIGN_CONFLICT, awaiting=Action.NONE, reason=reason.value, cleared=False)
    turn.plan.put(after)
    sentence = f"ledger {unit.ledger_id} stays in {turn.switch.source}: {why}; it needs another id"
    turn.say_of(after, Verdict.REMAP_REQUIRED, reason, sentence, code=Code.COLLISION)


def _unreadable(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    _failed(turn, unit, LedgerStage.BUILD_FAILED, Why.SOURCE_UNREADABLE, event.detail or "the source can't be read")


def _copy_failed(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    again = replace(unit, tries=unit.tries + 1)
    if why := guards.has_tries_left(again, turn.limits.retries):
        _failed(
            turn, again, _end_of_copying(turn), Why.RETRIES_EXHAUSTED, f"{why}: {event.detail or 'no reason given'}"
        )
    else:
        ask(turn, again, Action.COPY, Why.EXECUTOR_FAILED)


def _copy_again(turn: Turn, unit: Unit, reason: Why, why: str) -> None:
    """Delete our own copy and copy again, unless that was tried often enough."""
    again = replace(unit, tries=unit.tries + 1)
    if exhausted := guards.has_tries_left(again, turn.limits.retries):
        _failed(turn, again, _end_of_copying(turn), Why.RETRIES_EXHAUSTED, f"{why}; {exhausted}")
    elif unrecorded := guards.is_recorded(unit, turn.intent(unit)):
        _failed(turn, again, _end_of_copying(turn), Why.RETRIES_EXHAUSTED, unrecorded)
    else:
        ask(turn, again, Action.DELETE_COPY, reason)


def _end_of_copying(turn: Turn) -> LedgerStage:
    return LedgerStage.PROMOTE_DEFERRED if turn.switch.stage is Stage.PROMOTE else LedgerStage.BUILD_FAILED


def _copy_deleted(turn: Turn, unit: Unit, _event: LedgerDone) -> None:
    turn.forget_intent(unit)
    if turn.switch.stage is Stage.ROLLED_BACK:
        _settle(turn, unit, unit.stage, Why.DELETED, "our copy is deleted", tries=0)
    else:
        _settle(turn, unit, LedgerStage.PENDING, Why.DELETED, "our copy is deleted", target_id=None)


def _copy_not_deleted(turn: Turn, unit: Unit, _event: LedgerDone) -> None:
    again = replace(unit, tries=unit.tries + 1)
    if not (why := guards.has_tries_left(again, turn.limits.retries)):
        ask(turn, again, Action.DELETE_COPY, Why.EXECUTOR_FAILED)
    elif turn.switch.stage is Stage.ROLLED_BACK:
        _give_up(turn, again, why)
    else:
        _failed(turn, again, _end_of_copying(turn), Why.RETRIES_EXHAUSTED, why)


# --- promoting (rows 13 to 16)


def _promoted(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    if why := guards.only_attribute_differs(unit, event.changed):
        turn.plan.put(replace(unit, awaiting=Action.NONE, reason=Why.WIDE_CHANGE.value))
        turn.set_switch(halted=why)
        turn.say_of(unit, Verdict.HALT, Why.WIDE_CHANGE, f"the switch halts: {why}")
    else:
        sentence = f"it is attributed to {turn.switch.target}"
        _settle(turn, unit, LedgerStage.PROMOTED, Why.ATTRIBUTED, sentence, promoted_op=unit.op, tries=0)


def _promote_again(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    again = replace(unit, tries=unit.tries + 1)
    if why := guards.has_tries_left(again, turn.limits.retries):
        _failed(turn, again, LedgerStage.PROMOTE_DEFERRED, Why.RETRIES_EXHAUSTED, why)
    else:
        reason = Why.VERSION_CONFLICT if event.outcome is Outcome.CONFLICT else Why.EXECUTOR_FAILED
        ask(turn, again, unit.awaiting, reason)


def _rolled_over(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    if event.attribution == turn.switch.target and event.new_id is not None:
        sentence = f"its cursor lives in ledger {event.new_id} of {turn.switch.target} now"
        _settle(
            turn, unit, LedgerStage.PROMOTED_VIA_ROLLOVER, Why.ROLLED_OVER, sentence, target_id=event.new_id, tries=0
        )
    else:
        turn.plan.put(replace(unit, stage=LedgerStage.PENDING, awaiting=Action.INVENTORY, op=turn.next_op()))
        take_inventory(turn)


def _advanced(turn: Turn, unit: Unit, _event: LedgerDone) -> None:
    _copy_again(turn, unit, Why.CURSOR_ADVANCED, "the cursor moved on since it was copied")


# --- taking back (row 19), deleting (row 21)


def _reverted(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    if why := guards.only_attribute_differs(unit, event.changed):
        turn.plan.put(replace(unit, awaiting=Action.NONE, reason=Why.WIDE_CHANGE.value))
        turn.set_switch(halted=why)
        turn.say_of(unit, Verdict.HALT, Why.WIDE_CHANGE, f"the rollback halts: {why}")
    else:
        sentence = f"it is attributed to {turn.switch.source} again"
        _settle(turn, unit, LedgerStage.REVERTED, Why.REVERTED, sentence, reverted_op=unit.op, tries=0)


def _stays(turn: Turn, unit: Unit, event: LedgerDone) -> None:
    """A cursor that lives in another ledger now is not taken back: what its owner wrote there is newer."""
    stage, where = LedgerStage.REVERTED, event.attribution or turn.switch.source
    if event.attribution == turn.switch.target:
        stage = LedgerStage.PROMOTED_VIA_ROLLOVER
    _settle(
        turn, unit, stage, Why.ROLLED_OVER, f"its cursor lives in ledger {event.new_id} of {where} now",
        target_id=event.new_id if stage is LedgerStage.PROMOTED_VIA_ROLLOVER else unit.target_id, tries=0,
    )  # fmt: skip


def _deleted(turn: Turn, unit: Unit, _event: LedgerDone) -> None:
    source = turn.instance(turn.switch.source)
    if source is not None:
        before = guards.deleted_ids(turn.state, source)
        others = [d for d in turn.state.deleted if d.instance != source]
        ids = tuple(sorted({*before, unit.ledger_id}))
        turn.update(deleted=tuple(sorted([*others, Deleted(source, ids)], key=lambda d: d.instance)))
    _settle(turn, unit, LedgerStage.CLEANED, Why.DELETED, f"it is gone from {turn.switch.source}")


def _try_again(turn: Turn, unit: Unit, _event: LedgerDone) -> None:
    again = replace(unit, tries=unit.tries + 1)
    if why := guards.has_tries_left(again, turn.limits.retries):
        _give_up(turn, again, why)
    else:
        ask(turn, again, unit.awaiting, Why.EXECUTOR_FAILED)


def _give_up(turn: Turn, unit: Unit, why: str) -> None:
    after = replace(unit, awaiting=Action.GIVEN_UP, reason=Why.RETRIES_EXHAUSTED.value)
    turn.plan.put(after)
    turn.say_of(
        after, Verdict.LEDGER, Why.RETRIES_EXHAUSTED, f"ledger {unit.ledger_id} stays {unit.stage.value}: {why}"
    )


_Handler = Callable[[Turn, Unit, LedgerDone], None]
_HANDLERS: dict[tuple[Action, Outcome], _Handler] = {
    (Action.COPY, Outcome.COPIED): _copied,
    (Action.COPY, Outcome.EXISTS): _exists,
    (Action.COPY, Outcome.SOURCE_UNREADABLE): _unreadable,
    (Action.COPY, Outcome.FAILED): _copy_failed,
    (Action.DELETE_COPY, Outcome.COPY_DELETED): _copy_deleted,
    (Action.DELETE_COPY, Outcome.FAILED): _copy_not_deleted,
    (Action.PROMOTE, Outcome.PROMOTED): _promoted,
    (Action.PROMOTE, Outcome.CONFLICT): _promote_again,
    (Action.PROMOTE, Outcome.ROLLED_OVER): _rolled_over,
    (Action.PROMOTE, Outcome.ADVANCED): _advanced,
    (Action.PROMOTE, Outcome.FAILED): _promote_again,
    (Action.ROLL_OVER, Outcome.ROLLED_OVER): _rolled_over,
    (Action.ROLL_OVER, Outcome.FAILED): _promote_again,
    (Action.REVERT, Outcome.REVERTED): _reverted,
    (Action.REVERT, Outcome.ROLLED_OVER): _stays,
    (Action.REVERT, Outcome.CONFLICT): _try_again,
    (Action.REVERT, Outcome.FAILED): _try_again,
    (Action.DELETE_OLD, Outcome.DELETED): _deleted,
    (Action.DELETE_OLD, Outcome.FAILED): _try_again,
}
"""Which answers fit what was asked; any other is an invalid transition."""
