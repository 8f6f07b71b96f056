"""Folds readings into a cluster's state: the disks of each bookie, the registrations, the groups and the namespaces.

The result depends on the readings alone, not on their order within a batch or on repetition. A failed reading changes
only the last attempt; silence makes nothing known. A single reading proves no absence: what it lacks of the groups and
of the namespaces' placement is kept until a second one lacks it, too. So one wrong reading opens no gate, and takes no
bookie from a group that needs it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec.structs import replace

from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.state import (
    BookieDisksCluster,
    BookieDiskState,
    PlacedNamespaces,
    Placement,
    ReadVersion,
    RegisteredBookies,
)
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies, NamespaceAffinity
from policies.free_space.volumes import fold_server
from policies.observations import Observation, Outcome, sort_observations

ANY_GROUP = "*"
"""As a primary group, it stands for every bookie."""
_NAMED = 10
_KINDS = (BookieDisks, Bookies)
"""The order in which readings of one instant are folded, because their ids are random."""
_ANSWERED = frozenset({Outcome.OK, Outcome.ABSENT})
"""The outcomes of attempts that read the system; if the znode is absent, there are no groups, or no affinities."""


def fold(cluster: BookieDisksCluster, observations: Sequence[Observation]) -> BookieDisksCluster:
    """Return the cluster after some readings, in order; readings older than the last one change nothing."""
    bookies = {b.name: b for b in cluster.bookies}
    for seen in sort_observations(tuple(observations), kinds=_KINDS):
        match seen.reading:
            case BookieDisks() as reading:
                cluster = _fold_disks(cluster, bookies, seen, reading)
            case Bookies() as reading if reading.outcome is Outcome.OK:
                cluster = _fold_registrations(cluster, bookies, seen, reading)
            case BookieRacks() as reading if reading.outcome in _ANSWERED and _is_newer(
                cluster.placement.groups_read, seen
            ):
                cluster = replace(cluster, placement=_fold_groups(cluster.placement, seen, reading))
            case BookieAffinity() as reading if reading.outcome in _ANSWERED and _is_newer(
                cluster.placement.placed_read, seen
            ):
                cluster = replace(cluster, placement=_fold_placed(cluster.placement, seen, reading))
    return replace(cluster, bookies=tuple(bookies[name] for name in sorted(bookies)))


def list_affinities(reading: BookieAffinity) -> Iterator[tuple[str, NamespaceAffinity]]:
    """Yield the affinity of each namespace; one without affinity has the brokers' own groups."""
    groups = reading.broker_groups
    own = {"primary": groups.primary, "secondary": groups.secondary} if groups else {}
    for name, affinity in reading.namespaces.items():
        has_affinity = any((*affinity.primary, *affinity.secondary))
        yield name, affinity if has_affinity or not own else affinity.model_copy(update=own)


def name_primary(affinity: NamespaceAffinity) -> tuple[str, ...]:
    """Return the primary groups of a namespace, in order; empty if it may use every bookie.

    An empty list in the znode is split into one empty name, which is no group. A namespace with secondary groups only
    uses these.
    """
    primary = tuple(sorted({*affinity.primary} - {""}))
    if ANY_GROUP in primary:
        return ()
    return primary or tuple(sorted({*affinity.secondary} - {""}))


def _is_newer(last: ReadVersion | None, seen: Observation) -> bool:
    return last is None or (seen.at_ms, seen.id) > last


def _fold_disks(
    cluster: BookieDisksCluster, bookies: dict[str, BookieDiskState], seen: Observation, reading: BookieDisks
) -> BookieDisksCluster:
    at_ms, outcome = seen.at_ms, reading.outcome
    if cluster.begun_ms is None or at_ms < cluster.begun_ms:
        cluster = replace(cluster, begun_ms=at_ms)
    if not reading.bookie:
        failure = ((at_ms, seen.id), outcome.value)
        return cluster if outcome is Outcome.OK else replace(cluster, failure=max(failure, cluster.failure or failure))
    known = bookies.get(reading.bookie) or BookieDiskState(reading.bookie, seen_ms=at_ms)
    bookies[reading.bookie] = _update_bookie(known, seen, reading, cluster.registrations)
    return replace(cluster, ever_read=True) if outcome is Outcome.OK else cluster


def _update_bookie(
    known: BookieDiskState, seen: Observation, reading: BookieDisks, registrations: RegisteredBookies | None
) -> BookieDiskState:
    after = fold_server(known, seen, reading.outcome, reading.dirs)
    if after.read_id != seen.id:
        return after
    read_only_at, compaction_at = known.read_only_at, known.compaction_at
    if (found := reading.thresholds) is not None:
        shares = [share for share in (found.major_compaction, found.minor_compaction) if share is not None]
        read_only_at, compaction_at = found.read_only, min(shares, default=None)
    is_read_only = reading.read_only
    if registrations is not None and registrations.at_ms > seen.at_ms:
        is_read_only = known.is_read_only  # the registrations are newer
    after = replace(
        after,
        is_read_only=is_read_only,
        left_ms=known.left_ms if known.left_ms is not None and known.left_ms > seen.at_ms else None,
        read_only_at=read_only_at,
        compaction_at=compaction_at,
    )
    return replace(after, was_full=is_read_only and (known.was_full or after.is_full))


def _fold_registrations(
    cluster: BookieDisksCluster, bookies: dict[str, BookieDiskState], seen: Observation, reading: Bookies
) -> BookieDisksCluster:
    """Fold in the registered bookies.

    The lists of writable and read-only ones are read one after the other, so a bookie that changes its mode may be in
    neither: it is forgotten only when a second reading lacks it, too.
    """
    before = cluster.registrations
    if before is not None and (seen.at_ms, seen.id) <= (before.at_ms, before.id):
        return cluster
    writable = {r.bookie for r in reading.writable}
    read_only = {r.bookie for r in reading.read_only} - writable
    for name in writable | read_only:
        bookie = bookies.get(name) or BookieDiskState(name, seen_ms=seen.at_ms)
        # A reading of the disks of the same time or later knows the mode better.
        mode = bookie.is_read_only if bookie.read_ms >= seen.at_ms else name in read_only
        bookies[name] = replace(bookie, is_read_only=mode, left_ms=None, was_full=bookie.was_full and mode)
    for name in bookies.keys() - writable - read_only:
        bookie = bookies[name]
        if bookie.read_ms >= seen.at_ms:
            continue
        if bookie.left_ms is None:
            bookies[name] = replace(bookie, left_ms=seen.at_ms)
        elif bookie.left_ms < seen.at_ms:
            del bookies[name]
    known = RegisteredBookies(seen.at_ms, seen.id, tuple(sorted(writable)), tuple(sorted(read_only)))
    return replace(cluster, registrations=known)


def _fold_groups(before: Placement, seen: Observation, reading: BookieRacks) -> Placement:
    """Fold in the groups of bookies; a member that only this reading lacks stays in its group."""
    read = {name: frozenset(members) for name, members in (reading.groups or {}).items()}
    kept: dict[str, frozenset[str]] = {}
    for name, members in (before.groups or {}).items():
        if gone := frozenset(members).difference(read.get(name, ()), before.groups_doubtful.get(name, ())):
            kept[name] = gone
    groups = read | {name: read.get(name, frozenset()) | gone for name, gone in kept.items()}
    return replace(
        before,
        groups=_sort_groups(groups) or None,
        groups_read=(seen.at_ms, seen.id),
        groups_doubtful=_sort_groups(kept),
    )


def _sort_groups(members: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted(members[name])) for name in sorted(members)}


def _fold_placed(before: Placement, seen: Observation, reading: BookieAffinity) -> Placement:
    """Fold in the placement of the namespaces.

    If only this reading lacks the namespaces of some groups, they stay as they were. If only this reading asks less of
    these groups, the larger ensemble and all secondary groups count.
    """
    read = {placed.primary: placed for placed in _place(list_affinities(reading))}
    doubtful = frozenset(before.placed_doubtful)
    kept: dict[tuple[str, ...], PlacedNamespaces] = {}
    for placed in before.placed or ():
        now, both = read.get(placed.primary), placed
        if now is not None:
            secondary = tuple(sorted({*now.secondary, *placed.secondary}))
            both = replace(now, ensemble=max(now.ensemble, placed.ensemble), secondary=secondary)
        if both != now and placed not in doubtful:
            kept[placed.primary] = both
    return replace(
        before,
        placed=tuple(sorted((read | kept).values())),
        placed_read=(seen.at_ms, seen.id),
        placed_doubtful=tuple(kept.values()),
    )


def _place(namespaces: Iterable[tuple[str, NamespaceAffinity]]) -> tuple[PlacedNamespaces, ...]:
    """Put namespaces with the same primary groups together."""
    placed: dict[tuple[str, ...], list[tuple[str, NamespaceAffinity]]] = {}
    for name, affinity in namespaces:
        placed.setdefault(name_primary(affinity), []).append((name, affinity))
    return tuple(
        PlacedNamespaces(
            primary,
            tuple(sorted({each for _, affinity in members for each in affinity.secondary if primary} - {"", *primary})),
            max(affinity.ensemble_size or 0 for _, affinity in members),
            len(members),
            tuple(sorted(name for name, _ in members)[:_NAMED]),
        )
        for primary, members in sorted(placed.items(), key=itemgetter(0))
    )
