"""The parts as processes of their own: each needs the topics, runs only its part, and says what is missing."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connectors.component import Component
from connectors.kafka.admin import TopicReport
from connectors.kafka.topics import TIMESTAMPS, TopicDifference
from deploy.processes import parts, stack
from deploy.processes.running import Renewal
from deploy.query import components
from deploy.settings.application import Settings
from policies.units import UserError
from tests.cases import for_each

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}


class World:
    """A Kafka whose topics are all there, or not, and what was run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.topics = TopicReport()
        self.ran: list[list[str]] = []
        self.stopped_sessions = 0
        given: dict[str, Any] = {"http": {"host": "127.0.0.1", "port": 0}, "data_dir": str(tmp_path)}
        self.settings = Settings.model_validate({**given, "kafka": KAFKA, "clusters": {"payments": {"kafka": KAFKA}}})
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
