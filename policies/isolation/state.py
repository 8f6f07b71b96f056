"""The state of the isolation policy for one cluster.

Checkpoints hold it as arrays, so the order and types of fields must not change. Everything is sorted, so equal states
have equal bytes.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from policies.confirmation import Doubts
from policies.decisions import Mode
from policies.isolation.decisions import QuarantineReason, QuarantineVerdict
from policies.isolation.placement import NO_GROUPS, AffinityGroups, BookieMembership
from policies.units import InstantMs

NEVER = -1
UNKNOWN_ENSEMBLE = 0


class ReadingStatus(Struct, array_like=True, frozen=True, gc=False):
    """The last good reading of one kind (`read_*`) and the last attempt at one (`tried_*`)."""

    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""
    doubts: Doubts = ()
    """The members that readings disagree about, or that a single one showed."""


class Presence(StrEnum):
    """How a bookie is registered."""

    WRITABLE = "writable"
    READ_ONLY = "read_only"
    OFFLINE = "offline"
    """Not registered, but it has a cookie or is in a group."""


class BookieState(Struct, array_like=True, frozen=True, gc=False):
    """The last known state of one bookie."""

    bookie: str
    presence: Presence
    since_ms: InstantMs
    """Since when it has this presence and this assignment."""
    assigned: bool | None = None
    """Whether it is in a group other than the quarantine group; None while no groups have been read."""
    session: str | None = None
    czxid: int | None = None
    registered_ms: InstantMs | None = None
    """When its last registration was made, or first observed."""
    has_cookie: bool = False

    @property
    def never_joined(self) -> bool:
        """Whether it has left no trace but its name in a group."""
        return self.presence is Presence.OFFLINE and not self.has_cookie and self.registered_ms is None

    @property
    def takes_data(self) -> bool:
        """Whether it is writable."""
        return self.presence is Presence.WRITABLE


class Cohort(AffinityGroups, array_like=True, frozen=True, gc=False):
    """Namespaces with the same affinity and persistence."""

    strict: bool | None
    ensemble_size: int | None
    """None: the brokers' default; `UNKNOWN_ENSEMBLE`: the namespaces have no policies where they were looked for."""
    namespaces: tuple[str, ...]

    def encode(self) -> str:
        """Encode everything but the namespaces."""
        return msgspec.json.encode((self.primary, self.secondary, self.strict, self.ensemble_size)).decode()


class GivenPromise(Struct, array_like=True, frozen=True, gc=False):
    """The rules that an operator promised to a namespace by command."""

    namespace: str
    rules: str
    """Empty once the promise was withdrawn. The entry stays, so that a late, older command does not restore it."""
    at_ms: InstantMs
    id: str


class BookieClusterState(Struct, array_like=True, frozen=True):
    """The last known bookies, groups and namespaces of one cluster, each from the last good reading of its kind."""

    bookies_status: ReadingStatus = ReadingStatus()
    racks_status: ReadingStatus = ReadingStatus()
    affinity_status: ReadingStatus = ReadingStatus()
    bookies: tuple[BookieState, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    """None while no groups have been read."""
    cohorts: tuple[Cohort, ...] = ()
    promises: tuple[GivenPromise, ...] = ()
    """Sorted by namespace."""
    complete_ms: InstantMs | None = None
    """Since when readings of all three kinds are known."""
    changed_ms: InstantMs = NEVER
    """When a member last left its group, a cluster had its first group, or a namespace left or had another affinity."""

    @property
    def statuses(self) -> Mapping[str, ReadingStatus]:
        """The statuses of the three kinds of readings, by name."""
        return {"bookies": self.bookies_status, "racks": self.racks_status, "affinity": self.affinity_status}

    def believed(self, kind: str) -> dict[str, str]:
        """The believed members that readings of a kind show, by name.

        `bookies`: the mode of each registered bookie, and the `cookie_key` of each with a cookie; `racks`: the groups
        of each bookie, as `join_groups` writes them; `affinity`: the affinity of each namespace, encoded.
        """
        if kind == "racks":
            return join_groups(self.groups or ())
        if kind == "affinity":
            return {name: encoded for c in self.cohorts for encoded in (c.encode(),) for name in c.namespaces}
        modes = {b.bookie: b.presence.value for b in self.bookies if b.presence is not Presence.OFFLINE}
        return modes | {cookie_key(b.bookie): "" for b in self.bookies if b.has_cookie}

    def membership(self) -> BookieMembership:
        """The bookies that take new data, and the members of each group."""
        groups = {group: frozenset(bookies) for group, bookies in self.groups or ()}
        return BookieMembership(frozenset(b.bookie for b in self.bookies if b.takes_data), groups)


_SEPARATOR = "\0"
_NOBODY = ""
"""Stands for the members of groups that have none: brokers restrict namespaces to such a group, too."""


NODE = 2 * _SEPARATOR
"""The doubted member while a node is absent that was never read before."""


def cookie_key(bookie: str) -> str:
    """Return the name under which `registrations` has a bookie's cookie."""
    return f"{_SEPARATOR}{bookie}"


def is_cookie(name: str) -> bool:
    """Whether a name is that of a cookie, and not of a bookie."""
    return name.startswith(_SEPARATOR)


def join_groups(groups: Iterable[tuple[str, Collection[str]]]) -> dict[str, str]:
    """Return the groups of each bookie, written as one text; those without members are the groups of `_NOBODY`."""
    found: dict[str, list[str]] = {}
    for group, bookies in groups:
        for bookie in bookies or (_NOBODY,):
            found.setdefault(bookie, []).append(group)
    return {bookie: _SEPARATOR.join(sorted(names)) for bookie, names in found.items()}


def split_groups(memberships: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the members of each group, sorted: the inverse of `join_groups`."""
    found: dict[str, set[str]] = {}
    for bookie, groups in memberships.items():
        for group in groups.split(_SEPARATOR):
            found.setdefault(group, set()).add(bookie)
    return tuple((group, tuple(sorted(found[group] - {_NOBODY}))) for group in sorted(found))


def collect_cohorts(affinities: Mapping[str, str]) -> tuple[Cohort, ...]:
    """Return the cohorts of encoded affinities, by their first namespace."""
    alike: dict[str, list[str]] = {}
    for name, affinity in affinities.items():
        alike.setdefault(affinity, []).append(name)
    cohorts = (Cohort(*_AFFINITY.decode(affinity), tuple(sorted(names))) for affinity, names in alike.items())
    return tuple(sorted(cohorts, key=lambda cohort: cohort.namespaces[0]))


_Affinity = tuple[tuple[str, ...], tuple[str, ...], bool | None, int | None]
_AFFINITY: msgspec.json.Decoder[_Affinity] = msgspec.json.Decoder(_Affinity)


ALL_OTHERS = ""
"""Stands for every namespace without an affinity of its own."""


def split_broker_groups(cohorts: tuple[Cohort, ...]) -> tuple[AffinityGroups, tuple[Cohort, ...]]:
    """Return the groups that brokers use for namespaces without affinity, and the cohorts of named namespaces."""
    if not cohorts or cohorts[0].namespaces[0] != ALL_OTHERS:
        return NO_GROUPS, cohorts
    named = replace(cohorts[0], namespaces=cohorts[0].namespaces[1:])
    return cohorts[0], (named, *cohorts[1:]) if named.namespaces else cohorts[1:]


class PublishedPlacements(Struct, array_like=True, frozen=True, gc=False):
    """Namespaces whose last published placements had equal content."""

    mark: str
    """The mode and the judgement's core, and after `|` its digest of names."""
    namespaces: tuple[str, ...]
    repeat_at_ms: InstantMs
    """When they are published again, as computed at publication; later settings cannot extend their validity."""


class QuarantineOrder(Struct, array_like=True, frozen=True, gc=False):
    """The quarantine decision in force on one bookie."""

    bookie: str
    session: str | None
    czxid: int | None
    registered_ms: InstantMs
    verdict: QuarantineVerdict
    reason: QuarantineReason
    mode: Mode
    since_ms: InstantMs
    """When it was first decided."""
    published_ms: InstantMs
    carried_out: bool = False
    """Whether the bookie has been in the quarantine group since."""
    starved: str = ""
    """The namespaces that could not place data without it, if that is the reason."""
    bookies: tuple[str, ...] = ()
    """The first names, if the order covers many bookies; `bookie` is then empty."""
    count: int = 1
    """The number of bookies it covers, as last published."""
    repeat_at_ms: InstantMs | None = None
    """When it must be published again, as computed at publication."""

    @property
    def in_force(self) -> tuple[object, ...]:
        """The order's content; an order with equal content is a repetition."""
        return (self.bookie, self.session, self.czxid, self.verdict, self.reason, self.mode, self.starved)

    def is_pending(self, quarantined: Set[str]) -> bool:
        """Whether an actuator must still carry it out, given the bookies in the quarantine group."""
        return self.verdict is QuarantineVerdict.QUARANTINE and self.bookie not in quarantined


class IsolationState(Struct, array_like=True, frozen=True):
    """The policy's state of one cluster."""

    started_ms: InstantMs
    cluster: BookieClusterState = BookieClusterState()
    published: tuple[PublishedPlacements, ...] = ()
    orders: tuple[QuarantineOrder, ...] = ()
    sequence: int = 0
    """The last sequence of all decisions but alerts; one counter for the cluster, so it grows for each subject."""
