"""The arguments with which a policy makes its collectors, actuators and checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import LoopTopics
from connectors.collection import Kind, PollMetrics, ReadingHistory, no_history
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import observations_to
from connectors.pulsar.admin import AdminApi
from connectors.registration import ClusterSources
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.decisions import Decision
from policies.observations import Reading
from policies.registry import AUDIT, REPORTS, observed_topic


class Clients(Protocol):
    """Connections to a watched cluster that its collectors and actuators share."""

    def zookeeper(self, cluster: str, connection: ZooKeeperConnection | None = None) -> ZooKeeperSession | None:
        """The session of another ZooKeeper of the cluster, or of its own; None if the settings name none."""
        ...

    def pulsar(self, cluster: str) -> AdminApi | None:
        """The cluster's admin client; None if the settings name no admin REST API."""
        ...


@dataclass(frozen=True)
class CollectorContext:
    """The arguments with which a policy makes the collectors of one cluster."""

    name: str
    cluster: ClusterSources
    sink: Callable[[type[Reading], str], Callable[[Reading], None]]
    """Given a kind of reading and its CloudEvents source, returns a function that publishes such readings."""
    metrics: PollMetrics
    clients: Clients
    history: Callable[[type[Kind]], ReadingHistory[Kind]] = lambda _: no_history
    """Given a kind of reading, returns the last ones from before this start."""
    settings: Any = None
    """The policy's block, as it is in force for this cluster."""


@dataclass(frozen=True)
class ProbeContext:
    """The arguments with which a policy makes the doctor's checks of one cluster."""

    name: str
    cluster: ClusterSources
    settings: Any
    """The policy's block, as it is in force for this cluster."""
    clients: Clients
    loop: KafkaConnection | None = None
    """The loop's own Kafka; None if the start embeds one."""


@dataclass(frozen=True)
class ActuatorContext:
    """The arguments with which a policy makes its actuators."""

    clusters: Mapping[str, ClusterSources]
    settings: Any
    """The policy's settings."""
    loop: KafkaConnection
    """The loop's own Kafka."""
    topic: Callable[[str], str]
    """Returns a topic's full name, given its name without the prefix."""
    publish: Callable[[str, str, bytes], None]
    """Publishes a record (topic, key, value) to the loop's Kafka, without blocking."""
    publish_answer: Callable[[str, str, bytes], None]
    """The same for the answer to an order, which is kept until Kafka takes it."""
    registry: CollectorRegistry
    clients: Clients
    jars: Callable[[str], Sequence[Path]]
    """Returns the jars of a group such as ``bookkeeper``; fetches them if necessary."""
    java: Callable[[], Path]
    data_dir: Callable[[], Path]
    """Returns the data folder; creates it if necessary."""
    may_act: Callable[[str], bool] = lambda _: True
    """Whether this process, and no other, may act on a cluster; must be asked before each action."""

    def loop_topics(self, decided: type[Decision]) -> LoopTopics:
        """The topics of a kind of decision: where decisions are read, and where their outcomes are reported."""
        return LoopTopics(self.loop, self.topic(decided.topic), self.topic(AUDIT), self.may_act, self.topic(REPORTS))

    def sink(self, kind: type[Reading], source: str) -> Callable[[Reading], None]:
        """Return a function that publishes readings of a kind, given their CloudEvents source."""
        return observations_to(self.publish, self.topic(observed_topic(kind)), source)
