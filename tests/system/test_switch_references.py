"""Who refers to which ledger: what real brokers write, and every place where topics keep their cursors."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from connectors.pulsar.referrers import Inventory, read_references
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.settings.application import Settings
from deploy.switch.precheck import check
from policies.switching.ledgers import FindingReason, LedgerKind, Reference
from policies.switching.readings import SwitchPrecheck
from tests.connectors.pulsar.znodes import cursor_info, schema_locator
from tests.system.bookkeeper import init_cluster
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_topics import call, create_namespace, produce
from tests.system.zookeeper import ZooKeeper


def read(servers: str) -> Inventory:
    session = ZooKeeperSession("c1", ZooKeeperConnection(servers=servers))
    try:
        return read_references(session.reader(lambda: 30.0))
    finally:
        session.close()


def precheck_of(servers: str) -> SwitchPrecheck:
    """From Pulsar's own BookKeeper cluster to one below a chroot."""
    clusters = {"old": {}, "new": {"zookeeper": {"servers": f"{servers}/new"}}}
    block = {"zookeeper": {"servers": servers}, "bookkeeper": {"bootstrap": "old", "clusters": clusters}}
    return check(Settings.model_validate({"clusters": {"c1": block}}), "c1", "new")[0]


@pytest.fixture
def tree(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """An empty tree below a chroot of its own."""
    with zookeeper.client() as client:
        client.ensure_path(chroot := f"/{uuid4().hex[:8]}")
        client.chroot = chroot
        yield client


def put(tree: KazooClient, path: str, data: bytes) -> None:
    tree.ensure_path(path)
    tree.set(path, data)


def found(zookeeper: ZooKeeper, tree: KazooClient) -> Inventory:
    return read(f"{zookeeper.servers}{tree.chroot}")


def test_a_cluster_without_topics_refers_to_nothing(zookeeper: ZooKeeper, tree: KazooClient) -> None:
    assert found(zookeeper, tree) == Inventory()


def test_cursors_are_found_below_old_and_new_topic_names(zookeeper: ZooKeeper, tree: KazooClient) -> None:
    put(tree, "/managed-ledgers/t/n/persistent/topic", b"\n\x00")  # the topic's own, of no interest
    put(tree, "/managed-ledgers/t/n/persistent/topic/s1", cursor_info(1))
    put(tree, "/managed-ledgers/t/n/persistent/topic/persistent", cursor_info(2))
    put(tree, "/managed-ledgers/t/cluster/n/persistent/topic/s1", cursor_info(3))
    tree.ensure_path("/managed-ledgers/t/empty")
    inventory = found(zookeeper, tree)
    assert {each.path.removeprefix("/managed-ledgers"): each.ledger_id for each in inventory.references} == {
        "/t/n/persistent/topic/s1": 1,
        "/t/n/persistent/topic/persistent": 2,
        "/t/cluster/n/persistent/topic/s1": 3,
    }
    assert inventory.problems == []


def test_a_managed_ledger_in_another_place_is_a_problem(zookeeper: ZooKeeper, tree: KazooClient) -> None:
    put(tree, "/managed-ledgers/mine", b"\n\x00")
    put(tree, "/managed-ledgers/mine/cursor", cursor_info(1))
    put(tree, "/managed-ledgers/t/cluster/n/odd/topic", b"\n\x00")
    assert [line.split(": ")[0] for line in found(zookeeper, tree).problems] == [
        "/managed-ledgers/mine",
        "/managed-ledgers/t/cluster/n/odd",
    ]


def test_a_damaged_znode_hides_no_other(zookeeper: ZooKeeper, tree: KazooClient) -> None:
    put(tree, "/schemas/t/n/damaged", b"\xff")
    put(tree, "/schemas/t/n/topic", schema_locator(5))
    put(tree, "/managed-ledgers/t/n/persistent/topic/s1", b"\xff")
    put(tree, "/managed-ledgers/t/n/persistent/topic/s2", cursor_info(7))
    inventory = found(zookeeper, tree)
    assert [each.ledger_id for each in inventory.references] == [5, 5, 7]
    assert len(inventory.problems) == 2


def test_what_a_real_broker_writes_is_read_plain_and_compressed(
    bookkeeper_jars: tuple[Path, ...], pulsar_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    with PulsarCluster(tmp_path, pulsar_jars, bookkeeper_jars, bookies=1) as cluster:
        cluster.add_broker(
            ensemble_size=1,
            properties={"managedCursorInfoCompressionType": "ZSTD", "managedCursorInfoCompressionThresholdInBytes": 0},
        )
        create_namespace(cluster, "t/n")
        for version in (1, 2):
            fields = [{"name": f"f{i}", "type": ["null", "string"], "default": None} for i in range(version)]
            schema = json.dumps({"type": "record", "name": "R", "fields": fields})
            body = {"type": "AVRO", "schema": schema, "properties": {}}
            call(cluster, "POST", "/admin/v2/schemas/t/n/typed/schema", body)
        call(cluster, "PUT", "/admin/v2/persistent/t/n/topic")
        call(cluster, "PUT", "/admin/v2/persistent/t/n/topic/subscription/s1")
        produce(cluster, "t/n/topic", 3)
        call(cluster, "POST", "/admin/v2/persistent/t/n/topic/subscription/s1/skip/1")
        properties = {"_pulsar.bookieClusterName": "old"}
        call(cluster, "PUT", "/admin/v2/persistent/t/n/topic/subscription/s1/properties", properties)

        inventory = read(cluster.zookeeper.servers)
        stats = call(cluster, "GET", "/admin/v2/persistent/t/n/topic/internalStats").json()
        schemas = call(cluster, "GET", "/admin/v2/schemas/t/n/typed/schemas").json()["getSchemaResponses"]
        with cluster.zookeeper.client() as client:
            value, _ = client.get("/managed-ledgers/t/n/persistent/topic/s1")
            init_cluster(tmp_path / "new", bookkeeper_jars, f"{cluster.zookeeper.servers}/new")
            before = precheck_of(cluster.zookeeper.servers)
            client.ensure_path("/new/ledgers/idgen-long/HOB-0000000001")
            after = precheck_of(cluster.zookeeper.servers)
    assert inventory.problems == []
    assert value.startswith(b"\x47\x78")
    cursors = [each for each in inventory.references if each.kind is LedgerKind.CURSOR]
    ledger = stats["cursors"]["s1"]["cursorLedger"]
    assert cursors == [Reference(LedgerKind.CURSOR, "/managed-ledgers/t/n/persistent/topic/s1", ledger, "old")]
    typed = [each for each in inventory.references if each.path == "/schemas/t/n/typed"]
    assert [each.position for each in typed] == ["info", *(f"index/{n}" for n in range(len(schemas)))]
    assert len({each.ledger_id for each in typed}) == len(schemas) == 2
    assert typed[0].ledger_id == typed[-1].ledger_id
    assert [(each.reason, each.hob) for each in before.findings] == [(FindingReason.IDGEN_BEHIND, 1)]
    # One ledger is the topic's; the cursor, and each version of two schemas (REST producers have one), have theirs.
    assert (after.ready, after.to_import) == (True, 4)
    assert after.source_next_id == 5
