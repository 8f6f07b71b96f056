"""Common metrics of all collectors, and a guard that no error in a poll ends a collector."""

from collections.abc import Callable
from threading import Event

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connectors.collection.schedule import ticks

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


_log = structlog.get_logger(__name__)


class PollMetrics:
    """The metrics of all collectors of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.polls = Counter(
            "headgate_polls", "Attempts to read, by outcome.", ("cluster", "outcome"), registry=registry
        )
        self.failures = Counter(
            "headgate_poll_failures", "Polls that ended in an unexpected error.", ("cluster",), registry=registry
        )
        self.seconds = Histogram(
            "headgate_poll_seconds",
            "Duration of a poll of a whole cluster.",
            ("cluster",),
            buckets=_SECONDS,
            registry=registry,
        )

        self.shortest = Gauge(
            "headgate_poll_interval_seconds",
            "The shortest present interval between readings of a broker of a Kafka cluster: less than `poll_interval` "
            "while one of its volumes comes near a limit.",
            ("cluster",),
            registry=registry,
        )

    def forget(self, cluster: str) -> None:
        """Remove the series of a cluster that this process does not read any more, because they would look current."""
        for metric in (self.polls, self.failures, self.seconds, self.shortest):
            metric.remove_by_labels({"cluster": cluster})

    def run_polls(self, cluster: str, interval_seconds: float, stop: Event, poll: Callable[[], None]) -> None:
        """Poll at a fixed rate until `stop` is set, whatever goes wrong in a poll."""
        for _ in ticks(interval_seconds, stop.wait):
            self.run_poll(cluster, poll)

    def run_poll(self, cluster: str, poll: Callable[[], None]) -> bool:
        """Poll, and return whether there was no unexpected error; an error is counted and logged."""
        try:
            poll()
        except Exception:
            self.failures.labels(cluster).inc()
            _log.exception("poll failed", cluster=cluster)
            return False
        return True
