"""The state machine of a switch: a pure step from a state and an event to the next state and what is said.

Every event is taken by one handler, the switch goes on as far as it can, and then every invariant is checked. What the
table does not list changes nothing and is an INVALID_TRANSITION. Rules: docs/design/switching.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from policies.switching import answers, commands, sightings, stages
from policies.switching.decisions import ORDERS, RejectCode, SwitchReason, SwitchVerdict
from policies.switching.drafts import DecisionDraft
from policies.switching.events import (
    BrokerSeen,
    Cleanup,
    CloseClient,
    ClusterSeen,
    Command,
    Event,
    InventorySeen,
    LeaseSeen,
    LedgerResult,
    MembersSeen,
    Precheck,
    Prechecked,
    Register,
    RegistrySeen,
    Rollback,
    Start,
    StatusResult,
    Tick,
    Unregister,
)
from policies.switching.invariants import TransitionResult, breaches
from policies.switching.settings import SwitchLimits
from policies.switching.state import SwitchingState
from policies.switching.transition import Transition

REMEMBERED_COMMANDS = 1000

_HANDLERS: dict[type[Any], Callable[[Transition, Any], None]] = {
    Register: commands.register,
    Unregister: commands.unregister,
    Precheck: commands.precheck,
    Start: commands.start,
    Rollback: commands.rollback,
    Cleanup: commands.cleanup,
    CloseClient: commands.close_client,
    LeaseSeen: sightings.lease,
    RegistrySeen: sightings.registry,
    MembersSeen: sightings.members,
    BrokerSeen: sightings.broker,
    ClusterSeen: sightings.cluster,
    Prechecked: sightings.prechecked,
    InventorySeen: sightings.inventory,
    LedgerResult: answers.ledger_done,
    StatusResult: stages.status_done,
    Tick: lambda _transition, _event: None,
}


def apply(
    state: SwitchingState, events: Iterable[Event], limits: SwitchLimits, now_ms: int
) -> tuple[SwitchingState, tuple[DecisionDraft, ...]]:
    """Take events, one after the other.

    Args:
        state: before.
        events: in their order.
        limits: in force.
        now_ms: the moment, milliseconds since the epoch; never goes backwards.

    Returns:
        The state after, and what is said, in its order.
    """
    transition = Transition(state, limits, now_ms)
    said: list[DecisionDraft] = []
    for index, event in enumerate(events):
        if isinstance(event, Command):
            if event.key in transition.state.commands:
                transition.count("repeated")
                continue
            transition.update(commands=(*transition.state.commands, event.key)[-REMEMBERED_COMMANDS:])
            if event.dry_run:
                said.append(replace(_preview(transition, event), cause=index))
                continue
        _take(transition, event)
        said.extend(replace(s, cause=index) for s in transition.said)
        transition.said = []
    return transition.folded(), tuple(said)


def _take(transition: Transition, event: Event) -> None:
    if isinstance(event, Command) and event.expected_epoch not in (None, transition.state.epoch):
        sentence = f"the epoch is {transition.state.epoch}, not {event.expected_epoch} as the command expects"
        transition.reject(RejectCode.INVALID_TRANSITION, sentence, f"commands/{event.key}")
        return
    _HANDLERS[type(event)](transition, event)
    stages.go_on(transition)
    _check(transition)


def _check(transition: Transition) -> None:
    """A breach takes back every order, halts the switch and is an alarm."""
    touched = [u for i in sorted(transition.plan.touched) if (u := transition.plan.get(i)) is not None]
    transition.plan.touched = set()
    found = list(
        breaches(TransitionResult(transition.state, touched, transition.said, transition.intent, transition.now_ms))
    )
    if not found:
        return
    transition.said = [s for s in transition.said if s.verdict not in ORDERS]
    evidence = "; ".join(str(b) for b in found[:3])
    if transition.state.switch is None or not transition.switch.halted:
        transition.say(SwitchVerdict.HALT, SwitchReason.INVARIANT, f"nothing more is ordered: {evidence}")
    if transition.state.switch is not None:
        transition.set_switch(halted=evidence)


def _preview(transition: Transition, event: Event) -> DecisionDraft:
    """What a command would do: the same code on the same state, of which nothing is kept."""
    trial = Transition(transition.folded(), transition.limits, transition.now_ms)
    _take(trial, event)
    rejected = next((s for s in trial.said if s.verdict is SwitchVerdict.REJECT), None)
    key = event.key if isinstance(event, Command) else ""
    subject = f"commands/{key}"
    if rejected is not None:
        return DecisionDraft(
            SwitchVerdict.PREVIEW,
            SwitchReason.REJECTED,
            f"would be rejected: {rejected.sentence}",
            subject,
            rejected.code,
        )
    sentences = [s.sentence for s in trial.said]
    more = f"; and {len(sentences) - 10} more" if len(sentences) > 10 else ""
    return DecisionDraft(
        SwitchVerdict.PREVIEW,
        SwitchReason.COMMANDED,
        f"would: {'; '.join(sentences[:10]) or 'change nothing'}{more}",
        subject,
    )
