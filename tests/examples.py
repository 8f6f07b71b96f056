"""How many examples a property gets, in proportion to what all of them get in this run."""

from hypothesis import settings


def examples(share: float) -> settings:
    """So many times as many as others, for a property whose examples cost less than most, or more."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))
