"""The notifications to send to Alertmanager: a pure function of the loop's alerts and the time.

Alertmanager identifies an alert by its labels and ends it at its `endsAt`, unless it receives the alert again before.
So a firing alert is sent repeatedly with an end four intervals ahead: if Headgate is gone, the alert ends by itself. A
resolved alert is sent for another quarter of an hour, so that a server that was away receives it, too.
Source: Alertmanager's API v2 and the way Prometheus itself sends alerts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from policies.decisions import Alert, AlertStatus, Severity
from policies.registry import alert_kind
from policies.units import format_instant

_LIVES_INTERVALS = 4
_RESOLVED_FOR = timedelta(minutes=15)

_GRAVEST_FIRST = [each.value for each in reversed(Severity)]
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Notification:
    """One alert in the form of Alertmanager."""

    labels: Labels
    """The alert's identity; everything else may change while it fires."""
    annotations: Mapping[str, str]
    started_at: datetime
    ended_at: datetime | None
    """None while it fires."""
    link: str = ""
    """The page of its cluster; empty if the page's address is not known."""

    def body(self, now: datetime, lives: timedelta) -> dict[str, Any]:
        """Return the form of the API."""
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            **({"generatorURL": self.link} if self.link else {}),
            "startsAt": format_instant(self.started_at),
            # After its start, as Alertmanager requires, also if our clock is behind the query's.
            "endsAt": format_instant(max(now, self.started_at) + lives if self.ended_at is None else self.ended_at),
        }


class NotificationBook:
    """The firing alerts by record key, and the alerts that ended lately."""

    def __init__(self, resend_interval: timedelta, page_url: str | None = None) -> None:
        self._page_url = page_url
        self._lives = resend_interval * _LIVES_INTERVALS
        self._firing: dict[str, Notification] = {}
        self._ended: dict[tuple[tuple[str, str], ...], Notification] = {}

    def fold(self, key: str, alert: Alert, now: datetime) -> None:
        """Store an alert that fires, changes or ends."""
        notification = notification_of(alert, self._page_url)
        before = self._firing.pop(key, None)
        if before is not None and before.labels != notification.labels:
            self._end(before, now)  # with other labels it is another alert for Alertmanager
        if alert.status is AlertStatus.FIRING:
            self._firing[key] = notification
        elif before is not None:
            self._end(notification, min(notification.ended_at or now, now))  # an end in the future would not end it

    def forget(self, key: str, now: datetime) -> None:
        """End an alert whose record was deleted, because its cluster is not watched any more."""
        before = self._firing.pop(key, None)
        if before is not None:
            self._end(before, now)

    def bodies(self, now: datetime, in_force: Mapping[tuple[str, str], str] | None = None) -> list[dict[str, Any]]:
        """Return the firing and the recently ended alerts, by severity.

        Each alert has the annotation `in_force`: the sentence on the values that are set in its cluster. The argument
        has these sentences by policy and cluster.

        Alertmanager notifies of an alert older than `group_wait` at once, so the alert's cause should arrive before it.
        """
        firing = {_identity(notification) for notification in self._firing.values()}
        self._ended = {
            identity: ended
            for identity, ended in self._ended.items()
            if identity not in firing and now - (ended.ended_at or now) <= _RESOLVED_FOR
        }
        found = [*self._firing.values(), *self._ended.values()]
        found.sort(key=lambda n: _GRAVEST_FIRST.index(n.labels["severity"]))
        bodies = [notification.body(now, self._lives) for notification in found]
        for body in bodies:
            about = (body["labels"].get("policy", ""), body["labels"].get("cluster", ""))
            if in_force is not None and about in in_force:
                body["annotations"]["in_force"] = in_force[about]
        return bodies

    def _end(self, notification: Notification, at: datetime) -> None:
        # `bodies` leaves it out while another alert with these labels fires. A check here would look at all alerts.
        # Alertmanager refuses an end before the start, which different clocks may cause for a short alert.
        ended = replace(notification, ended_at=max(at, notification.started_at))
        self._ended[_identity(ended)] = ended


def notification_of(alert: Alert, page_url: str | None = None) -> Notification:
    """Make the notification of an alert: its labels for routes and silences, its sentence, and links to the page."""
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
    annotations = {"summary": alert.summary, "reason": alert.reason, "alert_id": alert.alert_id}
    kind = alert_kind(alert.policy, alert.alert)
    if kind is not None and kind.remedy:
        annotations["remedy"] = kind.remedy
        annotations["verify"] = kind.command(alert.cluster, alert.subject)
    link = ""
    if page_url is not None:
        annotations["runbook_url"] = f"{page_url}/alerts/{quote(alert.alert, safe='')}"
        link = f"{page_url}/clusters/{quote(alert.cluster, safe='')}"
    ended_at = None if alert.status is AlertStatus.FIRING else alert.ended_at or alert.decided_at
    # Alertmanager, too, ignores a label without a value.
    return Notification({n: v for n, v in labels.items() if v}, annotations, alert.started_at, ended_at, link)


def _identity(notification: Notification) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(notification.labels.items()))
