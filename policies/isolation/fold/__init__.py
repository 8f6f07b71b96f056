"""Folds readings into what is known of a cluster, one module per kind of reading.

The result depends on the readings alone, not on their order within a batch or on repetition.
"""

from collections.abc import Sequence

from policies.isolation.fold.affinity import fold_affinity
from policies.isolation.fold.groups import fold_groups
from policies.isolation.fold.promises import fold_promise
from policies.isolation.fold.registrations import fold_registrations
from policies.isolation.readings import BookieAffinity, BookieRacks, Bookies, NamespacePromise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import BookieClusterState
from policies.observations import Observation, in_order
from policies.units import millis_of


def fold(
    cluster: BookieClusterState, observations: Sequence[Observation], settings: IsolationSettings
) -> BookieClusterState:
    """Fold readings into what is known; older ones than those known change nothing."""
    confirm_ms = millis_of(settings.confirm_after)
    for seen in in_order(tuple(observations)):
        match seen.reading:
            case Bookies():
                cluster = fold_registrations(cluster, seen, seen.reading, confirm_ms)
            case BookieRacks():
                cluster = fold_groups(cluster, seen, seen.reading, confirm_ms)
            case BookieAffinity():
                cluster = fold_affinity(cluster, seen, seen.reading)
            case NamespacePromise():
                cluster = fold_promise(cluster, seen, seen.reading)
    return cluster
