"""The state of the isolation policy for one cluster.

Checkpoints hold it as arrays, so the order and types of fields must not change. Everything is sorted, so equal states
have equal bytes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from policies.alerts import AlertBook
from policies.bookie_readings import BookieAffinity, BookieRacks
from policies.confirmation import PendingDifferences
from policies.decisions import Mode
from policies.isolation.decisions import QuarantineReason, QuarantineVerdict
from policies.isolation.placement import AffinityGroups, BookieMembership
from policies.observations import Observation, Outcome, sort_observations
from policies.units import InstantMs

NEVER = -1
UNKNOWN_ENSEMBLE = 0
VANISHED = "vanished"
"""The outcome of a good reading from which most entries vanished, until a second reading confirms it."""


class ReadingStatus(Struct, array_like=True, frozen=True, gc=False):
    """The last good reading of one kind (`read_*`) and the last attempt at one (`tried_*`)."""

    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""


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
    missing_ms: InstantMs | None = None
    """When it was first missing from a reading; None once it is back, or a second reading confirms that it is gone."""
    has_cookie: bool = False
    joined_in_place_ms: InstantMs | None = None
    """When it joined for the first time, if an operator had put it into a group before."""

    @property
    def never_joined(self) -> bool:
        """Whether it has left no trace but its name in a group."""
        return self.presence is Presence.OFFLINE and not self.has_cookie and self.registered_ms is None

    @property
    def takes_data(self) -> bool:
        """Whether it is writable, and was in the last reading."""
        return self.presence is Presence.WRITABLE and self.missing_ms is None


class Cohort(Struct, array_like=True, frozen=True, gc=False):
    """Namespaces with the same affinity and persistence."""

    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    strict: bool | None
    ensemble_size: int | None
    """None: the brokers' default; `UNKNOWN_ENSEMBLE`: the namespaces have no policies where they were looked for."""
    namespaces: tuple[str, ...]

    @property
    def affinity(self) -> AffinityGroups:
        """Its groups, as the placement rules need them."""
        return AffinityGroups(frozenset(self.primary), frozenset(self.secondary))


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
    cohorts: tuple[Cohort, ...] = ()
    vanished_ms: InstantMs | None = None
    """Since when readings of registrations wait for confirmation, because most bookies are missing from them."""
    groups_vanished_ms: InstantMs | None = None
    """The same for readings of groups."""
    promises: tuple[GivenPromise, ...] = ()
    """Sorted by namespace."""
    bookies_pending: PendingDifferences = PendingDifferences()
    """The registrations, by bookie."""
    cookies_pending: PendingDifferences = PendingDifferences()
    """The cookies, by bookie."""
    groups_pending: PendingDifferences = PendingDifferences()
    """The memberships of bookies in groups, each by its `group_member_key`."""
    affinity_pending: PendingDifferences = PendingDifferences()
    """The namespaces with their affinity, each by its `encode_affinity`."""
    affinity_vanished_ms: InstantMs | None = None
    """Since when readings of the affinity wait for confirmation."""
    unused_3: int = 0
    modes_pending: PendingDifferences = PendingDifferences()
    """By bookie: whether it is read-only."""
    doubtful: tuple[tuple[str, InstantMs], ...] = ()
    """The last reading that waits for confirmation, by its kind; sorted."""

    @property
    def statuses(self) -> Mapping[str, ReadingStatus]:
        """The statuses of the three kinds of readings, by name."""
        return {"bookies": self.bookies_status, "racks": self.racks_status, "affinity": self.affinity_status}

    @property
    def pending(self) -> Mapping[str, PendingDifferences]:
        """The pending differences of the three kinds of readings, by name."""
        return {"bookies": self.bookies_pending, "racks": self.groups_pending, "affinity": self.affinity_pending}

    def disputes(self) -> tuple[tuple[str, PendingDifferences], ...]:
        """Everything that collectors may contradict each other about, by the kind of reading."""
        return (("bookies", self.modes_pending), *self.pending.items())

    def registered(self) -> frozenset[str]:
        """The bookies that the last believed reading lists."""
        listed = (b for b in self.bookies if b.presence is not Presence.OFFLINE and b.missing_ms is None)
        return frozenset(b.bookie for b in listed)

    def group_members(self) -> frozenset[str]:
        """The members of all groups, by `group_member_key`."""
        return frozenset(group_member_key(group, bookie) for group, members in self.groups or () for bookie in members)

    def affinities(self) -> frozenset[str]:
        """The affinities of all namespaces, by `encode_affinity`."""
        return frozenset(encode_affinity(cohort, name) for cohort in self.cohorts for name in cohort.namespaces)

    def membership(self) -> BookieMembership:
        """The bookies that take new data, and the members of each group."""
        groups = None if self.groups is None else {group: frozenset(bookies) for group, bookies in self.groups}
        return BookieMembership(frozenset(b.bookie for b in self.bookies if b.takes_data), groups)


_SEPARATOR = "\0"


def group_member_key(group: str, bookie: str) -> str:
    """The name of one membership, as pending differences store it."""
    return f"{group}{_SEPARATOR}{bookie}"


def split_group_member(key: str) -> tuple[str, str]:
    """Return the group and the bookie of a membership."""
    group, _, bookie = key.partition(_SEPARATOR)
    return group, bookie


def collect_groups(keys: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the members by group."""
    found: dict[str, set[str]] = {}
    for key in keys:
        group, bookie = split_group_member(key)
        found.setdefault(group, set()).add(bookie)
    return {group: frozenset(members) for group, members in found.items()}


def encode_affinity(cohort: Cohort, namespace: str) -> str:
    """The name of one namespace with its affinity, as pending differences store it."""
    content = (namespace, (cohort.primary, cohort.secondary, cohort.strict, cohort.ensemble_size))
    return msgspec.json.encode(content).decode()


def affinity_namespace(key: str) -> str:
    """Return the namespace of an encoded affinity."""
    return _AFFINITY.decode(key)[0]


ALL_OTHERS = ""
"""Stands for every namespace without an affinity of its own."""


def split_broker_groups(cohorts: tuple[Cohort, ...]) -> tuple[AffinityGroups, tuple[Cohort, ...]]:
    """Return the groups that brokers use for namespaces without affinity, and the cohorts of named namespaces."""
    first = cohorts[0] if cohorts else None
    if first is None or first.namespaces[0] != ALL_OTHERS:
        return AffinityGroups(frozenset(), frozenset()), cohorts
    named = replace(first, namespaces=first.namespaces[1:])
    return first.affinity, (named, *cohorts[1:]) if named.namespaces else cohorts[1:]


def collect_cohorts(keys: Iterable[str]) -> tuple[Cohort, ...]:
    """Return the cohorts of encoded affinities, by their first namespace."""
    alike: dict[_Affinity, list[str]] = {}
    for key in keys:
        name, affinity = _AFFINITY.decode(key)
        alike.setdefault(affinity, []).append(name)
    cohorts = (Cohort(*affinity, tuple(sorted(names))) for affinity, names in alike.items())
    return tuple(sorted(cohorts, key=lambda cohort: cohort.namespaces[0]))


_Affinity = tuple[tuple[str, ...], tuple[str, ...], bool | None, int | None]
_AFFINITY: msgspec.json.Decoder[tuple[str, _Affinity]] = msgspec.json.Decoder(tuple[str, _Affinity])


class PublishedPlacements(Struct, array_like=True, frozen=True, gc=False):
    """Namespaces whose last published placements had equal content."""

    fingerprint: str
    namespaces: tuple[str, ...]
    published_ms: InstantMs = 0
    repeat_at_ms: InstantMs | None = None
    """When they must be published again, as computed at publication; later settings cannot extend their validity."""


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


class QuarantineNeed(Struct, array_like=True, frozen=True, gc=False):
    """The number of bookies in no group that a namespace needs to reach its ensemble."""

    count: int = 0
    starved: str = ""
    """The namespace; empty if the cluster has no groups, where every bookie in no group is needed."""
    ended_ms: InstantMs = NEVER
    """When it ended; `NEVER` while it lasts."""


class QuarantineNeeds(Struct, array_like=True, frozen=True):
    """The greatest need of bookies in no group, now and within the last `settle`."""

    since_ms: InstantMs = NEVER
    """When the needs were first known."""
    present: QuarantineNeed = QuarantineNeed()
    past: tuple[QuarantineNeed, ...] = ()
    """Greater needs that ended lately, the greatest and first one to end first."""

    @property
    def greatest(self) -> QuarantineNeed:
        """The greatest need that counts."""
        return self.past[0] if self.past else self.present


NO_NEEDS = QuarantineNeeds()


class IsolationState(Struct, array_like=True, frozen=True):
    """The policy's state of one cluster."""

    started_ms: InstantMs
    cluster: BookieClusterState = BookieClusterState()
    published: tuple[PublishedPlacements, ...] = ()
    orders: tuple[QuarantineOrder, ...] = ()
    alerts: AlertBook = AlertBook()
    sequence: int = 0
    """The last sequence of all decisions but alerts; one counter for the cluster, so it grows for each subject."""
    needs: QuarantineNeeds = NO_NEEDS


# The bound of a cluster's placements: groups of bookies multiply by the affinities that name them.
#
# A reading of a few hundred kilobytes could make a step hold gigabytes. The bound is far above real fleets: 1,000
# different affinities, each of 1,000 bookies.

MOST_PLACED = 1_000_000
"""The most bookies of the groups of all different affinities together."""

_BoundedAffinity = tuple[Collection[str], Collection[str]]
"""(primary groups, secondary groups), each once"""


def keep_within_bounds(
    cluster: BookieClusterState, observations: Sequence[Observation]
) -> tuple[list[Observation], dict[str, str]]:
    """Return the observations to fold, in order, and by id the bound for which another one is refused."""
    ordered = sort_observations(tuple(observations))
    if not any(isinstance(seen.reading, BookieRacks | BookieAffinity) for seen in ordered):
        return ordered, {}
    sizes: Mapping[str, int] = {group: len(bookies) for group, bookies in cluster.groups or ()}
    affinities: Collection[_BoundedAffinity] = {(cohort.primary, cohort.secondary) for cohort in cluster.cohorts}
    refused: dict[str, str] = {}
    for seen in ordered:
        after = sizes, affinities
        match seen.reading:
            case BookieRacks(outcome=Outcome.OK, groups=groups):
                after = {group: len(bookies) for group, bookies in (groups or {}).items()}, affinities
            case BookieAffinity(outcome=Outcome.OK, namespaces=namespaces):
                after = sizes, {(frozenset(each.primary), frozenset(each.secondary)) for each in namespaces.values()}
        placed = (after[0].get(group, 0) for affinity in after[1] for groups in affinity for group in groups)
        if after != (sizes, affinities) and sum(placed) > MOST_PLACED:
            refused[seen.id] = f"more than {MOST_PLACED} bookies in the groups of all affinities together"
        else:
            sizes, affinities = after
    return [seen for seen in ordered if seen.id not in refused], refused
