"""The replication policy's I/O: reads the partitions' replicas from the cluster's metadata, and shows a metric."""

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import BaseModel, ConfigDict, Field

from connectors.collection import Collector
from connectors.component import Component
from connectors.policy_io import CollectorContext
from connectors.registration import ClusterSetting, PolicyConnectors
from connectors.views import Decided, Family, PolicyView, Sample
from policies.decisions import Decision
from policies.observations import Observation, Outcome
from policies.units import PositiveDuration, parse_duration

from .policy import LastReading, fold
from .readings import UnderReplicated
from .settings import ReplicationSettings

_TIMEOUT_SECONDS = 5.0


class WatchedReplication(BaseModel):
    """How a cluster's replication is watched."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    poll_interval: PositiveDuration = Field(default=parse_duration("30s"), description="From one reading to the next.")


class ReplicationCollector(Collector):
    """Counts a cluster's under-replicated partitions periodically."""

    def __init__(self, context: CollectorContext, watched: WatchedReplication, client: AdminClient) -> None:
        publish = context.sink(UnderReplicated, "replication-policy/collector")
        super().__init__(context.name, watched.poll_interval, publish, context.metrics)
        self._client = client

    def _poll(self) -> None:
        self._publish_reading(self._read())

    def _read(self) -> UnderReplicated:
        try:
            topics = self._client.list_topics(timeout=_TIMEOUT_SECONDS).topics.values()
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
        collector = ReplicationCollector(context, watched, AdminClient(kafka.for_confluent()))
        yield Component(f"replication collector of {context.name}", collector.run)


UNDER_REPLICATED = Family(
    "headgate_under_replicated_partitions",
    "Partitions with fewer in-sync replicas than replicas, when last read.",
    ("cluster",),
)


@dataclass
class _Cluster:
    """The state of one cluster."""

    reading: LastReading | None = None

    def take(self, seen: Observation) -> None:
        self.reading = fold(self.reading, [seen])


class ReplicationView(PolicyView[_Cluster]):
    """The present picture of all clusters."""

    families: tuple[Family, ...] = (UNDER_REPLICATED,)

    def __init__(self, settings: ReplicationSettings) -> None:
        super().__init__(max(each.validity for each in settings.everywhere()), lambda _: _Cluster())

    def decide(self, decision: Decision, before: Decision | None, *, live: bool) -> bool:
        """Return whether a reading changed the verdict."""
        return before is not None and before.evidence != decision.evidence and before.verdict != decision.verdict

    def samples(self, now_ms: int, decided: Decided) -> Iterator[Sample]:
        """Yield the picture at a moment."""
        for name, cluster in sorted(self._clusters.items()):
            if cluster.reading is not None:
                yield Sample(UNDER_REPLICATED, (name,), cluster.reading.under_replicated)


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
