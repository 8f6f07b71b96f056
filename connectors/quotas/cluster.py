"""Keeps the quotas of one watched cluster as its decision in force wants them.

What is to be done is planned anew each time from what is found (policies/throttle/quota_plan.py), so an attempt that
was cut short anywhere is simply made again. A rate is set only once it, and what was there before, is written down.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_any, wait_random_exponential
from tenacity.stop import stop_when_event_set

from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.outcomes import detail_of
from connectors.kafka.quotas import FAILURES, QuotaClient
from connectors.quotas.journal import Journal, JournalError
from connectors.quotas.metrics import QuotaMetrics
from connectors.quotas.obstacles import Obstacles, find_obstacles
from connectors.quotas.reports import Context, Reports
from connectors.quotas.standing import Standing
from policies.errors import UserError
from policies.throttle.quota_plan import (
    PendingWrite,
    QuotaPlan,
    QuotaReason,
    QuotaSituation,
    QuotaVerdict,
    Rate,
    Wanted,
    plan,
)
from policies.throttle.quota_settings import Entity, QuotaSettings

SETTLE_SECONDS = 5.0
"""Another broker may show an altered quota so much later."""

_AGAIN_SECONDS = 5.0
"""Between series of attempts that failed."""
_ATTEMPTS_TO_RELEASE = 5
_RELEASED = Wanted(1.0, 1.0, QuotaReason.RELEASED)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WatchedQuotas:
    """One cluster whose quotas carry its decisions out."""

    cluster: str
    kafka: WatchedKafka
    settings: QuotaSettings | None
    """Null: nothing is set, only what was set before is put back."""
    fallback_factor: float


class AlterError(Exception):
    """Kafka refused to alter some quotas."""

    def __init__(self, refused: dict[Entity, Exception], plans: dict[Entity, QuotaPlan]) -> None:
        super().__init__(", ".join(f"{entity}: {detail_of(error)}" for entity, error in refused.items()))
        self.refused = refused
        self.plans = plans


_RETRIED: tuple[type[Exception], ...] = (*FAILURES, JournalError, AlterError)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ClusterActuator:
    """Carries out one cluster's decisions, which come in by its `standing`. Use it from one thread.

    Args:
        watched: the cluster and its settings.
        journal: where what must not be forgotten is written.
        reports: told of what was done and refused.
        metrics: shared by all clusters.
        clock: the time.
    """

    def __init__(
        self,
        watched: WatchedQuotas,
        journal: Journal,
        reports: Reports,
        metrics: QuotaMetrics,
        *,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._watched = watched
        self._reports = reports
        self._metrics = metrics
        self._clock = clock
        self.standing = Standing(watched.cluster, journal, reports, clock)
        settings = watched.settings
        self._bases = {spec.entity: spec.base for spec in settings.entities} if settings else {}
        self._attempts = settings.attempts if settings else _ATTEMPTS_TO_RELEASE
        self._verify_seconds = settings.verify_interval.total_seconds() if settings else _AGAIN_SECONDS
        self._releasing = False
        self._carried_out: Wanted | None = None
        self._look_at = 0.0
        self._puts: dict[Entity, tuple[float, PendingWrite]] = {}
        self._obstacles: Obstacles | None = None
        self._client: QuotaClient | None = None
        self._fingerprint = ""

    def preflight(self) -> None:
        """Find out whether the settings fit the cluster; one that does not answer is looked at later.

        Raises:
            UserError: they do not; all problems, one a line.
        """
        try:
            problems = list(self._problems(self._connected()))
        except UserError:
            raise
        except FAILURES as error:
            _log.warning("quotas cannot be checked yet", cluster=self._watched.cluster, detail=detail_of(error))
            self._disconnect()
            return
        if problems:
            self._disconnect()
            place = f"clusters.{self._watched.cluster}.quotas"
            raise UserError("\n".join(f"{place}: {problem}." for problem in problems))

    def _problems(self, client: QuotaClient) -> list[str]:
        if self._watched.settings is None:
            return []
        self._obstacles = find_obstacles(client, self._watched.settings)
        stop = Wanted(0.0, 0.0, QuotaReason.DECIDED)
        found = client.rates(list(self._bases))
        without = [e for e in self._bases if plan(self._situation(e, stop, found[e])).reason is QuotaReason.NO_BASE]
        remedy = "has neither a `base` nor a producer_byte_rate in Kafka: what is factor 1.0 for it?"
        return [*self._obstacles.explained(), *(f"entity {entity} {remedy} Set one of the two" for entity in without)]

    def run(self, stop: threading.Event) -> None:
        """Carry decisions out until `stop` is set (and there are news). Quotas then stay as they are."""
        try:
            while not stop.is_set():
                self.standing.read()
                if self._is_due():
                    self._try(stop)
                else:
                    self.standing.news.wait(self._pause_seconds())
        finally:
            self._disconnect()

    def release(self, stop: threading.Event) -> list[Entity]:
        """Put back everything that was there before; what could not be."""
        self._releasing = True
        try:
            if self.standing.held:
                self._try(stop)
        finally:
            self._disconnect()
        return self.standing.held

    def _wanted(self) -> Wanted | None:
        return None if self._releasing else self.standing.wanted(self._watched.fallback_factor)

    def _targets(self) -> dict[Entity, Wanted]:
        """What is wanted of each entity; those that are no longer in the settings are put back."""
        wanted = self._wanted()
        targets = dict.fromkeys(self._bases, wanted) if wanted is not None else {}
        left = (entity for entity in self.standing.held if self._releasing or entity not in self._bases)
        return {**dict.fromkeys(left, _RELEASED), **targets}

    def _is_due(self) -> bool:
        if not self._targets():
            return False
        # A series of attempts that failed is waited out only when nothing new is wanted.
        if time.monotonic() >= self._look_at or self._wanted() != self._carried_out:
            return True
        self.standing.appended_ms = None  # a heartbeat: nothing to measure
        return False

    def _pause_seconds(self) -> float:
        look_in_seconds = max(0.0, self._look_at - time.monotonic()) if self._targets() else self._verify_seconds
        expires_in_seconds = self.standing.expires_in_seconds()
        return look_in_seconds if expires_in_seconds is None else min(look_in_seconds, expires_in_seconds)

    # --- attempts

    def _try(self, stop: threading.Event) -> None:
        retrying = Retrying(
            stop=stop_any(stop_after_attempt(self._attempts), stop_when_event_set(stop)),
            wait=wait_random_exponential(multiplier=0.2, max=5.0),
            retry=retry_if_exception_type(_RETRIED),
            sleep=self._nap,
            reraise=True,
        )
        number = 1
        try:
            for attempt in retrying:
                number = attempt.retry_state.attempt_number
                with attempt:
                    self._attempt(number)
        except _RETRIED as error:
            self._failed(error, number)
        except Exception as error:  # whatever it is, the next decision must find somebody at work
            _log.exception("carrying a decision out failed", cluster=self._watched.cluster)
            self._failed(error, number)

    def _nap(self, seconds: float) -> None:
        """Wait; news cut it short."""
        self.standing.news.wait(seconds)

    def _attempt(self, number: int) -> None:
        self.standing.read()
        wanted, targets = self._wanted(), self._targets()
        try:
            client = self._connected()
            found = client.rates(list(targets))
            self._find_obstacles(client, wanted)
            plans = {entity: plan(self._situation(entity, targets[entity], found[entity])) for entity in targets}
            self._carry_out(client, plans, Context(self.standing.order, wanted, number, self._clock()))
        except BaseException:
            self._disconnect()
            raise
        self._succeeded(wanted, acted=any(planned.acts for planned in plans.values()))

    def _find_obstacles(self, client: QuotaClient, wanted: Wanted | None) -> None:
        """Between changes only: a decision does not wait for it."""
        if self._watched.settings is None or self._releasing:
            return
        if self._obstacles is None:
            self._obstacles = find_obstacles(client, self._watched.settings)
        elif wanted == self._carried_out:
            with suppress(KafkaError):  # what was found before still counts
                self._obstacles = find_obstacles(client, self._watched.settings)

    def _situation(self, entity: Entity, wanted: Wanted, found: Rate) -> QuotaSituation:
        settings = self._watched.settings
        return QuotaSituation(
            wanted=wanted,
            record=self.standing.record(entity),
            found=found,
            base=self._bases.get(entity),
            floor=int(settings.floor_bytes_per_second) if settings else 0,
            pending=self._recent_put(entity),
            obstacle=self._obstacles.of(entity) if self._obstacles else None,
        )

    def _recent_put(self, entity: Entity) -> PendingWrite | None:
        at, put = self._puts.get(entity, (0.0, None))
        return put if time.monotonic() - at < SETTLE_SECONDS else None

    def _carry_out(self, client: QuotaClient, plans: dict[Entity, QuotaPlan], context: Context) -> None:
        self.standing.write({e: p.record for e, p in plans.items() if p.verdict is QuotaVerdict.SET})
        changes = {e: p.rate for e, p in plans.items() if p.acts}
        refused = client.alter(changes) if changes else {}
        now = time.monotonic()
        self._puts |= {e: (now, PendingWrite(rate)) for e, rate in changes.items() if e not in refused}
        done = {e: p for e, p in plans.items() if e not in refused}
        for entity, planned in done.items():
            self._reports.carried_out(entity, planned, context)
            self._metrics.shows(self._watched.cluster, entity, planned.rate if planned.holds else None)
        self.standing.write({e: p.record for e, p in done.items() if p.verdict is not QuotaVerdict.SET})
        if refused:
            raise AlterError(refused, plans)

    def _succeeded(self, wanted: Wanted | None, *, acted: bool) -> None:
        # What was just set is looked at soon.
        look_in_seconds = min(self._verify_seconds, SETTLE_SECONDS) if acted else self._verify_seconds
        self._look_at, self._carried_out = time.monotonic() + look_in_seconds, wanted
        self._reports.succeeded()
        self._metrics.failing(self._watched.cluster, yes=False)
        if acted and self.standing.appended_ms is not None:
            took_seconds = max(0.0, self._clock().timestamp() - self.standing.appended_ms / 1000)
            self._metrics.took(self._watched.cluster, took_seconds)
        self.standing.appended_ms = None

    def _failed(self, error: Exception, number: int) -> None:
        # To be begun again at once only if something else is wanted.
        self._look_at, self._carried_out = time.monotonic() + _AGAIN_SECONDS, self._wanted()
        context = Context(self.standing.order, self._carried_out, number, self._clock())
        self._metrics.failing(self._watched.cluster, yes=True)
        if isinstance(error, AlterError):
            for entity, refusal in error.refused.items():
                self._reports.failed(entity, error.plans[entity], context, detail_of(refusal))
        else:
            self._reports.failed(None, None, context, detail_of(error))

    # --- the connection

    def _connected(self) -> QuotaClient:
        """A client that has just had an answer; made anew when a certificate or a password has changed on disk."""
        fingerprint = self._watched.kafka.fingerprint()
        if self._client is not None and fingerprint != self._fingerprint:
            self._disconnect()
        if self._client is None:
            self._client = QuotaClient(self._watched.kafka, self._watched.kafka.timeout_seconds)
            self._fingerprint = fingerprint
        self._client.describe()
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
