"""The copier of a broker cluster, made when it is first needed and for each other move, with the limit in force."""

import json
from base64 import b64encode
from pathlib import Path

import pytest

from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.switching.ledger_orders import LedgerCopiers
from connectors.switching.registration import SwitchExecution
from connectors.zookeeper.session import UnreadError
from policies.units import UserError
from tests.connectors.switching.test_readings import MemorySessions


class Jvm(BookKeeperJvm):
    """One that is never started; all that it finds is foreign."""

    def __init__(self) -> None:
        self.settings: dict[str, object] = {}
        self.made: list[dict[str, object]] = []
        self.limits: list[int] = []
        self.closed = 0

    def run(self, request: str) -> str:
        self.made.append(dict(self.settings))
        return json.dumps({"status": "foreign"})

    def limit(self, bytes_per_second: int) -> None:
        self.limits.append(bytes_per_second)
        self.settings["bytes_per_second"] = bytes_per_second

    def close(self) -> None:
        self.closed += 1


class World:
    def __init__(self, password_file: Path) -> None:
        self.sessions, self.jvm, self.jvms = MemorySessions(), Jvm(), 0
        self.password_file = password_file
        password_file.write_text("secret")
        settings = SwitchExecution(ledger_password_file=password_file)
        self.copiers = LedgerCopiers(self.sessions, settings, self._start, 4)

    def _start(self) -> BookKeeperJvm:
        self.jvms += 1
        return self.jvm


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "password")


def test_a_move_has_one_copier_and_the_way_back_another_in_its_place(world: World) -> None:
    there = world.copiers.get("old", "new")
    assert there is world.copiers.get("old", "new")
    assert there is not world.copiers.get("new", "old")
    assert (world.jvms, world.jvm.closed) == (2, 1)
    for _ in range(2):
        world.copiers.close()
    assert world.jvm.closed == 2
    assert world.copiers.get("new", "old") is not there
    assert world.jvm.made == [], "nothing is started before something is copied"


def test_a_copier_knows_both_clusters_by_identity_and_address(world: World) -> None:
    move = world.copiers.get("old", "new")
    move.copy(7)
    (settings,) = world.jvm.made
    addresses = [settings[side]["properties"]["metadataServiceUri"] for side in ("source", "target")]  # type: ignore[index]
    assert addresses == ["zk+hierarchical://old:2181/ledgers", "zk+hierarchical://new:2181/ledgers"]
    record = move.journal.find(7)
    assert record is not None
    assert (record.source, record.target) == ("i-old", "i-new")


def test_a_limit_holds_for_all_that_are_there_and_all_to_come(world: World) -> None:
    world.copiers.get("old", "new").copy(7)
    world.copiers.limit(5_000)
    world.copiers.get("new", "old").copy(8)
    assert world.jvm.limits == [0, 5_000, 5_000]
    assert [settings["bytes_per_second"] for settings in world.jvm.made] == [0, 5_000]


def test_a_password_that_is_changed_later_is_that_of_the_next_copy(world: World) -> None:
    for password in (b"secret", b"secret", b"rotated"):
        world.password_file.write_bytes(password)
        world.copiers.get("old", "new").copy(7)
    made = [settings["source"]["password"] for settings in world.jvm.made]  # type: ignore[index]
    assert made == [b64encode(each).decode() for each in (b"secret", b"secret", b"rotated")]
    assert (SwitchExecution().password(), SwitchExecution(ledger_password="x").password()) == (b"", b"x")
    assert world.jvm.closed == 1


def test_a_move_within_one_cluster_is_refused(world: World) -> None:
    world.sessions.servers["new"].write("/ledgers/INSTANCEID", b"i-old")
    with pytest.raises(UserError, match="the same BookKeeper cluster"):
        world.copiers.get("old", "new")


@pytest.mark.parametrize("node", ["INSTANCEID", "LAYOUT"])
def test_without_identity_or_layout_there_is_no_copier_and_it_is_tried_again(world: World, node: str) -> None:
    before = dict(world.sessions.servers["new"].tree)
    del world.sessions.servers["new"].tree[f"/ledgers/{node}"]
    with pytest.raises(UnreadError, match=f"/ledgers/{node}"):
        world.copiers.get("old", "new")
    world.sessions.servers["new"].tree = before
    assert world.copiers.get("old", "new") is world.copiers.get("old", "new")
