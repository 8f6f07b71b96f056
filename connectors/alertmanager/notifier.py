"""Follows the loop's alerts and sends them to every Alertmanager; it survives outages of Kafka and Alertmanager."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import groupby
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.collection import one_line
from connectors.decided import DecisionsInForce, Watched
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.decisions import Alert, AlertStatus, Decision, Severity
from policies.registry import alert_kind
from policies.units import UserError, format_instant

# Posts alerts to one Alertmanager.

_BATCH = 256
_MAX_ANSWER_BYTES = 2_000
_ALERTS = "/api/v2/alerts"

_log = structlog.get_logger(__name__)


def post_alerts(client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> str | None:
    """Post all alerts to one Alertmanager, one severity after the other, so that causes arrive before their effects.

    An alert that it refuses keeps back no others. `bodies` are alerts in the form of its API. Returns one short line
    without secrets if it did not accept all of them, else None.
    """
    refusal: str | None = None
    for _, group in groupby(bodies, key=lambda body: body["labels"].get("severity")):
        of_severity = list(group)
        for start in range(0, len(of_severity), _BATCH):
            try:
                response = client.post(f"{url.rstrip('/')}{_ALERTS}", json=of_severity[start : start + _BATCH])
            except httpx.TimeoutException:
                return "no answer in time"
            except (httpx.HTTPError, UserError) as error:
                return one_line(str(error) or type(error).__name__)
            if not response.is_success and refusal is None:
                answer = response.content[:_MAX_ANSWER_BYTES].decode(errors="replace")
                refusal = one_line(f"status {response.status_code}: {answer}")
    return refusal


# The notifications to send to Alertmanager: a pure function of the loop's alerts and the time.
#
# Alertmanager identifies an alert by its labels and ends it at its `endsAt`, unless it receives the alert again
# before. So a firing alert is sent repeatedly with an end four intervals ahead: if Headgate is gone, the alert ends
# by itself. A resolved alert is sent for another quarter of an hour, so that a server that was away receives it, too.
# Source: Alertmanager's API v2 and the way Prometheus itself sends alerts.

_LIVES_INTERVALS = 4
_RESOLVED_FOR = timedelta(minutes=15)

_GRAVEST_FIRST = list(reversed(Severity))
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")

Identity = tuple[tuple[str, str], ...]
"""The labels by which Alertmanager knows an alert; everything else may change while it fires."""


class NotificationBook:
    """The alerts that ended lately; with those that fire it makes what Alertmanager's API takes.

    `page_url` is the status page's address, to which the alerts link.
    """

    def __init__(self, resend_interval: timedelta, page_url: str | None = None) -> None:
        self._page_url = page_url
        self._lives = resend_interval * _LIVES_INTERVALS
        self._ended: dict[Identity, tuple[Alert, datetime]] = {}

    def fold(self, before: Decision | None, after: Decision | None, now: datetime) -> None:
        """Note the end of an alert that fired; `after` is None if its cluster is not watched any more."""
        if not isinstance(before, Alert) or before.status is not AlertStatus.FIRING:
            return
        if not isinstance(after, Alert) or _identity(before) != _identity(after):
            self._end(before, now)  # with other labels it is another alert for Alertmanager
        if isinstance(after, Alert) and after.status is not AlertStatus.FIRING:
            self._end(after, min(after.ended_at or after.decided_at, now))  # an end in the future would not end it

    def bodies(
        self, firing: Sequence[Alert], now: datetime, in_force: Mapping[Watched, str] = MappingProxyType({})
    ) -> list[dict[str, Any]]:
        """Return the firing and the recently ended alerts, by severity.

        `in_force` has sentences on the values that are set, by policy and cluster, as annotations of that name.

        Alertmanager notifies of an alert older than `group_wait` at once, so the alert's cause should arrive before it.
        """
        identities = {_identity(alert) for alert in firing}
        self._ended = {
            identity: (alert, ended_at)
            for identity, (alert, ended_at) in self._ended.items()
            if identity not in identities and now - ended_at <= _RESOLVED_FOR
        }
        # After its start, as Alertmanager requires, also if our clock is behind the query's.
        found = [(alert, max(now, alert.started_at) + self._lives) for alert in firing]
        found += self._ended.values()
        found.sort(key=lambda each: _GRAVEST_FIRST.index(each[0].severity))
        return [self._body(alert, ends_at, in_force) for alert, ends_at in found]

    def _body(self, alert: Alert, ends_at: datetime, in_force: Mapping[Watched, str]) -> dict[str, Any]:
        """Return an alert with its labels for routes and silences, its sentence, and links to the page."""
        annotations = {"summary": alert.summary, "reason": alert.reason, "alert_id": alert.alert_id}
        kind = alert_kind(alert.policy, alert.alert)
        if kind is not None and kind.remedy:
            annotations["remedy"] = kind.remedy
            annotations["verify"] = kind.command(alert.cluster, alert.subject)
            about = {"policy": alert.policy, "cluster": alert.cluster, "subject": alert.subject, **alert.labels}
            annotations |= {"commands": "\n".join(kind.lines(about))} if kind.commands else {}
        if (sentence := in_force.get((alert.policy, alert.cluster))) is not None:
            annotations["in_force"] = sentence
        body = {"startsAt": format_instant(alert.started_at), "endsAt": format_instant(ends_at)}
        if self._page_url is not None:
            annotations["runbook_url"] = f"{self._page_url}/alerts/{quote(alert.alert, safe='')}"
            body["generatorURL"] = f"{self._page_url}/clusters/{quote(alert.cluster, safe='')}"
        return {"labels": dict(_identity(alert)), "annotations": annotations, **body}

    def _end(self, alert: Alert, at: datetime) -> None:
        # `bodies` leaves it out while another alert with these labels fires. A check here would look at all alerts.
        # Alertmanager refuses an end before the start, which different clocks may cause for a short alert.
        self._ended[_identity(alert)] = alert, max(at, alert.started_at)


def _identity(alert: Alert) -> Identity:
    # A label's name has letters, digits and underscores, and does not start with a digit.
    cleaned = {_NOT_IN_A_NAME.sub("_", name): value for name, value in alert.labels.items()}
    labels = {
        **{f"_{name}" if name[:1].isdigit() else name: value for name, value in cleaned.items()},
        "alertname": alert.alert,
        "policy": alert.policy,
        "severity": alert.severity.value,
        "cluster": alert.cluster,
        "subject": alert.subject,
    }
    # Alertmanager, too, ignores a label without a value.
    return tuple(sorted((name, value) for name, value in labels.items() if value))


_POLL_SECONDS = 0.5
_RETRY = timedelta(seconds=5)


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
        self._in_force = DecisionsInForce()
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
            self._settings.http_client() as client,
            Tail(self._connection, dict.fromkeys(self._topics), "headgate-alertmanager") as tail,
        ):
            while not stop.is_set():
                self.fold_records(tail.poll(_POLL_SECONDS))
                self._behind = None if tail.caught_up else tail.problem or f"it reads its history: {tail.backlog}"
                if tail.caught_up and (self._changed or self._now() >= self._due_at):
                    self._send(client, workers)

    def caught_up(self) -> str | None:
        """Return why it is not ready; None once all existing alerts have been read."""
        return self._behind

    def fold_records(self, records: Sequence[Record]) -> None:
        """Fold records of the alerts and heartbeats; bad records are counted elsewhere."""
        for after, before in self._in_force.fold_records(records):
            self._book.fold(before, after, self._now())
            self._changed |= isinstance(before, Alert) or isinstance(after, Alert)

    def bodies(self) -> list[dict[str, Any]]:
        """Return the notifications to send now."""
        in_force = self._in_force.in_force(self._now())
        sentences = {(each.policy, each.cluster): each.describe_set() for each in in_force if each.effects}
        return self._book.bodies(self._in_force.alerts(), self._now(), sentences)

    def _send(self, client: httpx.Client, workers: ThreadPoolExecutor) -> None:
        bodies = self.bodies()
        self._changed = False
        # Each Alertmanager has its own thread, so one that hangs does not delay the others.
        sent = list(workers.map(lambda url: self._send_to(client, url, bodies), self._settings.urls))
        self._due_at = self._now() + (self._settings.resend_interval if all(sent) else _RETRY)

    def _send_to(self, client: httpx.Client, url: str, bodies: Sequence[dict[str, Any]]) -> bool:
        """Send the alerts to one Alertmanager; log the first failure and its end, not each attempt."""
        name, problem = urlsplit(url).netloc, post_alerts(client, url, bodies)
        self._metrics.sent.labels(name, "failed" if problem else "ok").inc()
        self._metrics.failing.labels(name).set(1 if problem else 0)
        before = self._failures.pop(name, None)
        if problem is not None:
            self._failures[name] = problem
        if problem != before:
            log = _log.warning if problem else _log.info
            log("alerts cannot be sent" if problem else "alerts are sent again", alertmanager=name, detail=problem)
        return problem is None
