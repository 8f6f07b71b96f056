"""The way back after a session was established again: the plan's steps, in their order, each until it is done."""

from collections.abc import Callable

import structlog

from connectors.ownership.callbacks import OwnershipCallbacks
from connectors.ownership.caretaker import Caretaker, Present
from connectors.ownership.guide import Guide
from connectors.ownership.holding import MOST_ATTEMPTS, Retry, Stage
from connectors.ownership.holdings import Holdings
from connectors.ownership.reports import Reports
from policies.sessions.decision import SessionDecision
from policies.sessions.readings import RecoveryAction
from policies.sessions.settings import RecoveryStep

_log = structlog.get_logger(__name__)


class Comeback:
    """What a member does besides looking after its bundles. For the agent's thread only.

    Args:
        caretaker: calls the application.
        holdings: the bundles.
        guide: who knows the plan.
        callbacks: the application's.
        reports: where it is told.
        clock: seconds.
    """

    def __init__(
        self,
        caretaker: Caretaker,
        holdings: Holdings,
        guide: Guide,
        callbacks: OwnershipCallbacks,
        reports: Reports,
        clock: Callable[[], float],
    ) -> None:
        self._caretaker = caretaker
        self._holdings = holdings
        self._guide = guide
        self._callbacks = callbacks
        self._reports = reports
        self._clock = clock
        self._left: set[RecoveryStep] = set()
        self._retry = Retry()
        self._late = 0.0
        """Until when the plan waits for the bundles, while it does."""
        self._attempt = 0
        self._order: SessionDecision | None = None
        self._order_retry = Retry()

    @property
    def due(self) -> float | None:
        """When something may be due next; null: nothing is under way."""
        dues = [max(self._retry.due, self._late)] if self._left else []
        return min([*dues, self._order_retry.due] if self._order else dues, default=None)

    def resume(self) -> None:
        """The session has outlived a loss of the connection."""
        self._left.add(RecoveryStep.INVALIDATE_CACHES)
        self._retry = Retry()

    def begin(self) -> None:
        """The session was lost, and there is one again."""
        self._left = set(RecoveryStep)
        self._retry, self._late = Retry(), 0.0
        self._reports.ok(RecoveryAction.RECONNECT, attempt=self._attempt + 1)
        self._attempt = 0

    def not_yet(self, lost_at: float, timeout_ms: int) -> None:
        """There is still no session: one failed attempt for each T that has passed since the loss."""
        attempts = int((self._clock() - lost_at) * 1000) // timeout_ms
        while self._attempt < attempts:
            self._attempt += 1
            self._reports.failed(RecoveryAction.RECONNECT, "no server gave us a session", attempt=self._attempt)

    def go_on(self, present: Present) -> None:
        """Do what is due of the plan."""
        if not self._left or self._retry.due > self._clock():
            return
        # The plan may come late, or differ from the last: what is done is not done again.
        for step in self._guide.plan(present.session):
            if step in self._left:
                if not self._done(step, present):
                    return
                self._left.discard(step)
                self._retry = Retry()
        self._left.clear()
        _log.info("recovered", session=present.session)

    def obey(self, session: str | None) -> None:
        """Tell the application to go down, when the loop wants that of the process with this session."""
        decision = self._guide.shutdown(session)
        if decision is not None:
            self._order, self._order_retry = decision, Retry()
        order = self._order
        if order is None or self._order_retry.due > self._clock():
            return
        done = self._caretaker.call(self._order_retry, None, None, lambda: self._callbacks.shut_down(order))
        if done or self._order_retry.failures >= MOST_ATTEMPTS:
            self._order = None

    def _done(self, step: RecoveryStep, present: Present) -> bool:
        if step is RecoveryStep.RE_OWN:
            return self._all_settled(present)
        if step is RecoveryStep.REPUBLISH_LOAD_DATA:
            return self._republished()
        return self._called(None, self._callbacks.invalidate_caches)

    def _all_settled(self, present: Present) -> bool:
        """Whether the next step may begin; one bundle that cannot be read does not hold it up for ever."""
        self._late = present.since + present.wait_ms / 1000
        if self._clock() < self._late and self._holdings.of((Stage.WANTED, Stage.UNLOADING)):
            return False
        self._late = 0.0
        return True

    def _republished(self) -> bool:
        action = RecoveryAction.REPUBLISH_LOAD_DATA
        done = self._called(action, self._callbacks.republish)
        if done and self._retry.failures < MOST_ATTEMPTS:
            self._reports.ok(action, attempt=self._retry.failures + 1)
        return done

    def _called(self, action: RecoveryAction | None, work: Callable[[], None]) -> bool:
        done = self._caretaker.call(self._retry, action, None, work)
        return done or self._retry.failures >= MOST_ATTEMPTS
