"""Executors' results for single ledgers: rows 9 to 11, 13 to 16, 19 and 21 of the table.

Every result quotes the number of the order it answers. A result of an earlier order, or a second one, is late. The
executor carries an order out to its end before it answers: a failure is final, except for a deletion.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import LedgerResult
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.ledgers import Ledger, LedgerKind, is_ours, same_ledger
from policies.switching.readings import LedgerOutcome, SwitchCommand
from policies.switching.state import DeletedIds, LedgerStage, LedgerTask, RegistryEntry, SwitchAction, SwitchStage

# The changes that the judge proposes: plain data, which `machine` applies and `emit.drafts` puts into words.
#
# A `DecisionDraft` is a decision that changes no state.


@dataclass(frozen=True, slots=True)
class DecisionDraft:
    """A decision before it is numbered and dated."""

    verdict: SwitchVerdict
    reason: SwitchReason
    sentence: str
    subject: str = ""
    """The subject below the cluster: empty for the switch itself, ``ledgers/5``, ``commands/<key>``."""
    code: RejectCode | None = None
    task: LedgerTask | None = None
    op: int = 0
    details: Mapping[str, object] = field(default_factory=dict)
    """Further arguments for the executor."""
    cause: int = -1
    """The index of the event that caused it, among the events of the step."""


@dataclass(frozen=True, slots=True)
class Count:
    """An event changes nothing, and only adds one to this field of `IgnoredCounts`."""

    counter: str


@dataclass(frozen=True, slots=True)
class Reject:
    """A command or event is rejected."""

    code: RejectCode
    sentence: str
    subject: str


@dataclass(frozen=True, slots=True)
class Update:
    """Fields of the state change. With the field `switch` a new switch begins, without a plan."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class UpdateSwitch:
    """Fields of the switch change."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Advance:
    """The switch moves to another stage."""

    stage: SwitchStage
    reason: SwitchReason
    sentence: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """The switch is over: its plan shrinks to counts, and its copies now belong to the target."""


@dataclass(frozen=True, slots=True)
class PutTask:
    """A ledger enters the plan, or replaces its previous version there."""

    task: LedgerTask
    numbered: bool = False
    """Whether it gets the next number, so that results of earlier orders are late."""


@dataclass(frozen=True, slots=True)
class DropTask:
    """A ledger leaves the plan."""

    key: int


@dataclass(frozen=True, slots=True)
class OrderLedger:
    """An executor is ordered to do something with a ledger; its result quotes the order's number."""

    task: LedgerTask
    reason: SwitchReason
    action: SwitchAction | None = None
    """None: the open order is repeated under its number."""


@dataclass(frozen=True, slots=True)
class DirectBrokers:
    """Brokers are directed to a cluster by the next epoch."""

    reason: SwitchReason
    target: str | None = None
    """None: the directive in force is repeated, if it is not committed."""


@dataclass(frozen=True, slots=True)
class WriteRegistry:
    """A cluster is to be written into the registry; repeated until the registry shows it."""

    entry: RegistryEntry
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class RemoveRegistry:
    """A cluster is to be removed from the registry; repeated until the registry no longer shows it."""

    name: str
    version: int | None
    reason: SwitchReason


@dataclass(frozen=True, slots=True)
class TakeInventory:
    """All references are to be listed, and which of their ledgers exist in the target."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """The target becomes active and the source deprecated, in one transaction."""

    action: SwitchAction | None
    """None: the open order is repeated."""
    reason: SwitchReason = SwitchReason.ALL_TERMINAL


Change = (
    DecisionDraft | Count | Reject | Update | UpdateSwitch | Advance | SettlePlan | PutTask | DropTask
    | OrderLedger | DirectBrokers | WriteRegistry | RemoveRegistry | TakeInventory
    | WriteStatus
)  # fmt: skip


def reject(command: SwitchCommand, code: RejectCode, sentence: str) -> Reject:
    """Reject a command."""
    return Reject(code, sentence, f"commands/{command.idempotency_key}")


def draft_ledger(
    task: LedgerTask, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, code: RejectCode | None = None
) -> DecisionDraft:
    """Draft a decision about a ledger."""
    return DecisionDraft(verdict, reason, sentence, f"ledgers/{task.ledger_id}", code, task, task.op)


_ONLY_FROM_CURSORS = frozenset({LedgerOutcome.ADVANCED, LedgerOutcome.ROLLED_OVER})
_IDLE = frozenset({SwitchAction.NONE, SwitchAction.GIVEN_UP, SwitchAction.SETTLED})


def judge_result(facts: SwitchFacts, result: LedgerResult) -> Iterator[Change]:
    """Accept a result if it fits the open order of its ledger."""
    task, subject, switch = _find_task(facts, result), f"ledgers/{result.ledger_id}", facts.state.switch
    if task is None and switch is not None and switch.settled and result.op <= facts.state.ops:
        yield Count("repeated")  # it comes after the switch's end
    elif task is None or result.op > task.op:
        sentence = f"nothing was asked of ledger {result.ledger_id} as {result.op}"
        yield Reject(RejectCode.INVALID_TRANSITION, sentence, subject)
    elif result.op < task.op or task.awaiting in _IDLE:
        yield Count("repeated")
    elif named := _find_other_ledgers(task, result):
        # It counts as a failure, whichever executor sent it.
        sentence = f"the answer about ledger {task.ledger_id} names ledger {named}"
        yield Reject(RejectCode.INVALID_TRANSITION, sentence, subject)
        failure = LedgerResult(result.ledger_id, result.op, LedgerOutcome.FAILED, detail=sentence)
        if (row := _ROWS.get((task.awaiting, LedgerOutcome.FAILED))) is not None:
            yield from row(facts, task, failure)
    elif (row := _ROWS.get((task.awaiting, result.outcome))) is None or (
        result.outcome in _ONLY_FROM_CURSORS and task.kind is not LedgerKind.CURSOR
    ):
        sentence = f"ledger {task.ledger_id}: {result.outcome.value} answers no {task.awaiting.value}"
        yield Reject(RejectCode.INVALID_TRANSITION, sentence, subject)
    else:
        yield UpdateSwitch({"progress_ms": facts.now_ms})
        yield from row(facts, task, result)


def _find_task(facts: SwitchFacts, result: LedgerResult) -> LedgerTask | None:
    """A cursor and a schema may name the same ledger; the order's number decides for which of them the result is."""
    planned = facts.plan.tasks_of(result.ledger_id) if facts.state.switch else ()
    ordered = next((t for t in planned if t.op == result.op), None)
    return ordered or max(planned, key=lambda t: t.op, default=None)


def _find_other_ledgers(task: LedgerTask, result: LedgerResult) -> str:
    """List the result's ledger ids if one of them is another ledger's; only a copy under a new id has its own."""
    same_id = (result.source, None if task.remap else result.target)
    if all(ledger is None or ledger.ledger_id == task.ledger_id for ledger in same_id):
        return ""
    return ", ".join(str(ledger.ledger_id) for ledger in (result.source, result.target) if ledger is not None)


def _settle(
    task: LedgerTask, stage: LedgerStage, why: SwitchReason, sentence: str, **fields: object
) -> Iterator[Change]:
    """Move a ledger to another stage, without an order."""
    after: LedgerTask = replace(task, stage=stage, awaiting=SwitchAction.NONE, **fields)
    yield PutTask(after)
    yield draft_ledger(after, SwitchVerdict.LEDGER, why, f"ledger {task.ledger_id} is {stage.value}: {sentence}")


def _fail(task: LedgerTask, stage: LedgerStage, why: SwitchReason, sentence: str) -> Iterator[Change]:
    """Leave a ledger behind, after the executor has tried `retries` times."""
    return _settle(task, stage, why, sentence, reason=why.value)


# --- copying (rows 9 to 11)


def _copied(_facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    target, target_id = _get_copy(task, result)
    if why := guards.refuse_unequal_copy(result.source, target):
        return _fail(replace(task, target_id=target_id), LedgerStage.BUILD_FAILED, SwitchReason.COPY_DIFFERS, why)
    fields: dict[str, object] = {"target_id": target_id, "cleared": True}
    return _settle(task, LedgerStage.BUILT, SwitchReason.COPIED, f"its copy is equal{_add_detail(result)}", **fields)


def _add_detail(result: LedgerResult) -> str:
    """Return the executor's detail as a suffix: earlier tries may have deleted our own copy to make it again."""
    return f" ({result.detail})" if result.detail else ""


def _get_copy(task: LedgerTask, result: LedgerResult) -> tuple[Ledger | None, int | None]:
    """Return the target's ledger as if it had the source's id, and its new id; None if it has no new id."""
    if not task.remap or result.target is None:
        return result.target, None
    return replace(result.target, ledger_id=task.ledger_id), result.target.ledger_id


def _exists(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    source = facts.source_instance
    found, target_id = _get_copy(task, result)
    if found is None:
        return _copy_failed(facts, task, result)
    if why := guards.refuse_foreign_ledger(found, source):
        return refuse_import(facts, task, SwitchReason.FOREIGN_ID, why)
    if result.source is None or not same_ledger(result.source, found):
        partial, why = replace(task, target_id=target_id), "our earlier copy is not complete"
        return _fail(partial, LedgerStage.BUILD_FAILED, SwitchReason.OURS_PARTIAL, why)
    # `cleared` comes from the provenance and not from the guard, so that a wrong guard shows as a breach of INV-1.
    fields: dict[str, object] = {"cleared": is_ours(found, source), "target_id": target_id}
    return _settle(task, LedgerStage.BUILT, SwitchReason.OURS_COMPLETE, "our earlier copy is complete", **fields)


def refuse_import(facts: SwitchFacts, task: LedgerTask, reason: SwitchReason, why: str) -> Iterator[Change]:
    """Leave a ledger in the source because its id is taken in the target: that ledger is never overwritten."""
    stage = LedgerStage.FOREIGN_CONFLICT
    after = replace(task, stage=stage, awaiting=SwitchAction.NONE, reason=reason.value, cleared=False)
    yield PutTask(after)
    sentence = f"ledger {task.ledger_id} stays in {facts.switch.source}: {why}; it needs another id"
    yield draft_ledger(after, SwitchVerdict.REMAP_REQUIRED, reason, sentence, RejectCode.COLLISION)


def _unreadable(_facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    why = result.detail or "the source can't be read"
    return _fail(task, LedgerStage.BUILD_FAILED, SwitchReason.SOURCE_UNREADABLE, why)


def _copy_failed(_facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    why = result.detail or "no reason given"
    return _fail(task, LedgerStage.BUILD_FAILED, SwitchReason.RETRIES_EXHAUSTED, why)


def _copy_deleted(_facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    yield from _settle(task, task.stage, SwitchReason.DELETED, "our copy is deleted", copied=False)


# --- promoting (rows 13 to 16)


def _promoted(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    if why := guards.refuse_wide_change(task, result.changed):
        return _halt(task, why, f"the switch halts: {why}")
    sentence = f"it is attributed to {facts.switch.target}{_add_detail(result)}"
    return _settle(task, LedgerStage.PROMOTED, SwitchReason.ATTRIBUTED, sentence, promoted_op=task.op, tries=0)


def _halt(task: LedgerTask, why: str, sentence: str) -> Iterator[Change]:
    yield PutTask(replace(task, awaiting=SwitchAction.NONE, reason=SwitchReason.WIDE_CHANGE.value))
    yield UpdateSwitch({"halted": why})
    yield draft_ledger(task, SwitchVerdict.HALT, SwitchReason.WIDE_CHANGE, sentence)


def _not_promoted(_facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    is_late = result.outcome is LedgerOutcome.ADVANCED
    reason = SwitchReason.CURSOR_ADVANCED if is_late else SwitchReason.RETRIES_EXHAUSTED
    return _fail(task, LedgerStage.PROMOTE_DEFERRED, reason, result.detail or result.outcome.value)


def _rolled_over(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    target = facts.switch.target
    if result.attribution == target and result.new_id is not None:
        stage, reason = LedgerStage.PROMOTED_VIA_ROLLOVER, SwitchReason.ROLLED_OVER
        sentence = f"its cursor lives in ledger {result.new_id} of {target} now"
        yield from _settle(task, stage, reason, sentence, target_id=result.new_id)
    else:
        unknown = replace(task, stage=LedgerStage.PENDING, awaiting=SwitchAction.INVENTORY)
        yield PutTask(unknown, numbered=True)
        yield TakeInventory()


# --- taking back (row 19), deleting (row 21)


def _reverted(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    if why := guards.refuse_wide_change(task, result.changed):
        return _halt(task, why, f"the rollback halts: {why}")
    sentence = f"it is attributed to {facts.switch.source} again"
    return _settle(task, LedgerStage.REVERTED, SwitchReason.REVERTED, sentence, reverted_op=task.op)


def _not_reverted(facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    """A cursor that lives in another ledger by now is not taken back: its owner's position there is newer."""
    in_target, where = result.attribution == facts.switch.target, result.attribution or facts.switch.source
    stage = LedgerStage.PROMOTED_VIA_ROLLOVER if in_target else LedgerStage.REVERTED
    sentence = f"its cursor lives in ledger {result.new_id} of {where} now"
    target_id = result.new_id if in_target else task.target_id
    return _settle(task, stage, SwitchReason.ROLLED_OVER, sentence, target_id=target_id)


def _deleted(facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    source = facts.instance(facts.switch.source)
    if source is not None:
        others = [d for d in facts.state.deleted if d.instance != source]
        ids = tuple(sorted({*facts.deleted_ids(source), task.ledger_id}))
        yield Update({"deleted": tuple(sorted([*others, DeletedIds(source, ids)], key=lambda d: d.instance))})
    yield from _settle(task, LedgerStage.CLEANED, SwitchReason.DELETED, f"it is gone from {facts.switch.source}")


def _not_taken_back(_facts: SwitchFacts, task: LedgerTask, result: LedgerResult) -> Iterator[Change]:
    return _give_up(task, result.detail)


def _not_deleted(facts: SwitchFacts, task: LedgerTask, _result: LedgerResult) -> Iterator[Change]:
    """A deletion cannot be undone, so each try is ordered again, if it is still allowed."""
    again = replace(task, tries=task.tries + 1)
    if why := guards.refuse_further_tries(again, facts.limits.retries):
        return _give_up(again, why)
    if facts.switch.stage is SwitchStage.ABORTED or facts.switch.kept:
        return _give_up(again, "an operator ended it")
    return iter([PutTask(replace(again, awaiting=SwitchAction.NONE))])


def _give_up(task: LedgerTask, why: str) -> Iterator[Change]:
    after = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.RETRIES_EXHAUSTED.value)
    yield PutTask(after)
    sentence = f"ledger {task.ledger_id} stays {task.stage.value}: {why or 'no reason given'}"
    yield draft_ledger(after, SwitchVerdict.LEDGER, SwitchReason.RETRIES_EXHAUSTED, sentence)


_Row = Callable[[SwitchFacts, LedgerTask, LedgerResult], Iterator[Change]]
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
