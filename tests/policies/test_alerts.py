"""The life of an alert: grace, one firing, repeats, one resolution."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.alerts import AlertBook, Condition, Sender, review
from policies.decisions import Alert, AlertStatus, Issuer, Mode, Severity
from policies.units import to_millis

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def condition(name: str = "fire", subject: str = "house", severity: Severity = Severity.WARNING) -> Condition:
    return Condition(name, subject, severity, "smoke", f"{subject} burns", {"street": "main"}, ("seen-1",))


@dataclass
class Watch:
    """Reviews conditions second by second."""

    grace: float = 0.0
    repeat: float = 100.0
    book: AlertBook = field(default_factory=AlertBook)
    said: list[Alert] = field(default_factory=list)
    wake_at: datetime | None = None

    def see(self, seconds: float, *held: Condition, is_quiet: bool = False) -> "Watch":
        issuer = Issuer("throttle", "payments", Mode.ACTIVE, "hash")
        sender = Sender(issuer, timedelta(seconds=self.grace), timedelta(seconds=self.repeat), is_quiet)
        self.book, alerts, self.wake_at = review(self.book, held, at(seconds), sender)
        self.said.extend(alerts)
        return self

    @property
    def log(self) -> list[tuple[float, str]]:
        return [((a.decided_at - START).total_seconds(), a.status.value) for a in self.said]


def test_an_alert_fires_once_and_resolves_once() -> None:
    watch = Watch().see(0, condition()).see(10, condition()).see(20, condition()).see(30).see(40)
    assert watch.log == [(0, "firing"), (30, "resolved")]


@pytest.mark.parametrize(
    ("held_at", "log"),
    [
        pytest.param([0, 4], [], id="never long enough"),
        pytest.param([0, 4, 5], [(5, "firing")], id="fires when its grace has passed"),
        pytest.param([0, 9], [(9, "firing")], id="fires at the next review after it"),
        pytest.param([0, 4, None, 8, 12], [], id="a lapse begins the grace anew"),
        pytest.param([0, 4, None, 8, 12, 13], [(13, "firing")], id="and then counts from there"),
    ],
)
def test_an_alert_waits_for_its_grace(held_at: list[float | None], log: list[tuple[float, str]]) -> None:
    watch = Watch(grace=5)
    for previous, seconds in zip([0.0, *held_at], held_at, strict=False):
        if seconds is None:
            watch.see((previous or 0) + 1)
        else:
            watch.see(seconds, condition())
    assert watch.log == log


def test_an_alert_that_goes_on_firing_is_repeated() -> None:
    watch = Watch()
    for seconds in range(0, 251, 10):
        watch.see(seconds, condition())
    assert watch.log == [(0, "firing"), (100, "firing"), (200, "firing")]
    assert len({a.alert_id for a in watch.said}) == 1
    assert len({a.decision_id for a in watch.said}) == 3
    first = to_millis(watch.said[0].decided_at)
    assert [a.sequence for a in watch.said] == [first, first + 1, first + 2]


def test_a_change_of_severity_is_said_at_once_under_the_same_id() -> None:
    watch = Watch().see(0, condition()).see(10, condition(severity=Severity.CRITICAL)).see(20)
    assert watch.log == [(0, "firing"), (10, "firing"), (20, "resolved")]
    assert [a.severity for a in watch.said] == [Severity.WARNING, Severity.CRITICAL, Severity.CRITICAL]
    assert len({a.alert_id for a in watch.said}) == 1


def test_a_change_of_severity_within_the_grace_waits_for_it() -> None:
    watch = Watch(grace=5).see(0, condition()).see(2, condition(severity=Severity.CRITICAL))
    assert watch.log == []
    assert watch.see(5, condition(severity=Severity.CRITICAL)).log == [(5, "firing")]


def test_an_alert_says_since_when_and_until_when() -> None:
    fired, resolved = Watch(grace=5).see(0, condition()).see(5, condition()).see(9).said
    assert (fired.started_at, fired.ended_at) == (at(0), None)
    assert (resolved.started_at, resolved.ended_at) == (at(0), at(9))
    over = f"{fired.alert} of {fired.subject} is no longer reported"
    assert (fired.summary, resolved.summary) == ("house burns", over)
    assert (fired.verdict, fired.explanation, fired.reason) == ("firing", fired.summary, "smoke")
    assert (fired.evidence, fired.labels) == (("seen-1",), {"street": "main"})


@pytest.mark.parametrize(
    ("grace", "steps", "wake"),
    [
        pytest.param(5, [(0, True)], 5, id="when the grace ends"),
        pytest.param(0, [(0, True)], 100, id="when it is to be repeated"),
        pytest.param(0, [(0, True), (30, True)], 100, id="counted from when it was said"),
        pytest.param(0, [(0, True), (30, False)], None, id="nothing open"),
    ],
)
def test_a_review_says_when_the_next_one_is_due(
    grace: float, steps: list[tuple[float, bool]], wake: float | None
) -> None:
    watch = Watch(grace=grace)
    for seconds, held in steps:
        watch.see(seconds, *([condition()] if held else []))
    assert watch.wake_at == (None if wake is None else at(wake))


def test_the_key_of_an_alerts_record_tells_alerts_about_one_subject_apart() -> None:
    one, two = Watch().see(0, condition("fire"), condition("flood")).said
    assert (one.record_key(), two.record_key()) == ("throttle/fire/house", "throttle/flood/house")
    assert one.alert_id != two.alert_id


names = st.tuples(st.sampled_from(["fire", "flood"]), st.sampled_from(["house", "barn"]))
conditions = st.lists(
    st.tuples(names, st.sampled_from(Severity)).map(lambda it: condition(*it[0], it[1])),
    max_size=4,
    unique_by=lambda c: c.key,
)
courses = st.lists(st.tuples(st.integers(1, 60), conditions), max_size=25)


@given(courses, st.integers(0, 30), st.integers(1, 200))
def test_whatever_happens_alerts_live_as_they_should(
    course: list[tuple[int, list[Condition]]], grace: int, repeat: int
) -> None:
    watch, backwards, seconds = Watch(grace=grace, repeat=repeat), Watch(grace=grace, repeat=repeat), 0
    for pause, held in course:
        seconds += pause
        watch.see(seconds, *held)
        assert watch.wake_at is None or watch.wake_at > at(seconds)
        backwards.see(seconds, *reversed(held), *held)
        assert (backwards.said, backwards.book) == (watch.said, watch.book)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(watch.book), type=AlertBook) == watch.book
    numbers = [a.sequence for a in watch.said]
    assert numbers == sorted(set(numbers))
    assert all(a.sequence >= to_millis(a.started_at) for a in watch.said)
    assert len({a.decision_id for a in watch.said}) == len(watch.said)
    for alert_id in {a.alert_id for a in watch.said}:
        life = [a for a in watch.said if a.alert_id == alert_id]
        assert len({(a.alert, a.subject, a.started_at) for a in life}) == 1
        assert life[0].status is AlertStatus.FIRING
        assert all(a.status is AlertStatus.FIRING for a in life[:-1])
        assert life[0].decided_at - life[0].started_at >= timedelta(seconds=grace)
        for first, second in pairwise(life):
            waited = second.decided_at - first.decided_at >= timedelta(seconds=repeat)
            assert waited or second.severity != first.severity or second.status is AlertStatus.RESOLVED


def test_while_quiet_nothing_is_said_and_then_what_still_is_the_case_once() -> None:
    watch = Watch()
    old, over, new = condition("old"), condition("over"), condition("new")
    watch.see(0, old, over)
    for seconds in range(10, 200, 10):
        watch.see(seconds, old, new, is_quiet=True)
        assert watch.wake_at is None
    assert len(watch.said) == 2
    watch.see(200, old, new).see(201, old, new)
    said = [(a.alert, a.status.value, a.started_at == at(10)) for a in watch.said[2:]]
    assert said == [("new", "firing", True), ("old", "firing", False), ("over", "resolved", False)]


def test_what_came_and_went_while_quiet_is_never_said() -> None:
    watch = Watch().see(0).see(10, condition(), is_quiet=True).see(20, is_quiet=True).see(30)
    assert watch.said == []


def test_what_became_worse_while_quiet_is_said_then() -> None:
    worse = condition(severity=Severity.CRITICAL)
    watch = Watch().see(0, condition()).see(10, worse, is_quiet=True).see(20, worse)
    assert [a.severity for a in watch.said] == [Severity.WARNING, Severity.CRITICAL]


def test_the_summary_of_a_firing_alert_follows_at_most_each_minute() -> None:
    watch = Watch(repeat=10_000)
    for seconds in range(0, 200, 10):
        watch.see(seconds, replace(condition(), summary=f"{200 - seconds} bytes free"))
    assert [(alert.summary, alert.alert_id) for alert in watch.said] == [
        (f"{free} bytes free", watch.said[0].alert_id) for free in (200, 140, 80, 20)
    ]
    steady = replace(condition(), summary="no change")
    for seconds in range(200, 900, 10):
        watch.see(seconds, steady)
    assert [alert.summary for alert in watch.said[4:]] == ["no change"], "the same words are not repeated"


def test_a_summary_that_has_changed_wakes_the_policy() -> None:
    watch = Watch(repeat=10_000).see(0, condition()).see(10, replace(condition(), summary="worse"))
    assert watch.wake_at == at(60)
    assert watch.see(60, replace(condition(), summary="worse")).said[-1].summary == "worse"
