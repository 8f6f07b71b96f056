"""Carries out the decisions about one watched cluster's bundles.

Each attempt asks the brokers anew what they serve, so an attempt that was cut short anywhere is simply repeated. A
bundle is only ever unloaded at the broker that the decision names: while that broker alone serves it, or while
ZooKeeper names another owner, so that two may serve it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event

import httpx
from tenacity import RetryCallState, retry_if_exception_type, retry_if_result, stop_after_attempt

from connectors.actuation.decision_worker import DecisionWorker
from connectors.actuation.reports import ActionError, ActionResult, CommonOutcome, PublishAudit
from connectors.actuation.worker import SYSTEM_CLOCK, Clock
from connectors.pulsar.admin import AdminApi
from connectors.sessions.unload.brokers import Brokers, RedirectedError, Survey, UnloadSettings
from connectors.sessions.unload.guards import ServedBy, UnloadResult, asked_of, is_anothers, judge
from connectors.sessions.unload.reports import UnloadMetrics, UnloadReports
from policies.sessions.decisions import OwnershipDecision, OwnershipVerdict
from policies.sessions.unload_events import UnloadOutcome

_SURVEYS = stop_after_attempt(3)


@dataclass(frozen=True)
class WatchedUnloads:
    """One cluster whose decisions are carried out."""

    cluster: str
    admin: AdminApi
    """Shared with others, so not closed here."""
    settings: UnloadSettings


class BrokerRateLimit:
    """At most one action for each broker per interval.

    Args:
        interval_seconds: between two actions.
        clock: seconds, never going backwards.
    """

    def __init__(self, interval_seconds: float, clock: Callable[[], float]) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._free_at: dict[str, float] = {}

    def left_seconds(self, member: str) -> float:
        """Until something may be done to a broker; 0 when it may now."""
        return max(0.0, self._free_at.get(member, 0.0) - self._clock())

    def take(self, member: str) -> None:
        """Something is being done to a broker."""
        now = self._clock()
        self._free_at = {m: at for m, at in self._free_at.items() if at > now} | {member: now + self._interval_seconds}


class UnloadWorker(DecisionWorker[OwnershipDecision, ServedBy]):
    """Carries out one cluster's decisions about bundles.

    Args:
        watched: the cluster, and how to reach its brokers.
        publish: takes what is said for the audit.
        metrics: shared by all clusters.
        clock: the time.
        transport: in place of the network, for tests.
    """

    wanted = frozenset({OwnershipVerdict.UNLOAD, OwnershipVerdict.RE_OWN})
    again = frozenset({UnloadOutcome.FAILED, UnloadOutcome.CONTESTED})
    renewals_overtake = True

    def __init__(
        self,
        watched: WatchedUnloads,
        publish: PublishAudit,
        metrics: UnloadMetrics,
        *,
        clock: Clock = SYSTEM_CLOCK,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        reports = UnloadReports(watched.cluster, publish, metrics)
        super().__init__(watched.cluster, reports, clock, watched.settings.grace)
        self._brokers = Brokers(watched.cluster, watched.admin, watched.settings, transport)
        self._rate_limit = BrokerRateLimit(watched.settings.per_broker_interval.total_seconds(), clock.monotonic)
        self._survey: Survey | None = None
        """Shared by the decisions that are due at once, until one is carried out."""

    def reconcile(self, stop: Event) -> None:
        """Take in what has come, and try what is due, on what the brokers say now."""
        self._survey = None
        super().reconcile(stop)

    def _close(self) -> None:
        self._brokers.close()

    def _attempt(self, decision: OwnershipDecision, stop: Event) -> UnloadResult | None:
        found = judge(decision, self._look(stop), unsure=self._is_unsure(decision))
        if found is not None:
            return found
        if wait_seconds := self._rate_limit.left_seconds(decision.member):
            self._postpone(decision, wait_seconds)
            return None
        return None if self._is_held(decision) else self._act(decision, stop)

    def _look(self, stop: Event) -> Survey:
        """What the brokers serve, asked for all that is due."""
        if self._survey is None:
            members = {member for decision in self._due() for member in asked_of(decision)}
            retry = retry_if_exception_type(ActionError) | retry_if_result(_is_incomplete)
            retrying = self._retrying(
                stop, _SURVEYS, first_pause_seconds=0.1, longest_pause_seconds=2.0,
                retry=retry, retry_error_callback=_last_result,
            )  # fmt: skip
            self._survey = retrying(self._brokers.survey, members)
        return self._survey

    def _act(self, decision: OwnershipDecision, stop: Event) -> UnloadResult:
        self._rate_limit.take(decision.member)
        self._survey = None
        try:
            if decision.verdict is OwnershipVerdict.RE_OWN:
                return self._re_own(decision, stop)
            self._brokers.unload(decision.member, decision.bundle)
            if is_anothers(decision):
                self._confirm_owner(decision)
            return ActionResult(CommonOutcome.DONE)
        except RedirectedError as error:
            return ActionResult(UnloadOutcome.ALREADY_MOVED, str(error))

    def _confirm_owner(self, decision: OwnershipDecision) -> None:
        """Have the rightful owner own it still: the unload may have deleted its node, which has the same version."""
        with suppress(ActionError):  # any client's lookup does the same
            topic = self._brokers.topic_of(decision.bundle)
            if topic is not None:
                self._brokers.trigger(topic)

    def _re_own(self, decision: OwnershipDecision, stop: Event) -> UnloadResult:
        topic = self._brokers.topic_of(decision.bundle)
        if topic is None:
            return ActionResult(UnloadOutcome.NO_TOPICS)
        self._brokers.trigger(topic)
        # A lookup is answered by a node of an old session too, and then nobody serves what it names.
        owned = judge(decision, self._look(stop), unsure=True)
        return owned or ActionResult(CommonOutcome.FAILED, "a lookup was answered, but no broker serves it")


def _is_incomplete(survey: Survey) -> bool:
    return bool(survey.unanswered)


def _last_result(state: RetryCallState) -> Survey:
    """What the last attempt gave, if only in part."""
    assert state.outcome is not None  # noqa: S101 - there was at least one
    survey: Survey = state.outcome.result()
    return survey
