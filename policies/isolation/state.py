"""The state of the isolation policy for one cluster.

It is kept in checkpoints as arrays, so the order and types of fields must not change. Everything is sorted, so that
equal knowledge gives equal bytes.
"""

from collections.abc import Mapping, Set
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from policies.alerts import AlertBook
from policies.decisions import Mode
from policies.isolation.decisions import QuarantineReason, QuarantineVerdict
from policies.isolation.membership import AffinityGroups, BookieMembership
from policies.isolation.rules import RuleSet
from policies.units import InstantMs

NEVER = -1


class ReadingStatus(Struct, array_like=True, frozen=True):
    """How one kind of reading fares: `read_*` is the last good one, `tried_*` the last attempt."""

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


class BookieState(Struct, array_like=True, frozen=True):
    """What is known of one bookie."""

    bookie: str
    presence: Presence
    since_ms: InstantMs
    """Since when it has this presence and this assignment."""
    assigned: bool | None = None
    """Whether it is in a group other than the quarantine group; None while no groups have been read."""
    session: str | None = None
    czxid: int | None = None
    registered_ms: InstantMs | None = None
    """When its last registration was made, or first seen."""
    missing_ms: InstantMs | None = None
    """When a reading first lacked it, until another confirms that its session is gone, or it is back."""
    has_cookie: bool = False
    joined_in_place_ms: InstantMs | None = None
    """When it joined for the first time, if it had been put into a group before."""

    @property
    def never_joined(self) -> bool:
        """Whether nothing tells that it was ever there: it is only in a group."""
        return self.presence is Presence.OFFLINE and not self.has_cookie and self.registered_ms is None

    @property
    def takes_data(self) -> bool:
        """Whether it is writable, and no reading has lacked it since."""
        return self.presence is Presence.WRITABLE and self.missing_ms is None


class Cohort(Struct, array_like=True, frozen=True):
    """Namespaces that say the same of where their data may lie."""

    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    strict: bool | None
    ensemble_size: int | None
    namespaces: tuple[str, ...]

    def with_namespaces(self, namespaces: tuple[str, ...]) -> "Cohort":
        """The same of these namespaces alone."""
        return self if namespaces == self.namespaces else replace(self, namespaces=namespaces)

    @property
    def affinity(self) -> AffinityGroups:
        """Its groups, as the rules take them."""
        return AffinityGroups(frozenset(self.primary), frozenset(self.secondary))


class GivenPromise(Struct, array_like=True, frozen=True):
    """What was promised to a namespace by command."""

    namespace: str
    rules: str
    """Empty: it was taken back, so that an older one that comes late does not hold again."""
    at_ms: InstantMs
    id: str


class BookieClusterState(Struct, array_like=True, frozen=True):
    """Everything known of one cluster's bookies, groups and namespaces: the last good reading of each."""

    bookies_status: ReadingStatus = ReadingStatus()
    racks_status: ReadingStatus = ReadingStatus()
    affinity_status: ReadingStatus = ReadingStatus()
    bookies: tuple[BookieState, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    cohorts: tuple[Cohort, ...] = ()
    vanished_ms: InstantMs | None = None
    """When most bookies were first gone at once, until that is confirmed or refuted."""
    groups_vanished_ms: InstantMs | None = None
    """When most members of groups were first gone at once, until that is confirmed or refuted."""
    bookies_left: int = 0
    """How many bookies the reading named that is not believed yet."""
    members_left: int = 0
    """How many members of groups the reading named that is not believed yet."""
    promises: tuple[GivenPromise, ...] = ()
    """What people promised single namespaces by command, by namespace."""

    @property
    def statuses(self) -> Mapping[str, ReadingStatus]:
        """Of the three readings, by name."""
        return {"bookies": self.bookies_status, "racks": self.racks_status, "affinity": self.affinity_status}

    def membership(self) -> BookieMembership:
        """Who takes new data, and who is in which group, by the last good readings."""
        return BookieMembership(frozenset(b.bookie for b in self.bookies if b.takes_data), self.members_by_group())

    @property
    def assigns_bookies(self) -> bool:
        """Whether any bookie is in a group, or it is not known."""
        return self.racks_status.read_ms == NEVER or any(bookies for _, bookies in self.groups or ())

    def promised(self) -> dict[str, RuleSet]:
        """What people promised single namespaces by command."""
        return {given.namespace: RuleSet(given.rules) for given in self.promises if given.rules}

    def confirmed_membership(self, membership: BookieMembership) -> BookieMembership:
        """The same with the bookies that one reading lacked and no other yet, so that they may still be there."""
        doubted = {b.bookie for b in self.bookies if b.presence is Presence.WRITABLE and b.missing_ms is not None}
        return BookieMembership(membership.writable | doubted, membership.groups) if doubted else membership

    def members_by_group(self) -> dict[str, frozenset[str]] | None:
        """By the last good reading of the groups; None when none are known."""
        return None if self.groups is None else {group: frozenset(bookies) for group, bookies in self.groups}


class PublishedPlacements(Struct, array_like=True, frozen=True):
    """Namespaces of which the same was published last."""

    fingerprint: str
    namespaces: tuple[str, ...]
    published_ms: InstantMs = 0
    """When; they are repeated before they run out."""
    repeat_at_ms: InstantMs | None = None
    """When at the latest: other settings make them hold no longer. None: not known."""


class QuarantineOrder(Struct, array_like=True, frozen=True):
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
    """When it was last published."""
    carried_out: bool = False
    """Whether the bookie has been in the quarantine group since."""
    starved: str = ""
    """Who could not place data without it, where that is the reason."""
    bookies: tuple[str, ...] = ()
    """The first names, where the order is about many; `bookie` is then empty."""
    count: int = 1
    """How many it is about; as was said last."""
    repeat_at_ms: InstantMs | None = None
    """When it is to be repeated at the latest: other settings make it hold no longer. None: not known."""

    @property
    def in_force(self) -> tuple[object, ...]:
        """What another decision must differ in to be news."""
        return (self.bookie, self.session, self.czxid, self.verdict, self.reason, self.mode, self.starved)

    def is_pending(self, quarantined: Set[str]) -> bool:
        """Whether an actuator has still to carry it out, with these bookies in the quarantine group."""
        return self.verdict is QuarantineVerdict.QUARANTINE and self.bookie not in quarantined


class IsolationState(Struct, array_like=True, frozen=True):
    """Everything the policy remembers of one cluster."""

    started_ms: InstantMs
    cluster: BookieClusterState = BookieClusterState()
    published: tuple[PublishedPlacements, ...] = ()
    orders: tuple[QuarantineOrder, ...] = ()
    alerts: AlertBook = AlertBook()
    sequence: int = 0
    """Numbers everything published but alerts; one for the cluster, so it only grows for each subject."""
