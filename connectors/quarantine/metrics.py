"""What the quarantine actuator counts, for all clusters alike."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from policies.isolation.quarantine_events import QuarantineOutcome

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class QuarantineMetrics:
    """The metrics of the actuator: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "headgate_bookie_leak_window_seconds",
            "From a bookie's registration to its quarantine, by ZooKeeper's own clock where it is written there.",
            ("cluster",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._failing = Gauge(
            "headgate_quarantine_failing",
            "1 while a bookie that should be in quarantine cannot be put there.",
            ("cluster",),
            registry=registry,
        )
        self._quarantines = Counter(
            "headgate_quarantines",
            "What came of decisions to quarantine a bookie: done, failed, or why not.",
            ("cluster", "outcome"),
            registry=registry,
        )

    def counts(self, cluster: str, outcome: QuarantineOutcome) -> None:
        """One decision was dealt with, or one failure is new."""
        self._quarantines.labels(cluster, outcome.value).inc()

    def failing(self, cluster: str, *, yes: bool) -> None:
        """Whether a cluster's bookies cannot be put where they should be."""
        self._failing.labels(cluster).set(yes)

    def leaked(self, cluster: str, seconds: float) -> None:
        """For how long one bookie was open to everybody's data."""
        self._seconds.labels(cluster).observe(seconds)
