"""What the executor reads for the policy, what of it is published, and how what cannot be read is told."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError
from msgspec import structs

from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal
from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.switching import readings
from connectors.switching.clusters import ClusterSessions
from connectors.switching.readings import MAX_PART_BYTES, MAX_PART_LENGTH, SwitchReadings, _add_digest, make_inventory
from connectors.switching.registration import SwitchExecution
from connectors.switching.registry import Registry
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome, Reading
from policies.switching.fold import InventorySeen, assemble
from policies.switching.ledgers import Layout, Ledger, LedgerKind, LedgerState, Reference, path_of
from policies.switching.readings import (
    SwitchBrokers,
    SwitchCluster,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchPrecheck,
)
from policies.switching.registration import KIND
from policies.switching.settings import SwitchingSettings
from policies.switching.state import ClusterStatus, RegistryEntry
from policies.units import UserError, from_millis
from policies.wire import EventReader, observation_event
from tests.cases import for_each
from tests.connectors.bookkeeper.test_cluster import captured
from tests.connectors.pulsar.znodes import cursor_info
from tests.connectors.switching.orders import register_two
from tests.fakes.zookeeper import Server

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

    def session(self, name: str) -> ZooKeeperSession:
        return self._memory[super().session(name).name.removeprefix("c1/")]

    def subscribe(self, *ledger_ids: int, attribution: str | None = None) -> None:
        """Make cursors of these ledgers."""
        for ledger_id in ledger_ids:
            self._write("brokers", f"{CURSORS}/s{ledger_id}", cursor_info(ledger_id, attribution=attribution))

    def has(self, name: str, *ledger_ids: int) -> None:
        """Make ledgers of a BookKeeper cluster, all with the same content."""
        for ledger_id in ledger_ids:
            self._write(name, f"/ledgers{path_of(Layout.HIERARCHICAL, ledger_id)}", captured("version 3, closed"))

    def _write(self, server: str, path: str, data: bytes) -> None:
        self.servers[server].write(path, data)


RULES = SwitchingSettings.model_validate({"target_policy": "shared", "precheck_validity": "1m"})
ALL = ["SwitchRegistry", "SwitchBrokers", "SwitchCluster", "SwitchCluster"]


class World:
    """What reads and publishes, where it reads, and a time of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.seconds = 100.0
        self.sessions = MemorySessions()
        self.registry = Registry(self.sessions.brokers, "c1")
        register_two(self.registry)
        self.published: list[Reading] = []
        monkeypatch.setattr(readings, "time", self)
        execution = SwitchExecution(**settings)
        self.readings = SwitchReadings(self.sessions, self.registry, execution, RULES, self.published.append)

    def monotonic(self) -> float:
        return self.seconds

    def publish(self, *, unchanged_too: bool = False, after_seconds: float = 0.0) -> list[str]:
        """The kinds of what is published now."""
        self.seconds += after_seconds
        self.published.clear()
        self.readings.publish(unchanged_too=unchanged_too)
        return [type(reading).__name__ for reading in self.published]

    def read(self, kind: type[Reading]) -> list[Any]:
        """What is read of a kind."""
        self.publish(unchanged_too=True)
        return [each for each in self.published if isinstance(each, kind)]

    def precheck(self, source: str, target: str) -> SwitchPrecheck:
        self.readings.publish_precheck(source, target)
        report = self.published[-1]
        assert isinstance(report, SwitchPrecheck)
        return report

    def lose(self, *names: str, why: BaseException | None = None) -> "World":
        for name in names:
            self.sessions.servers[name].away = why or ConnectionLoss()
        return self

    def inventory(self, *pair: str, **more: Any) -> tuple[list[SwitchInventoryPart], SwitchInventory]:
        """Its parts, and its manifest, which comes last."""
        self.published.clear()
        is_complete = self.readings.publish_inventory(*(pair or ("", "")), **more)
        *parts, manifest = self.published
        assert isinstance(manifest, SwitchInventory)
        assert is_complete is (manifest.outcome is Outcome.OK)
        return [part for part in parts if isinstance(part, SwitchInventoryPart)], manifest


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_all_is_published_at_first_and_then_what_changed_and_everything_every_15_seconds(world: World) -> None:
    assert world.publish() == ALL
    assert world.publish(after_seconds=2) == []
    world.sessions.servers["brokers"].delete(f"{BROKERS}/b2:8080")
    assert world.publish(after_seconds=2) == ["SwitchBrokers"]
    assert world.publish(after_seconds=10) == []
    assert world.publish(after_seconds=1) == ALL
    assert world.publish(unchanged_too=True) == ALL
    assert world.publish() == []


def test_a_registry_that_cannot_be_read_is_a_reading_and_no_other_counts(world: World) -> None:
    world.publish()
    world.sessions.servers["brokers"].away = ConnectionLoss()
    assert world.publish() == ["SwitchRegistry"]
    assert world.published[0].outcome is Outcome.ERROR
    assert "the connection was lost" in (world.published[0].detail or "")


def test_readings_have_the_epoch_that_was_read_before_them(world: World) -> None:
    world.registry.write_directive(7, "new")
    world.publish()
    assert [each.model_dump().get("epoch") for each in world.published] == [None, 7, 7, 7]
    assert world.inventory(attempt=2)[1].model_dump(include={"epoch", "attempt"}) == {"epoch": 7, "attempt": 2}


def test_live_brokers_are_told_sorted(world: World) -> None:
    (live,) = world.read(SwitchBrokers)
    assert live.brokers == ("b1:8080", "b2:8080")
    world.sessions.servers["brokers"].tree = {}
    none = world.sessions.read_brokers()
    assert (none.outcome, none.brokers) == (Outcome.OK, ())


def test_each_cluster_is_told_by_what_it_is(world: World) -> None:
    told = world.read(SwitchCluster)
    assert [(each.name, each.instance_id, each.root, each.layout) for each in told] == [
        ("old", "i-old", "/ledgers", Layout.HIERARCHICAL),
        ("new", "i-new", "/ledgers", Layout.HIERARCHICAL),
    ]
    assert all(each.generator is not None and each.took_ms >= 1 for each in told)


def test_a_cluster_that_cannot_be_read_hides_no_other_and_names_the_remedy(world: World) -> None:
    world.sessions.servers["new"].tree = {}
    old, new = world.lose("old").read(SwitchCluster)
    assert (old.outcome, new.outcome) == (Outcome.UNREACHABLE, Outcome.ERROR)
    assert "set ledgers_root of new" in new.detail
    assert new.instance_id is None


@for_each(
    ("why", "outcome"),
    [
        (ConnectionLoss(), Outcome.UNREACHABLE),
        (SessionExpiredError(), Outcome.UNREACHABLE),
        (AuthFailedError(), Outcome.UNAUTHORIZED),
    ],
    ids=["lost", "expired", "refused"],
)
def test_what_cannot_be_read_is_said_with_the_reason(world: World, why: BaseException, outcome: Outcome) -> None:
    manifest = world.lose("brokers", why=why).inventory()[1]
    brokers = world.sessions.read_brokers()
    assert [(each.outcome, bool(each.detail)) for each in (manifest, brokers)] == [(outcome, True)] * 2


def test_a_precheck_says_whether_brokers_may_move(world: World) -> None:
    world.sessions.subscribe(1, 2)
    world.sessions.has("new", 2)
    told = world.precheck("old", "new")
    assert (told.outcome, told.ready, told.to_import, told.greatest_id) == (Outcome.OK, False, 2, 2)
    assert "foreign_id" in {finding.reason for finding in told.findings}


@pytest.mark.parametrize("away", ["brokers", "old", "new"])
def test_a_precheck_of_what_cannot_be_read_is_not_ready(world: World, away: str) -> None:
    assert not world.lose(away).precheck("old", "new").ready


def test_a_cluster_that_nobody_named_is_the_users_mistake_said_in_the_reading(world: World) -> None:
    told = world.precheck("old", "third")
    assert (told.outcome, "names no cluster third; it names old, new" in (told.detail or "")) == (Outcome.ERROR, True)


def test_a_precheck_rests_on_the_registry_as_it_is_and_without_it_it_is_not_ready(world: World) -> None:
    world.sessions.subscribe(1)
    world.sessions.subscribe(2, attribution="left")
    told = world.precheck("old", "new")
    assert (told.to_import, "unknown_cluster" in told.reasons) == (1, True)
    world.registry.write_cluster(RegistryEntry("left", "zk://left", "i-left", "/l", ClusterStatus.DEPRECATED), None)
    assert "unknown_cluster" not in world.precheck("old", "new").reasons, "no settings need name it"
    world.sessions.servers["brokers"].write("/admin/bookie-clusters/bootstrap", b'{"name": "new"}')
    assert world.precheck("old", "new").to_import == 0
    world.sessions.servers["brokers"].write("/admin/bookie-clusters/bootstrap", b"{")
    assert "snapshot_incomplete" in world.precheck("old", "new").reasons


def test_only_of_the_ledger_that_was_compared_the_journal_proves_the_digest() -> None:
    proved = CopiedLedger(length_bytes=7, last_entry_id=0, entries_digest="d", created_ms=5)
    same, other = ledger(1, created_ms=5), ledger(1, created_ms=6)
    digests = [_add_digest(each, proved, each.created_ms).entries_digest for each in (same, other)]
    assert digests == ["d", None]
    assert _add_digest(structs.replace(same, length_bytes=8), proved).entries_digest is None


def test_an_inventory_is_its_parts_and_at_last_its_manifest_each_with_a_name_of_its_own(world: World) -> None:
    world.sessions.subscribe(1, 2)
    world.sessions.subscribe(3, attribution="new")
    parts, manifest = world.inventory()
    references = [(each.ledger_id, each.attribution) for part in parts for each in part.references]
    assert sorted(references) == [(1, None), (2, None), (3, "new")]
    assert (manifest.outcome, manifest.parts, manifest.references) == (Outcome.OK, len(parts), 3)
    assert world.inventory()[1].inventory != manifest.inventory


@for_each(("moved_too", "found"), [(False, [2]), (True, [2, 3])])
def test_of_the_target_those_of_the_sources_ledgers_are_told_and_whose_they_are(
    world: World, moved_too: bool, found: list[int]
) -> None:
    world.sessions.subscribe(1, 2)
    world.sessions.subscribe(3, attribution="new")
    world.sessions.has("new", 2, 3)
    CopyJournal(world.sessions.brokers, source="i-old", target="i-new").intend(2)
    parts, manifest = world.inventory("old", "new", moved_too=moved_too)
    existing = [(ledger.ledger_id, ledger.provenance) for part in parts for ledger in part.existing]
    assert sorted(existing) == [(each, "") for each in found], "2 is journalled, but not our token on it"
    assert (manifest.target, manifest.moved_too) == ("new", moved_too)


@pytest.mark.parametrize("trouble", ["a damaged cursor", "a target without identity", "a target that is away"])
def test_an_inventory_that_is_not_whole_is_a_manifest_that_says_why(world: World, trouble: str) -> None:
    world.sessions.subscribe(1)
    match trouble:
        case "a damaged cursor":
            world.sessions.servers["brokers"].write(f"{CURSORS}/s1", b"\x00")
            said = "1 references cannot be read"
        case "a target without identity":
            world.sessions.servers["new"].write("/ledgers/INSTANCEID", b"")
            said = "/ledgers/INSTANCEID: it is empty"
        case _:
            world.lose("new")
            said = "/ledgers/LAYOUT"
    parts, manifest = world.inventory("old", "new")
    assert parts == []
    assert manifest.outcome is not Outcome.OK
    assert said in (manifest.detail or "")


# --- the records of an inventory: nothing of it lost, nothing twice, and each record small

NOW_MS = 1_700_000_000_000
READER: EventReader[Any] = EventReader(KIND.readings)


def cursor(number: int, ledger_id: int | None = None, **more: Any) -> Reference:
    where = f"/managed-ledgers/t/n/persistent/topic-{number}/s"
    return Reference(LedgerKind.CURSOR, where, number if ledger_id is None else ledger_id, **more)


def ledger(ledger_id: int, **more: Any) -> Ledger:
    plain: dict[str, Any] = {"state": LedgerState.CLOSED, "last_entry_id": 0, "length_bytes": 7}
    return Ledger(ledger_id=ledger_id, **(plain | more))


MANIFEST = SwitchInventory(cluster="c1", outcome=Outcome.OK, inventory="i1", target="new", took_ms=42)


def told(references: Iterable[Reference], existing: Mapping[int, Ledger] | None = None) -> list[Reading]:
    return list(make_inventory(references, existing or {}, MANIFEST))


def record(reading: Reading) -> bytes:
    return observation_event(reading, id="e", source="test", time=from_millis(NOW_MS))


def parts(readings: Sequence[Reading]) -> list[SwitchInventoryPart]:
    return [r for r in readings if isinstance(r, SwitchInventoryPart)]


def heard(readings: Iterable[Reading]) -> InventorySeen | None:
    """What the policy makes of it, after a trip over the wire."""
    known, whole = None, None
    for reading in readings:
        event = READER.read(record(reading))
        known, seen = assemble(known, event.data, NOW_MS)
        whole = seen or whole
    return whole


def test_what_is_told_is_what_is_heard() -> None:
    references = [cursor(n, attribution=owner) for n, owner in enumerate((None, "old", "new"))]
    references.append(Reference(LedgerKind.SCHEMA, "/ü", 2, "old", "index/3"))
    existing = {n: ledger(n, custom_metadata={"a": "YQ=="}, created_ms=n) for n in (0, 2, 40)}
    for told_of, found in ((references, existing), ([], {})):
        whole = heard(told(told_of, found))
        assert whole is not None
        assert (whole.references, whole.existing) == (tuple(told_of), found)
        assert (whole.manifest.target, whole.at_ms) == ("new", NOW_MS - 42)


def test_the_manifest_comes_last_and_counts_all() -> None:
    *others, last = told([cursor(n) for n in range(2 * MAX_PART_LENGTH + 1)], {5: ledger(5)})
    assert isinstance(last, SwitchInventory)
    assert [p.part for p in parts(others)] == [0, 1, 2]
    assert (last.parts, last.references) == (3, 2 * MAX_PART_LENGTH + 1)
    assert [len(p.references) for p in parts(others)] == [MAX_PART_LENGTH, MAX_PART_LENGTH, 1]
    assert [len(p.existing) for p in parts(others)] == [0, 0, 1]


HEAVY = [
    ("long names", [cursor(1, position="ü" * 900) for _ in range(5_000)], {}),
    (
        "rich metadata",
        [cursor(n) for n in range(5_000)],
        {n: ledger(n, custom_metadata={"k": "A" * 1_000}) for n in range(5_000)},
    ),
    ("ledgers nobody refers to", [], {n: ledger(n) for n in range(20_000)}),
]


@pytest.mark.parametrize(("references", "existing"), [case[1:] for case in HEAVY], ids=[case[0] for case in HEAVY])
def test_a_record_is_small_whatever_is_in_it(references: list[Reference], existing: dict[int, Ledger]) -> None:
    readings = told(references, existing)
    assert max(len(record(r)) for r in readings) < MAX_PART_BYTES + 16_384
    assert len(readings) > 2
    assert {each.ledger_id for p in parts(readings) for each in p.existing} == set(existing)


def test_a_reference_to_an_impossible_id_names_its_znode() -> None:
    with pytest.raises(UserError, match=r"^/managed-ledgers/t/n/persistent/topic-4/s: .*ledger_id.*mend this znode$"):
        told([cursor(4, -7)])
