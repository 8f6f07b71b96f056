"""The executor of switches between BookKeeper clusters: carries out the switching policy's orders.

All writes are conditional. `executor` follows the decisions; a `reconciler` for each broker cluster holds the `lease`,
publishes what `cluster_reader` reads, and has orders carried out by `registry_orders` (on `registry`) and
`ledger_orders` (with `ledger_copiers` and `attribution`). `broker_agent` runs beside each broker.
"""

from connectors.switching.cluster_sessions import ClusterSessions
from connectors.switching.executor import SwitchExecutor, WatchedSwitch
from connectors.switching.settings import SwitchExecution

__all__ = ["ClusterSessions", "SwitchExecution", "SwitchExecutor", "WatchedSwitch"]
