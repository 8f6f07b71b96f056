"""Deciding in turn: what runs while it is this process's, on which checkpoint, and what is ready for the next time."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from connectors.component import Component
from connectors.kafka.admin import TopicReport
from connectors.partitions.membership import PartitionLease
from deploy.processes import stack
from deploy.processes.parts import Process
from deploy.processes.shared_components import Work
from deploy.processes.stack import deciding
from deploy.query.checkpoint import sole_query
from deploy.query.components import query_components
from deploy.settings.application import Settings
from tests.cases import for_each

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


class Publisher:
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
    process = Process(settings, CollectorRegistry(), cast("Any", Publisher()), cast("Any", None))
    return deciding(process, TopicReport(), cast("Any", sessions or Sessions()), stop or threading.Event())


def held_lease() -> PartitionLease:
    lease = PartitionLease(5.0, lambda: 0.0)
    lease.add([0])
    lease.renew(0.0)
    return lease


@for_each(("clusters", "retirement"), [({"c1": {}}, ["retirement"]), ({}, [])])
def test_in_its_turn_it_ticks_decides_and_retires(make: Make, clusters: dict[str, Any], retirement: list[str]) -> None:
    given: Any = (CollectorRegistry(), Sessions(), Publisher(), lambda: True)
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
