"""The state machine of a switch: takes one event after the other, folds it, judges it, and drafts the decisions.

After every event the switch advances as far as it can, and then every invariant is checked. An event that the table
does not list changes nothing and is an INVALID_TRANSITION. Rules: docs/design/switching.md.

`Transition` is the only mutable object of this package, and the only place where changes are written. It never leaves a
step.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from policies.switching.clusters import mark_written
from policies.switching.decisions import ORDERS, RejectCode, SwitchReason, SwitchVerdict
from policies.switching.emit import draft_decision
from policies.switching.events import Event, RegistrySeen
from policies.switching.facts import SwitchFacts
from policies.switching.fold import FoldedEvent, fold
from policies.switching.judge import judge
from policies.switching.judge.invariants import TransitionResult, breaches
from policies.switching.judge.results import (
    Advance,
    Change,
    Count,
    DecisionDraft,
    DirectBrokers,
    DropTask,
    OrderLedger,
    PutTask,
    Reject,
    SettlePlan,
    Update,
    UpdateSwitch,
    WriteStatus,
    reject,
)
from policies.switching.judge.stages import advance
from policies.switching.plan import LedgerPlan, load_plan
from policies.switching.readings import SwitchCommand
from policies.switching.settings import SwitchLimits
from policies.switching.state import (
    Directive,
    LedgerStage,
    LedgerTask,
    SwitchAction,
    SwitchingState,
)

_STAGES = {
    SwitchAction.COPY: LedgerStage.COPYING,
    SwitchAction.PROMOTE: LedgerStage.PROMOTING,
    SwitchAction.ROLL_OVER: LedgerStage.PROMOTING,
    SwitchAction.DELETE_OLD: LedgerStage.DELETE_INTENT,
}


class Transition:
    """The state during a step, with its plan as it changes."""

    def __init__(self, state: SwitchingState, limits: SwitchLimits, now_ms: int) -> None:
        self.state = state
        self.limits = limits
        self.now_ms = now_ms
        self.plan = load_plan(state.switch)
        self.drafts: list[DecisionDraft] = []
        """The decisions that follow from the present event."""

    def facts(self) -> SwitchFacts:
        """Join the read models as of now."""
        return SwitchFacts(self.state, self.plan, self.limits, self.now_ms)

    def apply(self, changes: Iterable[Change]) -> bool:
        """Write changes and draft their decisions. Returns whether there was any change.

        The judge must end before the first change is written, because it looks at the state before it.
        """
        judged = tuple(changes)
        for change in judged:
            self._write(change)
            draft = draft_decision(change, self.facts())
            if draft is not None:
                self.drafts.append(draft)
        return bool(judged)

    def packed(self) -> SwitchingState:
        """Return the state with its plan as it is now."""
        if self.state.switch is not None and self.plan.changed:
            self._update_switch({"tasks": tuple(self.plan)})
        return self.state

    def _write(self, change: Change) -> None:
        match change:
            case Count(counter):
                self._count(counter)
            case Reject():
                self._count("rejected")
            case Update(fields):
                self._update(fields)
                if "switch" in fields:
                    self.plan = load_plan(self.state.switch)
            case UpdateSwitch(fields):
                self._update_switch(fields)
            case Advance(stage, _, _, fields):
                self._update_switch({"stage": stage, "stage_ms": self.now_ms, **fields})
            case DirectBrokers(_, str(target)):
                self._direct(target)
            case WriteStatus(SwitchAction() as action):
                self._update_switch({"awaiting": action, "op": self._next_op()})
            case _:
                self._write_ledger(change)

    def _write_ledger(self, change: Change) -> None:
        match change:
            case PutTask(task, numbered):
                self.plan.put(replace(task, op=self._next_op()) if numbered else task)
            case DropTask(key):
                self.plan.drop(key)
            case OrderLedger(task, _, SwitchAction() as action):
                self._order(task, action)
            case SettlePlan():
                self._settle_plan()

    def _update(self, fields: Mapping[str, Any]) -> None:
        self.state = replace(self.state, **fields)

    def _update_switch(self, fields: Mapping[str, Any]) -> None:
        self._update({"switch": replace(self.facts().switch, **fields)})

    def _count(self, counter: str) -> None:
        counts = self.state.counts
        self._update({"counts": replace(counts, **{counter: getattr(counts, counter) + 1})})

    def _next_op(self) -> int:
        """Return the number of the next order. No number is used twice, so a result fits one order only."""
        self._update({"ops": self.state.ops + 1})
        return self.state.ops

    def _direct(self, target: str) -> None:
        epoch, marks = self.state.epoch + 1, self.state.marks
        if (active := self.state.active()) is not None:
            marks = mark_written(marks, self.state.cluster(active), from_now=False)
        marks = mark_written(marks, self.state.cluster(target), from_now=True)
        directive = Directive(epoch, target)
        self._update({"epoch": epoch, "directive": directive, "directed_ms": self.now_ms, "marks": marks})
        if self.state.switch is not None:
            self._update_switch({"epoch": epoch})

    def _order(self, task: LedgerTask, action: SwitchAction) -> None:
        stage, copied = _STAGES.get(action, task.stage), task.copied or action is SwitchAction.COPY
        self.plan.put(replace(task, stage=stage, awaiting=action, copied=copied, op=self._next_op()))

    def _settle_plan(self) -> None:
        """Reduce the plan of a switch that is over to counts: a plan of 100,000 ledgers weighs 8 MB in each batch."""
        settled = dict(sorted(Counter(task.stage for task in self.plan).items()))
        self._update_switch({"settled": settled})
        self.plan = LedgerPlan()
        self.plan.changed = True


def reconcile(transition: Transition, events: Iterable[Event]) -> tuple[DecisionDraft, ...]:
    """Take events one after the other, and return the decisions in their order."""
    drafts: list[DecisionDraft] = []
    for index, event in enumerate(events):
        _process(transition, event)
        drafts += (dataclasses.replace(draft, cause=index) for draft in transition.drafts)
        transition.drafts = []
    return tuple(drafts)


def _process(transition: Transition, event: Event) -> None:
    state, folded = (None, None) if _is_outdated(transition, event) else fold(transition.state, event)
    if state is None:
        transition.apply([Count("repeated")])
        if not isinstance(event, SwitchCommand):
            _judge(transition, None)
        return
    if state.switch is not transition.state.switch:
        transition.plan = load_plan(state.switch)
    transition.state = state
    if isinstance(event, SwitchCommand) and event.is_dry_run:
        transition.drafts.append(_preview(transition, event))
    else:
        _judge(transition, folded)


def _is_outdated(transition: Transition, event: Event) -> bool:
    """Whether a reading of the registry is too old to be adopted: after a lost checkpoint the oldest come first."""
    if not isinstance(event, RegistrySeen) or event.at_ms < 0 or transition.state.registry_ms >= 0:
        return False
    return not transition.facts().is_recent(event.at_ms)


def _judge(transition: Transition, event: FoldedEvent | None) -> None:
    """Apply the changes of the event, then those of the automatic progress until none is left.

    A command for another epoch is rejected.
    """
    if isinstance(event, SwitchCommand) and event.expected_epoch not in (None, transition.state.epoch):
        sentence = f"the epoch is {transition.state.epoch}, not {event.expected_epoch} as the command expects"
        transition.apply([reject(event, RejectCode.INVALID_TRANSITION, sentence)])
        return
    if event is not None:
        transition.apply(judge(transition.facts(), event))
    while transition.apply(advance(transition.facts())):
        pass
    _check(transition)


def _check(transition: Transition) -> None:
    """A breach of an invariant drops every order of the transition, halts the switch and is an alert."""
    facts, plan = transition.facts(), transition.plan
    touched = [t for i in sorted(plan.touched) if (t := plan.get(i)) is not None]
    plan.touched = set()
    found = list(breaches(TransitionResult(facts.state, touched, transition.drafts, facts.now_ms)))
    if not found:
        return
    transition.drafts = [d for d in transition.drafts if d.verdict not in ORDERS]
    evidence, switch = "; ".join(str(b) for b in found[:3]), facts.state.switch
    if switch is None or not switch.halted:
        sentence = f"nothing more is ordered: {evidence}"
        transition.apply([DecisionDraft(SwitchVerdict.HALT, SwitchReason.INVARIANT, sentence)])
    if switch is not None:
        transition.apply([UpdateSwitch({"halted": evidence})])


def _preview(transition: Transition, command: SwitchCommand) -> DecisionDraft:
    """Run a command on the same state with the same code, and keep nothing but the sentences."""
    trial = Transition(transition.packed(), transition.limits, transition.now_ms)
    _judge(trial, command)
    subject, verdict = f"commands/{command.idempotency_key}", SwitchVerdict.PREVIEW
    rejected = next((d for d in trial.drafts if d.verdict is SwitchVerdict.REJECT), None)
    if rejected is not None:
        sentence = f"would be rejected: {rejected.sentence}"
        return DecisionDraft(verdict, SwitchReason.REJECTED, sentence, subject, rejected.code)
    sentences = [d.sentence for d in trial.drafts]
    more = f"; and {len(sentences) - 10} more" if len(sentences) > 10 else ""
    sentence = f"would: {'; '.join(sentences[:10]) or 'change nothing'}{more}"
    return DecisionDraft(verdict, SwitchReason.COMMANDED, sentence, subject)
