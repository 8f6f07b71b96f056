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
"""

from collections.abc import Callable, Set
from dataclasses import dataclass

from msgspec import Struct

from policies.units import InstantMs

NEVER = -1
Vanished = Callable[[Set[str], Set[str]], bool]
"""Whether most of the confirmed members (first argument) vanished, by those that are missing (second argument)."""


class Doubt(Struct, array_like=True, frozen=True):
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

    def limit_to(self, names: Set[str]) -> "Doubt":
        """Return the doubt about these members only."""
        if self.is_empty:
            return self
        missing, new = (tuple(pair for pair in pairs if pair[0] in names) for pairs in (self.missing, self.new))
        return Doubt(missing, new, self.source, self.disputed_ms, self.disputed_by)

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
    doubt: Doubt
    is_held: bool
    """Whether the reading is not believed as a whole yet: the confirmed members are believed in its place."""


def most_vanished(confirmed: Set[str], missing: Set[str]) -> bool:
    """Whether more than half of the confirmed members are missing."""
    return 2 * len(missing) > len(confirmed)


def confirm(
    believed: frozenset[str] | None,
    doubt: Doubt,
    reading: SetReading,
    *,
    confirm_ms: int,
    validity_ms: int,
    has_vanished: Vanished = most_vanished,
) -> Confirmation:
    """Return the believed set, and its doubtful members, after one more reading.

    Args:
        believed: the believed set before; None before the first reading, which is believed as it is.
        doubt: its doubt.
        reading: the reading; it must be newer than those before.
        confirm_ms: how long after the first reading with a difference a second one confirms it.
        validity_ms: how long a contradiction between collectors counts.
        has_vanished: whether the missing members are most of the confirmed ones.
    """
    if believed is None or (doubt.is_empty and believed == reading.members):
        return Confirmation(reading.members, doubt, is_held=False)
    at_ms, before = reading.at_ms, doubt.confirmed(believed)
    missing, confirmed_missing = _split(before - reading.members, doubt.missing, at_ms, confirm_ms)
    new, confirmed_new = _split(reading.members - before, doubt.new, at_ms, confirm_ms)
    after = Doubt(
        missing=tuple(sorted(missing.items())),
        new=tuple(sorted(new.items())),
        source=reading.source if missing or new else doubt.source,
        disputed_ms=doubt.disputed_ms,
        disputed_by=doubt.disputed_by,
    )
    if _is_contradicted(doubt, reading):
        after = _with_dispute(after, at_ms, doubt.source, reading.source)
    confirmed = before - confirmed_missing | confirmed_new
    is_doubtful = has_vanished(confirmed, missing.keys()) or after.is_disputed(at_ms, validity_ms)
    if is_doubtful and reading.members != confirmed:
        return Confirmation(confirmed, after, is_held=True)
    return Confirmation(reading.members, after, is_held=False)


def _split(
    names: Set[str], since: tuple[tuple[str, int], ...], at_ms: int, confirm_ms: int
) -> tuple[dict[str, int], frozenset[str]]:
    """Return the names that are not confirmed yet, with the time of their first reading, and those that are."""
    known = dict(since)
    first = {name: known.get(name, at_ms) for name in names}
    confirmed = frozenset(name for name, ms in first.items() if at_ms >= ms + confirm_ms)
    return {name: ms for name, ms in first.items() if name not in confirmed}, confirmed


def _is_contradicted(doubt: Doubt, reading: SetReading) -> bool:
    """Whether another collector's reading shows a missing member, or lacks a new one."""
    if not doubt.source or not reading.source or doubt.source == reading.source:
        return False
    return not (doubt.missing_names().isdisjoint(reading.members) and doubt.new_names() <= reading.members)


def _with_dispute(doubt: Doubt, at_ms: int, *sources: str) -> Doubt:
    return Doubt(doubt.missing, doubt.new, doubt.source, at_ms, tuple(sorted(sources)))
