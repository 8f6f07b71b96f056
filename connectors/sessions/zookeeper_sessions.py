"""The collector of one cluster's sessions, from the outside: connected, disconnected, expired or closed."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Annotated

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from connectors.collection import ChangeFilter, Collector, PollMetrics, ReadingHistory, no_history
from connectors.sessions.session_states import Ensemble, MemberTracker
from connectors.zookeeper.server_admin import AdminServer, StatusError, StatusSource, outcome_of
from connectors.zookeeper.session import ZnodePath, ZooKeeperConnection, describe_zookeeper_error
from policies.observations import Outcome, Reading
from policies.sessions.readings import BROKERS, MAX_NAME, SessionState, ZkSession
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/zookeeper-sessions"
"""The CloudEvents `source` of this collector's readings."""

TROUBLED_SECONDS = 2.0
"""Longest time between two readings of a disconnected or expired session, because decisions need fresh readings."""

_TROUBLED = (SessionState.DISCONNECTED, SessionState.EXPIRED)
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_ADMIN_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")
_HOST = "{host}"

_log = structlog.get_logger(__name__)


def _validate_server(server: str) -> str:
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError(f"'{server}' is not host:port, such as zk-1.example.org:2181")
    return server


def _validate_admin_url(url: str) -> str:
    if url.count(_HOST) != 1 or not _ADMIN_URL.fullmatch(url.replace(_HOST, "host")):
        raise ValueError("is not http(s)://{host}:port, such as http://{host}:8080, with a literal {host}")
    return url


class Registrations(BaseModel):
    """A tree in which members of one role register: each child is an ephemeral node with the member's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: ZnodePath = Field(description="The tree's root, below the chroot.")
    role: str = Field(
        min_length=1, max_length=MAX_NAME, description="The role of its members, which names their fleet."
    )


class WatchedSessions(BaseModel):
    """Settings of the session collector.

    It sends `server_stats`, `dump` and `connections` to the servers' admin servers, which ZooKeeper has since 3.5.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("1s"), description="Interval between readings; short compared to a session timeout."
    )
    timeout: PositiveDuration = Field(
        default=parse_duration("2s"), description="Time limit for one answer of a server."
    )
    servers: tuple[Annotated[str, AfterValidator(_validate_server)], ...] | None = Field(
        default=None,
        min_length=1,
        description="All servers of the ensemble, as `host:port`, observers included: a session that is connected to a "
        "server not listed here looks disconnected at first. Default: the servers of the connection.",
    )
    admin_url: Annotated[str, AfterValidator(_validate_admin_url)] = Field(
        default="http://{host}:8080",
        description="Address of each server's admin server; `{host}` is the host in `servers`. Its port is "
        "`admin.serverPort` in `zoo.cfg`: 8080 by default, 9990 in Pulsar's own configuration.",
    )
    members: tuple[Registrations, ...] = Field(
        default=(Registrations(path=BROKERS, role="broker"),),
        min_length=1,
        description="The trees in which members register; a name that occurs twice counts in the first tree only.",
    )
    republish: PositiveDuration = Field(
        default=parse_duration("15s"), description="An unchanged reading is published again after this time."
    )
    forget_after: PositiveDuration = Field(
        default=parse_duration("1h"),
        description="A member whose session has ended is no longer reported after this time, unless it comes back.",
    )

    def sources(self, connection: ZooKeeperConnection) -> dict[str, StatusSource]:
        """Return the status source of each server."""
        seconds = self.timeout.total_seconds()
        hosts = [server.rpartition(":")[0] for server in self.servers or connection.hosts()]
        urls = [self.admin_url.replace(_HOST, host) for host in hosts]
        tls = connection.tls if self.admin_url.startswith("https:") else None
        return {url: AdminServer(url, seconds, tls) for url in urls}


class SessionCollector(Collector):
    """Reads one ensemble periodically, and publishes the members' sessions, failures included.

    It publishes one `headgate.zk-session.v1` for each member, and one without a member for the ensemble as a whole. The
    latter is not `ok` if no session can be read; then no member's reading is published.

    Args:
        connection: the ensemble; the collector needs no session of its own.
        history: returns the last readings from before this start, with members that have no session any more.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedSessions,
        connection: ZooKeeperConnection,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        *,
        history: ReadingHistory[ZkSession] = no_history,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(cluster, settings.poll_interval, publish, metrics)
        self._history = history
        self._settings = settings
        self._clock = clock
        self._ensemble = Ensemble(settings.sources(connection), settings.timeout.total_seconds(), clock)
        trees = {f"{connection.chroot}{each.path}": each.role for each in settings.members}
        self._members = MemberTracker(cluster, trees, settings.forget_after.total_seconds())
        self._changed = ChangeFilter(publish, settings.republish.total_seconds(), clock)
        self._unread: dict[str, Outcome] = {}

    def run(self, stop: threading.Event) -> None:
        """Recall the members from before this start, and poll until `stop` is set."""
        self.recall(self._history(self._settings.forget_after, stop))
        super().run(stop)

    def recall(self, readings: Iterable[ZkSession]) -> None:
        """Add the members of readings from before this start."""
        for each in readings:
            self._members.recall(each)

    def _poll(self) -> None:
        """Read all servers, and publish the readings that have changed or are due."""
        began_at = self._clock()
        try:
            snapshot = self._ensemble.snapshot(self._members.is_registration)
        except StatusError as error:
            failure = ZkSession(cluster=self._cluster, outcome=error.outcome, detail=describe_zookeeper_error(error))
            self._changed.republish_others(self._cluster)
            self._changed.publish_if_due(self._cluster, failure)
        else:
            readings = [ZkSession(cluster=self._cluster, outcome=Outcome.OK)]
            readings += self._members.update(snapshot)
            for reading in readings:
                every = TROUBLED_SECONDS if reading.state in _TROUBLED else math.inf
                self._changed.publish_if_due(reading.subject(), reading, at_least_every=every, fetched_at=began_at)
            self._changed.keep_only(reading.subject() for reading in readings)
        self._report_servers()

    def close(self) -> None:
        """Close all connections."""
        self._ensemble.close()

    def _report_servers(self) -> None:
        """Count the outcome for each server, and log its changes."""
        now = {server: outcome_of(error) for server, error in self._ensemble.unread.items()}
        for server in self._ensemble.servers:
            outcome = now.get(server, Outcome.OK)
            self._metrics.polls.labels(self._cluster, outcome.value).inc()
            if outcome is not self._unread.get(server, Outcome.OK):
                error = self._ensemble.unread.get(server)
                log = _log.info if error is None else _log.warning
                detail = None if error is None else describe_zookeeper_error(error)
                log(
                    "a server's outcome has changed",
                    cluster=self._cluster,
                    server=server,
                    outcome=outcome,
                    detail=detail,
                )
        self._unread = now
