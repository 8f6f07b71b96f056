"""The collision join as one uses it: thousands of references in a real ZooKeeper, by a real Kafka, joined in Spark."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from connectors.switching.inventory import make_inventory
from deploy.java.jars import default_cache_dir, ensure_jars
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from deploy.switch import collisions_command
from deploy.switch.collisions_command import show_collisions
from policies.switching.ledger_paths import Layout, path_of
from policies.wire import observation_event
from streaming.conf import SMALL_BATCH_TUNING
from streaming.session import set_defaults, start_session, stop_session
from tests.connectors.bookkeeper.test_ledgers import captured
from tests.connectors.pulsar.znodes import cursor_info
from tests.system.bookkeeper import init_cluster
from tests.system.loop import Headgate, make_topics, produce, write_settings
from tests.system.zookeeper import ZooKeeper

CLUSTER = "c1"
REFERENCES = 5_000
TAKEN = range(1_000, 4_000, 40)
BEYOND = range(30_000, 30_100)
AT_ONCE = 1_000


class Fleet:
    """Two BookKeeper clusters' metadata, those of brokers with many cursors, and a loop's Kafka."""

    def __init__(self, zookeeper: KazooClient, servers: str, kafka: str, folder: Path) -> None:
        self.zookeeper = zookeeper
        self.servers = servers
        self.kafka = kafka
        self.folder = folder
        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        self.settings = write_settings(
            folder / "headgate.yaml",
            data_dir=str(folder / "data"),
            kafka={"bootstrap_servers": kafka},
            topics={"prefix": self.prefix},
            stream={"driver_memory": "512m"},
            policies={"switching": {"target_policy": "shared"}},
            clusters={
                CLUSTER: {
                    "zookeeper": {"servers": f"{servers}/old", "timeout": "60s"},
                    "bookkeeper": {
                        "bootstrap": "old",
                        "clusters": {"old": {}, "new": {"zookeeper": {"servers": f"{servers}/new", "timeout": "60s"}}},
                    },
                }
            },
        )

    def put(self, nodes: dict[str, bytes]) -> None:
        """Make many znodes in few transactions, and what leads to them."""
        for folder in {path.rpartition("/")[0] for path in nodes}:
            self.zookeeper.ensure_path(folder)
        paths = list(nodes)
        for start in range(0, len(paths), AT_ONCE):
            together = self.zookeeper.transaction()
            for path in paths[start : start + AT_ONCE]:
                together.create(path, nodes[path])
            assert set(paths[start : start + AT_ONCE]) == set(together.commit())

    def remove(self, paths: Iterable[str]) -> None:
        """Remove many znodes without children in few transactions."""
        paths = list(paths)
        for start in range(0, len(paths), AT_ONCE):
            together = self.zookeeper.transaction()
            for path in paths[start : start + AT_ONCE]:
                together.delete(path)
            assert set(together.commit()) == {True}

    def run(self, *arguments: str) -> tuple[int, str]:
        """Status and output of a command."""
        with Headgate([*arguments, "-s", str(self.settings)], self.folder / f"{uuid.uuid4().hex}.log") as command:
            return command.wait(), command.output()

    def switch(self, *arguments: str, cluster: str = CLUSTER) -> tuple[int, str]:
        return self.run("switch", *arguments, "--cluster", cluster)

    def answer(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        status, output = self.switch(*arguments, "--json")
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        return status, answer


@pytest.fixture(scope="module")
def fleet(
    zookeeper: ZooKeeper, bookkeeper_jars: tuple[Path, ...], loop_kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    folder, chroot = tmp_path_factory.mktemp("collisions"), f"/{uuid.uuid4().hex[:8]}"
    for name in ("old", "new"):
        init_cluster(folder / name, bookkeeper_jars, f"{zookeeper.servers}{chroot}/{name}")
    with zookeeper.client(chroot=chroot, timeout=60.0) as client:
        fleet = Fleet(client, f"{zookeeper.servers}{chroot}", loop_kafka, folder)
        topics = "/old/managed-ledgers/t/n/persistent"
        cursors = {f"{topics}/topic-{n // 20}/s{n % 20}": cursor_info(n) for n in range(REFERENCES)}
        fleet.put(cursors)
        ledgers = (f"/new/ledgers{path_of(Layout.HIERARCHICAL, n)}" for n in (*TAKEN, *BEYOND))
        fleet.put(dict.fromkeys(ledgers, captured("version 3, closed")))
        make_topics(fleet.settings)
        yield fleet
        fleet.remove(cursors)
        client.delete("/", recursive=True)


@pytest.fixture(scope="module")
def spark(fleet: Fleet) -> Iterator[SparkSession]:
    """A session for what is asked in this process; the join is asked of the command, which starts its own."""
    settings = load_settings(fleet.settings)
    session = start_session(settings.stream, ensure_jars("spark", default_cache_dir()), fleet.folder / "spark.log")
    set_defaults(session, SMALL_BATCH_TUNING)
    yield session
    stop_session(session)


@pytest.fixture
def asked(
    fleet: Fleet, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[bool, str]]:
    """`headgate switch collisions` with that session: whether nothing is in the way, and what is said."""

    @contextmanager
    def session(_settings: Settings) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(collisions_command, "_session", session)

    def ask(inventory: str | None = None, *, as_json: bool = False) -> tuple[bool, str]:
        capsys.readouterr()
        free = show_collisions(load_settings(fleet.settings), CLUSTER, inventory, as_json=as_json)
        return free, capsys.readouterr().out

    return ask


def test_without_an_inventory_nothing_is_known(asked: Callable[..., tuple[bool, str]]) -> None:
    free, said = asked()
    assert not free
    assert f"snapshot_incomplete: no inventory: the topic has no inventory of {CLUSTER}" in " ".join(said.split())


def test_the_join_in_spark_finds_what_the_precheck_finds(fleet: Fleet) -> None:
    status, published = fleet.answer("inventory", "--target", "new")
    assert (status, published["references"]) == (0, REFERENCES)
    assert published["parts"] >= REFERENCES // 1_000
    status, found = fleet.answer("collisions")
    _, report = fleet.answer("precheck", "--target", "new")
    assert (status, found["inventory"], found["reasons"]) == (1, published["inventory"], ["foreign_id"])
    assert found["hits"] == report["hits"]
    assert found["hits"]["foreign"] == {"count": len(TAKEN), "samples": list(TAKEN[:10])}
    assert (found["to_import"], found["greatest_id"]) == (len(report["ids_to_import"]), report["greatest_id"])
    assert (found["to_import"], found["greatest_id"], found["target"]) == (REFERENCES, REFERENCES - 1, "new")


def last_line(said: str) -> dict[str, Any]:
    """The document in what a command of this process said: its log is not elsewhere, as it is for a user."""
    return dict(json.loads(said.splitlines()[-1]))


def test_a_newer_inventory_counts_and_one_that_is_not_whole_says_nothing(
    fleet: Fleet, asked: Callable[..., tuple[bool, str]]
) -> None:
    fleet.remove(f"/new/ledgers{path_of(Layout.HIERARCHICAL, ledger_id)}" for ledger_id in TAKEN)
    status, published = fleet.answer("inventory", "--target", "new")
    assert status == 0
    free, said = asked()
    assert free, said
    assert "no collision" in said
    part, _manifest = make_inventory(CLUSTER, "newest", [], {}, "new", 0)
    record = observation_event(part, id="e", source="test", time=datetime.now(UTC))
    produce(fleet.kafka, f"{fleet.prefix}.observed.switches", (CLUSTER, record))
    free, said = asked(as_json=True)
    found = last_line(said)
    assert (free, found["inventory"], found["reasons"]) == (False, "newest", ["snapshot_incomplete"])
    free, said = asked(published["inventory"], as_json=True)
    found = last_line(said)
    assert (free, found["inventory"], found["reasons"]) == (True, published["inventory"], [])


def test_what_cannot_be_read_whole_is_not_published(fleet: Fleet) -> None:
    damaged = "/old/managed-ledgers/t/n/persistent/damaged/s1"
    fleet.put({damaged: b"\x00"})
    status, output = fleet.switch("inventory", "--target", "new")
    fleet.zookeeper.delete(damaged)
    assert status == 1, output
    assert "/managed-ledgers/t/n/persistent/damaged/s1" in output
    assert "Nothing is published" in output


@pytest.mark.parametrize(
    "command", [("inventory", "--target", "new"), ("collisions",)], ids=["inventory", "collisions"]
)
def test_a_cluster_that_has_no_name_is_the_users_mistake(fleet: Fleet, command: tuple[str, ...]) -> None:
    status, output = fleet.switch(*command, cluster="c2")
    assert status == 2, output
    assert "the settings name no cluster c2; they name c1" in " ".join(output.split())


def test_topics_that_are_missing_are_the_users_mistake(fleet: Fleet) -> None:
    with_others = fleet.settings.read_text().replace(fleet.prefix, "nobody")
    file = fleet.folder / "others.yaml"
    file.write_text(with_others)
    log = fleet.folder / "missing.log"
    with Headgate(["switch", "collisions", "--cluster", CLUSTER, "-s", str(file)], log) as command:
        assert command.wait() == 2
    assert "topics are missing: nobody.observed.switches" in " ".join(log.read_text().split())
