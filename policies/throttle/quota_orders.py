"""What a cluster's decisions ask of the actuator: which of them is in force, and what it means now.

A decision is in force until one with a higher sequence comes, or until it expires. An expired one may also be succeeded
by a valid one with a lower sequence: the query then lost its checkpoint and counts anew. Nothing else passes the fence.
"""

from dataclasses import dataclass
from datetime import datetime

from policies.decisions import Mode
from policies.throttle.decision import ThrottleFactor
from policies.throttle.quota_plan import QuotaReason, Wanted


@dataclass(frozen=True, slots=True)
class QuotaOrder:
    """A decision, as far as the actuator is concerned."""

    cluster: str
    decision_id: str
    sequence: int
    factor: float
    mode: Mode
    valid_until: datetime
    appended_ms: int | None = None
    """When Kafka took it; None when that does not matter any more."""

    @property
    def subject(self) -> str:
        """There is one factor for the whole cluster."""
        return self.cluster

    def is_stale(self, now: datetime) -> bool:
        """Whether it should have had a successor by now."""
        return now >= self.valid_until


def order_of(decision: ThrottleFactor, appended_ms: int | None = None) -> QuotaOrder:
    """What a decision asks for."""
    return QuotaOrder(
        decision.cluster, decision.decision_id, decision.sequence, decision.factor, decision.mode,
        decision.valid_until, appended_ms,
    )  # fmt: skip


def succeeds(new: QuotaOrder, in_force: QuotaOrder | None, now: datetime) -> bool:
    """Whether a decision takes the place of the one in force."""
    if in_force is None or new.sequence > in_force.sequence:
        return True
    return in_force.is_stale(now) and not new.is_stale(now)


def wanted_of(order: QuotaOrder, now: datetime, fallback_factor: float) -> Wanted:
    """What holds now. An expired decision in shadow mode goes on applying nothing."""
    if order.mode is Mode.SHADOW:
        return Wanted(order.factor, fallback_factor, QuotaReason.SHADOW)
    if order.is_stale(now):
        return Wanted(fallback_factor, fallback_factor, QuotaReason.STALE)
    return Wanted(order.factor, fallback_factor, QuotaReason.DECIDED)
