"""Since when each bookie has been in a group, or in none; kept here, as a reading tells only the present."""

from collections.abc import Set

from msgspec.structs import replace

from policies.isolation.state import NEVER, BookieClusterState, BookieState, Presence


def with_assignments(cluster: BookieClusterState, at_ms: int) -> BookieClusterState:
    """With each bookie's assignment as of now; those of which nothing is left are forgotten."""
    if cluster.racks_status.read_ms == NEVER:
        return cluster
    members = cluster.membership().assigned()
    known = {b.bookie: b for b in cluster.bookies}
    if cluster.bookies_status.read_ms != NEVER:
        known |= {b: BookieState(b, Presence.OFFLINE, at_ms) for b in members - known.keys()}
    stand = (_assigned(known[bookie], members, at_ms) for bookie in sorted(known))
    bookies = tuple(b for b in stand if b.assigned or b.has_cookie or b.presence is not Presence.OFFLINE)
    return replace(cluster, bookies=bookies)


def _assigned(bookie: BookieState, members: Set[str], at_ms: int) -> BookieState:
    now = bookie.bookie in members
    return bookie if bookie.assigned is now else replace(bookie, assigned=now, since_ms=at_ms)
