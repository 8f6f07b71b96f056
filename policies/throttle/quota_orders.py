"""What a cluster's decisions ask of the quota actuator, and what the decision in force means now."""

from dataclasses import dataclass
from datetime import datetime

from policies.decisions import Mode
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.quota_plan import QuotaReason, WantedFactor


@dataclass(frozen=True, slots=True)
class QuotaOrder:
    """A decision, as far as the actuator is concerned."""

    cluster: str
    decision_id: str
    sequence: int
    factor: float
    mode: Mode
    valid_until: datetime

    @property
    def subject(self) -> str:
        """There is one factor for the whole cluster."""
        return self.cluster

    @property
    def expires_at(self) -> datetime:
        """Likewise, for the fence."""
        return self.valid_until

    def is_stale(self, now: datetime) -> bool:
        """Whether it should have had a successor by now."""
        return now >= self.valid_until


def order_of(decision: ThrottleFactor) -> QuotaOrder:
    """What a decision asks for."""
    return QuotaOrder(
        decision.cluster, decision.decision_id, decision.sequence, decision.factor, decision.mode, decision.valid_until
    )


def wanted_of(order: QuotaOrder, now: datetime, fallback_factor: float) -> WantedFactor:
    """What holds now. An expired decision in shadow mode goes on applying nothing."""
    if order.mode is Mode.SHADOW:
        return WantedFactor(order.factor, fallback_factor, QuotaReason.SHADOW)
    if order.is_stale(now):
        return WantedFactor(fallback_factor, fallback_factor, QuotaReason.STALE)
    return WantedFactor(order.factor, fallback_factor, QuotaReason.DECIDED)
