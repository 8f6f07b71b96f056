"""The quarantine actuator: moves unassigned bookies into a group of their own."""

from connectors.quarantine.actuator import QuarantineActuator
from connectors.quarantine.admin import AdminRacks
from connectors.quarantine.reports import QuarantineMetrics
from connectors.quarantine.store import RackStore
from connectors.quarantine.worker import WatchedRacks
from connectors.quarantine.zookeeper import ZooKeeperRacks

__all__ = ["AdminRacks", "QuarantineActuator", "QuarantineMetrics", "RackStore", "WatchedRacks", "ZooKeeperRacks"]
