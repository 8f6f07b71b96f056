"""Everything that names ledgers in a real Pulsar 4.2.4, written by its own broker, client and DistributedLog."""

import json
import shutil
import subprocess
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from connectors.bookkeeper.cluster import list_ledgers
from connectors.pulsar.referrers import Inventory, read_references
from connectors.zookeeper.session import Reader, ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.java.jvm import JvmCommand
from policies.switching.ledgers import ANY_CLUSTER, Layout, with_ledger
from tests.system.pulsar import CLUSTER, PulsarCluster
from tests.system.pulsar_topics import call, create_namespace
from tests.system.server import run_tool
from tests.system.small_servers import LOOPBACK, small_jvm
from tests.system.waiting import eventually

COMPACTION = "/admin/v2/persistent/t/n/compacted/compaction"
OFFLOAD = "/admin/v2/persistent/t/n/offloaded/offload"
VERSIONS = "/admin/v2/schemas/t/n/versioned/schema"
OFFLOADER = Path(__file__).parent / "reference" / "FileOffloaderFactory.java"
PROPERTIES = {
    "transactionCoordinatorEnabled": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "delayedDeliveryTrackerFactoryClassName": "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "delayedDeliveryMinIndexCountPerBucket": 2,
}


@contextmanager
def java(jars: tuple[Path, ...]) -> Iterator[JavaGateway]:
    """A JVM with Pulsar's client in it."""
    options = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
    classpath = ":".join(str(jar) for jar in jars)
    gateway = JavaGateway.launch_gateway(classpath=classpath, javaopts=options, die_on_exit=True)
    try:
        yield gateway
    finally:
        gateway.shutdown()


def set_up_transactions(folder: Path, jars: tuple[Path, ...], servers: str) -> None:
    words = ("-cs", f"zk:{servers}", "-c", CLUSTER, "--initial-num-transaction-coordinators", "1")
    setup = "org.apache.pulsar.PulsarTransactionCoordinatorMetadataSetup"
    run_tool(JvmCommand(setup, jars, small_jvm(folder, 64), words), folder)


class Client:
    """Pulsar's own client, as far as it is needed."""

    def __init__(self, gateway: JavaGateway, cluster: PulsarCluster) -> None:
        self._gateway, jvm = gateway, gateway.jvm
        self._api = jvm.org.apache.pulsar.client.api
        self._seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        url = f"pulsar://{LOOPBACK}:{cluster.brokers[0].service_port}"
        transactions = True
        self._client = self._api.PulsarClient.builder().serviceUrl(url).enableTransaction(transactions).build()

    def delay(self) -> None:
        """Messages for later, over three ledgers of their topic, so that an index of the first ones is stored."""
        self._consumer("delayed", "s1")
        producer = self._producer("delayed")
        for number in range(14):
            producer.newMessage().value(str(number)).deliverAfter(1000 + number, self._seconds).send()

    def fill(self) -> None:
        """Messages that a compaction throws away, all but two."""
        producer = self._producer("compacted")
        for number in range(12):
            producer.newMessage().key(f"k{number % 2}").value(str(number)).send()

    def write(self, topic: str, messages: int) -> None:
        """Some messages, five a ledger, which a subscription keeps."""
        self._consumer(topic, "s3")
        producer = self._producer(topic)
        for number in range(messages):
            producer.newMessage().value(str(number)).send()

    def acknowledge(self) -> None:
        """One message, within a transaction that is not over."""
        consumer = self._consumer("acked", "s2")
        self._producer("acked").newMessage().value("one").send()
        begun = self._client.newTransaction().withTransactionTimeout(300, self._seconds).build().get()
        message = consumer.receive(60, self._seconds)
        consumer.acknowledgeAsync(message.getMessageId(), begun).get()

    def close(self) -> None:
        self._client.close()

    def _producer(self, topic: str) -> Any:
        batching = False
        builder = self._client.newProducer(self._api.Schema.STRING)
        return builder.topic(f"persistent://t/n/{topic}").enableBatching(batching).create()

    def _consumer(self, topic: str, subscription: str) -> Any:
        topics = self._gateway.new_array(self._gateway.jvm.java.lang.String, 1)
        topics[0] = f"persistent://t/n/{topic}"
        builder = self._client.newConsumer(self._api.Schema.STRING).topic(topics).subscriptionName(subscription)
        return builder.subscriptionType(self._api.SubscriptionType.Shared).subscribe()


def write_package(jvm: Any, servers: str) -> None:
    """A record in a DistributedLog, in the namespace where Pulsar keeps its packages."""
    log = jvm.org.apache.distributedlog
    uri = jvm.java.net.URI.create(f"distributedlog://{servers}/pulsar/packages")
    log.metadata.DLMetadata("BKDL", log.impl.metadata.BKDLConfig(servers, "/ledgers")).create(uri)
    at_once, size = True, 1
    settings = log.DistributedLogConfiguration().setImmediateFlushEnabled(at_once).setOutputBufferSize(0)
    settings = settings.setEnsembleSize(size).setWriteQuorumSize(size).setAckQuorumSize(size)
    namespace = log.api.namespace.NamespaceBuilder.newBuilder().conf(settings).clientId("test").uri(uri).build()
    manager = namespace.openLog("function/t/n/f/v1")
    writer = manager.openLogWriter()
    writer.write(log.LogRecord(1, b"a package"))
    writer.close()
    manager.close()
    namespace.close()


def make_offloader(folder: Path, jars: tuple[Path, ...]) -> dict[str, str]:
    """What the broker needs for an offloader that keeps nothing: an archive of its class, and what to call it."""
    if (javac := shutil.which("javac")) is None:
        return {}
    classes = folder / "classes"
    classes.mkdir(parents=True)
    command = [javac, "-d", str(classes), "-cp", ":".join(map(str, jars)), str(OFFLOADER)]
    subprocess.run(command, check=True, capture_output=True)
    with zipfile.ZipFile(folder / "offloader.jar", "w") as jar:
        for each in classes.iterdir():
            jar.write(each, each.name)
    with zipfile.ZipFile(folder / "offloader.nar", "w") as nar:
        nar.write(folder / "offloader.jar", "META-INF/bundled-dependencies/offloader.jar")
        nar.writestr("META-INF/services/pulsar-offloader.yaml", "offloaderFactoryClass: FileOffloaderFactory\n")
    return {
        "managedLedgerOffloadDriver": "filesystem",
        "offloadersDirectory": str(folder),
        "narExtractionDirectory": str(folder / "nars"),
    }


def offload(cluster: PulsarCluster) -> None:
    """All closed ledgers of a topic."""
    last = call(cluster, "GET", "/admin/v2/persistent/t/n/offloaded/lastMessageId").json()
    position = {"ledgerId": last["ledgerId"], "entryId": last["entryId"], "partitionIndex": -1}
    call(cluster, "PUT", OFFLOAD, position)
    eventually("the offload", lambda: call(cluster, "GET", OFFLOAD).json()["status"] == "SUCCESS" or None)


def add_versions(cluster: PulsarCluster) -> None:
    """Three versions of one schema."""
    for fields in (["a"], ["a", "b"], ["a", "b", "c"]):
        of = [{"name": name, "type": ["null", "string"], "default": None} for name in fields]
        schema = json.dumps({"type": "record", "name": "r", "fields": of})
        call(cluster, "POST", VERSIONS, {"type": "AVRO", "schema": schema, "properties": {}})


@pytest.fixture(scope="module")
def cluster(
    bookkeeper_jars: tuple[Path, ...], pulsar_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarCluster]:
    """One of each: topics, schemas, cursors, delayed messages, a transaction, a pending ack, a compaction, a log."""
    folder = tmp_path_factory.mktemp("referrers")
    with PulsarCluster(folder, pulsar_jars, bookkeeper_jars, bookies=1) as cluster:
        set_up_transactions(folder / "transactions", pulsar_jars, cluster.zookeeper.servers)
        offloader = make_offloader(folder / "offloader", pulsar_jars)
        cluster.add_broker(ensemble_size=1, properties=PROPERTIES | offloader)
        create_namespace(cluster, "t/n")
        add_versions(cluster)
        with java(pulsar_jars) as gateway:
            client = Client(gateway, cluster)
            client.delay()
            client.fill()
            client.acknowledge()
            client.write("offloaded", 12)
            write_package(gateway.jvm, cluster.zookeeper.servers)
            with reading(cluster) as reader:
                eventually("an index of delayed messages", lambda: ("delayed_index", "old") in counted_now(reader))
            client.close()
        if offloader:
            offload(cluster)
        call(cluster, "PUT", COMPACTION)
        eventually("the compaction", lambda: call(cluster, "GET", COMPACTION).json()["status"] == "SUCCESS" or None)
        yield cluster


@contextmanager
def reading(cluster: PulsarCluster) -> Iterator[Reader]:
    session = ZooKeeperSession("c1", ZooKeeperConnection(servers=cluster.zookeeper.servers))
    try:
        yield session.reader(lambda: 60.0)
    finally:
        session.close()


def counted(inventory: Inventory, ledgers: Collection[int]) -> dict[tuple[str, str], int]:
    staying = inventory.staying(lambda asked: {"old": set(asked) & set(ledgers)})
    return {(each.kind.value, each.cluster): each.count for each in staying}


def counted_now(reader: Reader) -> dict[tuple[str, str], int]:
    return counted(read_references(reader, "old"), list_ledgers(reader, "/ledgers", Layout.HIERARCHICAL).ids)


def all_named(reader: Reader) -> tuple[Inventory, dict[tuple[str, str], int]] | None:
    """An inventory with what it counts; None while a ledger is not named: a broker makes some before it names them."""
    inventory = read_references(reader, "old")
    ledgers = list_ledgers(reader, "/ledgers", Layout.HIERARCHICAL).ids
    unloaded, named = counted(inventory, ledgers), {each.ledger_id for each in with_ledger(inventory.references)}
    return (inventory, unloaded) if len(named) + sum(unloaded.values()) == len(ledgers) else None


def test_every_ledger_of_a_real_pulsar_is_named_by_the_inventory(cluster: PulsarCluster) -> None:
    with reading(cluster) as reader:
        loaded = counted_now(reader)
        # Which ledger its compaction kept, only the owner of a loaded topic knows.
        call(cluster, "PUT", "/admin/v2/persistent/t/n/compacted/unload")
        inventory, unloaded = eventually("every ledger is named", lambda: all_named(reader))
    assert inventory.problems == []
    assert loaded["compacted", ANY_CLUSTER] == unloaded["compacted", "old"] == 1
    offloaded = {"offloaded"} if shutil.which("javac") else set()
    assert {kind for kind, _ in unloaded} == offloaded | {
        "topic", "transaction_log", "pending_ack", "compacted", "delayed_index", "log",
    }  # fmt: skip
    if offloaded:
        assert unloaded["offloaded", "old"] == 2, "of three ledgers with five messages each; the last is written to"
