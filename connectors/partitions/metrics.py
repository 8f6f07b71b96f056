"""Metrics of a process's work partitions."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from policies.shares import SHARE_COUNT


class PartitionMetrics:
    """The metrics of all components that one process shares with others: one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._held = Gauge(
            "headgate_shares_held",
            f"Shares this process holds: of {SHARE_COUNT} for collectors and actuators, of 1 for the query. All "
            "processes together hold all of them.",
            ("part",),
            registry=registry,
        )
        self._clusters = Gauge(
            "headgate_share_clusters", "Watched clusters in these shares.", ("part",), registry=registry
        )
        self._changes = Counter(
            "headgate_share_changes", "Changes of the shares that this process holds.", ("part",), registry=registry
        )
        self._valid = Gauge(
            "headgate_share_lease_valid",
            "0: for nearly `shares.session_timeout` Kafka has not confirmed that this process holds its shares, so its "
            "actuators stand still.",
            ("part",),
            registry=registry,
        )

    def changed(self, component: str, partitions: int, clusters: int) -> None:
        """Count a change of the held partitions."""
        self._held.labels(component).set(partitions)
        self._clusters.labels(component).set(clusters)
        self._changes.labels(component).inc()

    def lease(self, component: str, *, valid: bool) -> None:
        """Set whether this process may act on its partitions."""
        self._valid.labels(component).set(valid)
