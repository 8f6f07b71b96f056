"""The components of a process that exports: metrics, status page, and notifications to Alertmanager."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import Publish
from connectors.alertmanager.notifier import Notifier, NotifierMetrics
from connectors.collection import Kind, PollMetrics, ReadingHistory
from connectors.component import Check, Component
from connectors.exporter.exporter import VERSION, Exporter
from connectors.exporter.page.site import StatusSite
from connectors.kafka.publisher import Publisher, PublisherMetrics, observations_to
from connectors.kafka.tail import last_readings
from connectors.membership import Group, PartitionLease
from connectors.policy_io import ActuatorContext, CollectorContext
from connectors.pulsar.admin import AdminApi
from connectors.registration import acts_on, connectors_of, load_hook
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
from deploy.processes.running import new_registry
from deploy.processes.shared_components import Held, Work, passing_registry
from deploy.settings.application import Settings
from policies.decisions import Alert, Decision, Standing
from policies.observations import Reading
from policies.registry import POLICIES, REPORTS, observed_topic, observed_topics
from policies.units import UserError
from policies.wire import SHARES_TOPIC, clusters_in, share_of

# One ZooKeeper session and one admin client for each watched cluster, shared by all components.


Connection = TypeVar("Connection", ZooKeeperSession, AdminApi)


class Connections:
    """Opens each connection on first use, and closes those of a cluster after its last user. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._users: Counter[str] = Counter()
        self._opened: dict[tuple[str, object], Any] = {}
        """Sessions and clients by cluster and connection; each can be closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._opened.values():
            each.close()

    @contextmanager
    def using(self, clusters: Collection[str]) -> Iterator[None]:
        """Use the connections of these clusters while the block runs; afterwards, close those without another user."""
        with self._lock:
            self._users.update(list(clusters))
        try:
            yield
        finally:
            with self._lock:
                self._users.subtract(list(clusters))
                unused = {cluster for cluster in clusters if self._users[cluster] <= 0}
                ended = [self._opened.pop(key) for key in tuple(self._opened) if key[0] in unused]
            for each in ended:
                each.close()

    def zookeeper(self, cluster: str, connection: ZooKeeperConnection | None = None) -> ZooKeeperSession | None:
        """Return the session of another ZooKeeper of the cluster, or of its own; None if the settings name none."""
        used = connection or self._settings.clusters[cluster].zookeeper
        return None if used is None else self._get_or_open(cluster, used, lambda: ZooKeeperSession(cluster, used))

    def pulsar(self, cluster: str) -> AdminApi | None:
        """Return the cluster's admin client; None if the settings name no admin REST API."""
        used = self._settings.clusters[cluster].pulsar
        return None if used is None else self._get_or_open(cluster, used, lambda: AdminApi(used))

    def _get_or_open(self, cluster: str, connection: object, make: Callable[[], Connection]) -> Connection:
        with self._lock:
            if (cluster, connection) not in self._opened:
                self._opened[cluster, connection] = make()
            opened: Connection = self._opened[cluster, connection]
            return opened


# The collectors, which read the watched clusters: run as a part of the loop or as a process of their own.


def collecting(settings: Settings, registry: CollectorRegistry, publish: Publish, connections: Connections) -> Work:
    """Return the collectors of all watched clusters as work: this process runs those for the clusters of its share.

    Raises UserError if the settings name nothing to watch.
    """
    blocks, metrics, topic = settings.policy_settings(), PollMetrics(registry), settings.topics.topic

    def sink(reading: type[Reading], source: str) -> Callable[[Reading], None]:
        return observations_to(publish, topic(observed_topic(reading)), source)

    def read_history(reading: type[Kind]) -> ReadingHistory[Kind]:
        name = topic(observed_topic(reading))
        return lambda history, stop: last_readings(settings.loop_kafka(), name, reading, history, stop)

    def make(cluster: str) -> list[Component]:
        context = CollectorContext(cluster, settings.clusters[cluster], sink, metrics, connections, read_history)
        own = ((kind, replace(context, settings=blocks[kind.name].for_cluster(cluster))) for kind in POLICIES.values())
        return [part for kind, of_kind in own for part in load_hook(connectors_of(kind).collectors)(of_kind)]

    @contextmanager
    def open_cluster(cluster: str, _held: Held, _lease: PartitionLease) -> Iterator[Sequence[Component]]:
        with connections.using([cluster]):
            yield make(cluster)
        metrics.forget(cluster)

    with connections.using(settings.clusters):
        names = {name: [part.name for part in parts] for name in settings.clusters if (parts := make(name))}
    if not names:
        raise UserError(
            "clusters: nothing is watched: name a Kafka cluster by its kafka.bootstrap_servers, "
            "or a Pulsar or BookKeeper cluster by its zookeeper.servers, with `bookies: {}` or `sessions: {}`, "
            "or a Pulsar cluster by its pulsar.admin_url, with `bookie_disks: {}` or `pulsar_bookies: {}`"
        )
    # Processes with other collectors have a group of their own. While new settings are rolled out, both groups read,
    # which does no harm; and no process is assigned a cluster that it cannot read.
    all_names = "\n".join(sorted(name for each in names.values() for name in each))
    suffix = hashlib.sha256(all_names.encode()).hexdigest()[:12]
    return Work(
        name="collectors",
        group=Group(topic(f"collect.{suffix}"), topic(SHARES_TOPIC)),
        of_shares=partial(clusters_in, clusters=tuple(names)),
        units=lambda held: {cluster: frozenset({cluster}) for cluster in held},
        open=open_cluster,
    )


def require_watched(settings: Settings) -> None:
    """Raise UserError if the settings name nothing to watch. It opens no connection."""
    with Connections(settings) as connections:
        collecting(settings, CollectorRegistry(), _publish_nothing, connections)


# The actuators, which carry decisions out: run as a part of the loop or as a process of their own.


class Process(NamedTuple):
    """What the parts of a process share."""

    settings: Settings
    registry: CollectorRegistry
    publisher: Publisher
    connections: Connections

    @classmethod
    @contextmanager
    def open(cls, settings: Settings) -> Iterator["Process"]:
        """Yield it with connections that are closed at the end of the block; records that wait are flushed then."""
        registry = new_registry()
        publishing = Publisher(settings.loop_kafka(), PublisherMetrics(registry))
        with publishing as publisher, Connections(settings) as connections:
            yield cls(settings, registry, publisher, connections)


def acting(process: Process) -> Work | None:
    """Return the actuators as work: this process runs those for the clusters of its share; None without any."""
    settings, registry, publisher, connections = process
    blocks, topic, name = settings.policy_settings(), settings.topics.topic, settings.shares.name
    acted: dict[str, Held] = {
        kind.name: frozenset(
            each for each, cluster in settings.clusters.items()
            if acts_on(connectors_of(kind), blocks[kind.name], each, cluster)
        )
        for kind in POLICIES.values()
    }  # fmt: skip
    everywhere = frozenset[str]().union(*acted.values())
    if not everywhere:
        return None

    @contextmanager
    def open_policy(policy: str, held: Held, lease: PartitionLease) -> Iterator[Sequence[Component]]:
        reporting = publishing_reports(publisher, topic)
        with passing_registry(registry) as own, connections.using(held), reporting as (publish, publish_answer):
            yield list(
                load_hook(connectors_of(POLICIES[policy]).actuators)(
                    replace(
                        _contexts(settings, own, publish, publish_answer, connections)[policy],
                        clusters={each: cluster for each, cluster in settings.clusters.items() if each in held},
                        may_act=lambda cluster: lease.holds(share_of(cluster)),
                    )
                )
            )

    return Work(
        name="actuators",
        group=Group(topic("act" if name is None else f"act.{name}"), topic(SHARES_TOPIC)),
        of_shares=partial(clusters_in, clusters=everywhere),
        # One unit per policy, so that a policy's actuators keep running unless its clusters change.
        units=lambda held: {policy: own for policy, clusters in acted.items() if (own := clusters & held)},
        open=open_policy,
    )


@contextmanager
def publishing_reports(publisher: Publisher, topic: Callable[[str], str]) -> Iterator[tuple[Publish, Publish]]:
    """Yield a function that publishes readings while they are fresh, and one that publishes until Kafka takes it.

    The first one also keeps all that is no reading. A report that is given up would be missing until the next change:
    the status would show another value than is set. The publisher itself gives up after seconds.
    """
    observed = frozenset(map(topic, observed_topics()))
    with publisher.patient() as patient:
        yield lambda to, key, value: (publisher if to in observed else patient).publish(to, key, value), patient.publish


def release(settings: Settings, forget: str | None) -> Iterator[str]:
    """Restore on every watched cluster the state from before Headgate, whether or not the loop's own Kafka answers.

    Yields a sentence for each result, and raises UserError if not everything could be restored.
    """
    with Process.open(settings) as (_, registry, publisher, connections):
        contexts = _contexts(settings, registry, publisher.publish, publisher.publish, connections)
        for policy, context in contexts.items():
            yield from load_hook(connectors_of(POLICIES[policy]).release)(context, forget)


def require_accepted(settings: Settings) -> None:
    """Raise UserError if a watched cluster refuses what the actuators would do with these settings."""
    with Connections(settings) as connections:
        contexts = _contexts(settings, CollectorRegistry(), _publish_nothing, _publish_nothing, connections)
        refusals = (load_hook(connectors_of(POLICIES[policy]).refusals)(each) for policy, each in contexts.items())
        problems = [problem for found in refusals for problem in found]
    if problems:
        raise UserError("\n".join(problems))


def _publish_nothing(_topic: str, _key: str, _value: bytes) -> None:
    """A check tells nobody."""


def _contexts(
    settings: Settings,
    registry: CollectorRegistry,
    publish: Publish,
    publish_answer: Publish,
    connections: Connections,
) -> dict[str, ActuatorContext]:
    """Return the arguments of each policy's actuators, on all clusters."""
    return {
        policy: ActuatorContext(
            clusters=settings.clusters,
            settings=block,
            loop=settings.loop_kafka(),
            topic=settings.topics.topic,
            publish=publish,
            publish_answer=publish_answer,
            registry=registry,
            clients=connections,
            jars=lambda group: ensure_jars(group, settings.jars_dir),
            java=find_java,
            data_dir=settings.create_data_dir,
        )
        for policy, block in settings.policy_settings().items()
    }


def exporting(
    settings: Settings,
    registry: CollectorRegistry,
    on_decision: Callable[[Decision], None] = lambda _decision: None,
    *,
    healthy: Check = lambda: None,
) -> tuple[list[Component], StatusSite]:
    """Make the components of the exporter, the notifier of Alertmanager among them, and the site of the status page.

    Args:
        on_decision: called with each decision.
        healthy: the problem that /-/healthy of this process shows; while it has one, page and metric show it, too.
    """
    settings_hash = settings.fingerprint()
    exporter = Exporter(
        settings.loop_kafka(),
        settings.topics.prefix,
        settings.policy_settings(),
        registry,
        settings_hash=settings_hash,
        clusters=settings.watched_clusters(),
        on_decision=on_decision,
        needs=settings.actuator_needs(),
        problem=healthy,
    )
    site = StatusSite(exporter.snapshot, version=VERSION, settings_hash=settings_hash)
    components = [Component("exporter", exporter.run, None, exporter.caught_up), Component("status page", site.run)]
    if settings.alertmanager is not None:
        topics = [settings.topics.topic(name) for name in (Alert.topic, Standing.topic, REPORTS)]
        metrics, page_url = NotifierMetrics(registry), settings.http.public_url
        notifier = Notifier(settings.loop_kafka(), topics, settings.alertmanager, metrics, page_url=page_url)
        components.append(Component("alertmanager", notifier.run, None, notifier.caught_up))
    return components, site
