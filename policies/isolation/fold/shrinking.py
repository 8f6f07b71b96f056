"""Detects readings in which most entries vanish at once: they are believed only when a second reading agrees."""

VANISHED = "vanished"
"""In place of an outcome: a good reading in which most was gone at once, not believed yet."""


def is_shrunk(before: int, now: int) -> bool:
    """Whether more than half is gone, or everything."""
    return 2 * now < before
