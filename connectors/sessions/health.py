"""The collector of brokers' health: what each broker reports of itself, and whether its cluster lists it.

A broker that reports itself healthy but is not listed is the zombie that the sessions policy looks for. So brokers are
remembered: one that drops off the list is still polled.
"""

import errno
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import httpx
import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from connectors.collection.change_filter import ChangeFilter
from connectors.collection.history import ReadingHistory, no_history
from connectors.collection.poll_metrics import PollMetrics
from connectors.collection.schedule import ticks
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.connection import MemberUrl, PulsarAdmin, is_member, url_of_member
from connectors.pulsar.outcomes import READ_ERRORS, AdminError, detail_of, outcome_of
from policies.observations import Outcome, Reading
from policies.sessions.readings import MemberHealth
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/pulsar-health"
"""The CloudEvents `source` of what this collector reads."""

CONCURRENCY = 16
"""Brokers asked at once."""

_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)

_Answer = tuple[Outcome, str | None, bool | None]

_log = structlog.get_logger(__name__)


def _member(member: str) -> str:
    if not is_member(member):
        raise ValueError(f"'{member}' is not host:port, as a broker registers itself")
    return member


class WatchedHealth(BaseModel):
    """Whether and how brokers are asked for their health."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="From one question to the next; for each, a broker writes and reads a message of its own.",
    )
    timeout: PositiveDuration = Field(default=parse_duration("5s"), description="How long a broker may take to answer.")
    member_url: MemberUrl = Field(
        default="http://{member}",
        description="A broker's own address; `{member}` is `host:port` as it registers itself, `{host}` the host.",
    )
    members: tuple[Annotated[str, AfterValidator(_member)], ...] = Field(
        default=(), description="Brokers that are always asked, as `host:port`, beside those the cluster has listed."
    )
    republish: PositiveDuration = Field(
        default=parse_duration("15s"), description="A reading that has not changed is published again after this."
    )
    forget_after: PositiveDuration = Field(
        default=parse_duration("1h"),
        description="A broker that neither is listed nor answers is no longer asked after this.",
    )


class MemberHealthCollector:
    """Asks who is listed, and all brokers that are or were, over and over, and hands on what each of them said.

    Args:
        cluster: its name in the settings.
        settings: how often, and where.
        admin: where the cluster's list is asked for, and how to be let in anywhere.
        publish: takes each reading as soon as it is known; must not block.
        metrics: shared by all collectors of a process.
        recall: what was last read before this start: who is not listed now is known by that alone.
        clock: seconds, never going backwards.
        transport: in place of the network, for tests.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedHealth,
        admin: PulsarAdmin,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        *,
        recall: ReadingHistory[MemberHealth] = no_history,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._admin = admin
        self._metrics = metrics
        self._recall = recall
        self._clock = clock
        self._transport = transport
        self._list = AdminApi(admin, transport)
        self._apis: dict[str, AdminApi] = {}
        self._seen_at: dict[str, float] = {}
        self._is_listing = True
        self._changed = ChangeFilter(publish, settings.republish.total_seconds(), clock)

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set; nothing that goes wrong in a poll ends it."""
        try:
            self.begin(self._recall(self._settings.forget_after, stop))
            for _ in ticks(self._settings.poll_interval.total_seconds(), stop.wait):
                self._metrics.run_poll(self._cluster, self.poll_once)
        finally:
            self.close()

    def begin(self, readings: Iterable[MemberHealth]) -> None:
        """Ask those that were asked before, whether listed now or not."""
        names = {each.member for each in readings if each.cluster == self._cluster and is_member(each.member)}
        self._seen_at.update(dict.fromkeys(names, self._clock()))

    def poll_once(self) -> None:
        """Ask for the list and each broker for its health, and publish what has changed or is due."""
        started, began_at = time.monotonic(), self._clock()
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="broker health") as workers:
            # The list is one more question: whom it adds is asked after it.
            listing = workers.submit(self._listed)
            asked = {member: workers.submit(_ask, self._apis[member]) for member in self._members(None)}
            listed = listing.result()
            for member in self._members(listed):
                if member not in asked:
                    asked[member] = workers.submit(_ask, self._apis[member])
            # Lists lag behind each other, by minutes at times: who is missing on one is asked for its own.
            missing = [m for m in asked if listed is not None and m not in listed and asked[m].result()[2]]
            own = {member: workers.submit(self._lists_itself, member) for member in missing}
            if listed is not None:
                listed = listed.union(member for member, answer in own.items() if answer.result())
        for member, answer in asked.items():
            self._announce(self._reading(member, answer.result(), listed), began_at)
        self._changed.keep_only(f"{self._cluster}/{member}" for member in asked)
        self._metrics.seconds.labels(self._cluster).observe(time.monotonic() - started)

    def close(self) -> None:
        """Close all connections; the next poll opens new ones."""
        self._list.close()
        while self._apis:
            self._apis.popitem()[1].close()

    def _listed(self) -> frozenset[str] | None:
        """Who is listed; None when nobody could say."""
        try:
            listed = frozenset(self._list.brokers(self._cluster))
        except READ_ERRORS.expected as error:
            if self._is_listing:
                _log.warning("no list of brokers", cluster=self._cluster, detail=detail_of(error))
            self._is_listing = False
            return None
        if not self._is_listing:
            _log.info("a list of brokers again", cluster=self._cluster)
        self._is_listing = True
        return listed

    def _lists_itself(self, member: str) -> bool:
        try:
            return member in self._apis[member].brokers(self._cluster)
        except READ_ERRORS.expected:
            return False

    def _members(self, listed: frozenset[str] | None) -> list[str]:
        """Whom to ask: the configured, the listed, and those remembered."""
        now = self._clock()
        self._seen_at.update(dict.fromkeys((member for member in listed or () if is_member(member)), now))
        forgotten_at = now - self._settings.forget_after.total_seconds()
        self._seen_at = {member: at for member, at in self._seen_at.items() if at > forgotten_at}
        members = sorted({*self._seen_at, *self._settings.members})
        for member in [member for member in self._apis if member not in members]:
            self._apis.pop(member).close()
        for member in members:
            if member not in self._apis:
                self._apis[member] = self._api(member)
        return members

    def _api(self, member: str) -> AdminApi:
        where = {"admin_url": url_of_member(self._settings.member_url, member), "timeout": self._settings.timeout}
        return AdminApi(self._admin.model_copy(update=where), self._transport)

    def _reading(self, member: str, answer: _Answer, listed: frozenset[str] | None) -> MemberHealth:
        outcome, detail, healthy = answer
        return MemberHealth(
            cluster=self._cluster,
            member=member,
            outcome=outcome,
            detail=detail,
            healthy=healthy,
            listed=None if listed is None else member in listed,
        )

    def _announce(self, reading: MemberHealth, fetched_at: float) -> None:
        if reading.healthy:
            self._seen_at[reading.member] = self._clock()
        self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
        # What is decided on who is unwell or missing takes fresh readings: each is published.
        every = math.inf if reading.healthy and reading.listed else 0.0
        self._changed.publish_if_due(reading.subject(), reading, at_least_every=every, fetched_at=fetched_at)


def _ask(api: AdminApi) -> _Answer:
    """How asking ended, why, and what the broker says."""
    try:
        api.check_health()
    except AdminError as error:
        if error.status is not None and error.status >= httpx.codes.INTERNAL_SERVER_ERROR:
            # It answers, and what it says is that it is not well.
            return Outcome.OK, detail_of(error), False
        return error.outcome, detail_of(error), None
    except READ_ERRORS.expected as error:
        return _outcome_of(error), detail_of(error), None
    return Outcome.OK, None, True


def _outcome_of(error: BaseException) -> Outcome:
    """As ever, but `unreachable` only where the host says that nobody is there: a lost way there is no dead process."""
    outcome = outcome_of(error)
    return Outcome.TIMEOUT if outcome is Outcome.UNREACHABLE and _is_no_way(error) else outcome


def _is_no_way(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno in _NO_WAY):
            return True
        error = error.__cause__ or error.__context__
    return False
