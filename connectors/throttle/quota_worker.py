"""Carries out one cluster's throttle decisions: keeps its quotas as decided, and restores them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import Event

import structlog
from kafka.errors import KafkaError
from tenacity import stop_after_attempt

from connectors.actuation.level_worker import LOOK_SECONDS, Attempt, LevelWorker
from connectors.actuation.worker import AGAIN_SECONDS, SYSTEM_CLOCK, Clock
from connectors.kafka.cluster_client import detail_of
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.quotas import FAILURES, BrokerQuotas, BrokerQuotaSettings, QuotaClient
from connectors.throttle.own_quotas import (
    SETTLE_SECONDS,
    AlterError,
    OwnQuotas,
    PlannedQuotas,
    QuotaReports,
    Released,
    find_callbacks,
    find_problems,
    read_broker_settings,
)
from policies.free_space.levels import (
    RELEASED,
    FactorDecision,
    LevelPlan,
    LevelSituation,
    LimitReason,
    LimitVerdict,
    Original,
    Rate,
    WantedFactor,
    plan_level,
)
from policies.observations import Outcome, ReportResult
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.quotas import (
    MOST_NAMED,
    Coverage,
    NamedQuota,
    QuotaState,
    find_additions,
    find_coverage,
    may_be_ours,
    misses_empty_ids,
)
from policies.throttle.settings import DEFAULT_FLOOR, Entity, QuotaSettings, ThrottleSettings
from policies.units import MAX_INT64, UserError

ATTEMPTS = 5
"""Failed attempts in a row after which a failure is reported; attempts go on."""
_MOST_FACTORS = 100
_EXPLAINED = 3

_log = structlog.get_logger(__name__)


_RETRIED: tuple[type[Exception], ...] = (*FAILURES, AlterError)


class QuotaWorker(LevelWorker[WantedFactor | None]):
    """Carries out one cluster's decisions; without settings no quota is set, and earlier ones are put back."""

    def __init__(
        self,
        cluster: str,
        kafka: WatchedKafka,
        settings: QuotaSettings | None,
        throttle: ThrottleSettings,
        reports: QuotaReports,
        observe: Callable[[QuotaState], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[WatchedKafka], QuotaClient] = lambda kafka: QuotaClient(kafka, kafka.timeout_seconds),
    ) -> None:
        super().__init__(
            cluster,
            observe,
            clock,
            verify_seconds=settings.verify_interval.total_seconds() if settings else AGAIN_SECONDS,
            retried=_RETRIED,
            series=stop_after_attempt(ATTEMPTS),
        )
        self._settings = settings
        """None while quotas are only put back."""
        self._throttle = throttle
        self._reports = reports
        self._connect = partial(connect, kafka)
        self._client: QuotaClient | None = None
        """Kept as long as it answers."""
        self._broker_count = 0
        """The brokers in service, as last counted."""
        self._own = OwnQuotas(cluster, settings)
        self._floor = int(settings.floor_bytes_per_second) if settings else DEFAULT_FLOOR
        self._cluster_id: str | None = None
        """Kafka's id of the cluster, as last seen."""
        self._brokers: Mapping[int, BrokerQuotaSettings] | None = None
        self._brokers_read_at = 0.0
        self._factors: set[float] = set()
        """Factors of decisions, which an earlier process may have carried out, too: full disks have equal factors."""
        self._plans = PlannedQuotas()
        """The plans of the last look."""
        self._problem: str | None = None
        """Why the last attempt failed."""

    # --- before the start, and at the end

    def preflight(self) -> list[str]:
        """Return why the settings do not fit the cluster. A cluster that does not answer is checked later."""
        if self._settings is None:
            return []
        try:
            client = self._open()
            self._read_brokers(client)
            rates = self._own.without_ours(client.read())
            found = find_problems(self._settings, self._brokers or {}, rates)
            return [f"clusters.{self._cluster}.quotas: {each}." for each in found]
        except UserError as error:
            return [str(error)]
        except FAILURES as error:
            _log.warning("quotas cannot be checked yet", cluster=self._cluster, detail=detail_of(error))
            return []
        finally:
            self._close()

    def release(self, stop: Event, forget: Entity | None = None) -> Released:
        """Restore all original quotas; an operator declares the present one of `forget` to be the original."""
        self._settings = None
        confirmed: dict[str, int] = {}
        try:
            if forget is not None and (rate := self._forget(forget)) is not None:
                confirmed[str(forget)] = rate
            self._try(stop)
        except _RETRIED as error:
            self._problem = detail_of(error)
        finally:
            self._close()
        plans = self._plans.plans
        left = {str(e): p.reason.meaning for e, p in plans.items() if p.verdict is LimitVerdict.REFUSE}
        restored = {str(e): p.rate for e, p in plans.items() if p.verdict is LimitVerdict.RESTORE}
        if self._problem is not None:
            restored, left = {}, {"all quotas": self._problem}
        return Released(restored, left, confirmed)

    def _forget(self, entity: Entity) -> Rate:
        """Record the present quota of an entity as the original, unless a record has another one; return it."""
        client = self._open()
        seen = client.read()
        rate, recorded = seen.rates.get(entity), seen.originals.get(entity)
        if recorded is not None and recorded.is_held:
            return rate  # the option names no cluster: here the entity is slowed down
        if refused := client.alter({}, {entity: None if rate is None else Original(rate, rate)}):
            raise AlterError(refused, {})
        confirmed = LevelPlan(LimitVerdict.KEEP, LimitReason.CONFIRMED, rate, rate)
        self._reports.emit(entity, confirmed, ReportResult.UNCHANGED, Attempt(self._clock.now()))
        return rate

    def _open(self) -> QuotaClient:
        """Return a client; a new one has just had an answer. Raises one of the client's `FAILURES`."""
        if self._client is None:
            self._client = self._connect()
            self._count_brokers(self._client)
        return self._client

    def _count_brokers(self, client: QuotaClient) -> None:
        self._broker_count = sum(not broker.fenced for broker in client.describe())

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- incoming decisions

    def _enter(self, decision: FactorDecision, appended_at: datetime) -> bool:
        if len(self._factors) < _MOST_FACTORS:
            self._factors |= {decision.factor, self._throttle.choose_expired(decision.factor)}
        return super()._enter(decision, appended_at)

    def _reject(self, decision: FactorDecision, in_force: FactorDecision) -> None:
        plan = LevelPlan(LimitVerdict.REFUSE, LimitReason.FENCED)
        attempt = Attempt(self._clock.now(), WantedFactor(decision.factor, LimitReason.FENCED), 1, decision)
        late = f"sequence {in_force.sequence} is in force"
        self._reports.emit(None, plan, ReportResult.REFUSED, attempt, detail=late)

    # --- due work

    @property
    def _order(self) -> ThrottleFactor | None:
        order = self._in_force.get(self._cluster)
        return order if isinstance(order, ThrottleFactor) else None

    def _wanted(self) -> WantedFactor | None:
        """Return the factor that holds now by the decision in force; None before the first one, and while paused."""
        now = self._clock.now()
        if self._settings is None or self._order is None or self._order.is_frozen(now):
            return None
        return self._order.choose_factor(now, self._throttle)

    # --- attempts

    def _attempt(self, wanted: WantedFactor | None, number: int) -> float:
        try:
            client = self._open()
            self._require_decided_cluster(client.cluster_id)
            if self._must_read_brokers(wanted):
                self._read_brokers(client)
            seen = client.read()
            rates = self._own.without_ours(seen)
            coverage = Coverage() if self._settings is None else find_coverage(self._settings, rates)
            targets = self._targets(wanted, seen, coverage)
            for entity in targets:
                self._own.confirm(entity, seen, self._broker_count, self._clock.monotonic())
            planned = self._make_plans(wanted, targets, seen, rates)
            self._carry_out(client, planned.plans, self._describe_attempt(wanted, number))
        except BaseException:
            self._close()
            raise
        self._plans = planned
        self._reports.show_escapes(coverage.escaping)
        state = self._describe(wanted, planned, {entity: seen.rates.get(entity) for entity in coverage.escaping})
        self._state.publish_if_due(self._cluster, state)
        self._problem = None
        self._reports.report_success(self._clock.now(), failing=state.not_set is not None)
        return self._choose_pause(wanted, planned.plans)

    def _describe_attempt(self, wanted: WantedFactor | None, number: int) -> Attempt:
        return Attempt(self._clock.now(), wanted, number, self._order)

    def _describe(
        self, wanted: WantedFactor | None, planned: PlannedQuotas, escaping: Mapping[Entity, Rate]
    ) -> QuotaState:
        """Return the quotas that are set, those that decide in place of an entity, and those of rivals."""
        held, brokers = {entity: plan for entity, plan in planned.plans.items() if plan.holds}, self._broker_count
        is_confirmed = all(self._own.confirmed(entity) >= brokers for entity in held)
        unknown = {e: p.found for e, p in planned.plans.items() if p.reason is LimitReason.UNKNOWN_ORIGINAL}
        contests = [(entity, each) for entity, each in self._own.contests.items() if each.is_contested]
        return QuotaState(
            cluster=self._cluster,
            outcome=Outcome.OK,
            factor=wanted.factor if wanted is not None and wanted.applies else None,
            set_count=len(planned.slowed),
            is_settled=is_confirmed and not any(p.reason is LimitReason.STEPPING for p in held.values()),
            brokers=brokers,
            let_through_bytes_per_second=min(sum(planned.slowed.values()) * brokers, MAX_INT64),
            window_seconds=self._own.window_seconds,
            escaping=_name_quotas(escaping),
            escaping_count=len(escaping),
            clients_without_id_escape=planned.misses_empty_ids,
            not_set=planned.not_set,
            contested=tuple(
                NamedQuota(entity=str(e), bytes_per_second=c.value, period_seconds=round(c.period_seconds or 0.0))
                for e, c in contests[:MOST_NAMED]
            ),
            unknown=_name_quotas(unknown),
            callback_brokers=tuple(self._callbacks)[:MOST_NAMED],
            excluded_users=tuple(self._settings.exclude)[:MOST_NAMED] if self._settings is not None else (),
        )

    def _require_decided_cluster(self, found: str | None) -> None:
        """Refuse to act on another cluster than the one that was decided on; nothing of ours is known there.

        Raises:
            UserError: another cluster answers at the address.
        """
        if found is None:
            return
        if self._cluster_id not in (None, found):
            self._own, self._brokers = OwnQuotas(self._cluster, self._settings), None
        self._cluster_id = found
        decided = self._order.cluster_id if self._order is not None else None
        if decided not in (None, found):
            raise UserError(
                f"another Kafka cluster answers: its id is {found}, and the decision is about {decided}; nothing is "
                f"set on it until somebody runs headgate adopt --cluster {self._cluster}"
            )

    def _must_read_brokers(self, wanted: WantedFactor | None) -> bool:
        """Whether to read the brokers' settings again. A new decision does not wait for these requests."""
        seconds = self._clock.monotonic() - self._brokers_read_at
        is_old = wanted == self._carried_out and seconds >= self._verify_seconds
        return self._settings is not None and (self._brokers is None or is_old)

    def _read_brokers(self, client: QuotaClient) -> None:
        self._brokers_read_at = self._clock.monotonic()
        try:
            self._count_brokers(client)
            self._brokers = read_broker_settings(client)
        except KafkaError:
            if self._brokers is None:
                raise
            return  # the answers from before still count
        windows = (each.window_seconds for each in self._brokers.values())
        self._own.window_seconds = max(windows, default=self._own.window_seconds)

    @property
    def _callbacks(self) -> dict[int, str]:
        return {} if self._settings is None else find_callbacks(self._brokers or {})

    def _make_plans(
        self,
        wanted: WantedFactor | None,
        targets: Mapping[Entity, WantedFactor],
        seen: BrokerQuotas,
        rates: Mapping[Entity, int],
    ) -> PlannedQuotas:
        """Plan each entity's quota, and the additional ones of a throttle, by the rates without Headgate."""
        plans = {entity: plan_level(self._situation(entity, factor, seen)) for entity, factor in targets.items()}
        if self._settings is None or wanted is None or not wanted.slows:
            return PlannedQuotas(plans)
        throttle = {e: p for e, p in plans.items() if targets[e] is wanted}
        slowed = {e: p.rate for e, p in throttle.items() if p.verdict is not LimitVerdict.REFUSE and p.rate is not None}
        rates_to_add = find_additions(self._settings, rates, slowed, is_stop=wanted.factor == 0.0) if slowed else {}
        free, others_too = (
            replace(wanted, reason=each) for each in (LimitReason.EXCLUDED_USER, LimitReason.ALL_CLIENTS)
        )
        others = self._own.held_by_others(seen)
        refusals = [f"{e}: {p.reason.meaning.rstrip('.')}" for e, p in list(throttle.items())[:_EXPLAINED]]
        added = {
            entity: plan_level(
                self._situation(entity, free if entity.user in self._settings.exclude else others_too, seen, rate)
            )
            for entity, rate in rates_to_add.items()
            if entity not in others
        }
        return PlannedQuotas(
            plans | added,
            slowed,
            misses_empty_ids=misses_empty_ids(self._settings, {*slowed, *added}),
            not_set=None if slowed else "; ".join(refusals),
        )

    def _targets(
        self, wanted: WantedFactor | None, seen: BrokerQuotas, coverage: Coverage
    ) -> dict[Entity, WantedFactor]:
        """Return the factor of each entity. All other entities that Headgate holds get their original quota back."""
        held = self._own.held(seen, of_others=self._settings is None)
        targets = dict.fromkeys(held, RELEASED)
        if self._settings is None:
            unknown = (e for e, rate in seen.rates.items() if may_be_ours(rate, None, self._floor, ()))
            return {**dict.fromkeys((*self._own.bases, *unknown), RELEASED), **targets}
        if wanted is None:
            # Without a decision the quotas stay; those that no setting asks for are put back.
            return {e: RELEASED for e in held if e not in self._own.bases and e not in coverage.scaled}
        scaled = coverage.scaled if wanted.factor < 1.0 else (e for e in coverage.scaled if e in targets)
        return {**targets, **dict.fromkeys(scaled, wanted), **dict.fromkeys(self._own.bases, wanted)}

    def _choose_pause(self, wanted: WantedFactor | None, plans: Mapping[Entity, LevelPlan]) -> float:
        """Return the time until the next look: earlier where a quota may be lower, or be put back, soon."""
        now, seconds = self._clock.monotonic(), [self._verify_seconds]
        if _throttles(wanted):
            seconds.append(LOOK_SECONDS)
        if any(planned.verdict.acts for planned in plans.values()):  # quotas that were just set are verified soon
            seconds.append(SETTLE_SECONDS)
        for entity, planned in plans.items():
            if planned.reason is LimitReason.STEPPING:
                step = self._own.find_step(entity, planned.rate, planned.record, now)
                if step is not None:
                    seconds.append(step.seconds)
        return min(seconds)

    def _situation(self, entity: Entity, wanted: WantedFactor, seen: BrokerQuotas, rate: Rate = None) -> LevelSituation:
        """Return the inputs of a plan; `rate`: of an additional quota, which does not depend on the factor."""
        now = self._clock.monotonic()
        found, record, recorded = self._own.interpret(entity, seen, now)
        step = self._own.find_step(entity, found, record, now) if rate is None else None
        floor, base = (self._floor, self._own.bases.get(entity)) if rate is None else (rate, rate)
        return LevelSituation(
            *(wanted, record, found, base, floor, recorded),
            is_unknown=may_be_ours(found, base, floor, self._factors),
            is_removal_meant=self._own.is_original_new(entity),
            obstacle=LimitReason.QUOTA_CALLBACK if self._callbacks else None,
            least=step.least if step else None,
        )

    def _carry_out(self, client: QuotaClient, plans: Mapping[Entity, LevelPlan], attempt: Attempt) -> None:
        changes = {entity: planned for entity, planned in plans.items() if planned.verdict.acts}
        refused: dict[Entity, Exception] = {}
        if changes:
            self._require_ours()
            self._own.note(changes, self._clock.monotonic(), is_unsure=True)
            rates = {entity: planned.rate for entity, planned in changes.items()}
            refused = dict(
                client.alter(rates, {entity: self._own.find_original(planned) for entity, planned in changes.items()})
            )
            done = {entity: planned for entity, planned in changes.items() if entity not in refused}
            self._own.note(done, self._clock.monotonic(), is_unsure=False)
        for entity, planned in plans.items():
            if entity not in refused:
                confirmed = 0 if planned.verdict.acts else self._own.confirmed(entity)
                self._reports.report_quota(entity, planned, attempt, confirmed, self._broker_count)
        if refused:
            raise AlterError(refused, plans)

    def _fail(self, error: Exception, wanted: WantedFactor | None, number: int) -> None:
        self._problem = detail_of(error)
        self._publish_not_set(error)
        attempt = self._describe_attempt(wanted, number)
        if isinstance(error, AlterError):
            for entity, refusal in error.refused.items():
                self._reports.report_refusal(entity, error.plans[entity], attempt, detail_of(refusal))
        else:
            self._reports.report_refusal(None, None, attempt, detail_of(error))

    def _publish_not_set(self, error: Exception) -> None:
        """Publish that nobody is slowed down, if that is certain: quotas stay as they were set before a failure."""
        wanted, plans = self._wanted(), self._plans.plans
        if isinstance(error, AlterError):
            plans = {entity: planned for entity, planned in error.plans.items() if entity not in error.refused}
        is_known = bool(self._plans.plans) or isinstance(error, AlterError)
        if is_known and _throttles(wanted) and not any(planned.holds for planned in plans.values()):
            not_set = PlannedQuotas(not_set=detail_of(error))
            self._state.publish_if_due(self._cluster, self._describe(wanted, not_set, {}))


def _name_quotas(rates: Mapping[Entity, Rate]) -> tuple[NamedQuota, ...]:
    named = list(rates.items())[:MOST_NAMED]
    return tuple(NamedQuota(entity=str(entity), bytes_per_second=rate) for entity, rate in named)


def _throttles(wanted: WantedFactor | None) -> bool:
    return wanted is not None and wanted.slows
