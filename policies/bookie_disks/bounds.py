"""The bounds of a cluster's state, far above real fleets. Rules: `policies.free_space.bounds`."""

from collections.abc import Sequence

from msgspec.structs import replace

from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.state import BookieDisksCluster
from policies.bookie_readings import MAX_BOOKIES, BookieAffinity, BookieRacks
from policies.free_space.bounds import ServerReading, VolumeBounds, find_excess
from policies.observations import Observation, sort_observations

BOUNDS = VolumeBounds(most_servers=MAX_BOOKIES, most_volumes=20_000, servers="bookies", volumes="ledger dirs")
"""500 bookies with 40 ledger dirs each."""
MOST_GROUPS = 1000
"""The most placement groups that are decided on, in addition to that of all bookies."""
MOST_PLACED = 100_000
"""The most bookies of all placement groups together; each step ranks them."""


def keep_within_bounds(
    cluster: BookieDisksCluster, observations: Sequence[Observation]
) -> tuple[list[Observation], dict[str, str]]:
    """Return the observations to fold, in order, and by id the bound for which another one is refused."""
    ordered = sort_observations(tuple(observations))
    readings = [
        ServerReading(seen.id, seen.reading.bookie, frozenset(each.dir for each in seen.reading.dirs))
        for seen in ordered
        if isinstance(seen.reading, BookieDisks) and seen.reading.bookie
    ]
    if not readings:
        return ordered, {}
    known = {bookie.bookie: bookie.dirs for bookie in cluster.bookies}
    registered = cluster.registrations
    members = frozenset((*registered.writable, *registered.read_only) if registered else ())
    refused = find_excess(BOUNDS, known, members, readings)
    return [seen for seen in ordered if seen.id not in refused], refused


def keep_groups_within_bounds(
    before: BookieDisksCluster, after: BookieDisksCluster, observations: Sequence[Observation]
) -> tuple[BookieDisksCluster, dict[str, str]]:
    """Return the cluster without readings that make too many placement groups, and these by observation id."""
    is_same = after.groups is before.groups and after.placed is before.placed
    if is_same or (why := _find_group_excess(after)) is None:
        return after, {}
    kept = replace(
        after,
        groups=before.groups,
        groups_read=before.groups_read,
        placed=before.placed,
        placed_read=before.placed_read,
        groups_doubtful=before.groups_doubtful,
        placed_doubtful=before.placed_doubtful,
    )
    makers = (seen for seen in observations if isinstance(seen.reading, BookieRacks | BookieAffinity))
    return kept, {seen.id: why for seen in makers}


def _find_group_excess(cluster: BookieDisksCluster) -> str | None:
    sizes = {group.name: len(group.bookies) for group in cluster.groups or ()}
    named = [each for each in cluster.placed or () if each.primary] if sizes else []
    if len(named) > MOST_GROUPS:
        return f"more than {MOST_GROUPS} placement groups"
    placed = sum(sizes.get(name, 0) for each in named for name in (*each.primary, *each.secondary))
    return f"more than {MOST_PLACED} bookies of all placement groups together" if placed > MOST_PLACED else None
