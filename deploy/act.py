"""The actuators: what carries decisions out, as a part of the loop or as a process of its own."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import LoopTopics
from connectors.bookkeeper.gateway import BookKeeperJvm, support_jars
from connectors.kafka.publisher import Publisher
from connectors.pulsar.bookie_http import BookieHttp
from connectors.quarantine import QuarantineActuator, QuarantineMetrics, RackStore, WatchedRacks, ZooKeeperRacks
from connectors.quarantine.admin import AdminRacks
from connectors.quotas import QuotaActuator, QuotaMetrics, WatchedQuotas
from connectors.switching import ClusterSessions, SwitchExecutor, WatchedSwitch
from connectors.unload import UnloadActuator, UnloadMetrics, WatchedUnloads
from deploy.app import Part, tell
from deploy.connections import Connections
from deploy.jars import ensure_jars
from deploy.jvm import find_java
from deploy.settings import Settings, WatchedCluster
from policies.decisions import Decision
from policies.errors import UserError
from policies.isolation import BookieQuarantine, IsolationSettings
from policies.isolation.settings import Quarantine
from policies.registry import APPLIED_QUOTAS, AUDIT, topic_of
from policies.sessions import OwnershipDecision
from policies.switching import SwitchDecision, SwitchingSettings, SwitchLedger
from policies.throttle import ThrottleFactor, ThrottleSettings


def actuator_parts(
    settings: Settings, registry: CollectorRegistry, publisher: Publisher, connections: Connections
) -> list[Part]:
    """The actuators that the settings ask for.

    Raises:
        UserError: a cluster with quotas is no Kafka cluster.
    """
    return [
        *_quota_parts(settings, registry, publisher),
        *_quarantine_parts(settings, registry, publisher, connections),
        *_unload_parts(settings, registry, publisher, connections),
        *_switch_parts(settings, registry, publisher),
    ]


def _quota_parts(settings: Settings, registry: CollectorRegistry, publisher: Publisher) -> list[Part]:
    homeless = [name for name, cluster in settings.clusters.items() if cluster.quotas and not cluster.kafka]
    if homeless:
        raise UserError("\n".join(f"clusters.{name}.quotas: needs kafka.bootstrap_servers, too" for name in homeless))
    watched = [cluster for cluster in _watched(settings) if cluster.settings is not None]
    if not watched:
        return []
    actuator = _actuator(settings, watched, publisher.publish, registry)
    return [Part("quota actuator", actuator.run, None, actuator.caught_up)]


def _quarantine_parts(
    settings: Settings, registry: CollectorRegistry, publisher: Publisher, connections: Connections
) -> list[Part]:
    isolation: IsolationSettings = settings.policies.isolation
    watched = [
        WatchedRacks(name, racks, isolation.for_cluster(name).max_quarantined)
        for name, cluster in settings.clusters.items()
        if isolation.for_cluster(name).quarantine is Quarantine.ON
        and (racks := _racks(name, cluster, connections)) is not None
    ]
    if not watched:
        return []
    topics = _topics(settings, BookieQuarantine)
    actuator = QuarantineActuator(topics, watched, publisher.publish, QuarantineMetrics(registry))
    return [Part("quarantine actuator", actuator.run, None, actuator.caught_up)]


def _racks(name: str, cluster: WatchedCluster, connections: Connections) -> RackStore | None:
    """Where the groups of a cluster's bookies are kept; null when its bookies are not watched."""
    if (watched := cluster.bookies) is not None and cluster.zookeeper is not None:
        return ZooKeeperRacks(
            name, cluster.zookeeper, bookies_path=watched.bookies_path, ledgers_root=watched.ledgers_root
        )
    if (over_http := cluster.pulsar_bookies) is not None and (admin := connections.pulsar(name)) is not None:
        return AdminRacks(admin, BookieHttp(over_http.bookie_url, admin.settings))
    return None


def _unload_parts(
    settings: Settings, registry: CollectorRegistry, publisher: Publisher, connections: Connections
) -> list[Part]:
    watched = [
        WatchedUnloads(name, admin, cluster.unload)
        for name, cluster in settings.clusters.items()
        if cluster.unload is not None and (admin := connections.pulsar(name)) is not None
    ]
    if not watched:
        return []
    topics = _topics(settings, OwnershipDecision)
    actuator = UnloadActuator(topics, watched, publisher.publish, UnloadMetrics(registry))
    return [Part("unload actuator", actuator.run, None, actuator.caught_up)]


def _switch_parts(settings: Settings, registry: CollectorRegistry, publisher: Publisher) -> list[Part]:
    switching: SwitchingSettings = settings.policies.switching
    watched = [
        WatchedSwitch(
            name,
            cluster.switching,
            ClusterSessions(name, cluster.zookeeper, cluster.bookkeeper),
            switching.for_cluster(name).rules,
            switching.for_cluster(name).copy_concurrency,
            cluster.pulsar,
        )
        for name, cluster in settings.clusters.items()
        if cluster.switching is not None and cluster.bookkeeper is not None and cluster.zookeeper is not None
    ]
    if not watched:
        return []
    heap_mebibytes = max(each.settings.heap_mebibytes for each in watched)
    executor = SwitchExecutor(
        _topics(settings, SwitchDecision),
        settings.topics.topic(topic_of(SwitchLedger)),
        watched,
        publisher.publish,
        lambda: _bookkeeper_jvm(settings, heap_mebibytes),
        registry,
    )
    return [Part("switch executor", executor.run, None, executor.caught_up)]


def _bookkeeper_jvm(settings: Settings, heap_mebibytes: int) -> BookKeeperJvm:
    jars = (*ensure_jars("bookkeeper", settings.jars_dir, progress=tell), *support_jars())
    return BookKeeperJvm(
        find_java(), jars, settings.made_data_dir() / "bookkeeper-client", heap_mebibytes=heap_mebibytes
    )


def release_quotas(settings: Settings, registry: CollectorRegistry, publisher: Publisher) -> None:
    """Put back what was there before Headgate on every watched cluster, those without `quotas` (any more) too.

    Raises:
        UserError: not everything could be put back.
    """
    _actuator(settings, _watched(settings), publisher.publish, registry).release()


def _watched(settings: Settings) -> list[WatchedQuotas]:
    throttle: ThrottleSettings = settings.policies.throttle
    return [
        WatchedQuotas(name, cluster.kafka, cluster.quotas, throttle.for_cluster(name).fallback)
        for name, cluster in settings.clusters.items()
        if cluster.kafka is not None
    ]


def _actuator(
    settings: Settings,
    watched: Iterable[WatchedQuotas],
    publish: Callable[[str, str, bytes], None],
    registry: CollectorRegistry,
) -> QuotaActuator:
    applied = settings.topics.topic(APPLIED_QUOTAS)
    return QuotaActuator(_topics(settings, ThrottleFactor), applied, list(watched), publish, QuotaMetrics(registry))


def _topics(settings: Settings, decided: type[Decision]) -> LoopTopics:
    topics = settings.topics
    return LoopTopics(settings.loop_kafka(), topics.topic(decided.topic), topics.topic(AUDIT))
