"""The actuators, which carry decisions out: run as a part of the loop or as a process of their own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name

from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import Publish
from connectors.component import Component
from connectors.kafka.publisher import Publisher
from connectors.partitions.lease import PartitionLease
from connectors.partitions.membership import Group
from connectors.registration import ActuatorContext, acts_on, connectors_of
from deploy.java.jars import fetch_jars
from deploy.java.jvm import find_java
from deploy.processes.connections import Connections
from deploy.processes.shared_components import Held, Work, passing_registry
from deploy.settings.application import Settings
from policies.registry import POLICIES, observed_topics
from policies.settings import PolicySettings
from policies.shares import SHARES_TOPIC, clusters_in, share_of


class Actuators:
    """The actuators that the settings ask for; this process runs those for the clusters of its share."""

    def __init__(
        self, settings: Settings, registry: CollectorRegistry, publisher: Publisher, connections: Connections
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._publisher = publisher
        self._connections = connections
        self._blocks = settings.policy_settings()
        self._clusters: Mapping[str, Held] = {
            kind.name: frozenset(
                name
                for name, cluster in settings.clusters.items()
                if acts_on(connectors_of(kind), self._blocks[kind.name], name, cluster)
            )
            for kind in POLICIES.values()
        }
        """By policy, the clusters that its actuators act on."""

    def work(self) -> Work | None:
        """Return the actuators as work for `SharedComponents`; None if the settings ask for none."""
        all_of_them = frozenset[str]().union(*self._clusters.values())
        if not all_of_them:
            return None
        topic, name = self._settings.topics.topic, self._settings.shares.name
        return Work(
            name="actuators",
            group=Group(topic("act" if name is None else f"act.{name}"), topic(SHARES_TOPIC)),
            of_shares=partial(clusters_in, clusters=all_of_them),
            units=self._units,
            open=self._open,
        )

    def _units(self, held: Held) -> Mapping[str, Held]:
        """One unit per policy, so that a policy's actuators keep running unless its clusters change."""
        return {policy: own for policy, clusters in self._clusters.items() if (own := clusters & held)}

    @contextmanager
    def _open(self, policy: str, clusters: Held, lease: PartitionLease) -> Iterator[Sequence[Component]]:
        reporting = publishing_reports(self._publisher, self._settings.topics.topic)
        with passing_registry(self._registry) as registry, self._connections.using(clusters), reporting as ways:
            yield self.components_of(policy, clusters, registry, *ways, lambda c: lease.holds(share_of(c)))

    def components_of(
        self,
        policy: str,
        clusters: Held,
        registry: CollectorRegistry,
        publish: Publish,
        publish_answer: Publish,
        may_act: Callable[[str], bool],
    ) -> list[Component]:
        """Make a policy's actuators for some clusters."""
        kind = POLICIES[policy]
        watched = {name: cluster for name, cluster in self._settings.clusters.items() if name in clusters}
        elsewhere = self._clusters[policy] - clusters
        context = _context(self._blocks[policy], self._settings, registry, publish, publish_answer, self._connections)
        own = replace(context, clusters=watched, elsewhere=elsewhere, may_act=may_act)
        return list(connectors_of(kind).actuators(own))


@contextmanager
def publishing_reports(publisher: Publisher, topic: Callable[[str], str]) -> Iterator[tuple[Publish, Publish]]:
    """Yield a function that publishes readings while they are fresh, and one that publishes until Kafka takes it.

    The first one also keeps all that is no reading. A report that is given up would be missing until the next change:
    the status would show another value than is set.

    Args:
        publisher: gives up after seconds.
    """
    observed = frozenset(map(topic, observed_topics()))
    with publisher.patient() as patient:
        yield lambda to, key, value: (publisher if to in observed else patient).publish(to, key, value), patient.publish


def release(settings: Settings, registry: CollectorRegistry, publisher: Publisher, forget: str | None) -> Iterator[str]:
    """Restore on every watched cluster the state from before Headgate, for each policy that can.

    Yields:
        A sentence for each result.

    Raises:
        UserError: not everything could be restored.
    """
    with Connections(settings) as connections:
        for kind in POLICIES.values():
            if (restore := connectors_of(kind).release) is not None:
                block = settings.policy_settings()[kind.name]
                publish = publisher.publish
                yield from restore(_context(block, settings, registry, publish, publish, connections), forget)


def policy_services(settings: Settings) -> Iterator[Component]:
    """Yield the components that policies run beside their actuators."""
    for kind in POLICIES.values():
        if (place := connectors_of(kind).services) is not None:
            yield from resolve_name(place)(settings)


def _context(
    block: PolicySettings,
    settings: Settings,
    registry: CollectorRegistry,
    publish: Publish,
    publish_answer: Publish,
    connections: Connections,
) -> ActuatorContext:
    return ActuatorContext(
        clusters=settings.clusters,
        settings=block,
        loop=settings.loop_kafka(),
        topic=settings.topics.topic,
        publish=publish,
        publish_answer=publish_answer,
        registry=registry,
        clients=connections,
        jars=lambda group: fetch_jars([group], settings.jars_dir)[0],
        java=find_java,
        data_dir=settings.create_data_dir,
    )
