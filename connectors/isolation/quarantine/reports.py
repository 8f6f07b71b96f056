"""Reports the outcome of quarantine decisions to the audit topic, and counts them."""

from datetime import datetime
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from connectors.actuation.reports import DecisionReports, PacedMetric
from connectors.isolation.quarantine.guards import BookiePlacement, QuarantineResult
from policies.isolation.decisions import BookieQuarantine
from policies.isolation.quarantine_events import BookieQuarantined, QuarantineOutcome

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class QuarantineMetrics(PacedMetric):
    """The metrics of the quarantine actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leak_window_seconds = Histogram(
            "headgate_bookie_leak_window_seconds",
            "Time from a bookie's registration to its quarantine, by ZooKeeper's clock where it is known.",
            ("cluster",),
            buckets=_SECONDS,
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_quarantine_failing",
            "1 while a bookie that should be in quarantine cannot be put there.",
        )
        self.outcomes = Counter(
            "headgate_quarantines",
            "Outcomes of decisions to quarantine a bookie: done, failed, or the reason not to.",
            ("cluster", "outcome"),
            registry=registry,
        )


class QuarantineReports(DecisionReports[BookieQuarantine, BookiePlacement, QuarantineMetrics]):
    """Reports the outcomes of one cluster's quarantines."""

    levels: ClassVar = {
        **DecisionReports.levels,
        QuarantineOutcome.TOO_MANY: "warning",
        QuarantineOutcome.NEEDED: "warning",
    }

    def _content(self, decision: BookieQuarantine, result: QuarantineResult) -> object:
        # The decision is repeated while it holds, and then finds the bookie where we have put it: nothing new.
        is_done = result.outcome == QuarantineOutcome.DONE
        group = decision.group if is_done else result.observed and result.observed.found_group
        return ("in", group) if group is not None else (result.outcome, result.detail)

    def _count(self, decision: BookieQuarantine, result: QuarantineResult) -> None:  # noqa: ARG002
        self._metrics.outcomes.labels(self._cluster, result.outcome.value).inc()
        if result.observed is not None and result.observed.leak_window_seconds is not None:
            self._metrics.leak_window_seconds.labels(self._cluster).observe(result.observed.leak_window_seconds)

    def _event(
        self,
        decision: BookieQuarantine,
        result: QuarantineResult,
        attempt: int,
        at: datetime,  # noqa: ARG002
    ) -> BookieQuarantined:
        placement = result.observed or BookiePlacement()
        return BookieQuarantined(
            cluster=self._cluster,
            bookie=decision.bookie,
            group=decision.group,
            found_group=placement.found_group,
            decision_id=decision.decision_id,
            sequence=decision.sequence,
            outcome=QuarantineOutcome(result.outcome),
            leak_window_seconds=placement.leak_window_seconds,
            quarantined_at=placement.quarantined_at,
            attempt=attempt,
            detail=result.detail,
        )
