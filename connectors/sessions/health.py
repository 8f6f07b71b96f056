"""The collector of brokers' health: each broker's own health check, and whether its cluster lists the broker.

A broker that reports itself healthy but is not listed is the zombie that the sessions policy looks for. So a broker
that drops off the list is still polled.
"""

import errno
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import httpx
import structlog

from connectors.collection import ChangeFilter, Collector, PollMetrics, ReadingHistory, no_history
from connectors.http.rest import REST_READ_ERRORS, AdminError, describe_rest_error, outcome_of
from connectors.pulsar.admin import CONCURRENCY, AdminApi
from connectors.pulsar.settings import PulsarAdmin, address_problem, is_member, url_of_member
from connectors.sessions.registration import WatchedHealth
from policies.observations import Outcome, Reading
from policies.sessions.readings import MemberHealth

SOURCE = "headgate/collector/pulsar-health"

_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)

_Answer = tuple[Outcome, str | None, bool | None]
"""The outcome, its detail, and whether the broker is healthy."""

_log = structlog.get_logger(__name__)


class MemberHealthCollector(Collector):
    """Reads the list of brokers and each broker's health periodically, and publishes one reading per broker."""

    def __init__(
        self,
        cluster: str,
        settings: WatchedHealth,
        admin: PulsarAdmin,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        *,
        history: ReadingHistory[MemberHealth] = no_history,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(cluster, settings.poll_interval, publish, metrics)
        self._settings = settings
        self._admin = admin
        self._history = history
        self._clock = clock
        self._transport = transport
        self._list = AdminApi(admin, transport)
        self._apis: dict[str, AdminApi] = {}
        self._seen_at: dict[str, float] = {}
        self._is_listing = True
        self._changed = ChangeFilter(publish, settings.republish.total_seconds(), clock)

    def run(self, stop: threading.Event) -> None:
        """Recall the brokers from before this start, and poll until `stop` is set."""
        self.recall(self._history(self._settings.forget_after, stop))
        super().run(stop)

    def recall(self, readings: Iterable[MemberHealth]) -> None:
        """Add the brokers of readings from before this start."""
        names = {each.member for each in readings if each.cluster == self._cluster and is_member(each.member)}
        self._seen_at.update(dict.fromkeys(names, self._clock()))

    def _poll(self) -> None:
        """Read the list and each broker's health, and publish the readings that have changed or are due."""
        began_at = self._clock()
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="broker health") as workers:
            # The list is read in parallel with the known brokers; new brokers on it are asked afterwards.
            listing = workers.submit(self._list_brokers)
            asked = {member: workers.submit(self._check_health, member) for member in self._update_members(None)}
            listed = listing.result()
            for member in self._update_members(listed):
                if member not in asked:
                    asked[member] = workers.submit(self._check_health, member)
            # Brokers' lists can lag behind each other by minutes, so a missing broker is asked for its own list.
            missing = [m for m in asked if listed is not None and m not in listed and asked[m].result()[2]]
            self_listing = {member: workers.submit(self._lists_itself, member) for member in missing}
            if listed is not None:
                listed = listed.union(member for member, answer in self_listing.items() if answer.result())
        for member, answer in asked.items():
            self._publish_due(member, answer.result(), listed, began_at)
        self._changed.keep_only(f"{self._cluster}/{member}" for member in asked)

    def close(self) -> None:
        """Close all connections; the next poll opens new ones."""
        self._list.close()
        while self._apis:
            self._apis.popitem()[1].close()

    def _list_brokers(self) -> frozenset[str] | None:
        """Return the listed brokers; None if the list cannot be read."""
        try:
            listed = frozenset(self._list.brokers(self._cluster))
        except REST_READ_ERRORS.expected as error:
            if self._is_listing:
                detail = describe_rest_error(error)
                _log.warning("the list of brokers cannot be read", cluster=self._cluster, detail=detail)
            self._is_listing = False
            return None
        if not self._is_listing:
            _log.info("the list of brokers can be read again", cluster=self._cluster)
        self._is_listing = True
        return listed

    def _check_health(self, member: str) -> _Answer:
        problem = address_problem(member, self._admin.admin_url)
        return _ask_health(self._apis[member]) if problem is None else (Outcome.ERROR, f"not asked: {problem}", None)

    def _lists_itself(self, member: str) -> bool:
        try:
            return member in self._apis[member].brokers(self._cluster)
        except REST_READ_ERRORS.expected:
            return False

    def _update_members(self, listed: frozenset[str] | None) -> list[str]:
        """Return the brokers to ask (configured, listed or remembered), and keep one client for each."""
        now = self._clock()
        self._seen_at.update(dict.fromkeys((member for member in listed or () if is_member(member)), now))
        forgotten_at = now - self._settings.forget_after.total_seconds()
        self._seen_at = {member: at for member, at in self._seen_at.items() if at > forgotten_at}
        members = sorted({*self._seen_at, *self._settings.members})
        for member in [member for member in self._apis if member not in members]:
            self._apis.pop(member).close()
        for member in members:
            if member not in self._apis:
                url = url_of_member(self._settings.member_url, member)
                access = self._admin.model_copy(update={"admin_url": url, "timeout": self._settings.timeout})
                self._apis[member] = AdminApi(access, self._transport)
        return members

    def _publish_due(self, member: str, answer: _Answer, listed: frozenset[str] | None, fetched_at: float) -> None:
        outcome, detail, healthy = answer
        is_listed = None if listed is None else member in listed
        reading = MemberHealth(
            cluster=self._cluster, member=member, outcome=outcome, detail=detail, healthy=healthy, listed=is_listed
        )
        if healthy:
            self._seen_at[member] = self._clock()
        self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
        # Decisions about an unhealthy or missing broker need fresh readings, so each of them is published.
        every = math.inf if reading.healthy and reading.listed else 0.0
        self._changed.publish_if_due(reading.subject(), reading, at_least_every=every, fetched_at=fetched_at)


def _ask_health(api: AdminApi) -> _Answer:
    try:
        api.check_health()
    except AdminError as error:
        if error.status is not None and error.status >= httpx.codes.INTERNAL_SERVER_ERROR:
            # The broker answers that it is not healthy.
            return Outcome.OK, describe_rest_error(error), False
        return error.outcome, describe_rest_error(error), None
    except REST_READ_ERRORS.expected as error:
        outcome = outcome_of(error)
        # `unreachable` must mean that the host refuses connections; a broken route does not show a dead process.
        if outcome is Outcome.UNREACHABLE and _is_no_route(error):
            outcome = Outcome.TIMEOUT
        return outcome, describe_rest_error(error), None
    return Outcome.OK, None, True


def _is_no_route(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno in _NO_ROUTE):
            return True
        error = error.__cause__ or error.__context__
    return False
