"""`headgate switch collisions`: what is asked of Spark, what is said of its answer, and what becomes of its errors."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from pyspark.errors import PySparkRuntimeError

from connectors.kafka.connection import KafkaConnection
from deploy.settings.application import Settings
from deploy.switch import collisions_command
from deploy.switch.collisions_command import show_collisions
from policies.errors import UserError
from policies.switching.ledgers import HitClass
from policies.switching.precheck.report import HitSamples
from streaming.collisions import Collisions, Incomplete, Question
from tests.connectors.switching.memory_sessions import MemorySessions

SETTINGS = {
    "clusters": {
        "c1": {
            "zookeeper": {"servers": "zk:2181"},
            "bookkeeper": {"bootstrap": "old", "clusters": {"old": {}, "new": {}}},
        }
    },
    "policies": {"switching": {"target_policy": "shared"}},
}


def collisions(foreign: int = 0, ours: int = 0) -> Collisions:
    def samples(count: int) -> HitSamples:
        return HitSamples(count, tuple(range(1, min(count, 10) + 1)))

    hits = {
        HitClass.OURS_COMPLETE: samples(0),
        HitClass.OURS_PARTIAL: samples(ours),
        HitClass.FOREIGN: samples(foreign),
    }
    return Collisions(
        inventory="i1", target="new", references=30, to_import=20, target_ledgers=9, greatest_id=40, hits=hits
    )  # fmt: skip


class World:
    """Where Spark is asked: gives one answer, and keeps the question."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.settings = Settings.model_validate({**SETTINGS, "data_dir": folder})
        self.sessions = MemorySessions()
        self.answer: Collisions | Incomplete | Exception = collisions()
        self.asked: list[Question] = []

        @contextmanager
        def spark(settings: Settings) -> Iterator[object]:
            yield object()

        def find(rows: object, question: Question) -> Collisions | Incomplete:
            self.asked.append(question)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        replaced: dict[str, Any] = {
            "inventory_topic": lambda settings: (KafkaConnection(bootstrap_servers="k:9092"), "observed"),
            "ClusterSessions": lambda *asked: self.sessions,
            "_session": spark,
            "read_records": lambda *asked: SimpleNamespace(),
            "find_collisions": find,
        }
        for name, value in replaced.items():
            monkeypatch.setattr(collisions_command, name, value)

    def show(self, answer: Collisions | Incomplete | Exception, *, as_json: bool = False) -> bool:
        self.answer = answer
        return show_collisions(self.settings, "c1", None, as_json=as_json)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


def test_spark_is_asked_for_the_cluster_by_the_source_it_is(world: World) -> None:
    world.show(collisions())
    (asked,) = world.asked
    assert (asked.cluster, asked.source, asked.bootstrap, asked.source_instance) == ("c1", "old", "old", "i-old")
    assert asked.inventory is None


def test_without_the_sources_identity_it_goes_on_and_says_what_that_means(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.sessions.servers["old"].away = ConnectionLoss()
    assert world.show(collisions())
    assert world.asked[0].source_instance is None
    assert "so no ledger counts as Headgate's own copy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "is_free", "says"),
    [
        (collisions(), True, ["i1: 30 references, 20 ledgers to import, 9 ledgers of new", "no collision"]),
        (collisions(ours=2), True, ["ours_partial: 2, such as 1, 2", "no collision"]),
        (
            collisions(foreign=3),
            False,
            ["foreign_id", "3 ledgers exist in new and are not headgate's copies, such as 1, 2, 3"],
        ),
        (Incomplete("i1", "part 2 is missing"), False, ["snapshot_incomplete", "i1: part 2 is missing"]),
        (Incomplete("", "nothing was published"), False, ["no inventory: nothing was published"]),
    ],
    ids=["free", "ours", "foreign", "not whole", "none"],
)
def test_it_says_in_a_line_or_two_what_is_in_the_way(
    world: World, answer: Collisions | Incomplete, is_free: bool, says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.show(answer) is is_free
    printed = " ".join(capsys.readouterr().out.split())
    assert [line for line in says if line not in printed] == []


@pytest.mark.parametrize(
    ("answer", "reasons"),
    [
        (collisions(), []),
        (collisions(foreign=3), ["foreign_id"]),
        (Incomplete("i1", "part 2 is missing"), ["snapshot_incomplete"]),
    ],
    ids=["free", "foreign", "not whole"],
)
def test_a_program_gets_the_same_with_reasons(
    world: World, answer: Collisions | Incomplete, reasons: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    world.show(answer, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["cluster"], said["inventory"], said["reasons"]) == ("c1", "i1", reasons)
    if isinstance(answer, Collisions):
        assert said["hits"]["foreign"]["count"] == answer.hits[HitClass.FOREIGN].count


def test_what_spark_throws_is_one_line_with_the_log(world: World) -> None:
    broken = PySparkRuntimeError("An error occurred while calling o42.load.\n: java.lang.Error: no such broker\n\tat x")
    with pytest.raises(UserError, match=r"^Spark: java\.lang\.Error: no such broker\. More in .*collisions\.log$"):
        world.show(broken)


def test_a_cluster_that_nobody_named_is_the_users_mistake_told_before_kafka_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collisions_command, "inventory_topic", lambda settings: pytest.fail("was asked"))
    with pytest.raises(UserError, match="name no cluster c2; they name c1"):
        show_collisions(world.settings, "c2", None, as_json=False)
    assert world.asked == []
