"""Metrics of a process's shares."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from policies.shares import SHARE_COUNT


class PartitionMetrics:
    """The metrics of all that one process shares with others: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shares = Gauge(
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
            "headgate_share_changes", "Times that what this process holds changed.", ("part",), registry=registry
        )
        self._valid = Gauge(
            "headgate_share_lease_valid",
            "0: Kafka has not confirmed for nearly `shares.session_timeout` that this process holds what it holds, so "
            "it carries nothing out.",
            ("part",),
            registry=registry,
        )

    def changed(self, part: str, shares: int, clusters: int) -> None:
        """What is held has changed."""
        self._shares.labels(part).set(shares)
        self._clusters.labels(part).set(clusters)
        self._changes.labels(part).inc()

    def lease(self, part: str, *, valid: bool) -> None:
        """Whether what is held may be acted on; of nothing that is so."""
        self._valid.labels(part).set(valid)
