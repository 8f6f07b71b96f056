"""Suggests known names close to a misspelt one."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

_ALIKE = 0.6
"""difflib's ratio; swapped, missing and doubled letters of a short word lie above it."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like one, whatever its case and whether words are joined by _, - or nothing."""
    by_plain = {_plain(each): each for each in known}
    found = get_close_matches(_plain(name), by_plain, n=1, cutoff=_ALIKE)
    return by_plain[found[0]] if found else None


def meant(name: str, known: Collection[str]) -> str:
    """A clause for the end of a sentence: the nearest name, or those there are if they are few; else nothing."""
    near = nearest(name, known)
    if near is not None:
        return f"; did you mean {near}?"
    return f"; there is {listed(known)}" if 0 < len(known) <= _FEW else ""


def listed(names: Collection[str]) -> str:
    """Names as a sentence has them: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


_FEW = 12


def _plain(name: str) -> str:
    return "".join(each for each in name.casefold() if each not in "_-. ")
