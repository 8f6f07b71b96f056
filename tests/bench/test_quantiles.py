"""One rule for medians and their like."""

import math

import pytest

from bench.quantiles import quantile


@pytest.mark.parametrize(("percent", "within"), [(1, 1.99), (50, 50.5), (99, 99.01)])
def test_so_many_percent_stay_within(percent: int, within: float) -> None:
    assert quantile([float(each) for each in range(100, 0, -1)], percent) == pytest.approx(within)


def test_one_value_is_all_there_is_and_of_none_nothing_can_be_said() -> None:
    assert quantile([7.0], 99) == 7.0
    assert math.isnan(quantile([], 50))
