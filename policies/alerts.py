"""The life of an alert: a condition holds for its grace, fires once, repeats, and resolves exactly once.

A policy states which conditions hold now; the book remembers what was said about them. A repeated batch says the same
again with the same ids, because nothing but the book and `now` decides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from msgspec import Struct

from policies.decisions import Alert, AlertStatus, Issuer, Severity, deterministic_id
from policies.settings import PolicySettings
from policies.succession import next_sequence
from policies.units import from_millis, millis_of, to_millis

UNKNOWN = "unknown, as it is not read now; it was: "
"""Begins the summary of an alert that is kept because nothing tells whether it is over."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is the case now and that a person should know."""

    alert: str
    subject: str
    severity: Severity
    reason: str
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    count: int = 1
    """Of how many things it is the case, where one alert stands for many: said again when they have doubled."""
    is_unknown: bool = False
    """Whether it was the case when that was last known."""

    @property
    def key(self) -> tuple[str, str]:
        """An alert is one name about one subject."""
        return (self.alert, self.subject)


class Entry(Struct, array_like=True, frozen=True):
    """What was said about one condition. `said_ms` is None while its grace runs."""

    alert: str
    subject: str
    severity: str
    reason: str
    summary: str
    labels: dict[str, str]
    since_ms: int
    said_ms: int | None
    count: int = 1
    """Of how many it was the case when it was said last, or of the fewest since."""
    is_unknown: bool = False
    """Whether it was last said as something that is not known now."""

    def as_unknown(self) -> Condition:
        """The condition as what was the case and is not known now: it stays until a reading tells, and says so."""
        condition = self.as_condition()
        summary = self.summary if self.is_unknown else f"{UNKNOWN}{self.summary}"
        return replace(condition, summary=summary, count=self.count, is_unknown=True)

    def as_condition(self) -> Condition:
        """The condition as it was said last: for who cannot tell whether it still is the case."""
        severity = Severity(self.severity)
        return Condition(self.alert, self.subject, severity, self.reason, self.summary, self.labels, count=self.count)


class AlertBook(Struct, array_like=True, frozen=True):
    """The open alerts of one cluster, and a counter that only grows and numbers everything said about them."""

    entries: tuple[Entry, ...] = ()
    sequence: int = 0

    def keys(self) -> frozenset[tuple[str, str]]:
        """The alerts (name, subject) whose condition held at the last step: to keep one takes less than to begin it."""
        return frozenset((e.alert, e.subject) for e in self.entries)


@dataclass(frozen=True, slots=True)
class Sender:
    """What the alerts of one cluster have in common."""

    issuer: Issuer
    grace: timedelta
    repeat: timedelta

    @classmethod
    def of(cls, policy: str, cluster: str, settings: PolicySettings) -> "Sender":
        """As the settings in force for the cluster have it."""
        issuer = Issuer(policy, cluster, settings.mode, settings.fingerprint())
        return cls(issuer, settings.alert_grace, settings.alert_repeat)


def review(
    book: AlertBook, conditions: Iterable[Condition], now: datetime, sender: Sender
) -> tuple[AlertBook, tuple[Alert, ...], datetime | None]:
    """Hold the conditions that are the case now against the book.

    Returns:
        The new book, the alerts to publish (in a fixed order), and when the next grace or repeat is due.
    """
    held = {c.key: c for c in sorted(conditions, key=lambda c: c.key)}
    before = {(e.alert, e.subject): e for e in book.entries}
    alerts: list[Alert] = []
    entries: list[Entry] = []
    sequence = book.sequence
    for key in sorted(before.keys() | held.keys()):
        entry, say = _next(before.get(key), held.get(key), to_millis(now), sender)
        if say:
            sequence = next_sequence(sequence, to_millis(now), is_first=_is_first(before.get(key)))
            evidence = held[key].evidence if key in held else ()
            alerts.append(_alert(entry, key not in held, sequence, evidence, now, sender))
        if key in held:
            entries.append(entry)
    return AlertBook(tuple(entries), sequence), tuple(alerts), _wake(entries, sender)


def _is_first(before: Entry | None) -> bool:
    return before is None or before.said_ms is None


def _next(before: Entry | None, condition: Condition | None, now_ms: int, sender: Sender) -> tuple[Entry, bool]:
    """The entry after this step, and whether something is to be said about it."""
    if condition is None:
        assert before is not None  # noqa: S101 - a key comes from one side or the other
        return before, before.said_ms is not None
    since_ms = before.since_ms if before else now_ms
    said_ms = before.said_ms if before else None
    changed = before is not None and (
        (before.severity, before.is_unknown) != (condition.severity.value, condition.is_unknown)
        or condition.count >= max(2, 2 * before.count)
    )
    due = (
        now_ms >= since_ms + millis_of(sender.grace)
        if said_ms is None
        else changed or now_ms >= said_ms + millis_of(sender.repeat)
    )
    entry = Entry(
        alert=condition.alert,
        subject=condition.subject,
        severity=condition.severity.value,
        reason=condition.reason,
        summary=condition.summary,
        labels=dict(condition.labels),
        since_ms=since_ms,
        said_ms=now_ms if due else said_ms,
        count=condition.count if due or before is None else min(before.count, condition.count),
        is_unknown=condition.is_unknown,
    )
    return entry, due


def _alert(entry: Entry, ended: bool, sequence: int, evidence: tuple[str, ...], now: datetime, sender: Sender) -> Alert:
    status = AlertStatus.RESOLVED if ended else AlertStatus.FIRING
    # What was the case when it was last said is not the case now, and what is now, the policy no longer says.
    summary = f"{entry.alert} of {entry.subject} is over" if ended else entry.summary
    issuer, about = sender.issuer, (entry.alert, entry.subject)
    return Alert(
        **issuer.header(entry.subject, sequence, now, about=about),
        verdict=status.value,
        reason=entry.reason,
        explanation=summary,
        evidence=evidence,
        alert_id=deterministic_id(issuer.policy, issuer.cluster, *about, "since", entry.since_ms),
        alert=entry.alert,
        severity=Severity(entry.severity),
        status=status,
        started_at=from_millis(entry.since_ms),
        ended_at=now if ended else None,
        summary=summary,
        labels=entry.labels,
    )


def retired(alert: Alert, now: datetime) -> Alert:
    """The resolution of a firing alert about a cluster that is watched no longer: nobody is left to say that it ended.

    The same alert gives the same id, whoever resolves it, and how often.
    """
    summary = f"{alert.alert} of {alert.subject} is over: cluster {alert.cluster} is not in the settings any more"
    end = {"status": AlertStatus.RESOLVED, "verdict": AlertStatus.RESOLVED.value, "ended_at": now, "decided_at": now}
    said = {"summary": summary, "explanation": summary, "sequence": alert.sequence + 1, "evidence": ()}
    own_id = deterministic_id(alert.policy, alert.cluster, alert.alert, alert.subject, alert.sequence + 1)
    return alert.model_copy(update={**end, **said, "decision_id": own_id})


def _wake(entries: Iterable[Entry], sender: Sender) -> datetime | None:
    due = [
        e.since_ms + millis_of(sender.grace) if e.said_ms is None else e.said_ms + millis_of(sender.repeat)
        for e in entries
    ]
    return from_millis(min(due)) if due else None
