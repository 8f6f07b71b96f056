"""Keeps the quotas of one watched cluster at the values that its decision in force asks for.

Each attempt is planned from the quotas found (policies/throttle/quota_plan.py), so an attempt that was interrupted
anywhere is simply repeated. A rate is set only after it, and the original quota, are recorded.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event

import structlog
from kafka.errors import KafkaError
from tenacity import retry_if_exception_type, stop_after_attempt

from connectors.actuation.reports import PublishAudit
from connectors.actuation.worker import NOT_OURS_SECONDS, SYSTEM_CLOCK, ActionRate, Clock, Worker
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.outcomes import detail_of
from connectors.kafka.quotas import FAILURES
from connectors.throttle.quotas.client import QuotaApi, QuotaConnection, connect
from connectors.throttle.quotas.obstacles import Obstacles, find_obstacles
from connectors.throttle.quotas.recent_writes import SETTLE_SECONDS, RecentWrites
from connectors.throttle.quotas.records import QuotaJournalError, QuotaRecords, Write
from connectors.throttle.quotas.reports import AttemptContext, QuotaMetrics, QuotaReports
from policies.errors import UserError
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_plan import (
    QuotaOrder,
    QuotaPlan,
    QuotaReason,
    QuotaSituation,
    QuotaVerdict,
    Rate,
    WantedFactor,
    choose_factor,
    plan,
)
from policies.throttle.quota_settings import Entity, QuotaSettings
from policies.throttle.settings import ThrottleSettings

_AGAIN_SECONDS = 5.0
"""Pause after a series of attempts that failed."""
_ATTEMPTS_TO_RELEASE = 5
_MOST_CHANGES_A_MINUTE = 60
_RELEASED = WantedFactor(1.0, 1.0, QuotaReason.RELEASED)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WatchedQuotas:
    """A cluster whose decisions are carried out."""

    cluster: str
    kafka: WatchedKafka
    settings: QuotaSettings | None
    """None: no quota is set, and those that were set before are put back."""
    throttle: ThrottleSettings
    """The cluster's; it decides the factor after a decision has expired."""


class AlterError(Exception):
    """Kafka refused to alter some quotas."""

    def __init__(self, refused: dict[Entity, Exception], plans: dict[Entity, QuotaPlan]) -> None:
        super().__init__(", ".join(f"{entity}: {detail_of(error)}" for entity, error in refused.items()))
        self.refused = refused
        self.plans = plans


class NotOursError(Exception):
    """The cluster may belong to another process now, so nothing was done."""


_RETRIED: tuple[type[Exception], ...] = (*FAILURES, QuotaJournalError, AlterError)


class QuotaWorker(Worker[QuotaOrder]):
    """Carries out one cluster's decisions.

    Args:
        journal: writes the records of applied quotas.
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
        self._recent = RecentWrites(settings)
        self._series = stop_after_attempt(settings.attempts if settings else _ATTEMPTS_TO_RELEASE)
        self._verify_seconds = settings.verify_interval.total_seconds() if settings else _AGAIN_SECONDS
        self._releasing = False
        self._carried_out: WantedFactor | None = None
        self._look_at = 0.0
        self._changes = ActionRate(_MOST_CHANGES_A_MINUTE, clock.monotonic)
        self._obstacles: Obstacles | None = None
        self._measured_from: datetime | None = None
        """Append time of the decision in force; None once its latency is not to be measured (any more)."""

    # --- before the start, and at the end

    def recall_applied(self, applied: AppliedQuota, appended_at: datetime) -> None:
        """Process a record from before this start, and the decision that it was written under."""
        self._records.recall(applied)
        if (order := applied.order()) is not None:
            self.recall(order, appended_at)

    def preflight(self) -> None:
        """Check whether the settings fit the cluster. A cluster that does not answer is checked later.

        Raises:
            UserError: they do not fit; all problems, one per line.
        """
        try:
            problems = self._find_problems(self._connection.client())
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

    def _find_problems(self, client: QuotaApi) -> list[str]:
        if self._watched.settings is None:
            return []
        self._obstacles = find_obstacles(client, self._watched.settings)
        stop = WantedFactor(0.0, 0.0, QuotaReason.DECIDED)
        found = client.rates(list(self._recent.bases))
        without = [e for e, rate in found.items() if plan(self._situation(e, stop, rate)).reason is QuotaReason.NO_BASE]
        remedy = "has neither a `base` nor a producer_byte_rate in Kafka: what is factor 1.0 for it?"
        return [*self._obstacles.explain(), *(f"entity {entity} {remedy} Set one of the two" for entity in without)]

    def release(self, stop: Event) -> list[Entity]:
        """Restore all original quotas. Returns the entities for which that failed."""
        self._releasing = True
        try:
            if self._records.held:
                self._try(stop)
        finally:
            self._close()
        return self._records.held

    def _close(self) -> None:
        self._connection.close()

    # --- incoming decisions and records

    def receive_applied(self, event_id: str, applied: AppliedQuota) -> None:
        """Queue a new record of the topic; from any thread."""
        self._records.receive(event_id, applied)
        self.wake()

    def _accept(self, decision: QuotaOrder, appended_at: datetime) -> None:  # noqa: ARG002
        self._measured_from = appended_at

    def _reject(self, decision: QuotaOrder, in_force: QuotaOrder) -> None:
        self._reports.report_fenced(decision, in_force, self._clock.now())

    def _read(self) -> None:
        self._queue.read()
        self._records.read()

    # --- due work

    @property
    def _order(self) -> QuotaOrder | None:
        return self._queue.in_force(self._cluster)

    def _wanted(self) -> WantedFactor | None:
        """Return the factor that holds now by the decision in force; None before the first one, and while paused."""
        now = self._clock.now()
        if self._releasing or self._order is None or self._order.is_frozen(now):
            return None
        return choose_factor(self._order, now, self._watched.throttle)

    def _targets(self) -> dict[Entity, WantedFactor]:
        """Return the factor of each entity; entities that left the settings are to be put back."""
        wanted = self._wanted()
        targets = dict.fromkeys(self._recent.bases, wanted) if wanted is not None else {}
        left = (entity for entity in self._records.held if self._releasing or entity not in self._recent.bases)
        return {**dict.fromkeys(left, _RELEASED), **targets}

    def _is_due(self) -> bool:
        # A new factor does not wait for the pause after a series of failed attempts.
        is_time = self._clock.monotonic() >= self._look_at
        return bool(self._targets()) and (is_time or self._wanted() != self._carried_out)

    def pause_seconds(self) -> float:
        """Return the time until the next look at the quotas, or until the decision in force expires."""
        if self._is_due():
            return 0.0
        left_seconds = max(0.0, self._look_at - self._clock.monotonic()) if self._targets() else self._verify_seconds
        now, order = self._clock.now(), self._order
        if order is None or order.is_stale(now):
            return left_seconds
        return min(left_seconds, (order.valid_until - now).total_seconds())

    def reconcile(self, stop: Event) -> None:
        """Process received decisions and records, and set the quotas if that is due."""
        self._read()
        if self._is_due():
            self._try(stop)
        else:
            self._measured_from = None  # the decision only repeated the one before

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
            self._look_again(NOT_OURS_SECONDS, self._wanted())
        except Exception as error:
            if not isinstance(error, _RETRIED):  # this thread must survive any exception: later decisions need it
                _log.exception("carrying out a decision failed", cluster=self._cluster)
            self._report_failure(error, number)

    def _attempt(self, number: int) -> None:
        self._read()
        wanted, targets = self._wanted(), self._targets()
        try:
            client = self._connection.client()
            found = client.rates(list(targets))
            self._update_obstacles(client, wanted)
            plans = {entity: plan(self._situation(entity, targets[entity], found[entity])) for entity in targets}
            if self._must_wait(plans, wanted):
                return
            self._carry_out(client, plans, AttemptContext(self._order, wanted, number, self._clock.now()))
        except BaseException:
            self._connection.close()
            raise
        self._conclude(wanted, acted=any(planned.acts for planned in plans.values()))
        self._schedule_next_step(plans)

    def _look_again(self, in_seconds: float, carried_out: WantedFactor | None) -> None:
        self._look_at, self._carried_out = self._clock.monotonic() + in_seconds, carried_out

    def _must_wait(self, plans: dict[Entity, QuotaPlan], wanted: WantedFactor | None) -> bool:
        """Whether the limit of changes within a minute holds these back. A change that lowers a quota never waits."""
        acts = [planned for planned in plans.values() if planned.acts]
        wait_seconds = self._changes.wait_seconds()
        lowers = any(p.rate is not None and (p.found is None or p.rate < p.found) for p in acts)
        waits = wait_seconds > 0 and bool(acts) and not self._releasing and not lowers
        self._reports.set_held(yes=waits)
        if waits:
            self._look_again(wait_seconds, wanted)
        return waits

    def _schedule_next_step(self, plans: dict[Entity, QuotaPlan]) -> None:
        """Look again when a quota that goes down in steps may be lower."""
        now = self._clock.monotonic()
        for entity, planned in plans.items():
            if planned.reason is QuotaReason.STEPPING:
                step = self._recent.find_step(entity, planned.rate, self._records.find(entity), now)
                if step is not None:
                    self._look_at = min(self._look_at, now + step.seconds)

    def _update_obstacles(self, client: QuotaApi, wanted: WantedFactor | None) -> None:
        if self._watched.settings is None or self._releasing:
            return
        if self._obstacles is None:
            self._obstacles = find_obstacles(client, self._watched.settings)
        elif wanted == self._carried_out:  # a new decision does not wait for these requests
            with suppress(KafkaError):  # the obstacles found before still count
                self._obstacles = find_obstacles(client, self._watched.settings)

    def _situation(self, entity: Entity, wanted: WantedFactor, found: Rate) -> QuotaSituation:
        settings, record, now = self._watched.settings, self._records.find(entity), self._clock.monotonic()
        step = self._recent.find_step(entity, found, record, now)
        return QuotaSituation(
            wanted=wanted,
            record=record,
            found=found,
            base=self._recent.bases.get(entity),
            floor=int(settings.floor_bytes_per_second) if settings else 0,
            pending=self._recent.find_pending(entity, now),
            obstacle=self._obstacles.find_reason(entity) if self._obstacles else None,
            least=step.least if step else None,
        )

    def _carry_out(self, client: QuotaApi, plans: dict[Entity, QuotaPlan], context: AttemptContext) -> None:
        self._require_ours()
        self._write_records({e: p for e, p in plans.items() if p.verdict is QuotaVerdict.SET}, context)
        changes = {e: p.rate for e, p in plans.items() if p.acts}
        self._require_ours()
        if changes:
            self._changes.count_action()
        refused = dict(client.alter(changes)) if changes else {}
        written = {e: rate for e, rate in changes.items() if e not in refused}
        self._recent.note(written, {e: p.found for e, p in plans.items()}, self._clock.monotonic())
        done = {e: p for e, p in plans.items() if e not in refused}
        for entity, planned in done.items():
            self._reports.report_done(entity, planned, context)
        self._write_records({e: p for e, p in done.items() if p.verdict is not QuotaVerdict.SET}, context)
        if refused:
            raise AlterError(refused, plans)

    def _require_ours(self) -> None:
        if not self.may_act():
            raise NotOursError

    def _write_records(self, plans: dict[Entity, QuotaPlan], context: AttemptContext) -> None:
        self._records.write({e: p.record for e, p in plans.items()}, context.order, context.at)

    def _conclude(self, wanted: WantedFactor | None, *, acted: bool) -> None:
        # Quotas that were just set are verified soon.
        self._look_again(min(self._verify_seconds, SETTLE_SECONDS) if acted else self._verify_seconds, wanted)
        took_seconds = None
        if acted and self._measured_from is not None:
            took_seconds = max(0.0, (self._clock.now() - self._measured_from).total_seconds())
        self._measured_from = None
        self._reports.report_success(took_seconds)

    def _report_failure(self, error: Exception, number: int) -> None:
        self._look_again(_AGAIN_SECONDS, self._wanted())
        context = AttemptContext(self._order, self._carried_out, number, self._clock.now())
        if isinstance(error, AlterError):
            for entity, refusal in error.refused.items():
                self._reports.report_failure(entity, error.plans[entity], context, detail_of(refusal))
        else:
            self._reports.report_failure(None, None, context, detail_of(error))
