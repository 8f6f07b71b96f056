"""Carries out decisions that each ask for one action: retried until it is done or the decision is lifted or expired."""

from abc import abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from threading import Event
from typing import ClassVar, Generic, TypeVar

import structlog
from tenacity import retry_if_exception_type, stop_after_attempt
from tenacity.stop import stop_base

from connectors.actuation.worker import (
    AGAIN_SECONDS,
    NOT_OURS_SECONDS,
    ActionableT,
    ActionRate,
    AuditLog,
    Clock,
    CommonOutcome,
    MetricsT,
    PublishAudit,
    Worker,
)
from policies.decisions import Mode, has_expired
from policies.observations import ActuatorEvent

_log = structlog.get_logger(__name__)

Observed = TypeVar("Observed")
"""What an actuator found, in addition to the outcome."""


class ActionError(Exception):
    """An action cannot be done now, and was not done. The message gives the reason in one line without secrets."""


class UnknownOutcomeError(ActionError):
    """An action got no clear answer: it may have been done or not. The next attempt finds out."""


@dataclass(frozen=True, slots=True)
class ActionResult(Generic[Observed]):
    """The result of an attempt."""

    outcome: StrEnum
    detail: str | None = None
    observed: Observed | None = None


@dataclass
class _Pending(Generic[ActionableT]):
    """A decision that is not carried out yet."""

    decision: ActionableT
    try_at: float
    """In seconds of the monotonic clock."""
    failed_attempts: int = 0
    is_unsure: bool = False
    """An attempt got no answer, so the wanted state may be its effect."""


class OrderWorker(Worker[ActionableT], Generic[ActionableT, Observed, MetricsT]):
    """Carries out one cluster's decisions, one at a time. It reports each outcome of a subject when it is new.

    Args:
        grace: time after a decision before the first attempt.
    """

    wanted: ClassVar[AbstractSet[str]]
    """The verdicts that ask for an action."""
    again: ClassVar[AbstractSet[str]] = frozenset({CommonOutcome.FAILED})
    """The outcomes after which it is retried."""
    renewals_overtake: ClassVar[bool] = False
    """Whether the next decision that asks for an action supersedes a pending one; otherwise it only renews it."""
    series: ClassVar[stop_base] = stop_after_attempt(1)
    """The limit of a series of attempts."""
    levels: ClassVar[Mapping[str, str]] = {}
    """The levels of the log lines of its own outcomes."""
    most_a_minute: ClassVar[int] = 60
    """The limit of actions within a minute. Further ones wait, and a metric shows it."""

    def __init__(
        self, cluster: str, publish: PublishAudit, metrics: MetricsT, clock: Clock, grace: timedelta = timedelta(0)
    ) -> None:
        super().__init__(cluster, clock)
        self._metrics = metrics
        self._audit = AuditLog(cluster, publish, metrics, self.levels)
        self._grace = grace
        self._pending: dict[str, _Pending[ActionableT]] = {}
        self._actions = ActionRate(self.most_a_minute, clock.monotonic)

    @abstractmethod
    def _attempt(self, decision: ActionableT, stop: Event) -> ActionResult[Observed] | None:
        """Try it once.

        Returns:
            The result; None if the decision was postponed.

        Raises:
            UnknownOutcomeError: an action got no clear answer.
            ActionError: it cannot be done now.
        """

    @abstractmethod
    def _content(self, decision: ActionableT, result: ActionResult[Observed]) -> object:
        """Return the part of a result by which it is compared with the last one about the same subject."""

    @abstractmethod
    def _event(
        self, decision: ActionableT, result: ActionResult[Observed], attempt: int, at: datetime
    ) -> ActuatorEvent:
        """Return the event that reports a result."""

    @abstractmethod
    def _count(self, decision: ActionableT, result: ActionResult[Observed]) -> None:
        """Update the metrics of its own."""

    def _report(self, decision: ActionableT, result: ActionResult[Observed], attempt: int = 1) -> None:
        self._count(decision, result)
        now = self._clock.now()
        self._audit.write(decision.verdict, result.outcome, self._event(decision, result, attempt, now), now)

    def _report_superseded(self, decision: ActionableT, in_force: ActionableT) -> None:
        detail = f"sequence {in_force.sequence} is in force: {in_force.verdict}"
        self._report(decision, ActionResult(CommonOutcome.SUPERSEDED, detail))

    # --- before the start

    def recall(self, decision: ActionableT, appended_at: datetime) -> bool:
        """Process a decision from before this start; an expired one is not carried out."""
        if is_in_force := super().recall(decision, appended_at):
            self._pending.pop(decision.subject, None)
            if decision.verdict in self.wanted and not has_expired(decision, self._clock.now()):
                self._add(decision)
        return is_in_force

    def recall_done(self, subject: str, decision_id: str) -> None:
        """Drop a decision that was carried out before this start."""
        pending = self._pending.get(subject)
        if pending is not None and pending.decision.decision_id == decision_id:
            del self._pending[subject]

    @property
    def pending_since(self) -> datetime | None:
        """The time of the oldest pending decision; None if none is pending."""
        return min((each.decision.decided_at for each in self._pending.values()), default=None)

    # --- incoming decisions

    def _accept(self, decision: ActionableT, appended_at: datetime) -> None:  # noqa: ARG002
        before, is_wanted = self._pending.pop(decision.subject, None), decision.verdict in self.wanted
        is_renewal = is_wanted and not self.renewals_overtake
        if before is not None and not is_renewal:
            self._report_superseded(before.decision, decision)
        if is_wanted:
            self._add(decision, is_unsure=is_renewal and before is not None and before.is_unsure)

    def _reject(self, decision: ActionableT, in_force: ActionableT) -> None:
        if decision.verdict in self.wanted:
            self._report_superseded(decision, in_force)

    def _add(self, decision: ActionableT, *, is_unsure: bool = False) -> None:
        # At most `grace`: the clock of the machine that decided may be ahead of ours.
        left = min(self._grace, max(timedelta(0), decision.decided_at + self._grace - self._clock.now()))
        try_at = self._clock.monotonic() + left.total_seconds()
        self._pending[decision.subject] = _Pending(decision, try_at, is_unsure=is_unsure)

    # --- due work

    def reconcile(self, stop: Event) -> None:
        """Process received decisions, and try those that are due."""
        self._read_inbox()
        for decision in self._due():
            if stop.is_set():
                return
            self._try(decision, stop)
        is_held = bool(self._pending) and self._actions.wait_seconds() > 0
        self._audit.show(failing=any(each.failed_attempts for each in self._pending.values()), held=is_held)

    def pause_seconds(self) -> float | None:
        """Return the time until the next attempt; None if no decision is pending."""
        first = min((each.try_at for each in self._pending.values()), default=None)
        return None if first is None else max(0.0, first - self._clock.monotonic())

    def _due(self) -> list[ActionableT]:
        now = self._clock.monotonic()
        return [each.decision for each in self._pending.values() if each.try_at <= now]

    def _find_pending(self, decision: ActionableT) -> _Pending[ActionableT] | None:
        """Return the pending entry of exactly this decision; None if it is done, lifted or superseded."""
        pending = self._pending.get(decision.subject)
        return pending if pending is not None and pending.decision is decision else None

    def _is_unsure(self, decision: ActionableT) -> bool:
        """Whether an earlier attempt got no answer, so that the wanted state may be its effect."""
        pending = self._find_pending(decision)
        return pending is not None and pending.is_unsure

    def _postpone(self, decision: ActionableT, seconds: float) -> None:
        """Schedule the next attempt, at the latest for the decision's expiry."""
        if (pending := self._find_pending(decision)) is not None:
            if decision.expires_at is not None:
                seconds = min(seconds, (decision.expires_at - self._clock.now()).total_seconds())
            pending.try_at = self._clock.monotonic() + max(0.0, seconds)

    def _is_held(self, decision: ActionableT) -> bool:
        """Return whether the next action must wait, and postpone it then; otherwise count the action.

        Must be called before each action. An action waits while the rate limit is reached, or while the cluster may
        belong to another process.
        """
        wait_seconds = self._actions.wait_seconds() if self.may_act() else NOT_OURS_SECONDS
        if wait_seconds:
            self._postpone(decision, wait_seconds)
            return True
        self._actions.count_action()
        return False

    # --- attempts

    def _try(self, decision: ActionableT, stop: Event) -> None:
        number, result = 1, None
        retry = retry_if_exception_type(ActionError)
        attempts = self._retrying(
            stop, self.series, first_pause_seconds=0.01, longest_pause_seconds=2.0, retry=retry, reraise=True
        )
        try:
            for attempt in attempts:
                number = attempt.retry_state.attempt_number
                with attempt:
                    result = self._attempt_if_in_force(decision, stop)
        except ActionError as error:
            result = ActionResult(CommonOutcome.FAILED, str(error))
        except Exception as error:  # this thread must survive any exception: later decisions need it
            _log.exception("carrying out a decision failed", cluster=self._cluster)
            result = ActionResult(CommonOutcome.FAILED, type(error).__name__)
        if result is not None:
            self._conclude(decision, result, number)

    def _attempt_if_in_force(self, decision: ActionableT, stop: Event) -> ActionResult[Observed] | None:
        self._read_inbox()
        pending = self._find_pending(decision)
        if pending is None:
            return None
        if decision.mode is Mode.SHADOW:
            return ActionResult(CommonOutcome.SHADOW)
        if has_expired(decision, self._clock.now()):
            return ActionResult(CommonOutcome.EXPIRED)
        if not self.may_act():
            self._postpone(decision, NOT_OURS_SECONDS)
            return None
        try:
            return self._attempt(decision, stop)
        except UnknownOutcomeError:
            pending.is_unsure = True
            raise

    def _conclude(self, decision: ActionableT, result: ActionResult[Observed], attempts: int) -> None:
        pending = self._find_pending(decision)
        failed_before = pending.failed_attempts if pending is not None else 0
        is_new = self._audit.is_new(decision.subject, self._content(decision, result))
        if is_new or result.outcome == CommonOutcome.DONE:
            self._report(decision, result, failed_before + attempts)
        if pending is not None and result.outcome in self.again:
            pending.failed_attempts += attempts
            self._postpone(decision, AGAIN_SECONDS)
        elif pending is not None:
            del self._pending[decision.subject]
