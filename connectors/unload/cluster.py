"""Carries the decisions about one watched cluster's bundles out.

Each attempt asks the brokers anew what they serve, so one that was cut short anywhere is simply made again. A bundle is
only ever unloaded at the broker that the decision names, while that broker alone serves it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import httpx
import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, retry_if_result, stop_after_attempt, stop_any
from tenacity import wait_random_exponential as back_off
from tenacity.stop import stop_when_event_set

from connectors.actuation import Standing, Worker, utc_now
from connectors.pulsar.admin import AdminApi
from connectors.unload.brokers import BrokerError, Brokers, RedirectedError, Survey, UnknownOutcomeError
from connectors.unload.guards import NOT_FINAL, Finding, asked_of, judge, refusal_before_look
from connectors.unload.metrics import UnloadMetrics
from connectors.unload.pace import Pace
from connectors.unload.reports import Reports
from connectors.unload.settings import UnloadSettings
from policies.sessions.decision import OwnershipDecision, OwnershipVerdict
from policies.sessions.unload_events import UnloadOutcome

_ATTEMPTS = 3
"""To ask all brokers."""
_LONGEST_WAIT_SECONDS = 2.0
_AGAIN_SECONDS = 5.0
"""Between series of attempts that failed."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WatchedUnloads:
    """One cluster whose decisions are carried out."""

    cluster: str
    admin: AdminApi
    """Shared with others, so not closed here."""
    settings: UnloadSettings


class ClusterUnloads(Worker[OwnershipDecision]):
    """Carries out one cluster's decisions, which come in by its `standing`. Use it from one thread.

    Args:
        watched: the cluster, and how to reach its brokers.
        reports: told of what was done and refused.
        metrics: shared by all clusters.
        clock: the time.
        transport: in place of the network, for tests.
    """

    def __init__(
        self,
        watched: WatchedUnloads,
        reports: Reports,
        metrics: UnloadMetrics,
        *,
        clock: Callable[[], datetime] = utc_now,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        grace = watched.settings.grace
        standing = Standing(reports.superseded, _is_to_be_done, clock, grace=grace, renewals_overtake=True)
        super().__init__(watched.cluster, standing, metrics)
        self._brokers = Brokers(watched.cluster, watched.admin, watched.settings, transport)
        self._reports = reports
        self._clock = clock
        self._pace = Pace(watched.settings.per_broker_interval.total_seconds())
        self._survey: Survey | None = None
        """Shared by the decisions of a turn, until one is carried out."""
        self._unsure: set[str] = set()
        """The decisions of which an action got no answer."""

    def turn(self, stop: threading.Event) -> None:
        """Take in what has come, and try what is due."""
        self._survey = None
        super().turn(stop)

    def _close(self) -> None:
        self._brokers.close()

    def _try(self, decision: OwnershipDecision, stop: threading.Event) -> None:
        try:
            finding = self._attempt(decision, stop)
        except BrokerError as error:
            finding = Finding(UnloadOutcome.FAILED, str(error))
        except Exception as error:  # whatever it is, the next decision must find somebody at work
            _log.exception("carrying a decision out failed", cluster=self._cluster)
            finding = Finding(UnloadOutcome.FAILED, type(error).__name__)
        if finding is not None:
            self._conclude(decision, finding)

    def _attempt(self, decision: OwnershipDecision, stop: threading.Event) -> Finding | None:
        """One attempt; null when the decision is no longer in force, or must wait for its turn."""
        self.standing.read()
        if not self.standing.is_pending(decision):
            return None
        if not_begun := refusal_before_look(decision, self._clock()):
            return not_begun
        found = judge(decision, self._look(stop), unsure=decision.decision_id in self._unsure)
        if found is not None:
            return found
        if not (wait_seconds := self._pace.left_seconds(decision.member)):
            return self._act(decision, stop)
        self.standing.postpone(decision, wait_seconds, failed=False)
        return None

    def _look(self, stop: threading.Event) -> Survey:
        """What the brokers serve, asked for all that is due."""
        if self._survey is None:
            due = self.standing.due()
            members = {member for decision in due for member in asked_of(decision)}
            retrying = Retrying(
                stop=stop_any(stop_after_attempt(_ATTEMPTS), stop_when_event_set(stop)),
                wait=back_off(multiplier=0.1, max=_LONGEST_WAIT_SECONDS),
                retry=retry_if_exception_type(BrokerError) | retry_if_result(_is_incomplete),
                retry_error_callback=_last_result,
                sleep=self._nap,
            )
            self._survey = retrying(self._brokers.survey, members)
        return self._survey

    def _act(self, decision: OwnershipDecision, stop: threading.Event) -> Finding:
        self._pace.take(decision.member)
        self._survey = None
        try:
            if decision.verdict is OwnershipVerdict.UNLOAD:
                self._brokers.unload(decision.member, decision.bundle)
                return Finding(UnloadOutcome.DONE)
            return self._re_own(decision, stop)
        except RedirectedError as error:
            return Finding(UnloadOutcome.ALREADY_MOVED, str(error))
        except UnknownOutcomeError:
            self._unsure.add(decision.decision_id)
            raise

    def _re_own(self, decision: OwnershipDecision, stop: threading.Event) -> Finding:
        topic = self._brokers.topic_of(decision.bundle)
        if topic is None:
            return Finding(UnloadOutcome.NO_TOPICS)
        self._brokers.trigger(topic)
        # A lookup is answered by a node of an old session too, and then nobody serves what it names.
        owned = judge(decision, self._look(stop), unsure=True)
        return owned or Finding(UnloadOutcome.FAILED, "a lookup was answered, but no broker serves it")

    def _conclude(self, decision: OwnershipDecision, finding: Finding) -> None:
        attempt = self.standing.attempt(decision)
        self._reports.found(decision, finding, attempt=attempt, at=self._clock())
        if finding.outcome in NOT_FINAL:
            self.standing.postpone(decision, _AGAIN_SECONDS, failed=True)
        else:
            self._unsure.discard(decision.decision_id)
            self.standing.settle(decision)


def _is_to_be_done(decision: OwnershipDecision) -> bool:
    return decision.verdict in (OwnershipVerdict.UNLOAD, OwnershipVerdict.RE_OWN)


def _is_incomplete(survey: Survey) -> bool:
    return bool(survey.unanswered)


def _last_result(state: RetryCallState) -> Survey:
    """What the last attempt gave, if only in part."""
    assert state.outcome is not None  # noqa: S101 - there was at least one
    survey: Survey = state.outcome.result()
    return survey
