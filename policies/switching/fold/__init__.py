"""Folds readings: each kind updates a small read model of its own.

A reading shows a whole level, so the newest one counts. An older or repeated reading changes nothing but a counter
(row 26). No rule of the table is applied here: commands, leases, reports and results go on to the judge unchanged.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from policies.observations import Observation, sort_observations
from policies.switching.clusters import ClusterSnapshot
from policies.switching.events import (
    BrokerSeen,
    Event,
    InventorySeen,
    MembersSeen,
    RegistrySeen,
    TimePassed,
    to_event,
)
from policies.switching.fold.inventory import assemble, fold_inventory
from policies.switching.fold.registry import (
    Impostor,
    RegistryChecked,
    find_epoch,
    fold_cluster,
    fold_registry,
    mark_writes,
)
from policies.switching.readings import SwitchCommand
from policies.switching.state import NEVER, BrokerReport, LiveBrokers, SwitchingState, put

REMEMBERED_COMMANDS = 1000
FoldedEvent = Event | RegistryChecked | Impostor
"""The event that is left for the judge once a reading is folded."""


def read(
    state: SwitchingState, observations: Sequence[Observation]
) -> tuple[SwitchingState, tuple[Event, ...], tuple[str, ...]]:
    """Return the state with the inventory parts kept so far, the events in order, and their observations' ids."""
    events: list[Event] = []
    ids: list[str] = []
    assembly, commanded_ms, commands = state.assembly, state.commanded_ms, state.commands
    for seen in sort_observations(tuple(observations)):
        if isinstance(seen.reading, SwitchCommand):
            if seen.at_ms <= state.judged_ms:
                commands = _remember(commands, seen.reading.idempotency_key)
                continue
            commanded_ms = max(commanded_ms, seen.at_ms)
        assembly, inventory = assemble(assembly, seen)
        event = inventory or to_event(seen)
        if event is not None:
            events.append(event)
            ids.append(seen.id)
    after = replace(state, assembly=assembly, commanded_ms=commanded_ms, commands=commands)
    return after, tuple(events), tuple(ids)


def _remember(commands: tuple[str, ...], key: str) -> tuple[str, ...]:
    return commands if key in commands else (*commands, key)[-REMEMBERED_COMMANDS:]


def fold(state: SwitchingState, event: Event) -> tuple[SwitchingState | None, FoldedEvent | None]:
    """Fold an event into its read model.

    Returns:
        The state after it, or None if the event is a repetition; and the event that is left for the judge.
    """
    match event:
        case SwitchCommand(idempotency_key=key):
            is_new = key not in state.commands
            return replace(state, commands=_remember(state.commands, key)) if is_new else None, event
        case RegistrySeen():
            return fold_registry(state, event)
        case MembersSeen():
            members = _fold_members(state, event)
            return (replace(state, members=members) if members else None), None
        case ClusterSnapshot():
            return fold_cluster(state, event)
        case BrokerSeen():
            return _fold_report(state, event)
        case InventorySeen():
            return fold_inventory(state, event), event
        case TimePassed():
            return state, None
    return state, event


def _fold_members(state: SwitchingState, seen: MembersSeen) -> LiveBrokers | None:
    known = state.members
    if known is not None and seen.at_ms <= known.at_ms:
        return None
    if seen.brokers is None:
        return replace(known, is_unread=True) if known is not None and not known.is_unread else None
    since = dict(zip(known.brokers, known.since_ms or [known.at_ms] * len(known.brokers), strict=True)) if known else {}
    brokers = tuple(sorted(set(seen.brokers)))
    since_ms = tuple(since.get(b, seen.at_ms) for b in brokers)
    return LiveBrokers(brokers, seen.at_ms, since_ms, find_epoch(state, seen.epoch, seen.at_ms))


def _fold_report(state: SwitchingState, seen: BrokerSeen) -> tuple[SwitchingState | None, BrokerSeen | None]:
    """Reports are levels, too: a broker follows the directive of its last report, so it can go back.

    A report that arrives after a later one still shows where the broker wrote: that cluster gave it ids.
    """
    before, state = state, mark_writes(state, seen.writes)
    known = next((b for b in state.brokers if b.name == seen.broker), None)
    if known is not None and seen.sequence <= known.sequence:
        return (state, None) if state != before else (None, None)
    report = known or BrokerReport(seen.broker, NEVER, NEVER)
    acked, failed = (NEVER, seen.epoch) if seen.failed else (seen.epoch, NEVER)
    is_unchanged = (report.acked_epoch, report.failed_epoch) == (acked, failed)
    directive = state.directive
    strays = directive is not None and seen.epoch == directive.epoch and bool(set(seen.writes) - {directive.target})
    report = BrokerReport(
        seen.broker, seen.sequence, seen.at_ms, acked, failed, seen.writes, seen.reads,
        report.since_ms if is_unchanged else seen.at_ms,
        seen.at_ms if strays else report.strayed_ms, seen.client_epoch,
    )  # fmt: skip
    return replace(state, brokers=put(state.brokers, report)), seen
