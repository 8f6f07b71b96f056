"""The state machine of a switch: takes one reading after the other, folds it, judges it, and drafts the decisions.

After every reading the switch advances as far as it can, and then every invariant is checked. What the table does not
list changes nothing and is an INVALID_TRANSITION. Rules: docs/design/switching.md.
"""

import dataclasses
from collections.abc import Iterable

from policies.observations import Observation, Outcome
from policies.switching.decisions import ORDERS, SwitchReason, SwitchVerdict
from policies.switching.fold import Judged, fold
from policies.switching.judge.holds import explain_refusal
from policies.switching.judge.invariants import TransitionResult, breaches
from policies.switching.judge.stages import advance
from policies.switching.judge.table import judge, refuse
from policies.switching.readings import SwitchCommand, SwitchInventory, SwitchInventoryPart, SwitchRegistry
from policies.switching.transition import DecisionDraft, Transition

_QUIET = (SwitchInventoryPart, SwitchInventory, SwitchCommand)
"""Readings that may leave nothing to judge: parts of an inventory, and commands that were judged before."""


def reconcile(transition: Transition, observations: Iterable[Observation | None]) -> tuple[DecisionDraft, ...]:
    """Take observations one after the other, and return the decisions in their order. None: only time passed."""
    drafts: list[DecisionDraft] = []
    for index, seen in enumerate(observations):
        if seen is None:
            _judge(transition, None)
        else:
            _process(transition, seen)
        drafts += (dataclasses.replace(draft, cause=index) for draft in transition.drafts)
        transition.drafts = []
    return tuple(drafts)


def _process(transition: Transition, seen: Observation) -> None:
    reading, before = seen.reading, transition.state
    state, judged = (None, None) if _is_outdated(transition, seen) else fold(before, seen)
    if state is None:
        if not isinstance(reading, SwitchCommand):
            _judge(transition, None)
        return
    transition.adopt(state)
    if isinstance(judged, SwitchCommand) and judged.is_dry_run:
        _preview(transition, judged)
    elif judged is not None or (state is not before and not isinstance(reading, _QUIET)):
        _judge(transition, judged)


def _is_outdated(transition: Transition, seen: Observation) -> bool:
    """Whether a reading of the registry is too old to be adopted: after a lost checkpoint the oldest come first."""
    if not isinstance(seen.reading, SwitchRegistry) or transition.state.registry_ms >= 0:
        return False
    return seen.reading.outcome is Outcome.OK and not transition.facts().is_recent(seen.at_ms)


def _judge(transition: Transition, event: Judged | None) -> None:
    """Write what follows from the event, then the automatic progress until none is left. A command may be refused."""
    facts = transition.facts()
    refused = refuse(facts, event) if isinstance(event, SwitchCommand) else None
    if refused is not None and isinstance(event, SwitchCommand):
        transition.reject(refused.code, explain_refusal(facts, refused), f"commands/{event.idempotency_key}")
    elif event is not None:
        judge(facts, event, transition)
    written = -1
    while written != transition.writes:
        written = transition.writes
        advance(transition.facts(), transition)
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
        transition.publish(SwitchVerdict.HALT, SwitchReason.INVARIANT, f"nothing more is ordered: {evidence}")
    if switch is not None:
        transition.update_switch(halted=evidence)


def _preview(transition: Transition, command: SwitchCommand) -> None:
    """Run a command on the same state with the same code, and keep nothing but the sentences."""
    trial = Transition(transition.packed(), transition.limits, transition.now_ms)
    _judge(trial, command)
    rejected = next((d for d in trial.drafts if d.verdict is SwitchVerdict.REJECT), None)
    reason, code = (SwitchReason.REJECTED, rejected.code) if rejected else (SwitchReason.COMMANDED, None)
    sentences = [d.sentence for d in trial.drafts]
    more = f"; and {len(sentences) - 10} more" if len(sentences) > 10 else ""
    sentence = f"would: {'; '.join(sentences[:10]) or 'change nothing'}{more}"
    if rejected is not None:
        sentence = f"would be rejected: {rejected.sentence}"
    subject = f"commands/{command.idempotency_key}"
    transition.publish(SwitchVerdict.PREVIEW, reason, sentence, subject=subject, code=code)
