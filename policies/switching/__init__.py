"""The switching policy: moving the brokers of a cluster to another BookKeeper cluster at run time, safely.

Where to look, along the way of a reading: `readings` (the wire in), `fold` (each kind into its own read model, kept in
`state`), `facts` (the read models joined, as of now), `judge` (the rows of the table, as changes that are only
proposed), `transition` (where changes are written), `emit` (orders, records: `decisions`, the wire out), `alerts`.
`machine` takes one event after the other through it, and `policy` hosts it. `precheck` judges a snapshot of two
clusters on its own; `ledgers`, `ledger_paths`, `id_generators` and `references` are BookKeeper's and Pulsar's terms.
"""

from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.policy import NAME, SwitchingPolicy
from policies.switching.readings import (
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchCommand,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchRegistry,
    SwitchStatus,
)
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState

__all__ = [
    "NAME",
    "SwitchBroker",
    "SwitchBrokers",
    "SwitchCluster",
    "SwitchCommand",
    "SwitchDecision",
    "SwitchInventory",
    "SwitchInventoryPart",
    "SwitchLease",
    "SwitchLedger",
    "SwitchPrecheck",
    "SwitchRecord",
    "SwitchRegistry",
    "SwitchStatus",
    "SwitchingPolicy",
    "SwitchingSettings",
    "SwitchingState",
]
