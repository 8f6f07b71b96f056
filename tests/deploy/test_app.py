"""How the parts of a process run together: begun at once, watched, and stopped in order when one fails."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Counter
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from connectors.part import Check, Part
from deploy import app
from deploy.app import Sessions, new_registry, run_parts, serving
from deploy.class_archives import ClassArchive
from deploy.settings import Settings
from policies.errors import UserError
from streaming.session import class_path_of

SECONDS = 30.0
"""Nothing here takes so long; a mistake must not hang the suite."""


class Log:
    """What happened, in its order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, line: str) -> None:
        with self._lock:
            self.lines.append(line)


def part(name: str, log: Log, *, ready: Check | None = None, fails: BaseException | None = None) -> Part:
    """It says when it begins and ends, and runs until it is stopped unless it fails."""

    def run(stop: threading.Event) -> None:
        log(f"{name} begins")
        if fails is not None:
            raise fails
        assert stop.wait(SECONDS)
        log(f"{name} ends")

    return Part(name, run, ready=ready)


def test_parts_end_in_order_each_before_the_next() -> None:
    log, stop = Log(), threading.Event()
    parts = [part(name, log) for name in ("collector", "query", "exporter")]
    run_parts(parts, stop, on_ready=stop.set, on_stop=lambda: log("stopping"))
    assert sorted(log.lines[:3]) == ["collector begins", "exporter begins", "query begins"]
    assert log.lines[3:] == ["stopping", "collector ends", "query ends", "exporter ends"]


def test_a_part_that_fails_ends_all_and_its_error_is_raised() -> None:
    log = Log()
    failing = part("query", log, fails=UserError("no checkpoint"))
    with pytest.raises(UserError, match="no checkpoint"):
        run_parts([part("collector", log), failing, part("exporter", log)], threading.Event())
    assert log.lines[-2:] == ["collector ends", "exporter ends"]


def test_a_part_that_ends_by_itself_has_failed() -> None:
    with pytest.raises(UserError, match="The exporter ended by itself"):
        run_parts([Part("exporter", lambda _: None)], threading.Event())


def test_of_several_failures_the_first_is_raised() -> None:
    log, first_failed = Log(), threading.Event()

    def second(stop: threading.Event) -> None:
        assert first_failed.wait(SECONDS)
        assert stop.wait(SECONDS)
        raise UserError("second")

    def first(_: threading.Event) -> None:
        first_failed.set()
        raise UserError("first")

    with pytest.raises(UserError, match="first"):
        run_parts([part("collector", log), Part("one", first), Part("other", second)], threading.Event())


def test_it_is_ready_once_when_all_parts_that_can_say_so_are() -> None:
    log, stop = Log(), threading.Event()
    reasons: list[str | None] = ["starting", "starting", None]

    def ready() -> str | None:
        return reasons.pop(0) if len(reasons) > 1 else reasons[0]

    def on_ready() -> None:
        log("ready")
        stop.set()

    run_parts([part("query", log, ready=ready), part("collector", log)], stop, on_ready=on_ready)
    assert log.lines.count("ready") == 1
    assert reasons == [None]


def test_a_process_that_is_stopped_before_it_is_ready_never_says_so() -> None:
    log, stop = Log(), threading.Event()
    stop.set()
    run_parts([part("query", log, ready=lambda: None)], stop, on_ready=lambda: log("ready"))
    assert "ready" not in log.lines


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_readiness_are_those_of_the_parts_that_have_any() -> None:
    settings = Settings.model_validate({"http": {"host": "127.0.0.1", "port": 0}})
    idle: Callable[[threading.Event], None] = lambda _: None  # noqa: E731
    parts = [
        Part("collector", idle),
        Part("query", idle, healthy=lambda: None, ready=lambda: "no micro-batch yet"),
        Part("exporter", idle, healthy=lambda: "it stalls"),
    ]
    with serving(settings, CollectorRegistry(), parts) as server:
        assert answer(server.port, "/-/healthy") == (503, "exporter: it stalls\n")
        assert answer(server.port, "/-/ready") == (503, "query: no micro-batch yet\n")


def test_a_registry_shows_the_process_and_counters_without_their_time_of_creation() -> None:
    registry = new_registry()
    Counter("apples", "Apples.", registry=registry).inc()
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert {"process_resident_memory_bytes", "python_info", "apples_total"} <= names
    assert "apples_created" not in names


class Spark:
    """Starts sessions that are only names, and keeps account of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.dead: set[str] = set()
        self.began = threading.Event()
        monkeypatch.setattr(app, "find_java", lambda: Path("/java"))
        monkeypatch.setattr(app, "fetched_jars", lambda *_, **__: ())
        monkeypatch.setattr(app, "start_session", self._start)
        monkeypatch.setattr(app, "stop_session", lambda session: self.stopped.append(str(session)))
        monkeypatch.setattr(app, "is_alive", lambda session: str(session) not in self.dead)
        self.sessions = Sessions(Settings.model_validate({"data_dir": str(tmp_path)}))

    def _start(self, *_: Any) -> SparkSession:
        self.started.append(f"session {len(self.started) + 1}")
        self.began.set()
        return cast("SparkSession", self.started[-1])


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Spark:
    return Spark(monkeypatch, tmp_path)


def test_the_first_session_is_started_ahead_and_others_when_they_are_needed(spark: Spark) -> None:
    assert spark.began.wait(SECONDS), "before anybody asked"
    assert [str(spark.sessions.open()) for _ in range(2)] == ["session 1", "session 2"]
    spark.sessions.close()
    assert spark.stopped == [], "who took a session ends it"


def test_who_stands_by_has_a_session_ahead_again_and_none_that_has_died_meanwhile(spark: Spark) -> None:
    first = str(spark.sessions.open())
    spark.sessions.start_ahead()
    spark.sessions.start_ahead()
    second = str(spark.sessions.open())
    spark.sessions.start_ahead()
    spark.dead = {"session 3"}
    third = str(spark.sessions.open())
    assert [first, second, third] == ["session 1", "session 2", "session 4"]
    assert spark.stopped == ["session 3"], "what is left of it"


def test_a_session_that_nobody_took_is_ended(spark: Spark) -> None:
    spark.sessions.close()
    assert (spark.started, spark.stopped) == (["session 1"], ["session 1"])


def test_who_stands_by_uses_the_time_until_its_session_is_taken(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_UNTAKEN_SECONDS", 0.0)
    used, ended = threading.Event(), threading.Event()

    def use(session: SparkSession, taken: threading.Event) -> None:
        assert str(session) == "session 1"
        used.set()
        assert taken.wait(SECONDS)
        ended.set()

    spark.sessions.while_untaken(use)
    assert used.wait(SECONDS)
    assert str(spark.sessions.open()) == "session 1", "nobody waits for what is done meanwhile"
    assert ended.wait(SECONDS)


def test_a_session_that_is_taken_at_once_is_used_by_nobody_else(spark: Spark) -> None:
    used: list[SparkSession] = []
    spark.sessions.while_untaken(lambda session, taken: used.append(session))
    spark.sessions.open()
    spark.sessions.while_untaken(lambda session, taken: used.append(session))
    spark.sessions.close()
    assert used == []


def test_what_goes_wrong_meanwhile_takes_nothing_away(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_UNTAKEN_SECONDS", 0.0)
    tried = threading.Event()

    def use(_session: SparkSession, _taken: threading.Event) -> None:
        tried.set()
        raise Py4JError("the topic is not there")

    spark.sessions.while_untaken(use)
    assert tried.wait(SECONDS)
    assert str(spark.sessions.open()) == "session 1"
    spark.sessions.start_ahead()
    assert str(spark.sessions.open()) == "session 2"


def test_what_was_loaded_is_archived_beside_what_others_have_loaded(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted: list[tuple[str, Path, str]] = []
    made = lambda all_: wanted.extend((each.name, each.folder, path) for each, path in all_)  # noqa: E731
    monkeypatch.setattr(spark.sessions._archiving, "begin", made)
    monkeypatch.setattr(app, "class_path_of", lambda session: f"path of {session}")
    spark.sessions.archive()
    assert wanted == [], "nobody has taken the session yet"
    spark.sessions.open()
    folder = tmp_path / "class-archives"
    spark.sessions.archive((ClassArchive("kafka", folder, Path("/java"), ()), "kafka.jar"))
    assert wanted == [("kafka", folder, "kafka.jar"), ("spark", folder, "path of session 1")]


def test_a_jvm_that_has_died_by_then_is_no_reason_to_fail(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    def died(_session: SparkSession) -> str:
        raise Py4JError("it has died")

    monkeypatch.setattr(app, "class_path_of", died)
    spark.sessions.open()
    spark.sessions.archive()


def test_a_session_that_was_stopped_has_no_class_path() -> None:
    stopped = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_jvm=None)))
    with pytest.raises(Py4JError, match="was stopped"):
        class_path_of(stopped)
