"""Folds readings into the last known state of a cluster: its bookies, groups, namespaces and promises.

The result depends on the readings alone, not on their order within a batch or on repetition. A reading older than the
last attempt changes nothing. A failed reading changes only the status of its kind.

A single reading proves no absence. The collector lists writable and read-only bookies one after the other, so a bookie
that changes its mode in between is in neither list. A reading from which most entries vanished may be one of another
cluster. `policies.confirmation` compares each reading with the confirmed members, and keeps the pending differences.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from operator import is_

from msgspec.structs import replace

from policies.bookie_readings import (
    MAX_NAMESPACES,
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    BrokerGroups,
    NamespaceAffinity,
)
from policies.confirmation import Confirmation, PendingDifferences, SetReading, Vanished, confirm, most_vanished
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.isolation.readings import NamespacePromise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import (
    ALL_OTHERS,
    NEVER,
    UNKNOWN_ENSEMBLE,
    VANISHED,
    BookieClusterState,
    BookieState,
    Cohort,
    GivenPromise,
    Presence,
    ReadingStatus,
    affinity_namespace,
    collect_cohorts,
    collect_groups,
    split_broker_groups,
    split_group_member,
)
from policies.observations import Observation, Outcome, Reading, sort_observations
from policies.units import millis_of, to_millis

_ANSWERED = frozenset({Outcome.OK, Outcome.ABSENT})
"""The outcomes of attempts that read the system."""
_KINDS = (BookieAffinity, Bookies, BookieRacks)
"""The order in which readings of one instant are folded."""
_Listed = Mapping[str, tuple[BookieRegistration, Presence]]
"""By bookie: its registration, and its mode."""
_Folded = tuple[BookieClusterState, bool, bool]
"""The state after a reading, whether the reading is held back until another one confirms it, and whether that is so
because most members are missing from it."""


def fold(
    cluster: BookieClusterState, observations: Sequence[Observation], settings: IsolationSettings
) -> BookieClusterState:
    """Return the cluster's state after these observations."""
    for seen in sort_observations(tuple(observations), kinds=_KINDS):
        if isinstance(seen.reading, NamespacePromise):
            cluster = _fold_promise(cluster, seen, seen.reading)
        elif isinstance(seen.reading, _KINDS):
            cluster = _fold_reading(cluster, seen, settings)
    return cluster


def _fold_reading(before: BookieClusterState, seen: Observation, settings: IsolationSettings) -> BookieClusterState:
    """Fold in a reading, unless it is old, has failed, or is held back.

    A first reading of an absent node waits for confirmation. Later on, an absent node is a set without members, which
    `confirm` compares with the set before.
    """
    status_field, waiting_field, list_members = _FIELDS[type(seen.reading)]
    status: ReadingStatus = getattr(before, status_field)
    waiting_ms: int | None = getattr(before, waiting_field)
    since_ms, outcome = seen.at_ms if waiting_ms is None else waiting_ms, seen.reading.outcome
    if seen.id in (status.read_id, status.tried_id) or (seen.at_ms, seen.id) <= (status.tried_ms, status.tried_id):
        return before
    tried = replace(status, tried_ms=seen.at_ms, tried_id=seen.id)
    if outcome not in _ANSWERED:
        return replace(before, **{status_field: replace(tried, outcome=outcome.value)})
    is_first = status.read_ms == NEVER
    confirm_ms = millis_of(settings.confirm_after)
    if is_first and outcome is Outcome.ABSENT and seen.at_ms < since_ms + confirm_ms:
        after, is_held, is_vanished = before, True, True
    else:
        after, is_held, is_vanished = _fold_members(before, seen, settings)
    status = replace(tried, outcome=VANISHED)
    if not is_held:
        status = ReadingStatus(seen.at_ms, seen.id, seen.at_ms, seen.id, Outcome.OK.value)
    is_changed = after.bookies is not before.bookies or after.groups is not before.groups
    doubtful = dict(before.doubtful)
    is_waiting = is_vanished
    if is_vanished:
        doubtful[status_field] = seen.at_ms
    elif (doubtful_ms := doubtful.pop(status_field, None)) is not None and not is_first:
        # If it shows the confirmed members again, the doubt ends with the next one in a row, `confirm_after` after the
        # odd one at the earliest: however slowly collectors alternate, each second reading may be odd.
        is_alone = getattr(before, status_field).outcome == VANISHED or seen.at_ms < doubtful_ms + confirm_ms
        is_waiting = is_alone and list_members(after) == list_members(before)
        if is_waiting:
            doubtful[status_field] = doubtful_ms
    fields = {status_field: status, waiting_field: since_ms if is_waiting else None}
    after = replace(after, **fields, doubtful=tuple(sorted(doubtful.items())))
    return _assign_bookies(after, seen.at_ms) if is_changed or is_first else after


def _fold_members(before: BookieClusterState, seen: Observation, settings: IsolationSettings) -> _Folded:
    match seen.reading:
        case Bookies():
            return _fold_registrations(before, seen, seen.reading, settings)
        case BookieRacks():
            return _fold_groups(before, seen, seen.reading, settings)
        case BookieAffinity():
            return _fold_affinity(before, seen, seen.reading, settings)
    return before, False, False


_FIELDS: Mapping[type[Reading], tuple[str, str, Callable[[BookieClusterState], frozenset[str]]]] = {
    Bookies: ("bookies_status", "vanished_ms", BookieClusterState.registered),
    BookieRacks: ("racks_status", "groups_vanished_ms", BookieClusterState.group_members),
    BookieAffinity: ("affinity_status", "affinity_vanished_ms", BookieClusterState.affinities),
}
"""For each kind of reading: the fields of its status and since when its readings wait, and its believed members."""


def _fold_registrations(
    before: BookieClusterState, seen: Observation, reading: Bookies, settings: IsolationSettings
) -> _Folded:
    if _is_unchanged(before, reading):
        return before, False, False
    names = frozenset(r.bookie for r in (*reading.writable, *reading.read_only))
    is_first, pending = before.bookies_status.read_ms == NEVER, before.bookies_pending
    found = _confirm(None if is_first else before.registered(), pending, names, seen, settings)
    cookies = frozenset(b.bookie for b in before.bookies if b.has_cookie)
    kept = _confirm(None if is_first else cookies, before.cookies_pending, frozenset(reading.known), seen, settings)
    # A bookie that changes its mode may be in both lists; brokers still write to it.
    listed = {**_latest(reading.read_only, Presence.READ_ONLY), **_latest(reading.writable, Presence.WRITABLE)}
    modes = _confirm_modes(before, listed, seen, settings)
    if modes.is_held or modes.pending.changes or found.believed != names:
        listed = {
            name: (each, Presence.READ_ONLY if name in modes.believed else Presence.WRITABLE)
            for name, (each, _) in listed.items()
            if name in found.believed
        }
    bookies = _update_bookies(
        before,
        {} if found.is_held else listed,
        found,
        pending,
        kept.believed,
        seen.at_ms,
        millis_of(settings.confirm_after),
    )
    if len(bookies) == len(before.bookies) and all(map(is_, bookies, before.bookies)):
        bookies = before.bookies
    fields = {"bookies_pending": found.pending, "cookies_pending": kept.pending, "modes_pending": modes.pending}
    return replace(before, bookies=bookies, **fields), found.is_held, found.is_vanished


def _is_unchanged(before: BookieClusterState, reading: Bookies) -> bool:
    """Return whether the reading lists only known registrations and no difference is pending.

    Most readings do, so this comparison is cheap.
    """
    pending = (before.bookies_pending, before.cookies_pending, before.modes_pending)
    if before.bookies_status.read_ms == NEVER or not all(d.is_empty and not d.changes for d in pending):
        return False
    known = {b.bookie: b for b in before.bookies if b.presence is not Presence.OFFLINE and b.missing_ms is None}
    if len(known) != len(reading.writable) + len(reading.read_only):
        return False
    for mode, registrations in ((Presence.WRITABLE, reading.writable), (Presence.READ_ONLY, reading.read_only)):
        for r in registrations:
            b = known.pop(r.bookie, None)
            if b is None or (b.presence, b.session, b.czxid) != (mode, r.session, r.czxid):
                return False
    return {b.bookie for b in before.bookies if b.has_cookie} == set(reading.known)


def _update_bookies(
    before: BookieClusterState,
    listed: _Listed,
    found: Confirmation,
    pending: PendingDifferences,
    cookies: frozenset[str],
    at_ms: int,
    confirm_ms: int,
) -> tuple[BookieState, ...]:
    """Return each bookie after a reading; `_assign_bookies` updates the assignments."""
    known = {b.bookie: b for b in before.bookies}
    missing, missed = dict(found.pending.missing), dict(pending.missing)
    unconfirmed = known.keys() - pending.confirmed(before.registered())
    bookies: list[BookieState] = []
    for name in sorted(known.keys() | found.believed | cookies):
        bookie = known.get(name) or BookieState(name, Presence.OFFLINE, at_ms)
        if name in listed:
            bookie = _register(bookie, *listed[name], at_ms)
        elif name in found.believed or bookie.presence is Presence.OFFLINE:
            bookie = bookie if bookie.missing_ms is None else replace(bookie, missing_ms=None)
        elif name in missing:
            bookie = replace(bookie, missing_ms=missing[name])
        elif name in unconfirmed and at_ms < (bookie.missing_ms or at_ms) + confirm_ms:
            # It joined a moment ago, so it is not confirmed. One reading does not prove its absence either.
            bookie = replace(bookie, missing_ms=bookie.missing_ms or at_ms)
        else:
            bookie = replace(
                BookieState(name, Presence.OFFLINE, missed.get(name, bookie.missing_ms or at_ms)),
                assigned=bookie.assigned,
                registered_ms=bookie.registered_ms,
                has_cookie=bookie.has_cookie,
            )
        has_cookie = name in cookies
        bookies.append(bookie if bookie.has_cookie is has_cookie else replace(bookie, has_cookie=has_cookie))
    return tuple(bookies)


def _confirm(
    believed: frozenset[str] | None,
    pending: PendingDifferences,
    members: frozenset[str],
    seen: Observation,
    settings: IsolationSettings,
    has_vanished: Vanished = most_vanished,
) -> Confirmation:
    return confirm(
        believed,
        pending,
        SetReading(members, seen.at_ms, seen.source),
        confirm_ms=millis_of(settings.confirm_after),
        validity_ms=millis_of(settings.validity),
        has_vanished=has_vanished,
    )


def _confirm_modes(
    before: BookieClusterState, listed: _Listed, seen: Observation, settings: IsolationSettings
) -> Confirmation:
    """Compare the read-only bookies with those before. A change is believed at once, unless collectors disagree."""
    known = {b.bookie: b.presence for b in before.bookies if b.presence is not Presence.OFFLINE and b.bookie in listed}
    now = frozenset(name for name, (_, mode) in listed.items() if mode is Presence.READ_ONLY)
    # The mode of a bookie that was not registered before contradicts nothing.
    believed = frozenset(name for name in listed if known.get(name, listed[name][1]) is Presence.READ_ONLY)
    return _confirm(believed, before.modes_pending.limit_to(listed.keys()), now, seen, settings, lambda _, __: False)


def _latest(registrations: Iterable[BookieRegistration], presence: Presence) -> _Listed:
    """Registrations by bookie. Of a bookie that is listed twice, the latest registration counts."""
    return {r.bookie: (r, presence) for r in sorted(registrations, key=lambda r: r.czxid or 0)}


def _register(last: BookieState, registration: BookieRegistration, presence: Presence, at_ms: int) -> BookieState:
    is_same = (last.presence, last.session, last.czxid) == (presence, registration.session, registration.czxid)
    if is_same and last.missing_ms is None:
        return last
    registered_ms = last.registered_ms
    was_registered = last.presence is not Presence.OFFLINE
    if not was_registered or (last.session, last.czxid) != (registration.session, registration.czxid):
        registered_ms = at_ms
        if registration.registered_at is not None:
            # No bookie registered after this reading, nor before ZooKeeper existed, whatever a clock says.
            registered_ms = min(max(0, to_millis(registration.registered_at)), at_ms)
    # Readings of one instant come in any order, so only an earlier one shows that it was assigned before it came.
    was_assigned_before = last.assigned and last.never_joined and last.since_ms < at_ms
    return replace(
        last,
        presence=presence,
        joined_in_place_ms=at_ms if was_assigned_before else last.joined_in_place_ms,
        since_ms=last.since_ms if last.presence is presence else at_ms,
        session=registration.session,
        czxid=registration.czxid,
        registered_ms=registered_ms,
        missing_ms=None,
    )


def _fold_groups(
    before: BookieClusterState, seen: Observation, reading: BookieRacks, settings: IsolationSettings
) -> _Folded:
    """Fold in the znode ``/bookies``."""
    groups, is_first = None, before.racks_status.read_ms == NEVER
    if reading.groups is not None and reading.outcome is Outcome.OK:
        groups = tuple(sorted((group, tuple(sorted(bookies))) for group, bookies in reading.groups.items()))
    if groups == before.groups and before.groups_pending.is_empty:
        return before, False, False
    after = replace(before, groups=groups)
    members, believed = after.group_members(), before.group_members()
    vanished = partial(_has_group_vanished, frozenset(bookie for _, bookie in map(split_group_member, members)))
    found = _confirm(None if is_first else believed, before.groups_pending, members, seen, settings, vanished)
    if found.is_held:
        groups = None if before.groups is None else _list_groups(before.groups, found.believed)
    elif found.believed != members:
        groups = _list_groups(groups, found.believed)
    return replace(before, groups=groups, groups_pending=found.pending), found.is_held, found.is_vanished


def _list_groups(
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None, believed: frozenset[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the believed members by group, and the groups that were read without any member."""
    members = {group: frozenset[str]() for group, read in groups or () if not read} | collect_groups(believed)
    return tuple((group, tuple(sorted(members[group]))) for group in sorted(members))


def _has_group_vanished(grouped: Set[str], confirmed: Set[str], missing: Set[str]) -> bool:
    """Whether more than half of any group's members are in no group any more, or more than half of all members.

    A bookie that moves to another group is not missing. The quarantine group is emptied on purpose.
    """
    gone = Counter(group for group, bookie in map(split_group_member, missing) if bookie not in grouped)
    before = Counter(group for group, _ in map(split_group_member, confirmed))
    return any(2 * count > before[group] for group, count in gone.items() if group != QUARANTINE_GROUP)


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


def _fold_affinity(
    before: BookieClusterState, seen: Observation, reading: BookieAffinity, settings: IsolationSettings
) -> _Folded:
    cohorts, is_first = collect_alike(reading, before.cohorts), before.affinity_status.read_ms == NEVER
    if cohorts == before.cohorts and before.affinity_pending.is_empty:
        return before, False, False
    read, believed = replace(before, cohorts=cohorts).affinities(), before.affinities()
    vanished = partial(_have_namespaces_vanished, frozenset(map(affinity_namespace, read)))
    found = _confirm(None if is_first else believed, before.affinity_pending, read, seen, settings, vanished)
    if found.is_held:
        cohorts = collect_cohorts(found.believed)
    elif found.believed != read:
        kept = frozenset(map(affinity_namespace, found.believed - read))
        others = (key for key in found.believed & read if affinity_namespace(key) not in kept)
        cohorts = collect_cohorts((found.believed - read).union(others))
    return replace(before, cohorts=cohorts, affinity_pending=found.pending), found.is_held, found.is_vanished


def collect_alike(reading: BookieAffinity, before: tuple[Cohort, ...]) -> tuple[Cohort, ...]:
    """Return the namespaces with the same affinity and persistence as cohorts, by their first namespace.

    The groups of brokers are the affinity of `ALL_OTHERS`; if they were not read, the last ones count. If the node is
    absent, no namespace has an affinity of its own.
    """
    found: dict[str, NamespaceAffinity] = dict(reading.namespaces) if reading.outcome is Outcome.OK else {}
    groups = reading.broker_groups
    if groups is None:
        last, _ = split_broker_groups(before)
        groups = BrokerGroups(primary=tuple(last.primary), secondary=tuple(last.secondary))
    if groups:
        found[ALL_OTHERS] = NamespaceAffinity(primary=groups.primary, secondary=groups.secondary)
    alike: dict[tuple[tuple[str, ...], tuple[str, ...], bool | None, int | None], list[str]] = {}
    for name, affinity in found.items():
        # An empty list in the znode is split into one empty name, which is no group.
        primary, secondary = (tuple(sorted(set(groups) - {""})) for groups in (affinity.primary, affinity.secondary))
        ensemble_size = affinity.ensemble_size if affinity.has_policies else UNKNOWN_ENSEMBLE
        alike.setdefault((primary, secondary, affinity.strict, ensemble_size), []).append(name)
    cohorts = (Cohort(*key, tuple(sorted(names))) for key, names in alike.items())
    return tuple(sorted(cohorts, key=lambda cohort: cohort.namespaces[0]))


def _have_namespaces_vanished(names: Set[str], confirmed: Set[str], missing: Set[str]) -> bool:
    """Whether more than half of the namespaces are missing; one whose affinity changed is not."""
    gone = {name for name in map(affinity_namespace, missing) if name not in names}
    return 2 * len(gone) > len({affinity_namespace(key) for key in confirmed})


def _fold_promise(before: BookieClusterState, seen: Observation, reading: NamespacePromise) -> BookieClusterState:
    """Fold in a command `headgate promise`; the last one for a namespace counts."""
    promises = {given.namespace: given for given in before.promises}
    rules = "" if reading.promise is None else reading.promise.value
    given = GivenPromise(reading.namespace, rules, seen.at_ms, seen.id)
    if given.namespace not in promises and len(promises) >= MAX_NAMESPACES:
        return before
    last = promises.get(given.namespace, given)
    promises[given.namespace] = max(last, given, key=lambda each: (each.at_ms, each.id))
    return replace(before, promises=tuple(promises[name] for name in sorted(promises)))
