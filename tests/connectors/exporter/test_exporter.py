"""The exporter as a registry sees it, without Kafka: what it shows before and after it has caught up."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse

from connectors.bookie_disks.view import BookieDisksView
from connectors.exporter import exporter
from connectors.exporter.exporter import VERSION, Exporter
from connectors.isolation.view import IsolationView
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from connectors.sessions.view import SessionsView
from connectors.switching.view import SwitchingView
from policies.decisions import Decision
from policies.observations import Outcome, ReportResult
from policies.throttle import LogDirs
from policies.throttle.readings import VolumeReading
from policies.units import to_millis
from tests.connectors.exporter.loop import (
    DECIDED,
    OBSERVED,
    PREFIX,
    START,
    Loop,
    log_dirs,
    openmetrics,
    paused,
    quota,
    reported,
    standing,
)
from tests.fakes.tail import Script, ScriptedTail

# Untyped upstream.
parse_openmetrics: Any = openmetrics_parser.text_string_to_metric_families

OWN = frozenset({"headgate_build_info", "headgate_settings_info", "headgate_loop_alive"})
LATE = START - timedelta(seconds=100)
FIRST = to_millis(START)
"""Sequence of the first decision of a loop."""


class Scene:
    """An exporter on a scripted tail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.heard: list[int] = []
        self.now = START
        self.problem: str | None = None
        self.stop = threading.Event()
        self.tail = ScriptedTail(self.stop)
        monkeypatch.setattr(exporter, "Tail", self.tail)
        self.exporter = Exporter(
            KafkaConnection(bootstrap_servers="127.0.0.1:9"), PREFIX, {}, self.registry, settings_hash="cafe",
            on_decision=self._hear, problem=lambda: self.problem, now_ms=lambda: to_millis(self.now),
        )  # fmt: skip

    def _hear(self, decision: Decision) -> None:
        self.heard.append(decision.sequence)

    def run(self, script: Script) -> None:
        self.tail.script = script
        self.exporter.run(self.stop)

    def families(self) -> dict[str, Metric]:
        return {metric.name: metric for metric in parse(generate_latest(self.registry).decode()) if metric.samples}

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_nothing_of_the_loop_is_shown_before_all_history_is_read(scene: Scene) -> None:
    loop = Loop(min_hold="0s")
    loop.step(log_dirs(50))
    loop.step(log_dirs(300), after=60)
    scene.now = loop.now + timedelta(seconds=1)
    history = [record for record in loop.records if record.topic == DECIDED]

    def script() -> Script:
        assert scene.exporter.caught_up() == "the exporter has not started yet"
        yield [], False
        assert set(scene.families()) == OWN
        assert scene.value("headgate_settings_info", hash="cafe") == scene.value("headgate_build_info", version=VERSION)
        yield history[:1], False
        assert set(scene.families()) == OWN
        assert scene.exporter.caught_up() == "the exporter is reading its history: 2 partitions are behind"
        yield history[1:], True
        assert scene.exporter.caught_up() is None
        assert scene.value("headgate_throttle_factor", cluster="payments") == 0.5
        assert scene.value("headgate_throttle_limit_violations_total", cluster="payments", limit="hard") == 0

    scene.run(script())
    assert scene.heard == [FIRST, FIRST + 1]
    assert scene.exporter.caught_up() == "the exporter has stopped"


def test_news_are_told_from_history_and_an_exporter_that_fails_is_no_longer_ready(scene: Scene) -> None:
    loop = Loop(min_hold="0s")
    loop.step(log_dirs(900))

    def script() -> Script:
        yield loop.records, True
        said = len(loop.records)
        loop.step(log_dirs(800), after=60)
        yield loop.records[said:], True
        yield loop.records, True
        assert scene.exporter.caught_up() is None
        raise RuntimeError

    with pytest.raises(RuntimeError):
        scene.run(script())
    assert scene.heard == [FIRST, FIRST + 1]
    assert scene.exporter.caught_up() == "the exporter has stopped"


def test_while_kafka_is_away_the_picture_stays_and_the_check_says_why(scene: Scene) -> None:
    loop = Loop()
    loop.step(log_dirs(900))

    def script() -> Script:
        scene.tail.problem = "Kafka does not answer"
        yield [], False
        assert scene.exporter.caught_up() == "Kafka does not answer"
        scene.tail.problem = None
        yield loop.records, True
        scene.tail.problem = "Kafka does not answer"
        yield [], True
        assert scene.exporter.caught_up() is None
        assert scene.exporter.snapshot().problem == "Kafka does not answer"
        assert scene.value("headgate_throttle_factor", cluster="payments") == 1

    scene.run(script())


def test_every_family_is_described_and_readable_in_both_formats(scene: Scene) -> None:
    loop = Loop(min_hold="0s")
    loop.step(log_dirs(900))
    cordoned = VolumeReading(log_dir="/a", total_bytes=1000, usable_bytes=900, cordoned=True)
    loop.step(LogDirs(cluster="payments", broker=3, outcome=Outcome.OK, volumes=(cordoned,)))
    for free, filling in ((890, 800), (880, 790), (300, 780), (50, 770)):
        loop.step(log_dirs(free), log_dirs(filling, broker=2), after=10)
    bad = [Record(DECIDED, b'"\\\n', b"?", 0)]
    effects = [
        reported(quota(ReportResult.APPLIED, 65_536), START),
        reported(quota(ReportResult.FAILED, None, None), START + timedelta(seconds=30)),
        paused(START, START + timedelta(hours=1)),
    ]

    def script() -> Script:
        yield loop.records[:2], True
        yield [*loop.records[2:], *bad, *effects], True

    scene.now = START + timedelta(seconds=41)
    scene.run(script())
    described = {metric.name for metric in scene.exporter.describe()}
    shown = {name.removesuffix("_total") for name in scene.families()}
    views = (BookieDisksView, IsolationView, SessionsView, SwitchingView)
    others = {family.name.removesuffix("_total") for view in views for family in view.families}
    others |= {"headgate_session_recovery_seconds", "headgate_volume_limit_bytes"}  # these settings have no limit
    assert shown == described - others
    of_openmetrics = list(parse_openmetrics(openmetrics(scene.registry)))
    assert {metric.name for metric in of_openmetrics} == described - others
    assert not [sample.name for metric in of_openmetrics for sample in metric.samples if "_created" in sample.name]
    assert all(metric.documentation for metric in of_openmetrics)


def test_a_metric_of_the_same_name_is_refused(scene: Scene) -> None:
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Counter("headgate_dead_letters", "", registry=scene.registry)


@pytest.mark.parametrize(
    ("records", "query", "silence"),
    [
        pytest.param([], None, None, id="nothing is observed yet"),
        pytest.param([standing("throttle", START)], None, None, id="a heartbeat, and the next one is not late"),
        pytest.param([standing("throttle", LATE)], None, "no heartbeat of a query has come for 3 min", id="a late one"),
        pytest.param([standing("throttle", START)], "it failed", "it failed", id="its process knows better"),
    ],
)
def test_the_loop_decides_while_heartbeats_come_and_its_own_query_has_no_problem(
    scene: Scene, records: list[Record], query: str | None, silence: str | None
) -> None:
    scene.problem = query

    def script() -> Script:
        yield records, True
        scene.now = START + timedelta(seconds=80)
        assert (scene.exporter.snapshot().silence or "").startswith(silence or "")
        assert (scene.exporter.snapshot().silence is None) == (silence is None)
        assert scene.value("headgate_loop_alive") == (silence is None)

    scene.run(script())


def test_the_loop_is_silent_without_a_heartbeat_for_ninety_seconds_by_this_clock(scene: Scene) -> None:
    loop = Loop()
    loop.step(log_dirs(300))

    def script() -> Script:
        for records in (
            [each for each in loop.records if each.topic == OBSERVED],  # a reading that no query answers
            [standing("throttle", START - timedelta(hours=1))],  # live, of a query whose clock is wrong
        ):
            yield records, True
            assert scene.exporter.silence() is None
            scene.now += timedelta(seconds=91)
            assert scene.exporter.silence() == "no heartbeat of a query has come for 91 s, and one is due each minute"

    scene.run(script())
