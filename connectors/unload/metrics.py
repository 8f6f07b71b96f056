"""What the Pulsar actuator counts, for all clusters alike."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from policies.sessions.decision import OwnershipVerdict
from policies.sessions.unload_events import UnloadOutcome


class UnloadMetrics:
    """The metrics of the actuator: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._actions = Counter(
            "headgate_bundle_actions",
            "What came of decisions to unload a bundle or to have it owned again: done, failed, or why not.",
            ("cluster", "verdict", "outcome"),
            registry=registry,
        )
        self._failing = Gauge(
            "headgate_bundle_actions_failing",
            "1 while a bundle that should be unloaded or owned again cannot be, be it for safety.",
            ("cluster",),
            registry=registry,
        )

    def counts(self, cluster: str, verdict: OwnershipVerdict, outcome: UnloadOutcome) -> None:
        """One decision was dealt with, or one failure is new."""
        self._actions.labels(cluster, verdict.value, outcome.value).inc()

    def failing(self, cluster: str, *, yes: bool) -> None:
        """Whether something of a cluster cannot be carried out."""
        self._failing.labels(cluster).set(yes)
