"""The replication policy's I/O: the partitions' replicas are read from the cluster's metadata."""

import threading
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import BaseModel, ConfigDict, Field

from connectors.collection import PollMetrics, ticks
from connectors.component import Component
from connectors.kafka.connection import KafkaConnection
from connectors.policy_io import CollectorContext
from connectors.registration import ClusterSetting, PolicyConnectors
from policies.observations import Outcome, Reading
from policies.units import PositiveDuration, parse_duration

from .readings import UnderReplicated
from .view import ReplicationView

_TIMEOUT_SECONDS = 5.0


class WatchedReplication(BaseModel):
    """How a cluster's replication is watched."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    poll_interval: PositiveDuration = Field(default=parse_duration("30s"), description="From one reading to the next.")


class ReplicationCollector:
    """Counts a cluster's under-replicated partitions over and over."""

    def __init__(
        self,
        cluster: str,
        settings: WatchedReplication,
        kafka: KafkaConnection,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._kafka = kafka
        self._publish = publish
        self._metrics = metrics

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set."""
        client = AdminClient(self._kafka.for_confluent())
        for _ in ticks(self._settings.poll_interval.total_seconds(), stop.wait):
            self._metrics.run_poll(self._cluster, lambda: self._publish(self._read(client)))

    def _read(self, client: AdminClient) -> UnderReplicated:
        try:
            topics = client.list_topics(timeout=_TIMEOUT_SECONDS).topics.values()
        except KafkaException as error:
            return UnderReplicated(cluster=self._cluster, outcome=Outcome.ERROR, detail=str(error))
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        lacking = sum(len(partition.isrs) < len(partition.replicas) for partition in partitions)
        return UnderReplicated(
            cluster=self._cluster, outcome=Outcome.OK, under_replicated=lacking, partitions=len(partitions)
        )


def _collectors(context: CollectorContext) -> Iterator[Component]:
    watched, kafka = context.cluster.setting(WatchedReplication), context.cluster.kafka
    if watched is not None and kafka is not None:
        publish = context.sink(UnderReplicated, "replication-policy/collector")
        collector = ReplicationCollector(context.name, watched, kafka, publish, context.metrics)
        yield Component(f"replication collector of {context.name}", collector.run)


CONNECTORS = PolicyConnectors(
    cluster_settings={
        "replication": ClusterSetting(
            WatchedReplication,
            "Present: how many of its partitions are under-replicated is read through `kafka`.",
            needs=("kafka.bootstrap_servers",),
        )
    },
    collectors=_collectors,
    view=ReplicationView,
    commands="replication_policy.commands:app",
)
