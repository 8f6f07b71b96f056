"""Who refers to which ledger: what real brokers write, and every place where topics keep their cursors."""

import json
from pathlib import Path

from connectors.pulsar.referrers import Inventory, read_references
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.settings.application import Settings
from deploy.switch.precheck import check
from policies.switching.ledgers import FindingReason, LedgerKind, Reference
from policies.switching.readings import SwitchPrecheck
from tests.system.bookkeeper import init_cluster
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_topics import call, create_namespace, produce


def read(servers: str) -> Inventory:
    session = ZooKeeperSession("c1", ZooKeeperConnection(servers=servers))
    try:
        return read_references(session.reader(lambda: 30.0), "old")
    finally:
        session.close()


def precheck_of(servers: str) -> SwitchPrecheck:
    """From Pulsar's own BookKeeper cluster to one below a chroot."""
    clusters = {"old": {}, "new": {"zookeeper": {"servers": f"{servers}/new"}}}
    block = {"zookeeper": {"servers": servers}, "bookkeeper": {"bootstrap": "old", "clusters": clusters}}
    return check(Settings.model_validate({"clusters": {"c1": block}}), "c1", "new")[0]


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
