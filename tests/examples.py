"""How many examples a property gets, in proportion to what all of them get in this run."""

from hypothesis import settings


def examples(share: float) -> settings:
    """Settings for a property whose examples cost more or less than most: `share` of the usual number of examples."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))
