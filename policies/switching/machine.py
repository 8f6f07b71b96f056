"""The state machine of a switch: takes one event after the other, folds it, judges it, and drafts the decisions.

After every event the switch advances as far as it can, and then every invariant is checked. An event that the table
does not list changes nothing and is an INVALID_TRANSITION. Rules: docs/design/switching.md.
"""

from collections.abc import Iterable
from dataclasses import replace

from policies.switching.decisions import ORDERS, RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import Event
from policies.switching.fold import FoldedEvent, fold
from policies.switching.judge import judge
from policies.switching.judge.changes import Count, DecisionDraft, UpdateSwitch, reject
from policies.switching.judge.invariants import TransitionResult, breaches
from policies.switching.judge.stages import advance
from policies.switching.readings import SwitchCommand
from policies.switching.transition import Transition


def reconcile(transition: Transition, events: Iterable[Event]) -> tuple[DecisionDraft, ...]:
    """Take events one after the other, and return the decisions in their order."""
    drafts: list[DecisionDraft] = []
    for index, event in enumerate(events):
        _take(transition, event)
        drafts += (replace(draft, cause=index) for draft in transition.drafts)
        transition.drafts = []
    return tuple(drafts)


def _take(transition: Transition, event: Event) -> None:
    state, folded = fold(transition.state, event)
    if state is None:
        transition.apply([Count("repeated")])
        if not isinstance(event, SwitchCommand):
            _judge(transition, None)
        return
    transition.state = state
    if isinstance(event, SwitchCommand) and event.is_dry_run:
        transition.drafts.append(_preview(transition, event))
    else:
        _judge(transition, folded)


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
    found = list(breaches(TransitionResult(facts.state, touched, transition.drafts, facts.intent, facts.now_ms)))
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
