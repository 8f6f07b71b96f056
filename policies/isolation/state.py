"""What the isolation policy remembers of one cluster.

Kept in checkpoints as arrays, so the order and the types of fields stay. Everything is sorted, so that equal knowledge
is equal bytes.
"""

from collections.abc import Mapping, Set
from enum import StrEnum

from msgspec import Struct

from policies.alerts import AlertBook
from policies.decisions import Mode
from policies.isolation.decisions import QuarantineReason, QuarantineVerdict
from policies.isolation.membership import AffinityGroups, BookieMembership

NEVER = -1


class ReadingStatus(Struct, array_like=True, frozen=True):
    """How one kind of reading fares: `read_*` is the last good one, `tried_*` the last attempt."""

    read_ms: int = NEVER
    read_id: str = ""
    tried_ms: int = NEVER
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
    since_ms: int
    """Since when it has this presence and this assignment."""
    assigned: bool | None = None
    """Whether it is in a group other than the quarantine group; None while no groups have been read."""
    session: str | None = None
    czxid: int | None = None
    registered_ms: int | None = None
    """When its present registration was made, or first seen."""
    missing_ms: int | None = None
    """When a reading first lacked it, until another confirms that its session is gone, or it is back."""
    has_cookie: bool = False

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

    @property
    def affinity(self) -> AffinityGroups:
        """Its groups, as the rules take them."""
        return AffinityGroups(frozenset(self.primary), frozenset(self.secondary))


class BookieClusterState(Struct, array_like=True, frozen=True):
    """Everything known of one cluster's bookies, groups and namespaces: the last good reading of each."""

    bookies_status: ReadingStatus = ReadingStatus()
    racks_status: ReadingStatus = ReadingStatus()
    affinity_status: ReadingStatus = ReadingStatus()
    bookies: tuple[BookieState, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    cohorts: tuple[Cohort, ...] = ()
    vanished_ms: int | None = None
    """When all bookies were first gone at once, until that is confirmed or refuted."""

    @property
    def statuses(self) -> Mapping[str, ReadingStatus]:
        """Of the three readings, by name."""
        return {"bookies": self.bookies_status, "racks": self.racks_status, "affinity": self.affinity_status}

    def membership(self) -> BookieMembership:
        """Who takes new data, and who is in which group, by the last good readings."""
        groups = None if self.groups is None else {group: frozenset(bookies) for group, bookies in self.groups}
        return BookieMembership(frozenset(b.bookie for b in self.bookies if b.takes_data), groups)


class PublishedPlacements(Struct, array_like=True, frozen=True):
    """Namespaces of which the same was published last."""

    fingerprint: str
    namespaces: tuple[str, ...]


class QuarantineOrder(Struct, array_like=True, frozen=True):
    """The quarantine decision in force on one bookie."""

    bookie: str
    session: str | None
    czxid: int | None
    registered_ms: int
    verdict: QuarantineVerdict
    reason: QuarantineReason
    mode: Mode
    since_ms: int
    """When it was first decided."""
    published_ms: int
    """When it was last published."""
    carried_out: bool = False
    """Whether the bookie has been in the quarantine group since."""
    starved: str = ""
    """Who could not place data without it, where that is the reason."""

    @property
    def in_force(self) -> tuple[object, ...]:
        """What another decision must differ in to be news."""
        return (self.bookie, self.session, self.czxid, self.verdict, self.reason, self.mode)

    def is_pending(self, quarantined: Set[str]) -> bool:
        """Whether an actuator has still to carry it out, with these bookies in the quarantine group."""
        return self.verdict is QuarantineVerdict.QUARANTINE and self.bookie not in quarantined


class IsolationState(Struct, array_like=True, frozen=True):
    """Everything the policy remembers of one cluster."""

    started_ms: int
    cluster: BookieClusterState = BookieClusterState()
    published: tuple[PublishedPlacements, ...] = ()
    orders: tuple[QuarantineOrder, ...] = ()
    alerts: AlertBook = AlertBook()
    sequence: int = 0
    """Numbers everything published but alerts; one for the cluster, so it only grows for each subject."""
