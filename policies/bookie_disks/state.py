"""The state of the bookie-disks policy for one cluster.

It is kept in checkpoints as arrays, so the order and types of fields must not change. Bookies, dirs and groups are
sorted, so equal states give equal bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_readings import BookieAffinity, BookieRacks
from policies.free_space.alerts import EffectState, HeldAlert, VolumeGrowth
from policies.free_space.gate import Gate
from policies.free_space.volumes import ForgottenVolume, ServerState
from policies.observations import Observation
from policies.units import ClosedEnum, InstantMs

DirKey = tuple[str, str]
"""(bookie, dir)"""


class ReadOnlyCause(ClosedEnum):
    """Why a bookie is read-only; the meaning ends a sentence about it."""

    FULL = "full", "a ledger dir is full, beyond its read-only threshold"
    KEPT = "kept", "its ledger dirs have room again, and it stayed read-only"
    BY_HAND = "by_hand", "no ledger dir is full, so it was made read-only by hand"


def explain_cause(cause: ReadOnlyCause | None) -> str:
    """End a sentence about a read-only bookie."""
    return "" if cause is None else f": {cause.meaning.rstrip('.')}"


class BookieDiskState(ServerState[str], array_like=True, frozen=True, gc=False):
    """One bookie. A second reading of the registrations that lacks it ends it."""

    is_read_only: bool = False
    read_only_at: float | None = None
    compaction_at: float | None = None
    """The used shares at which it turns read-only, and suspends a kind of compaction; None if not known."""
    was_full: bool = False
    """Whether a reading since it is read-only had a dir beyond its read-only threshold."""

    @property
    def read_only_cause(self) -> ReadOnlyCause | None:
        """Why it is read-only, by its last reading; None if its disks or its threshold have not been read."""
        if self.read_only_at is None or not self.volumes:
            return None
        if self.is_full:
            return ReadOnlyCause.FULL
        return ReadOnlyCause.KEPT if self.was_full else ReadOnlyCause.BY_HAND

    @property
    def is_full(self) -> bool:
        """Whether a dir of the last reading is beyond its read-only threshold."""
        if (share := self.read_only_at) is None:
            return False
        sizes = ((d.total_bytes, d.usable_bytes) for d in self.volumes if d.missing_ms is None and d.usable_bytes >= 0)
        # Rounded, because 1 - 0.05 is a little less than 0.95.
        return any(round(1 - usable_bytes / max(total_bytes, 1), 9) >= share for total_bytes, usable_bytes in sizes)


class RegisteredBookies(Struct, array_like=True, frozen=True):
    """The last good reading of the registered bookies."""

    at_ms: InstantMs
    id: str
    writable: tuple[str, ...]
    read_only: tuple[str, ...]
    """Without those that are writable, too."""


class PlacedNamespaces(Struct, array_like=True, frozen=True, order=True):
    """The namespaces that name the same primary groups."""

    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    """The secondary groups of any of them."""
    ensemble: int
    """The largest that a persistence policy of theirs names; 0 if none does."""
    count: int
    first: tuple[str, ...]
    """The first ten, in order."""


ReadVersion = tuple[InstantMs, str]
"""The time and id of a reading; a later one is greater."""


class Placement(Struct, array_like=True, frozen=True):
    """The groups of bookies, and the namespaces that name them."""

    groups: dict[str, tuple[str, ...]] | None = None
    """None: not read yet, or there is no znode with groups."""
    groups_read: ReadVersion | None = None
    placed: tuple[PlacedNamespaces, ...] | None = None
    """None: not read yet."""
    placed_read: ReadVersion | None = None
    groups_doubtful: dict[str, tuple[str, ...]] = {}
    """The members of `groups` that the last reading lacks."""
    placed_doubtful: tuple[PlacedNamespaces, ...] = ()
    """Those of `placed` that the last reading lacks, or shows with a smaller ensemble or fewer secondary groups."""


class BookieDisksCluster(Struct, array_like=True, frozen=True):
    """The bookies of one cluster, and their placement."""

    bookies: tuple[BookieDiskState, ...] = ()
    registrations: RegisteredBookies | None = None
    placement: Placement = Placement()
    ever_read: bool = False
    begun_ms: InstantMs | None = None
    """When the first reading of disks came. Before it, the policy decides nothing."""
    failure: tuple[ReadVersion, str] | None = None
    """The last attempt that failed before any bookie could be named, and its outcome."""


class GroupState(Struct, array_like=True, frozen=True):
    """A placement group that has been decided on."""

    name: str
    gate: Gate[DirKey]
    reason: str
    limiting: DirKey | None
    """The dir that decided, among others with the same factor."""
    is_at_risk: bool = False
    """Whether hardly more of its bookies than a ledger needs have room."""
    growths: tuple[VolumeGrowth[DirKey], ...] = ()
    growths_before: dict[DirKey, float] = {}
    """How fast each limiting dir grew (bytes per second) before publishing was slowed."""


class BookieDisksState(Struct, array_like=True, frozen=True):
    """The stored state of the policy for one cluster."""

    cluster: BookieDisksCluster = BookieDisksCluster()
    groups: tuple[GroupState, ...] = ()
    held: tuple[HeldAlert[DirKey], ...] = ()
    """The alerts about dirs whose condition holds, in order."""
    forgotten: tuple[ForgottenVolume[DirKey], ...] = ()
    effect: EffectState = EffectState()


# The bounds of a cluster's state, far above real fleets.

MOST_GROUPS = 1000
"""The most placement groups that are decided on, in addition to that of all bookies."""
MOST_PLACED = 100_000
"""The most bookies of all placement groups together; each step ranks them."""


def keep_groups_within_bounds(
    before: BookieDisksCluster, after: BookieDisksCluster, observations: Sequence[Observation]
) -> tuple[BookieDisksCluster, dict[str, str]]:
    """Return the cluster without readings that make too many placement groups, and these by observation id."""
    placement = after.placement
    if placement is before.placement:
        return after, {}
    sizes = {name: len(bookies) for name, bookies in (placement.groups or {}).items()}
    named = [each for each in placement.placed or () if each.primary] if sizes else []
    placed = sum(sizes.get(name, 0) for each in named for name in (*each.primary, *each.secondary))
    if len(named) > MOST_GROUPS:
        why = f"more than {MOST_GROUPS} placement groups"
    elif placed > MOST_PLACED:
        why = f"more than {MOST_PLACED} bookies of all placement groups together"
    else:
        return after, {}
    makers = (seen for seen in observations if isinstance(seen.reading, BookieRacks | BookieAffinity))
    return replace(after, placement=before.placement), {seen.id: why for seen in makers}


# The placement groups: where readings of different kinds meet. No limit is applied here.

ALL_BOOKIES = "default"
"""The name of the group of all bookies."""
ALL_BOOKIES_BESIDE_DEFAULT = "*"
"""Its name where the cluster has a group of bookies with the usual one."""


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """Some namespaces that may place their data on the same bookies."""

    name: str
    ensemble: int
    primary: frozenset[str] | None
    """None: every bookie."""
    secondary: frozenset[str]
    """Used where fewer primary bookies are known than the ensemble needs."""
    count: int
    first: tuple[str, ...]
    """The number of its namespaces, and the first ten."""


def list_groups(placement: Placement, settings: BookieDisksSettings) -> tuple[PlacementGroup, ...]:
    """Return the placement groups of a cluster, sorted by name.

    The group of all bookies is always one of them, because namespaces without affinity may be left out of a reading.
    """
    members = {name: frozenset(bookies) for name, bookies in (placement.groups or {}).items()}
    # Without groups of bookies, brokers ignore the affinity.
    everywhere = [each for each in placement.placed or () if not (members and each.primary)]
    placed = [each for each in placement.placed or () if members and each.primary]
    named = [_make_group(each, members, settings) for each in placed]
    name = ALL_BOOKIES_BESIDE_DEFAULT if any(group.name == ALL_BOOKIES for group in named) else ALL_BOOKIES
    ensemble = max([settings.ensemble, *(each.ensemble for each in everywhere)])
    first = tuple(sorted(name for each in everywhere for name in each.first)[:10])
    whole = PlacementGroup(name, ensemble, None, frozenset(), sum(each.count for each in everywhere), first)
    return tuple(sorted((*named, whole), key=lambda group: group.name))


def _make_group(
    placed: PlacedNamespaces, members: dict[str, frozenset[str]], settings: BookieDisksSettings
) -> PlacementGroup:
    primary, secondary = (
        frozenset[str]().union(*(members.get(name, frozenset()) for name in names))
        for names in (placed.primary, placed.secondary)
    )
    return PlacementGroup(
        name=",".join(placed.primary),
        ensemble=max(settings.ensemble, placed.ensemble),
        primary=primary,
        secondary=secondary - primary,
        count=placed.count,
        first=placed.first,
    )
