"""The bound of a cluster's placements: groups of bookies multiply by the affinities that name them.

A reading of a few hundred kilobytes could make a step hold gigabytes. The bound is far above real fleets: 1,000
different affinities, each of 1,000 bookies.
"""

from collections.abc import Collection, Mapping, Sequence

from policies.bookie_readings import BookieAffinity, BookieRacks
from policies.isolation.state import BookieClusterState
from policies.observations import Observation, Outcome, sort_observations

MOST_PLACED = 1_000_000
"""The most bookies of the groups of all different affinities together."""

_Affinity = tuple[Collection[str], Collection[str]]
"""(primary groups, secondary groups), each once"""


def keep_within_bounds(
    cluster: BookieClusterState, observations: Sequence[Observation]
) -> tuple[list[Observation], dict[str, str]]:
    """Return the observations to fold, in order, and by id the bound for which another one is refused."""
    ordered = sort_observations(tuple(observations))
    if not any(isinstance(seen.reading, BookieRacks | BookieAffinity) for seen in ordered):
        return ordered, {}
    sizes: Mapping[str, int] = {group: len(bookies) for group, bookies in cluster.groups or ()}
    affinities: Collection[_Affinity] = {(cohort.primary, cohort.secondary) for cohort in cluster.cohorts}
    refused: dict[str, str] = {}
    for seen in ordered:
        after = sizes, affinities
        match seen.reading:
            case BookieRacks(outcome=Outcome.OK, groups=groups):
                after = {group: len(bookies) for group, bookies in (groups or {}).items()}, affinities
            case BookieAffinity(outcome=Outcome.OK, namespaces=namespaces):
                after = sizes, {(frozenset(each.primary), frozenset(each.secondary)) for each in namespaces.values()}
        if after != (sizes, affinities) and _count_placed(*after) > MOST_PLACED:
            refused[seen.id] = f"more than {MOST_PLACED} bookies in the groups of all affinities together"
        else:
            sizes, affinities = after
    return [seen for seen in ordered if seen.id not in refused], refused


def _count_placed(sizes: Mapping[str, int], affinities: Collection[_Affinity]) -> int:
    return sum(sizes.get(group, 0) for affinity in affinities for groups in affinity for group in groups)
