"""Levels become records: what changed, is due, misleads or is asked for is published; the rest is not even made."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.alerts import AlertEntry, Condition, Sender
from policies.book import Book, Published, Step, Subject, Wanted, publish
from policies.decisions import Alert, Decision, Issuer, Mode, RepeatSchedule, Severity
from policies.units import Instant, to_millis

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
SCHEDULE = RepeatSchedule(timedelta(seconds=60), valid_for=3)
SENDER = Sender(
    Issuer("toy", "c", Mode.ACTIVE, "hash"), timedelta(0), timedelta(hours=1), many={"fire": "houses of {cluster} burn"}
)
SHADOW = replace(SENDER, issuer=replace(SENDER.issuer, mode=Mode.SHADOW))


class Level(Decision):
    """A decision as a policy may have it."""

    event_type = "headgate.level.v1"
    topic = "decided.level"
    valid_until: Instant | None


@dataclass
class Key:
    """One key of the host: its book, and what was published and noted."""

    book: Book = field(default_factory=Book)
    made: int = 0
    published: list[tuple[float, str, int]] = field(default_factory=list)
    noted: list[tuple[float, str]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    last: Published[None] = field(default_factory=lambda: Published(None, (), None))

    def want(self, content: str, subject: Subject = ("s",), **more: Any) -> dict[Subject, Wanted]:
        def make(header: Mapping[str, Any]) -> Level:
            self.made += 1
            return Level(**header, verdict=content, reason="r", explanation="x")

        return {subject: Wanted(content, SCHEDULE, make, **more)}

    def step(self, seconds: float, wanted: Mapping[Subject, Wanted], sender: Sender = SENDER, **more: Any) -> "Key":
        now = START + timedelta(seconds=seconds)
        book, self.last = publish(self.book, Step(None, wanted, **more), now, sender)
        self.book = msgspec.msgpack.decode(msgspec.msgpack.encode(book), type=Book)
        assert self.book == book
        self.published += [(seconds, d.verdict, d.sequence - to_millis(START)) for d in self.last.decisions]
        self.noted += [(seconds, n.verdict) for n in self.last.notes]
        self.ids |= {each.decision_id for each in (*self.last.decisions, *self.last.notes)}
        return self


def test_a_change_is_published_at_once_under_the_next_number_and_nothing_else_is_made() -> None:
    key = Key()
    for second, content in enumerate("aabba"):
        key.step(second, key.want(content))
    assert key.published == [(0, "a", 0), (2, "b", 1), (4, "a", 2)]
    assert key.made == 3


def test_it_is_repeated_when_it_is_due_and_a_change_begins_the_time_anew() -> None:
    key = Key()
    for second in (0, 59, 60, 80, 139, 140):
        key.step(second, key.want("a" if second < 80 else "b"))
    assert [(second, content) for second, content, _ in key.published] == [(0, "a"), (60, "a"), (80, "b"), (140, "b")]
    assert key.last.wake_at == START + timedelta(seconds=200)


def test_another_mode_is_another_content() -> None:
    key = Key()
    key.step(0, key.want("a")).step(1, key.want("a"), SHADOW).step(2, key.want("a"), SHADOW)
    assert [second for second, _, _ in key.published] == [0, 1]


@pytest.mark.parametrize(
    ("more", "is_published"),
    [
        ({}, False),
        ({"is_asked_for": True}, True),
        ({"told_ms": 9, "is_misleading": lambda told_ms: told_ms == 5}, True),
        ({"told_ms": 9, "is_misleading": lambda told_ms: told_ms == 9}, False),
    ],
    ids=["nothing", "asked for", "misleading", "not misleading"],
)
def test_a_repetition_may_be_wanted_earlier(more: dict[str, Any], *, is_published: bool) -> None:
    key = Key()
    key.step(0, key.want("a", told_ms=5)).step(1, key.want("a", **more))
    assert (len(key.published) == 2) is is_published


def test_a_verdict_that_changes_nothing_is_noted_once_with_each_content() -> None:
    key = Key()
    for second, (content, note) in enumerate([("a", "lower"), ("a", "hold"), ("a", "hold"), ("a", "lower"),
                                              ("b", "lower"), ("b", "hold")]):  # fmt: skip
        key.step(second, key.want(content, note=note))
    assert [second for second, _, _ in key.published] == [0, 4]
    assert [second for second, _ in key.noted] == [1, 5]
    (second_note,) = key.last.notes
    assert second_note.sequence == to_millis(START) + 1
    assert len(key.ids) == 4, "a note has an id of its own"


def test_a_note_does_not_postpone_the_repeat_and_a_repeat_makes_no_new_notes() -> None:
    key = Key()
    key.step(0, key.want("a", note="lower")).step(50, key.want("a", note="hold"))
    key.step(60, key.want("a", note="hold")).step(61, key.want("a", note="lower"))
    assert [second for second, _, _ in key.published] == [0, 60]
    assert [second for second, _ in key.noted] == [50]


def test_a_subject_ends_once_and_holds_until_there_is_another_decision() -> None:
    key = Key()
    key.step(0, key.want("a")).step(1, key.want("end", is_last=True))
    (ended,) = key.last.decisions
    assert isinstance(ended, Level)
    assert ended.valid_until is None
    assert (key.last.wake_at, key.book.decisions) == (None, ())
    key.step(2, key.want("end", is_last=True)).step(3, key.want("a"))
    assert [(second, content) for second, content, _ in key.published] == [(0, "a"), (1, "end"), (3, "a")]


def test_a_subject_that_is_not_wanted_is_forgotten_and_its_numbers_go_on_with_the_time() -> None:
    key = Key()
    key.step(0, key.want("a")).step(1, {}).step(2, key.want("a"))
    assert key.published == [(0, "a", 0), (2, "a", 2000)]


def test_each_subject_has_its_own_content_and_numbers() -> None:
    key = Key()
    both = {**key.want("a", ("kind", "one")), **key.want("a", ("kind", "two"))}
    key.step(0, both)
    assert [d.subject for d in key.last.decisions] == ["one", "two"]
    key.step(0, {**both, **key.want("a", ("other kind", "one"))})
    assert len(key.ids) == 3
    key.step(1, both | key.want("b", ("kind", "two")))
    assert [d.subject for d in key.last.decisions] == ["two"]


def test_after_the_clock_was_set_back_each_is_published_under_the_next_number() -> None:
    key = Key()
    key.step(86_400, key.want("a"))
    key.book = key.book.begin_again(0)
    key.step(0, key.want("a")).step(60, key.want("a"))
    numbers = [(second, number) for second, _, number in key.published]
    assert numbers == [(86_400, 86_400_000), (0, 86_400_001), (60, 86_400_002)]


def test_settings_of_later_postpone_no_repeat() -> None:
    key = Key()
    key.step(0, key.want("a"))
    (wanted,) = key.want("a").values()
    rare: dict[Subject, Wanted] = {("s",): replace(wanted, schedule=RepeatSchedule(timedelta(hours=1), valid_for=3))}
    assert key.step(59, rare).last.wake_at == START + timedelta(seconds=60)
    assert len(key.step(60, rare).published) == 2


def burning(*houses: str, alert: str = "fire", severity: Severity = Severity.WARNING) -> list[Condition]:
    return [
        Condition(alert, f"c/{house}", severity, "smoke", f"{house} burns", {"cluster": "c", "house": house}, (house,))
        for house in houses
    ]


def firing(key: Key) -> set[str]:
    return {entry.subject.removeprefix("c/") for entry in key.book.alerts.entries}


HOUSES = [f"h{n:02}" for n in range(30)]


@pytest.mark.parametrize(
    ("courses", "expected"),
    [
        ([10], set(HOUSES[:10])),
        ([11], {"c"}),
        ([10, 30], {*HOUSES[:10], "c"}),
        ([11, 6], {"c"}),
        ([11, 5], set(HOUSES[:5])),
        ([3, 30, 2], {"h00", "h01"}),
    ],
    ids=["few", "many", "many after few", "not few enough", "few again", "few after many after few"],
)
def test_many_are_one_alert_but_for_those_that_have_one(courses: list[int], expected: set[str]) -> None:
    key = Key()
    for second, count in enumerate(courses):
        key.step(second, {}, conditions=burning(*HOUSES[:count]))
    assert firing(key) == expected


def test_one_alert_of_many_has_the_worst_severity_the_shared_labels_and_ten_names() -> None:
    key = Key()
    key.step(0, {}, conditions=[*burning(*HOUSES[:11]), *burning("h99", severity=Severity.CRITICAL)])
    (alert,) = key.last.decisions
    assert isinstance(alert, Alert)
    assert (alert.subject, alert.severity) == ("c", Severity.CRITICAL)
    first = ",".join(HOUSES[:10])
    assert alert.labels == {"cluster": "c", "count": "12", "first": first}
    assert alert.explanation == f"12 houses of c burn: {first.replace(',', ', ')} and 2 more"
    assert alert.evidence == tuple(HOUSES[:10])


def test_an_alert_about_the_cluster_stands_for_the_many_of_its_kind() -> None:
    key, cluster = Key(), Condition("fire", "c", Severity.CRITICAL, "all", "all of c burns")
    key.step(0, {}, conditions=[*burning(*HOUSES), cluster])
    assert [each.explanation for each in key.last.decisions] == ["all of c burns"]


def test_a_kind_without_a_sentence_for_many_is_not_gathered() -> None:
    key = Key()
    key.step(0, {}, conditions=burning(*HOUSES, alert="flood"))
    assert firing(key) == set(HOUSES)


def test_a_published_alert_stays_while_nothing_is_known_of_it() -> None:
    def stay(entry: AlertEntry) -> Condition | None:
        return entry.as_unknown() if entry.subject == "c/a" else None

    key = Key().step(0, {}, conditions=burning("a", "b")).step(1, {}, stay=stay)
    assert firing(key) == {"a"}
    assert [(a.subject, a.verdict) for a in key.last.decisions] == [("c/a", "firing"), ("c/b", "resolved")]
    assert key.last.decisions[0].explanation.startswith("unknown")
    key.step(2, {}, conditions=burning("a"), stay=stay)
    assert key.last.decisions[0].explanation == "a burns", "it is known again"


def test_a_condition_that_no_alert_has_told_does_not_stay() -> None:
    patient = replace(SENDER, grace=timedelta(seconds=10))
    key = Key().step(0, {}, patient, conditions=burning("a")).step(1, {}, patient, stay=AlertEntry.as_condition)
    assert firing(key) == set()


@given(st.lists(st.tuples(st.integers(0, 90), st.sampled_from("ab"), st.sampled_from(["", "x", "y"])), max_size=30))
def test_a_consumer_always_has_the_wanted_content_and_a_decision_that_is_valid(
    course: list[tuple[int, str, str]],
) -> None:
    key, seconds = Key(), 0
    for wait, content, note in course:
        seconds += wait
        key.step(seconds, key.want(content, note=note))
        assert key.published[-1][1] == content
        assert key.last.wake_at is not None
        assert timedelta(0) < key.last.wake_at - START - timedelta(seconds=seconds) <= timedelta(seconds=60)
    numbers = [number for _, _, number in key.published]
    assert all(later == earlier + 1 for earlier, later in pairwise(numbers))
