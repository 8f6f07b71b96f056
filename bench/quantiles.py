"""One rule for quantiles in all benchmarks."""

import math
import statistics
from collections.abc import Sequence


def quantile(values: Sequence[float], percent: int) -> float:
    """Return a percentile (1 to 99), interpolated between two values; NaN without values."""
    if len(values) < 2:
        return values[0] if values else math.nan
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
