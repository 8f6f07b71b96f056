"""The parts of a reconciler, so that tests can replace each of them."""

from collections.abc import Callable
from dataclasses import dataclass

from connectors.switching.lease import ZooKeeperLease
from connectors.switching.ledger_orders import LedgerOrders
from connectors.switching.metrics import SwitchExecutorMetrics
from connectors.switching.observation_publisher import ObservationPublisher
from connectors.switching.registry_orders import RegistryOrders
from connectors.switching.result_outbox import ResultOutbox
from policies.observations import Reading
from policies.switching.readings import SwitchProgress


@dataclass(frozen=True)
class Dependencies:
    """The parts of a reconciler."""

    lease: ZooKeeperLease
    observations: ObservationPublisher
    registry_orders: RegistryOrders
    ledger_orders: LedgerOrders
    read_epoch: Callable[[], int | None]
    """Reads the epoch of the directive in force from ZooKeeper; 0: there is none, None: it cannot be read."""
    keep_progress: Callable[[SwitchProgress], None]
    """Keeps the progress of a switch beside the registry. Raises RegistryError: try again."""
    publish: Callable[[Reading], None]
    """Publishes readings of the lease; must not block."""
    results: ResultOutbox
    metrics: SwitchExecutorMetrics
