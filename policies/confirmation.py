"""Doubts readings by identity, so that nothing irreversible rests on a single one. Isolation and sessions share it.

A reading lists *members*, each with a value. The *believed* members change as follows:

- A member that is missing, or has another value, stays as it was until two readings in a row, `confirm_ms` apart, agree
  that it is gone or has changed.
- A new member is believed at once. Nothing irreversible may rest on it until a second reading in a row shows it. If
  most members of a reading are new, it may be a reading of another cluster: then they wait for confirmation, too.

A member is doubted from the first reading that contradicts its believed value until two readings in a row,
`confirm_ms` apart, agree about it, whatever they show. Two collectors that contradict each other in turn never give
such readings, so the value before stands, and the doubt has one beginning. Members are compared by name, since ten
strangers in place of ten members leave the count as it was.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from policies.units import InstantMs

MOST_TURNS = 6
"""Readings that have contradicted each other more often than this, without two in a row that agree, are in turn."""


class Doubt(Struct, array_like=True, frozen=True, gc=False):
    """One member about which readings disagree, or that a single reading showed."""

    name: str
    shown: str | None
    """Its value by the last reading; None if it is missing there."""
    row_ms: InstantMs
    """The time of the first of the readings in a row that show this."""
    since_ms: InstantMs
    """The time of the first reading that contradicted the believed value."""
    is_new: bool = False
    """Whether it was not believed before."""
    turns: int = 0
    """The number of further readings that showed another value than the one before them."""

    @property
    def is_contradicted(self) -> bool:
        """Whether readings have shown different values since the doubt began."""
        return self.turns > 0

    @property
    def is_in_turn(self) -> bool:
        """Whether readings have contradicted each other again and again."""
        return self.turns >= MOST_TURNS

    def may_be_acted_on(self, read_ms: int) -> bool:
        """Whether it is new, and a second reading in a row, the last one at `read_ms`, shows it."""
        return self.is_new and self.shown is not None and read_ms > self.row_ms


Doubts = tuple[Doubt, ...]
"""Sorted by name."""


def confirm(
    believed: Mapping[str, str], doubts: Doubts, shown: Mapping[str, str], at_ms: int, confirm_ms: int
) -> tuple[Mapping[str, str], Doubts]:
    """Return the believed members and the doubts after one more reading, which shows the members `shown`.

    Two readings in a row that are `confirm_ms` apart confirm what both show.
    """
    if not doubts and believed == shown:
        return believed, ()
    known = {doubt.name: doubt for doubt in doubts}
    after, left = dict(believed), list[Doubt]()
    are_strangers = 2 * len(shown.keys() - believed.keys()) > len(shown)
    for name in sorted(known.keys() | {name for name, _ in believed.items() ^ shown.items()}):
        value = shown.get(name)
        doubt = follow(known.get(name), believed.get(name), value, at_ms, confirm_ms, name)
        if doubt is not None:
            left.append(doubt)
        if value is None and doubt is None:
            after.pop(name, None)
        elif value is not None and (doubt is None or (name not in after and not are_strangers)):
            after[name] = value
    return after, tuple(left)


def follow(
    doubt: Doubt | None, believed: str | None, shown: str | None, at_ms: int, confirm_ms: int, name: str = ""
) -> Doubt | None:
    """Return the doubt about one member after one more reading; None if there is none, or it is over.

    `believed` is its value, which counts only if there is no doubt yet; `shown` is its value by the reading.
    """
    if doubt is None:
        if shown == believed:
            return None
        doubt = Doubt(name, shown, at_ms, at_ms, is_new=believed is None)
    elif doubt.shown != shown:
        doubt = Doubt(name, shown, at_ms, doubt.since_ms, doubt.is_new, doubt.turns + 1)
    return None if at_ms >= doubt.row_ms + confirm_ms else doubt


def find_missing(doubts: Iterable[Doubt]) -> Mapping[str, int]:
    """Return the believed members that the last reading lacks, each with the time of the first reading without it."""
    return {doubt.name: doubt.row_ms for doubt in doubts if doubt.shown is None}
