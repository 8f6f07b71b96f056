"""The parts together, and as processes of their own; deciding in turn; the end of the Kafka of `headgate up`."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from connectors.component import Component
from connectors.kafka.admin import TopicReport
from connectors.kafka.topics import TIMESTAMPS, TopicDifference
from connectors.membership import PartitionLease
from deploy.processes import parts, stack
from deploy.processes.parts import Process
from deploy.processes.running import Renewal
from deploy.processes.shared_components import Work
from deploy.processes.stack import deciding
from deploy.query import components
from deploy.query.checkpoint import sole_query
from deploy.query.components import query_components
from deploy.settings.application import Settings
from policies.units import UserError
from tests.cases import for_each


def test_a_dead_kafka_ends_the_process_at_once_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dead:
        def watch(self, _stop: threading.Event, _tell: Any) -> None:
            raise UserError("Kafka broker 1 was ended by SIGKILL (log: /data/broker.log)")

        def stop(self, *, grace_seconds: float) -> None:
            ended.append(grace_seconds)

    ended: list[float] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    stack._end_without(Dead(), SimpleNamespace(step=None), threading.Event())  # type: ignore[arg-type]
    assert (ended, capsys.readouterr().err) == ([0, 2], "Kafka broker 1 was ended by SIGKILL (log: /data/broker.log)\n")


SECONDS = 30.0
Make = Callable[..., Settings]


class Sessions:
    """Spark, of which only is noted how often it is started ahead."""

    def __init__(self) -> None:
        self.ahead = 0

    def open(self) -> Any:
        raise AssertionError("no query is started here")

    def stand_by(self) -> None:
        self.ahead += 1


class Silent:
    """Takes nothing here."""

    def publish(self, topic: str, key: str, value: bytes | None) -> None:
        raise AssertionError("nothing runs here")

    patient = publish


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(**more: Any) -> Settings:
        kafka = {"bootstrap_servers": "127.0.0.1:1"}
        given = {"kafka": kafka, "data_dir": str(tmp_path / "data"), "clusters": {"c1": {"kafka": kafka}}, **more}
        return Settings.model_validate(given)

    return made


def decider(settings: Settings, sessions: Sessions | None = None, stop: threading.Event | None = None) -> Work:
    process = Process(settings, CollectorRegistry(), cast("Any", Silent()), cast("Any", None))
    return deciding(process, TopicReport(), cast("Any", sessions or Sessions()), stop or threading.Event())


def held_lease() -> PartitionLease:
    lease = PartitionLease(5.0, lambda: 0.0)
    lease.add([0])
    lease.renew(0.0)
    return lease


@for_each(("clusters", "retirement"), [({"c1": {}}, ["retirement"]), ({}, [])])
def test_in_its_turn_it_ticks_decides_and_retires(make: Make, clusters: dict[str, Any], retirement: list[str]) -> None:
    given: Any = (CollectorRegistry(), Sessions(), Silent(), lambda: True)
    parts = query_components(make(clusters=clusters), *given)
    assert [part.name for part in parts] == ["ticker", "query", "loop watch", *retirement]


def test_queries_take_turns_by_the_prefix_of_their_topics_whatever_their_checkpoint(make: Make, tmp_path: Path) -> None:
    first, same = decider(make()), decider(make(http={"port": 1}))
    elsewhere = decider(make(stream={"checkpoint_dir": str(tmp_path / "x")}))
    other = decider(make(topics={"prefix": "b"}))
    assert first.group == same.group
    assert first.group.name == elsewhere.group.name != other.group.name
    assert first.group.member != elsewhere.group.member, "which is how two loops on one prefix are found"
    assert (first.units(first.of_shares(frozenset())), first.of_shares(frozenset({1}))) == ({}, frozenset())
    assert list(first.units(first.of_shares(frozenset({0})))) == ["query"]


def test_it_waits_until_the_query_before_has_ended_and_decides(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, began = make(), threading.Event()

    def run(stop: threading.Event) -> None:
        began.set()
        assert stop.wait(SECONDS)

    monkeypatch.setattr(stack, "query_components", lambda *_: [Component("toy", run)])
    work, lease = decider(settings), held_lease()
    with work.open("query", frozenset(), lease) as (query,):
        assert query.ready is not None
        thread = threading.Thread(target=query.run, args=(query.stop,))
        with sole_query(settings):
            thread.start()
            assert not began.wait(0.5)
            assert query.ready() == "waiting until the previous query has ended"
        assert began.wait(SECONDS)
        assert query.ready() is None
        query.stop.set()
        thread.join(SECONDS)


@for_each(
    ("is_lost", "is_ending", "ahead"),
    [(True, False, 1), (False, False, 0), (True, True, 0)],
    ids=["stands by again", "ends", "loses Kafka at its end"],
)
def test_spark_is_started_ahead_for_a_possible_turn(make: Make, is_lost: bool, is_ending: bool, ahead: int) -> None:
    sessions, lease, stop = Sessions(), held_lease(), threading.Event()
    with decider(make(), sessions, stop).open("query", frozenset(), lease):
        if is_ending:
            stop.set()
        if is_lost:
            lease.lose()
    assert sessions.ahead == 1 + ahead


SERVERS = {"bootstrap_servers": "127.0.0.1:1"}


class World:
    """A Kafka whose topics are all there, or not, and what was run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.topics = TopicReport()
        self.ran: list[list[str]] = []
        self.stopped_sessions = 0
        given: dict[str, Any] = {"http": {"host": "127.0.0.1", "port": 0}, "data_dir": str(tmp_path)}
        self.settings = Settings.model_validate(
            {**given, "kafka": SERVERS, "clusters": {"payments": {"kafka": SERVERS}}}
        )
        monkeypatch.setattr(stack, "check_topics", lambda *_: self.topics)
        monkeypatch.setattr(stack, "run_components", self._run)
        monkeypatch.setattr(stack, "stop_on_signals", threading.Event)
        monkeypatch.setattr(parts, "Publisher", self._publishing)
        monkeypatch.setattr(components, "find_java", lambda: Path("/java"))
        monkeypatch.setattr(components, "ensure_jars", lambda *_: ())
        monkeypatch.setattr(components, "start_session", lambda *_: object())
        monkeypatch.setattr(components, "stop_session", self._stop_session)
        monkeypatch.setattr(components, "is_alive", lambda _session: True)

    def _run(self, run: Sequence[Component], _stop: threading.Event, **_told: Any) -> None:
        self.ran.append([part.name for part in run])

    def _stop_session(self, _session: SparkSession) -> None:
        self.stopped_sessions += 1

    @contextmanager
    def _publishing(self, *_: Any) -> Iterator[Any]:
        class Nowhere:
            def publish(self, topic: str, key: str, value: bytes) -> None:
                assert topic in ("headgate.audit", "headgate.applied.reports"), "nothing runs here"

            def patient(self) -> "Nowhere":
                return self

        yield Nowhere()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    before = signal.getsignal(signal.SIGHUP)
    yield World(monkeypatch, tmp_path)
    signal.signal(signal.SIGHUP, before)


def run(part: Callable[[Renewal], None], settings: Settings) -> None:
    part(Renewal(lambda: settings, settings))


COMMANDS = (stack.run_collectors, stack.run_query, stack.run_exporter, stack.run_actuators)


@for_each("command", COMMANDS)
def test_without_its_topics_and_append_times_no_part_runs_and_the_remedy_is_named(world: World, command: Any) -> None:
    world.topics = TopicReport(missing=("headgate.audit", "headgate.commands"))
    with pytest.raises(UserError, match=r"headgate\.audit, headgate\.commands\. Create them with `headgate topics"):
        run(command, world.settings)
    topic = "headgate.observed.sessions"
    wrong = TopicDifference(topic, TIMESTAMPS, "LogAppendTime", "CreateTime", "do it")
    world.topics = TopicReport(differences=(wrong,))
    with pytest.raises(UserError, match=r"observed\.sessions: message\.timestamp\.type is CreateTime.*: do it"):
        run(command, world.settings)
    assert world.ran == []


@for_each(("command", "name"), [(stack.run_collectors, "collectors"), (stack.run_query, "query")])
def test_each_runs_its_own_part_alone(world: World, command: Any, name: str) -> None:
    run(command, world.settings)
    assert world.ran.pop() == [name, "renewal"]


def test_a_query_that_does_not_begin_leaves_no_spark_behind(world: World) -> None:
    world.topics = TopicReport(missing=("headgate.audit",))
    with pytest.raises(UserError):
        run(stack.run_query, world.settings)
    assert world.stopped_sessions == 1


def test_actuators_without_anything_to_carry_out_say_what_would_ask_for_them(world: World) -> None:
    with pytest.raises(UserError) as caught:
        run(stack.run_actuators, world.settings)
    for block in ("quotas", "unload", "switching", "bookies", "publish"):
        assert f"`{block}`" in str(caught.value)
    assert "policies.isolation.quarantine on" in str(caught.value)
    assert world.ran == []


def test_an_exporter_writes_nothing_and_opens_no_producer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "Publisher", lambda *_: pytest.fail("a producer was opened"))
    run(stack.run_exporter, world.settings)
    assert world.ran == [["exporter", "status page", "renewal"]]


def test_release_needs_nothing_of_the_loop(world: World) -> None:
    world.topics = TopicReport(missing=("headgate.audit",))
    with pytest.raises(UserError, match="Not put back on payments: all quotas: "):
        list(parts.release(world.settings, None))


def test_an_entity_to_forget_must_be_one(world: World) -> None:
    with pytest.raises(UserError, match="--forget alice: not an entity such as user=alice"):
        list(parts.release(world.settings, "alice"))
