"""What is known of a cluster's bookies, groups and namespaces: the last good reading of each, however they arrive.

`observe` folds readings in; the result depends on the readings alone, not on their order within a batch or on
repetition. Everything is sorted, so that equal knowledge is equal bytes.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from policies.isolation.placement import Affinity, Membership, assigned
from policies.isolation.readings import BookieAffinity, BookieRacks, Bookies, Registration
from policies.isolation.settings import IsolationSettings
from policies.observations import Observation, Outcome, in_order
from policies.units import millis_of, to_millis

NEVER = -1

VANISHED = "vanished"
"""In place of an outcome: a good reading in which all bookies were gone at once, not believed yet."""


class Source(Struct, array_like=True, frozen=True):
    """One of the three readings: `read_*` is the last good one, `tried_*` the last attempt."""

    read_ms: int = NEVER
    read_id: str = ""
    tried_ms: int = NEVER
    tried_id: str = ""
    outcome: str = ""


class Presence(StrEnum):
    """How a bookie is registered."""

    WRITABLE = "writable"
    READ_ONLY = "read_only"
    OFFLINE = "offline"
    """Not registered, but it has a cookie or is in a group."""


class Bookie(Struct, array_like=True, frozen=True):
    """What is known of one bookie."""

    bookie: str
    presence: Presence
    since_ms: int
    """Since when it has this presence and this assignment."""
    assigned: bool | None = None
    """Whether it is in a group other than the quarantine group; null while no groups have been read."""
    session: str | None = None
    czxid: int | None = None
    registered_ms: int | None = None
    """When its present registration was made, or first seen."""
    missing_ms: int | None = None
    """When a reading first lacked it, until another confirms that its session is gone, or it is back."""
    has_cookie: bool = False


class Cohort(Struct, array_like=True, frozen=True):
    """Namespaces that say the same of where their data may lie."""

    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    strict: bool | None
    ensemble_size: int | None
    namespaces: tuple[str, ...]

    @property
    def affinity(self) -> Affinity:
        """Its groups, as the rules take them."""
        return Affinity(frozenset(self.primary), frozenset(self.secondary))


class Knowledge(Struct, array_like=True, frozen=True):
    """Everything known of one cluster."""

    bookies_source: Source = Source()
    racks_source: Source = Source()
    affinity_source: Source = Source()
    bookies: tuple[Bookie, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    cohorts: tuple[Cohort, ...] = ()
    vanished_ms: int | None = None
    """When all bookies were first gone at once, until that is confirmed or refuted."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The three readings by name."""
        return {"bookies": self.bookies_source, "racks": self.racks_source, "affinity": self.affinity_source}

    def membership(self) -> Membership:
        """Who takes new data, and who is in which group, by the last good readings."""
        writable = frozenset(b.bookie for b in self.bookies if b.presence is Presence.WRITABLE and b.missing_ms is None)
        groups = None if self.groups is None else {group: frozenset(bookies) for group, bookies in self.groups}
        return Membership(writable, groups)


def is_fresh(source: Source, settings: IsolationSettings, now: datetime) -> bool:
    """Whether its last good reading still counts."""
    return source.read_ms != NEVER and to_millis(now) - source.read_ms < millis_of(settings.validity)


def observe(knowledge: Knowledge, observations: Sequence[Observation], settings: IsolationSettings) -> Knowledge:
    """Fold readings into what is known; older ones than those known change nothing."""
    for seen in in_order(tuple(observations)):
        match seen.reading:
            case Bookies():
                knowledge = _after_bookies(knowledge, seen, seen.reading, millis_of(settings.confirm_after))
            case BookieRacks():
                knowledge = _after_racks(knowledge, seen, seen.reading)
            case BookieAffinity():
                knowledge = _after_affinity(knowledge, seen, seen.reading)
    return knowledge


def _after_bookies(before: Knowledge, seen: Observation, reading: Bookies, confirm_ms: int) -> Knowledge:
    source = before.bookies_source
    if not _is_newer(source, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, bookies_source=_tried(source, seen))
    gone_ms = seen.at_ms if before.vanished_ms is None else before.vanished_ms
    if _has_vanished(before, reading) and seen.at_ms < gone_ms + confirm_ms:
        return replace(before, bookies_source=_tried(source, seen, VANISHED), vanished_ms=gone_ms)
    missing_from_ms = gone_ms if _has_vanished(before, reading) else seen.at_ms
    bookies = _reregistered(before, reading, seen.at_ms, missing_from_ms, confirm_ms)
    after = replace(before, bookies_source=_read(seen), bookies=tuple(bookies), vanished_ms=None)
    return _regrouped(after, seen.at_ms)


def _after_racks(before: Knowledge, seen: Observation, reading: BookieRacks) -> Knowledge:
    if not _is_newer(before.racks_source, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, racks_source=_tried(before.racks_source, seen))
    groups = None
    if reading.groups is not None:
        groups = tuple(sorted((group, tuple(sorted(bookies))) for group, bookies in reading.groups.items()))
    return _regrouped(replace(before, racks_source=_read(seen), groups=groups), seen.at_ms)


def _after_affinity(before: Knowledge, seen: Observation, reading: BookieAffinity) -> Knowledge:
    if not _is_newer(before.affinity_source, seen):
        return before
    if reading.outcome is not Outcome.OK:
        return replace(before, affinity_source=_tried(before.affinity_source, seen))
    return replace(before, affinity_source=_read(seen), cohorts=_cohorts(reading))


def _cohorts(reading: BookieAffinity) -> tuple[Cohort, ...]:
    alike: dict[tuple[tuple[str, ...], tuple[str, ...], bool | None, int | None], list[str]] = {}
    for name, said in reading.namespaces.items():
        key = (_listed_groups(said.primary), _listed_groups(said.secondary), said.strict, said.ensemble_size)
        alike.setdefault(key, []).append(name)
    return tuple(sorted((Cohort(*key, tuple(sorted(names))) for key, names in alike.items()), key=_by_first_name))


def _by_first_name(cohort: Cohort) -> str:
    return cohort.namespaces[0]


def _listed_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """Sorted, each once, without the empty name that an empty list leaves when it is split."""
    return tuple(sorted({group for group in groups if group}))


def _has_vanished(before: Knowledge, reading: Bookies) -> bool:
    registered = any(b.presence is not Presence.OFFLINE for b in before.bookies)
    return registered and not reading.writable and not reading.read_only


def _reregistered(
    before: Knowledge, reading: Bookies, at_ms: int, missing_from_ms: int, confirm_ms: int
) -> Iterable[Bookie]:
    """The bookies after a good reading of the registrations, as assigned as before."""
    known = {b.bookie: b for b in before.bookies}
    # While it changes its mode a bookie may be in both lists: brokers still write to it.
    listed = _by_bookie(reading.read_only, Presence.READ_ONLY) | _by_bookie(reading.writable, Presence.WRITABLE)
    cookies = set(reading.known)
    for bookie in sorted(known.keys() | listed.keys() | cookies):
        was = known.get(bookie, Bookie(bookie, Presence.OFFLINE, at_ms))
        if bookie in listed:
            now = _registered(was, *listed[bookie], at_ms)
        else:
            now = _unregistered(was, at_ms, missing_from_ms, confirm_ms)
        yield replace(now, has_cookie=bookie in cookies)


def _by_bookie(registrations: Iterable[Registration], presence: Presence) -> dict[str, tuple[Registration, Presence]]:
    """A bookie listed twice counts by its latest registration."""
    return {r.bookie: (r, presence) for r in sorted(registrations, key=lambda r: (r.czxid or 0, r.session or ""))}


def _registered(was: Bookie, registration: Registration, presence: Presence, at_ms: int) -> Bookie:
    same = was.presence is not Presence.OFFLINE and (was.session, was.czxid) == (
        registration.session,
        registration.czxid,
    )
    return replace(
        was,
        presence=presence,
        since_ms=was.since_ms if was.presence is presence else at_ms,
        session=registration.session,
        czxid=registration.czxid,
        registered_ms=was.registered_ms if same else _registered_ms(registration, at_ms),
        missing_ms=None,
    )


def _registered_ms(registration: Registration, at_ms: int) -> int:
    """No bookie registered after it was seen, nor before ZooKeeper existed, whatever a clock says."""
    if registration.registered_at is None:
        return at_ms
    return min(max(0, to_millis(registration.registered_at)), at_ms)


def _unregistered(was: Bookie, at_ms: int, missing_from_ms: int, confirm_ms: int) -> Bookie:
    """One reading without it may have met it between its two lists: only a later one shows that it is gone."""
    if was.presence is Presence.OFFLINE:
        return was
    missing_ms = missing_from_ms if was.missing_ms is None else was.missing_ms
    if at_ms < missing_ms + confirm_ms:
        return replace(was, missing_ms=missing_ms)
    return Bookie(was.bookie, Presence.OFFLINE, missing_ms, was.assigned)


def _regrouped(knowledge: Knowledge, at_ms: int) -> Knowledge:
    """With each bookie's assignment as of now; those of which nothing is left are forgotten."""
    if knowledge.racks_source.read_ms == NEVER:
        return knowledge
    members = assigned(knowledge.membership())
    known = {b.bookie: b for b in knowledge.bookies}
    if knowledge.bookies_source.read_ms != NEVER:
        known |= {b: Bookie(b, Presence.OFFLINE, at_ms) for b in members - known.keys()}
    stand = (_assigned(known[bookie], members, at_ms) for bookie in sorted(known))
    bookies = tuple(b for b in stand if b.assigned or b.has_cookie or b.presence is not Presence.OFFLINE)
    return replace(knowledge, bookies=bookies)


def _assigned(bookie: Bookie, members: Set[str], at_ms: int) -> Bookie:
    now = bookie.bookie in members
    return bookie if bookie.assigned is now else replace(bookie, assigned=now, since_ms=at_ms)


def _is_newer(source: Source, seen: Observation) -> bool:
    known = seen.id in (source.read_id, source.tried_id)
    return not known and (seen.at_ms, seen.id) > (source.tried_ms, source.tried_id)


def _read(seen: Observation) -> Source:
    return Source(seen.at_ms, seen.id, seen.at_ms, seen.id, Outcome.OK.value)


def _tried(source: Source, seen: Observation, outcome: str | None = None) -> Source:
    return replace(source, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome or seen.reading.outcome.value)
