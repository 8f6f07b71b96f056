"""One real example of each event type, from the golden records."""

from functools import cache
from typing import Any

from tests.golden import REFERENCE, golden_events


@cache
def examples() -> dict[str, dict[str, Any]]:
    """Return by type the golden event that has the most fields filled; the reference courses win, then the first."""
    ranks: dict[str, tuple[bool, int]] = {}
    found: dict[str, dict[str, Any]] = {}
    for course, event in golden_events():
        filled = sum(value not in (None, [], {}, "") for value in event["data"].values())
        kind, rank = event["type"], (course.startswith(REFERENCE), filled)
        if rank > ranks.get(kind, (False, -1)):
            ranks[kind], found[kind] = rank, event
    return found
