"""Follows the loop's alerts and sends them to every Alertmanager, through outages of either side."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.alertmanager.client import PostError, post_alerts
from connectors.alertmanager.notifications import NotificationBook
from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.decisions import Alert

_POLL_SECONDS = 0.5
_RETRY = timedelta(seconds=5)

_log = structlog.get_logger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class NotifierMetrics:
    """What it counts: make one for a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter(
            "headgate_alertmanager_sends",
            "Times that one Alertmanager was told of all alerts, by how that ended.",
            ("alertmanager", "result"),
            registry=registry,
        )
        self.failing = Gauge(
            "headgate_alertmanager_failing",
            "1 while an Alertmanager could not be told of the alerts.",
            ("alertmanager",),
            registry=registry,
        )


class Notifier:
    """Tells what fires: at once when that changes, and again and again while it does.

    Nothing is sent before all alerts that are there have been read: an old one of the topic's history is no news.

    Args:
        connection: how to reach the loop's own Kafka.
        topic: of the alerts, with its prefix.
        settings: where the Alertmanagers are.
        metrics: where sends are counted.
        now: the clock.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        settings: AlertmanagerSettings,
        metrics: NotifierMetrics,
        *,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._in_force = DecisionsInForce(kinds=(Alert,))
        self._book = NotificationBook(settings.resend_interval)
        self._changed = True
        self._due_at = now()
        self._failures: dict[str, str] = {}
        self._behind: str | None = "the notifier has not started yet"

    def run(self, stop: threading.Event) -> None:
        """Follow the alerts until `stop` is set; Kafka and the Alertmanagers may come and go meanwhile.

        Raises:
            UserError: a file of the connection, or a certificate, cannot be used.
        """
        workers = ThreadPoolExecutor(len(self._settings.urls), thread_name_prefix="alertmanager")
        with (
            workers,
            self._settings.http_client() as client,
            Tail(self._connection, {self._topic: None}, "headgate-alertmanager") as tail,
        ):
            while not stop.is_set():
                self.take(tail.poll(_POLL_SECONDS))
                self._behind = None if tail.caught_up else tail.problem or f"it reads its history: {tail.backlog}"
                if tail.caught_up and (self._changed or self._now() >= self._due_at):
                    self._send(client, workers)

    def caught_up(self) -> str | None:
        """Readiness: None once all alerts that are there have been read."""
        return self._behind

    def take(self, records: Sequence[Record]) -> None:
        """Fold records of the alerts' topic; bad records are counted elsewhere."""
        for (_, key), alert, _ in self._in_force.fold_records(records):
            if isinstance(alert, Alert):
                self._book.take(key, alert, self._now())
            else:
                self._book.forget(key, self._now())
            self._changed = True

    def bodies(self) -> list[dict[str, Any]]:
        """What Alertmanager should know now."""
        return self._book.bodies(self._now())

    def _send(self, client: httpx.Client, workers: ThreadPoolExecutor) -> None:
        bodies = self.bodies()
        self._changed = False
        # Each on a thread of its own: one that hangs holds up no other.
        told = list(workers.map(lambda url: self._tell(client, url, bodies), self._settings.urls))
        self._due_at = self._now() + (self._settings.resend_interval if all(told) else _RETRY)

    def _tell(self, client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> bool:
        name = urlsplit(url).netloc
        try:
            post_alerts(client, url, bodies)
        except PostError as error:
            self._note(name, str(error))
            return False
        self._note(name, None)
        return True

    def _note(self, name: str, problem: str | None) -> None:
        """Count it; the log is told when it begins and when it ends, not each time."""
        self._metrics.sent.labels(name, "failed" if problem else "ok").inc()
        self._metrics.failing.labels(name).set(1 if problem else 0)
        before = self._failures.pop(name, None)
        if problem is not None:
            self._failures[name] = problem
        if problem != before:
            say = _log.warning if problem else _log.info
            say("alerts cannot be sent" if problem else "alerts are sent again", alertmanager=name, detail=problem)
