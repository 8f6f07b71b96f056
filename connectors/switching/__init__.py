"""The executor of switches between BookKeeper clusters: carries the switching policy's orders out.

All writes are conditional. `executor` follows the decisions; a `conductor` for each broker cluster holds the `lease`,
publishes `sightings`, and has orders carried out by `registry_orders` (on `registry`) and `ledger_orders` (with
`copiers` and `references`). `agent` is what stands beside each broker.
"""

from connectors.actuation import Loop
from connectors.switching.executor import SwitchExecutor, WatchedSwitch
from connectors.switching.places import Places
from connectors.switching.settings import SwitchExecution

__all__ = ["Loop", "Places", "SwitchExecution", "SwitchExecutor", "WatchedSwitch"]
