"""What runs the query: sessions started ahead, the watch over the loop, what is taken over, and the submit line."""

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from connectors.kafka.admin import TopicReport
from connectors.kafka.tail import Record
from connectors.kafka.topics import TopicSettings, differences, plan
from connectors.membership import Decider
from deploy.query import components
from deploy.query.components import LoopWatch, SparkSessions, find_open_alerts, find_pauses, submit_line
from deploy.settings.application import Settings
from policies.decisions import AlertStatus, Issuer, Mode
from policies.pauses import PauseCommand, PolicyPause
from policies.recovery import OpenAlerts
from policies.units import UserError, to_millis
from policies.wire import decision_event, observation_event
from streaming.key_state import LastHeartbeat, emit_heartbeat
from streaming.query import Query
from tests.cases import for_each
from tests.policies.scenario import GB, HARD, Run, log_dirs, throttle

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
        monkeypatch.setattr(components, "ensure_jars", lambda *_: ())
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
    with pytest.raises(UserError, match="may open 64 files"):
        SparkSessions(Settings())


# --- A second loop on the same topics, and topics that are missing or wrong: when an alert names them.


AS_PLANNED = TopicReport()
ONE = [Decider("alpha", "aa"), Decider("beta", "aa")]
TWO = [Decider("alpha", "aa"), Decider("beta", "bb")]


class Looked:
    """A watch, and the alerts it has published."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.watch = LoopWatch(Settings(), self._publish)

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


# --- The pauses and firing alerts that a query without a checkpoint takes over.


ALERTS = Run(throttle(HARD)).see(log_dirs(0, 3, GB // 2)).alerts
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
MONTH_END = NOON + 29 * DAY
PAUSED = PolicyPause(to_millis(MONTH_END), actor="alice", reason="upgrade")


def heartbeat(quiet: PolicyPause | None) -> Record:
    issuer = Issuer("throttle", "payments", Mode.ACTIVE, "cafe")
    _, (topic, key, value) = emit_heartbeat(issuer, LastHeartbeat(), to_millis(NOON), quiet)
    return Record(topic, key.encode(), value, to_millis(NOON))


def command(at: datetime, until: datetime | None) -> Record:
    reading = PauseCommand(cluster="payments", policy="throttle", until=until, actor="bob")
    return Record("commands", b"", observation_event(reading, id="c", source="cli", time=at), to_millis(at))


@for_each(
    ("quiet", "commands", "now", "found"),
    [
        pytest.param(PAUSED, [], NOON + DAY, True, id="its command is no longer kept"),
        pytest.param(PAUSED, [command(NOON - DAY / 2, MONTH_END)], NOON, False, id="its command is kept, and is read"),
        pytest.param(PAUSED, [command(NOON + DAY, None)], NOON + DAY, False, id="resumed since, and not read yet"),
        pytest.param(PAUSED, [command(NOON - SECOND, None)], NOON + DAY, False, id="the same, by a clock behind"),
        pytest.param(PAUSED, [], MONTH_END, False, id="over"),
        pytest.param(None, [], NOON, False, id="not paused"),
    ],
)
def test_a_pause_goes_on_without_the_checkpoint(
    quiet: PolicyPause | None, commands: list[Record], now: datetime, found: bool
) -> None:
    given = list(find_pauses([heartbeat(quiet)], commands, now))
    assert [(each.actor, each.reason, each.until, each.keep) for each in given] == (
        [("alice", "upgrade", MONTH_END, True)] if found else []
    )


@for_each(
    "forged",
    [{"paused_by": "x" * 5000}, {"pause_reason": "x" * 5000}, {"policy": ""}, {"policy": "x" * 500}, {"cluster": ""}],
)
def test_a_forged_heartbeat_keeps_no_query_from_starting(forged: dict[str, str]) -> None:
    record = heartbeat(PAUSED)
    event = json.loads(record.value or b"")
    event["data"] |= forged
    assert list(find_pauses([record._replace(value=json.dumps(event).encode())], [], NOON + DAY)) == []


def alert_record(status: str, cluster: str = "payments", sequence: int = 1) -> Record:
    (fired,) = [each for each in ALERTS if each.status.value == "firing"][:1]
    ended = {"status": AlertStatus.RESOLVED, "verdict": "resolved", "ended_at": NOON, "valid_until": None}
    alert = fired.model_copy(update={"cluster": cluster, "sequence": sequence, **(ended if status != "firing" else {})})
    return Record("alerts", alert.record_key().encode(), decision_event(alert), to_millis(NOON))


@pytest.mark.parametrize(
    ("alerts", "earlier", "found"),
    [
        pytest.param([alert_record("firing")], [], [1], id="one fires"),
        pytest.param([alert_record("firing"), alert_record("resolved", sequence=2)], [], [], id="it has ended"),
        pytest.param([alert_record("firing", "gone")], [], [], id="of a cluster that is not watched"),
        pytest.param([], [OpenAlerts(cluster="payments", policy="throttle")], [0], id="an earlier command is kept"),
    ],
)
def test_what_fires_is_taken_over(alerts: list[Record], earlier: list[OpenAlerts], found: list[int]) -> None:
    events = (observation_event(each, id="o", source="query", time=NOON) for each in earlier)
    commands = [Record("commands", b"", event, 0) for event in events]
    given = list(find_open_alerts(alerts, commands, {"payments"}.__contains__))
    assert [len(each.alerts) for each in given] == found


# The line for spark-submit: a shell reads it as it was meant, and it says what a JVM must know when it starts.

STREAM = {"master": "spark://m:7077", "checkpoint_dir": "hdfs://n:8020/headgate", "driver_memory": "3g"}


IMAGE = {"spark.kubernetes.container.image": "example.org/headgate:1", "spark.kubernetes.namespace": "headgate"}
CLUSTERS: dict[str, dict[str, Any]] = {
    "standalone": STREAM,
    "several masters": {**STREAM, "master": "spark://m1:7077,m2:7077"},
    "yarn": {**STREAM, "master": "yarn", "spark": {"spark.yarn.queue": "control loops"}},
    "kubernetes": {"master": "k8s://https://api:6443", "checkpoint_dir": "s3a://bucket/headgate", "spark": IMAGE},
    "abfs": {**STREAM, "checkpoint_dir": "abfss://container@account.dfs.core.windows.net/headgate"},
}


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, Any]], list[str]]:
    """The words that a shell makes of the line for a `stream` block."""
    monkeypatch.setattr(components, "ensure_jars", lambda *_: (Path("/jars/a.jar"), Path("/jars/b.jar")))

    def words(stream: dict[str, Any]) -> list[str]:
        settings = Settings.model_validate({"data_dir": str(tmp_path / "data"), "stream": stream})
        return shlex.split(submit_line(settings, Path("a folder/headgate.yaml")).replace("\\\n", ""))

    return words


@pytest.fixture
def line(submitted: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    spark = {"spark.pyspark.python": "./environment/bin/python", "spark.app.name": "head gate's"}
    return submitted({**STREAM, "spark": spark})


def confs(line: list[str]) -> dict[str, str]:
    return dict(each.split("=", 1) for flag, each in pairwise(line) if flag == "--conf")


@pytest.mark.parametrize("stream", CLUSTERS.values(), ids=CLUSTERS)
def test_on_each_kind_of_cluster_the_driver_is_here_and_executors_get_jars_and_python(
    submitted: Callable[[dict[str, Any]], list[str]], stream: dict[str, Any]
) -> None:
    given = confs(submitted(stream))
    own = stream.get("spark", {})
    assert given["spark.master"] == stream["master"]
    assert given["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert given["spark.pyspark.python"] == given["spark.pyspark.driver.python"] == sys.executable
    assert "spark.submit.deployMode" not in given, "the driver is the process that reads the settings"
    assert own.items() <= given.items()
    assert not [name for name in given if name.startswith("spark.sql.streaming")], "said by the query, not by the line"


def test_it_names_jars_memory_python_and_whatever_else_the_settings_say(line: list[str]) -> None:
    assert line[0] == "spark-submit"
    given = confs(line)
    expected = {
        "spark.app.name": "head gate's", "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": "/jars/a.jar:/jars/b.jar",
        "spark.pyspark.python": "./environment/bin/python", "spark.pyspark.driver.python": sys.executable,
    }  # fmt: skip
    assert expected.items() <= given.items()


def test_it_runs_a_file_that_python_finds_headgate_from(line: list[str], tmp_path: Path) -> None:
    program, *arguments = line[-4:]
    assert arguments == ["decide", "--settings", str(Path("a folder/headgate.yaml").absolute())]
    shown = subprocess.run([sys.executable, program, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("headgate ")


def test_without_a_settings_file_there_is_none() -> None:
    with pytest.raises(UserError, match="--print-submit needs --settings"):
        submit_line(Settings(), None)
