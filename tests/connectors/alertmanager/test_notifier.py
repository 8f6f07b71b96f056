"""The notifier: nothing before it has caught up, everybody told, and whoever is away told later."""

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from connectors.alertmanager import notifier as module
from connectors.alertmanager.notifier import Notifier, NotifierMetrics
from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from policies.decisions import Alert
from policies.units import to_millis
from policies.wire import decision_event
from tests.connectors.alertmanager.test_notifications import NOON, alert, resolved
from tests.fakes.tail import Script, ScriptedTail

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
        yield [], True
        assert {name: len(told) for name, told in stage.servers.told.items()} == {"one:9093": 1, "two:9093": 1}
        stage.now += timedelta(minutes=1)
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


def test_repeated_and_bad_records_change_nothing(stage: Stage) -> None:
    later = to_millis(NOON) + 5
    stage.notifier.fold_records([record(alert(sequence=later, summary="now"))])
    stage.notifier.fold_records([record(first()), Record(TOPIC, b"k", b"no event at all", to_millis(NOON))])
    assert [body["annotations"]["summary"] for body in stage.notifier.bodies()] == ["now"]


def test_a_tombstone_ends_the_alert(stage: Stage) -> None:
    stage.notifier.fold_records([record(first())])
    stage.notifier.fold_records([Record(TOPIC, first().record_key().encode(), None, to_millis(NOON))])
    assert [body["endsAt"] for body in stage.notifier.bodies()] == ["2026-11-22T12:00:00.000Z"]
