"""Readings of registrations, groups and affinity that several policies take, at seconds after a fixed start.

The same models are made once: thousands of readings of one test differ in their time only.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

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


@cache
def registration(bookie: str) -> BookieRegistration:
    """``bk1``, or ``bk1#7`` for its seventh registration."""
    name, _, number = bookie.partition("#")
    digits = "".join(c for c in name if c.isdigit())
    czxid = int(digits or 0) + 1000 * int(number or 0)
    return BookieRegistration(bookie=name, session=f"0x{czxid:x}", czxid=czxid)


@cache
def _bookies(writable: str, read_only: str, known: str, outcome: Outcome) -> Bookies:
    lists = [tuple(map(registration, names.split())) for names in (writable, read_only)]
    named = tuple(known.split())
    return Bookies(cluster=CLUSTER, outcome=outcome, writable=lists[0], read_only=lists[1], known=named)


def registered(
    seconds: float, writable: str, read_only: str = "", known: str = "", outcome: Outcome = Outcome.OK
) -> Observation:
    """A reading of the registrations; bookies are separated by spaces."""
    return Observation(f"bookies@{seconds:g}", at(seconds), _bookies(writable, read_only, known, outcome))


@cache
def _racks(groups: tuple[tuple[str, str], ...] | None, outcome: Outcome) -> BookieRacks:
    listed = None
    if groups is not None:
        listed = {group: {b: RackInfo(rack="/r1") for b in members.split()} for group, members in groups}
    return BookieRacks(cluster=CLUSTER, outcome=outcome, groups=listed)


def racks(seconds: float, groups: Mapping[str, str] | None, outcome: Outcome = Outcome.OK) -> Observation:
    """A reading of the groups; members are separated by spaces."""
    reading = _racks(None if groups is None else tuple(groups.items()), outcome)
    return Observation(f"racks@{seconds:g}", at(seconds), reading)


@cache
def to(primary: str = "", secondary: str = "", **more: Any) -> NamespaceAffinity:
    """An affinity to groups separated by spaces."""
    return NamespaceAffinity(primary=tuple(primary.split()), secondary=tuple(secondary.split()), **more)


def affinity(
    seconds: float,
    namespaces: Mapping[str, NamespaceAffinity | str],
    outcome: Outcome = Outcome.OK,
    broker_groups: str | None = None,
) -> Observation:
    """A reading of the affinity: ``g1 g2``, or ``g1 / g2`` with a secondary group; also of the brokers' own groups."""
    own = None if broker_groups is None else to(*broker_groups.split("/"))
    listed = {name: to(*said.split("/")) if isinstance(said, str) else said for name, said in namespaces.items()}
    groups = own and BrokerGroups(primary=own.primary, secondary=own.secondary)
    reading = BookieAffinity(cluster=CLUSTER, outcome=outcome, namespaces=listed, broker_groups=groups)
    return Observation(f"affinity@{seconds:g}", at(seconds), reading)
