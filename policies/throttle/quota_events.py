"""Events of the quota actuator: what it did or refused (audit), and what it must not forget (applied quotas)."""

from datetime import datetime
from typing import ClassVar, Self

from pydantic import Field

from policies.actuator_events import ActuatorEvent
from policies.closed_enum import ClosedEnum
from policies.decisions import Mode
from policies.throttle.quota_orders import QuotaOrder
from policies.throttle.quota_plan import QuotaReason, QuotaRecord, QuotaVerdict
from policies.throttle.quota_settings import Entity
from policies.units import Instant, format_instant, human_bytes

_SOURCE = "headgate/actuator/quotas"
"""The CloudEvents `source` of both."""


def _rate(bytes_per_second: int | None) -> str:
    return "no quota" if bytes_per_second is None else f"{human_bytes(bytes_per_second)}/s"


class QuotaOutcome(ClosedEnum):
    """What came of it."""

    APPLIED = "applied", "Kafka has taken it."
    UNCHANGED = "unchanged", "Nothing had to be done; said when it is new."
    REFUSED = "refused", "Nothing was done, on purpose; said when it is new."
    FAILED = "failed", "Kafka did not do as asked; `detail` says why, and it is tried again."


class QuotaApplication(ActuatorEvent):
    """A quota that was set or put back, was refused or failed to be; or that needs no change, when that is new."""

    event_type: ClassVar[str] = "headgate.quota-application.v1"
    source: ClassVar[str] = _SOURCE

    entity: str | None = Field(
        description="Whose quota, as `user=alice,client-id=<default>`; null: all of the cluster."
    )
    decision_id: str | None = Field(description="The decision it carries out; null without one.")
    sequence: int | None = Field(description="Of that decision.")
    factor: float | None = Field(
        description="The factor carried out: the decision's, or the fallback when it is stale."
    )
    verdict: QuotaVerdict
    reason: QuotaReason
    rate_bytes_per_second: int | None = Field(
        description="The `producer_byte_rate` it is to have (in shadow mode or refused: would have); null: none."
    )
    previous_bytes_per_second: int | None = Field(description="What was found; null: none.")
    outcome: QuotaOutcome
    attempt: int = Field(ge=1, description="Which attempt this was; several where Kafka did not do as asked at once.")
    detail: str | None = Field(default=None, description="What went wrong, in a few words; never a secret.")
    explanation: str | None = Field(
        default=None, description="One plain sentence: what was carried out, by whom and when, or why it was not."
    )

    def subject(self) -> str:
        """The entity, or the cluster."""
        return f"{self.cluster}/{self.entity}" if self.entity else self.cluster

    def explained(self, at: datetime) -> Self:
        """With its sentence; `at`: when it was done."""
        what = f"producer_byte_rate of {self.entity or 'every entity'} on {self.cluster}"
        each = "" if self.rate_bytes_per_second is None else " a broker"
        why = "" if self.factor is None else f", for factor {self.factor:.2f}"
        sentence = {
            QuotaOutcome.APPLIED: f"{what} was set by the quota actuator at {format_instant(at)} to "
            f"{_rate(self.rate_bytes_per_second)}{each} (before: {_rate(self.previous_bytes_per_second)}){why}",
            QuotaOutcome.UNCHANGED: f"{what} is left at {_rate(self.previous_bytes_per_second)}{why}",
            QuotaOutcome.REFUSED: f"{what} is not set{why}",
            QuotaOutcome.FAILED: f"{what} could not be set to {_rate(self.rate_bytes_per_second)}{why}",
        }[self.outcome]
        shown = self.outcome is not QuotaOutcome.APPLIED or self.reason is not QuotaReason.DECIDED
        because = f": {self.reason.meaning.rstrip('.')}" if shown else ""
        return self.model_copy(update={"explanation": f"{sentence}{because}."})


class AppliedQuota(ActuatorEvent):
    """What is remembered of one entity, written before its quota is touched, so that it can always be put back."""

    event_type: ClassVar[str] = "headgate.applied-quota.v1"
    source: ClassVar[str] = _SOURCE

    user: str | None = Field(description="The user; `default`: all without a quota of their own; null: any.")
    client_id: str | None = Field(description="The client id, likewise.")
    held: bool = Field(description="Whether the entity's quota may be one of Headgate's now.")
    baseline_bytes_per_second: int | None = Field(description="What was there before, and is put back; null: none.")
    base_bytes_per_second: int | None = Field(description="What counts as factor 1.0.")
    rates_bytes_per_second: tuple[int, ...] = Field(description="What Headgate may have set, the latest first.")
    decision_id: str | None = Field(description="The decision in force.")
    sequence: int | None = Field(description="Of that decision.")
    factor: float | None = Field(description="Of that decision.")
    valid_until: Instant | None = Field(description="Of that decision.")

    @classmethod
    def of(cls, cluster: str, entity: Entity, record: QuotaRecord, order: QuotaOrder | None) -> Self:
        """What is to be remembered, under the decision in force."""
        return cls(
            cluster=cluster,
            user=entity.user,
            client_id=entity.client_id,
            held=record.held,
            baseline_bytes_per_second=record.baseline,
            base_bytes_per_second=record.base,
            rates_bytes_per_second=record.rates,
            decision_id=order.decision_id if order else None,
            sequence=order.sequence if order else None,
            factor=order.factor if order else None,
            valid_until=order.valid_until if order else None,
        )

    @property
    def entity(self) -> Entity:
        """Whose quota."""
        return Entity(self.user, self.client_id)

    def subject(self) -> str:
        """The entity; the record's key on its compacted topic, too."""
        return f"{self.cluster}/{self.entity}"

    def record(self) -> QuotaRecord:
        """What is remembered."""
        return QuotaRecord(
            self.held, self.baseline_bytes_per_second, self.base_bytes_per_second, self.rates_bytes_per_second
        )

    def order(self) -> QuotaOrder | None:
        """The decision that was in force; only active ones are carried out."""
        if self.decision_id is None or self.sequence is None or self.factor is None or self.valid_until is None:
            return None
        return QuotaOrder(self.cluster, self.decision_id, self.sequence, self.factor, Mode.ACTIVE, self.valid_until)
