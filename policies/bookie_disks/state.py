"""The state of the bookie-disks policy for one cluster.

It is kept in checkpoints as arrays, so the order and types of fields must not change. Bookies, dirs and groups are
sorted, so equal states give equal bytes.
"""

from collections.abc import Iterable

from msgspec import Raw, Struct
from msgspec.msgpack import encode

from policies.alerts import AlertBook
from policies.free_space.effect import EffectState, VolumeGrowth
from policies.free_space.gate import Gate
from policies.free_space.limits import Limit
from policies.free_space.repeats import LastPublished
from policies.free_space.volumes import NEVER, VolumeState
from policies.units import InstantMs

DirKey = tuple[str, str]
"""(bookie, dir)"""


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
