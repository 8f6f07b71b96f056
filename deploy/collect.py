"""The collectors: what reads the watched clusters, as parts of the loop or as a process of their own."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry

import connectors.kafka.log_dirs
import connectors.pulsar.bookies
import connectors.pulsar.health
import connectors.zookeeper.bookies
import connectors.zookeeper.ownership
import connectors.zookeeper.sessions
from connectors.kafka.log_dirs import LogDirsCollector
from connectors.kafka.publisher import Publisher, observations_to
from connectors.poll_metrics import PollMetrics
from connectors.pulsar.bookies import PulsarBookieCollector
from connectors.pulsar.health import MemberHealthCollector
from connectors.zookeeper.bookies import ZooKeeperBookieCollector
from connectors.zookeeper.ownership import OwnershipCollector
from connectors.zookeeper.sessions import SessionCollector
from deploy.app import Part
from deploy.connections import Connections
from deploy.settings import Settings, WatchedCluster
from policies.errors import UserError
from policies.isolation import Bookies
from policies.observations import Reading
from policies.registry import topic_of
from policies.sessions import MemberHealth, Ownerships, ZkSession
from policies.throttle import LogDirs

Sink = Callable[[type[Reading], str], Callable[[Reading], None]]
"""From a kind of reading and its source to where such readings go."""


def collector_parts(
    settings: Settings, registry: CollectorRegistry, publisher: Publisher, connections: Connections
) -> list[Part]:
    """The collectors of all watched clusters.

    Raises:
        UserError: nothing is watched.
    """
    metrics = PollMetrics(registry)

    def sink(reading: type[Reading], source: str) -> Callable[[Reading], None]:
        return observations_to(publisher.publish, settings.topics.topic(topic_of(reading)), source)

    parts: list[Part] = []
    for name, cluster in settings.clusters.items():
        parts += _log_dirs(name, cluster, sink, metrics)
        parts += _bookies(name, cluster, sink, metrics, connections)
        parts += _sessions(name, cluster, sink, metrics, connections)
    if not parts:
        raise UserError(
            "clusters: nothing is watched; name a Kafka cluster by its kafka.bootstrap_servers, "
            "or a Pulsar or BookKeeper cluster by its zookeeper.servers, with `bookies: {}` or `sessions: {}`"
        )
    return parts


def _log_dirs(name: str, cluster: WatchedCluster, sink: Sink, metrics: PollMetrics) -> Iterator[Part]:
    if cluster.kafka is not None:
        publish = sink(LogDirs, connectors.kafka.log_dirs.SOURCE)
        yield Part(f"collector of {name}", LogDirsCollector(name, cluster.kafka, publish, metrics).run)


def _bookies(
    name: str, cluster: WatchedCluster, sink: Sink, metrics: PollMetrics, connections: Connections
) -> Iterator[Part]:
    zookeeper, pulsar, part = connections.zookeeper(name), connections.pulsar(name), f"bookie collector of {name}"
    if cluster.bookies is not None and zookeeper is not None:
        publish = sink(Bookies, connectors.zookeeper.bookies.SOURCE)
        yield Part(part, ZooKeeperBookieCollector(name, cluster.bookies, zookeeper, publish, metrics).run)
    if cluster.pulsar_bookies is not None and pulsar is not None:
        publish = sink(Bookies, connectors.pulsar.bookies.SOURCE)
        yield Part(part, PulsarBookieCollector(name, cluster.pulsar_bookies, pulsar, publish, metrics).run)


def _sessions(
    name: str, cluster: WatchedCluster, sink: Sink, metrics: PollMetrics, connections: Connections
) -> Iterator[Part]:
    zookeeper = connections.zookeeper(name)
    if cluster.sessions is not None and cluster.zookeeper is not None:
        publish = sink(ZkSession, connectors.zookeeper.sessions.SOURCE)
        sessions = SessionCollector(name, cluster.sessions, cluster.zookeeper, publish, metrics)
        yield Part(f"session collector of {name}", sessions.run)
    if cluster.ownership is not None and zookeeper is not None:
        publish = sink(Ownerships, connectors.zookeeper.ownership.SOURCE)
        ownership = OwnershipCollector(name, cluster.ownership, zookeeper, publish, metrics)
        yield Part(f"ownership collector of {name}", ownership.run)
    if cluster.health is not None and cluster.pulsar is not None:
        publish = sink(MemberHealth, connectors.pulsar.health.SOURCE)
        health = MemberHealthCollector(name, cluster.health, cluster.pulsar, publish, metrics)
        yield Part(f"health collector of {name}", health.run)
