"""The book of one policy and cluster: the last publication about each subject, and the open alerts. Pure.

Collectors publish levels, and so do policies: a step states which decision each subject should have now, and which
conditions a person should know now. `publish` alone compares them with the book, numbers decisions, repeats them before
they expire, notes verdicts that change nothing, ends subjects, and fires, repeats and resolves alerts. Only the step,
the book and `now` decide, so a repeated batch publishes the same records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policies.alerts import AlertBook, AlertEntry, Condition, Sender, gather, review
from policies.decisions import Decision, Issuer, RepeatSchedule, next_sequence
from policies.units import InstantMs, from_millis, to_millis

State = TypeVar("State")
Subject = tuple[str, ...]
"""Identifies a decision among all of its policy and cluster; its last part is `Decision.subject`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The decision that should be in force about one subject now."""

    content: str
    """A change of it is published at once; so is a change of the mode."""
    schedule: RepeatSchedule
    make: Callable[[Mapping[str, Any]], Decision]
    """Makes the decision, with its sentence, from its common fields (`Issuer.header` and `valid_until`): called only if
    it is published or noted."""
    note: str = ""
    """A verdict that changes nothing, such as a hold: noted for the audit when it first appears with this content."""
    told_ms: int | None = None
    """An instant in the decision that changes with each reading, so it is no part of `content`."""
    is_misleading: Callable[[int | None], bool] = lambda _: False
    """Whether the last published `told_ms` is so wrong by now that the decision must be published again."""
    is_asked_for: bool = False
    """Whether it answers a command, so that it is published even if nothing changed."""
    is_last: bool = False
    """Whether the subject ends: the decision is published once, and holds until there is another one."""


@dataclass(frozen=True, slots=True)
class Step(Generic[State]):
    """The result of one step of a policy: levels, which `publish` compares with the book."""

    state: State
    wanted: Mapping[Subject, Wanted] = field(default_factory=dict)
    """The wanted decision of each subject, in the order of publication. The book forgets all other subjects."""
    conditions: Iterable[Condition] = ()
    """Everything that a person should know now, one by one."""
    due_ms: Iterable[int] = ()
    """When time alone may change something (milliseconds since the epoch); some may have passed."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Refused observations by id, with the bound of the state that each would exceed, such as `more than 10000
    brokers`. The host writes dead letters and raises an alert."""
    decisions: tuple[Decision, ...] = ()
    """Decisions that the policy numbers itself: orders, and placements of thousands of namespaces."""
    stay: Callable[[AlertEntry], Condition | None] = lambda _: None
    """The condition of a published alert of which nothing is known now; None: it is over."""


@dataclass(frozen=True, slots=True)
class Published(Generic[State]):
    """What one step publishes."""

    state: State
    decisions: tuple[Decision, ...]
    """Published to the decided topics and to the audit topic."""
    wake_at: datetime | None
    """Step again at this time, even without observations; None: only when observations come."""
    notes: tuple[Decision, ...] = field(default=())
    """New verdicts that change nothing (such as a hold): published to the audit topic only."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Refused observations by id, each with the bound that it would exceed."""


class PublishedDecision(Struct, array_like=True, frozen=True, gc=False):
    """The last decision about one subject, as far as the next one depends on it."""

    subject: Subject
    sequence: int
    content: str
    at_ms: InstantMs
    repeat_at_ms: InstantMs
    """The latest time of its repeat; other settings never postpone it."""
    noted: tuple[str, ...] = ()
    """Verdicts in the audit topic since the content last changed."""
    told_ms: InstantMs | None = None


class Book(Struct, array_like=True, frozen=True):
    """The past publications about one cluster, as far as later steps depend on them."""

    decisions: tuple[PublishedDecision, ...] = ()
    alerts: AlertBook = AlertBook()

    def begin_again(self, now_ms: int) -> "Book":
        """After the clock was set back: sequences go on, decisions are published again, alerts must be confirmed."""
        alerts = AlertBook(sequence=self.alerts.sequence).recover(self.alerts.limit_instants(now_ms).firing())
        return Book(tuple(replace(each, content="") for each in self.decisions), alerts)


def publish(book: Book, step: Step[State], now: datetime, sender: Sender) -> tuple[Book, Published[State]]:
    """Compare the levels of a step with the book; return the next book, and what to publish."""
    now_ms, known = to_millis(now), {each.subject: each for each in book.decisions}
    entries: list[PublishedDecision] = []
    decisions: list[Decision] = []
    notes: list[Decision] = []
    due_ms: list[int] = []
    for subject, wanted in step.wanted.items():
        before = known.get(subject)
        if wanted.is_last and before is None:
            continue
        entry = _next_entry(before, subject, wanted, now_ms, sender.issuer)
        if entry is not before:
            is_note = before is not None and entry.sequence == before.sequence
            marks = ("noted", wanted.note) if is_note else ()
            header = sender.issuer.header(subject[-1], entry.sequence, now, about=subject, marks=marks)
            header["valid_until"] = None if wanted.is_last else wanted.schedule.ends_at(now)
            (notes if is_note else decisions).append(wanted.make(header))
        if not wanted.is_last:
            entries.append(entry)
            due_ms.append(wanted.schedule.due_ms(entry.at_ms, entry.repeat_at_ms))
    alerts, raised, review_at = review(book.alerts, list_conditions(book.alerts, step, sender), now, sender)
    due_ms += (*step.due_ms, *(() if review_at is None else (to_millis(review_at),)))
    wake_ms = min((ms for ms in due_ms if ms > now_ms), default=None)
    wake_at = None if wake_ms is None else from_millis(wake_ms)
    published = Published(step.state, (*decisions, *step.decisions, *raised), wake_at, tuple(notes), step.refused)
    return Book(tuple(entries), alerts), published


def list_conditions(book: AlertBook, step: Step[Any], sender: Sender) -> Iterator[Condition]:
    """List the conditions of a step, gathered, and those that are unknown now."""
    held: set[tuple[str, str]] = set()
    for condition in gather(step.conditions, book, sender):
        held.add(condition.key)
        yield condition
    for entry in book.entries:
        is_open = entry.said_ms is not None and (entry.alert, entry.subject) not in held
        if is_open and (kept := step.stay(entry)) is not None:
            yield kept


def _next_entry(
    before: PublishedDecision | None, subject: Subject, wanted: Wanted, now_ms: int, issuer: Issuer
) -> PublishedDecision:
    """Return the entry after this step: the same one if nothing is published, under the same number if it is a note."""
    content = f"{wanted.content}|{issuer.stance}"
    noted: tuple[str, ...] = ()
    if before is not None and before.content == content:
        noted, due_ms = before.noted, wanted.schedule.due_ms(before.at_ms, before.repeat_at_ms)
        if not (wanted.is_asked_for or now_ms >= due_ms or wanted.is_misleading(before.told_ms)):
            is_known = not wanted.note or wanted.note in noted
            return before if is_known else replace(before, noted=(*noted, wanted.note))
    return PublishedDecision(
        subject=subject,
        sequence=next_sequence(before.sequence if before else 0, now_ms, is_first=before is None),
        content=content,
        at_ms=now_ms,
        repeat_at_ms=wanted.schedule.due_ms(now_ms),
        noted=tuple(sorted({*noted, wanted.note} - {""})),
        told_ms=wanted.told_ms,
    )
