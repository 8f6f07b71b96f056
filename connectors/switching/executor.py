"""Follows the switching decisions, and has those about each cluster carried out by a conductor of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from connectors.actuation import Loop, parsed
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.kafka.publisher import observations_to
from connectors.kafka.tail import Record, Tail
from connectors.pulsar.connection import PulsarAdmin
from connectors.switching.answers import SOURCE, Answers
from connectors.switching.conductor import Conductor, Hands
from connectors.switching.copiers import Copiers, CopySettings
from connectors.switching.lease import Lease
from connectors.switching.ledger_orders import LedgerOrders
from connectors.switching.metrics import SwitchExecutorMetrics
from connectors.switching.places import Places
from connectors.switching.references import References
from connectors.switching.registry import Registry
from connectors.switching.rollover import OwnerClient
from connectors.switching.settings import SwitchExecution
from connectors.switching.sightings import Sightings
from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.precheck.snapshot import PrecheckRules
from policies.wire import EventReader

_POLL_SECONDS = 0.2

Publish = Callable[[str, str, bytes], None]
"""Takes a topic, a record's key and its value."""


@dataclass(frozen=True)
class WatchedSwitch:
    """One broker cluster whose switches are carried out."""

    cluster: str
    settings: SwitchExecution
    places: Places
    rules: PrecheckRules
    """Of its prechecks."""
    concurrency: int
    """How many ledgers may be worked on at once."""
    admin: PulsarAdmin | None = None
    """How its brokers' agents are asked: only with `settings.owner_url`."""


class SwitchExecutor:
    """Carries out the switches of some broker clusters.

    Args:
        loop: where the decisions are.
        observed: the topic (with its prefix) that sightings and answers go to.
        watched: the broker clusters; their places are closed at the end.
        publish: hands a record over to the loop's Kafka; must not block.
        jvm: makes the JVM with BookKeeper's client, when there is something to copy; called once at most.
        registry: where it counts.
    """

    def __init__(
        self,
        loop: Loop,
        observed: str,
        watched: Sequence[WatchedSwitch],
        publish: Publish,
        jvm: Callable[[], BookKeeperJvm],
        registry: CollectorRegistry,
    ) -> None:
        self._loop = loop
        self._watched = watched
        self._jvm = _Once(jvm)
        metrics = SwitchExecutorMetrics(registry)
        self._conductors = {
            each.cluster: _conductor(each, observed, publish, self._jvm.get, metrics) for each in watched
        }
        self._reader = EventReader((SwitchDecision, SwitchRecord))
        self._behind: str | None = "the switch executor has not started yet"

    def caught_up(self) -> str | None:
        """Readiness: null once it is known where the switches stand."""
        return self._behind

    def run(self, stop: threading.Event) -> None:
        """Carry switches out until `stop` is set.

        Raises:
            UserError: the connection's files, or those of the BookKeeper client, cannot be used.
        """
        try:
            with Tail(self._loop.connection, {self._loop.decided: None}, "headgate-switch") as tail:
                # Old orders were given under an older lease and are dropped; where a switch stands is learned.
                while not tail.caught_up and not stop.is_set():
                    self._hand_on(tail.poll(_POLL_SECONDS))
                    self._behind = tail.problem or tail.backlog
                if not stop.is_set():
                    self._behind = None
                    self._conduct(tail, stop)
        finally:
            self._jvm.close()
            for each in self._watched:
                each.places.close()

    def _conduct(self, tail: Tail, stop: threading.Event) -> None:
        ended = threading.Event()
        with ThreadPoolExecutor(len(self._conductors), thread_name_prefix="switches") as pool:
            running = [pool.submit(conductor.run, ended) for conductor in self._conductors.values()]
            try:
                while not stop.is_set():
                    self._hand_on(tail.poll(_POLL_SECONDS))
                    for future in running:
                        if future.done():
                            future.result()
            finally:
                ended.set()
                for conductor in self._conductors.values():
                    conductor.wake()

    def _hand_on(self, records: Sequence[Record]) -> None:
        for record in records:
            said = parsed(self._reader, record)
            if isinstance(said, SwitchDecision | SwitchRecord) and said.cluster in self._conductors:
                self._conductors[said.cluster].take(said)


class _Once:
    """A JVM that all clusters share, made when it is first needed."""

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


def _conductor(
    watched: WatchedSwitch,
    observed: str,
    publish: Publish,
    jvm: Callable[[], BookKeeperJvm],
    metrics: SwitchExecutorMetrics,
) -> Conductor:
    settings, places = watched.settings, watched.places
    replication = settings.replication.sizes() if settings.replication else None
    copies = CopySettings(watched.concurrency, settings.copy_timeout, replication, settings.password())
    owners = (
        OwnerClient(places.brokers, settings.owner_url, watched.admin) if settings.owner_url and watched.admin else None
    )
    hands = Hands(
        lease=Lease(places.brokers),
        registry=Registry(places.brokers),
        sightings=Sightings(watched.cluster, places, settings.brokers_path, watched.rules),
        ledgers=LedgerOrders(places, Copiers(places, copies, jvm), References(places.brokers), places.owner_of, owners),
        publish=observations_to(publish, observed, SOURCE),
        answers=Answers(partial(publish, observed)),
        metrics=metrics,
    )
    return Conductor(
        watched.cluster,
        hands,
        poll_interval=settings.poll_interval,
        inventory_interval=settings.inventory_interval,
        concurrency=watched.concurrency,
        default_bootstrap=places.bootstrap,
    )
