"""Metrics of the executor of switches, for all clusters."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.actuation.reports import FailingMetric
from policies.switching.decisions import SwitchVerdict
from policies.switching.readings import LedgerOutcome


class SwitchExecutorMetrics(FailingMetric):
    """The metrics of the executor: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lease = Gauge(
            "headgate_switch_lease_held",
            "1 while this process is the one that carries the cluster's switch out.",
            ("cluster",),
            registry=registry,
        )
        self._orders = Counter(
            "headgate_switch_orders",
            "Orders of the switching policy taken on.",
            ("cluster", "verdict"),
            registry=registry,
        )
        self._answers = Counter(
            "headgate_switch_answers",
            "What came of orders about ledgers.",
            ("cluster", "verdict", "result"),
            registry=registry,
        )
        self._copied = Counter(
            "headgate_switch_copied_bytes",
            "Bytes of the entries of ledgers that were copied to their end.",
            ("cluster",),
            registry=registry,
        )
        super().__init__(
            registry, "headgate_switch_executor_failing", "1 while something that is ordered cannot be carried out."
        )

    def holds_lease(self, cluster: str, *, yes: bool) -> None:
        """Whether this process holds a cluster's lease."""
        self._lease.labels(cluster).set(yes)

    def ordered(self, cluster: str, verdict: SwitchVerdict) -> None:
        """An order was taken on."""
        self._orders.labels(cluster, verdict.value).inc()

    def answered(self, cluster: str, verdict: SwitchVerdict, result: LedgerOutcome) -> None:
        """An order about a ledger was answered."""
        self._answers.labels(cluster, verdict.value, result.value).inc()

    def copied(self, cluster: str, length_bytes: int) -> None:
        """A ledger was copied to its end."""
        self._copied.labels(cluster).inc(length_bytes)
