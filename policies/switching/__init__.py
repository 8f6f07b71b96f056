"""The switching policy: moving the brokers of a cluster to another BookKeeper cluster at run time, safely.

Where to look: the pure precheck in `precheck` (with `ledger_paths`, `id_generators`, `ledgers`, `references` and
`remedies`); the machine in `machine`, its rows in `commands`, `sightings`, `answers` and `stages`, what they ask in
`guards`, what must hold in `invariants`, what is remembered in `state`; the wire in `readings`, `translation`,
`decision` and `alerts`; and `policy`, which puts all of it together.
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
