"""What the switching policy is in every room."""

from policies.decisions import Severity
from policies.policy import AlertKind, Inhibition, PolicyKind
from policies.switching import (
    NAME,
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchCommand,
    SwitchDecision,
    SwitchingPolicy,
    SwitchingSettings,
    SwitchingState,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchRecord,
    SwitchRegistry,
    SwitchStatus,
)
from policies.switching import alerts as named
from policies.switching.examples import examples

_OBSERVED = (
    SwitchLease, SwitchRegistry, SwitchBrokers, SwitchBroker, SwitchCluster, SwitchPrecheck,
    SwitchInventoryPart, SwitchInventory, SwitchLedger, SwitchStatus,
)  # fmt: skip
_EXECUTOR = "the switching executor"

_ALERTS = (
    AlertKind(
        named.HALTED,
        (Severity.CRITICAL,),
        "An invariant is breached, or a promotion changed more than the attribution: nothing more is ordered.",
    ),
    AlertKind(named.BLOCKED, (Severity.CRITICAL,), "All brokers acked, and the switch does not go live."),
    AlertKind(
        named.DEGRADED, (Severity.CRITICAL,), "A broker cannot reach the target while others already write there."
    ),
    AlertKind(named.UNATTENDED, (Severity.WARNING,), "A switch is under way, and no orchestrator holds the lease."),
    AlertKind(named.LEFT_BEHIND, (Severity.WARNING,), "A switch is done, and some ledgers stay in the old cluster."),
)

_INHIBITIONS = (Inhibition(named.HALTED, (named.BLOCKED, named.DEGRADED)),)

KIND = PolicyKind(
    name=NAME,
    observed={"observed.switches": _OBSERVED, "commands": (SwitchCommand,)},
    decisions=(SwitchDecision, SwitchRecord),
    alerts=_ALERTS,
    inhibitions=_INHIBITIONS,
    settings=SwitchingSettings,
    state=SwitchingState,
    state_version=1,
    build=SwitchingPolicy,
    examples=examples,
    # What a switch hears does not come from collectors: people, brokers and its executor tell it.
    written_by={
        **dict.fromkeys(_OBSERVED, _EXECUTOR),
        SwitchCommand: "`headgate switch`",
        SwitchBroker: "each broker's agent",
    },
    connectors="connectors.by_policy.switching:CONNECTORS",
)
