"""The working copy of a state during a step: the only place where folded readings and judged changes are written.

It is the only mutable object of this package, and never leaves a step.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from policies.switching.blocks import BLOCK_SIZE, BlockMap
from policies.switching.emit.drafts import draft_of
from policies.switching.facts import SwitchFacts
from policies.switching.id_marks import written
from policies.switching.judge.changes import (
    Advance,
    AskExecutor,
    Begin,
    Change,
    Count,
    DecisionDraft,
    DirectBrokers,
    DropTask,
    ForgetIntent,
    JournalIntent,
    PutTask,
    Reject,
    SettlePlan,
    Update,
    UpdateSwitch,
    WriteStatus,
)
from policies.switching.ledgers import CopyIntent
from policies.switching.plan import LedgerPlan, plan_of, stage_counts
from policies.switching.settings import SwitchLimits
from policies.switching.state import (
    Directive,
    JournalKey,
    LedgerStage,
    LedgerTask,
    SwitchAction,
    SwitchingState,
    SwitchStage,
)

_STAGES = {
    SwitchAction.COPY: LedgerStage.COPYING,
    SwitchAction.PROMOTE: LedgerStage.PROMOTING,
    SwitchAction.ROLL_OVER: LedgerStage.PROMOTING,
    SwitchAction.DELETE_OLD: LedgerStage.DELETE_INTENT,
}


def _key_of(intent: CopyIntent) -> JournalKey:
    return intent.target, intent.ledger_id, intent.remap


def _target_of(intent: CopyIntent) -> str:
    return intent.target


class Transition:
    """What comes of some events, one after the other.

    Args:
        state: before.
        limits: in force.
        now_ms: the moment, milliseconds since the epoch.
    """

    def __init__(self, state: SwitchingState, limits: SwitchLimits, now_ms: int) -> None:
        self.state = state
        self.limits = limits
        self.now_ms = now_ms
        self.plan = plan_of(state.switch)
        self.drafts: list[DecisionDraft] = []
        """What is said, of the present event."""
        self._journal = BlockMap(CopyIntent, _key_of, _target_of, state.journal, state.journal_blocks)
        # An older version kept all of it loose.
        self._journalled = len(state.journal) > BLOCK_SIZE

    def facts(self) -> SwitchFacts:
        """What is known now."""
        return SwitchFacts(self.state, self.plan, self._journal, self.limits, self.now_ms)

    def apply(self, changes: Iterable[Change]) -> bool:
        """Write what was judged, and put it into words; whether there was anything.

        All of it was judged on what was known before the first change.
        """
        judged = tuple(changes)
        for change in judged:
            self._write(change)
            draft = draft_of(change, self.facts())
            if draft is not None:
                self.drafts.append(draft)
        return bool(judged)

    def packed(self) -> SwitchingState:
        """The state with plan and journal packed again."""
        if self._journalled:
            journal, blocks = self._journal.packed()
            self._update({"journal": journal, "journal_blocks": blocks})
        if self.state.switch is not None and self.plan.changed:
            self._update_switch(self.plan.packed())
        return self.state

    def _write(self, change: Change) -> None:
        match change:
            case Count(what):
                self._count(what)
            case Reject():
                self._count("rejected")
            case Update(fields):
                self._update(fields)
            case UpdateSwitch(fields):
                self._update_switch(fields)
            case Advance(stage, _, _, fields):
                self._update_switch({"stage": stage, "stage_ms": self.now_ms, **fields})
            case Begin(switch):
                self._update({"switch": switch})
                self.plan = plan_of(switch)
            case DirectBrokers(target):
                self._direct(target)
            case WriteStatus(action):
                self._update_switch({"awaiting": action, "op": self._next_op()})
            case _:
                self._write_ledger(change)

    def _write_ledger(self, change: Change) -> None:
        match change:
            case PutTask(task, numbered):
                self.plan.put(replace(task, op=self._next_op()) if numbered else task)
            case DropTask(key):
                self.plan.drop(key)
            case AskExecutor(task, action):
                self._ask(task, action)
            case JournalIntent(task):
                self._note_intent(task)
            case ForgetIntent(task):
                self._journal.drop((self.facts().target_instance, task.ledger_id, task.remap))
                self._journalled = True
            case SettlePlan():
                self._settle_plan()

    def _update(self, fields: Mapping[str, Any]) -> None:
        self.state = replace(self.state, **fields)

    def _update_switch(self, fields: Mapping[str, Any]) -> None:
        self._update({"switch": replace(self.facts().switch, **fields)})

    def _count(self, what: str) -> None:
        counts = self.state.counts
        self._update({"counts": replace(counts, **{what: getattr(counts, what) + 1})})

    def _next_op(self) -> int:
        """The number of the next order; none is ever used twice, so a result fits one order only."""
        self._update({"ops": self.state.ops + 1})
        return self.state.ops

    def _direct(self, target: str) -> None:
        """An executor never overwrites a later epoch."""
        epoch, marks = self.state.epoch + 1, self.state.marks
        if (active := self.state.active()) is not None:
            marks = written(marks, self.state.cluster(active), from_now=False)
        marks = written(marks, self.state.cluster(target), from_now=True)
        directive = Directive(epoch, target)
        self._update({"epoch": epoch, "directive": directive, "directed_ms": self.now_ms, "marks": marks})
        if self.state.switch is not None:
            self._update_switch({"epoch": epoch})

    def _ask(self, task: LedgerTask, action: SwitchAction) -> None:
        stage = _STAGES.get(action, task.stage)
        stays = (SwitchStage.ROLLED_BACK, SwitchStage.ABORTED)
        if action is SwitchAction.DELETE_COPY and self.facts().switch.stage not in stays:
            stage = LedgerStage.COPYING  # it is deleted to be copied again
        if action is SwitchAction.COPY:
            self._note_intent(task)
        self.plan.put(replace(task, stage=stage, awaiting=action, op=self._next_op()))

    def _note_intent(self, task: LedgerTask) -> None:
        facts = self.facts()
        intent = facts.intent_to_copy(task)
        if intent is not None and intent is not facts.intent(task):
            self._journal.put(intent)
            self._journalled = True

    def _settle_plan(self) -> None:
        """Keep of a switch that is over how many ledgers stand where: a plan of 100,000 weighs 8 MB in each batch.

        Once it is done, what was copied is the target's own: without its intent nobody takes it for a copy to delete.
        """
        self._update_switch(self.plan.packed())
        self._update_switch({"settled": dict(sorted(stage_counts(self.facts().switch).items()))})
        self.plan = LedgerPlan()
        self.plan.changed = True
        if self.facts().switch.stage is not SwitchStage.DONE:
            return
        instance = self.facts().instance(self.facts().switch.target)
        kept = [intent for intent in self._journal if intent.target != instance]
        self._journal = BlockMap(CopyIntent, _key_of, _target_of, kept)
        self._journalled = True
