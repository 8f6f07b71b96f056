"""Medians and their like, by one rule for every bench."""

import math
import statistics
from collections.abc import Sequence


def quantile(values: Sequence[float], percent: int) -> float:
    """What so many percent of them stay within (1 to 99), between two by interpolation; NaN where there are none."""
    if len(values) < 2:
        return values[0] if values else math.nan
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
