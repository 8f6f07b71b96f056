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
            "1 while this process carries out the cluster's switch.",
            ("cluster",),
            registry=registry,
        )
        self._orders = Counter(
            "headgate_switch_orders",
            "Orders of the switching policy that were begun.",
            ("cluster", "verdict"),
            registry=registry,
        )
        self._answers = Counter(
            "headgate_switch_answers",
            "Results of orders about ledgers.",
            ("cluster", "verdict", "result"),
            registry=registry,
        )
        self._copied = Counter(
            "headgate_switch_copied_bytes", "Bytes of completely copied ledgers.", ("cluster",), registry=registry
        )
        super().__init__(registry, "headgate_switch_executor_failing", "1 while an order cannot be carried out.")

    def set_lease_held(self, cluster: str, *, yes: bool) -> None:
        """Show whether this process holds a cluster's lease."""
        self._lease.labels(cluster).set(yes)

    def count_order(self, cluster: str, verdict: SwitchVerdict) -> None:
        """Count an order that was begun."""
        self._orders.labels(cluster, verdict.value).inc()

    def count_answer(self, cluster: str, verdict: SwitchVerdict, result: LedgerOutcome) -> None:
        """Count the result of an order about a ledger."""
        self._answers.labels(cluster, verdict.value, result.value).inc()

    def count_copied_bytes(self, cluster: str, length_bytes: int) -> None:
        """Count a completely copied ledger."""
        self._copied.labels(cluster).inc(length_bytes)
