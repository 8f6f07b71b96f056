"""No error of a poll ends a collector, and each is counted under its cluster."""

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from connectors.collection import PollMetrics


def failures(registry: CollectorRegistry, cluster: str) -> float | None:
    return registry.get_sample_value("headgate_poll_failures_total", {"cluster": cluster})


def test_a_poll_that_ends_well_counts_no_failure() -> None:
    registry, polled = CollectorRegistry(), list[int]()
    assert PollMetrics(registry).run_poll("payments", lambda: polled.append(1))
    assert (polled, failures(registry, "payments")) == ([1], None)


def test_an_unexpected_error_is_counted_and_logged_and_goes_no_further() -> None:
    registry = CollectorRegistry()
    metrics = PollMetrics(registry)

    def poll() -> None:
        raise RuntimeError("a bug")

    with capture_logs() as lines:
        assert not metrics.run_poll("payments", poll)
    assert (failures(registry, "payments"), failures(registry, "orders")) == (1, None)
    assert [(line["event"], line["cluster"], line["exc_info"]) for line in lines] == [("poll failed", "payments", True)]


def test_what_is_no_error_ends_the_collector() -> None:
    def poll() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PollMetrics(CollectorRegistry()).run_poll("payments", poll)
