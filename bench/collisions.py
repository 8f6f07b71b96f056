"""How long the collision join takes on a real Kafka, and how much memory its JVM has at the most.

By default a million cursors of 900,000 topics, and a target with 200,000 ledgers of which half are in the way. An
embedded Kafka on this machine holds the inventory; the batch runs in one JVM on two cores.

    python bench/collisions.py --references 1000000 --existing 200000 --heap 1g
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics, observations_to
from connectors.kafka.topic_admin import create_topics
from connectors.kafka.topics import TopicSettings
from connectors.switching.inventory import make_inventory
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars, spark_group
from policies.registry import observed_topic
from policies.switching.precheck.snapshot import PrecheckRules, TargetPolicy
from policies.switching.readings import SwitchInventory
from policies.switching.references import LedgerKind, Reference
from streaming.collisions import Collisions, Question, find_collisions, read_records
from streaming.session import start_session, stop_session
from streaming.settings import StreamSettings

CLUSTER = "c1"
QUESTION = Question(CLUSTER, "old", "old", PrecheckRules(policy=TargetPolicy.SHARED, validity_ms=1))


def main() -> None:
    """Publish an inventory, join it three times in three sessions, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--references", type=int, default=1_000_000)
    parser.add_argument("--existing", type=int, default=200_000)
    parser.add_argument("--heap", default="1g", help="heap of the one JVM")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    cache, topics = default_cache_dir(), TopicSettings()
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        EmbeddedKafka(Path(folder) / "kafka", ensure_jars("kafka", cache), heap_mebibytes=256) as kafka,
    ):
        connection, topic = (
            KafkaConnection(bootstrap_servers=kafka.bootstrap_servers),
            topics.topic(observed_topic(SwitchInventory)),
        )
        create_topics(connection, topics)
        began = time.monotonic()
        parts = publish(connection, topic, given.references, given.existing)
        print(f"published {parts} parts in {time.monotonic() - began:.1f} s; load {os.getloadavg()[0]:.1f}")
        for _ in range(given.runs):
            print(run(connection, topic, given.heap, Path(folder)))


def references(count: int) -> Iterator[Reference]:
    """Return cursors; every tenth topic has two."""
    for number in range(count):
        topic = f"persistent/orders-{number * 9 // 10:07d}"
        path = f"/managed-ledgers/tenant-{number % 50}/namespace-{number % 1000}/{topic}/subscription-{number % 7}"
        yield Reference(LedgerKind.CURSOR, path, number)


def publish(connection: KafkaConnection, topic: str, count: int, existing: int) -> int:
    """Publish the inventory to Kafka; half of the target's ledgers lie beyond all references."""
    first = count - existing // 2
    ids = range(first, first + existing)
    metrics = PublisherMetrics(CollectorRegistry())
    sent = 0
    with Publisher(connection, metrics, delivery_timeout_seconds=60) as publisher:
        send = observations_to(publisher.publish, topic, "bench")
        for reading in make_inventory(CLUSTER, "i1", references(count), {}, "new", 0, target_ids=ids):
            send(reading)
            sent += 1
            if sent % 64 == 0:
                publisher.flush(60)
    return sent - 1


def run(connection: KafkaConnection, topic: str, heap: str, folder: Path) -> str:
    """Join once; return the time from the session to the result, and the JVM's maximum resident memory."""
    jars = ensure_jars(spark_group(), default_cache_dir())
    began = time.monotonic()
    spark = start_session(StreamSettings(driver_memory=heap), jars, folder / "spark.log")
    started = time.monotonic()
    try:
        found = find_collisions(read_records(spark, connection.for_spark(), topic), QUESTION)
        ended = time.monotonic()
        if not isinstance(found, Collisions):
            raise SystemExit(found.detail)
        gateway = spark.sparkContext._gateway
        jvm, python = (_peak_mebibytes(pid) for pid in (gateway.proc.pid, os.getpid()))  # type: ignore[union-attr]
        cpu_seconds = _cpu_seconds(gateway.proc.pid)  # type: ignore[union-attr]
    finally:
        stop_session(spark)
    hits = sum(each.count for each in found.hits.values())
    return (
        f"{found.references} references, {found.target_ledgers} ledgers, {hits} collisions: "
        f"start {started - began:.1f} s, join {ended - started:.1f} s, CPU of the JVM {cpu_seconds:.0f} s; "
        f"peak {jvm} MiB (JVM, heap {heap}) and {python} MiB (Python); load {os.getloadavg()[0]:.1f}"
    )


def _peak_mebibytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def _cpu_seconds(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
