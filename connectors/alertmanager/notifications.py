"""What to send to Alertmanager and when: a pure function of the loop's alerts and the time.

Alertmanager identifies an alert by its labels and ends it at its `endsAt`, unless it is sent again before. So a firing
alert is sent repeatedly with an end four intervals ahead: if Headgate is gone, it ends by itself. A resolved alert is
sent for another quarter of an hour, so that a server that was away receives it, too.
Source: Alertmanager's API v2 and the way Prometheus itself sends alerts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from policies.decisions import Alert, AlertStatus, Severity
from policies.units import format_instant

_LIVES_INTERVALS = 4
_RESOLVED_FOR = timedelta(minutes=15)

_GRAVEST_FIRST = [each.value for each in reversed(Severity)]
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Notification:
    """One alert as Alertmanager is told of it."""

    labels: Labels
    """What it is known by; all else may change while it fires."""
    annotations: Mapping[str, str]
    started_at: datetime
    ended_at: datetime | None
    """None while it fires."""

    def body(self, now: datetime, lives: timedelta) -> dict[str, Any]:
        """As the API takes it."""
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "startsAt": format_instant(self.started_at),
            "endsAt": format_instant(now + lives if self.ended_at is None else self.ended_at),
        }


class NotificationBook:
    """What is firing, and what has ended lately, by record key of the loop's alerts.

    Args:
        resend_interval: between two times that Alertmanager is told of the same.
    """

    def __init__(self, resend_interval: timedelta) -> None:
        self._lives = resend_interval * _LIVES_INTERVALS
        self._firing: dict[str, Notification] = {}
        self._ended: dict[tuple[tuple[str, str], ...], Notification] = {}

    def take(self, key: str, alert: Alert, now: datetime) -> None:
        """An alert fires, fires differently, or has ended."""
        told = notification_of(alert)
        before = self._firing.pop(key, None)
        if before is not None and before.labels != told.labels:
            self._end(before, now)  # by other labels it is another alert to Alertmanager
        if alert.status is AlertStatus.FIRING:
            self._firing[key] = told
            self._ended.pop(_identity(told), None)
        elif before is not None:
            self._end(told, min(told.ended_at or now, now))  # an end ahead of us would be none yet

    def forget(self, key: str, now: datetime) -> None:
        """The loop knows it no more, such as one of a cluster that is no longer watched."""
        before = self._firing.pop(key, None)
        if before is not None:
            self._end(before, now)

    def bodies(self, now: datetime) -> list[dict[str, Any]]:
        """All that Alertmanager should know now: what fires, and what ended lately; the gravest first.

        An alert that is older than `group_wait` is notified at once, so its cause had better be there before it.
        """
        self._ended = {i: n for i, n in self._ended.items() if _age(n, now) <= _RESOLVED_FOR}
        told = sorted(self._all(), key=lambda n: _GRAVEST_FIRST.index(n.labels["severity"]))
        return [notification.body(now, self._lives) for notification in told]

    @property
    def firing(self) -> int:
        """How many fire."""
        return len(self._firing)

    def _all(self) -> Iterator[Notification]:
        yield from self._firing.values()
        yield from self._ended.values()

    def _end(self, notification: Notification, at: datetime) -> None:
        # Alertmanager refuses an end before the beginning, which two clocks may make of a short alert.
        ended = replace(notification, ended_at=max(at, notification.started_at))
        if _identity(ended) not in {_identity(each) for each in self._firing.values()}:
            self._ended[_identity(ended)] = ended


def notification_of(alert: Alert) -> Notification:
    """How Alertmanager is told of an alert: labels to route and silence by, and the sentence with its numbers."""
    own = {_label_name(name): value for name, value in alert.labels.items()}
    labels = {
        **own,
        "alertname": alert.alert,
        "policy": alert.policy,
        "severity": alert.severity.value,
        "cluster": alert.cluster,
        "subject": alert.subject,
    }
    annotations = {"summary": alert.summary, "reason": alert.reason, "alert_id": alert.alert_id}
    ended_at = None if alert.status is AlertStatus.FIRING else alert.ended_at or alert.decided_at
    # A label without a value is none, to Alertmanager too.
    return Notification({n: v for n, v in labels.items() if v}, annotations, alert.started_at, ended_at)


def _label_name(name: str) -> str:
    """A policy's label under a name that Alertmanager takes."""
    cleaned = _NOT_IN_A_NAME.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def _identity(notification: Notification) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(notification.labels.items()))


def _age(notification: Notification, now: datetime) -> timedelta:
    return now - (notification.ended_at or now)
