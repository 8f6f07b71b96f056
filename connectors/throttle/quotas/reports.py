"""Reports the outcome for each quota to the audit topic if it is new, and counts it."""

import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Gauge

from connectors.actuation.level_worker import Attempt, LevelMetrics, LevelReports
from connectors.actuation.worker import PublishAudit
from policies.free_space.levels import LevelPlan, LimitReason, LimitVerdict, Rate
from policies.throttle.quotas import FREE_RATE
from policies.throttle.readings import AppliedQuota, QuotaApplication
from policies.throttle.settings import Entity, forget_command
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)

_UNKNOWN_REMEDY = "{} keeps it as the original; or set the right one with kafka-configs.sh"
_NOTEWORTHY = (LimitReason.SHADOW, LimitReason.TIGHTER)
"""Reasons that are reported even if the quota is already right."""


@dataclass(frozen=True, slots=True)
class Released:
    """The result of a release."""

    restored: Mapping[str, Rate]
    """The original quota that was put back, by entity; None: there was none."""
    left: Mapping[str, str]
    """The reason why a quota could not be restored, by entity or for `all quotas`."""
    confirmed: Mapping[str, int] = field(default_factory=dict)
    """The quota that an operator has declared to be the original, by entity."""


class QuotaMetrics(LevelMetrics):
    """The metrics of the quota actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry, "headgate_quota", "entity", "quotas", "Kafka", is_paced=True)
        self.escapes = Gauge(
            "headgate_quota_escapes",
            "1 for a quota on the watched cluster that decides for clients in place of a configured entity, and is not "
            "scaled: these clients escape.",
            ("cluster", "entity"),
            registry=registry,
        )


class QuotaReports(LevelReports[QuotaMetrics]):
    """Reports the outcomes of one cluster's quotas, and publishes the record of each entity."""

    action = "quota"

    def __init__(
        self, cluster: str, publish: PublishAudit, publish_applied: PublishAudit, metrics: QuotaMetrics
    ) -> None:
        super().__init__(cluster, publish, metrics)
        self._publish_applied = publish_applied
        self._escaping: tuple[Entity, ...] = ()

    def show_escapes(self, escaping: tuple[Entity, ...]) -> None:
        """Show the quotas that escape, and log them when they change."""
        if escaping != self._escaping:
            names = [str(entity) for entity in escaping]
            _log.warning("quotas that escape the configured entities", cluster=self._cluster, entities=names)
        for entity in {*self._escaping, *escaping}:
            if entity in escaping:
                self._metrics.escapes.labels(self._cluster, str(entity)).set(1)
            else:
                self._metrics.escapes.remove(self._cluster, str(entity))
        self._escaping = escaping

    def report_quota(self, entity: Entity, plan: LevelPlan, attempt: Attempt, confirmed: int, brokers: int) -> None:
        """Report that one entity's quota is as planned, and shown by some brokers, or that the plan refuses it."""
        slows = plan.holds and plan.rate != FREE_RATE
        self._metrics.show_rate(self._cluster, entity, plan.rate if slows else None)
        is_confirmed = plan.holds and confirmed >= brokers
        content: tuple[object, ...] = (plan.rate, plan.reason if plan.reason in _NOTEWORTHY else None, is_confirmed)
        if plan.verdict is LimitVerdict.REFUSE:
            content = (plan.verdict, plan.reason, plan.rate)
        if plan.verdict.acts and plan.record is not None:
            applied = AppliedQuota.build(self._cluster, entity, plan.record, attempt.order)
            self._publish_applied(applied.subject(), actuator_event(applied, id=str(uuid.uuid4()), at=attempt.at))
        unknown = plan.reason is LimitReason.UNKNOWN_ORIGINAL
        detail = _UNKNOWN_REMEDY.format(forget_command(str(entity))) if unknown else None
        shown = {"confirmed_brokers": confirmed, "broker_count": brokers} if plan.holds else {}
        self.report_done(entity, plan, attempt, content, detail=detail, **shown)

    def report_refusal(self, entity: Entity | None, plan: LevelPlan | None, attempt: Attempt, detail: str) -> None:
        """Report that one entity's quota, or all of the cluster's (None), could not be set."""
        reason = attempt.wanted.reason if attempt.wanted else LimitReason.RELEASED
        verdict = LimitVerdict.RESTORE if reason is LimitReason.RELEASED else LimitVerdict.SET
        self.report_failure(entity, plan or LevelPlan(verdict, reason), attempt, detail)

    def _event(self, target: Hashable, attempt: Attempt, **shared: Any) -> QuotaApplication:
        return QuotaApplication(
            entity=None if target is None else str(target),
            decision_id=attempt.order.decision_id if attempt.order else None,
            sequence=attempt.order.sequence if attempt.order else None,
            attempt=attempt.number,
            **shared,
        )
