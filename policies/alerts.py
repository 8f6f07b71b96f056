"""The life cycle of an alert: a condition holds for its grace period, fires once, repeats, and resolves exactly once.

A policy states which conditions hold now; the alert book holds the alerts published about them. Only the book and
`now` decide, so a repeated batch publishes the same alerts with the same ids.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace as msgspec_replace

from policies.decisions import (
    EVIDENCE_LIMIT,
    Alert,
    AlertStatus,
    Issuer,
    RepeatSchedule,
    Severity,
    deterministic_id,
    next_sequence,
    unique_ids,
)
from policies.settings import PolicySettings
from policies.units import InstantMs, from_millis, millis_of, name_some, printable_line, to_millis

UNKNOWN = "unknown, as it is not read now; it was: "
"""Begins the summary of an alert that is kept because nothing tells whether it is over."""


CONFIRM_MS = 30_000
"""Time for the first readings of all parts of a cluster, after which an alert that none confirmed is over."""
_VALID_REPEATS = 2
"""An alert is valid until its repetition after next: one may be late."""


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
    of_many: str = ""
    """Ends the sentence about many of its kind."""

    @property
    def key(self) -> tuple[str, str]:
        """An alert is one name about one subject."""
        return (self.alert, self.subject)


class AlertEntry(Struct, array_like=True, frozen=True):
    """The alert about one condition. `said_ms` is when it was last published; None during its grace period."""

    alert: str
    subject: str
    severity: str
    reason: str
    summary: str
    labels: dict[str, str]
    since_ms: InstantMs
    said_ms: InstantMs | None
    count: int = 1
    """`Condition.count` when the alert was last published, or the smallest count since."""
    is_unknown: bool = False
    """Whether the last published alert said that the condition is unknown now."""
    repeat_at_ms: InstantMs | None = None
    """The latest time of its repetition, also if the settings change meanwhile; None: unknown."""
    is_summary_old: bool = False
    """Whether the summary has changed since it was last published."""

    def as_unknown(self) -> Condition:
        """The condition as one that held when last known: the alert stays until a reading decides."""
        summary = self.summary if self.is_unknown else f"{UNKNOWN}{self.summary}"
        return replace(self.as_condition(), summary=summary, is_unknown=True)

    def as_condition(self) -> Condition:
        """The condition as last published."""
        severity = Severity(self.severity)
        return Condition(self.alert, self.subject, severity, self.reason, self.summary, self.labels, count=self.count)


class AlertBook(Struct, array_like=True, frozen=True):
    """The open alerts of one cluster, and the counter of their sequences, which only grows."""

    entries: tuple[AlertEntry, ...] = ()
    sequence: int = 0
    recovered: tuple[AlertEntry, ...] = ()
    """Alerts that fired when the state was lost, and that no condition has confirmed yet."""
    recovered_until_ms: InstantMs | None = None
    """When they are resolved; None: `CONFIRM_MS` after the first review."""

    def recover(self, entries: Iterable[AlertEntry]) -> "AlertBook":
        """Take over the alerts that fired when the state was lost."""
        return msgspec_replace(self, recovered=tuple(entries), recovered_until_ms=None)

    def firing(self) -> tuple[AlertEntry, ...]:
        """The alerts that were published and not resolved."""
        return tuple(each for each in (*self.entries, *self.recovered) if each.said_ms is not None)

    def limit_instants(self, now_ms: int) -> "AlertBook":
        """After the clock was set back: nothing was published later than now. A firing alert keeps its id."""

        def limit(entry: AlertEntry) -> AlertEntry:
            if entry.said_ms is None:
                return msgspec_replace(entry, since_ms=min(entry.since_ms, now_ms))
            return msgspec_replace(entry, said_ms=min(entry.said_ms, now_ms), repeat_at_ms=None)

        return AlertBook(tuple(map(limit, self.entries)), self.sequence, tuple(map(limit, self.recovered)))


MOST_SINGLY = 10
"""More alerts of one kind than this become one, with a count and as many names."""


@dataclass(frozen=True)
class Sender:
    """The fields and the schedule that all alerts of one cluster share."""

    issuer: Issuer
    grace: timedelta
    repeat: timedelta
    is_quiet: bool = False
    """Whether the policy only watches: no alert is published until it acts again."""
    refresh: timedelta = timedelta(seconds=60)
    """A changed summary is published this long after the last publication."""
    many: Mapping[str, str] = field(default_factory=dict)
    """By alert: what the one alert about many things says (`AlertKind.many`). A kind without it is never gathered."""

    @classmethod
    def build(
        cls, policy: str, cluster: str, settings: PolicySettings, many: Mapping[str, str] = MappingProxyType({})
    ) -> "Sender":
        """Read them from the cluster's settings."""
        issuer = Issuer(policy, cluster, settings.mode, settings.fingerprint(), settings.frozen_until)
        return cls(issuer, settings.alert_grace, settings.alert_repeat, settings.is_quiet, settings.alert_refresh, many)

    @cached_property
    def schedule(self) -> RepeatSchedule:
        """When a firing alert is repeated."""
        return RepeatSchedule(self.repeat, _VALID_REPEATS)

    def due_ms(self, entry: AlertEntry) -> int:
        """Return when an alert is published next, while its condition holds."""
        if entry.said_ms is None:
            return entry.since_ms + millis_of(self.grace)
        repeat_ms = self.schedule.due_ms(entry.said_ms, entry.repeat_at_ms)
        return min(repeat_ms, entry.said_ms + millis_of(self.refresh)) if entry.is_summary_old else repeat_ms


def gather(conditions: Iterable[Condition], book: AlertBook, sender: Sender) -> Iterator[Condition]:
    """Yield the conditions: few of a kind one by one, many of a kind as one about the cluster.

    One that has an alert of its own keeps it while its condition holds, so that nothing is reported twice or resolved
    too early. All that follow join the one alert, so a fleet never has many more alerts than a person can read. It
    ends when few are left, and these are named one by one.
    """
    many, cluster = sender.many, sender.issuer.cluster
    is_open = {(entry.alert, entry.subject) for entry in book.entries}
    singly: dict[str, list[Condition]] = {}
    others: dict[str, list[Condition]] = {}
    for each in conditions:
        stays = each.key in is_open or each.subject == cluster or each.alert not in many
        (singly if stays else others).setdefault(each.alert, []).append(each)
    for alert in {**singly, **others}:
        own, new = singly.get(alert, []), others.get(alert, [])
        yield from own
        if len(own) + len(new) <= (MOST_SINGLY // 2 if (alert, cluster) in is_open else MOST_SINGLY):
            yield from new
        elif new and all(each.subject != cluster for each in own):  # else that one is about all of them
            yield _join(new, many[alert].format(cluster=cluster), cluster)


def _join(conditions: Sequence[Condition], what: str, cluster: str) -> Condition:
    """Make one condition of many of a kind: their number, the first names, and the labels that all of them share."""
    worst, count = max(conditions, key=lambda each: [*Severity].index(each.severity)), len(conditions)
    names = sorted(each.subject.removeprefix(f"{cluster}/") for each in conditions)
    summary = f"{count} {what}{worst.of_many}: {name_some(names, MOST_SINGLY)}"
    shared = set(worst.labels.items()).intersection(*(each.labels.items() for each in conditions))
    return replace(
        worst,
        subject=cluster,
        summary=worst.summary if count == 1 else summary,
        labels={**dict(sorted(shared)), "count": str(count), "first": ",".join(names[:MOST_SINGLY])},
        evidence=unique_ids(*(id_ for each in conditions[:EVIDENCE_LIMIT] for id_ in each.evidence))[:EVIDENCE_LIMIT],
        count=count,
    )


def review(
    book: AlertBook, conditions: Iterable[Condition], now: datetime, sender: Sender
) -> tuple[AlertBook, tuple[Alert, ...], datetime | None]:
    """Compare all conditions that hold now with the open alerts.

    Returns the new book, the alerts to publish in a fixed order, and when the next grace or repeat is due.
    """
    now_ms = to_millis(now)
    held = {c.key: c for c in conditions}
    book = _confirm(book, held, now_ms) if book.recovered else book
    known, sequence = {(e.alert, e.subject): e for e in book.entries}, book.sequence
    entries: list[AlertEntry] = []
    alerts: list[Alert] = []
    for key in sorted(known.keys() | held.keys()):
        condition = held.get(key)
        before = known[key] if condition is None or key in known else _entry(condition, now_ms, None, condition.count)
        if sender.is_quiet:  # a published alert stays as it is, a new condition waits
            if condition is not None or before.said_ms is not None:
                entries.append(before)
            continue
        entry, is_due = _next(before, condition, now_ms, sender)
        if is_due:
            sequence = next_sequence(sequence, now_ms, is_first=before.said_ms is None)
            evidence = condition.evidence if condition else ()
            alerts.append(_alert(entry, sequence, evidence, now, sender, ended=condition is None))
        if condition is not None:
            entries.append(entry)
    waits = [] if sender.is_quiet else map(sender.due_ms, entries)
    next_ms = min((ms for ms in (*waits, book.recovered_until_ms) if ms is not None), default=None)
    after = AlertBook(tuple(entries), sequence, book.recovered, book.recovered_until_ms)
    return after, tuple(alerts), None if next_ms is None else from_millis(next_ms)


def _confirm(book: AlertBook, held: Container[tuple[str, str]], now_ms: int) -> AlertBook:
    """Move the recovered alerts whose conditions hold, or whose time is over, to the entries.

    There they are as if this book had published them: an alert whose condition holds keeps its id, the others resolve.
    """
    until_ms = book.recovered_until_ms or now_ms + CONFIRM_MS
    known = {(e.alert, e.subject): e for e in book.entries}
    left: list[AlertEntry] = []
    for entry in book.recovered:
        key = (entry.alert, entry.subject)
        if now_ms >= until_ms or key in held:
            known.setdefault(key, entry)
        elif key not in known:
            left.append(entry)
    # The lost state had given numbers up to about its time.
    sequence = max(book.sequence, now_ms)
    return AlertBook(tuple(known.values()), sequence, tuple(left), until_ms if left else None)


def _next(before: AlertEntry, condition: Condition | None, now_ms: int, sender: Sender) -> tuple[AlertEntry, bool]:
    """The entry after this step, and whether to publish an alert."""
    if condition is None:
        return before, before.said_ms is not None
    is_old = before.is_summary_old or before.summary != condition.summary
    if is_old and not before.is_summary_old:
        before = msgspec_replace(before, is_summary_old=True)
    is_changed = (before.severity, before.is_unknown) != (condition.severity.value, condition.is_unknown)
    is_more = condition.count >= max(2, 2 * before.count)
    if now_ms >= sender.due_ms(before) or (before.said_ms is not None and (is_changed or is_more)):
        return _entry(condition, before.since_ms, now_ms, condition.count, sender.schedule.due_ms(now_ms)), True
    count = min(before.count, condition.count)
    return _entry(condition, before.since_ms, before.said_ms, count, before.repeat_at_ms, is_old=is_old), False


def _entry(
    condition: Condition,
    since_ms: int,
    said_ms: int | None,
    count: int,
    repeat_at_ms: int | None = None,
    *,
    is_old: bool = False,
) -> AlertEntry:
    content = (condition.alert, condition.subject, condition.severity.value, condition.reason, condition.summary)
    labels, is_unknown = dict(condition.labels), condition.is_unknown
    return AlertEntry(*content, labels, since_ms, said_ms, count, is_unknown, repeat_at_ms, is_old)


def _alert(
    entry: AlertEntry, sequence: int, evidence: tuple[str, ...], now: datetime, sender: Sender, *, ended: bool
) -> Alert:
    """Build the record of an alert."""
    status = AlertStatus.RESOLVED if ended else AlertStatus.FIRING
    # The last summary describes the condition when it held. "Is over" would be wrong if an actuator only fell silent.
    summary = f"{entry.alert} of {entry.subject} is no longer reported" if ended else entry.summary
    issuer, about = sender.issuer, (entry.alert, entry.subject)
    return Alert(
        **issuer.header(entry.subject, sequence, now, about=about),
        verdict=status.value,
        reason=entry.reason,
        explanation=summary,
        evidence=evidence,
        valid_until=None if ended else sender.schedule.ends_at(now),
        alert_id=deterministic_id(issuer.policy, issuer.cluster, *about, "since", entry.since_ms),
        alert=entry.alert,
        severity=Severity(entry.severity),
        status=status,
        started_at=from_millis(entry.since_ms),
        ended_at=now if ended else None,
        summary=summary,
        labels=entry.labels,
    )


def retire(alert: Alert, now: datetime) -> Alert:
    """Return the resolution of a firing alert about a cluster that is no longer watched.

    No policy is left to resolve it. The same alert gives the same id, whichever process resolves it, and however often.
    """
    why = f"cluster {alert.cluster} is not in the settings any more"
    summary = printable_line(f"{alert.alert} of {alert.subject} is no longer reported: {why}")
    status = {"status": AlertStatus.RESOLVED, "verdict": AlertStatus.RESOLVED.value}
    end = {"ended_at": now, "decided_at": now, "valid_until": None}
    texts = {"summary": summary, "explanation": summary, "sequence": alert.sequence + 1, "evidence": ()}
    own_id = deterministic_id(alert.policy, alert.cluster, alert.alert, alert.subject, alert.sequence + 1)
    return alert.model_copy(update={**status, **end, **texts, "decision_id": own_id})
