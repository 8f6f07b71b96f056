"""How long listing all references takes where there are very many, alone and with processes that help.

A real ZooKeeper with topics and cursors as Pulsar 4.2 writes them. Prints seconds, and seconds of the processor of the
process that asks and of those that help: the latter hold whatever else the machine does.

    python bench/inventory.py --topics 60000 --cursors 2
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from kazoo.client import KazooClient

from connectors.pulsar.referrers import Inventory, read_references
from connectors.pulsar.topic_readers import TopicReaders
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.session import ZooKeeperSession
from deploy.java.jars import default_cache_dir, ensure_jars
from tests.connectors.pulsar.znodes import cursor_info, topic_info
from tests.system import zookeeper
from tests.system.zookeeper import ZooKeeper

NAMESPACE = "/managed-ledgers/tenant/namespace/persistent"
LIMIT_SECONDS = 3600.0
AT_ONCE = 200


def main() -> None:
    """Fill ZooKeeper, and read it with more and more processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=60_000)
    parser.add_argument("--cursors", type=int, default=2, help="of each topic")
    parser.add_argument("--helpers", type=int, nargs="*", default=[0, 1, 2, 4], help="0: nobody helps")
    options = parser.parse_args()
    zookeeper.HEAP_MEBIBYTES = 1024  # the servers of tests are sized for few nodes
    jars = ensure_jars("bookkeeper", default_cache_dir())
    with tempfile.TemporaryDirectory() as folder, ZooKeeper(Path(folder), jars) as server:
        with server.client() as client:
            _fill(client, options.topics, options.cursors)
        print("| helpers | references | seconds | processor: this process | helpers |\n|---|---|---|---|---|")
        for helpers in options.helpers:
            print(_measure(ZooKeeperConnection(servers=server.servers), helpers), flush=True)


def _fill(client: KazooClient, topics: int, cursors: int) -> None:
    client.ensure_path(NAMESPACE)
    nodes = _nodes(topics, cursors)
    while True:
        transaction = client.transaction()
        for path, data in islice(nodes, AT_ONCE):
            transaction.create(path, data)
        if not transaction.operations:
            return
        assert not any(isinstance(each, Exception) for each in transaction.commit())


def _nodes(topics: int, cursors: int) -> Iterator[tuple[str, bytes]]:
    ids = iter(range(1, 1 << 40))
    for number in range(topics):
        path = f"{NAMESPACE}/a-topic-with-a-name-{number}"
        yield path, topic_info(next(ids), next(ids))
        for cursor in range(cursors):
            yield f"{path}/subscription-{cursor}", cursor_info(next(ids))


def _measure(connection: ZooKeeperConnection, helpers: int) -> str:
    session = ZooKeeperSession("bench", connection)
    began, own, others = time.perf_counter(), _seconds(resource.RUSAGE_SELF), _seconds(resource.RUSAGE_CHILDREN)
    try:
        elsewhere = TopicReaders(connection, (), helpers).read if helpers else None
        found: Inventory = read_references(session.reader(lambda: LIMIT_SECONDS), (), elsewhere)
    finally:
        session.close()
    own, others = _seconds(resource.RUSAGE_SELF) - own, _seconds(resource.RUSAGE_CHILDREN) - others
    took = time.perf_counter() - began
    return f"| {helpers} | {len(found.references)} | {took:.1f} | {own:.1f} s | {others:.1f} s |"


def _seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
