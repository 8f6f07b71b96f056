"""The notifier: what Alertmanager is told of the loop's alerts, when, and what comes of a request."""

import json
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from connectors.alertmanager import notifier as module
from connectors.alertmanager.notifier import (
    NotificationBook,
    Notifier,
    NotifierMetrics,
    post_alerts,
)
from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.http.client import BearerAuth
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from policies.decisions import Alert, AlertStatus, Mode, Severity
from policies.units import format_instant, to_millis
from policies.wire import decision_event
from tests.cases import for_each
from tests.fakes.tail import Script, ScriptedTail

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
RESEND = timedelta(minutes=1)


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


def test_labels_name_what_it_is_about_and_annotations_say_why(book: NotificationBook) -> None:
    (body,) = book.bodies([alert()], NOON)
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
    (body,) = book.bodies([alert(cluster="pay/ments")], NOON, {("throttle", "pay/ments"): "set: 65.5 kB/s"})
    assert body["generatorURL"] == "https://headgate.example.org/clusters/pay%2Fments"
    assert body["annotations"]["runbook_url"] == "https://headgate.example.org/alerts/volume-below-hard-limit"
    assert body["annotations"]["in_force"] == "set: 65.5 kB/s"


MINUTE = timedelta(minutes=1)
Played = list[tuple[int, Alert | None]]
"""The minute of each record, and the alert in it; None deletes the record."""


@for_each(
    ("records", "at_minute", "expected"),
    [
        pytest.param([(0, alert())], 180, [184], id="a firing alert outlives three missed sends, and no more"),
        pytest.param([(0, alert()), (5, resolved(NOON + 5 * MINUTE))], 20, [5], id="an end is told for 15 minutes"),
        pytest.param([(0, alert()), (5, resolved(NOON + 5 * MINUTE))], 21, [], id="and then no more"),
        pytest.param([(0, alert()), (1, resolved(NOON + 5 * MINUTE))], 1, [1], id="an end by a clock ahead is now"),
        pytest.param([(0, resolved(NOON))], 0, [], id="resolved, and never heard to fire"),
        pytest.param(
            [(0, alert()), (1, resolved(NOON + MINUTE)), (2, alert(NOON + 2 * MINUTE, started_at=NOON + 2 * MINUTE))],
            2,
            [6],
            id="one that fires again",
        ),
        pytest.param([(0, None), (0, alert()), (1, None)], 1, [1], id="what the loop forgets has ended"),
        pytest.param([(0, alert(started_at=NOON)), (-1, None)], 0, [0], id="nothing ends before it began"),
        pytest.param([(0, alert(started_at=NOON + 60 * MINUTE))], 0, [64], id="begun by a clock far ahead"),
    ],
)
def test_an_alert_ends_when(records: Played, at_minute: int, expected: list[int]) -> None:
    book, before = NotificationBook(RESEND), None
    for minute, each in records:
        book.fold(before, each, NOON + minute * MINUTE)
        before = each
    firing = [before] if before is not None and before.status is AlertStatus.FIRING else []
    ends = [body["endsAt"] for body in book.bodies(firing, NOON + at_minute * MINUTE)]
    assert ends == [format_instant(NOON + minute * MINUTE) for minute in expected]


def test_a_change_of_severity_ends_the_one_and_begins_the_other(book: NotificationBook) -> None:
    later = NOON + RESEND
    critical = alert(later, severity=Severity.CRITICAL, sequence=2)
    book.fold(alert(severity=Severity.WARNING), critical, later)
    told = {body["labels"]["severity"]: body["endsAt"] for body in book.bodies([critical], later)}
    assert told == {"critical": format_instant(later + 4 * RESEND), "warning": format_instant(later)}


def test_the_gravest_are_told_first(book: NotificationBook) -> None:
    firing = [alert(severity=each, subject=each.value) for each in (Severity.INFO, Severity.CRITICAL, Severity.WARNING)]
    assert [body["labels"]["severity"] for body in book.bodies(firing, NOON)] == ["critical", "warning", "info"]


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
def test_labels_are_such_as_alertmanager_takes(
    book: NotificationBook, given: dict[str, str], known: dict[str, str]
) -> None:
    of_headgate = {"alertname", "policy", "severity", "cluster", "subject"}
    labels = book.bodies([alert(labels=given)], NOON)[0]["labels"]
    assert {name: value for name, value in labels.items() if name not in of_headgate} == known
    assert labels["alertname"] == "volume-below-hard-limit"
    assert labels["severity"] == "critical"


URL = "http://alertmanager:9093/prefix/"


def post(answer: Callable[[httpx.Request], httpx.Response], bodies: int = 1) -> str | None:
    transport = httpx.MockTransport(answer)
    with httpx.Client(transport=transport, auth=BearerAuth(lambda: "s3cret-token")) as client:
        alerts: list[dict[str, Any]] = [{"labels": {"alertname": str(number)}} for number in range(bodies)]
        return post_alerts(client, URL, alerts)


def test_alerts_go_out_in_batches_with_the_token() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    assert post(answer, bodies=600) is None
    assert [str(request.url) for request in seen] == ["http://alertmanager:9093/prefix/api/v2/alerts"] * 3
    assert {request.headers["Authorization"] for request in seen} == {"Bearer s3cret-token"}


def test_an_alert_that_is_refused_keeps_back_no_others() -> None:
    answers = iter([httpx.Response(400, text="bad label"), httpx.Response(200), httpx.Response(503, text="later")])
    assert post(lambda _: next(answers), bodies=600) == "status 400: bad label"
    assert next(answers, None) is None


def test_a_changed_token_file_counts_at_the_next_request(tmp_path: Path) -> None:
    file, sent = tmp_path / "token", []
    file.write_text("first-token")
    with AlertmanagerSettings(urls=("http://a:9093",), token_file=file).http_client() as client:
        for token in ("first-token", "second-token"):
            file.write_text(token)
            assert client.auth is not None
            sent += [each.headers["Authorization"] for each in client.auth.auth_flow(httpx.Request("GET", URL))]
    assert sent == ["Bearer first-token", "Bearer second-token"]


def _raises(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    return answer


@for_each(
    ("answer", "said"),
    [
        (lambda _: httpx.Response(400, text="start time\nmust be before end time"), "status 400: start time must be"),
        (lambda _: httpx.Response(401, text="no token s3cret-token"), r"status 401: no token \*\*\*"),
        (lambda _: httpx.Response(302, headers={"Location": "http://elsewhere/"}), "status 302"),
        (lambda _: httpx.Response(500, text="x" * 1_000_000), "status 500: xxxx"),
        (_raises(httpx.ReadTimeout("slow")), "no answer in time"),
        (_raises(httpx.ConnectError("refused")), "refused"),
    ],
    ids=["refused", "token quoted back", "redirected", "talks for ever", "slow", "nobody there"],
)
def test_why_alerts_were_not_taken(answer: Callable[[httpx.Request], httpx.Response], said: str) -> None:
    found = post(answer) or ""
    assert re.match(said, found)
    assert "s3cret" not in found
    assert "\n" not in found
    assert len(found) < 1_000


TOPIC = "headgate.decided.alerts"
ONE, TWO = "http://one:9093", "http://two:9093"


class Settings(AlertmanagerSettings):
    """With a server in memory in place of the network."""

    def http_client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(ANSWERS[0]))


ANSWERS: list[Callable[[httpx.Request], httpx.Response]] = []


class Servers:
    """Two Alertmanagers: what each was told, in order."""

    def __init__(self) -> None:
        self.told: dict[str, list[list[dict[str, Any]]]] = {"one:9093": [], "two:9093": []}
        self.away: set[str] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.netloc.decode()
        if name in self.away:
            raise httpx.ConnectError("Connection refused")
        self.told[name].append(json.loads(request.content))
        return httpx.Response(200)


class Stage:
    """A notifier, its clock, its servers, and the loop's topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOON
        self.servers = Servers()
        ANSWERS[:] = [self.servers]
        self.registry = CollectorRegistry()
        self.stop = threading.Event()
        self.tail = ScriptedTail(self.stop)
        monkeypatch.setattr(module, "Tail", self.tail)
        self.notifier = Notifier(
            KafkaConnection(bootstrap_servers="127.0.0.1:9"), [TOPIC], Settings(urls=(ONE, TWO)),
            NotifierMetrics(self.registry), now=lambda: self.now,
        )  # fmt: skip

    def play(self, steps: Script) -> None:
        self.tail.script = steps
        self.notifier.run(self.stop)

    def failing(self, name: str) -> float | None:
        return self.registry.get_sample_value("headgate_alertmanager_failing", {"alertmanager": name})


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def record(of: Alert, appended_at: datetime | None = None) -> Record:
    return Record(TOPIC, of.record_key().encode(), decision_event(of), to_millis(appended_at or of.decided_at))


def first() -> Alert:
    return alert(sequence=to_millis(NOON))


def test_history_is_read_whole_before_anything_is_said(stage: Stage) -> None:
    ended = resolved(NOON + timedelta(minutes=1), sequence=to_millis(NOON) + 1)

    def steps() -> Script:
        assert stage.notifier.caught_up() == "the notifier has not started yet"
        yield [record(first())], False
        assert "it reads its history" in (stage.notifier.caught_up() or "")
        assert stage.servers.told["one:9093"] == []
        stage.now += timedelta(minutes=2)
        yield [record(ended)], True

    stage.play(steps())
    assert stage.notifier.caught_up() is None
    (told, *_) = stage.servers.told["one:9093"]
    assert [body["endsAt"] for body in told] == ["2026-11-22T12:01:00.000Z"], "it fired and ended while nobody listened"


def test_all_are_told_at_once_and_again_at_each_interval(stage: Stage) -> None:
    def steps() -> Script:
        yield [record(first())], True
        stage.now += timedelta(seconds=59)
        yield [], True
        assert {name: len(told) for name, told in stage.servers.told.items()} == {"one:9093": 1, "two:9093": 1}
        stage.now += timedelta(seconds=1)
        yield [], True
        assert {name: len(told) for name, told in stage.servers.told.items()} == {"one:9093": 2, "two:9093": 2}

    stage.play(steps())


def test_one_that_is_away_is_told_when_it_is_back_and_holds_up_no_other(stage: Stage) -> None:
    def steps() -> Script:
        stage.servers.away.add("two:9093")
        yield [record(first())], True
        assert len(stage.servers.told["one:9093"]) == 1
        yield [], True
        assert (stage.failing("one:9093"), stage.failing("two:9093")) == (0, 1)
        stage.servers.away.clear()
        stage.now += timedelta(seconds=5)
        yield [], True
        assert len(stage.servers.told["two:9093"]) == 1
        yield [], True
        assert stage.failing("two:9093") == 0

    with capture_logs() as logs:
        stage.play(steps())
    assert [(entry["event"], entry["alertmanager"]) for entry in logs] == [
        ("alerts cannot be sent", "two:9093"),
        ("alerts are sent again", "two:9093"),
    ]
