"""Follows the loop's alerts and sends them to every Alertmanager; it survives outages of Kafka and Alertmanager."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.alertmanager.client import AlertmanagerClient, PostError, post_alerts
from connectors.alertmanager.notifications import NotificationBook
from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.decisions import Alert, Standing

_POLL_SECONDS = 0.5
_RETRY = timedelta(seconds=5)

_log = structlog.get_logger(__name__)


class NotifierMetrics:
    """The notifier's metrics: one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter(
            "headgate_alertmanager_sends",
            "Attempts to send all alerts to one Alertmanager, by result.",
            ("alertmanager", "result"),
            registry=registry,
        )
        self.failing = Gauge(
            "headgate_alertmanager_failing",
            "1 while the alerts cannot be sent to an Alertmanager.",
            ("alertmanager",),
            registry=registry,
        )


class Notifier:
    """Sends alerts at once when they change, and repeatedly while they fire.

    It sends nothing before it has read all existing alerts, because an old record of the topic may be outdated.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Sequence[str],
        settings: AlertmanagerSettings,
        metrics: NotifierMetrics,
        *,
        page_url: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._in_force = DecisionsInForce(kinds=(Alert, Standing))
        self._book = NotificationBook(settings.resend_interval, page_url)
        self._changed = True
        self._due_at = now()
        self._failures: dict[str, str] = {}
        self._behind: str | None = "the notifier has not started yet"

    def run(self, stop: threading.Event) -> None:
        """Follow the alerts until `stop` is set, through outages of Kafka and of the Alertmanagers.

        Raises:
            UserError: a file of the connection, or a certificate, cannot be used.
        """
        workers = ThreadPoolExecutor(len(self._settings.urls), thread_name_prefix="alertmanager")
        with (
            workers,
            closing(AlertmanagerClient(self._settings)) as client,
            Tail(self._connection, dict.fromkeys(self._topics), "headgate-alertmanager") as tail,
        ):
            while not stop.is_set():
                self.fold_records(tail.poll(_POLL_SECONDS))
                self._behind = None if tail.caught_up else tail.problem or f"it reads its history: {tail.backlog}"
                if tail.caught_up and (self._changed or self._now() >= self._due_at):
                    self._send(client.current(), workers)

    def caught_up(self) -> str | None:
        """Return why it is not ready; None once all existing alerts have been read."""
        return self._behind

    def fold_records(self, records: Sequence[Record]) -> None:
        """Fold records of the alerts and heartbeats; bad records are counted elsewhere."""
        for (_, key), after, before in self._in_force.fold_records(records):
            if isinstance(after, Alert):
                self._book.fold(key, after, self._now())
                self._changed = True
            elif isinstance(before, Alert):
                self._book.forget(key, self._now())
                self._changed = True

    def bodies(self) -> list[dict[str, Any]]:
        """Return the notifications to send now."""
        in_force = self._in_force.in_force(self._now())
        return self._book.bodies(
            self._now(), {(each.policy, each.cluster): each.describe_set() for each in in_force if each.effects}
        )

    def _send(self, client: httpx.Client, workers: ThreadPoolExecutor) -> None:
        bodies = self.bodies()
        self._changed = False
        # Each Alertmanager has its own thread, so one that hangs does not delay the others.
        sent = list(workers.map(lambda url: self._send_to(client, url, bodies), self._settings.urls))
        self._due_at = self._now() + (self._settings.resend_interval if all(sent) else _RETRY)

    def _send_to(self, client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> bool:
        """Send the alerts to one Alertmanager; log the first failure and its end, not each attempt."""
        name, problem = urlsplit(url).netloc, None
        try:
            post_alerts(client, url, bodies)
        except PostError as error:
            problem = str(error)
        self._metrics.sent.labels(name, "failed" if problem else "ok").inc()
        self._metrics.failing.labels(name).set(1 if problem else 0)
        before = self._failures.pop(name, None)
        if problem is not None:
            self._failures[name] = problem
        if problem != before:
            log = _log.warning if problem else _log.info
            log("alerts cannot be sent" if problem else "alerts are sent again", alertmanager=name, detail=problem)
        return problem is None
