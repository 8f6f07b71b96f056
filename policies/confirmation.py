"""Confirms sets of members by identity, so that nothing irreversible rests on a single reading.

Each reading is compared with the *confirmed* set by its members: which are missing, which are new. A difference is
confirmed when a second reading, `confirm_ms` after the first that showed it, still shows it, and no reading in between
contradicted it. Counts cannot replace names: ten strangers in place of ten members leave the count as it was.

Three sets follow from the readings:

- The *believed* set is the last reading. If most confirmed members are missing from it, or collectors contradict each
  other, the confirmed set is believed in its place.
- The *confirmed* set leaves out new members that are not confirmed, and keeps missing ones. Orders rest on it.
- `keep_missing` keeps missing members and includes new ones, unless these are most of the reading. Critical alerts rest
  on it: one new member is news at once, and one missing member may be back in the next reading.

A member that comes and goes from reading to reading is *unstable*: a single collector may contradict itself, or two
may publish under one name. Its difference is believed when it is confirmed, so it cannot cause a change a reading.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from policies.units import InstantMs

NEVER = -1
MOST_CHANGES = 4
"""A member that came or went more often than this within `validity_ms` is unstable."""
_MOST_REMEMBERED = 10_000
"""The most members of which changes are remembered; those that changed most often come first."""
Vanished = Callable[[Set[str], Set[str]], bool]
"""Whether most of the confirmed members (first argument) vanished, by those that are missing (second argument)."""


class PendingDifferences(Struct, array_like=True, frozen=True):
    """The differences between a believed set and the confirmed one, and the last contradiction between collectors."""

    missing: tuple[tuple[str, InstantMs], ...] = ()
    """Confirmed members that the last reading lacks, each with the time of the first reading without it; sorted."""
    new: tuple[tuple[str, InstantMs], ...] = ()
    """Members of the last reading that are not confirmed, each with the time of the first reading with it; sorted."""
    source: str = ""
    """The collector whose reading showed the last of these differences."""
    disputed_ms: InstantMs = NEVER
    """When two collectors last contradicted each other."""
    disputed_by: tuple[str, ...] = ()
    """Their names, sorted."""
    changes: tuple[tuple[str, int, InstantMs], ...] = ()
    """Members that came or went lately, each with the number of times and the time of the last one; sorted."""

    @property
    def is_empty(self) -> bool:
        """Whether the believed set is the confirmed one."""
        return not (self.missing or self.new)

    def missing_names(self) -> frozenset[str]:
        """The missing members."""
        return frozenset(name for name, _ in self.missing)

    def new_names(self) -> frozenset[str]:
        """The new members."""
        return frozenset(name for name, _ in self.new)

    def limit_to(self, names: Set[str]) -> "PendingDifferences":
        """Return the differences in these members only."""
        if self.is_empty:
            return self
        missing, new = (tuple(pair for pair in pairs if pair[0] in names) for pairs in (self.missing, self.new))
        return replace(self, missing=missing, new=new)

    def unstable_names(self, at_ms: int, validity_ms: int) -> frozenset[str]:
        """The members that came or went more than `MOST_CHANGES` times within the last `validity_ms`."""
        return frozenset(name for name, times, ms in self.changes if times > MOST_CHANGES and at_ms < ms + validity_ms)

    def confirmed(self, believed: frozenset[str]) -> frozenset[str]:
        """Return the confirmed members."""
        return believed - self.new_names() | self.missing_names() if not self.is_empty else believed

    def keep_missing(self, believed: frozenset[str]) -> frozenset[str]:
        """Return the believed members and the missing ones, without new ones if these are most of the believed."""
        kept = believed | self.missing_names() if self.missing else believed
        return kept - self.new_names() if 2 * len(self.new) > len(believed) else kept

    def is_disputed(self, at_ms: int, validity_ms: int) -> bool:
        """Whether collectors contradicted each other within the last `validity_ms`."""
        return self.disputed_ms != NEVER and at_ms < self.disputed_ms + validity_ms


@dataclass(frozen=True, slots=True)
class SetReading:
    """One reading of a set of members."""

    members: frozenset[str]
    at_ms: int
    source: str = ""
    """The collector that read it; empty if that is not known."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The result of one reading."""

    believed: frozenset[str]
    pending: PendingDifferences
    is_held: bool
    """Whether the reading is not believed as a whole yet: the confirmed members are believed in its place. If not, all
    but its unstable members are believed."""
    is_vanished: bool = False
    """Whether it is held because most members are missing, and not only because collectors disagree."""


def most_vanished(confirmed: Set[str], missing: Set[str]) -> bool:
    """Whether more than half of the confirmed members are missing."""
    return 2 * len(missing) > len(confirmed)


def confirm(
    believed: frozenset[str] | None,
    pending: PendingDifferences,
    reading: SetReading,
    *,
    confirm_ms: int,
    validity_ms: int,
    has_vanished: Vanished = most_vanished,
) -> Confirmation:
    """Return the believed set, and its doubtful members, after one more reading.

    Args:
        believed: the believed set before; None before the first reading, which is believed as it is.
        pending: its differences from the confirmed one.
        reading: the reading; it must be newer than those before.
        confirm_ms: how long after the first reading with a difference a second one confirms it.
        validity_ms: how long a contradiction between collectors counts.
        has_vanished: whether the missing members are most of the confirmed ones.
    """
    if believed is None:
        return Confirmation(reading.members, pending, is_held=False)
    at_ms, before = reading.at_ms, pending.confirmed(believed)
    if pending.is_empty and believed == reading.members:
        if pending.changes and not _changes_since(pending, at_ms - validity_ms):
            pending = replace(pending, changes=())
        return Confirmation(reading.members, pending, is_held=False)
    missing, confirmed_missing = _split(before - reading.members, pending.missing, at_ms, confirm_ms)
    new, confirmed_new = _split(reading.members - before, pending.new, at_ms, confirm_ms)
    after = replace(
        pending,
        missing=tuple(sorted(missing.items())),
        new=tuple(sorted(new.items())),
        source=reading.source if missing or new else pending.source,
    )
    if _is_contradicted(pending, reading):
        after = replace(after, disputed_ms=at_ms, disputed_by=tuple(sorted((pending.source, reading.source))))
    is_disputed = after.is_disputed(at_ms, validity_ms)
    # The members that came or went since the reading before. In a dispute, one alert reports the dispute itself.
    changed = (before - pending.missing_names() | pending.new_names()) ^ reading.members
    changed = frozenset() if is_disputed else changed
    after = replace(after, changes=_add_changes(pending, changed, at_ms, at_ms - validity_ms))
    confirmed, unstable = before - confirmed_missing | confirmed_new, after.unstable_names(at_ms, validity_ms)
    is_vanished = has_vanished(confirmed, missing.keys() - unstable)
    if (is_vanished or is_disputed) and reading.members != confirmed:
        return Confirmation(confirmed, after, is_held=True, is_vanished=is_vanished)
    return Confirmation(reading.members - (unstable - confirmed) | (unstable & confirmed), after, is_held=False)


def _split(
    names: Set[str], since: tuple[tuple[str, int], ...], at_ms: int, confirm_ms: int
) -> tuple[dict[str, int], frozenset[str]]:
    """Return the names that are not confirmed yet, with the time of their first reading, and those that are."""
    known = dict(since)
    first = {name: known.get(name, at_ms) for name in names}
    confirmed = frozenset(name for name, ms in first.items() if at_ms >= ms + confirm_ms)
    return {name: ms for name, ms in first.items() if name not in confirmed}, confirmed


def _is_contradicted(pending: PendingDifferences, reading: SetReading) -> bool:
    """Whether another collector's reading shows a missing member, or lacks a new one."""
    if not pending.source or not reading.source or pending.source == reading.source:
        return False
    return not (pending.missing_names().isdisjoint(reading.members) and pending.new_names() <= reading.members)


def _add_changes(
    pending: PendingDifferences, changed: frozenset[str], at_ms: int, oldest_ms: int
) -> tuple[tuple[str, int, int], ...]:
    """Return the changes after `oldest_ms`, with those of `at_ms`."""
    found = _changes_since(pending, oldest_ms)
    for name in changed:
        times, _ = found.get(name, (0, NEVER))
        found[name] = (times + 1, at_ms)
    each = [(name, times, ms) for name, (times, ms) in found.items()]
    if len(each) > _MOST_REMEMBERED:
        each = sorted(each, key=lambda change: (-change[1], -change[2], change[0]))[:_MOST_REMEMBERED]
    return tuple(sorted(each))


def _changes_since(pending: PendingDifferences, oldest_ms: int) -> dict[str, tuple[int, int]]:
    return {name: (times, ms) for name, times, ms in pending.changes if ms > oldest_ms}
