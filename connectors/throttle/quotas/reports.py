"""Reports the outcome for each quota to the audit topic if it is new, and counts it."""

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connectors.actuation.order_worker import AuditLog, PacedMetric, PublishAudit
from policies.free_space.publication import FactorOrder, LimitVerdict
from policies.observations import ReportResult
from policies.throttle.quota_entities import Entity, forget_command
from policies.throttle.quota_plan import QuotaPlan, QuotaReason, WantedQuota
from policies.throttle.quota_state import FREE_RATE, QuotaState, Rate
from policies.throttle.readings import AppliedQuota, QuotaApplication
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_UNKNOWN_REMEDY = "{} keeps it as the original; or set the right one with kafka-configs.sh"
_NOTEWORTHY = (QuotaReason.SHADOW, QuotaReason.TIGHTER)
"""Reasons that are reported even if the quota is already right."""


@dataclass(frozen=True, slots=True)
class QuotaOutlets:
    """The functions that publish what the actuator did and found, without blocking."""

    report: PublishAudit
    """Publishes a report to the audit topic, and as the last report of its subject."""
    applied: PublishAudit
    """Publishes the record of an entity (key, value)."""
    observe: Callable[[QuotaState], None]
    """Publishes a reading."""


@dataclass(frozen=True, slots=True)
class Released:
    """The result of a release."""

    restored: Mapping[str, Rate]
    """The original quota that was put back, by entity; None: there was none."""
    left: Mapping[str, str]
    """The reason why a quota could not be restored, by entity or for `all quotas`."""
    confirmed: Mapping[str, int] = field(default_factory=dict)
    """The quota that an operator has declared to be the original, by entity."""


class QuotaMetrics(PacedMetric):
    """The metrics of the quota actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rate = Gauge(
            "headgate_quota_bytes_per_second",
            "The producer_byte_rate that Headgate has set to slow clients down; absent if it has set none.",
            ("cluster", "entity"),
            registry=registry,
        )
        self.outcomes = Counter(
            "headgate_quota_applications",
            "Outcomes of decisions for each entity's quota: applied, unchanged, refused or failed.",
            ("cluster", "outcome"),
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_quota_failing",
            "1 while quotas cannot be set as decided because requests to Kafka fail.",
        )
        self.seconds = Histogram(
            "headgate_quota_apply_seconds",
            "Time from a decision's append to its topic until Kafka has accepted the quotas.",
            ("cluster",),
            buckets=_SECONDS,
            registry=registry,
        )

        self._escapes = Gauge(
            "headgate_quota_escapes",
            "1 for a quota on the watched cluster that decides for clients in place of a configured entity, and is not "
            "scaled: these clients escape.",
            ("cluster", "entity"),
            registry=registry,
        )

    def show_escapes(self, cluster: str, before: Collection[Entity], now: Collection[Entity]) -> None:
        """Show the quotas that escape."""
        for entity in before:
            if entity not in now:
                self._escapes.remove(cluster, str(entity))
        for entity in now:
            self._escapes.labels(cluster, str(entity)).set(1)

    def show_rate(self, cluster: str, entity: Entity, rate: Rate) -> None:
        """Show the rate that Headgate has set for an entity; None: it has set none."""
        if rate is not None:
            self._rate.labels(cluster, str(entity)).set(rate)
        else:
            self._rate.remove(cluster, str(entity))


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """The decision, factor, attempt and time of an action."""

    order: FactorOrder | None
    wanted: WantedQuota | None
    attempt: int
    at: datetime


class QuotaReports(AuditLog[QuotaMetrics]):
    """Reports the outcomes of one cluster's quotas; an outcome that repeats the entity's last one is left out."""

    def __init__(self, cluster: str, outlets: QuotaOutlets, metrics: QuotaMetrics) -> None:
        super().__init__(cluster, outlets.report, metrics)
        self._outlets = outlets
        self._escaping: tuple[Entity, ...] = ()

    def show_escapes(self, escaping: tuple[Entity, ...]) -> None:
        """Show the quotas that escape, and log them when they change."""
        self._metrics.show_escapes(self._cluster, self._escaping, escaping)
        if escaping != self._escaping:
            names = [str(entity) for entity in escaping]
            _log.warning("quotas that escape the configured entities", cluster=self._cluster, entities=names)
        self._escaping = escaping

    def report_done(
        self, entity: Entity, plan: QuotaPlan, context: AttemptContext, confirmed: int, brokers: int
    ) -> None:
        """Report that one entity's quota is as planned, or was refused by the plan.

        Args:
            confirmed: the number of brokers that have shown the quota.
            brokers: the number of brokers in service.
        """
        slows = plan.holds and plan.rate != FREE_RATE
        self._metrics.show_rate(self._cluster, entity, plan.rate if slows else None)
        outcome = plan.verdict.result
        is_confirmed = plan.holds and confirmed >= brokers
        content: tuple[object, ...] = (plan.rate, plan.reason if plan.reason in _NOTEWORTHY else None, is_confirmed)
        if outcome is ReportResult.REFUSED:
            content = (outcome, plan.reason, plan.rate)
        if plan.verdict.acts and plan.record is not None:
            applied = AppliedQuota.build(self._cluster, entity, plan.record, context.order)
            self._outlets.applied(applied.subject(), actuator_event(applied, id=str(uuid.uuid4()), at=context.at))
        if self._is_new(entity, content) or outcome is ReportResult.APPLIED:
            unknown = plan.reason is QuotaReason.UNKNOWN_ORIGINAL
            detail = _UNKNOWN_REMEDY.format(forget_command(str(entity))) if unknown else None
            self._emit(entity, plan, outcome, context, detail, (confirmed, brokers) if plan.holds else None)

    def report_forgotten(self, entity: Entity, rate: Rate, at: datetime) -> None:
        """Report that an operator has declared a quota to be the original."""
        plan = QuotaPlan(LimitVerdict.KEEP, QuotaReason.CONFIRMED, rate, rate, None)
        self._emit(entity, plan, ReportResult.UNCHANGED, AttemptContext(None, None, 1, at))

    def report_failure(
        self, entity: Entity | None, plan: QuotaPlan | None, context: AttemptContext, detail: str
    ) -> None:
        """Report that one entity's quota, or all of the cluster's (None), could not be set after these attempts."""
        self.set_failing(yes=True)
        if self._is_new(entity, (ReportResult.FAILED, detail)):
            reason = context.wanted.reason if context.wanted else QuotaReason.RELEASED
            verdict = LimitVerdict.RESTORE if reason is QuotaReason.RELEASED else LimitVerdict.SET
            self._emit(entity, plan or _make_unplanned(verdict, reason), ReportResult.FAILED, context, detail)
            if entity is None:
                self._forget_successes()

    def report_success(self, took_seconds: float | None) -> None:
        """Show that all quotas of the cluster are right, and after which time, if known. The next failure is new."""
        self.set_failing(yes=False)
        self._last.pop(None, None)
        if took_seconds is not None:
            self._metrics.seconds.labels(self._cluster).observe(took_seconds)

    def report_fenced(self, order: FactorOrder, in_force: FactorOrder, at: datetime) -> None:
        """Report that a decision came too late: another one is in force."""
        plan = _make_unplanned(LimitVerdict.REFUSE, QuotaReason.FENCED)
        context = AttemptContext(order, WantedQuota(order.factor, QuotaReason.FENCED), 1, at)
        self._emit(None, plan, ReportResult.REFUSED, context, f"sequence {in_force.sequence} is in force")

    def _emit(
        self,
        entity: Entity | None,
        plan: QuotaPlan,
        outcome: ReportResult,
        context: AttemptContext,
        detail: str | None = None,
        confirmed: tuple[int, int] | None = None,
    ) -> None:
        event = QuotaApplication(
            cluster=self._cluster,
            entity=None if entity is None else str(entity),
            decision_id=context.order.decision_id if context.order else None,
            sequence=context.order.sequence if context.order else None,
            factor=context.wanted.factor if context.wanted else None,
            verdict=plan.verdict,
            reason=plan.reason,
            rate_bytes_per_second=plan.rate,
            previous_bytes_per_second=plan.found,
            outcome=outcome,
            attempt=context.attempt,
            detail=detail,
            confirmed_brokers=confirmed[0] if confirmed else None,
            broker_count=confirmed[1] if confirmed else None,
        )
        self._metrics.outcomes.labels(self._cluster, outcome.value).inc()
        self._write("quota", outcome, event.explained(context.at), context.at)


def _make_unplanned(verdict: LimitVerdict, reason: QuotaReason) -> QuotaPlan:
    return QuotaPlan(verdict, reason, rate=None, found=None, record=None)
