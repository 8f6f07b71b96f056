"""Folds readings, each kind into its own small read model, and tells the state machine what happened.

Readings are levels: the newest counts; an older or repeated one is counted and changes nothing (row 26). None of the
table's rules are here: commands, leases, reports and results are passed on to the judge unchanged.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from policies.observations import Observation, Outcome, Reading, in_order
from policies.switching.events import (
    BrokerSeen,
    ClusterSeen,
    Command,
    Event,
    InventorySeen,
    MembersSeen,
    RegistrySeen,
    TimePassed,
)
from policies.switching.fold.brokers import broker_of, fold_members, fold_report
from policies.switching.fold.clusters import Impostor, cluster_of, fold_cluster, precheck_of
from policies.switching.fold.commands import command_of, remember
from policies.switching.fold.inventory import assemble, fold_inventory
from policies.switching.fold.ledgers import result_of, status_of
from policies.switching.fold.registry import RegistryAgain, fold_registry, lease_of, registry_of
from policies.switching.readings import (
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchCommand,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchRegistry,
    SwitchStatus,
)
from policies.switching.state import SwitchingState

News = Event | RegistryAgain | Impostor
"""What a reading leaves for the judge."""


def read(
    state: SwitchingState, observations: Sequence[Observation]
) -> tuple[SwitchingState, tuple[Event, ...], tuple[str, ...]]:
    """The state with what it keeps of inventories, the events in their order, and the ids of their observations."""
    events: list[Event] = []
    ids: list[str] = []
    assembly = state.assembly
    for seen in in_order(tuple(observations)):
        assembly, inventory = assemble(assembly, seen)
        event = inventory or event_of(seen)
        if event is not None:
            events.append(event)
            ids.append(seen.id)
    return replace(state, assembly=assembly), tuple(events), tuple(ids)


def event_of(seen: Observation) -> Event | None:
    """The event a reading is; None for one that could not be read, and for the parts of inventories."""
    if isinstance(seen.reading, SwitchCommand):
        return command_of(seen.reading)
    return _event(seen.reading, seen.at_ms) if seen.reading.outcome is Outcome.OK else None


def _event(reading: Reading, at_ms: int) -> Event | None:
    match reading:
        case SwitchLedger():
            return result_of(reading)
        case SwitchStatus():
            return status_of(reading)
        case SwitchLease():
            return lease_of(reading, at_ms)
        case SwitchRegistry():
            return registry_of(reading, at_ms)
        case SwitchBrokers():
            return MembersSeen(reading.brokers, at_ms)
        case SwitchBroker():
            return broker_of(reading, at_ms)
        case SwitchCluster():
            return cluster_of(reading, at_ms)
        case SwitchPrecheck():
            return precheck_of(reading, at_ms)
    return None


def fold(state: SwitchingState, event: Event) -> tuple[SwitchingState | None, News | None]:
    """Fold an event into its read model.

    Returns:
        The state after it, None when it was heard before and so changes nothing; and what is left for the judge.
    """
    match event:
        case Command():
            return (None if event.key in state.commands else remember(state, event)), event
        case RegistrySeen():
            return fold_registry(state, event)
        case MembersSeen():
            members = fold_members(state.members, event)
            return (replace(state, members=members) if members else None), None
        case ClusterSeen():
            return fold_cluster(state, event)
        case BrokerSeen():
            return fold_report(state, event)
        case InventorySeen():
            return fold_inventory(state, event), event
        case TimePassed():
            return state, None
    return state, event
