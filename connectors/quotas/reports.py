"""What the actuator did, said once: as an event for the audit, a line in the log, and a count."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from connectors.quotas.metrics import QuotaMetrics
from policies.throttle.quota_events import QuotaApplication, QuotaOutcome
from policies.throttle.quota_orders import QuotaOrder
from policies.throttle.quota_plan import QuotaPlan, QuotaReason, QuotaVerdict, Wanted
from policies.throttle.quota_settings import Entity
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)

_OUTCOMES = {
    QuotaVerdict.SET: QuotaOutcome.APPLIED,
    QuotaVerdict.RESTORE: QuotaOutcome.APPLIED,
    QuotaVerdict.KEEP: QuotaOutcome.UNCHANGED,
    QuotaVerdict.REFUSE: QuotaOutcome.REFUSED,
}
_SAY = {
    QuotaOutcome.APPLIED: _log.info,
    QuotaOutcome.UNCHANGED: _log.debug,
    QuotaOutcome.REFUSED: _log.warning,
    QuotaOutcome.FAILED: _log.error,
}
_NOTEWORTHY = (QuotaReason.SHADOW, QuotaReason.TIGHTER)
"""Reasons for which a quota that is as it should be is worth another word."""


@dataclass(frozen=True, slots=True)
class Context:
    """Under what something was done."""

    order: QuotaOrder | None
    wanted: Wanted | None
    attempt: int
    at: datetime


class Reports:
    """Says what became of one cluster's quotas; what was said last of an entity is not said again.

    Args:
        cluster: its name.
        publish: hands an event (key, value) over for the audit.
        metrics: where it is counted.
    """

    def __init__(self, cluster: str, publish: Callable[[str, bytes], None], metrics: QuotaMetrics) -> None:
        self._cluster = cluster
        self._publish = publish
        self._metrics = metrics
        self._said: dict[Entity | None, tuple[object, ...]] = {}

    def carried_out(self, entity: Entity, plan: QuotaPlan, context: Context) -> None:
        """One entity's quota was dealt with as planned."""
        outcome = _OUTCOMES[plan.verdict]
        news: tuple[object, ...]
        if outcome is QuotaOutcome.REFUSED:
            news = (outcome, plan.reason, plan.rate)
        else:
            news = (plan.rate, plan.reason if plan.reason in _NOTEWORTHY else None)
        if outcome is QuotaOutcome.APPLIED or self._said.get(entity) != news:
            self._said[entity] = news
            self._say(entity, plan, outcome, context, None)

    def failed(self, entity: Entity | None, plan: QuotaPlan | None, context: Context, detail: str) -> None:
        """One entity's quota, or all of the cluster, could not be dealt with in so many attempts."""
        news = (QuotaOutcome.FAILED, detail)
        if self._said.get(entity) != news:
            self._said[entity] = news
            reason = context.wanted.reason if context.wanted else QuotaReason.RELEASED
            verdict = QuotaVerdict.RESTORE if reason is QuotaReason.RELEASED else QuotaVerdict.SET
            self._say(
                entity, plan or QuotaPlan(verdict, reason, None, None, None), QuotaOutcome.FAILED, context, detail
            )

    def succeeded(self) -> None:
        """The cluster answers again: the next failure is news."""
        self._said.pop(None, None)

    def fenced(self, order: QuotaOrder, in_force: QuotaOrder, at: datetime) -> None:
        """A decision came too late: one with a higher sequence is in force."""
        plan = QuotaPlan(QuotaVerdict.REFUSE, QuotaReason.FENCED, None, None, None)
        context = Context(order, Wanted(order.factor, order.factor, QuotaReason.FENCED), 1, at)
        self._say(None, plan, QuotaOutcome.REFUSED, context, f"sequence {in_force.sequence} is in force")

    def _say(
        self, entity: Entity | None, plan: QuotaPlan, outcome: QuotaOutcome, context: Context, detail: str | None
    ) -> None:
        said = QuotaApplication(
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
        )
        self._metrics.counts(self._cluster, outcome)
        _SAY[outcome](f"quota {outcome.value}", **said.model_dump(mode="json", exclude={"outcome"}, exclude_none=True))
        self._publish(self._cluster, actuator_event(said, id=str(uuid.uuid4()), at=context.at))
