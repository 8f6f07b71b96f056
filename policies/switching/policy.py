"""The switching policy of one broker cluster: a state machine that takes one reading after the other.

Each reading is folded and judged, and decisions are drafted. Then the switch advances as far as it can, and every
invariant is checked. What the table does not list changes nothing and is an INVALID_TRANSITION. Rules:
docs/design/switching.md.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from policies.alerts import Condition, Sender
from policies.book import Step
from policies.observations import Observation, Outcome, sort_observations
from policies.switching import NAME
from policies.switching.alert_kinds import ALERTS
from policies.switching.decisions import ORDERS, SwitchReason, SwitchVerdict
from policies.switching.emit import emit, emit_record, renewal_ms
from policies.switching.facts import SwitchFacts, find_due_ms
from policies.switching.fold import Judged, fold
from policies.switching.judge.invariants import TransitionResult, breaches
from policies.switching.judge.stages import advance
from policies.switching.judge.table import Hold, explain_refusal, find_holds, judge, refuse
from policies.switching.readings import SwitchCommand, SwitchInventory, SwitchInventoryPart, SwitchRegistry
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState
from policies.switching.transition import DecisionDraft, Transition
from policies.units import format_second, from_millis, to_millis

_QUIET = (SwitchInventoryPart, SwitchInventory, SwitchCommand)
"""Readings that may leave nothing to judge: parts of an inventory, and commands that were judged before."""
_SEVERITIES = {alert.name: alert.severities[0] for alert in ALERTS}


class SwitchingPolicy:
    """Decides about the switch of one broker cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: SwitchingSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._issuer = Sender.build(NAME, cluster, settings).issuer

    def step(
        self, state: SwitchingState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[SwitchingState]:
        """Take the observations, let time pass, and return the decisions and alert conditions that follow."""
        before, now_ms, limits = state or SwitchingState(), to_millis(now), self._settings
        seen, transition = sort_observations(tuple(observations)), Transition(before, limits, now_ms)
        drafts = reconcile(transition, (*seen, None))
        after, issuer = transition.packed(), self._issuer
        facts = transition.facts()
        holds = find_holds(facts)
        after, decisions = emit(facts, drafts, tuple(each.id for each in seen), issuer, now)
        after, record = emit_record(before, after, facts, holds, drafts, issuer, now)
        return Step(
            after,
            conditions=_conditions(self._cluster, facts, holds),
            due_ms=_due_ms(after, facts, holds),
            decisions=(*decisions, *record),
        )


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
    # After a lost checkpoint the oldest readings of the registry come first: one that is too old is not taken up.
    is_first = isinstance(reading, SwitchRegistry) and before.registry_ms < 0 and reading.outcome is Outcome.OK
    is_outdated = is_first and not transition.facts().is_recent(seen.at_ms)
    state, judged = (None, None) if is_outdated else fold(before, seen)
    if state is None:
        if not isinstance(reading, SwitchCommand):
            _judge(transition, None)
        return
    transition.adopt(state)
    if isinstance(judged, SwitchCommand) and judged.is_dry_run:
        _preview(transition, judged)
    elif judged is not None or (state is not before and not isinstance(reading, _QUIET)):
        _judge(transition, judged)


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
    evidence, switch = "; ".join(f"{invariant.value}: {why}" for invariant, why in found[:3]), facts.state.switch
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


def _conditions(cluster: str, facts: SwitchFacts, holds: Sequence[Hold]) -> Iterator[Condition]:
    """Return an alert for each hold that has lasted beyond its bound; of several with one alert the most urgent one."""
    raised: set[tuple[str, str]] = set()
    for hold in holds:
        kind, alert, subject = hold.kind, hold.kind.alert, f"{cluster}/{hold.subject}"
        if facts.now_ms < hold.due_ms or (alert, subject) in raised:
            continue
        raised.add((alert, subject))
        labels, switch = {"cluster": cluster, **hold.labels}, facts.state.switch
        about = f"{cluster}: "
        if switch is not None and kind.is_about_switch:
            labels |= {"source": switch.source, "target": switch.target, "stage": switch.stage.value}
            about = f"the switch of {cluster} from {switch.source} to {switch.target} "
        since = f", since {format_second(from_millis(hold.since_ms))}" if hold.since_ms is not None else ""
        summary = f"{about}{hold.why}{since}; to end it: {hold.ends_with}"
        yield Condition(alert, subject, _SEVERITIES[alert], hold.name, summary, labels)


def _due_ms(state: SwitchingState, facts: SwitchFacts, holds: Sequence[Hold]) -> Iterator[int]:
    """Return the instants at which something may change without an observation."""
    yield from find_due_ms(facts)
    yield from (hold.due_ms for hold in holds)
    if state.record:
        yield renewal_ms(state)
    if state.switch is not None:
        yield from (state.switch.rollback_until_ms, state.switch.cleanup_from_ms)
        if state.lease is not None:
            yield state.lease.valid_until_ms
