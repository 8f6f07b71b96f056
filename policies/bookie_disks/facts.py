"""The facts of one bookie at one moment, and the placement groups: where readings of different kinds meet.

No limit is applied here.
"""

from dataclasses import dataclass

from msgspec import Struct

from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksCluster, BookieDiskState, DirKey, PlacedNamespaces
from policies.free_space.verdicts import VolumeFacts, find_facts
from policies.free_space.volumes import NEVER, Freshness, judge_freshness

ALL_BOOKIES = "default"
"""The name of the group of all bookies."""
ALL_BOOKIES_BESIDE_DEFAULT = "*"
"""Its name where the cluster has a group of bookies with the usual one."""


class BookieFacts(Struct, frozen=True, gc=False):
    """One bookie and its dirs at one moment."""

    state: BookieDiskState
    freshness: Freshness
    is_unread: bool
    """Whether it has been known for `validity` without a good reading."""
    dirs: tuple[VolumeFacts[DirKey], ...]

    @property
    def is_awaited(self) -> bool:
        """Whether it takes data, and its first reading may still come."""
        return self.state.tried_ms == NEVER and not self.is_unread and not self.state.is_read_only


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


def facts(bookie: BookieDiskState, now_ms: int, validity_ms: int) -> BookieFacts:
    """Return the facts of one bookie.

    Args:
        now_ms: the time of this step, in milliseconds since the epoch.
    """
    freshness = Freshness.NEVER_READ
    if bookie.read_ms != NEVER:
        freshness = judge_freshness(bookie.read_ms, None, now_ms, validity_ms)
    is_overdue = max(bookie.read_ms, bookie.seen_ms) + validity_ms <= now_ms
    dirs = (
        find_facts((bookie.bookie, d.log_dir), bookie.read_id, d, d.missing_ms, bookie.seen_ms, now_ms, validity_ms)
        for d in bookie.dirs
    )
    return BookieFacts(bookie, freshness, freshness is not Freshness.FRESH and is_overdue, tuple(dirs))


def list_groups(cluster: BookieDisksCluster, settings: BookieDisksSettings) -> tuple[PlacementGroup, ...]:
    """Return the placement groups of a cluster, sorted by name.

    The group of all bookies is always one of them, because namespaces without affinity may be left out of a reading.
    """
    members = {group.name: frozenset(group.bookies) for group in cluster.groups or ()}
    placed = {each.primary: each for each in cluster.placed or ()} if members else {}
    everywhere = _join(cluster.placed or ()) if not members else placed.pop((), None)
    named = [_make_group(each, members, settings) for each in placed.values()]
    name = ALL_BOOKIES_BESIDE_DEFAULT if any(group.name == ALL_BOOKIES for group in named) else ALL_BOOKIES
    ensemble = max(settings.ensemble, everywhere.ensemble if everywhere else 0)
    count, first = (everywhere.count, everywhere.first) if everywhere else (0, ())
    whole = PlacementGroup(name, ensemble, None, frozenset(), count, first)
    return tuple(sorted((*named, whole), key=lambda group: group.name))


def _join(placed: tuple[PlacedNamespaces, ...]) -> PlacedNamespaces | None:
    """Put all namespaces together: without groups of bookies, brokers ignore the affinity."""
    if not placed:
        return None
    first = tuple(sorted(name for each in placed for name in each.first)[:10])
    return PlacedNamespaces((), (), max(each.ensemble for each in placed), sum(each.count for each in placed), first)


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
