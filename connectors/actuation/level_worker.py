"""Keeps levels on a foreign system as decided, such as quotas on Kafka, with the original of each recorded there.

Each attempt reads the levels and their records before it writes, and is planned from them. So an attempt that was
interrupted anywhere is simply repeated. A level is only set after, or together with, the record of its original.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import Any, ClassVar, Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge
from tenacity import retry_if_exception_type, stop_after_attempt
from tenacity.stop import stop_base

from connectors.actuation.worker import AGAIN_SECONDS, NOT_OURS_SECONDS, ActuatorMetrics, AuditLog, Clock, Worker
from connectors.collection import ChangeFilter
from policies.free_space.levels import (
    FactorDecision,
    LevelPlan,
    LimitApplication,
    LimitReason,
    LimitVerdict,
    WantedFactor,
)
from policies.observations import ReportResult

LOOK_SECONDS = 5.0
"""The longest time between two looks while a level slows somebody down: somebody else may open the gate."""
LONGEST_PAUSE_SECONDS = 3600.0
_ONE_ATTEMPT = stop_after_attempt(1)
_STATE_REPEATED_SECONDS = 60.0
"""The time after which an unchanged reading is published again."""

NONE_SET = LevelPlan(LimitVerdict.KEEP, LimitReason.DECIDED)
"""Stands for the plan of a level that is gone, or of a cluster on which none is set or put back."""

WantedT = TypeVar("WantedT")
"""The wanted state of all levels."""
MetricsT = TypeVar("MetricsT", bound="LevelMetrics")

_log = structlog.get_logger(__name__)


class NotOursError(Exception):
    """The cluster may belong to another process now, so nothing was done."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The time of an attempt, its number, and what it carries out."""

    at: datetime
    wanted: WantedFactor | None = None
    number: int = 1
    order: FactorDecision | None = None


class LevelMetrics(ActuatorMetrics):
    """The metrics of one actuator of levels, shared by all clusters.

    Args:
        name: the beginning of their names.
        target: the label with the thing that is limited.
        limits: in words, such as `quotas`.
        system: the system that has them.
    """

    def __init__(self, registry: CollectorRegistry, name: str, target: str, limits: str, system: str) -> None:
        why = f"1 while {limits} cannot be set as decided because requests to {system} fail."
        super().__init__(registry, f"{name}_failing", why)
        self.rate = Gauge(
            f"{name}_bytes_per_second",
            f"The limit that Headgate has set by {limits} to slow clients down; absent if it has set none.",
            ("cluster", target),
            registry=registry,
        )
        self.outcomes = Counter(
            f"{name}_applications",
            f"Outcomes of decisions for {limits}: applied, unchanged, refused or failed.",
            ("cluster", "outcome"),
            registry=registry,
        )

    def show_rate(self, cluster: str, target: object, rate: int | None) -> None:
        """Show the rate that Headgate has set for a target; None: it has set none."""
        if rate is not None:
            self.rate.labels(cluster, str(target)).set(rate)
        else:
            self.rate.remove(cluster, str(target))


class LevelReports(AuditLog[MetricsT], ABC, Generic[MetricsT]):
    """Reports the outcomes of one cluster's levels; an outcome that repeats the target's last one is left out.

    The target None stands for all of the cluster.
    """

    action: ClassVar[str]
    """The first word of the log lines."""

    @abstractmethod
    def _event(self, target: Hashable, attempt: Attempt, **shared: Any) -> LimitApplication:
        """Return the event that reports an outcome; `shared` are the fields that all kinds of events have."""

    def report_done(
        self, target: Hashable, plan: LevelPlan, attempt: Attempt, content: object, **fields: object
    ) -> None:
        """Report that a level is as planned, or was refused by the plan; `content` is compared with the last one."""
        outcome = plan.verdict.result
        if self.is_new(target, content) or outcome is ReportResult.APPLIED:
            self.emit(target, plan, outcome, attempt, **fields)

    def report_failure(
        self, target: Hashable, plan: LevelPlan, attempt: Attempt, detail: str, rate: int | None = None
    ) -> None:
        """Report that a level could not be read or set; another detail or rate makes it new.

        After a failure of the whole cluster, the next success of each level is reported even if nothing had to be done.
        """
        self.show(failing=True)
        if self.is_new(target, (ReportResult.FAILED, detail, rate)):
            self.emit(target, plan, ReportResult.FAILED, attempt, detail=detail)
            if target is None:
                failures = (ReportResult.FAILED,)
                self._last = {about: c for about, c in self._last.items() if isinstance(c, tuple) and c[:1] == failures}

    def report_success(self, at: datetime, *, failing: bool = False) -> None:
        """Report that a look at all levels has ended, if the last one failed. The next failure is new."""
        self.show(failing=failing)
        if self._last.pop(None, None) is not None and not self._last:  # no report of a single level shows it
            self.emit(None, NONE_SET, ReportResult.UNCHANGED, Attempt(at))

    def emit(
        self, target: Hashable, plan: LevelPlan, outcome: ReportResult, attempt: Attempt, **fields: object
    ) -> None:
        """Report an outcome, be it new or not; `fields` are further ones of the event."""
        self._metrics.outcomes.labels(self._cluster, outcome.value).inc()
        event = self._event(
            target,
            attempt,
            cluster=self._cluster,
            factor=None if attempt.wanted is None else attempt.wanted.factor,
            verdict=plan.verdict,
            reason=plan.reason,
            rate_bytes_per_second=plan.rate,
            previous_bytes_per_second=plan.found,
            outcome=outcome,
            **fields,
        ).explained(attempt.at)
        self.write(self.action, outcome, event, attempt.at)


class LevelWorker(Worker[FactorDecision], Generic[WantedT]):
    """Keeps one cluster's levels as the decisions in force want them.

    Args:
        observe: publishes a reading of the levels.
        verify_seconds: time between two looks at levels that are right.
        retried: the errors after which another attempt of a series is made; all others are faults of ours.
        series: the limit of a series of attempts.
    """

    def __init__(
        self,
        cluster: str,
        observe: Callable[[Any], None],
        clock: Clock,
        *,
        verify_seconds: float,
        retried: tuple[type[Exception], ...],
        series: stop_base = _ONE_ATTEMPT,
    ) -> None:
        super().__init__(cluster, clock)
        self._state = ChangeFilter(observe, _STATE_REPEATED_SECONDS, clock.monotonic)
        self._verify_seconds = verify_seconds
        self._retried = retried
        self._series = series
        self._carried_out: WantedT | None = None
        """The wanted state of the last series of attempts."""
        self._look_at = 0.0

    def _accept(self, decision: FactorDecision, appended_at: datetime) -> None:
        """The decisions in force are all that counts."""

    def _reject(self, decision: FactorDecision, in_force: FactorDecision) -> None:
        _log.warning("a decision came too late", subject=decision.subject, in_force=in_force.sequence)

    @abstractmethod
    def _wanted(self) -> WantedT:
        """Return the state that the decisions in force want now."""

    @abstractmethod
    def _attempt(self, wanted: WantedT, number: int) -> float:
        """Bring the levels to the wanted state. Returns the time until the next look, in seconds.

        Raises:
            NotOursError: this process must not act on the cluster (any more).
        """

    @abstractmethod
    def _fail(self, error: Exception, wanted: WantedT, number: int) -> None:
        """Report that a series of attempts failed with the last one, of this number."""

    def _require_ours(self) -> None:
        """Must be called before each change.

        Raises:
            NotOursError: the cluster may belong to another process.
        """
        if not self.may_act():
            raise NotOursError

    def _is_due(self) -> bool:
        # A new factor does not wait for the pause after a series of failed attempts.
        return self._clock.monotonic() >= self._look_at or self._wanted() != self._carried_out

    def pause_seconds(self) -> float:
        """Return the time until the next look at the levels, or until a decision in force expires."""
        if self._is_due():
            return 0.0
        now = self._clock.now()
        ends = (each.expires_at for each in self._in_force.values())
        left = ((at - now).total_seconds() for at in ends if at is not None)
        look_seconds = max(0.0, self._look_at - self._clock.monotonic())
        return min(look_seconds, *(each for each in left if each > 0), LONGEST_PAUSE_SECONDS)

    def reconcile(self, stop: Event) -> None:
        """Process received decisions, and bring the levels to the wanted state if that is due."""
        self._read_inbox()
        if self._is_due():
            self._try(stop)

    def _try(self, stop: Event) -> None:
        number, wanted = 1, self._wanted()
        retry = retry_if_exception_type(self._retried)
        attempts = self._retrying(
            stop, self._series, first_pause_seconds=0.2, longest_pause_seconds=5.0, retry=retry, reraise=True
        )
        seconds = AGAIN_SECONDS
        try:
            for attempt in attempts:
                number = attempt.retry_state.attempt_number
                with attempt:
                    self._read_inbox()
                    wanted = self._wanted()
                    seconds = self._attempt(wanted, number)
        except NotOursError:
            seconds = NOT_OURS_SECONDS
        except Exception as error:
            if not isinstance(error, self._retried):  # this thread must survive any exception: later decisions need it
                _log.exception("carrying out a decision failed", cluster=self._cluster)
            self._fail(error, wanted, number)
        self._look_at, self._carried_out = self._clock.monotonic() + seconds, wanted
