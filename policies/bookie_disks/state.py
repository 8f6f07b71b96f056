"""The state of the bookie-disks policy for one cluster.

It is kept in checkpoints as arrays, so the order and types of fields must not change. Bookies, dirs and groups are
sorted, so equal states give equal bytes.
"""

from collections.abc import Iterable

from msgspec import Raw, Struct
from msgspec.msgpack import encode

from policies.alerts import AlertBook
from policies.closed_enum import ClosedEnum
from policies.free_space.effect import EffectState, VolumeGrowth
from policies.free_space.gate import Gate
from policies.free_space.limits import Limit
from policies.free_space.repeats import LastPublished
from policies.free_space.volumes import NEVER, VolumeState
from policies.units import InstantMs

DirKey = tuple[str, str]
"""(bookie, dir)"""


class ReadOnlyCause(ClosedEnum):
    """Why a bookie is read-only; the meaning ends a sentence about it."""

    FULL = "full", "a ledger dir is full, beyond its read-only threshold"
    KEPT = "kept", "its ledger dirs have room again, and it stayed read-only"
    BY_HAND = "by_hand", "no ledger dir is full, so it was made read-only by hand"


class DiskThresholds(Struct, array_like=True, frozen=True, gc=False):
    """The used shares at which a bookie turns read-only, and suspends its two kinds of compaction."""

    read_only: float | None
    major_compaction: float | None
    minor_compaction: float | None

    @property
    def suspension(self) -> Limit | None:
        """The limit at which the bookie suspends a kind of compaction; None if it is not known."""
        known = [share for share in (self.major_compaction, self.minor_compaction) if share is not None]
        # Rounded, because 1 - 0.9 is a little less than 0.1.
        return Limit(available_ratio_below=round(1 - min(known), 9)) if known else None


class BookieDiskState(Struct, array_like=True, frozen=True, gc=False):
    """One bookie: `read_*` is its last good reading, `tried_*` the last attempt."""

    bookie: str
    seen_ms: InstantMs
    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""
    is_read_only: bool = False
    missing_ms: InstantMs | None = None
    """When a reading of the registrations first lacked it."""
    dirs: tuple[VolumeState, ...] = ()
    thresholds: DiskThresholds | None = None
    was_full: bool = False
    """Whether a reading since it is read-only had a dir beyond its read-only threshold."""

    @property
    def has_thresholds(self) -> bool:
        """Whether it is known when it turns read-only and suspends compaction."""
        found = self.thresholds
        return found is not None and found.read_only is not None and found.suspension is not None

    @property
    def read_only_cause(self) -> ReadOnlyCause | None:
        """Why it is read-only, by its last reading; None if its disks or its threshold have not been read."""
        full_at = self.thresholds.read_only if self.thresholds is not None else None
        if full_at is None or not self.dirs:
            return None
        if self.is_full(full_at):
            return ReadOnlyCause.FULL
        return ReadOnlyCause.KEPT if self.was_full else ReadOnlyCause.BY_HAND

    def is_full(self, share: float) -> bool:
        """Whether a dir of the last reading is used to this share or more."""
        sizes = ((d.total_bytes, d.usable_bytes) for d in self.dirs if d.missing_ms is None and d.usable_bytes >= 0)
        # Rounded, because 1 - 0.05 is a little less than 0.95.
        return any(round(1 - usable_bytes / max(total_bytes, 1), 9) >= share for total_bytes, usable_bytes in sizes)


class RegisteredBookies(Struct, array_like=True, frozen=True):
    """The last good reading of the registered bookies."""

    at_ms: InstantMs
    id: str
    writable: tuple[str, ...]
    read_only: tuple[str, ...]
    """Without those that are writable, too."""


class BookieGroup(Struct, array_like=True, frozen=True, order=True):
    """A group of bookies in the znode ``/bookies``."""

    name: str
    bookies: tuple[str, ...]


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


class ReadVersion(Struct, array_like=True, frozen=True, order=True):
    """Identifies a reading; a later one is greater."""

    at_ms: InstantMs
    id: str


class BookieDisksCluster(Struct, array_like=True, frozen=True):
    """The bookies of one cluster, their groups and namespaces."""

    bookies: tuple[BookieDiskState, ...] = ()
    registrations: RegisteredBookies | None = None
    groups: tuple[BookieGroup, ...] | None = None
    """None: not read yet, or there is no znode with groups."""
    groups_read: ReadVersion | None = None
    placed: tuple[PlacedNamespaces, ...] | None = None
    """None: not read yet."""
    placed_read: ReadVersion | None = None
    ever_read: bool = False
    begun_ms: InstantMs | None = None
    """When the first reading of disks came. Before it, the policy decides nothing."""
    failure: tuple[ReadVersion, str] | None = None
    """The last attempt that failed before any bookie could be named, and its outcome."""
    groups_doubtful: tuple[BookieGroup, ...] = ()
    """The members of `groups` that the last reading lacks."""
    placed_doubtful: tuple[PlacedNamespaces, ...] = ()
    """Those of `placed` that the last reading lacks, or shows with a smaller ensemble or fewer secondary groups."""


class GroupState(Struct, array_like=True, frozen=True):
    """A placement group that has been decided on."""

    name: str
    gate: Gate[DirKey]
    last: LastPublished[DirKey]
    growths: tuple[VolumeGrowth[DirKey], ...] = ()


class ForgottenDir(Struct, array_like=True, frozen=True, order=True):
    """A dir that limited its bookie when it left, and when it was forgotten."""

    key: DirKey
    at_ms: InstantMs


class BookieDisksState(Struct, array_like=True, frozen=True, weakref=True):
    """The stored state of the policy for one cluster."""

    cluster: BookieDisksCluster = BookieDisksCluster()
    groups: tuple[GroupState, ...] = ()
    alerts: AlertBook = AlertBook()
    forgotten: tuple[ForgottenDir, ...] = ()
    effect: EffectState = EffectState()


def encode_state(state: BookieDisksState, bookies: Iterable[Raw]) -> bytes:
    """Encode a state whose bookies are encoded already."""
    known = state.cluster
    rest = (known.registrations, known.groups, known.groups_read, known.placed, known.placed_read)
    doubtful = (known.groups_doubtful, known.placed_doubtful)
    cluster = (tuple(bookies), *rest, known.ever_read, known.begun_ms, known.failure, *doubtful)
    return encode((cluster, state.groups, state.alerts, state.forgotten, state.effect))
