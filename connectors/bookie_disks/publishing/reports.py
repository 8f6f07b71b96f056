"""Reports the outcome for each publish limit to the audit topic if it is new, and counts it."""

from collections.abc import Set
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.actuation.reports import AuditLog, FailingMetric, PublishAudit
from policies.actuator_events import ReportResult
from policies.bookie_disks.publish_events import PublishApplication
from policies.bookie_disks.publish_plan import FoundLimit, PublishPlan, PublishReason, WantedShare
from policies.free_space.orders import LimitVerdict

_UNPLANNED = PublishPlan(LimitVerdict.SET, PublishReason.DECIDED, None, FoundLimit(None, None), None)
"""Stands for the plan of a limit that could not be read."""
_NONE_SET = PublishPlan(LimitVerdict.KEEP, PublishReason.DECIDED, None, FoundLimit(None, None), None)
"""Stands for the plan of a limit that is gone, or of a cluster on which none is set or put back."""


class PublishMetrics(FailingMetric):
    """The metrics of the publish actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.overwritten = Counter(
            "headgate_publish_overwritten",
            "Times that somebody else changed or deleted a publish limit that Headgate had set.",
            ("cluster", "target"),
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_publish_failing",
            "1 while publish limits cannot be set as decided because requests to Pulsar fail.",
        )
        self.rate = Gauge(
            "headgate_publish_bytes_per_second",
            "The publish limit that Headgate has set; absent if it has set none.",
            ("cluster", "target"),
            registry=registry,
        )
        self.outcomes = Counter(
            "headgate_publish_applications",
            "Outcomes of decisions for each publish limit: applied, unchanged, refused or failed.",
            ("cluster", "outcome"),
            registry=registry,
        )


class PublishReports(AuditLog[PublishMetrics]):
    """Reports the outcomes of one cluster's limits; an outcome that repeats the target's last one is left out."""

    def __init__(self, cluster: str, publish: PublishAudit, metrics: PublishMetrics) -> None:
        super().__init__(cluster, publish, metrics)
        self._held: set[str] = set()
        """The targets with a limit of ours."""

    def report_done(self, by: str, target: str, plan: PublishPlan, wanted: WantedShare, at: datetime) -> None:
        """Report that one limit is as planned, or was refused by the plan."""
        if plan.record is not None and plan.rate is not None:
            self._held.add(target)
            self._metrics.rate.labels(self._cluster, target).set(plan.rate)
            self._metrics.overwritten.labels(self._cluster, target)  # from 0 on, or the first change would not count
        else:
            self._drop(target)
        outcome = plan.verdict.result
        if self._is_new(target, (outcome, plan.rate, plan.reason)) or outcome is ReportResult.APPLIED:
            self._emit(by, target, outcome, plan, wanted.factor, at)

    def report_gone(self, by: str, recorded: Set[str], at: datetime) -> None:
        """Report each limit that is gone with its namespace: of those that were set, the ones without a record."""
        for target in sorted(self._held - recorded):
            self._drop(target)
            self._last.pop(target, None)
            self._emit(by, target, ReportResult.UNCHANGED, _NONE_SET, None, at)

    def _drop(self, target: str) -> None:
        self._held.discard(target)
        self._metrics.rate.remove(self._cluster, target)

    def report_overwritten(self, target: str) -> None:
        """Count that somebody else changed a limit that was set."""
        self._metrics.overwritten.labels(self._cluster, target).inc()

    def report_failure(
        self, by: str, target: str, detail: str, at: datetime, plan: PublishPlan | None, factor: float | None
    ) -> None:
        """Report that one limit, or all of the cluster's (an empty target), could not be read or set."""
        self.set_failing(yes=True)
        plan = plan or _UNPLANNED
        if self._is_new(target, (ReportResult.FAILED, detail, plan.rate)):
            self._emit(by, target, ReportResult.FAILED, plan, factor, at, detail)
            if not target:
                self._forget_successes()

    def report_success(self, by: str, at: datetime) -> None:
        """Show that all limits of the cluster are right. The next failure is new."""
        self.set_failing(yes=False)
        if self._last.pop("", None) is not None and not self._last:  # no report of a single limit shows it
            self._emit(by, "", ReportResult.UNCHANGED, _NONE_SET, None, at)

    def _emit(
        self,
        by: str,
        target: str,
        outcome: ReportResult,
        plan: PublishPlan,
        factor: float | None,
        at: datetime,
        detail: str | None = None,
    ) -> None:
        self._metrics.outcomes.labels(self._cluster, outcome.value).inc()
        event = PublishApplication(
            cluster=self._cluster,
            target=target,
            by=by,
            factor=factor,
            verdict=plan.verdict,
            reason=plan.reason,
            rate_bytes_per_second=plan.rate,
            previous_bytes_per_second=plan.found.rate,
            outcome=outcome,
            detail=detail,
        )
        self._write("publishing", outcome, event.explained(at), at)
