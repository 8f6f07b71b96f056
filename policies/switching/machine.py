"""The state machine of a switch: a pure step from a state and an event to the next state and what is said.

Every event is taken by one handler, the switch goes on as far as it can, and then every invariant is checked. What the
table does not list changes nothing and is an INVALID_TRANSITION. Source: specs/switching.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from policies.switching import answers, commands, sightings, stages
from policies.switching.events import (
    BrokerSeen,
    Cleanup,
    CloseClient,
    ClusterSeen,
    Command,
    Event,
    InventorySeen,
    LeaseSeen,
    LedgerDone,
    MembersSeen,
    Precheck,
    Prechecked,
    Register,
    RegistrySeen,
    Rollback,
    Start,
    StatusDone,
    Tick,
    Unregister,
)
from policies.switching.invariants import After, breaches
from policies.switching.limits import Limits
from policies.switching.orders import ORDERS, Code, Said, Verdict, Why
from policies.switching.state import SwitchingState
from policies.switching.turn import Turn

REMEMBERED_COMMANDS = 1000

_HANDLERS: dict[type[Any], Callable[[Turn, Any], None]] = {
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
    LedgerDone: answers.ledger_done,
    StatusDone: stages.status_done,
    Tick: lambda _turn, _event: None,
}


def apply(
    state: SwitchingState, events: Iterable[Event], limits: Limits, now_ms: int
) -> tuple[SwitchingState, tuple[Said, ...]]:
    """Take events, one after the other.

    Args:
        state: before.
        events: in their order.
        limits: in force.
        now_ms: the moment, milliseconds since the epoch; never goes backwards.

    Returns:
        The state after, and what is said, in its order.
    """
    turn = Turn(state, limits, now_ms)
    said: list[Said] = []
    for index, event in enumerate(events):
        if isinstance(event, Command):
            if event.key in turn.state.commands:
                turn.count("repeated")
                continue
            turn.update(commands=(*turn.state.commands, event.key)[-REMEMBERED_COMMANDS:])
            if event.dry_run:
                said.append(replace(_preview(turn, event), cause=index))
                continue
        _take(turn, event)
        said.extend(replace(s, cause=index) for s in turn.said)
        turn.said = []
    return turn.folded(), tuple(said)


def _take(turn: Turn, event: Event) -> None:
    if isinstance(event, Command) and event.expected_epoch not in (None, turn.state.epoch):
        sentence = f"the epoch is {turn.state.epoch}, not {event.expected_epoch} as the command expects"
        turn.reject(Code.INVALID_TRANSITION, sentence, f"commands/{event.key}")
        return
    _HANDLERS[type(event)](turn, event)
    stages.go_on(turn)
    _check(turn)


def _check(turn: Turn) -> None:
    """A breach takes back every order, halts the switch and is an alarm."""
    touched = [u for i in sorted(turn.plan.touched) if (u := turn.plan.get(i)) is not None]
    turn.plan.touched = set()
    found = list(breaches(After(turn.state, touched, turn.said, turn.intent, turn.now_ms)))
    if not found:
        return
    turn.said = [s for s in turn.said if s.verdict not in ORDERS]
    evidence = "; ".join(str(b) for b in found[:3])
    if turn.state.switch is None or not turn.switch.halted:
        turn.say(Verdict.HALT, Why.INVARIANT, f"nothing more is ordered: {evidence}")
    if turn.state.switch is not None:
        turn.set_switch(halted=evidence)


def _preview(turn: Turn, event: Event) -> Said:
    """What a command would do: the same code on the same state, of which nothing is kept."""
    trial = Turn(turn.folded(), turn.limits, turn.now_ms)
    _take(trial, event)
    rejected = next((s for s in trial.said if s.verdict is Verdict.REJECT), None)
    key = event.key if isinstance(event, Command) else ""
    subject = f"commands/{key}"
    if rejected is not None:
        return Said(Verdict.PREVIEW, Why.REJECTED, f"would be rejected: {rejected.sentence}", subject, rejected.code)
    sentences = [s.sentence for s in trial.said]
    more = f"; and {len(sentences) - 10} more" if len(sentences) > 10 else ""
    return Said(
        Verdict.PREVIEW, Why.COMMANDED, f"would: {'; '.join(sentences[:10]) or 'change nothing'}{more}", subject
    )
