"""The collectors: what reads the watched clusters, as parts of the loop or as a process of its own."""

from collections.abc import Callable
from dataclasses import replace

from prometheus_client import CollectorRegistry

from connectors.kafka.publisher import Publisher, observations_to
from connectors.kafka.recall import recall
from connectors.part import Part
from connectors.poll_metrics import PollMetrics
from connectors.recalled import Kind, Recall
from connectors.registration import CollectorContext, connectors_of
from deploy.connections import Connections
from deploy.settings import Settings
from policies.errors import UserError
from policies.observations import Reading
from policies.registry import POLICIES, topic_of
from policies.settings import PolicySettings


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

    def recalled(reading: type[Kind]) -> Recall[Kind]:
        topic = settings.topics.topic(topic_of(reading))
        return lambda history, stop: recall(settings.loop_kafka(), topic, reading, history, stop)

    contexts = [
        CollectorContext(name, cluster, sink, metrics, connections, recalled)
        for name, cluster in settings.clusters.items()
    ]
    blocks = settings.policy_settings()
    parts = [
        part
        for context in contexts
        for kind in POLICIES.values()
        for part in connectors_of(kind).collectors(_for(context, blocks[kind.name]))
    ]
    if not parts:
        raise UserError(
            "clusters: nothing is watched; name a Kafka cluster by its kafka.bootstrap_servers, "
            "or a Pulsar or BookKeeper cluster by its zookeeper.servers, with `bookies: {}` or `sessions: {}`"
        )
    return parts


def _for(context: CollectorContext, block: PolicySettings) -> CollectorContext:
    """With a policy's settings, as they are in force for the cluster."""
    return replace(context, settings=block.for_cluster(context.name))
