"""What the actuator says: of each thing it did or refused (audit), and what it must not forget (applied quotas)."""

from enum import StrEnum
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from policies.decisions import Mode
from policies.throttle.quota_orders import Order
from policies.throttle.quota_plan import Memo, Reason, Verdict
from policies.throttle.quota_settings import Entity
from policies.units import Instant

SOURCE = "headgate/actuator/quotas"
"""The CloudEvents `source` of both."""


class Outcome(StrEnum):
    """What came of it."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"


class QuotaApplication(BaseModel):
    """A quota that was set or put back, was refused or failed to be; or that needs no change, when that is new."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.quota-application.v1"

    cluster: str = Field(description="The watched cluster.")
    entity: str | None = Field(description="Whose quota, as `user=alice,client-id=<default>`; null: all of the cluster.")
    decision_id: str | None = Field(description="The decision it carries out; null without one.")
    sequence: int | None = Field(description="Of that decision.")
    factor: float | None = Field(description="The factor carried out: the decision's, or the fallback when it is stale.")
    verdict: Verdict
    reason: Reason
    rate_bytes_per_second: int | None = Field(
        description="The `producer_byte_rate` the entity is to have (with `shadow` or a refusal: would have); null: none."
    )
    previous_bytes_per_second: int | None = Field(description="What was found; null: none.")
    outcome: Outcome
    attempt: int = Field(ge=1, description="Which attempt this was; several where Kafka did not do as asked at once.")
    detail: str | None = Field(default=None, description="What went wrong, in a few words; never a secret.")


class AppliedQuota(BaseModel):
    """What is remembered of one entity: written before its quota is first touched, so that it can always be put back."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    event_type: ClassVar[str] = "headgate.applied-quota.v1"

    cluster: str = Field(description="The watched cluster.")
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
    def of(cls, cluster: str, entity: Entity, memo: Memo, order: Order | None) -> Self:
        """What is to be remembered, under the decision in force."""
        return cls(
            cluster=cluster,
            user=entity.user,
            client_id=entity.client_id,
            held=memo.held,
            baseline_bytes_per_second=memo.baseline,
            base_bytes_per_second=memo.base,
            rates_bytes_per_second=memo.rates,
            decision_id=order.decision_id if order else None,
            sequence=order.sequence if order else None,
            factor=order.factor if order else None,
            valid_until=order.valid_until if order else None,
        )

    @property
    def entity(self) -> Entity:
        """Whose quota."""
        return Entity(self.user, self.client_id)

    @property
    def key(self) -> str:
        """The record's key on its compacted topic."""
        return f"{self.cluster}/{self.entity}"

    def memo(self) -> Memo:
        """What is remembered."""
        return Memo(
            self.held, self.baseline_bytes_per_second, self.base_bytes_per_second, self.rates_bytes_per_second
        )

    def order(self, mode: Mode = Mode.ACTIVE) -> Order | None:
        """The decision that was in force; only active ones are carried out."""
        if self.decision_id is None or self.sequence is None or self.factor is None or self.valid_until is None:
            return None
        return Order(self.decision_id, self.sequence, self.factor, mode, self.valid_until)
