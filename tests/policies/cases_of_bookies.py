"""Readings of registrations, groups and affinity that several policies take, at seconds after a fixed start."""

from collections.abc import Mapping

from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    BrokerGroups,
    NamespaceAffinity,
    RackInfo,
)
from policies.observations import Observation, Outcome
from tests.policies.virtual_run import at

CLUSTER = "c1"


def registered(seconds: float, writable: str, read_only: str = "") -> Observation:
    """A reading of the registrations; bookies are separated by spaces."""
    lists = [tuple(BookieRegistration(bookie=name) for name in names.split()) for names in (writable, read_only)]
    reading = Bookies(cluster=CLUSTER, outcome=Outcome.OK, writable=lists[0], read_only=lists[1])
    return Observation(f"registered@{seconds:g}", at(seconds), reading)


def racks(seconds: float, groups: Mapping[str, str] | None, outcome: Outcome = Outcome.OK) -> Observation:
    """A reading of the groups; members are separated by spaces."""
    listed = None
    if groups is not None:
        listed = {group: {b: RackInfo(rack="/r1") for b in members.split()} for group, members in groups.items()}
    reading = BookieRacks(cluster=CLUSTER, outcome=outcome, groups=listed)
    return Observation(f"racks@{seconds:g}", at(seconds), reading)


def affinity(
    seconds: float,
    namespaces: Mapping[str, NamespaceAffinity | str],
    brokers: str | None = None,
    outcome: Outcome = Outcome.OK,
) -> Observation:
    """A reading of the affinity: ``g1 g2``, or ``g1 > g2`` with a secondary group; also of the brokers' own groups."""
    own = None if brokers is None else _parse(brokers)
    reading = BookieAffinity(
        cluster=CLUSTER,
        outcome=outcome,
        namespaces={name: _parse(each) if isinstance(each, str) else each for name, each in namespaces.items()},
        broker_groups=own and BrokerGroups(primary=own.primary, secondary=own.secondary),
    )
    return Observation(f"affinity@{seconds:g}", at(seconds), reading)


def _parse(text: str) -> NamespaceAffinity:
    primary, _, secondary = text.partition(">")
    return NamespaceAffinity(primary=tuple(primary.split()), secondary=tuple(secondary.split()))
