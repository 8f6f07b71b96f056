"""What became of decisions about bundles: said for the audit, and counted."""

from datetime import datetime
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter

from connectors.actuation.reports import DecisionReports, FailingMetric
from connectors.unload.guards import ServedBy, UnloadFinding
from policies.sessions.decisions import OwnershipDecision, OwnershipVerdict
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome


class UnloadMetrics(FailingMetric):
    """What the Pulsar actuator counts, for all clusters alike: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.outcomes = Counter(
            "headgate_bundle_actions",
            "What came of decisions to unload a bundle or to have it owned again: done, failed, or why not.",
            ("cluster", "verdict", "outcome"),
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_bundle_actions_failing",
            "1 while a bundle that should be unloaded or owned again cannot be, be it for safety.",
        )


class UnloadReports(DecisionReports[OwnershipDecision, ServedBy, UnloadMetrics]):
    """Says what became of one cluster's decisions about bundles."""

    levels: ClassVar = {**DecisionReports.levels, UnloadOutcome.CONTESTED: "warning"}

    def _news(self, decision: OwnershipDecision, finding: UnloadFinding) -> object:
        return decision.decision_id, finding

    def _count(self, decision: OwnershipDecision, finding: UnloadFinding) -> None:
        self._metrics.outcomes.labels(self._cluster, decision.verdict.value, finding.outcome.value).inc()

    def _event(
        self, decision: OwnershipDecision, finding: UnloadFinding, attempt: int, at: datetime
    ) -> BundleUnloaded | BundleReOwned:
        kind = BundleUnloaded if decision.verdict is OwnershipVerdict.UNLOAD else BundleReOwned
        outcome = UnloadOutcome(finding.outcome)
        return kind(
            cluster=self._cluster,
            member=decision.member,
            bundle=decision.bundle,
            decision_id=decision.decision_id,
            sequence=decision.sequence,
            outcome=outcome,
            served_by=finding.seen or (),
            attempt=attempt,
            done_at=at if outcome is UnloadOutcome.DONE else None,
            detail=finding.detail,
        )
