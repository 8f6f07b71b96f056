"""What the executor reads for the policy; and that what cannot be read is said, with nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError

from connectors.bookkeeper.copy_journal import CopyJournal
from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.switching.cluster_reader import ClusterReader
from connectors.switching.clusters import ClusterMetadata, ClusterSessions
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome, Reading
from policies.switching.ledgers import Layout, path_of
from policies.switching.readings import SwitchInventory, SwitchInventoryPart
from policies.switching.settings import SwitchingSettings
from tests.connectors.bookkeeper.test_ledgers import captured
from tests.connectors.pulsar.znodes import cursor_info
from tests.connectors.switching.memory_zookeeper import Server

LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
CURSORS = "/managed-ledgers/t/n/persistent/topic"
BROKERS = "/loadbalance/brokers"


class MemorySessions(ClusterSessions):
    """`old` and `new`, in ZooKeepers of their own."""

    def __init__(self) -> None:
        clusters = BookKeeperClusters.model_validate(
            {
                "bootstrap": "old",
                "clusters": {name: {"zookeeper": {"servers": f"{name}:2181"}} for name in ("old", "new")},
            }
        )
        super().__init__("c1", ZooKeeperConnection(servers="brokers:2181"), clusters)
        self.servers = {name: Server() for name in ("brokers", "old", "new")}
        self._memory: dict[str, ZooKeeperSession] = {name: each.session() for name, each in self.servers.items()}
        for name in ("old", "new"):
            self._write(name, "/ledgers/INSTANCEID", f"i-{name}".encode())
            self._write(name, "/ledgers/LAYOUT", LAYOUT)
        self._write("brokers", f"{BROKERS}/b2:8080", b"")
        self._write("brokers", f"{BROKERS}/b1:8080", b"")

    @property
    def brokers(self) -> ZooKeeperSession:
        return self._memory["brokers"]

    def find_metadata(self, name: str) -> ClusterMetadata:
        known = super().find_metadata(name)
        return ClusterMetadata(name, self._memory[name], known.ledgers_root)

    def subscribe(self, *ledger_ids: int, attribution: str | None = None) -> None:
        """Make cursors of these ledgers."""
        for ledger_id in ledger_ids:
            self._write("brokers", f"{CURSORS}/s{ledger_id}", cursor_info(ledger_id, attribution=attribution))

    def has(self, name: str, *ledger_ids: int) -> None:
        """Make ledgers of a BookKeeper cluster, all with the same content."""
        for ledger_id in ledger_ids:
            self._write(name, f"/ledgers{path_of(Layout.HIERARCHICAL, ledger_id)}", captured("version 3, closed"))

    def _write(self, server: str, path: str, data: bytes) -> None:
        parts = path.strip("/").split("/")
        for length in range(1, len(parts)):
            above = "/" + "/".join(parts[:length])
            if above not in self.servers[server].tree:
                self.servers[server].write(above, b"")
        self.servers[server].write(path, data)


RULES = SwitchingSettings.model_validate({"target_policy": "shared", "precheck_validity": "1m"})


class World:
    """A reader, and where it reads."""

    def __init__(self) -> None:
        self.sessions = MemorySessions()
        self.reader = ClusterReader("c1", self.sessions, BROKERS, RULES)

    def lose(self, *names: str, why: BaseException | None = None) -> "World":
        for name in names:
            self.sessions.servers[name].away = why or ConnectionLoss()
        return self

    def inventory(self, **of: Any) -> tuple[list[SwitchInventoryPart], SwitchInventory]:
        """Its parts, and its manifest, which comes last."""
        *parts, manifest = self.reader.inventory("old", **of)
        assert isinstance(manifest, SwitchInventory)
        return [part for part in parts if isinstance(part, SwitchInventoryPart)], manifest


@pytest.fixture
def world() -> World:
    return World()


def test_live_brokers_are_told_sorted(world: World) -> None:
    assert world.reader.brokers().brokers == ("b1:8080", "b2:8080")


def test_without_a_registration_ever_there_are_none(world: World) -> None:
    reader = ClusterReader("c1", world.sessions, "/nowhere", RULES)
    assert (reader.brokers().outcome, reader.brokers().brokers) == (Outcome.OK, ())


def test_each_cluster_is_told_by_what_it_is(world: World) -> None:
    told = list(world.reader.clusters())
    assert [(each.name, each.instance_id, each.root, each.layout) for each in told] == [
        ("old", "i-old", "/ledgers", Layout.HIERARCHICAL),
        ("new", "i-new", "/ledgers", Layout.HIERARCHICAL),
    ]
    assert all(each.generator is not None and each.took_ms >= 1 for each in told)


def test_one_that_cannot_be_read_hides_no_other(world: World) -> None:
    world.lose("old")
    assert [(each.name, each.outcome) for each in world.reader.clusters()] == [
        ("old", Outcome.UNREACHABLE),
        ("new", Outcome.OK),
    ]


def test_a_root_that_is_not_there_is_an_error_with_its_remedy(world: World) -> None:
    world.sessions.servers["new"].tree = {}
    *_, new = world.reader.clusters()
    assert new.outcome is Outcome.ERROR
    assert "set ledgers_root of new" in (new.detail or "")
    assert new.instance_id is None


READS: dict[str, Callable[[ClusterReader], Reading]] = {
    "brokers": lambda reader: reader.brokers(),
    "inventory": lambda reader: next(reader.inventory("old")),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("why", "outcome"),
    [
        (ConnectionLoss(), Outcome.UNREACHABLE),
        (SessionExpiredError(), Outcome.UNREACHABLE),
        (AuthFailedError(), Outcome.UNAUTHORIZED),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_cannot_be_read_is_said_with_the_reason(
    world: World, read: str, why: BaseException, outcome: Outcome
) -> None:
    told = READS[read](world.lose("brokers", why=why).reader)
    assert (told.outcome, bool(told.detail)) == (outcome, True)


def test_a_precheck_says_whether_brokers_may_move(world: World) -> None:
    world.sessions.subscribe(1, 2)
    world.sessions.has("new", 2)
    told = world.reader.precheck("old", "new", "old")
    assert (told.outcome, told.ready, told.to_import, told.greatest_id) == (Outcome.OK, False, 2, 2)
    assert "foreign_id" in {finding.reason for finding in told.findings}


@pytest.mark.parametrize("away", ["brokers", "old", "new"])
def test_a_precheck_of_what_cannot_be_read_is_not_ready(world: World, away: str) -> None:
    assert not world.lose(away).reader.precheck("old", "new", "old").ready


def test_a_cluster_that_nobody_named_is_the_users_mistake_said_in_the_reading(world: World) -> None:
    told = world.reader.precheck("old", "third", "old")
    assert (told.outcome, "names no cluster third; it names old, new" in (told.detail or "")) == (Outcome.ERROR, True)


def test_an_inventory_is_its_parts_and_at_last_its_manifest(world: World) -> None:
    world.sessions.subscribe(1, 2)
    world.sessions.subscribe(3, attribution="new")
    parts, manifest = world.inventory()
    references = [(each.ledger_id, each.attribution) for part in parts for each in part.references]
    assert sorted(references) == [(1, None), (2, None), (3, "new")]
    assert (manifest.outcome, manifest.parts, manifest.references) == (Outcome.OK, len(parts), 3)


def test_of_the_target_those_of_the_sources_ledgers_are_told_and_whose_they_are(world: World) -> None:
    world.sessions.subscribe(1, 2)
    world.sessions.subscribe(3, attribution="new")
    world.sessions.has("new", 2, 3)
    journal = CopyJournal(world.sessions.brokers, source="i-old", target="i-new")
    journal.intend(2)
    parts, manifest = world.inventory(source="old", target="new")
    existing = [ledger for part in parts for ledger in part.existing]
    assert [(each.ledger_id, each.provenance) for each in existing] == [(2, "")], "journalled, but not our token on it"
    assert manifest.target == "new"


def test_each_inventory_has_a_name_of_its_own(world: World) -> None:
    assert world.inventory()[1].inventory != world.inventory()[1].inventory


@pytest.mark.parametrize("trouble", ["a damaged cursor", "a target without identity", "a target that is away"])
def test_an_inventory_that_is_not_whole_is_a_manifest_that_says_why(world: World, trouble: str) -> None:
    world.sessions.subscribe(1)
    match trouble:
        case "a damaged cursor":
            world.sessions.servers["brokers"].write(f"{CURSORS}/s1", b"\x00")
            said = "1 references cannot be read"
        case "a target without identity":
            world.sessions.servers["new"].write("/ledgers/INSTANCEID", b"")
            said = "the INSTANCEID of new cannot be read"
        case _:
            world.lose("new")
            said = "/ledgers/LAYOUT"
    parts, manifest = world.inventory(source="old", target="new")
    assert parts == []
    assert manifest.outcome is not Outcome.OK
    assert said in (manifest.detail or "")
