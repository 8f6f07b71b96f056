"""The collector of one cluster's sessions, from the outside: connected, disconnected, expired or closed."""

import math
import threading
import time
from collections.abc import Callable

import structlog

from connectors.collection import ChangeFilter, Collector, PollMetrics, ReadingHistory, no_history
from connectors.sessions.registration import WatchedSessions
from connectors.sessions.session_states import Ensemble, MemberTracker
from connectors.zookeeper.server_admin import AdminServer
from connectors.zookeeper.session import StatusError, describe_zookeeper_error, outcome_of
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome, Reading
from policies.sessions.readings import SessionState, ZkSession

SOURCE = "headgate/collector/zookeeper-sessions"

TROUBLED_SECONDS = 2.0
"""Longest time between two readings of a disconnected or expired session, because decisions need fresh readings."""

_TROUBLED = (SessionState.DISCONNECTED, SessionState.EXPIRED)

_log = structlog.get_logger(__name__)


def status_sources(settings: WatchedSessions, connection: ZooKeeperConnection) -> dict[str, AdminServer]:
    """Return the status source of each server."""
    seconds = settings.timeout.total_seconds()
    hosts = [server.rpartition(":")[0] for server in settings.servers or connection.hosts()]
    urls = [settings.admin_url.replace("{host}", host) for host in hosts]
    tls = connection.tls if settings.admin_url.startswith("https:") else None
    return {url: AdminServer(url, seconds, tls) for url in urls}


class SessionCollector(Collector):
    """Reads one ensemble periodically, without a session of its own, and publishes the members' sessions.

    It publishes one `headgate.zk-session.v1` for each member, and one without a member for the ensemble as a whole. The
    latter is not `ok` if no session can be read; then no member's reading is published.
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
        self._ensemble = Ensemble(status_sources(settings, connection), settings.timeout.total_seconds(), clock)
        trees = {f"{connection.chroot}{each.path}": each.role for each in settings.members}
        self._members = MemberTracker(cluster, trees, settings.forget_after.total_seconds())
        self._changed = ChangeFilter(publish, settings.republish.total_seconds(), clock)
        self._unread: dict[str, Outcome] = {}

    def run(self, stop: threading.Event) -> None:
        """Recall the members from before this start, and poll until `stop` is set."""
        for each in self._history(self._settings.forget_after, stop):
            self._members.recall(each)
        super().run(stop)

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
                log = _log.bind(cluster=self._cluster, server=server, outcome=outcome)
                if error is None:
                    log.info("a server answers again")
                else:
                    log.warning("a server gives no usable answer", detail=describe_zookeeper_error(error))
        self._unread = now
