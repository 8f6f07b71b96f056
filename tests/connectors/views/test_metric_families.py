"""Histograms of a scrape."""

import pytest

from connectors.views.metric_families import Histogram


def test_a_bound_includes_its_own_value_and_buckets_add_up() -> None:
    histogram = Histogram("h", "", ("l",), (0.1, 1.0))
    for value in (0.1, 0.5, 1.0, 7.0):
        histogram.add(("x",), value)
    samples = {(s.name, s.labels.get("le")): s.value for s in histogram.metric().samples}
    assert samples == {
        ("h_bucket", "0.1"): 1,
        ("h_bucket", "1.0"): 3,
        ("h_bucket", "+Inf"): 4,
        ("h_count", None): 4,
        ("h_sum", None): pytest.approx(8.6),
    }
