"""The collector of one cluster's sessions, seen from outside: connected, disconnected, expired or gone."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Annotated

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from connectors.collection.change_filter import ChangeFilter
from connectors.collection.history import ReadingHistory, no_history
from connectors.collection.poll_metrics import PollMetrics
from connectors.collection.schedule import ticks
from connectors.sessions.ensemble import Ensemble
from connectors.sessions.members import MemberSession, MemberTracker, RegistrationTree
from connectors.zookeeper.connection import ZnodePath, ZooKeeperConnection
from connectors.zookeeper.four_letter import FourLetterWords
from connectors.zookeeper.outcomes import detail_of
from connectors.zookeeper.server_admin import AdminServer
from connectors.zookeeper.server_status import StatusError, StatusSource, outcome_of
from policies.observations import Outcome, Reading
from policies.sessions.readings import BROKERS, MAX_NAME, MAX_TIMEOUT_MS, SessionState, ZkSession
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/zookeeper-sessions"
"""The CloudEvents `source` of what this collector reads."""

TROUBLED_SECONDS = 2.0
"""Who is cut off or has lost its session is told of at least so often: what is decided on it takes fresh readings."""

_TROUBLED = (SessionState.DISCONNECTED, SessionState.EXPIRED)
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_SESSION = re.compile(r"0x[0-9a-f]{1,16}")
_ADMIN_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")
_HOST = "{host}"

_log = structlog.get_logger(__name__)


def _server(server: str) -> str:
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError(f"'{server}' is not host:port, such as zk-1.example.org:2181")
    return server


def _admin_url(url: str) -> str:
    if url.count(_HOST) != 1 or not _ADMIN_URL.fullmatch(url.replace(_HOST, "host")):
        raise ValueError("is not http(s)://{host}:port, such as http://{host}:8080, with {host} as it stands here")
    return url


class Registrations(BaseModel):
    """A tree where members of one role register: each child is an ephemeral node, named as the member is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: ZnodePath = Field(description="The tree's root, below the chroot.")
    role: str = Field(min_length=1, max_length=MAX_NAME, description="What its members are: the fleet they belong to.")


class WatchedSessions(BaseModel):
    """Whose ZooKeeper sessions are watched, and how.

    The servers are asked for `srvr`, `dump` and `cons`, which their `4lw.commands.whitelist` must allow, or the same of
    their admin servers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("1s"), description="From one look at the sessions to the next; short against a timeout."
    )
    timeout: PositiveDuration = Field(
        default=parse_duration("2s"), description="How long each server may take for one answer."
    )
    servers: tuple[Annotated[str, AfterValidator(_server)], ...] | None = Field(
        default=None,
        min_length=1,
        description="All servers of the ensemble, as `host:port`, observers too: who is connected to one that is not "
        "named looks cut off at first. Default: those of the connection.",
    )
    admin_url: Annotated[str, AfterValidator(_admin_url)] | None = Field(
        default=None,
        description="Where each server's admin server is, such as `http://{host}:8080`; `{host}` is the host in "
        "`servers`. Default: four-letter words are used.",
    )
    members: tuple[Registrations, ...] = Field(
        default=(Registrations(path=BROKERS, role="broker"),),
        min_length=1,
        description="Where members register; a name that occurs twice counts in the first tree only.",
    )
    republish: PositiveDuration = Field(
        default=parse_duration("15s"), description="A reading that has not changed is published again after this."
    )
    forget_after: PositiveDuration = Field(
        default=parse_duration("1h"),
        description="A member whose session has ended and who has not come back is no longer reported after this.",
    )

    def sources(self, connection: ZooKeeperConnection) -> dict[str, StatusSource]:
        """How to ask each server."""
        seconds = self.timeout.total_seconds()
        if self.admin_url is None:
            servers = self.servers or connection.hosts()
            return {server: FourLetterWords(server, seconds, connection.tls) for server in servers}
        hosts = [server.rpartition(":")[0] for server in self.servers or connection.hosts()]
        urls = [self.admin_url.replace(_HOST, host) for host in hosts]
        tls = connection.tls if self.admin_url.startswith("https:") else None
        return {url: AdminServer(url, seconds, tls) for url in urls}


class SessionCollector:
    """Looks at one ensemble over and over and hands on the sessions of the members, failures included.

    One `headgate.zk-session.v1` for each member, and one without a member for the ensemble as a whole: it is not `ok`
    when no session can be read, and then nothing is said of any member.

    Args:
        cluster: its name in the settings.
        settings: what is watched.
        connection: where the ensemble is; no session of our own is needed.
        publish: takes each reading as soon as it is known; must not block.
        metrics: shared by all collectors of a process.
        recall: what was last read before this start: who has no session now is known by that alone.
        clock: seconds, never going backwards.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedSessions,
        connection: ZooKeeperConnection,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        *,
        recall: ReadingHistory[ZkSession] = no_history,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recall = recall
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._ensemble = Ensemble(settings.sources(connection), settings.timeout.total_seconds(), clock)
        trees = [RegistrationTree(f"{connection.chroot}{each.path}", each.role) for each in settings.members]
        self._members = MemberTracker(trees, settings.forget_after.total_seconds())
        self._changed = ChangeFilter(publish, settings.republish.total_seconds(), clock)
        self._unread: dict[str, Outcome] = {}

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set; nothing that goes wrong in a poll ends it."""
        try:
            self.begin(self._recall(self._settings.forget_after, stop))
            for _ in ticks(self._settings.poll_interval.total_seconds(), stop.wait):
                self._metrics.run_poll(self._cluster, self.poll_once)
        finally:
            self.close()

    def begin(self, readings: Iterable[ZkSession]) -> None:
        """Know the members that were read before, by their last readings."""
        for each in readings:
            if each.cluster == self._cluster and each.member and each.state and _SESSION.fullmatch(each.session or ""):
                last = MemberSession(each.member, each.role, each.session or "", each.state, each.timeout_ms)
                self._members.recall(last)

    def poll_once(self) -> None:
        """Look at all servers, and publish what has changed or is due."""
        started, began_at = time.monotonic(), self._clock()
        try:
            snapshot = self._ensemble.snapshot(self._members.is_registration)
        except StatusError as error:
            failure = ZkSession(cluster=self._cluster, outcome=error.outcome, detail=detail_of(error))
            self._changed.republish_others(self._cluster)
            self._changed.publish_if_due(self._cluster, failure)
        else:
            readings = [ZkSession(cluster=self._cluster, outcome=Outcome.OK)]
            readings += [session_reading(self._cluster, each) for each in self._members.update(snapshot)]
            for reading in readings:
                every = TROUBLED_SECONDS if reading.state in _TROUBLED else math.inf
                self._changed.publish_if_due(reading.subject(), reading, at_least_every=every, fetched_at=began_at)
            self._changed.keep_only(reading.subject() for reading in readings)
        self._tell_of_servers()
        self._metrics.seconds.labels(self._cluster).observe(time.monotonic() - started)

    def close(self) -> None:
        """End the threads, and close what is open."""
        self._ensemble.close()

    def _tell_of_servers(self) -> None:
        """Count each server's answer, and log when it ended in another way than the one before."""
        now = {server: outcome_of(error) for server, error in self._ensemble.unread.items()}
        for server in self._ensemble.servers:
            outcome = now.get(server, Outcome.OK)
            self._metrics.polls.labels(self._cluster, outcome.value).inc()
            if outcome is not self._unread.get(server, Outcome.OK):
                error = self._ensemble.unread.get(server)
                say = _log.info if error is None else _log.warning
                detail = None if error is None else detail_of(error)
                say("server answers otherwise", cluster=self._cluster, server=server, outcome=outcome, detail=detail)
        self._unread = now


def session_reading(cluster: str, each: MemberSession) -> ZkSession:
    """The reading of one member's session."""
    return ZkSession(
        cluster=cluster,
        member=each.member,
        role=each.role,
        session=each.session,
        state=each.state,
        timeout_ms=None if each.timeout_ms is None else min(each.timeout_ms, MAX_TIMEOUT_MS),
    )
