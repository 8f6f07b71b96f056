"""The number of examples, random histories and combinations, in proportion to what every property gets in this run."""

from collections.abc import Iterable
from itertools import product
from typing import Any

from hypothesis import settings


def examples(share: float) -> settings:
    """Settings for a property whose examples cost more or less than most: `share` of the usual number of examples."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))


def seeds(share: float) -> range:
    """Seeds of random histories: `share` times as many as a property has examples."""
    return range(max(1, round(settings().max_examples * share)))


def combined(*axes: Iterable[Any], one_of: int = 2) -> list[tuple[Any, ...]]:
    """Combinations of the axes' values: all in `make thorough`, else one of `one_of`, in which each value occurs."""
    every = product(*map(enumerate, axes))
    return [
        tuple(value for _, value in case)
        for case in every
        if not settings().derandomize or sum(place for place, _ in case) % one_of == 0
    ]
