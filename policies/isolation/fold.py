"""Folds readings into the last known state of a cluster: its bookies, groups, namespaces and promises.

The result depends on the readings alone, not on their order within a batch or on repetition. A reading older than the
last attempt changes nothing. A failed reading changes only the status of its kind. A single reading proves no absence,
so each good one goes through `policies.confirmation`: registrations, cookies and groups by bookie, affinities by
namespace.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    NamespaceAffinity,
)
from policies.confirmation import Doubt, confirm
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.isolation.placement import NO_GROUPS, AffinityGroups
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import (
    ALL_OTHERS,
    NEVER,
    NODE,
    UNKNOWN_ENSEMBLE,
    BookieClusterState,
    BookieState,
    Cohort,
    GivenPromise,
    Presence,
    ReadingStatus,
    collect_cohorts,
    cookie_key,
    join_groups,
    split_broker_groups,
    split_groups,
)
from policies.observations import Observation, Outcome, Reading, sort_observations
from policies.units import millis_of, to_millis

_KINDS: Mapping[type[Reading], str] = {BookieAffinity: "affinity", Bookies: "bookies", BookieRacks: "racks"}
"""The kinds of readings, in the order in which readings of one instant are folded."""
_Take = Callable[[BookieClusterState, Observation, Mapping[str, str], Mapping[str, int]], BookieClusterState]
"""Returns the cluster with the believed members; the last argument tells since when doubted ones are as they are."""


def fold(
    cluster: BookieClusterState, observations: Sequence[Observation], settings: IsolationSettings
) -> BookieClusterState:
    """Return the cluster's state after these observations."""
    for seen in sort_observations(tuple(observations), kinds=tuple(_KINDS)):
        if isinstance(seen.reading, NamespacePromise):
            cluster = _fold_promise(cluster, seen, seen.reading)
        elif type(seen.reading) in _KINDS:
            cluster = _fold_reading(cluster, seen, millis_of(settings.confirm_after))
    return cluster


MOST_PLACED = 1_000_000
"""The most bookies of the groups of all different affinities together. Groups multiply by the affinities that name
them, so a reading of a few hundred kilobytes could make a step hold gigabytes. Real fleets are far below."""


def fold_within_bound(
    before: BookieClusterState, observations: Sequence[Observation], settings: IsolationSettings
) -> tuple[BookieClusterState, dict[str, str]]:
    """Return the cluster's state, and by id the readings of groups and affinities that exceed the bound, if they do."""
    cluster = fold(before, observations, settings)
    sizes = {group: len(bookies) for group, bookies in cluster.groups or ()}
    affinities = {(cohort.primary, cohort.secondary) for cohort in cluster.cohorts}
    if sum(sizes.get(group, 0) for each in affinities for groups in each for group in groups) <= MOST_PLACED:
        return cluster, {}
    why = f"more than {MOST_PLACED} bookies in the groups of all affinities together"
    refused = {seen.id: why for seen in observations if isinstance(seen.reading, BookieRacks | BookieAffinity)}
    return fold(before, [seen for seen in observations if seen.id not in refused], settings), refused


def _fold_reading(before: BookieClusterState, seen: Observation, confirm_ms: int) -> BookieClusterState:
    """Fold in a reading, unless it is old or has failed.

    The first reading is believed as it is, but an absent node only when a second reading confirms it. Later on, an
    absent node is a reading without members.
    """
    kind, reading = _KINDS[type(seen.reading)], seen.reading
    status, field = before.statuses[kind], f"{kind}_status"
    if seen.id in (status.read_id, status.tried_id) or (seen.at_ms, seen.id) <= (status.tried_ms, status.tried_id):
        return before
    tried = replace(status, tried_ms=seen.at_ms, tried_id=seen.id, outcome=reading.outcome.value)
    if reading.outcome not in (Outcome.OK, Outcome.ABSENT):
        return replace(before, **{field: tried})
    read = ReadingStatus(seen.at_ms, seen.id, seen.at_ms, seen.id, Outcome.OK.value)
    shown, take = _list_shown(reading, before)
    believed: Mapping[str, str] = before.believed(kind)
    doubts = status.doubts
    if status.read_ms == NEVER and reading.outcome is Outcome.ABSENT:
        doubts = doubts or (Doubt(NODE, None, seen.at_ms, seen.at_ms, is_new=True),)
    elif status.read_ms == NEVER:
        believed, doubts = shown, ()
    believed, doubts = confirm(believed, doubts, shown, seen.at_ms, confirm_ms)
    if any(doubt.name == NODE for doubt in doubts):
        return replace(before, **{field: replace(tried, doubts=doubts)})
    cluster = take(before, seen, believed, {doubt.name: doubt.row_ms for doubt in status.doubts})
    cluster = replace(cluster, **{field: replace(read, doubts=doubts)})
    if cluster.complete_ms is None and all(each.read_ms != NEVER for each in cluster.statuses.values()):
        cluster = replace(cluster, complete_ms=seen.at_ms)
    return _assign_bookies(cluster, seen.at_ms) if kind != "affinity" else cluster


def _list_shown(reading: Reading, before: BookieClusterState) -> tuple[Mapping[str, str], _Take]:
    """Return the members of a reading, as `BookieClusterState.believed` writes them, and how they are taken."""
    if isinstance(reading, Bookies):
        # A bookie that changes its mode may be in both lists; brokers still write to it.
        read_only = dict.fromkeys((r.bookie for r in reading.read_only), Presence.READ_ONLY.value)
        writable = dict.fromkeys((r.bookie for r in reading.writable), Presence.WRITABLE.value)
        return read_only | writable | dict.fromkeys(map(cookie_key, reading.known), ""), _take_registrations
    if isinstance(reading, BookieRacks):
        groups = (reading.groups or {}).items()
        return join_groups((group, tuple(bookies)) for group, bookies in groups), _take_memberships
    assert isinstance(reading, BookieAffinity)  # noqa: S101
    return list_affinities(reading, split_broker_groups(before.cohorts)[0]), _take_affinities


def _take_registrations(
    before: BookieClusterState, seen: Observation, believed: Mapping[str, str], rows: Mapping[str, int]
) -> BookieClusterState:
    """Update each bookie; `_assign_bookies` updates the assignments.

    Args:
        rows: when the members that were doubted before were first read in a row as they are now.
    """
    assert isinstance(seen.reading, Bookies)  # noqa: S101
    # Of a bookie that is listed twice, the latest registration counts.
    everyone = sorted((*seen.reading.read_only, *seen.reading.writable), key=lambda r: r.czxid or 0)
    listed = {r.bookie: r for r in everyone}
    known = {b.bookie: b for b in before.bookies}
    names = known.keys() | {name.removeprefix(cookie_key("")) for name in believed}
    bookies: list[BookieState] = []
    for name in sorted(names):
        bookie, mode = known.get(name) or BookieState(name, Presence.OFFLINE, seen.at_ms), believed.get(name)
        if mode is not None:
            presence, since_ms = Presence(mode), rows.get(name, seen.at_ms)
            bookie = _register(bookie, listed.get(name), presence, seen.at_ms, since_ms)
        elif bookie.presence is not Presence.OFFLINE:
            left = BookieState(name, Presence.OFFLINE, rows.get(name, seen.at_ms))
            bookie = replace(left, assigned=bookie.assigned, registered_ms=bookie.registered_ms)
        has_cookie = cookie_key(name) in believed
        bookies.append(bookie if bookie.has_cookie is has_cookie else replace(bookie, has_cookie=has_cookie))
    return replace(before, bookies=tuple(bookies))


def _register(
    last: BookieState, registration: BookieRegistration | None, presence: Presence, at_ms: int, since_ms: int
) -> BookieState:
    """Return a registered bookie; `registration` is None if the last reading lacks it."""
    session, czxid = (last.session, last.czxid) if registration is None else (registration.session, registration.czxid)
    if (last.presence, last.session, last.czxid) == (presence, session, czxid):
        return last
    registered_ms = last.registered_ms
    if last.presence is Presence.OFFLINE or (last.session, last.czxid) != (session, czxid):
        registered_ms = at_ms
        if registration is not None and registration.registered_at is not None:
            # No bookie registered after this reading, nor before ZooKeeper existed, whatever a clock says.
            registered_ms = min(max(0, to_millis(registration.registered_at)), at_ms)
    return replace(
        last,
        presence=presence,
        since_ms=last.since_ms if last.presence is presence else since_ms,
        session=session,
        czxid=czxid,
        registered_ms=registered_ms,
    )


def _take_memberships(
    before: BookieClusterState, seen: Observation, believed: Mapping[str, str], _rows: Mapping[str, int]
) -> BookieClusterState:
    groups = split_groups(believed)
    if groups == before.groups:
        return before
    # Headgate itself changes the quarantine group, and a new member never makes a namespace need more.
    were, are = (
        {bookie: group for bookie, group in listed.items() if group != QUARANTINE_GROUP}
        for listed in (before.believed("racks"), believed)
    )
    is_less = before.groups is not None and not (were and were.items() <= are.items())
    return replace(before, groups=groups, changed_ms=seen.at_ms if is_less else before.changed_ms)


def _take_affinities(
    before: BookieClusterState, seen: Observation, believed: Mapping[str, str], _rows: Mapping[str, int]
) -> BookieClusterState:
    is_less = not before.believed("affinity").items() <= believed.items()  # a new namespace never needs fewer bookies
    return replace(before, cohorts=collect_cohorts(believed), changed_ms=seen.at_ms if is_less else before.changed_ms)


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


def list_affinities(reading: BookieAffinity, last: AffinityGroups = NO_GROUPS) -> dict[str, str]:
    """Return the affinity of each namespace, encoded.

    The groups of brokers are the affinity of `ALL_OTHERS`; if they were not read, the `last` ones count. If the node is
    absent, no namespace has an affinity of its own.
    """
    found: dict[str, NamespaceAffinity] = dict(reading.namespaces) if reading.outcome is Outcome.OK else {}
    groups = last if reading.broker_groups is None else reading.broker_groups
    if groups:
        found[ALL_OTHERS] = NamespaceAffinity(primary=groups.primary, secondary=groups.secondary)
    return {name: _encode_affinity(affinity) for name, affinity in found.items()}


def _encode_affinity(affinity: NamespaceAffinity) -> str:
    # An empty list in the znode is split into one empty name, which is no group.
    primary, secondary = (tuple(sorted(set(groups) - {""})) for groups in (affinity.primary, affinity.secondary))
    ensemble_size = affinity.ensemble_size if affinity.has_policies else UNKNOWN_ENSEMBLE
    return Cohort(primary, secondary, affinity.strict, ensemble_size, ()).encode()


def _fold_promise(before: BookieClusterState, seen: Observation, reading: NamespacePromise) -> BookieClusterState:
    """Fold in a command `headgate promise`; the last one for a namespace counts."""
    promises = {given.namespace: given for given in before.promises}
    rules = "" if reading.promise is None else reading.promise.value
    given = GivenPromise(reading.namespace, rules, seen.at_ms, seen.id)
    last = promises.get(given.namespace, given)
    promises[given.namespace] = max(last, given, key=lambda each: (each.at_ms, each.id))
    return replace(before, promises=tuple(promises[name] for name in sorted(promises)))
