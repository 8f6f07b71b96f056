"""Carries the quarantines of one watched cluster out.

An attempt reads everything anew and writes only if nothing has changed meanwhile, so one that was cut short anywhere
is simply made again. Nobody is ever taken out of a group.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_any,
    wait_random_exponential,
)
from tenacity.stop import stop_when_event_set

from connectors.actuation import Standing, Worker, utc_now
from connectors.quarantine.guards import Finding, done, refusal, refusal_before_look
from connectors.quarantine.metrics import QuarantineMetrics
from connectors.quarantine.reports import Reports
from connectors.quarantine.store import RackStore, StoreError, UnknownOutcomeError
from policies.isolation.decision import BookieQuarantine, QuarantineVerdict
from policies.isolation.quarantine_events import QuarantineOutcome

_ATTEMPTS = 10
_ATTEMPTS_SECONDS = 10.0
_AGAIN_SECONDS = 5.0
"""Between series of attempts that failed."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WatchedRacks:
    """One cluster whose decisions are carried out."""

    cluster: str
    store: RackStore
    max_quarantined: int
    """Of `policies.isolation`: with so many in the group, no more are put there."""


class ClusterQuarantine(Worker[BookieQuarantine]):
    """Carries out one cluster's decisions, which come in by its `standing`. Use it from one thread.

    Args:
        watched: the cluster, and where its groups are kept.
        reports: told of what was done and refused.
        metrics: shared by all clusters.
        clock: the time.
    """

    def __init__(
        self,
        watched: WatchedRacks,
        reports: Reports,
        metrics: QuarantineMetrics,
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        standing = Standing(reports.superseded, _is_to_be_done, clock, renewals_overtake=False)
        super().__init__(watched.cluster, standing, metrics)
        self._watched = watched
        self._reports = reports
        self._clock = clock
        self._unsure: set[str] = set()
        """The subjects of which a write got no answer."""

    def _close(self) -> None:
        self._watched.store.close()

    def _try(self, decision: BookieQuarantine, stop: threading.Event) -> None:
        retrying = Retrying(
            stop=stop_any(
                stop_after_attempt(_ATTEMPTS), stop_after_delay(_ATTEMPTS_SECONDS), stop_when_event_set(stop)
            ),
            # Short at first: what stands in the way is most often somebody else's write.
            wait=wait_random_exponential(multiplier=0.01, max=2.0),
            retry=retry_if_exception_type(StoreError),
            sleep=self._nap,
            reraise=True,
        )
        number = 1
        try:
            for attempt in retrying:
                number = attempt.retry_state.attempt_number
                with attempt:
                    finding = self._attempt(decision)
                    if finding is not None:
                        self._settle(decision, finding, number)
        except StoreError as error:
            self._failed(decision, str(error), number)
        except Exception as error:  # whatever it is, the next decision must find somebody at work
            _log.exception("carrying a decision out failed", cluster=self._cluster)
            self._failed(decision, type(error).__name__, number)

    def _attempt(self, decision: BookieQuarantine) -> Finding | None:
        """One attempt; null when the decision is no longer in force."""
        self.standing.read()
        if not self.standing.is_pending(decision):
            return None
        if not_begun := refusal_before_look(decision, self._clock()):
            return not_begun
        sight = self._watched.store.look(decision.bookie)
        if refused := refusal(decision, sight, self._watched.max_quarantined):
            is_ours = decision.subject in self._unsure and refused.found_group == decision.group
            # The change may have been followed by others since: the window is at most so long.
            return done(decision, sight, sight.changed_at) if is_ours else refused
        try:
            return done(decision, sight, sight.write(decision.group, decision.rack))
        except UnknownOutcomeError:
            self._unsure.add(decision.subject)
            raise

    def _settle(self, decision: BookieQuarantine, finding: Finding, number: int) -> None:
        self._reports.found(decision, finding, attempt=number, at=self._clock())
        self._unsure.discard(decision.subject)
        self.standing.settle(decision)

    def _failed(self, decision: BookieQuarantine, detail: str, number: int) -> None:
        finding = Finding(QuarantineOutcome.FAILED, detail)
        self._reports.found(decision, finding, attempt=number, at=self._clock())
        self.standing.postpone(decision, _AGAIN_SECONDS, failed=True)


def _is_to_be_done(decision: BookieQuarantine) -> bool:
    return decision.verdict is QuarantineVerdict.QUARANTINE
