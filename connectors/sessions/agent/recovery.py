"""Recovery after a session was re-established: the steps of the plan in order, each retried until it is done."""

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
    """What a member does besides looking after its bundles. For the agent's thread only.

    Args:
        reconciler: calls the application.
        bundles: the bundles.
        strategy: who knows the plan.
        callbacks: the application's.
        reporter: where it is told.
        clock: seconds.
        outage: what is known of a loss since a moment, and after so many failed attempts.
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
        """Until when the plan waits for the bundles, while it does."""
        self._attempt = 0
        self._shutdown: SessionDecision | None = None
        self._shutdown_retry = Retry()

    @property
    def due(self) -> float | None:
        """When something may be due next; None: nothing is under way."""
        dues = [max(self._retry.due, self._settle_until)] if self._left else []
        return min([*dues, self._shutdown_retry.due] if self._shutdown else dues, default=None)

    def reconnected(self) -> None:
        """The session has outlived a loss of the connection."""
        self._left.add(RecoveryStep.INVALIDATE_CACHES)
        self._retry = Retry()

    def begin(self) -> None:
        """The session was lost, and there is one again."""
        self._left = set(RecoveryStep)
        self._retry, self._settle_until = Retry(), 0.0
        self._reporter.ok(RecoveryAction.RECONNECT, attempt=self._attempt + 1)
        self._attempt = 0

    def report_no_session(self, lost_at: float, timeout_ms: int) -> None:
        """There is still no session: one failed attempt for each T that has passed since the loss."""
        attempts = int((self._clock() - lost_at) * 1000) // timeout_ms
        while self._attempt < attempts:
            self._attempt += 1
            self._reporter.failed(RecoveryAction.RECONNECT, "no server gave us a session", attempt=self._attempt)

    def advance(self, current: CurrentSession) -> None:
        """Take the next steps of the plan."""
        if not self._left or self._retry.due > self._clock():
            return
        # The plan may come late, or differ from the last: what is done is not done again.
        for step in self._strategy.plan(current.session):
            if step in self._left:
                if not self._done(step, current):
                    return
                self._left.discard(step)
                self._retry = Retry()
        self._left.clear()
        _log.info("recovered", session=current.session)

    def shut_down_if_decided(self, session: str | None, lost_at: float | None) -> None:
        """Tell the application to shut down, when that has been decided for the process with this session."""
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

    def _done(self, step: RecoveryStep, current: CurrentSession) -> bool:
        if step is RecoveryStep.RE_OWN:
            return self._all_settled(current)
        if step is RecoveryStep.REPUBLISH_LOAD_DATA:
            return self._republished()
        return self._called(None, self._callbacks.invalidate_caches)

    def _all_settled(self, current: CurrentSession) -> bool:
        """Whether the next step may begin; one bundle that cannot be read does not hold it up for ever."""
        self._settle_until = current.since + current.wait_ms / 1000
        if self._clock() < self._settle_until and self._bundles.of((BundleStage.WANTED, BundleStage.UNLOADING)):
            return False
        self._settle_until = 0.0
        return True

    def _republished(self) -> bool:
        action = RecoveryAction.REPUBLISH_LOAD_DATA
        done = self._called(action, self._callbacks.republish)
        if done and self._retry.failures < MOST_ATTEMPTS:
            self._reporter.ok(action, attempt=self._retry.failures + 1)
        return done

    def _called(self, action: RecoveryAction | None, work: Callable[[], None]) -> bool:
        done = self._reconciler.call(self._retry, action, None, work)
        return done or self._retry.failures >= MOST_ATTEMPTS
