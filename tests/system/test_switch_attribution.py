"""Ledgers are attributed to another cluster in a real ZooKeeper, beside others who write there too; Pulsar reads it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from connectors.pulsar.metadata import CLUSTER_PROPERTY, ValuePart, decompress, set_attribution
from connectors.pulsar.referrers import read_references
from connectors.switching.attribution import Attribution, Move, ReferenceZnodes
from connectors.zookeeper.json_znodes import ZnodeError
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.java.jvm import find_java
from policies.switching.ledgers import LedgerKind, Reference
from policies.switching.readings import LedgerOutcome
from tests.connectors.pulsar.test_metadata import CAPTURED, LEDGERS, cursor, cursor_path
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_topics import call, create_namespace, produce
from tests.system.small_servers import small_jvm
from tests.system.zookeeper import ZooKeeper

CURSOR = "/managed-ledgers/t/n/persistent/topic/s1"
SCHEMA = "/schemas/t/n/topic"
TYPED = "/schemas/t/n/typed"
LEGACY = frozenset({"old", None})
DONE = Attribution(changed=(ValuePart.ATTRIBUTION,))
ALREADY = Attribution()


@pytest.fixture
def tree(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """An empty tree below a chroot of its own."""
    with zookeeper.client() as client:
        client.ensure_path(chroot := f"/{uuid4().hex[:8]}")
        client.chroot = chroot
        yield client


@pytest.fixture
def references(zookeeper: ZooKeeper, tree: KazooClient) -> Iterator[ReferenceZnodes]:
    session = ZooKeeperSession("c1", ZooKeeperConnection(servers=f"{zookeeper.servers}{tree.chroot}"))
    yield ReferenceZnodes(session)
    session.close()


def put(tree: KazooClient, path: str, data: bytes) -> bytes:
    tree.ensure_path(path)
    tree.set(path, data)
    return data


def to_new(
    references: ReferenceZnodes, path: str = CURSOR, kind: LedgerKind = LedgerKind.CURSOR, ledger_id: int = 7
) -> Attribution:
    return references.attribute([path], Move(kind, ledger_id, LEGACY, "new", ledger_id))


@pytest.mark.parametrize(
    ("may", "detail"), [("read", "does not let us write it"), ("write", "does not let us read it")]
)
def test_a_znode_with_a_right_too_little_fails_with_the_reason(
    tree: KazooClient, references: ReferenceZnodes, may: str, detail: str
) -> None:
    put(tree, CURSOR, cursor(7))
    version = tree.get(CURSOR)[1].version
    tree.set_acls(CURSOR, [make_acl("world", "anyone", admin=True, **{may: True})])
    assert to_new(references) == Attribution(LedgerOutcome.FAILED, detail=f"{CURSOR}: its ACL {detail}")
    if may == "read":
        assert tree.get(CURSOR)[1].version == version
        assert references.read_owners([CURSOR], LedgerKind.CURSOR, 7) == {None}
    else:
        with pytest.raises(ZnodeError, match=detail):
            references.read_owners([CURSOR], LedgerKind.CURSOR, 7)


# --- what Pulsar makes of it


@pytest.fixture(scope="module")
def pulsar(pulsar_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A JVM with Pulsar's own classes."""
    port, token = launch_gateway(
        classpath=":".join(map(str, pulsar_jars)),
        javaopts=[*small_jvm(tmp_path_factory.mktemp("jvm"), 64)],
        java_path=str(find_java()),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield gateway.jvm
    gateway.shutdown()


@pytest.mark.parametrize(("compression", "ledger_id"), LEDGERS.items(), ids=LEDGERS)
def test_pulsar_reads_an_edited_cursor_as_it_was_but_for_its_cluster(
    pulsar: Any, compression: str, ledger_id: int
) -> None:
    store = pulsar.org.apache.bookkeeper.mledger.impl.MetaStoreImpl(None, None)
    before = CAPTURED[cursor_path(compression)]
    after = set_attribution(LedgerKind.CURSOR, before, ledger_id, {"new"}, "two")
    assert bytes(store.parseManagedCursorInfo(after).toByteArray()) == decompress(before).replace(b"new", b"two")


def test_pulsar_reads_an_edited_locator_as_it_was(pulsar: Any) -> None:
    """It knows no properties of positions yet, and passes over them."""
    data = CAPTURED["/schemas/t/n/none-avro"]

    def read(locator: Any) -> list[tuple[Any, ...]]:
        entries = [locator.getInfo(), *(locator.getIndexAt(n) for n in range(locator.getIndexsCount()))]
        positions = [each.getPosition() for each in entries]
        return [
            (each.getVersion(), bytes(each.getHash()), where.getLedgerId(), where.getEntryId())
            for each, where in zip(entries, positions, strict=True)
        ]

    locators = [pulsar.org.apache.pulsar.broker.service.schema.SchemaLocator() for _ in range(2)]
    locators[0].parseFrom(data)
    locators[1].parseFrom(set_attribution(LedgerKind.SCHEMA, data, 3, LEGACY, "new"))
    assert read(locators[1]) == read(locators[0])
    assert [each[2] for each in read(locators[1])] == [3, 2, 3]


def test_a_broker_goes_on_with_the_attributed_cursor_and_schema_of_one_that_crashed(
    bookkeeper_jars: tuple[Path, ...], pulsar_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    compressed_cursors = {"managedCursorInfoCompressionType": "LZ4", "managedCursorInfoCompressionThresholdInBytes": 0}
    subscription = "/admin/v2/persistent/t/n/topic/subscription/s1"
    with PulsarCluster(tmp_path, pulsar_jars, bookkeeper_jars, bookies=1) as cluster:
        broker = cluster.add_broker(ensemble_size=1, properties=compressed_cursors)
        create_namespace(cluster, "t/n")
        for version in (1, 2):
            fields = [{"name": f"f{i}", "type": ["null", "string"], "default": None} for i in range(version)]
            schema = json.dumps({"type": "record", "name": "R", "fields": fields})
            body = {"type": "AVRO", "schema": schema, "properties": {}}
            call(cluster, "POST", "/admin/v2/schemas/t/n/typed/schema", body)
        call(cluster, "PUT", "/admin/v2/persistent/t/n/topic")
        call(cluster, "PUT", subscription)
        produce(cluster, "t/n/topic", 3)
        call(cluster, "POST", f"{subscription}/skip/1")
        before = call(cluster, "GET", "/admin/v2/persistent/t/n/topic/internalStats").json()["cursors"]["s1"]
        broker.kill()

        session = ZooKeeperSession("c1", ZooKeeperConnection(servers=cluster.zookeeper.servers))
        references = ReferenceZnodes(session)
        with cluster.zookeeper.client() as client:
            assert client.get(CURSOR)[0].startswith(b"\x47\x78"), "it is compressed"
        found = read_references(session.reader(lambda: 30.0), "old")
        cursors = [each for each in found.references if each.kind is LedgerKind.CURSOR]
        assert (found.problems, cursors) == ([], [Reference(LedgerKind.CURSOR, CURSOR, before["cursorLedger"])])
        typed = [each for each in found.references if each.path == TYPED]
        assert [each.position for each in typed] == ["info", "index/0", "index/1"]
        locator_id = typed[0].ledger_id
        assert (locator_id, len({each.ledger_id for each in typed})) == (typed[-1].ledger_id, 2)
        assert to_new(references, CURSOR, LedgerKind.CURSOR, before["cursorLedger"]) == DONE
        assert to_new(references, TYPED, LedgerKind.SCHEMA, locator_id) == DONE
        session.close()

        broker.start()
        call(cluster, "GET", "/lookup/v2/topic/persistent/t/n/topic")
        after = call(cluster, "GET", "/admin/v2/persistent/t/n/topic/internalStats").json()["cursors"]["s1"]
        stats = call(cluster, "GET", "/admin/v2/persistent/t/n/topic/stats").json()["subscriptions"]["s1"]
        schemas = call(cluster, "GET", "/admin/v2/schemas/t/n/typed/schemas").json()["getSchemaResponses"]
    assert after["markDeletePosition"] == before["markDeletePosition"]
    assert stats["subscriptionProperties"] == {CLUSTER_PROPERTY: "new"}
    assert [len(json.loads(each["data"])["fields"]) for each in schemas] == [1, 2]
