"""Folds bookie affinity: which namespaces may place their data on which groups."""

from collections.abc import Iterable

from msgspec.structs import replace

from policies.isolation.fold.status import after_attempt, after_good, is_newer
from policies.isolation.readings import BookieAffinity
from policies.isolation.state import BookieClusterState, Cohort
from policies.observations import Observation, Outcome


def fold_affinity(before: BookieClusterState, seen: Observation, reading: BookieAffinity) -> BookieClusterState:
    """What is known after a reading of the namespaces."""
    if not is_newer(before.affinity_status, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, affinity_status=after_attempt(before.affinity_status, seen))
    return replace(before, affinity_status=after_good(seen), cohorts=_cohorts(reading))


def _cohorts(reading: BookieAffinity) -> tuple[Cohort, ...]:
    alike: dict[tuple[tuple[str, ...], tuple[str, ...], bool | None, int | None], list[str]] = {}
    for name, affinity in reading.namespaces.items():
        key = (
            _listed_groups(affinity.primary),
            _listed_groups(affinity.secondary),
            affinity.strict,
            affinity.ensemble_size,
        )
        alike.setdefault(key, []).append(name)
    return tuple(sorted((Cohort(*key, tuple(sorted(names))) for key, names in alike.items()), key=_by_first_name))


def _by_first_name(cohort: Cohort) -> str:
    return cohort.namespaces[0]


def _listed_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """Sorted, each once, without the empty name that an empty list leaves when it is split."""
    return tuple(sorted({group for group in groups if group}))
