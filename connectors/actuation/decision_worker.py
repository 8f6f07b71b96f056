"""Carries out decisions that each ask for one action: retried until it is done or the decision is lifted or expired."""

from abc import abstractmethod
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import Any, ClassVar, Generic

import structlog
from tenacity import retry_if_exception_type, stop_after_attempt
from tenacity.stop import stop_base

from connectors.actuation.action_rate import ActionRate
from connectors.actuation.decision_queue import ActionableT
from connectors.actuation.reports import (
    ActionError,
    ActionResult,
    CommonOutcome,
    DecisionReports,
    Observed,
    UnknownOutcomeError,
)
from connectors.actuation.worker import NOT_OURS_SECONDS, Clock, Worker
from policies.decisions import Mode
from policies.succession import has_expired

_AGAIN_SECONDS = 5.0
"""Between series of attempts that failed."""

_log = structlog.get_logger(__name__)


@dataclass
class _Pending(Generic[ActionableT]):
    """A decision that is still to be done."""

    decision: ActionableT
    try_at: float
    """By the monotonic clock."""
    failed_attempts: int = 0
    is_unsure: bool = False
    """An attempt got no answer: what is as it should be may be its work."""


class DecisionWorker(Worker[ActionableT], Generic[ActionableT, Observed]):
    """Carries out one cluster's decisions, one at a time.

    Args:
        cluster: its name.
        reports: told of what was done and refused.
        clock: the time.
        grace: how long after a decision nothing is done yet.
    """

    wanted: ClassVar[AbstractSet[str]]
    """The verdicts that ask for something to be done."""
    again: ClassVar[AbstractSet[str]] = frozenset({CommonOutcome.FAILED})
    """The outcomes after which it is tried again."""
    renewals_overtake: ClassVar[bool] = False
    """Whether a decision to be done is overtaken by the next that is; else that only renews it."""
    series: ClassVar[stop_base] = stop_after_attempt(1)
    """How many attempts are made in a row."""
    most_a_minute: ClassVar[int] = 60
    """So many actions are done within a minute; what comes beyond waits, and a metric says so."""

    def __init__(
        self,
        cluster: str,
        reports: DecisionReports[ActionableT, Observed, Any],
        clock: Clock,
        grace: timedelta = timedelta(0),
    ) -> None:
        super().__init__(cluster, clock)
        self._reports = reports
        self._grace = grace
        self._pending: dict[str, _Pending[ActionableT]] = {}
        self._actions = ActionRate(self.most_a_minute, clock.monotonic)

    @abstractmethod
    def _attempt(self, decision: ActionableT, stop: Event) -> ActionResult[Observed] | None:
        """Try it once.

        Returns:
            What came of it; None when it was postponed.

        Raises:
            UnknownOutcomeError: no good answer to an action.
            ActionError: it cannot be done now.
        """

    # --- what is known before the start

    def recall(self, decision: ActionableT, appended_at: datetime) -> None:
        """Learn a decision made before this start, in order; what has expired by now is history."""
        if self._queue.recall(decision, appended_at):
            self._pending.pop(decision.subject, None)
            if decision.verdict in self.wanted and not has_expired(decision, self._clock.now()):
                self._add(decision)

    def recall_done(self, decision_id: str) -> None:
        """Learn that a decision was carried out before this start."""
        self._pending = {s: each for s, each in self._pending.items() if each.decision.decision_id != decision_id}

    @property
    def pending_since(self) -> datetime | None:
        """When the oldest of those still to be done was decided; None when there is none."""
        return min((each.decision.decided_at for each in self._pending.values()), default=None)

    # --- what comes in

    def _entered(self, decision: ActionableT, appended_at: datetime) -> None:  # noqa: ARG002
        before, is_wanted = self._pending.pop(decision.subject, None), decision.verdict in self.wanted
        is_renewal = is_wanted and not self.renewals_overtake
        if before is not None and not is_renewal:
            self._reports.superseded(before.decision, decision, self._clock.now())
        if is_wanted:
            self._add(decision, is_unsure=is_renewal and before is not None and before.is_unsure)

    def _refused(self, decision: ActionableT, in_force: ActionableT) -> None:
        if decision.verdict in self.wanted:
            self._reports.superseded(decision, in_force, self._clock.now())

    def _add(self, decision: ActionableT, *, is_unsure: bool = False) -> None:
        # Bounded: another machine's clock may be ahead of ours.
        left = min(self._grace, max(timedelta(0), decision.decided_at + self._grace - self._clock.now()))
        try_at = self._clock.monotonic() + left.total_seconds()
        self._pending[decision.subject] = _Pending(decision, try_at, is_unsure=is_unsure)

    # --- what is due

    def reconcile(self, stop: Event) -> None:
        """Take in what has come, and try what is due."""
        self._queue.read()
        for decision in self._due():
            if stop.is_set():
                return
            self._try(decision, stop)
        self._reports.failing(yes=any(each.failed_attempts for each in self._pending.values()))
        self._reports.held(yes=bool(self._pending) and self._actions.left_seconds() > 0)

    def pause_seconds(self) -> float | None:
        """Until something is to be tried; None when nothing is pending."""
        first = min((each.try_at for each in self._pending.values()), default=None)
        return None if first is None else max(0.0, first - self._clock.monotonic())

    def _due(self) -> list[ActionableT]:
        now = self._clock.monotonic()
        return [each.decision for each in self._pending.values() if each.try_at <= now]

    def _state(self, decision: ActionableT) -> _Pending[ActionableT] | None:
        """How it stands with a decision; None when it is not to be done (any more)."""
        pending = self._pending.get(decision.subject)
        return pending if pending is not None and pending.decision is decision else None

    def _is_unsure(self, decision: ActionableT) -> bool:
        """Whether an earlier attempt got no answer, so that what is as it should be may be its work."""
        pending = self._state(decision)
        return pending is not None and pending.is_unsure

    def _postpone(self, decision: ActionableT, seconds: float) -> None:
        """It is to be tried (again) in so many seconds, or when it expires."""
        if (pending := self._state(decision)) is not None:
            if decision.expires_at is not None:
                seconds = min(seconds, (decision.expires_at - self._clock.now()).total_seconds())
            pending.try_at = self._clock.monotonic() + max(0.0, seconds)

    def _is_held(self, decision: ActionableT) -> bool:
        """To be asked before each action: whether it must wait; else it counts as one.

        It must while too many were done just now, or while the cluster may be another process's.
        """
        if not self.may_act():
            self._postpone(decision, NOT_OURS_SECONDS)
            return True
        if wait_seconds := self._actions.left_seconds():
            self._postpone(decision, wait_seconds)
            return True
        self._actions.take()
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
        except Exception as error:  # whatever it is, the next decision must find somebody at work
            _log.exception("carrying a decision out failed", cluster=self._cluster)
            result = ActionResult(CommonOutcome.FAILED, type(error).__name__)
        if result is not None:
            self._conclude(decision, result, number)

    def _attempt_if_in_force(self, decision: ActionableT, stop: Event) -> ActionResult[Observed] | None:
        self._queue.read()
        pending = self._state(decision)
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
        pending = self._state(decision)
        failed_before = pending.failed_attempts if pending is not None else 0
        self._reports.found(decision, result, attempt=failed_before + attempts, at=self._clock.now())
        if pending is not None and result.outcome in self.again:
            pending.failed_attempts += attempts
            self._postpone(decision, _AGAIN_SECONDS)
        elif pending is not None:
            del self._pending[decision.subject]
