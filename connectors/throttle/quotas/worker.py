"""Keeps the quotas of one watched cluster as its decision in force wants them.

The next operation is planned anew each time from what is found (policies/throttle/quota_plan.py), so an attempt that
was cut short anywhere is simply repeated. A rate is set only once it, and the original quota, are recorded.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event

import structlog
from kafka.errors import KafkaError
from tenacity import retry_if_exception_type, stop_after_attempt

from connectors.actuation.action_rate import ActionRate
from connectors.actuation.reports import PublishAudit
from connectors.actuation.worker import NOT_OURS_SECONDS, SYSTEM_CLOCK, Clock, Worker
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.outcomes import detail_of
from connectors.kafka.quotas import FAILURES
from connectors.throttle.quotas.client import QuotaApi, QuotaConnection, connect
from connectors.throttle.quotas.journal import QuotaJournalError
from connectors.throttle.quotas.obstacles import Obstacles, find_obstacles
from connectors.throttle.quotas.records import QuotaRecords, Write
from connectors.throttle.quotas.reports import AttemptContext, QuotaMetrics, QuotaReports
from policies.errors import UserError
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_orders import QuotaOrder, wanted_of
from policies.throttle.quota_plan import (
    PendingWrite,
    QuotaPlan,
    QuotaReason,
    QuotaSituation,
    QuotaVerdict,
    Rate,
    WantedFactor,
    plan,
)
from policies.throttle.quota_settings import Entity, QuotaSettings
from policies.throttle.quota_steps import QuotaStep, RatesInForce

SETTLE_SECONDS = 5.0
"""Another broker may show an altered quota so much later."""

_AGAIN_SECONDS = 5.0
"""Between series of attempts that failed."""
_ATTEMPTS_TO_RELEASE = 5
_MOST_CHANGES_A_MINUTE = 60
_RELEASED = WantedFactor(1.0, 1.0, QuotaReason.RELEASED)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WatchedQuotas:
    """One cluster whose quotas carry its decisions out."""

    cluster: str
    kafka: WatchedKafka
    settings: QuotaSettings | None
    """None: nothing is set, only what was set before is put back."""
    fallback_factor: float


class AlterError(Exception):
    """Kafka refused to alter some quotas."""

    def __init__(self, refused: dict[Entity, Exception], plans: dict[Entity, QuotaPlan]) -> None:
        super().__init__(", ".join(f"{entity}: {detail_of(error)}" for entity, error in refused.items()))
        self.refused = refused
        self.plans = plans


class NotOursError(Exception):
    """The cluster may be another process's by now: it was not acted on."""


_RETRIED: tuple[type[Exception], ...] = (*FAILURES, QuotaJournalError, AlterError)


class QuotaWorker(Worker[QuotaOrder]):
    """Carries out one cluster's decisions.

    Args:
        watched: the cluster and its settings.
        journal: writes down what must not be forgotten.
        publish: takes what is said for the audit.
        metrics: shared by all clusters.
        clock: the time.
        connect: makes a client of the cluster.
    """

    def __init__(
        self,
        watched: WatchedQuotas,
        journal: Write,
        publish: PublishAudit,
        metrics: QuotaMetrics,
        *,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[WatchedKafka], QuotaApi] = connect,
    ) -> None:
        super().__init__(watched.cluster, clock)
        self._watched = watched
        self._records = QuotaRecords(watched.cluster, journal)
        self._reports = QuotaReports(watched.cluster, publish, metrics)
        self._connection = QuotaConnection(watched.kafka, connect)
        settings = watched.settings
        self._bases = {spec.entity: spec.base for spec in settings.entities} if settings else {}
        self._series = stop_after_attempt(settings.attempts if settings else _ATTEMPTS_TO_RELEASE)
        self._verify_seconds = settings.verify_interval.total_seconds() if settings else _AGAIN_SECONDS
        self._releasing = False
        self._carried_out: WantedFactor | None = None
        self._look_at = 0.0
        self._in_force: dict[Entity, RatesInForce] = {}
        self._pending_writes: dict[Entity, tuple[float, PendingWrite]] = {}
        self._changes = ActionRate(_MOST_CHANGES_A_MINUTE, clock.monotonic)
        self._obstacles: Obstacles | None = None
        self._measured_from: datetime | None = None
        """When Kafka took the decision in force; None when it is not (any more) to be measured."""

    # --- before the start, and at the end

    def recall_record(self, note: AppliedQuota, appended_at: datetime) -> None:
        """Learn what was written down before this start, in order, and under which decision."""
        self._records.recall(note)
        if (order := note.order()) is not None:
            self.recall(order, appended_at)

    def preflight(self) -> None:
        """Find out whether the settings fit the cluster; one that does not answer is looked at later.

        Raises:
            UserError: they do not; all problems, one a line.
        """
        try:
            problems = list(self._problems(self._connection.client()))
        except UserError:
            raise
        except FAILURES as error:
            _log.warning("quotas cannot be checked yet", cluster=self._cluster, detail=detail_of(error))
            self._connection.close()
            return
        if problems:
            self._connection.close()
            place = f"clusters.{self._cluster}.quotas"
            raise UserError("\n".join(f"{place}: {problem}." for problem in problems))

    def _problems(self, client: QuotaApi) -> list[str]:
        if self._watched.settings is None:
            return []
        self._obstacles = find_obstacles(client, self._watched.settings)
        stop = WantedFactor(0.0, 0.0, QuotaReason.DECIDED)
        found = client.rates(list(self._bases))
        without = [e for e in self._bases if plan(self._situation(e, stop, found[e])).reason is QuotaReason.NO_BASE]
        remedy = "has neither a `base` nor a producer_byte_rate in Kafka: what is factor 1.0 for it?"
        return [*self._obstacles.explained(), *(f"entity {entity} {remedy} Set one of the two" for entity in without)]

    def release(self, stop: Event) -> list[Entity]:
        """Put back everything that was there before; what could not be."""
        self._releasing = True
        try:
            if self._records.held:
                self._try(stop)
        finally:
            self._close()
        return self._records.held

    def _close(self) -> None:
        self._connection.close()

    # --- what comes in

    def learned(self, event_id: str, note: AppliedQuota) -> None:
        """Something was written down, by whomever; from any thread."""
        self._records.learned(event_id, note)
        self.wake()

    def _entered(self, decision: QuotaOrder, appended_at: datetime) -> None:  # noqa: ARG002
        self._measured_from = appended_at

    def _refused(self, decision: QuotaOrder, in_force: QuotaOrder) -> None:
        self._reports.fenced(decision, in_force, self._clock.now())

    def _read(self) -> None:
        self._queue.read()
        self._records.read()

    # --- what is due

    @property
    def _order(self) -> QuotaOrder | None:
        return self._queue.in_force(self._cluster)

    def _wanted(self) -> WantedFactor | None:
        """What the decision in force means now; None when there has never been one."""
        if self._releasing or self._order is None:
            return None
        return wanted_of(self._order, self._clock.now(), self._watched.fallback_factor)

    def _targets(self) -> dict[Entity, WantedFactor]:
        """What is wanted of each entity; those that are no longer in the settings are put back."""
        wanted = self._wanted()
        targets = dict.fromkeys(self._bases, wanted) if wanted is not None else {}
        left = (entity for entity in self._records.held if self._releasing or entity not in self._bases)
        return {**dict.fromkeys(left, _RELEASED), **targets}

    def _is_due(self) -> bool:
        # A series of attempts that failed is waited out only when nothing new is wanted.
        is_time = self._clock.monotonic() >= self._look_at
        return bool(self._targets()) and (is_time or self._wanted() != self._carried_out)

    def pause_seconds(self) -> float:
        """Until the quotas are looked at again, or the decision in force expires."""
        if self._is_due():
            return 0.0
        left_seconds = max(0.0, self._look_at - self._clock.monotonic()) if self._targets() else self._verify_seconds
        now, order = self._clock.now(), self._order
        if order is None or order.is_stale(now):
            return left_seconds
        return min(left_seconds, (order.valid_until - now).total_seconds())

    def reconcile(self, stop: Event) -> None:
        """Take in what has come, and see to the quotas when they are due."""
        self._read()
        if self._is_due():
            self._try(stop)
        else:
            self._measured_from = None  # what has come was a heartbeat

    # --- attempts

    def _try(self, stop: Event) -> None:
        number, retry = 1, retry_if_exception_type(_RETRIED)
        attempts = self._retrying(
            stop, self._series, first_pause_seconds=0.2, longest_pause_seconds=5.0, retry=retry, reraise=True
        )
        try:
            for attempt in attempts:
                number = attempt.retry_state.attempt_number
                with attempt:
                    self._attempt(number)
        except NotOursError:
            self._look_at, self._carried_out = self._clock.monotonic() + NOT_OURS_SECONDS, self._wanted()
        except _RETRIED as error:
            self._failed(error, number)
        except Exception as error:  # whatever it is, the next decision must find somebody at work
            _log.exception("carrying a decision out failed", cluster=self._cluster)
            self._failed(error, number)

    def _attempt(self, number: int) -> None:
        self._read()
        wanted, targets = self._wanted(), self._targets()
        try:
            client = self._connection.client()
            found = client.rates(list(targets))
            self._find_obstacles(client, wanted)
            plans = {entity: plan(self._situation(entity, targets[entity], found[entity])) for entity in targets}
            if self._waits(plans, wanted):
                return
            self._carry_out(client, plans, AttemptContext(self._order, wanted, number, self._clock.now()))
        except BaseException:
            self._connection.close()
            raise
        self._succeeded(wanted, acted=any(planned.acts for planned in plans.values()))
        self._step_on(plans)

    def _waits(self, plans: dict[Entity, QuotaPlan], wanted: WantedFactor | None) -> bool:
        """Whether so much was altered within a minute that this has time: what lowers a quota never waits."""
        acts = [planned for planned in plans.values() if planned.acts]
        left_seconds = self._changes.left_seconds()
        waits = left_seconds > 0 and bool(acts) and not self._releasing and not any(map(_lowers, acts))
        self._reports.held(yes=waits)
        if waits:
            self._look_at, self._carried_out = self._clock.monotonic() + left_seconds, wanted
        return waits

    def _step_on(self, plans: dict[Entity, QuotaPlan]) -> None:
        """Look again when a quota on its way down may be lower."""
        now = self._clock.monotonic()
        for entity, planned in plans.items():
            if planned.reason is QuotaReason.STEPPING and (step := self._step(entity, planned.rate)) is not None:
                self._look_at = min(self._look_at, now + step.seconds)

    def _find_obstacles(self, client: QuotaApi, wanted: WantedFactor | None) -> None:
        """Between changes only: a decision does not wait for it."""
        if self._watched.settings is None or self._releasing:
            return
        if self._obstacles is None:
            self._obstacles = find_obstacles(client, self._watched.settings)
        elif wanted == self._carried_out:
            with suppress(KafkaError):  # what was found before still counts
                self._obstacles = find_obstacles(client, self._watched.settings)

    def _situation(self, entity: Entity, wanted: WantedFactor, found: Rate) -> QuotaSituation:
        settings = self._watched.settings
        return QuotaSituation(
            wanted=wanted,
            record=self._records.of(entity),
            found=found,
            base=self._bases.get(entity),
            floor=int(settings.floor_bytes_per_second) if settings else 0,
            pending=self._pending_write(entity),
            obstacle=self._obstacles.of(entity) if self._obstacles else None,
            least=step.least if (step := self._step(entity, found)) else None,
        )

    def _step(self, entity: Entity, found: Rate) -> QuotaStep | None:
        """How low the quota may be now."""
        settings = self._watched.settings
        if settings is None or settings.max_told_wait is None:
            return None
        now, record = self._clock.monotonic(), self._records.of(entity)
        if entity not in self._in_force:
            # What was in force before this start may still fill the window: at most what was there before Headgate.
            before = (record.baseline or record.base) if record is not None and record.held else None
            self._in_force[entity] = RatesInForce().changed(now, before)
        wait_seconds = settings.max_told_wait.total_seconds()
        return self._in_force[entity].step(now, self._let_through(entity, found), wait_seconds)

    def _let_through(self, entity: Entity, found: Rate) -> Rate:
        """What producers may write under this quota; without one, what counts as factor 1.0."""
        return self._bases.get(entity) if found is None else found

    def _pending_write(self, entity: Entity) -> PendingWrite | None:
        at, written = self._pending_writes.get(entity, (0.0, None))
        return written if self._clock.monotonic() - at < SETTLE_SECONDS else None

    def _carry_out(self, client: QuotaApi, plans: dict[Entity, QuotaPlan], context: AttemptContext) -> None:
        self._require_ours()
        self._write({e: p for e, p in plans.items() if p.verdict is QuotaVerdict.SET}, context)
        changes = {e: p.rate for e, p in plans.items() if p.acts}
        self._require_ours()
        if changes:
            self._changes.take()
        refused = dict(client.alter(changes)) if changes else {}
        now = self._clock.monotonic()
        for entity in changes.keys() - refused.keys():
            known = self._in_force.get(entity, RatesInForce())
            self._in_force[entity] = known.changed(now, self._let_through(entity, plans[entity].found))
        self._pending_writes |= {e: (now, PendingWrite(rate)) for e, rate in changes.items() if e not in refused}
        done = {e: p for e, p in plans.items() if e not in refused}
        for entity, planned in done.items():
            self._reports.carried_out(entity, planned, context)
        self._write({e: p for e, p in done.items() if p.verdict is not QuotaVerdict.SET}, context)
        if refused:
            raise AlterError(refused, plans)

    def _require_ours(self) -> None:
        if not self.may_act():
            raise NotOursError

    def _write(self, plans: dict[Entity, QuotaPlan], context: AttemptContext) -> None:
        self._records.write({e: p.record for e, p in plans.items()}, context.order, context.at)

    def _succeeded(self, wanted: WantedFactor | None, *, acted: bool) -> None:
        # What was just set is looked at soon.
        look_in_seconds = min(self._verify_seconds, SETTLE_SECONDS) if acted else self._verify_seconds
        self._look_at, self._carried_out = self._clock.monotonic() + look_in_seconds, wanted
        took_seconds = None
        if acted and self._measured_from is not None:
            took_seconds = max(0.0, (self._clock.now() - self._measured_from).total_seconds())
        self._measured_from = None
        self._reports.succeeded(took_seconds)

    def _failed(self, error: Exception, number: int) -> None:
        # To be begun again at once only if something else is wanted.
        self._look_at, self._carried_out = self._clock.monotonic() + _AGAIN_SECONDS, self._wanted()
        context = AttemptContext(self._order, self._carried_out, number, self._clock.now())
        if isinstance(error, AlterError):
            for entity, refusal in error.refused.items():
                self._reports.failed(entity, error.plans[entity], context, detail_of(refusal))
        else:
            self._reports.failed(None, None, context, detail_of(error))


def _lowers(planned: QuotaPlan) -> bool:
    return planned.rate is not None and (planned.found is None or planned.rate < planned.found)
