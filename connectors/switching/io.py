"""The switching policy's I/O: the executor carries out orders between the clusters of `bookkeeper`."""

from collections.abc import Iterator
from functools import partial

from connectors.bookkeeper.gateway import BookKeeperJvm, support_jars
from connectors.bookkeeper.settings import BookKeeperCluster, BookKeeperClusters
from connectors.collection import Probe, ProbeResult
from connectors.component import Component
from connectors.policy_io import ActuatorContext, ProbeContext
from connectors.switching.clusters import ClusterSessions
from connectors.switching.executor import SwitchExecutor, WatchedSwitch
from connectors.switching.registration import SwitchExecution
from connectors.zookeeper.probes import read_probe, write_probes
from connectors.zookeeper.session import ZooKeeperSession
from policies.registry import observed_topic
from policies.switching.decisions import SwitchDecision
from policies.switching.readings import SwitchLedger
from policies.switching.settings import SwitchingSettings


def make_actuators(context: ActuatorContext) -> Iterator[Component]:
    """Yield the actuator of the clusters that the settings let it act on."""
    watched = list(_list_watched(context))
    if not watched:
        return
    heap_mebibytes = max(each.settings.heap_mebibytes for each in watched)
    executor = SwitchExecutor(
        context.loop_topics(SwitchDecision),
        context.topic(observed_topic(SwitchLedger)),
        watched,
        context.publish,
        context.publish_answer,
        lambda: _make_jvm(context, heap_mebibytes),
        context.registry,
    )
    yield Component("switch executor", executor.run, None, executor.caught_up)


def _list_watched(context: ActuatorContext) -> Iterator[WatchedSwitch]:
    switching: SwitchingSettings = context.settings
    for name, cluster in context.clusters.items():
        execution, bookkeeper = cluster.setting(SwitchExecution), cluster.setting(BookKeeperClusters)
        if execution is not None and bookkeeper is not None and cluster.zookeeper is not None:
            own = switching.for_cluster(name)
            sessions = ClusterSessions(name, cluster.zookeeper, bookkeeper)
            yield WatchedSwitch(name, execution, sessions, own.rules, own.copy_concurrency, own.retries)


def _make_jvm(context: ActuatorContext, heap_mebibytes: int) -> BookKeeperJvm:
    jars = (*context.jars("bookkeeper"), *support_jars())
    return BookKeeperJvm(context.java(), jars, context.data_dir() / "bookkeeper-client", heap_mebibytes=heap_mebibytes)


def list_probes(context: ProbeContext) -> Iterator[Probe]:
    """Yield the doctor's checks of a cluster."""
    clusters, brokers = context.cluster.setting(BookKeeperClusters), context.clients.zookeeper(context.name)
    if clusters is None or brokers is None:
        return
    for name, each in clusters.clusters.items():
        system = f"{context.name}: BookKeeper {name}"
        yield Probe(system, f"read {each.ledgers_root}", partial(_read_metadata, system, each, brokers))
    if context.cluster.setting(SwitchExecution) is not None:
        yield from write_probes(f"{context.name}: ZooKeeper", brokers, _WRITTEN, "a switch must")


_WRITTEN = ("/admin/bookie-clusters", "/schemas", "/managed-ledgers")


def _read_metadata(system: str, cluster: BookKeeperCluster, brokers: ZooKeeperSession) -> ProbeResult:
    session = brokers if cluster.zookeeper is None else ZooKeeperSession(system, cluster.zookeeper)
    try:
        remedy = "set its ledgers_root, and the chroot in its zookeeper.servers, to where BookKeeper's metadata is"
        return read_probe(system, session, cluster.ledgers_root, remedy).ask()
    finally:
        if session is not brokers:
            session.close()
