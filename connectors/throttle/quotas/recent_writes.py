"""Quotas that one cluster's worker set a short time ago: brokers may not show them yet, nor producers feel them."""

from collections.abc import Mapping

from policies.throttle.quota_plan import PendingWrite, QuotaRecord, Rate
from policies.throttle.quota_settings import Entity, QuotaSettings
from policies.throttle.quota_steps import QuotaStep, RatesInForce

SETTLE_SECONDS = 5.0
"""Time after which every broker shows an altered quota."""


class RecentWrites:
    """Remembers written rates, by entity. All times are seconds of one monotonic clock.

    Args:
        settings: the cluster's settings; None: quotas are only put back.
    """

    def __init__(self, settings: QuotaSettings | None) -> None:
        self.bases = {spec.entity: spec.base for spec in settings.entities} if settings else {}
        """The configured rate for factor 1.0, by entity; None: the entity's own quota in Kafka."""
        self._max_told_wait = settings.max_told_wait if settings else None
        self._in_force: dict[Entity, RatesInForce] = {}
        self._pending: dict[Entity, tuple[float, PendingWrite]] = {}

    def find_pending(self, entity: Entity, now: float) -> PendingWrite | None:
        """Return an entity's last write while brokers may not show it yet."""
        at, written = self._pending.get(entity, (0.0, None))
        return written if now - at < SETTLE_SECONDS else None

    def find_step(self, entity: Entity, rate: Rate, record: QuotaRecord | None, now: float) -> QuotaStep | None:
        """Return how far an entity's quota may be lowered now; None: without limit."""
        if self._max_told_wait is None:
            return None
        if entity not in self._in_force:
            # A rate from before this start may still fill the brokers' window: at most the one before Headgate.
            before = (record.baseline or record.base) if record is not None and record.held else None
            self._in_force[entity] = RatesInForce().changed(now, before)
        return self._in_force[entity].step(now, self._allowed_rate(entity, rate), self._max_told_wait.total_seconds())

    def note(self, written: Mapping[Entity, Rate], found: Mapping[Entity, Rate], now: float) -> None:
        """Remember rates that were written just now, and the rates found before them."""
        for entity, rate in written.items():
            known = self._in_force.get(entity, RatesInForce())
            self._in_force[entity] = known.changed(now, self._allowed_rate(entity, found[entity]))
            self._pending[entity] = (now, PendingWrite(rate))

    def _allowed_rate(self, entity: Entity, quota: Rate) -> Rate:
        """Return the rate that a quota allows producers; without a quota, the rate for factor 1.0."""
        return self.bases.get(entity) if quota is None else quota
