"""Publishes the executor's readings for the policy: changes at once, everything again at intervals."""

import time
from collections.abc import Callable

import structlog

from connectors.switching.cluster_reader import ClusterReader
from connectors.switching.registry import Registry, RegistryView
from connectors.zookeeper.json_znodes import ZnodeError
from policies.observations import Outcome, Reading
from policies.switching.readings import SwitchInventory, SwitchRegistry

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
        self._view: RegistryView | None = None
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
        registry = self._read_registry()
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

    def publish_inventory(self, source: str, target: str, *, moved_too: bool = False) -> bool:
        """Publish all references. Returns whether all could be read."""
        complete, valid_ms = True, self._inventory_valid_ms
        epoch = self._view.directive.epoch if self._view and self._view.directive else 0 if self._view else None
        for reading in self._reader.inventory(
            self._bootstrap(), source, target, valid_ms=valid_ms, moved_too=moved_too
        ):
            if reading.outcome is not Outcome.OK:
                _log.warning("the inventory cannot be read", cluster=self._cluster, detail=reading.detail)
                complete = False
            is_manifest = isinstance(reading, SwitchInventory)
            self._publish(reading.model_copy(update={"epoch": epoch}) if is_manifest else reading)
        return complete

    def _read_registry(self) -> SwitchRegistry:
        try:
            self._view = self._registry.read(contested_too=True)
            return self._view.make_reading(self._cluster, self._registry.read_progress())
        except ZnodeError as error:
            return SwitchRegistry(cluster=self._cluster, outcome=Outcome.ERROR, detail=str(error))

    def _publish_if(self, what: str, reading: Reading, *, due: bool, compared: Reading | None = None) -> None:
        key = compared or reading
        if due or self._last.get(what) != key:
            self._last[what] = key
            self._publish(reading)

    def _bootstrap(self) -> str:
        return (self._view.bootstrap if self._view else None) or self._default_bootstrap
