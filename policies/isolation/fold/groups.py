"""Which bookies are in which group, as the znode ``/bookies`` has them."""

from msgspec.structs import replace

from policies.isolation.fold.assignment import with_assignments
from policies.isolation.fold.status import after_attempt, after_good, is_newer
from policies.isolation.readings import BookieRacks
from policies.isolation.state import BookieClusterState
from policies.observations import Observation, Outcome


def fold_groups(before: BookieClusterState, seen: Observation, reading: BookieRacks) -> BookieClusterState:
    """What is known after a reading of the groups."""
    if not is_newer(before.racks_status, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, racks_status=after_attempt(before.racks_status, seen))
    groups = None
    if reading.groups is not None:
        groups = tuple(sorted((group, tuple(sorted(bookies))) for group, bookies in reading.groups.items()))
    return with_assignments(replace(before, racks_status=after_good(seen), groups=groups), seen.at_ms)
