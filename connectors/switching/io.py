"""The switching policy's I/O: the executor carries out orders between the clusters of `bookkeeper`."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from connectors.actuation.actuator import Follower, LoopTopics, read_data
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.collection import Probe
from connectors.component import Component
from connectors.kafka.publisher import observations_to
from connectors.kafka.tail import Record
from connectors.policy_io import ActuatorContext, ProbeContext
from connectors.switching.attribution import ReferenceZnodes
from connectors.switching.clusters import ClusterSessions
from connectors.switching.ledger_orders import LedgerCopiers, LedgerOrders
from connectors.switching.readings import SwitchReadings
from connectors.switching.reconciler import SOURCE, SwitchExecutorMetrics, SwitchReconciler
from connectors.switching.registration import SwitchExecution
from connectors.switching.registry import Registry, ZooKeeperLease
from connectors.zookeeper.session import read_probe, write_probes
from policies.decisions import Fence
from policies.registry import observed_topic
from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.readings import SwitchLedger
from policies.units import from_millis
from policies.wire import EventReader


class SwitchExecutor(Follower):
    """Follows the switching decisions, and passes those of each cluster to its reconciler.

    Args:
        opened: closes the connections at the end.
    """

    def __init__(self, topics: LoopTopics, reconcilers: Mapping[str, SwitchReconciler], opened: ExitStack) -> None:
        super().__init__("switch executor", "headgate-switch", topics, reconcilers)
        self._reconcilers = reconcilers
        self._opened = opened
        self._reader = EventReader((SwitchDecision, SwitchRecord))
        self._fence: Fence[tuple[str, str]] = Fence()
        """The key is a kind of decision and its subject."""

    def run(self, stop: threading.Event) -> None:
        """Carry switches out until `stop` is set. Raises UserError if files of the connection cannot be used."""
        with self._opened:
            super().run(stop)

    def _recall(self, record: Record) -> None:
        # Old orders have an older lease and are dropped; the state of a switch is needed.
        self._receive(record)

    def _receive(self, record: Record) -> None:
        received = read_data(self._reader, record)
        if isinstance(received, SwitchDecision | SwitchRecord) and received.cluster in self._reconcilers:
            key = (received.event_type, received.subject)
            if self._fence.passes(key, received, from_millis(record.appended_ms)):
                self._reconcilers[received.cluster].receive(received)


def make_actuators(context: ActuatorContext) -> Iterator[Component]:
    """Yield the actuator of the clusters that the settings let it act on."""
    blocks = {name: cluster.setting(SwitchExecution) for name, cluster in context.clusters.items()}
    watched = {name: block for name, block in blocks.items() if block is not None}
    if not watched:
        return
    opened, metrics = ExitStack(), SwitchExecutorMetrics(context.registry)
    reconcilers = {name: _make_reconciler(context, name, block, opened, metrics) for name, block in watched.items()}
    executor = SwitchExecutor(context.loop_topics(SwitchDecision), reconcilers, opened)
    yield Component("switch executor", executor.run, None, executor.caught_up)


def _make_jvm(context: ActuatorContext, cluster: str, heap_mebibytes: int) -> BookKeeperJvm:
    """Make the JVM of a cluster's copier. Its jars may have to be fetched."""
    run_dir = context.data_dir() / "bookkeeper-client" / cluster
    return BookKeeperJvm(context.java(), context.jars("bookkeeper"), run_dir, heap_mebibytes=heap_mebibytes)


def _make_reconciler(
    context: ActuatorContext,
    cluster: str,
    settings: SwitchExecution,
    opened: ExitStack,
    metrics: SwitchExecutorMetrics,
) -> SwitchReconciler:
    sources, own = context.clusters[cluster], context.settings.for_cluster(cluster)
    bookkeeper = sources.setting(BookKeeperClusters)
    assert bookkeeper is not None  # noqa: S101 - the block `switching` needs both
    assert sources.zookeeper is not None  # noqa: S101
    sessions = opened.enter_context(ClusterSessions(cluster, sources.zookeeper, bookkeeper))
    observed, registry = context.topic(observed_topic(SwitchLedger)), Registry(sessions.brokers, cluster)
    publish = observations_to(context.publish, observed, SOURCE)
    make_jvm = partial(_make_jvm, context, cluster, settings.heap_mebibytes)
    copiers = LedgerCopiers(sessions, settings, make_jvm, own.copy_concurrency)
    return SwitchReconciler(
        cluster,
        settings,
        own,
        lease=ZooKeeperLease(sessions.brokers),
        readings=SwitchReadings(sessions, registry, settings, own, publish),
        registry=registry,
        ledger_orders=LedgerOrders(sessions, copiers, ReferenceZnodes(sessions.brokers)),
        publish=publish,
        send_answer=partial(context.publish_answer, observed),
        metrics=metrics,
    )


def list_probes(context: ProbeContext) -> Iterator[Probe]:
    """Yield the doctor's checks of a cluster."""
    clusters, brokers = context.cluster.setting(BookKeeperClusters), context.clients.zookeeper(context.name)
    if clusters is None or brokers is None:
        return
    remedy = "set its ledgers_root, and the chroot in its zookeeper.servers, to where BookKeeper's metadata is"
    for name, each in clusters.clusters.items():
        session = context.clients.zookeeper(context.name, each.zookeeper) or brokers
        yield read_probe(f"{context.name}: BookKeeper {name}", session, each.ledgers_root, remedy)
    if context.cluster.setting(SwitchExecution) is not None:
        written = ("/admin/bookie-clusters", "/schemas", "/managed-ledgers")
        yield from write_probes(f"{context.name}: ZooKeeper", brokers, written, "a switch must")
