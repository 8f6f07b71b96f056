"""The collectors, which read the watched clusters: run as a part of the loop or as a process of their own."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry

from connectors.collection.history import Kind, ReadingHistory
from connectors.collection.poll_metrics import PollMetrics
from connectors.component import Component
from connectors.kafka.history import last_readings
from connectors.kafka.publisher import observations_to
from connectors.partitions.lease import PartitionLease
from connectors.partitions.membership import Group
from connectors.registration import CollectorContext, connectors_of
from deploy.processes.connections import Connections
from deploy.processes.shared_components import Held, Work
from deploy.settings.application import Settings
from policies.errors import UserError
from policies.observations import Reading
from policies.registry import POLICIES, observed_topic
from policies.shares import SHARES_TOPIC, clusters_in


class Collectors:
    """The collectors of all watched clusters; this process runs those for the clusters of its share."""

    def __init__(
        self,
        settings: Settings,
        registry: CollectorRegistry,
        publish: Callable[[str, str, bytes], None],
        connections: Connections,
    ) -> None:
        self._settings = settings
        self._blocks = settings.policy_settings()
        self._metrics = PollMetrics(registry)
        self._publish = publish
        self._connections = connections

    def work(self) -> Work:
        """Return the collectors as work for `SharedComponents`.

        Raises:
            UserError: the settings name nothing to watch.
        """
        with self._connections.using(self._settings.clusters):
            found = {cluster: self.components_of(cluster) for cluster in self._settings.clusters}
        names = {
            cluster: [component.name for component in components] for cluster, components in found.items() if components
        }
        if not names:
            raise UserError(
                "clusters: nothing is watched: name a Kafka cluster by its kafka.bootstrap_servers, "
                "or a Pulsar or BookKeeper cluster by its zookeeper.servers, with `bookies: {}` or `sessions: {}`, "
                "or a Pulsar cluster by its pulsar.admin_url, with `bookie_disks: {}` or `pulsar_bookies: {}`"
            )
        topic = self._settings.topics.topic
        return Work(
            name="collectors",
            group=Group(topic(f"collect.{_group_suffix(names.values())}"), topic(SHARES_TOPIC)),
            of_shares=partial(clusters_in, clusters=tuple(names)),
            units=lambda held: {cluster: frozenset({cluster}) for cluster in held},
            open=self._open,
        )

    def components_of(self, cluster: str) -> list[Component]:
        """Make the collectors of one cluster, those of all policies."""
        context = CollectorContext(
            cluster, self._settings.clusters[cluster], self._sink, self._metrics, self._connections, self._history
        )
        return [
            component
            for kind in POLICIES.values()
            for component in connectors_of(kind).collectors(
                replace(context, settings=self._blocks[kind.name].for_cluster(cluster))
            )
        ]

    @contextmanager
    def _open(self, cluster: str, _held: Held, _lease: PartitionLease) -> Iterator[Sequence[Component]]:
        with self._connections.using([cluster]):
            yield self.components_of(cluster)
        self._metrics.forget(cluster)

    def _sink(self, reading: type[Reading], source: str) -> Callable[[Reading], None]:
        return observations_to(self._publish, self._settings.topics.topic(observed_topic(reading)), source)

    def _history(self, reading: type[Kind]) -> ReadingHistory[Kind]:
        topic = self._settings.topics.topic(observed_topic(reading))
        return lambda history, stop: last_readings(self._settings.loop_kafka(), topic, reading, history, stop)


def require_watched(settings: Settings) -> None:
    """Raise UserError if the settings name nothing to watch. It opens no connection."""
    with Connections(settings) as connections:
        Collectors(settings, CollectorRegistry(), lambda *_: None, connections).work()


def _group_suffix(names: Collection[Sequence[str]]) -> str:
    """Make a group name that is equal for processes with the same collectors; others get a group of their own.

    While new settings are rolled out, both groups read, which does no harm; and no process is assigned a cluster that
    it cannot read.
    """
    return hashlib.sha256("\n".join(sorted(name for each in names for name in each)).encode()).hexdigest()[:12]
