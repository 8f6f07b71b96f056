"""The notifier: nothing before it has caught up, everybody told, and whoever is away told later."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from policies.decisions import Alert, Issuer, Mode
from policies.maintenance import Quiet
from policies.units import to_millis
from policies.wire import decision_event
from streaming.heartbeat import LastHeartbeat, emit_heartbeat
from tests.connectors.alertmanager.test_notifications import NOON, alert, resolved

TOPIC, STANDING = "headgate.decided.alerts", "headgate.decided.standing"
ONE, TWO = "http://one:9093", "http://two:9093"


class Settings(AlertmanagerSettings):
    """With a server in memory in place of the network."""

    def http_client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(ANSWERS[0]))


ANSWERS: list[Callable[[httpx.Request], httpx.Response]] = []


class Silences:
    """The silences of one Alertmanager, by id."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.requests = 0
        self.is_refused = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.is_refused:
            return httpx.Response(403, text="alerts only")
        if request.method == "GET":
            return httpx.Response(200, json=list(self.kept.values()))
        if request.method == "DELETE":
            del self.kept[request.url.path.rpartition("/")[2]]
        else:
            silence = json.loads(request.content)
            name = silence.get("id") or f"s{len(self.kept)}"
            self.kept[name] = {**silence, "id": name, "status": {"state": "active"}}
        return httpx.Response(200, json={})

    @property
    def ends(self) -> list[tuple[str, str]]:
        return [(each["createdBy"], each["endsAt"]) for each in self.kept.values()]


class Servers:
    """Two Alertmanagers: what each was told, in order."""

    def __init__(self) -> None:
        self.told: dict[str, list[list[dict[str, Any]]]] = {"one:9093": [], "two:9093": []}
        self.away: set[str] = set()
        self.silences = {"one:9093": Silences(), "two:9093": Silences()}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.netloc.decode()
        if name in self.away:
            raise httpx.ConnectError("Connection refused")
        if "/silence" in request.url.path:
            return self.silences[name](request)
        self.told[name].append(json.loads(request.content))
        return httpx.Response(200)


class Script:
    """A tail that hands out what the test gives, and lets it look in between."""

    def __init__(self, steps: Iterator[tuple[list[Record], bool]]) -> None:
        self._steps = steps
        self.caught_up = False
        self.problem: str | None = None
        self.backlog = "1 partition is behind"

    @contextmanager
    def __call__(self, *_: Any) -> Iterator["Script"]:
        yield self

    def poll(self, _: float) -> list[Record]:
        records, self.caught_up = next(self._steps)
        return records


class Stage:
    """A notifier, its clock, its servers, and the loop's topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOON
        self.servers = Servers()
        ANSWERS[:] = [self.servers]
        self.registry = CollectorRegistry()
        self.stop = threading.Event()
        self._monkeypatch = monkeypatch
        self.notifier = Notifier(
            KafkaConnection(bootstrap_servers="127.0.0.1:9"), [TOPIC, STANDING], Settings(urls=(ONE, TWO)),
            NotifierMetrics(self.registry), now=lambda: self.now,
        )  # fmt: skip

    def play(self, steps: Iterator[tuple[list[Record], bool]]) -> None:
        def until_the_end() -> Iterator[tuple[list[Record], bool]]:
            yield from steps
            self.stop.set()
            yield [], True

        self._monkeypatch.setattr(module, "Tail", Script(until_the_end()))
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

    def steps() -> Iterator[tuple[list[Record], bool]]:
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
    def steps() -> Iterator[tuple[list[Record], bool]]:
        yield [record(first())], True
        yield [], True
        assert {name: len(told) for name, told in stage.servers.told.items()} == {"one:9093": 1, "two:9093": 1}
        stage.now += timedelta(minutes=1)
        yield [], True
        assert {name: len(told) for name, told in stage.servers.told.items()} == {"one:9093": 2, "two:9093": 2}

    stage.play(steps())


def test_one_that_is_away_is_told_when_it_is_back_and_holds_up_no_other(stage: Stage) -> None:
    def steps() -> Iterator[tuple[list[Record], bool]]:
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


def test_repeated_late_and_forged_records_change_nothing(stage: Stage) -> None:
    later = to_millis(NOON) + 5
    stage.notifier.fold_records([record(alert(sequence=later, summary="now"))])
    stage.notifier.fold_records(
        [
            record(first()),
            record(alert(sequence=to_millis(NOON + timedelta(days=400)), summary="forged")),
            Record(TOPIC, b"k", b"no event at all", to_millis(NOON)),
        ]
    )
    assert [body["annotations"]["summary"] for body in stage.notifier.bodies()] == ["now"]


def test_a_tombstone_ends_the_alert(stage: Stage) -> None:
    stage.notifier.fold_records([record(first())])
    stage.notifier.fold_records([Record(TOPIC, first().record_key().encode(), None, to_millis(NOON))])
    assert [body["endsAt"] for body in stage.notifier.bodies()] == ["2026-11-22T12:00:00.000Z"]


PAUSE = Quiet(to_millis(NOON) + 3_600_000, actor="alice", reason="upgrade")


def heartbeat(minute: float, pause: Quiet | None) -> Record:
    now_ms = to_millis(NOON) + round(60_000 * minute)
    issuer = Issuer("throttle", "payments", Mode.ACTIVE, "cafe")
    _, (_, key, value) = emit_heartbeat(issuer, LastHeartbeat(), now_ms, pause)
    return Record(STANDING, key.encode(), value, now_ms)


def test_the_alerts_of_a_paused_policy_are_silenced_until_the_pause_ends(stage: Stage) -> None:
    hour_ms = 3_600_000
    foreign = {"id": "x", "createdBy": "bob", "matchers": [], "status": {"state": "active"}}
    one, two = (stage.servers.silences[name] for name in ("one:9093", "two:9093"))
    two.kept["x"] = foreign

    def steps() -> Iterator[tuple[list[Record], bool]]:
        yield [record(first()), heartbeat(0, None)], True
        assert (one.ends, list(two.kept)) == ([], ["x"])
        yield [heartbeat(1, Quiet(to_millis(NOON) + hour_ms, actor="alice", reason="upgrade"))], True
        assert one.ends == [("headgate: alice", "2026-11-22T13:00:00.000Z")]
        matchers = {each["name"]: each["value"] for each in one.kept["s0"]["matchers"]}
        assert matchers == {"policy": "throttle", "cluster": "payments"}
        assert "(paused by alice: upgrade)" in one.kept["s0"]["comment"]
        stage.now += timedelta(minutes=2)
        yield [heartbeat(2, Quiet(to_millis(NOON) + 2 * hour_ms, actor="alice", reason="upgrade"))], True
        assert one.ends == [("headgate: alice", "2026-11-22T14:00:00.000Z")], "longer: the same silence"
        yield [heartbeat(3, None)], True
        assert (one.ends, list(two.kept)) == ([], ["x"]), "resumed; a silence of a person stays"

    stage.play(steps())


def test_alerts_are_told_though_silences_are_refused(stage: Stage) -> None:
    def steps() -> Iterator[tuple[list[Record], bool]]:
        stage.servers.silences["one:9093"].is_refused = True
        yield [record(first()), heartbeat(1, PAUSE)], True
        assert [len(told) for told in stage.servers.told.values()] == [1, 1]
        yield [], True
        assert (stage.failing("one:9093"), stage.failing("two:9093")) == (1, 0)

    stage.play(steps())


def test_a_silence_in_another_shape_ends_no_notifier(stage: Stage) -> None:
    def steps() -> Iterator[tuple[list[Record], bool]]:
        stage.servers.silences["one:9093"].kept["x"] = {"id": "x", "createdBy": "headgate", "matchers": None}
        yield [record(first()), heartbeat(1, PAUSE)], True
        assert [len(told) for told in stage.servers.told.values()] == [1, 1]

    stage.play(steps())


def test_the_pause_of_a_cluster_that_is_not_watched_any_more_is_forgotten(stage: Stage) -> None:
    silences = stage.servers.silences["one:9093"]

    def steps() -> Iterator[tuple[list[Record], bool]]:
        yield [heartbeat(1, PAUSE)], True
        yield [heartbeat(1, PAUSE)._replace(value=None)], True
        assert len(silences.kept) == 1, "it ends by itself"
        for _ in range(2):
            stage.now += timedelta(minutes=1)
            yield [], True
        before = silences.requests
        stage.now += timedelta(minutes=1)
        yield [], True
        assert silences.requests == before

    stage.play(steps())
