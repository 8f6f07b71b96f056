"""The executor's answers to orders, gathered while it is busy.

One batch of the query then takes many of them, which leaves more processor time to the copies.
"""

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

import structlog

from connectors.switching.cluster_reader import ClusterReader
from connectors.switching.registry import Registry
from connectors.zookeeper.json_znodes import ZnodeError
from policies.observations import Outcome, Reading
from policies.switching.readings import SwitchInventory, SwitchRegistry
from policies.wire import observation_event

# Publishes the executor's readings for the policy: changes at once, everything again at intervals.

_REPUBLISH_SECONDS = 15.0

_log = structlog.get_logger(__name__)


class ObservationPublisher:
    """The observations of one broker cluster. Prechecks and inventories may be published from another thread.

    Args:
        default_bootstrap: the bootstrap cluster if the registry names none.
        inventory_valid_ms: two intervals of inventories.
    """

    def __init__(
        self,
        cluster: str,
        registry: Registry,
        reader: ClusterReader,
        publish: Callable[[Reading], None],
        default_bootstrap: str,
        inventory_valid_ms: int = 1_200_000,
    ) -> None:
        self._cluster = cluster
        self._registry = registry
        self._reader = reader
        self._publish = publish
        self._default_bootstrap = default_bootstrap
        self._inventory_valid_ms = inventory_valid_ms
        self._seen: SwitchRegistry | None = None
        """The registry as it was last read."""
        self._last: dict[str, Reading] = {}
        self._all_published_at = float("-inf")

    def publish_all_next(self) -> None:
        """Publish everything again next time, changed or not."""
        self._last.clear()

    def publish(self, *, unchanged_too: bool) -> None:
        """Publish registry, live brokers and BookKeeper clusters, which are read quickly.

        Args:
            unchanged_too: publish unchanged readings, too; otherwise only every 15 s.
        """
        due = unchanged_too or time.monotonic() - self._all_published_at >= _REPUBLISH_SECONDS
        if due:
            self._all_published_at = time.monotonic()
        try:
            seen = self._seen = self._registry.read(contested_too=True)
            registry = seen.model_copy(update={"progress": self._registry.read_progress()})
        except ZnodeError as error:
            registry = SwitchRegistry(cluster=self._cluster, outcome=Outcome.ERROR, detail=str(error))
        self._publish_if("registry", registry, due=due)
        if registry.outcome is not Outcome.OK:
            return  # no reading counts of which it is not known which directive it follows
        # Later readings are of this epoch or a later one, whatever the clocks show.
        epoch = {"epoch": registry.directive.epoch if registry.directive else 0}
        self._publish_if("brokers", self._reader.brokers().model_copy(update=epoch), due=due)
        for cluster in self._reader.clusters():
            # The duration of the reading does not count as a change.
            compared = cluster.model_copy(update={"took_ms": 0, **epoch})
            self._publish_if(cluster.name, cluster.model_copy(update=epoch), due=due, compared=compared)

    def publish_precheck(self, source: str, target: str) -> None:
        """Run a precheck, and publish its report."""
        self._publish(self._reader.precheck(source, target, self._bootstrap()))

    def publish_inventory(
        self, source: str, target: str, *, moved_too: bool = False, attempt: int | None = None
    ) -> bool:
        """Publish all references, as of an attempt of the switch. Returns whether all could be read."""
        complete, valid_ms = True, self._inventory_valid_ms
        seen = self._seen
        epoch = None if seen is None else seen.directive.epoch if seen.directive else 0
        for reading in self._reader.inventory(
            self._bootstrap(), source, target, valid_ms=valid_ms, moved_too=moved_too
        ):
            if reading.outcome is not Outcome.OK:
                _log.warning("the inventory cannot be read", cluster=self._cluster, detail=reading.detail)
                complete = False
            is_manifest = isinstance(reading, SwitchInventory)
            self._publish(reading.model_copy(update={"epoch": epoch, "attempt": attempt}) if is_manifest else reading)
        return complete

    def _publish_if(self, what: str, reading: Reading, *, due: bool, compared: Reading | None = None) -> None:
        key = compared or reading
        if due or self._last.get(what) != key:
            self._last[what] = key
            self._publish(reading)

    def _bootstrap(self) -> str:
        return (self._seen.bootstrap if self._seen else None) or self._default_bootstrap


SOURCE = "headgate/switch-executor"

_GATHER_SECONDS = 1.0

Send = Callable[[str, bytes], None]
"""Publishes a record (key, value)."""


class GatheredAnswers:
    """The answers of one broker cluster's executor. Thread-safe.

    Args:
        send: publishes to the loop's Kafka, and keeps a record until Kafka takes it; must not block.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._lock = Lock()
        self._gathered: list[tuple[str, bytes]] = []
        self._gathered_since = clock()

    def send(self, reading: Reading, *, more_to_come: bool = False) -> None:
        """Send the answer to an order; with `more_to_come`, gather it with the next ones."""
        event = observation_event(reading, id=str(uuid.uuid4()), source=SOURCE, time=datetime.now(UTC))
        with self._lock:
            if not self._gathered:
                self._gathered_since = self._clock()
            self._gathered.append((reading.cluster, event))
        if more_to_come:
            self.send_due()
        else:
            self._send_all()

    def send_due(self) -> None:
        """Send the gathered answers, if the first one has waited for a second."""
        if self._clock() - self._gathered_since >= _GATHER_SECONDS:
            self._send_all()

    def clear(self) -> None:
        """Drop the gathered answers: another executor has the lease."""
        with self._lock:
            self._gathered.clear()

    def _send_all(self) -> None:
        with self._lock:
            for key, event in self._gathered:
                self._send(key, event)
            self._gathered.clear()
