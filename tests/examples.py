"""The number of examples and random histories, in proportion to what every property gets in this run."""

from hypothesis import settings


def examples(share: float) -> settings:
    """Settings for a property whose examples cost more or less than most: `share` of the usual number of examples."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))


def seeds(share: float) -> range:
    """Seeds of random histories: `share` times as many as a property has examples."""
    return range(max(1, round(settings().max_examples * share)))
