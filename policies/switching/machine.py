"""The state machine of a switch: takes one event after the other, folds it, judges it, and publishes the outcome.

After every event the switch advances as far as it can, and then every invariant is checked. An event that the table
does not list changes nothing and is an INVALID_TRANSITION. Rules: docs/design/switching.md.
"""

from collections.abc import Iterable
from dataclasses import replace

from policies.switching.decisions import ORDERS, SwitchReason, SwitchVerdict
from policies.switching.events import Command, Commands, Event
from policies.switching.fold import News, fold
from policies.switching.judge.changes import Count, DecisionDraft, UpdateSwitch
from policies.switching.judge.invariants import TransitionResult, breaches
from policies.switching.judge.rows import judge, wrong_epoch
from policies.switching.judge.stages import go_on
from policies.switching.transition import Transition


def reconcile(transition: Transition, events: Iterable[Event]) -> tuple[DecisionDraft, ...]:
    """Take events, one after the other; what is said, in its order."""
    said: list[DecisionDraft] = []
    for index, event in enumerate(events):
        _take(transition, event)
        said += (replace(draft, cause=index) for draft in transition.drafts)
        transition.drafts = []
    return tuple(said)


def _take(transition: Transition, event: Event) -> None:
    state, news = fold(transition.state, event)
    if state is None:
        transition.apply([Count("repeated")])
        news = None
    else:
        transition.state = state
    if not isinstance(event, Command):
        _judge(transition, news)
    elif news is not None and event.dry_run:
        transition.drafts.append(_preview(transition, event))
    elif news is not None:
        _judge(transition, news)


def _judge(transition: Transition, news: News | None) -> None:
    """What is new, then what the switch goes on with, until there is nothing more to do."""
    if isinstance(news, Command) and (rejected := wrong_epoch(transition.facts(), news)):
        transition.apply([rejected])
        return
    if news is not None:
        transition.apply(judge(transition.facts(), news))
    while transition.apply(go_on(transition.facts())):
        pass
    _check(transition)


def _check(transition: Transition) -> None:
    """A breach takes back every order, halts the switch and is an alarm."""
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


def _preview(transition: Transition, command: Commands) -> DecisionDraft:
    """What a command would do: the same code on the same state, of which nothing is kept."""
    trial = Transition(transition.packed(), transition.limits, transition.now_ms)
    _judge(trial, command)
    subject, verdict = f"commands/{command.key}", SwitchVerdict.PREVIEW
    rejected = next((d for d in trial.drafts if d.verdict is SwitchVerdict.REJECT), None)
    if rejected is not None:
        sentence = f"would be rejected: {rejected.sentence}"
        return DecisionDraft(verdict, SwitchReason.REJECTED, sentence, subject, rejected.code)
    sentences = [d.sentence for d in trial.drafts]
    more = f"; and {len(sentences) - 10} more" if len(sentences) > 10 else ""
    sentence = f"would: {'; '.join(sentences[:10]) or 'change nothing'}{more}"
    return DecisionDraft(verdict, SwitchReason.COMMANDED, sentence, subject)
