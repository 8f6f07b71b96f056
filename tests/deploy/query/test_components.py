"""Spark sessions: the first one is started ahead of its use, and a stand-by always has one ready."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from connectors.kafka.topic_admin import TopicReport
from connectors.kafka.topics import TopicSettings, differences, plan
from connectors.partitions.membership import Decider
from deploy.query import components
from deploy.query.components import LoopWatch, SparkSessions, started_ahead
from deploy.settings.application import Settings
from policies.units import UserError
from streaming.query import Query

SECONDS = 30.0
"""Nothing here takes so long; a mistake must not hang the suite."""


class Spark:
    """Starts sessions that are only names, and keeps account of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.dead: set[str] = set()
        self.began = threading.Event()
        monkeypatch.setattr(components, "find_java", lambda: Path("/java"))
        monkeypatch.setattr(components, "fetch_jars", lambda *_, **__: [()])
        monkeypatch.setattr(components, "start_session", self._start)
        monkeypatch.setattr(components, "stop_session", lambda session: self.stopped.append(str(session)))
        monkeypatch.setattr(components, "is_alive", lambda session: str(session) not in self.dead)
        kafka = {"bootstrap_servers": "127.0.0.1:1"}
        self.sessions = SparkSessions(Settings.model_validate({"data_dir": str(tmp_path), "kafka": kafka}))

    def _start(self, *_: Any) -> SparkSession:
        self.started.append(f"session {len(self.started) + 1}")
        self.began.set()
        return cast("SparkSession", self.started[-1])


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Spark]:
    spark = Spark(monkeypatch, tmp_path)
    yield spark
    spark.sessions.close()


def test_the_first_session_is_started_ahead_and_others_when_they_are_needed(spark: Spark) -> None:
    assert spark.began.wait(SECONDS), "before anybody asked"
    assert [str(spark.sessions.open()) for _ in range(2)] == ["session 1", "session 2"]
    spark.sessions.close()
    assert spark.stopped == [], "who took a session ends it"


def test_who_stands_by_has_a_session_ahead_again_and_none_that_has_died_meanwhile(spark: Spark) -> None:
    first = str(spark.sessions.open())
    spark.sessions.stand_by()
    spark.sessions.stand_by()
    second = str(spark.sessions.open())
    spark.sessions.stand_by()
    spark.dead = {"session 3"}
    third = str(spark.sessions.open())
    assert [first, second, third] == ["session 1", "session 2", "session 4"]
    assert spark.stopped == ["session 3"], "what is left of it"


def test_a_session_that_nobody_took_is_ended(spark: Spark) -> None:
    spark.sessions.close()
    assert (spark.started, spark.stopped) == (["session 1"], ["session 1"])


def test_who_stands_by_uses_the_time_until_its_session_is_taken(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    used, ended = threading.Event(), threading.Event()

    def use(_query: Query, session: SparkSession, taken: threading.Event) -> bool:
        assert str(session) == "session 1"
        used.set()
        assert taken.wait(SECONDS)
        ended.set()
        return False

    monkeypatch.setattr(components, "_UNTAKEN_SECONDS", 0.0)
    monkeypatch.setattr(Query, "rehearse", use)
    spark.sessions.stand_by()
    assert used.wait(SECONDS)
    assert str(spark.sessions.open()) == "session 1", "nobody waits for what is done meanwhile"
    assert ended.wait(SECONDS)


def test_a_session_that_is_taken_at_once_is_used_by_nobody_else(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[object] = []
    monkeypatch.setattr(Query, "rehearse", lambda *given: used.append(given))
    spark.sessions.stand_by()
    spark.sessions.open()
    spark.sessions.close()
    assert used == []


def test_what_goes_wrong_meanwhile_takes_nothing_away(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    def fail(*_: Any) -> bool:
        tried.set()
        raise Py4JError("the topic is not there")

    monkeypatch.setattr(components, "_UNTAKEN_SECONDS", 0.0)
    monkeypatch.setattr(Query, "rehearse", fail)
    spark.sessions.stand_by()
    assert tried.wait(SECONDS)
    assert str(spark.sessions.open()) == "session 1"
    spark.sessions.stand_by()
    assert str(spark.sessions.open()) == "session 2"


def test_limits_with_which_no_session_starts_are_told_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    with pytest.raises(UserError, match="may open 64 files"), started_ahead(Settings()):
        pytest.fail("a server could be started here")


# --- A second loop on the same topics, and topics that are missing or wrong: when an alert names them.


NOON = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
AS_PLANNED = TopicReport()
ONE = [Decider("alpha", "aa"), Decider("beta", "aa")]
TWO = [Decider("alpha", "aa"), Decider("beta", "bb")]


class Looked:
    """A watch, and the alerts it has published."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.watch = LoopWatch("headgate", list, TopicReport, self._publish)

    def _publish(self, topic: str, key: str, value: bytes) -> None:
        if topic == "headgate.decided.alerts":
            self.alerts.append(msgspec.json.decode(value)["data"])
            assert key == "loop/{alert}/{subject}".format_map(self.alerts[-1])

    def look(self, seconds: float, deciders: list[Decider], topics: TopicReport = AS_PLANNED) -> list[str]:
        before = len(self.alerts)
        self.watch.look(deciders, topics, NOON + timedelta(seconds=seconds))
        return [each["status"] for each in self.alerts[before:]]


def test_two_loops_on_one_prefix_are_a_critical_alert_that_names_both_hosts_until_one_has_ended() -> None:
    looked = Looked()
    assert [looked.look(at, TWO) for at in (0, 15, 30)] == [[], ["firing"], []]
    assert [looked.look(at, ONE) for at in (45, 60)] == [["resolved"], []]
    fired, ended = looked.alerts
    assert (fired["severity"], fired["labels"]["hosts"]) == ("critical", "alpha,beta")
    assert "alpha (checkpoint aa); beta (checkpoint bb)" in fired["summary"]
    assert fired["alert_id"] == ended["alert_id"]


def test_a_loop_with_its_stand_by_and_one_that_has_just_been_killed_are_none() -> None:
    looked = Looked()
    assert [looked.look(at, who) for at, who in ((0, ONE), (15, TWO), (30, ONE), (45, []))] == [[], [], [], []]


def test_a_topic_that_is_gone_or_deletes_decisions_is_named_with_the_command_while_the_loop_runs() -> None:
    (planned,) = [each for each in plan(TopicSettings()) if each.topic == "headgate.decided.throttle"]
    wrong = {**planned.config, "cleanup.policy": "delete", "segment.ms": "7"}
    report = TopicReport(missing=("headgate.audit",), differences=tuple(differences(planned, 1, 1, wrong)))
    looked = Looked()
    assert [looked.look(at, ONE, report) for at in (0, 15, 30)] == [[], ["firing", "firing"], []]
    assert sorted(each["summary"] for each in looked.alerts) == [
        "headgate.audit is missing: create it with `headgate topics create`",
        "headgate.decided.throttle: cleanup.policy is delete, expected compact: kafka-configs.sh --alter --entity-type "
        "topics --entity-name headgate.decided.throttle --add-config cleanup.policy=compact",
    ]
    assert looked.look(45, ONE) == ["resolved", "resolved"]
