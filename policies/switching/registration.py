"""Registers the switching policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

from policies.decisions import Severity
from policies.policy import AlertKind, Inhibition, PolicyKind, with_runbooks
from policies.switching import NAME, SwitchDecision, SwitchingPolicy, SwitchingSettings, SwitchingState, SwitchRecord
from policies.switching import alerts as named
from policies.switching.examples import examples
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
from policies.switching.runbooks import RUNBOOKS

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
    AlertKind(
        named.BLOCKED,
        (Severity.CRITICAL,),
        "The switch does not go live, clean up or go back; the summary names the reason.",
    ),
    AlertKind(
        named.DEGRADED, (Severity.CRITICAL,), "A broker cannot reach the target while others already write there."
    ),
    AlertKind(named.UNATTENDED, (Severity.WARNING,), "A switch is under way, and no orchestrator holds the lease."),
    AlertKind(named.LEFT_BEHIND, (Severity.WARNING,), "A switch is done, and some ledgers stay in the old cluster."),
    AlertKind(
        named.AWAITED,
        (Severity.WARNING,),
        "For longer than `ack_timeout`, live brokers do not follow the directive, or no live broker is known.",
    ),
    AlertKind(
        named.ASTRAY,
        (Severity.CRITICAL,),
        "After going live, a broker writes elsewhere, went back, joined without following, or sends no report.",
    ),
    AlertKind(
        named.CONTESTED,
        (Severity.CRITICAL,),
        "The registry has two active clusters or none, or a foreign directive: nothing is ordered.",
    ),
    AlertKind(
        named.IMPOSTOR,
        (Severity.CRITICAL,),
        "At a BookKeeper cluster's address another cluster answers than was registered; its readings do not count.",
    ),
    AlertKind(
        named.IDS_BEHIND,
        (Severity.CRITICAL,),
        "Brokers write to a cluster whose ids lie below those that they got from another one.",
    ),
    AlertKind(named.UNPLANNED, (Severity.WARNING,), "References that are not in the plan name the old cluster."),
    AlertKind(
        named.NOT_TAKEN_BACK, (Severity.WARNING,), "A switch is rolled back, and some promotions were not taken back."
    ),
    AlertKind(
        named.WAITING,
        (Severity.WARNING,),
        "A switch waits for longer than its bound: for an inventory, an answer or an operator; the summary names the "
        "command that ends it.",
    ),
    AlertKind(named.UNDONE, (Severity.WARNING,), "`automatic_rollback` undid a switch that brokers cannot follow."),
)

_INHIBITIONS = (Inhibition(named.HALTED, (named.BLOCKED, named.DEGRADED)),)

KIND = PolicyKind(
    name=NAME,
    observed={"observed.switches": _OBSERVED, "commands": (SwitchCommand,)},
    decisions=(SwitchDecision, SwitchRecord),
    alerts=with_runbooks(_ALERTS, RUNBOOKS),
    inhibitions=_INHIBITIONS,
    settings=SwitchingSettings,
    state=SwitchingState,
    # An inventory counts only as a whole, and its parts come at once.
    most_step_bytes=64 * 1024 * 1024,
    state_version=1,
    build=SwitchingPolicy,
    examples=examples,
    # No collector publishes the readings of a switch: operators, brokers and its executor do.
    written_by={
        **dict.fromkeys(_OBSERVED, _EXECUTOR),
        SwitchCommand: "`headgate switch`",
        SwitchBroker: "each broker's agent",
    },
    paused_by="headgate switch pause",
    connectors="connectors.switching.registration:CONNECTORS",
)
