"""What Alertmanager is told of the loop's alerts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from connectors.alertmanager.notifier import NotificationBook, notification_of
from policies.decisions import Alert, AlertStatus, Mode, Severity
from policies.units import format_instant

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
RESEND = timedelta(minutes=1)
KEY = "throttle/volume-below-hard-limit/payments/3/data1"


def alert(at: datetime = NOON, **fields: Any) -> Alert:
    given: dict[str, Any] = {
        "decision_id": "id", "policy": "throttle", "cluster": "payments", "subject": "payments/3/data1", "sequence": 1,
        "verdict": "firing", "reason": "hard_limit", "explanation": "it is full", "decided_at": at, "mode": Mode.ACTIVE,
        "settings_hash": "x", "alert_id": "alert-1", "alert": "volume-below-hard-limit", "severity": Severity.CRITICAL,
        "status": AlertStatus.FIRING, "started_at": NOON, "summary": "it is full",
        "labels": {"cluster": "payments", "broker": "3", "log_dir": "/data1"}, **fields,
    }  # fmt: skip
    return Alert(**given)


def resolved(at: datetime, **fields: Any) -> Alert:
    return alert(at, status=AlertStatus.RESOLVED, verdict="resolved", ended_at=at, **fields)


@pytest.fixture
def book() -> NotificationBook:
    return NotificationBook(RESEND)


def ends(book: NotificationBook, now: datetime) -> list[str]:
    return [body["endsAt"] for body in book.bodies(now)]


def test_labels_name_what_it_is_about_and_annotations_say_why(book: NotificationBook) -> None:
    book.fold(KEY, alert(), NOON)
    (body,) = book.bodies(NOON)
    assert body["labels"] == {
        "alertname": "volume-below-hard-limit", "policy": "throttle", "severity": "critical", "cluster": "payments",
        "subject": "payments/3/data1", "broker": "3", "log_dir": "/data1",
    }  # fmt: skip
    about = {name: body["annotations"].pop(name) for name in ("verify", "remedy", "commands")}
    assert body["annotations"] == {"summary": "it is full", "reason": "hard_limit", "alert_id": "alert-1"}
    assert about["verify"] == "headgate explain payments"
    assert "shorten the retention" in about["remedy"]
    assert "headgate forget --cluster payments --broker 3 --log-dir /data1" in about["commands"].splitlines()
    assert "generatorURL" not in body
    assert body["startsAt"] == format_instant(NOON)


def test_with_the_address_of_the_page_it_links_to_the_cluster_and_to_the_runbook() -> None:
    book = NotificationBook(RESEND, "https://headgate.example.org")
    book.fold(KEY, alert(cluster="pay/ments"), NOON)
    (body,) = book.bodies(NOON, {("throttle", "pay/ments"): "set: 65.5 kB/s"})
    assert body["generatorURL"] == "https://headgate.example.org/clusters/pay%2Fments"
    assert body["annotations"]["runbook_url"] == "https://headgate.example.org/alerts/volume-below-hard-limit"
    assert body["annotations"]["in_force"] == "set: 65.5 kB/s"


def test_a_firing_alert_outlives_three_missed_sends_and_no_more(book: NotificationBook) -> None:
    book.fold(KEY, alert(), NOON)
    later = NOON + timedelta(hours=3)
    assert ends(book, later) == [format_instant(later + 4 * RESEND)]


def test_a_repeated_alert_is_the_same_one_whatever_its_numbers(book: NotificationBook) -> None:
    book.fold(KEY, alert(), NOON)
    book.fold(KEY, alert(NOON + RESEND, summary="it is fuller", reason="other", sequence=2), NOON + RESEND)
    (body,) = book.bodies(NOON + RESEND)
    assert body["annotations"]["summary"] == "it is fuller"


def test_a_resolved_alert_is_said_to_have_ended_for_a_quarter_of_an_hour(book: NotificationBook) -> None:
    end = NOON + timedelta(minutes=5)
    book.fold(KEY, alert(), NOON)
    book.fold(KEY, resolved(end), end)
    assert ends(book, end) == ends(book, end + timedelta(minutes=15)) == [format_instant(end)]
    assert ends(book, end + timedelta(minutes=16)) == []


def test_an_end_by_a_clock_ahead_of_ours_is_now(book: NotificationBook) -> None:
    book.fold(KEY, alert(), NOON)
    book.fold(KEY, resolved(NOON + timedelta(minutes=5)), NOON + RESEND)
    assert ends(book, NOON + RESEND) == [format_instant(NOON + RESEND)]


def test_one_that_is_resolved_without_having_been_heard_to_fire_is_no_news(book: NotificationBook) -> None:
    book.fold(KEY, resolved(NOON), NOON)
    assert book.bodies(NOON) == []


def test_a_change_of_severity_ends_the_one_and_begins_the_other(book: NotificationBook) -> None:
    later = NOON + RESEND
    book.fold(KEY, alert(severity=Severity.WARNING), NOON)
    book.fold(KEY, alert(later, severity=Severity.CRITICAL, sequence=2), later)
    told = {body["labels"]["severity"]: body["endsAt"] for body in book.bodies(later)}
    assert told == {"critical": format_instant(later + 4 * RESEND), "warning": format_instant(later)}


def test_one_that_fires_again_is_no_longer_said_to_have_ended(book: NotificationBook) -> None:
    book.fold(KEY, alert(), NOON)
    book.fold(KEY, resolved(NOON + RESEND), NOON + RESEND)
    again = NOON + 2 * RESEND
    book.fold(KEY, alert(again, started_at=again), again)
    assert ends(book, again) == [format_instant(again + 4 * RESEND)]


def test_the_gravest_are_told_first(book: NotificationBook) -> None:
    for number, severity in enumerate((Severity.INFO, Severity.CRITICAL, Severity.WARNING)):
        book.fold(str(number), alert(severity=severity, subject=str(number)), NOON)
    assert [body["labels"]["severity"] for body in book.bodies(NOON)] == ["critical", "warning", "info"]


def test_what_the_loop_forgets_has_ended(book: NotificationBook) -> None:
    book.fold(KEY, alert(), NOON)
    book.forget(KEY, NOON + RESEND)
    book.forget("never/heard/of", NOON + RESEND)
    assert ends(book, NOON + RESEND) == [format_instant(NOON + RESEND)]


def test_nothing_ends_before_it_began(book: NotificationBook) -> None:
    book.fold(KEY, alert(started_at=NOON), NOON)
    book.forget(KEY, NOON - RESEND)
    assert ends(book, NOON) == [format_instant(NOON)]


def test_an_alert_that_began_by_a_clock_far_ahead_ends_after_that(book: NotificationBook) -> None:
    book.fold(KEY, alert(started_at=NOON + timedelta(hours=1)), NOON)
    assert ends(book, NOON) == [format_instant(NOON + timedelta(hours=1) + 4 * RESEND)]


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({"log-dir": "/d"}, {"log_dir": "/d"}),
        ({"0day": "x"}, {"_0day": "x"}),
        ({"role": ""}, {}),
        ({"alertname": "forged", "severity": "none"}, {}),
    ],
    ids=["dashes", "digits first", "empty", "ours win"],
)
def test_labels_are_such_as_alertmanager_takes(given: dict[str, str], known: dict[str, str]) -> None:
    of_headgate = {"alertname", "policy", "severity", "cluster", "subject"}
    labels = notification_of(alert(labels=given)).labels
    assert {name: value for name, value in labels.items() if name not in of_headgate} == known
    assert labels["alertname"] == "volume-below-hard-limit"
    assert labels["severity"] == "critical"
