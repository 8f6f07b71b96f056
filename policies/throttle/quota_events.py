"""Events of the quota actuator: its operations and refusals (audit), and its records (applied quotas)."""

from datetime import datetime
from typing import ClassVar, Self

from pydantic import Field

from policies.actuator_events import ActuatorEvent, ReportedEffect, ReportResult
from policies.free_space.orders import FactorOrder, LimitVerdict
from policies.free_space.wording import explain_application, render_rate
from policies.throttle.quota_entities import DEFAULT, Entity, EntityName
from policies.throttle.quota_plan import QuotaReason, QuotaRecord
from policies.throttle.quota_state import EntityText
from policies.units import Instant, format_instant

_SOURCE = "headgate/actuator/quotas"
"""The CloudEvents `source` of both kinds."""
_NOTHING = "no quota"
_PER = " a broker"


_NOT_HELD = (QuotaReason.SHADOW, QuotaReason.TIGHTER, QuotaReason.RELEASED, QuotaReason.CONFIRMED)


class QuotaApplication(ActuatorEvent):
    """A quota that was set, put back, refused or failed; or one that needs no change, when that is new."""

    event_type: ClassVar[str] = "headgate.quota-application.v1"
    source: ClassVar[str] = _SOURCE

    entity: str | None = Field(
        description="The quota's target, such as `user=alice,client-id=<default>`; null: all of the cluster."
    )
    decision_id: str | None = Field(description="The decision it carries out; null without one.")
    sequence: int | None = Field(description="From that decision.")
    factor: float | None = Field(
        description="The factor carried out: the decision's, or what `expired_action` makes of it once it is stale."
    )
    verdict: LimitVerdict
    reason: QuotaReason
    rate_bytes_per_second: int | None = Field(
        description="The `producer_byte_rate` that it should have (in shadow mode or refused: would have); null: none."
    )
    previous_bytes_per_second: int | None = Field(description="The `producer_byte_rate` that was found; null: none.")
    outcome: ReportResult
    attempt: int = Field(ge=1, description="The number of this attempt; it is retried until Kafka accepts it.")
    detail: str | None = Field(default=None, description="What went wrong, in a few words; never a secret.")
    confirmed_brokers: int | None = Field(
        default=None, description="Brokers that have shown the quota since it was set; null: it is not Headgate's."
    )
    broker_count: int | None = Field(default=None, description="Brokers in service; null as before.")
    explanation: str | None = Field(
        default=None, description="One plain sentence: what the actuator did and when, or why it did nothing."
    )

    def subject(self) -> str:
        """The entity, or the cluster."""
        return f"{self.cluster}/{self.entity}" if self.entity else self.cluster

    def effect(self) -> ReportedEffect | None:
        """Return the rate that is set, or why it is not."""
        if self.reason is QuotaReason.FENCED:
            return None
        result = self.outcome
        rate = self.previous_bytes_per_second if self.outcome is ReportResult.UNCHANGED else self.rate_bytes_per_second
        why = self.detail or (self.reason.meaning.rstrip(".") if result is ReportResult.REFUSED else None)
        is_kept = self.outcome is ReportResult.UNCHANGED and self.reason not in _NOT_HELD and (self.factor or 0.0) < 1.0
        return ReportedEffect(
            target=self.entity or "",
            by="the quota actuator",
            result=result,
            value=render_rate(rate, _NOTHING, _PER) if self.entity else None,
            is_held=is_kept or (self.outcome is ReportResult.APPLIED and self.verdict is LimitVerdict.SET),
            number=rate,
            detail=why,
            confirmed_brokers=self.confirmed_brokers,
            broker_count=self.broker_count,
        )

    def explained(self, at: datetime) -> Self:
        """Add the sentence; `at` is the time of the operation."""
        sentence = explain_application(
            f"producer_byte_rate of {self.entity or 'every entity'} on {self.cluster}",
            self.outcome,
            f"by the quota actuator at {format_instant(at)}",
            rates=(self.rate_bytes_per_second, self.previous_bytes_per_second),
            nothing=_NOTHING,
            per=_PER,
            factor=self.factor,
            reason=self.reason,
        )
        return self.model_copy(update={"explanation": sentence})


class AppliedQuota(ActuatorEvent):
    """The record of one entity, written before its quota is changed, so that it can always be put back."""

    event_type: ClassVar[str] = "headgate.applied-quota.v1"
    source: ClassVar[str] = _SOURCE

    user: str | None = Field(description="The user; `default`: all without a quota of their own; null: any.")
    client_id: str | None = Field(description="The client id; `default` and null as for the user.")
    entity: EntityText = Field(
        default="", description="Both, as everywhere else: it tells a user called `default` from Kafka's default user."
    )
    held: bool = Field(description="Whether the entity's quota may be one of Headgate's now.")
    baseline_bytes_per_second: int | None = Field(description="The original quota, which is put back; null: none.")
    base_bytes_per_second: int | None = Field(description="The rate at factor 1.0.")
    rates_bytes_per_second: tuple[int, ...] = Field(
        description="The rates that Headgate may have set, the latest first."
    )
    decision_id: str | None = Field(description="The decision in force.")
    sequence: int | None = Field(description="From that decision.")
    factor: float | None = Field(description="From that decision.")
    valid_until: Instant | None = Field(description="From that decision.")

    @classmethod
    def build(cls, cluster: str, entity: Entity, record: QuotaRecord, order: FactorOrder | None) -> Self:
        """Write a record, with the decision in force."""
        return cls(
            cluster=cluster,
            user=_write_name(entity.user),
            client_id=_write_name(entity.client_id),
            entity=str(entity),
            held=record.held,
            baseline_bytes_per_second=record.baseline,
            base_bytes_per_second=record.base,
            rates_bytes_per_second=record.rates,
            decision_id=order.decision_id if order else None,
            sequence=order.sequence if order else None,
            factor=order.factor if order else None,
            valid_until=order.expires_at if order else None,
        )

    def subject(self) -> str:
        """The entity; also the record's key on its compacted topic."""
        return f"{self.cluster}/{self.entity}"


def _write_name(name: EntityName | None) -> str | None:
    return "default" if name is DEFAULT else name
