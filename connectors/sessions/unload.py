"""The unload actuator: unloads bundles, or has them owned again, as the sessions policy decides."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import ClassVar

import httpx
from prometheus_client import CollectorRegistry, Counter
from tenacity import RetryCallState, retry_if_exception_type, retry_if_result, stop_after_attempt

from connectors.actuation.actuator import Actuator, LoopTopics, read_data
from connectors.actuation.order_worker import ActionError, ActionResult, OrderWorker, UnknownOutcomeError
from connectors.actuation.worker import (
    SYSTEM_CLOCK,
    ActionRate,
    ActuatorMetrics,
    Clock,
    CommonOutcome,
    PublishAudit,
)
from connectors.http.rest import AdminError, describe_rest_error, request_line, was_not_done
from connectors.kafka.tail import Record
from connectors.pulsar.admin import CONCURRENCY, AdminApi
from connectors.pulsar.settings import address_problem, is_member, url_of_member
from connectors.sessions.registration import UnloadSettings
from policies.sessions.decisions import OwnershipDecision, OwnershipReason, OwnershipVerdict
from policies.sessions.readings import BundleReOwned, BundleUnloaded, UnloadOutcome
from policies.units import UserError
from policies.wire import EventReader

# The admin REST API of one cluster's brokers: which bundles they serve, and requests to unload one.
#
# Each broker is asked at its own address, and no redirect is followed: an unload that a broker would forward to the
# bundle's owner must not be done. A real Pulsar 4.2.4 behaves like this:
#
# - `ownedNamespaces` returns a broker's own view, not ZooKeeper's, and does not need ZooKeeper.
# - `unload` at a broker that does not serve the bundle answers 307 to the owner, or 204 if there is none.
# - `unload` reads ZooKeeper before anything is closed. A broker that receives the request late has noticed the new
#   owner by then and released the bundle, so it answers 307 (two of two, with answers 1 and 2.5 s late each way).
# - `unload` at a broker that has lost its session hangs, and leaves the bundle unusable there (`is_active: false`) for
#   good. Without the request, the broker releases the bundle within a second of its next session.

_FAILURES = (AdminError, httpx.RequestError, UserError)


class RedirectedError(ActionError):
    """The broker does not serve the bundle and redirects to another one. Nothing was done."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The brokers' answers to the question which bundles they serve."""

    listed: frozenset[str]
    owned: Mapping[str, Mapping[str, bool]]
    """The bundles of each broker, and whether it serves them; false while it is unloading one."""
    unanswered: Mapping[str, str]
    """The reason for each registered broker without a usable answer."""


class Brokers:
    """The brokers of one cluster. Used from one thread. `admin` reaches any of them, and has the credentials."""

    def __init__(
        self, cluster: str, admin: AdminApi, settings: UnloadSettings, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._settings = settings
        self._transport = transport
        self._members: dict[str, AdminApi] = {}

    def survey(self) -> Survey:
        """Ask all registered brokers which bundles they serve.

        Other brokers that decisions name are not asked. Otherwise a forged decision could have our token sent anywhere;
        and a broker without a session would only hang.

        Raises:
            ActionError: the registered brokers cannot be read.
        """
        with _converted_failures():
            listed = frozenset(self._admin.brokers(self._cluster))
        own, nameless = self._admin.settings.admin_url, "a broker is registered as what is no host:port"
        problems = {member: address_problem(member, own) if is_member(member) else nameless for member in listed}
        asked = sorted(member for member, problem in problems.items() if problem is None)
        self._keep_clients(asked)
        owned: dict[str, Mapping[str, bool]] = {}
        unanswered = {member: problem for member, problem in problems.items() if problem is not None}
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="who serves") as workers:
            answers = [(member, workers.submit(self._read_owned, member)) for member in asked]
        for member, answer in answers:
            try:
                owned[member] = answer.result()
            except ActionError as error:
                unanswered[member] = str(error)
        return Survey(listed, owned, unanswered)

    def unload(self, member: str, bundle: str) -> None:
        """Make one broker close a bundle's topics and give up the bundle; no other broker is affected.

        Raises:
            RedirectedError: the broker does not serve the bundle.
            UnknownOutcomeError: no clear answer.
            ActionError: the broker refused.
        """
        with _converted_failures(is_write=True):
            self._members[member].unload(*bundle.rsplit("/", 1))

    def look_up(self, bundle: str) -> str | None:
        """Look a topic of a bundle up as a client does: if the bundle has no owner, the brokers choose one.

        Returns the topic, as `tenant/namespace/topic`; None if the bundle has none. Raises as `unload` does.
        """
        with _converted_failures():
            names = self._admin.topics(*bundle.rsplit("/", 1))
        topic = min((name.removeprefix("persistent://") for name in names), default=None)
        with _converted_failures(is_write=True):
            if topic is not None:
                self._admin.lookup(topic)
        return topic

    def close(self) -> None:
        """Close the connections that were opened here; the next survey opens new ones."""
        self._keep_clients(())

    def _read_owned(self, member: str) -> dict[str, bool]:
        try:
            return self._members[member].owned_bundles(self._cluster, member)
        except RedirectedError:
            raise ActionError(
                f"another broker than {member} answers at {url_of_member(self._settings.member_url, member)}"
            ) from None
        except _FAILURES as error:
            raise ActionError(f"broker {member}: {describe_rest_error(error)}") from None

    def _keep_clients(self, members: Iterable[str]) -> None:
        kept = set(members)
        for member in [member for member in self._members if member not in kept]:
            self._members.pop(member).close()
        for member in kept - set(self._members):
            where = {"admin_url": url_of_member(self._settings.member_url, member)}
            access = self._admin.settings.model_copy(update=where)
            self._members[member] = AdminApi(access, self._transport, (_refuse_redirect,))


@contextmanager
def _converted_failures(*, is_write: bool = False) -> Iterator[None]:
    """Raise ActionError for the failure of a request; UnknownOutcomeError for a write that may have been done."""
    try:
        yield
    except _FAILURES as error:
        kind = UnknownOutcomeError if is_write and not was_not_done(error) else ActionError
        raise kind(describe_rest_error(error)) from None


def _refuse_redirect(response: httpx.Response) -> None:
    if response.has_redirect_location:
        raise RedirectedError(f"{request_line(response.request)}: it does not serve the bundle, and names another")


# The conditions that must hold at the moment a bundle is unloaded, or looked up to be owned again.

ServedBy = tuple[str, ...]
"""The brokers that report that they serve a bundle."""

UnloadResult = ActionResult[ServedBy]


def has_other_owner(decision: OwnershipDecision) -> bool:
    """Whether the member must give up the bundle because ZooKeeper names another owner."""
    by_zookeeper = decision.reason in (OwnershipReason.OTHER_OWNER, OwnershipReason.DOUBLE_OWNERSHIP)
    return by_zookeeper and decision.owner not in (None, decision.member)


def find_conclusion(decision: OwnershipDecision, survey: Survey, *, unsure: bool) -> UnloadResult | None:
    """Return the result if the decision needs no action or must not be carried out now; None to carry it out.

    It is `unsure` if an earlier attempt got no answer: then the wanted state counts as its effect.
    """
    serving = {member for member, owned in survey.owned.items() if decision.bundle in owned}
    active = tuple(sorted(member for member in serving if survey.owned[member][decision.bundle]))
    if decision.verdict is OwnershipVerdict.UNLOAD:
        return _judge_unload(decision, survey, serving, active, unsure)
    if active:
        return ActionResult(CommonOutcome.DONE if unsure else UnloadOutcome.ALREADY_OWNED, observed=active)
    # Brokers that do not answer do not matter here: any client's lookup does the same as ours.
    return None


def _judge_unload(
    decision: OwnershipDecision, survey: Survey, serving: set[str], active: ServedBy, unsure: bool
) -> UnloadResult | None:
    member = decision.member
    if member not in survey.listed:
        return ActionResult(CommonOutcome.FAILED, f"{member} is not registered, so it is not asked", active)
    if member in survey.unanswered:
        return ActionResult(CommonOutcome.FAILED, survey.unanswered[member], active)
    if member not in serving:
        return ActionResult(CommonOutcome.DONE if unsure else UnloadOutcome.ALREADY_MOVED, observed=active)
    if member not in active:
        return ActionResult(CommonOutcome.FAILED, "it is letting go of it, and not done yet", active)
    # If the decision names another owner by ZooKeeper, that broker is the rightful one and the member must give up the
    # bundle (PIP-57). The member needs a ZooKeeper session for it: an unload without one hangs, and leaves the bundle
    # unusable there for good. In all other cases ZooKeeper's owner is a rival even if it does not serve the bundle yet,
    # because the unload may delete its node.
    rightful = {decision.owner} if has_other_owner(decision) and decision.session is not None else set()
    named = set() if decision.owner is None else {decision.owner}
    if rivals := (serving | named) - {member} - rightful:
        return ActionResult(UnloadOutcome.CONTESTED, f"{', '.join(sorted(rivals))} may own it rightfully", active)
    if silent := sorted(survey.unanswered.keys() - rightful):
        what = f"who else serves it is not known: {survey.unanswered[silent[0]]}"
        return ActionResult(CommonOutcome.FAILED, what, active)
    return None


class UnloadMetrics(ActuatorMetrics):
    """The metrics of the unload actuator, shared by all clusters. Make one per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.outcomes = Counter(
            "headgate_bundle_actions",
            "Outcomes of decisions to unload a bundle or to have it owned again: done, failed, or the reason not to.",
            ("cluster", "verdict", "outcome"),
            registry=registry,
        )
        super().__init__(
            registry,
            "headgate_bundle_actions_failing",
            "1 while a bundle that should be unloaded or owned again cannot be, for safety or because of a failure.",
            is_paced=True,
        )


# Carries out the sessions policy's decisions about bundles.
#
# Each attempt asks the brokers again which bundles they serve, so an attempt that was interrupted anywhere is simply
# repeated. A bundle is only ever unloaded at the broker that the decision names: while that broker alone serves it,
# or while ZooKeeper names another owner, so that two may serve it.
#
# Decisions about the broker itself (`shutdown`, `restart`) are not read here: the broker's platform carries them out.

_SURVEYS = stop_after_attempt(3)
_CLOCK_SLACK = timedelta(minutes=1)
"""Possible difference between our clock and Kafka's."""


class UnloadWorker(OrderWorker[OwnershipDecision, ServedBy, UnloadMetrics]):
    """Carries out one cluster's decisions about bundles."""

    wanted = frozenset({OwnershipVerdict.UNLOAD, OwnershipVerdict.RE_OWN})
    again = frozenset({UnloadOutcome.FAILED, UnloadOutcome.CONTESTED})
    renewals_overtake = True
    levels: ClassVar = {UnloadOutcome.CONTESTED: "warning"}

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
        super().__init__(cluster, publish, metrics, clock, settings.grace)
        self._brokers = Brokers(cluster, admin, settings, transport)
        interval_seconds = settings.per_broker_interval.total_seconds()
        self._rates = defaultdict[str, ActionRate](lambda: ActionRate(1, clock.monotonic, interval_seconds))
        """The rate of unloads on each broker."""
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
        if wait_seconds := self._rates[decision.member].wait_seconds():
            self._postpone(decision, wait_seconds)
            return None
        return None if self._is_held(decision) else self._act(decision, stop)

    def _content(self, decision: OwnershipDecision, result: UnloadResult) -> object:
        return decision.decision_id, result

    def _count(self, decision: OwnershipDecision, result: UnloadResult) -> None:
        self._metrics.outcomes.labels(self._cluster, decision.verdict.value, result.outcome.value).inc()

    def _event(
        self, decision: OwnershipDecision, result: UnloadResult, attempt: int, at: datetime
    ) -> BundleUnloaded | BundleReOwned:
        kind = BundleUnloaded if decision.verdict is OwnershipVerdict.UNLOAD else BundleReOwned
        outcome = UnloadOutcome(result.outcome)
        return kind(
            cluster=self._cluster,
            member=decision.member,
            bundle=decision.bundle,
            decision_id=decision.decision_id,
            sequence=decision.sequence,
            outcome=outcome,
            served_by=result.observed or (),
            attempt=attempt,
            done_at=at if outcome is UnloadOutcome.DONE else None,
            detail=result.detail,
        )

    def _survey_brokers(self, stop: Event) -> Survey:
        """Ask the brokers which bundles they serve, once for all decisions that are due."""
        if self._survey is None:
            retry = retry_if_exception_type(ActionError) | retry_if_result(lambda survey: bool(survey.unanswered))
            retrying = self._retrying(
                stop, _SURVEYS, first_pause_seconds=0.1, longest_pause_seconds=2.0,
                retry=retry, retry_error_callback=_return_last_survey,
            )  # fmt: skip
            self._survey = retrying(self._brokers.survey)
        return self._survey

    def _act(self, decision: OwnershipDecision, stop: Event) -> UnloadResult:
        self._rates[decision.member].count_action()
        self._survey = None
        try:
            if decision.verdict is OwnershipVerdict.RE_OWN:
                return self._re_own(decision, stop)
            self._brokers.unload(decision.member, decision.bundle)
            if has_other_owner(decision):
                # The unload may have deleted the node of the rightful owner, which has the same version.
                with suppress(ActionError):  # any client's lookup does the same
                    self._brokers.look_up(decision.bundle)
            return ActionResult(CommonOutcome.DONE)
        except RedirectedError as error:
            return ActionResult(UnloadOutcome.ALREADY_MOVED, str(error))

    def _re_own(self, decision: OwnershipDecision, stop: Event) -> UnloadResult:
        if self._brokers.look_up(decision.bundle) is None:
            return ActionResult(UnloadOutcome.NO_TOPICS)
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
