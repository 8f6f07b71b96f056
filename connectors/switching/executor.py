"""Follows the switching decisions, and passes those of each cluster to its reconciler."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import Follower, LoopTopics, Publish, read_data
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.kafka.publisher import observations_to
from connectors.kafka.tail import Record
from connectors.switching.broker_agent import ReferenceZnodes
from connectors.switching.cluster_reader import ClusterReader
from connectors.switching.clusters import ClusterSessions
from connectors.switching.lease import SwitchExecutorMetrics, ZooKeeperLease
from connectors.switching.ledger_orders import LedgerCopiers, LedgerOrders
from connectors.switching.publisher import SOURCE, GatheredAnswers, ObservationPublisher
from connectors.switching.reconciler import Dependencies, SwitchReconciler
from connectors.switching.registration import SwitchExecution
from connectors.switching.registry import Registry, RegistryOrders
from policies.decisions import Fence
from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.precheck import PrecheckRules
from policies.units import from_millis, millis_of
from policies.wire import EventReader


@dataclass(frozen=True)
class WatchedSwitch:
    """A broker cluster whose switches are carried out."""

    cluster: str
    settings: SwitchExecution
    sessions: ClusterSessions
    rules: PrecheckRules
    """The rules of its prechecks."""
    concurrency: int
    """Limit of the ledgers in work."""
    retries: int


class SwitchExecutor(Follower):
    """Carries out the switches of some broker clusters.

    Args:
        observed: the topic (with its prefix) of observations and answers.
        watched: the broker clusters; their sessions are closed at the end.
        publish: publishes readings, which may be given up.
        publish_answer: publishes answers to orders, and keeps each until Kafka takes it.
        jvm: makes the JVM with BookKeeper's client before the first copy; called at most once.
    """

    def __init__(
        self,
        topics: LoopTopics,
        observed: str,
        watched: Sequence[WatchedSwitch],
        publish: Publish,
        publish_answer: Publish,
        jvm: Callable[[], BookKeeperJvm],
        registry: CollectorRegistry,
    ) -> None:
        self._watched = watched
        self._jvm = _SharedJvm(jvm)
        metrics = SwitchExecutorMetrics(registry)
        self._reconcilers = {
            each.cluster: _make_reconciler(each, observed, publish, publish_answer, self._jvm.get, metrics)
            for each in watched
        }
        super().__init__("switch executor", "headgate-switch", topics, self._reconcilers)
        self._reader = EventReader((SwitchDecision, SwitchRecord))
        self._fence: Fence[tuple[str, str]] = Fence()
        """By kind of decision and subject."""

    def run(self, stop: threading.Event) -> None:
        """Carry switches out until `stop` is set.

        Raises:
            UserError: files of the connection or of the BookKeeper client cannot be used.
        """
        try:
            super().run(stop)
        finally:
            self._jvm.close()
            for each in self._watched:
                each.sessions.close()

    def _recall(self, record: Record) -> None:
        # Old orders have an older lease and are dropped; the state of a switch is needed.
        self._receive(record)

    def _receive(self, record: Record) -> None:
        received = read_data(self._reader, record)
        if isinstance(received, SwitchDecision | SwitchRecord) and received.cluster in self._reconcilers:
            key = (received.event_type, received.subject)
            if self._fence.passes(key, received, from_millis(record.appended_ms)):
                self._reconcilers[received.cluster].receive(received)


class _SharedJvm:
    """A JVM that all clusters share, made at its first use."""

    def __init__(self, make: Callable[[], BookKeeperJvm]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._jvm: BookKeeperJvm | None = None

    def get(self) -> BookKeeperJvm:
        with self._lock:
            if self._jvm is None:
                self._jvm = self._make()
            return self._jvm

    def close(self) -> None:
        with self._lock:
            if self._jvm is not None:
                self._jvm.close()


def _make_reconciler(
    watched: WatchedSwitch,
    observed: str,
    publish: Publish,
    publish_answer: Publish,
    jvm: Callable[[], BookKeeperJvm],
    metrics: SwitchExecutorMetrics,
) -> SwitchReconciler:
    cluster, settings, sessions = watched.cluster, watched.settings, watched.sessions
    publish_reading, registry = observations_to(publish, observed, SOURCE), Registry(sessions.brokers)
    reader = ClusterReader(cluster, sessions, settings.brokers_path, watched.rules)
    dependencies = Dependencies(
        lease=ZooKeeperLease(sessions.brokers),
        observations=ObservationPublisher(
            cluster, registry, reader, publish_reading, sessions.bootstrap, 2 * millis_of(settings.inventory_interval)
        ),
        registry_orders=RegistryOrders(cluster, registry),
        ledger_orders=_make_ledger_orders(watched, jvm),
        read_epoch=registry.read_epoch,
        keep_progress=registry.write_progress,
        publish=publish_reading,
        answers=GatheredAnswers(partial(publish_answer, observed)),
        metrics=metrics,
    )
    return SwitchReconciler(
        cluster,
        dependencies,
        poll_interval=settings.poll_interval,
        inventory_interval=settings.inventory_interval,
        concurrency=watched.concurrency,
        retries=watched.retries,
    )


def _make_ledger_orders(watched: WatchedSwitch, jvm: Callable[[], BookKeeperJvm]) -> LedgerOrders:
    sessions = watched.sessions
    copiers = LedgerCopiers(sessions, watched.settings, jvm, watched.concurrency)
    return LedgerOrders(sessions, copiers, ReferenceZnodes(sessions.brokers), sessions.find_owner)
