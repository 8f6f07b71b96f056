"""Folds the znode ``/bookies``: which bookies are in which group."""

from msgspec.structs import replace

from policies.isolation.fold.assignment import with_assignments
from policies.isolation.fold.shrinking import VANISHED, is_shrunk
from policies.isolation.fold.status import after_attempt, after_good, is_newer
from policies.isolation.readings import BookieRacks
from policies.isolation.state import BookieClusterState
from policies.observations import Observation, Outcome

_Groups = tuple[tuple[str, tuple[str, ...]], ...] | None


def fold_groups(
    before: BookieClusterState, seen: Observation, reading: BookieRacks, confirm_ms: int
) -> BookieClusterState:
    """What is known after a reading of the groups.

    Args:
        before: what was known.
        seen: when it was read.
        reading: what was read.
        confirm_ms: that most members are gone is believed when a second reading says so this much later.
    """
    status = before.racks_status
    if not is_newer(status, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, racks_status=after_attempt(status, seen))
    groups = _groups_of(reading)
    left = len(members_of(groups))
    if is_shrunk(len(members_of(before.groups)), left):
        since_ms = seen.at_ms if before.groups_vanished_ms is None else before.groups_vanished_ms
        if seen.at_ms < since_ms + confirm_ms:
            status = after_attempt(status, seen, VANISHED)
            return replace(before, racks_status=status, groups_vanished_ms=since_ms, members_left=left)
    after = replace(before, racks_status=after_good(seen), groups=groups, groups_vanished_ms=None)
    return with_assignments(after, seen.at_ms)


def members_of(groups: _Groups) -> set[str]:
    """All bookies in any group."""
    return {bookie for _, bookies in groups or () for bookie in bookies}


def _groups_of(reading: BookieRacks) -> _Groups:
    if reading.groups is None:
        return None
    return tuple(sorted((group, tuple(sorted(bookies))) for group, bookies in reading.groups.items()))
