"""Suggests known names close to a misspelt one."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

_ALIKE = 0.6
"""A ratio of difflib. Short words with swapped, missing or doubled letters have a higher one."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name; case and separators (_, - or none) do not count."""
    by_plain = {_normalize(each): each for each in known}
    found = get_close_matches(_normalize(name), by_plain, n=1, cutoff=_ALIKE)
    return by_plain[found[0]] if found else None


def suggest(name: str, known: Collection[str]) -> str:
    """Return a clause for the end of a sentence: the most similar name, or all known names if they are few."""
    near = nearest(name, known)
    if near is not None:
        return f"; did you mean {near}?"
    return f"; there is {join_names(known)}" if 0 < len(known) <= _FEW else ""


def join_names(names: Collection[str]) -> str:
    """Join names for a sentence: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


_FEW = 12


def _normalize(name: str) -> str:
    return "".join(each for each in name.casefold() if each not in "_-. ")
