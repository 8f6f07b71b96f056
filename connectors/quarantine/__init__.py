"""The quarantine actuator: puts bookies that nobody assigned into a group of their own."""

from connectors.actuation import Loop
from connectors.quarantine.actuator import QuarantineActuator
from connectors.quarantine.admin import AdminRacks
from connectors.quarantine.cluster import WatchedRacks
from connectors.quarantine.metrics import QuarantineMetrics
from connectors.quarantine.store import RackStore
from connectors.quarantine.zookeeper import ZooKeeperRacks

__all__ = [
    "AdminRacks",
    "Loop",
    "QuarantineActuator",
    "QuarantineMetrics",
    "RackStore",
    "WatchedRacks",
    "ZooKeeperRacks",
]
