"""The quotas that one cluster's worker has set, and what a broker's answer means in their light.

KRaft's metadata reach each broker in order, and a quota changes together with its record (`Original`). So a
broker that shows the record of the last change has received that change: if it shows another rate beside it, somebody
else has set that rate since. A broker that shows an earlier record of ours is behind, however late it is, and its
answer is no news. So may be a broker that shows no record, unless it has shown ours before, or every broker shows none
`SETTLE_SECONDS` after the change. If the last change put our rate back beside the same record, the record does not tell
the two states apart: then a broker may be behind for `SETTLE_SECONDS`.
"""

import uuid
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from kafka.errors import AuthorizationError
from prometheus_client import CollectorRegistry, Gauge

from connectors.actuation.level_worker import Attempt, LevelMetrics, LevelReports
from connectors.actuation.worker import PublishAudit
from connectors.kafka.cluster_client import NodeId, detail_of
from connectors.kafka.quotas import CALLBACK_KEY, BrokerQuotas, BrokerQuotaSettings, QuotaClient
from policies.free_space.levels import LevelPlan, LevelRecord, LimitReason, LimitVerdict, Original, Rate
from policies.throttle.quotas import (
    DEFAULT_WINDOW_SECONDS,
    FREE_RATE,
    Contest,
    PastRate,
    QuotaStep,
    RatesInForce,
    note_put_back,
    owner_number,
)
from policies.throttle.readings import AppliedQuota, QuotaApplication
from policies.throttle.settings import Entity, QuotaSettings, forget_command
from policies.wire import actuator_event

SETTLE_SECONDS = 5.0
"""Time after which every broker should show an altered quota."""
_MOST_RATES = 1000
_UNKNOWN = LevelRecord(held=False, baseline=None)


class AlterError(Exception):
    """Kafka refused to alter some quotas."""

    def __init__(self, refused: Mapping[Entity, Exception], plans: Mapping[Entity, LevelPlan]) -> None:
        super().__init__(", ".join(f"{entity}: {detail_of(error)}" for entity, error in refused.items()))
        self.refused = refused
        self.plans = plans


@dataclass(slots=True)
class OwnQuota:
    """The last change of one entity's quota."""

    record: LevelRecord
    original: Original | None
    """The record that is on the cluster since."""
    rate: Rate
    at: float
    """The time of the change, in seconds of a monotonic clock."""
    seen_at: float
    """When a broker last showed it."""
    is_unsure: bool = False
    """Whether the request got no answer: the change may be there or not."""
    is_record_new: bool = True
    """Whether this change has altered the record, too."""
    confirmed: set[NodeId] = field(default_factory=set)
    """The brokers that have shown it."""
    lacking: set[NodeId] = field(default_factory=set)
    """The brokers that showed no record when all should have had the change."""
    is_original_new: bool = False
    """Whether the original appeared while other quotas were held already."""
    is_gone: bool = False
    """Whether no broker shows a record: somebody has removed it."""

    def has_reached(self, recorded: Original | None, now: float) -> bool:
        """Return whether a broker that shows this record has received the change."""
        return recorded == self.original and (self.is_record_new or now - self.at >= SETTLE_SECONDS)


SeenQuota = tuple[Rate, LevelRecord | None, Original | None]
"""One entity's quota by one broker's answer: the rate, the entity's known state, and the record on the cluster."""


class OwnQuotas:
    """Remembers one cluster's changes; without settings quotas are only put back. Times are of one monotonic clock."""

    def __init__(self, cluster: str, settings: QuotaSettings | None) -> None:
        self._owner = owner_number(cluster)
        self.bases = {spec.entity: spec.base for spec in settings.entities} if settings else {}
        """The configured rate for factor 1.0, by entity; None: the entity's own quota in Kafka."""
        self.window_seconds = DEFAULT_WINDOW_SECONDS
        """The longest window over which a broker measures a rate."""
        self._max_told_wait = settings.max_told_wait if settings else None
        self._own: dict[Entity, OwnQuota] = {}
        self._in_force: dict[Entity, RatesInForce] = {}
        self.contests: dict[Entity, Contest] = {}
        """Who sets the same quotas, by entity."""

    def held(self, seen: BrokerQuotas, *, of_others: bool = False) -> list[Entity]:
        """Return the entities whose quota may be one of ours; `of_others`: or one of another Headgate."""
        own = [entity for entity, own in self._own.items() if own.record.held]
        shown = (e for e, o in seen.originals.items() if o.is_held and (of_others or o.owner == self._owner))
        return [*own, *(entity for entity in shown if entity not in self._own)]

    def find_original(self, planned: LevelPlan) -> Original | None:
        """Return the record to keep on the cluster beside a quota; None: none."""
        record = planned.record
        if record is None or not record.held or planned.rate is None:
            return None
        return Original(record.baseline, planned.rate, self._owner)

    def without_ours(self, seen: BrokerQuotas) -> dict[Entity, int]:
        """Return the rates that entities would have without Headgate; without entities of another Headgate."""
        before = {entity: original.baseline for entity, original in seen.originals.items() if original.is_held}
        before |= {entity: own.record.baseline for entity, own in self._own.items() if own.record.held}
        rates = {e: rate for e, rate in {**seen.rates, **before}.items() if e not in self.held_by_others(seen)}
        return {entity: rate for entity, rate in rates.items() if rate is not None}

    def held_by_others(self, seen: BrokerQuotas) -> set[Entity]:
        """Return the entities whose quota another Headgate holds, without the configured ones."""
        others = {e for e, original in seen.originals.items() if original.is_held and original.owner != self._owner}
        return others - self.bases.keys()

    def is_original_new(self, entity: Entity) -> bool:
        """Whether the original of an entity's quota appeared while the cluster was slowed down already."""
        own = self._own.get(entity)
        return own is not None and own.is_original_new

    def interpret(self, entity: Entity, seen: BrokerQuotas, now: float) -> SeenQuota:
        """Return what a broker's answer means for an entity."""
        found, recorded, own = seen.rates.get(entity), seen.originals.get(entity), self._own.get(entity)
        if own is None:
            return found, _read_record(recorded, ()), recorded
        if self._is_behind(own, seen.broker, recorded, now):
            if not own.is_unsure:
                return own.rate, own.record, own.original
            if own.record.held:  # the request may not have arrived: it is repeated, with the original that it had
                is_ours = found in (own.record.baseline, *own.record.rates)
                return found if is_ours else own.record.baseline, own.record, recorded
        if recorded is None or recorded == own.original:
            return found, own.record, recorded
        return found, _read_record(recorded, own.record.rates), recorded

    def _is_behind(self, own: OwnQuota, broker: NodeId, recorded: Original | None, now: float) -> bool:
        if own.has_reached(recorded, now) or broker in own.confirmed:
            return False
        is_late = not own.is_gone if recorded is None else recorded.latest in own.record.rates
        return now - own.at < SETTLE_SECONDS or is_late

    def confirm(self, entity: Entity, seen: BrokerQuotas, brokers: int, now: float) -> None:
        """Note that one of the brokers in service shows our quota, or that somebody else has put back another one."""
        own, found = self._own.get(entity), seen.rates.get(entity)
        if own is None or not own.record.held:
            self.contests.pop(entity, None)
            return
        if entity not in seen.originals and now - own.at >= SETTLE_SECONDS:
            own.lacking.add(seen.broker)
            own.is_gone = len(own.lacking) >= brokers
        if found == own.rate and seen.originals.get(entity) == own.original:
            own.is_unsure, own.seen_at = False, now
            own.confirmed.add(seen.broker)
            if len(own.confirmed) >= brokers and own.rate is not None:
                own.record = replace(own.record, rates=(own.rate,))
        elif found != own.rate and (seen.broker in own.confirmed or own.has_reached(seen.originals.get(entity), now)):
            self.contests[entity] = note_put_back(self.contests.get(entity), now, found)
        contest = self.contests.get(entity)
        if contest is not None and contest.is_over(now):
            del self.contests[entity]

    def confirmed(self, entity: Entity) -> int:
        """Return how many brokers have shown our last change."""
        own = self._own.get(entity)
        return len(own.confirmed) if own is not None else 0

    def note(self, planned: Mapping[Entity, LevelPlan], now: float, *, is_unsure: bool) -> None:
        """Remember changes: before their request, when they are `is_unsure`, and after its answer."""
        is_throttled = any(own.record.held for own in self._own.values())
        for entity, plan in planned.items():
            if is_unsure:
                # The answer ends no other rate than the request did.
                self._in_force[entity], _ = self._find_rates(entity, plan.found, now, is_ended=True)
            before, record = self._own.get(entity), plan.record or _UNKNOWN
            rates = dict.fromkeys((*record.rates, *(before.record.rates if before else ())))
            record = replace(record, rates=tuple(rates)[:_MOST_RATES])
            original = self.find_original(plan)
            is_new = before is None or before.original != original or (before.is_unsure and before.is_record_new)
            is_same = before is not None and before.record.held and before.record.baseline == record.baseline
            is_original_new = before.is_original_new if before is not None and is_same else is_throttled
            self._own[entity] = OwnQuota(
                record, original, plan.rate, now, now, is_unsure, is_new, is_original_new=is_original_new
            )

    def find_step(self, entity: Entity, rate: Rate, record: LevelRecord | None, now: float) -> QuotaStep | None:
        """Return how far an entity's quota may be lowered now; None: without limit."""
        if self._max_told_wait is None:
            return None
        if entity not in self._in_force and record is not None and record.held:
            # A rate from before this start may still fill the brokers' window: at most the one before Headgate.
            before = record.baseline or self.bases.get(entity)
            self._in_force[entity] = RatesInForce(() if before is None else (PastRate(now, before),))
        rates, allowed = self._find_rates(entity, rate, now, is_ended=False)
        return rates.step(now, allowed, self._max_told_wait.total_seconds(), self.window_seconds)

    def _find_rates(self, entity: Entity, found: Rate, now: float, *, is_ended: bool) -> tuple[RatesInForce, Rate]:
        """Return the past rates, and the present one, which counts as past if it is `is_ended` or was put back.

        Without a quota, producers write the rate for factor 1.0.
        """
        known, own = self._in_force.get(entity, RatesInForce()), self._own.get(entity)
        allowed = self.bases.get(entity) if found is None else found
        is_put_back = own is not None and own.record.held and not own.is_unsure and found != own.rate
        if allowed is None or not (is_ended or is_put_back):
            return known, allowed
        if own is None or not is_put_back:
            return known.changed(PastRate(now, allowed), self.window_seconds), allowed
        if own.rate is not None:  # it was in force until then
            known = known.changed(PastRate(now, own.rate), self.window_seconds)
        return known.changed(PastRate(now, allowed, now - own.seen_at), self.window_seconds), own.rate


def _read_record(recorded: Original | None, rates: Iterable[int]) -> LevelRecord | None:
    if recorded is None:
        return None
    if not recorded.is_held:
        return LevelRecord(held=False, baseline=recorded.baseline)
    return LevelRecord(held=True, baseline=recorded.baseline, rates=tuple(dict.fromkeys((recorded.latest, *rates))))


# Why quotas of a cluster must not be set, and the plans of a look at it.

_log = structlog.get_logger(__name__)


def find_callbacks(brokers: Mapping[int, BrokerQuotaSettings]) -> dict[int, str]:
    """Return the brokers with a quota callback, and its class: they heed no quotas."""
    return {broker: each.callback for broker, each in sorted(brokers.items()) if each.callback}


def find_problems(
    settings: QuotaSettings, brokers: Mapping[int, BrokerQuotaSettings], rates: Mapping[Entity, int]
) -> Iterator[str]:
    """Yield why the settings do not fit a cluster, each with its remedy; `rates` are those without Headgate."""
    callbacks = find_callbacks(brokers)
    for name in sorted(set(callbacks.values())):
        deaf = ", ".join(str(broker) for broker in callbacks if callbacks[broker] == name)
        yield (
            f"broker {deaf} has {CALLBACK_KEY}={name}, so quotas that Headgate sets have no effect: "
            "take it out of the broker's configuration, or `quotas` out of these settings"
        )
    for spec in settings.entities:
        if spec.base is None and spec.entity not in rates:
            lacking = "has neither a `base` nor a producer_byte_rate in Kafka"
            yield f"entity {spec.entity} {lacking}: what is factor 1.0 for it? Set one of the two, such as base: 10MB"


def read_broker_settings(client: QuotaClient) -> Mapping[int, BrokerQuotaSettings]:
    """Ask the brokers. Raises KafkaError if they do not answer; a question that they refuse counts as no obstacle."""
    try:
        return client.broker_settings()
    except AuthorizationError:
        _log.warning("not authorized to read the brokers' configurations: a quota callback would not be noticed")
        return {}


@dataclass(frozen=True, slots=True)
class PlannedQuotas:
    """The plans of one look."""

    plans: Mapping[Entity, LevelPlan] = field(default_factory=dict)
    """Of the entities that are slowed down or put back, and of those that make them fit all clients."""
    slowed: Mapping[Entity, int] = field(default_factory=dict)
    """The rates of the entities that are slowed down, by Headgate's quota or by a tighter one of their own."""
    misses_empty_ids: bool = False
    """Whether clients without a client id escape."""
    not_set: str | None = None
    """Why nobody is slowed down although producers should be; None: somebody is, or nobody should be."""


# Reports the outcome for each quota to the audit topic if it is new, and counts it.

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
        super().__init__(registry, "headgate_quota", "entity", "quotas", "Kafka")
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
