"""Reports the outcomes of decisions about bundles to the audit topic, and counts them."""

from datetime import datetime
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter

from connectors.actuation.reports import DecisionReports, PacedMetric
from connectors.sessions.unload.guards import ServedBy, UnloadResult
from policies.sessions.decisions import OwnershipDecision, OwnershipVerdict
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome


class UnloadMetrics(PacedMetric):
    """The metrics of the unload actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.outcomes = Counter(
            "headgate_bundle_actions",
            "Outcomes of decisions to unload a bundle or to have it owned again: done, failed, or the reason not to.",
            ("cluster", "verdict", "outcome"),
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_bundle_actions_failing",
            "1 while a bundle that should be unloaded or owned again cannot be, for safety or because of a failure.",
        )


class UnloadReports(DecisionReports[OwnershipDecision, ServedBy, UnloadMetrics]):
    """Reports the outcomes of one cluster's decisions about bundles."""

    levels: ClassVar = {**DecisionReports.levels, UnloadOutcome.CONTESTED: "warning"}

    def _content(self, decision: OwnershipDecision, result: UnloadResult) -> object:
        return decision.decision_id, result

    def _count(self, decision: OwnershipDecision, result: UnloadResult) -> None:
        self._metrics.outcomes.labels(self._cluster, decision.verdict.value, result.outcome.value).inc()

    def _event(
        self, decision: OwnershipDecision, result: UnloadResult, attempt: int, at: datetime
    ) -> BundleUnloaded | BundleReOwned:
        kind = BundleUnloaded if decision.verdict is OwnershipVerdict.UNLOAD else BundleReOwned
        outcome = UnloadOutcome(result.outcome)
        return kind(
            cluster=self._cluster,
            member=decision.member,
            bundle=decision.bundle,
            decision_id=decision.decision_id,
            sequence=decision.sequence,
            outcome=outcome,
            served_by=result.observed or (),
            attempt=attempt,
            done_at=at if outcome is UnloadOutcome.DONE else None,
            detail=result.detail,
        )
