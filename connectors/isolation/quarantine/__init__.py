"""The quarantine actuator: moves unassigned bookies into a group of their own."""

from connectors.isolation.quarantine.admin import AdminRacks
from connectors.isolation.quarantine.racks import RackStore
from connectors.isolation.quarantine.reports import QuarantineMetrics
from connectors.isolation.quarantine.worker import QuarantineActuator, WatchedRacks
from connectors.isolation.quarantine.zookeeper import ZooKeeperRacks

__all__ = ["AdminRacks", "QuarantineActuator", "QuarantineMetrics", "RackStore", "WatchedRacks", "ZooKeeperRacks"]
