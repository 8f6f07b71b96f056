"""Metrics of the executor of switches, for all clusters."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.actuation.reports import FailingMetric


class SwitchExecutorMetrics(FailingMetric):
    """The metrics of the executor: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lease = Gauge(
            "headgate_switch_lease_held",
            "1 while this process carries out the cluster's switch.",
            ("cluster",),
            registry=registry,
        )
        self.orders = Counter(
            "headgate_switch_orders",
            "Orders of the switching policy that were begun.",
            ("cluster", "verdict"),
            registry=registry,
        )
        self.answers = Counter(
            "headgate_switch_answers",
            "Results of orders about ledgers.",
            ("cluster", "verdict", "result"),
            registry=registry,
        )
        self.copied_bytes = Counter(
            "headgate_switch_copied_bytes", "Bytes of completely copied ledgers.", ("cluster",), registry=registry
        )
        super().__init__(registry, "headgate_switch_executor_failing", "1 while an order cannot be carried out.")
