"""Folds bookie registrations; a bookie counts as gone only when a second reading confirms it."""

from collections.abc import Iterable

from msgspec.structs import replace

from policies.isolation.fold.assignment import with_assignments
from policies.isolation.fold.shrinking import VANISHED, is_shrunk
from policies.isolation.fold.status import after_attempt, after_good, is_newer
from policies.isolation.readings import BookieRegistration, Bookies
from policies.isolation.state import BookieClusterState, BookieState, Presence
from policies.observations import Observation, Outcome
from policies.units import to_millis


def fold_registrations(
    before: BookieClusterState, seen: Observation, reading: Bookies, confirm_ms: int
) -> BookieClusterState:
    """What is known after a reading of the registration tree.

    Args:
        before: what was known.
        seen: when it was read.
        reading: what was read.
        confirm_ms: a bookie, or most at once, is believed to be gone when a second reading says so this much later.
    """
    status = before.bookies_status
    if not is_newer(status, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, bookies_status=after_attempt(status, seen))
    gone_ms = seen.at_ms if before.vanished_ms is None else before.vanished_ms
    left = len({r.bookie for r in (*reading.writable, *reading.read_only)})
    shrunk = is_shrunk(registered_count(before), left)
    if shrunk and seen.at_ms < gone_ms + confirm_ms:
        status = after_attempt(status, seen, VANISHED)
        return replace(before, bookies_status=status, vanished_ms=gone_ms, bookies_left=left)
    missing_from_ms = gone_ms if shrunk else seen.at_ms
    bookies = _reregistered(before, reading, seen.at_ms, missing_from_ms, confirm_ms)
    after = replace(before, bookies_status=after_good(seen), bookies=tuple(bookies), vanished_ms=None)
    return with_assignments(after, seen.at_ms)


def registered_count(cluster: BookieClusterState) -> int:
    """How many bookies are registered, those among them that one reading has lacked."""
    return sum(b.presence is not Presence.OFFLINE for b in cluster.bookies)


def _reregistered(
    before: BookieClusterState, reading: Bookies, at_ms: int, missing_from_ms: int, confirm_ms: int
) -> Iterable[BookieState]:
    """The bookies after a good reading of the registrations, as assigned as before."""
    known = {b.bookie: b for b in before.bookies}
    # While it changes its mode a bookie may be in both lists: brokers still write to it.
    listed = _by_bookie(reading.read_only, Presence.READ_ONLY) | _by_bookie(reading.writable, Presence.WRITABLE)
    cookies = set(reading.known)
    for bookie in sorted(known.keys() | listed.keys() | cookies):
        was = known.get(bookie, BookieState(bookie, Presence.OFFLINE, at_ms))
        if bookie in listed:
            now = _registered(was, *listed[bookie], at_ms)
        else:
            now = _unregistered(was, at_ms, missing_from_ms, confirm_ms)
        yield replace(now, has_cookie=bookie in cookies)


def _by_bookie(
    registrations: Iterable[BookieRegistration], presence: Presence
) -> dict[str, tuple[BookieRegistration, Presence]]:
    """A bookie listed twice counts by its latest registration."""
    return {r.bookie: (r, presence) for r in sorted(registrations, key=lambda r: (r.czxid or 0, r.session or ""))}


def _registered(was: BookieState, registration: BookieRegistration, presence: Presence, at_ms: int) -> BookieState:
    same = was.presence is not Presence.OFFLINE and (was.session, was.czxid) == (
        registration.session,
        registration.czxid,
    )
    first_ms = was.joined_in_place_ms
    if was.assigned and was.never_joined:
        first_ms = at_ms
    return replace(
        was,
        presence=presence,
        joined_in_place_ms=first_ms,
        since_ms=was.since_ms if was.presence is presence else at_ms,
        session=registration.session,
        czxid=registration.czxid,
        registered_ms=was.registered_ms if same else _registered_ms(registration, at_ms),
        missing_ms=None,
    )


def _registered_ms(registration: BookieRegistration, at_ms: int) -> int:
    """No bookie registered after it was seen, nor before ZooKeeper existed, whatever a clock says."""
    if registration.registered_at is None:
        return at_ms
    return min(max(0, to_millis(registration.registered_at)), at_ms)


def _unregistered(was: BookieState, at_ms: int, missing_from_ms: int, confirm_ms: int) -> BookieState:
    """One reading without it may have met it between its two lists: only a later one shows that it is gone."""
    if was.presence is Presence.OFFLINE:
        return was
    missing_ms = missing_from_ms if was.missing_ms is None else was.missing_ms
    if at_ms < missing_ms + confirm_ms:
        return replace(was, missing_ms=missing_ms)
    return BookieState(was.bookie, Presence.OFFLINE, missing_ms, was.assigned, registered_ms=was.registered_ms)
