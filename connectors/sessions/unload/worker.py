"""Carries out the sessions policy's decisions about bundles.

Each attempt asks the brokers again which bundles they serve, so an attempt that was interrupted anywhere is simply
repeated. A bundle is only ever unloaded at the broker that the decision names: while that broker alone serves it, or
while ZooKeeper names another owner, so that two may serve it.

Decisions about the broker itself (`shutdown`, `restart`) are not read here: the broker's platform carries them out.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Event

import httpx
from tenacity import RetryCallState, retry_if_exception_type, retry_if_result, stop_after_attempt

from connectors.actuation.actuator import Actuator, LoopTopics, read_data
from connectors.actuation.decision_worker import DecisionWorker
from connectors.actuation.reports import ActionError, ActionResult, CommonOutcome, PublishAudit
from connectors.actuation.worker import SYSTEM_CLOCK, Clock
from connectors.kafka.tail import Record
from connectors.pulsar.admin import AdminApi
from connectors.sessions.unload.brokers import Brokers, RedirectedError, Survey, UnloadSettings
from connectors.sessions.unload.guards import (
    ServedBy,
    UnloadResult,
    find_conclusion,
    has_other_owner,
    list_concerned,
)
from connectors.sessions.unload.reports import UnloadMetrics, UnloadReports
from policies.sessions.decisions import OwnershipDecision, OwnershipVerdict
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome
from policies.wire import EventReader

_SURVEYS = stop_after_attempt(3)
_CLOCK_SLACK = timedelta(minutes=1)
"""Possible difference between our clock and Kafka's."""


class BrokerRateLimit:
    """Allows one action per broker and interval."""

    def __init__(self, interval_seconds: float, clock: Callable[[], float]) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._free_at: dict[str, float] = {}

    def wait_seconds(self, member: str) -> float:
        """Return the time until an action at a broker is allowed; 0 if one is allowed now."""
        return max(0.0, self._free_at.get(member, 0.0) - self._clock())

    def count_action(self, member: str) -> None:
        """Count an action that is done now."""
        now = self._clock()
        self._free_at = {m: at for m, at in self._free_at.items() if at > now} | {member: now + self._interval_seconds}


class UnloadWorker(DecisionWorker[OwnershipDecision, ServedBy]):
    """Carries out one cluster's decisions about bundles.

    Args:
        admin: shared with others, so not closed here.
    """

    wanted = frozenset({OwnershipVerdict.UNLOAD, OwnershipVerdict.RE_OWN})
    again = frozenset({UnloadOutcome.FAILED, UnloadOutcome.CONTESTED})
    renewals_overtake = True

    def __init__(
        self,
        cluster: str,
        admin: AdminApi,
        settings: UnloadSettings,
        publish: PublishAudit,
        metrics: UnloadMetrics,
        *,
        clock: Clock = SYSTEM_CLOCK,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(cluster, UnloadReports(cluster, publish, metrics), clock, settings.grace)
        self._brokers = Brokers(cluster, admin, settings, transport)
        self._rate_limit = BrokerRateLimit(settings.per_broker_interval.total_seconds(), clock.monotonic)
        self._survey: Survey | None = None
        """Shared by the decisions that are due at the same time, until one of them is carried out."""

    def reconcile(self, stop: Event) -> None:
        """Process received decisions, and try those that are due, on the brokers' present answers."""
        self._survey = None
        super().reconcile(stop)

    def _close(self) -> None:
        self._brokers.close()

    def _attempt(self, decision: OwnershipDecision, stop: Event) -> UnloadResult | None:
        conclusion = find_conclusion(decision, self._survey_brokers(stop), unsure=self._is_unsure(decision))
        if conclusion is not None:
            return conclusion
        if wait_seconds := self._rate_limit.wait_seconds(decision.member):
            self._postpone(decision, wait_seconds)
            return None
        return None if self._is_held(decision) else self._act(decision, stop)

    def _survey_brokers(self, stop: Event) -> Survey:
        """Ask the brokers which bundles they serve, once for all decisions that are due."""
        if self._survey is None:
            members = {member for decision in self._due() for member in list_concerned(decision)}
            retry = retry_if_exception_type(ActionError) | retry_if_result(lambda survey: bool(survey.unanswered))
            retrying = self._retrying(
                stop, _SURVEYS, first_pause_seconds=0.1, longest_pause_seconds=2.0,
                retry=retry, retry_error_callback=_return_last_survey,
            )  # fmt: skip
            self._survey = retrying(self._brokers.survey, members)
        return self._survey

    def _act(self, decision: OwnershipDecision, stop: Event) -> UnloadResult:
        self._rate_limit.count_action(decision.member)
        self._survey = None
        try:
            if decision.verdict is OwnershipVerdict.RE_OWN:
                return self._re_own(decision, stop)
            self._brokers.unload(decision.member, decision.bundle)
            if has_other_owner(decision):
                self._confirm_owner(decision)
            return ActionResult(CommonOutcome.DONE)
        except RedirectedError as error:
            return ActionResult(UnloadOutcome.ALREADY_MOVED, str(error))

    def _confirm_owner(self, decision: OwnershipDecision) -> None:
        """Have the rightful owner own the bundle: the unload may have deleted its node, which has the same version."""
        with suppress(ActionError):  # any client's lookup does the same
            topic = self._brokers.find_topic(decision.bundle)
            if topic is not None:
                self._brokers.look_up(topic)

    def _re_own(self, decision: OwnershipDecision, stop: Event) -> UnloadResult:
        topic = self._brokers.find_topic(decision.bundle)
        if topic is None:
            return ActionResult(UnloadOutcome.NO_TOPICS)
        self._brokers.look_up(topic)
        # A node of an old session answers a lookup, too; the broker that it names does not serve the bundle then.
        owned = find_conclusion(decision, self._survey_brokers(stop), unsure=True)
        return owned or ActionResult(CommonOutcome.FAILED, "a lookup was answered, but no broker serves it")


def _return_last_survey(state: RetryCallState) -> Survey:
    """Return the survey of the last attempt, even if some brokers did not answer."""
    assert state.outcome is not None  # noqa: S101 - there was at least one attempt
    survey: Survey = state.outcome.result()
    return survey


class UnloadActuator(Actuator[OwnershipDecision]):
    """Carries out the decisions about the bundles of some clusters."""

    def __init__(self, topics: LoopTopics, workers: Mapping[str, UnloadWorker]) -> None:
        super().__init__("unload actuator", "headgate-unload", topics, workers, OwnershipDecision)
        self._by_cluster = workers
        self._outcomes = EventReader((BundleUnloaded, BundleReOwned))

    def _prepare(self, stop: Event) -> None:
        """Drop decisions that were carried out before this start: the broker may rightfully serve the bundle again."""
        oldest = min((since for worker in self._by_cluster.values() if (since := worker.pending_since)), default=None)
        if oldest is not None:
            history = max(timedelta(0), datetime.now(UTC) - oldest) + _CLOCK_SLACK
            with self._open_tail({self._topics.audit: history}) as tail:
                self._catch_up(tail, stop, self._recall_done)

    def _recall_done(self, record: Record) -> None:
        report = read_data(self._outcomes, record)
        if report is not None and report.outcome is UnloadOutcome.DONE and report.cluster in self._by_cluster:
            self._by_cluster[report.cluster].recall_done(report.subject(), report.decision_id)
