"""The recovery in a new session: the steps of the plan in order, each retried until it is done."""

from collections.abc import Callable

import structlog

from connectors.sessions.agent.bundles import MOST_ATTEMPTS, Bundles, BundleStage, Retry
from connectors.sessions.agent.callbacks import OwnershipCallbacks
from connectors.sessions.agent.reconciler import CurrentSession, OwnershipReconciler
from connectors.sessions.agent.reporter import RecoveryReporter
from connectors.sessions.agent.strategy import Outage, RecoveryStrategy
from policies.sessions.decisions import SessionDecision
from policies.sessions.readings import RecoveryAction
from policies.sessions.settings import RecoveryStep

_log = structlog.get_logger(__name__)


class SessionRecovery:
    """Carries out the recovery of one member. Only the agent's thread may use it.

    Args:
        outage: describes a loss, given its time and the number of failed attempts.
    """

    def __init__(
        self,
        reconciler: OwnershipReconciler,
        bundles: Bundles,
        strategy: RecoveryStrategy,
        callbacks: OwnershipCallbacks,
        reporter: RecoveryReporter,
        clock: Callable[[], float],
        outage: Callable[[float, int], Outage],
    ) -> None:
        self._outage = outage
        self._reconciler = reconciler
        self._bundles = bundles
        self._strategy = strategy
        self._callbacks = callbacks
        self._reporter = reporter
        self._clock = clock
        self._left: set[RecoveryStep] = set()
        self._retry = Retry()
        self._settle_until = 0.0
        """End of the time in which the plan waits for the bundles; 0 while it does not wait."""
        self._attempt = 0
        self._shutdown: SessionDecision | None = None
        self._shutdown_retry = Retry()

    @property
    def due(self) -> float | None:
        """Time of the next action; None if no recovery is in progress."""
        dues = [max(self._retry.due, self._settle_until)] if self._left else []
        return min([*dues, self._shutdown_retry.due] if self._shutdown else dues, default=None)

    def begin_reconnected(self) -> None:
        """Begin the recovery of a session that has survived a loss of the connection."""
        self._left.add(RecoveryStep.INVALIDATE_CACHES)
        self._retry = Retry()

    def begin(self) -> None:
        """Begin the recovery of a new session after a loss."""
        self._left = set(RecoveryStep)
        self._retry, self._settle_until = Retry(), 0.0
        self._reporter.report_ok(RecoveryAction.RECONNECT, attempt=self._attempt + 1)
        self._attempt = 0

    def report_no_session(self, lost_at: float, timeout_ms: int) -> None:
        """Report one failed attempt for each T since the loss."""
        attempts = int((self._clock() - lost_at) * 1000) // timeout_ms
        while self._attempt < attempts:
            self._attempt += 1
            self._reporter.report_failure(
                RecoveryAction.RECONNECT, "no server gave us a session", attempt=self._attempt
            )

    def advance(self, current: CurrentSession) -> None:
        """Carry out the next steps of the plan."""
        if not self._left or self._retry.due > self._clock():
            return
        # The plan may arrive late or change; steps that are done are not repeated.
        for step in self._strategy.plan(current.session):
            if step in self._left:
                if not self._carry_out(step, current):
                    return
                self._left.discard(step)
                self._retry = Retry()
        self._left.clear()
        _log.info("recovered", session=current.session)

    def shut_down_if_decided(self, session: str | None, lost_at: float | None) -> None:
        """Call `shut_down` of the application if that is decided for this session."""
        outage = None if lost_at is None else self._outage(lost_at, self._attempt)
        decision = self._strategy.shutdown(session, outage)
        if decision is not None:
            self._shutdown, self._shutdown_retry = decision, Retry()
        shutdown = self._shutdown
        if shutdown is None or self._shutdown_retry.due > self._clock():
            return
        done = self._reconciler.call(self._shutdown_retry, None, None, lambda: self._callbacks.shut_down(shutdown))
        if done or self._shutdown_retry.failures >= MOST_ATTEMPTS:
            self._shutdown = None

    def _carry_out(self, step: RecoveryStep, current: CurrentSession) -> bool:
        if step is RecoveryStep.RE_OWN:
            return self._has_settled(current)
        if step is RecoveryStep.REPUBLISH_LOAD_DATA:
            action = RecoveryAction.REPUBLISH_LOAD_DATA
            done = self._call(action, self._callbacks.republish)
            if done and self._retry.failures < MOST_ATTEMPTS:
                self._reporter.report_ok(action, attempt=self._retry.failures + 1)
            return done
        return self._call(None, self._callbacks.invalidate_caches)

    def _has_settled(self, current: CurrentSession) -> bool:
        """Whether the next step may begin. The wait is bounded, so that an unreadable bundle does not block it."""
        self._settle_until = current.since + current.wait_ms() / 1000
        if self._clock() < self._settle_until and self._bundles.select((BundleStage.WANTED, BundleStage.UNLOADING)):
            return False
        self._settle_until = 0.0
        return True

    def _call(self, action: RecoveryAction | None, work: Callable[[], None]) -> bool:
        done = self._reconciler.call(self._retry, action, None, work)
        return done or self._retry.failures >= MOST_ATTEMPTS
