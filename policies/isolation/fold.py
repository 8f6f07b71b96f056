"""Folds readings into the last known state of a cluster: its bookies, groups, namespaces and promises.

The result depends on the readings alone, not on their order within a batch or on repetition. A reading older than the
last attempt changes nothing. A failed reading changes only the status of its kind.

A single reading proves no absence. The collector lists writable and read-only bookies one after the other, so a bookie
that changes its mode in between is in neither list. A reading from which more than half of all entries vanished may be
a broken one. Both are believed only after a second reading, at least `confirm_after` later, agrees.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from policies.bookie_readings import MAX_NAMESPACES, BookieAffinity, BookieRacks, BookieRegistration, Bookies
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import (
    NEVER,
    VANISHED,
    BookieClusterState,
    BookieState,
    Cohort,
    GivenPromise,
    Presence,
    ReadingStatus,
)
from policies.observations import Observation, Outcome, sort_observations
from policies.units import millis_of, to_millis


def fold(
    cluster: BookieClusterState, observations: Sequence[Observation], settings: IsolationSettings
) -> BookieClusterState:
    """Return the cluster's state after these observations."""
    confirm_ms = millis_of(settings.confirm_after)
    for seen in sort_observations(tuple(observations)):
        match seen.reading:
            case Bookies():
                cluster = _fold_registrations(cluster, seen, seen.reading, confirm_ms)
            case BookieRacks():
                cluster = _fold_groups(cluster, seen, seen.reading, confirm_ms)
            case BookieAffinity():
                cluster = _fold_affinity(cluster, seen, seen.reading)
            case NamespacePromise():
                cluster = _fold_promise(cluster, seen, seen.reading)
    return cluster


def _fold_registrations(
    before: BookieClusterState, seen: Observation, reading: Bookies, confirm_ms: int
) -> BookieClusterState:
    status = before.bookies_status
    if not _is_newer(status, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, bookies_status=_with_attempt(status, seen, reading.outcome.value))
    gone_ms = seen.at_ms if before.vanished_ms is None else before.vanished_ms
    left = len({r.bookie for r in (*reading.writable, *reading.read_only)})
    has_shrunk = 2 * left < before.registered_count
    if has_shrunk and seen.at_ms < gone_ms + confirm_ms:
        status = _with_attempt(status, seen, VANISHED)
        return replace(before, bookies_status=status, vanished_ms=gone_ms, bookies_left=left)
    missing_from_ms = gone_ms if has_shrunk else seen.at_ms
    bookies = tuple(_fold_bookies(before, reading, seen.at_ms, missing_from_ms, confirm_ms))
    after = replace(before, bookies_status=_read_well(seen), bookies=bookies, vanished_ms=None)
    return _assign_bookies(after, seen.at_ms)


def _fold_bookies(
    before: BookieClusterState, reading: Bookies, at_ms: int, missing_from_ms: int, confirm_ms: int
) -> Iterator[BookieState]:
    """Each bookie after a good reading of the registrations; `_assign_bookies` updates the assignments."""
    known = {b.bookie: b for b in before.bookies}
    # A bookie that is changing its mode may be in both lists. Brokers still write to it, so it counts as writable.
    listed = _latest(reading.read_only, Presence.READ_ONLY) | _latest(reading.writable, Presence.WRITABLE)
    cookies = set(reading.known)
    for bookie in sorted(known.keys() | listed.keys() | cookies):
        last = known.get(bookie, BookieState(bookie, Presence.OFFLINE, at_ms))
        if bookie in listed:
            now = _register(last, *listed[bookie], at_ms)
        else:
            now = _mark_missing(last, at_ms, missing_from_ms, confirm_ms)
        yield replace(now, has_cookie=bookie in cookies)


def _latest(
    registrations: Iterable[BookieRegistration], presence: Presence
) -> dict[str, tuple[BookieRegistration, Presence]]:
    """Registrations by bookie. Of a bookie that is listed twice, the latest registration counts."""
    return {r.bookie: (r, presence) for r in sorted(registrations, key=lambda r: (r.czxid or 0, r.session or ""))}


def _register(last: BookieState, registration: BookieRegistration, presence: Presence, at_ms: int) -> BookieState:
    registered_ms = last.registered_ms
    was_registered = last.presence is not Presence.OFFLINE
    if not was_registered or (last.session, last.czxid) != (registration.session, registration.czxid):
        registered_ms = at_ms
        if registration.registered_at is not None:
            # No bookie registered after this reading, nor before ZooKeeper existed, whatever a clock says.
            registered_ms = min(max(0, to_millis(registration.registered_at)), at_ms)
    return replace(
        last,
        presence=presence,
        joined_in_place_ms=at_ms if last.assigned and last.never_joined else last.joined_in_place_ms,
        since_ms=last.since_ms if last.presence is presence else at_ms,
        session=registration.session,
        czxid=registration.czxid,
        registered_ms=registered_ms,
        missing_ms=None,
    )


def _mark_missing(last: BookieState, at_ms: int, missing_from_ms: int, confirm_ms: int) -> BookieState:
    if last.presence is Presence.OFFLINE:
        return last
    missing_ms = missing_from_ms if last.missing_ms is None else last.missing_ms
    if at_ms < missing_ms + confirm_ms:
        return replace(last, missing_ms=missing_ms)
    return BookieState(last.bookie, Presence.OFFLINE, missing_ms, last.assigned, registered_ms=last.registered_ms)


def _fold_groups(
    before: BookieClusterState, seen: Observation, reading: BookieRacks, confirm_ms: int
) -> BookieClusterState:
    """Fold in the znode ``/bookies``."""
    status = before.racks_status
    if not _is_newer(status, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, racks_status=_with_attempt(status, seen, reading.outcome.value))
    groups = None
    if reading.groups is not None:
        groups = tuple(sorted((group, tuple(sorted(bookies))) for group, bookies in reading.groups.items()))
    after = replace(before, racks_status=_read_well(seen), groups=groups, groups_vanished_ms=None)
    left = after.member_count
    if 2 * left < before.member_count:
        vanished_ms = seen.at_ms if before.groups_vanished_ms is None else before.groups_vanished_ms
        if seen.at_ms < vanished_ms + confirm_ms:
            status = _with_attempt(status, seen, VANISHED)
            return replace(before, racks_status=status, groups_vanished_ms=vanished_ms, members_left=left)
    return _assign_bookies(after, seen.at_ms)


def _assign_bookies(cluster: BookieClusterState, at_ms: int) -> BookieClusterState:
    """Update each bookie's assignment to a group.

    A reading shows only the present, so the state records since when a bookie has been in a group, or in none. A bookie
    that is neither registered nor in a group, and has no cookie, is forgotten.
    """
    if cluster.racks_status.read_ms == NEVER:
        return cluster
    members = cluster.membership().assigned()
    known = {b.bookie: b for b in cluster.bookies}
    if cluster.bookies_status.read_ms != NEVER:
        known |= {b: BookieState(b, Presence.OFFLINE, at_ms) for b in members - known.keys()}
    bookies = []
    for name, bookie in sorted(known.items()):
        is_assigned = name in members
        if is_assigned or bookie.has_cookie or bookie.presence is not Presence.OFFLINE:
            same = bookie.assigned is is_assigned
            bookies.append(bookie if same else replace(bookie, assigned=is_assigned, since_ms=at_ms))
    return replace(cluster, bookies=tuple(bookies))


def _fold_affinity(before: BookieClusterState, seen: Observation, reading: BookieAffinity) -> BookieClusterState:
    status = before.affinity_status
    if not _is_newer(status, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, affinity_status=_with_attempt(status, seen, reading.outcome.value))
    alike: dict[tuple[tuple[str, ...], tuple[str, ...], bool | None, int | None], list[str]] = {}
    for name, affinity in reading.namespaces.items():
        # An empty list in the znode is split into one empty name, which is no group.
        primary, secondary = (tuple(sorted(set(groups) - {""})) for groups in (affinity.primary, affinity.secondary))
        alike.setdefault((primary, secondary, affinity.strict, affinity.ensemble_size), []).append(name)
    cohorts = (Cohort(*key, tuple(sorted(names))) for key, names in alike.items())
    by_first_name = tuple(sorted(cohorts, key=lambda cohort: cohort.namespaces[0]))
    return replace(before, affinity_status=_read_well(seen), cohorts=by_first_name)


def _fold_promise(before: BookieClusterState, seen: Observation, reading: NamespacePromise) -> BookieClusterState:
    """Fold in a command `headgate promise`; the last one for a namespace counts."""
    promises = {given.namespace: given for given in before.promises}
    rules = "" if reading.promise is None else reading.promise.value
    given = GivenPromise(reading.namespace, rules, seen.at_ms, seen.id)
    last = promises.get(given.namespace)
    if last is not None and (given.at_ms, given.id) <= (last.at_ms, last.id):
        return before
    if last is None and len(promises) >= MAX_NAMESPACES:
        return before
    promises[given.namespace] = given
    return replace(before, promises=tuple(promises[name] for name in sorted(promises)))


def _is_newer(status: ReadingStatus, seen: Observation) -> bool:
    is_known = seen.id in (status.read_id, status.tried_id)
    return not is_known and (seen.at_ms, seen.id) > (status.tried_ms, status.tried_id)


def _read_well(seen: Observation) -> ReadingStatus:
    """The status after a good reading."""
    return ReadingStatus(seen.at_ms, seen.id, seen.at_ms, seen.id, Outcome.OK.value)


def _with_attempt(status: ReadingStatus, seen: Observation, outcome: str) -> ReadingStatus:
    """The status after an attempt that did not succeed, or whose result is not believed yet."""
    return replace(status, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome)
