"""Registers the switching policy: its `PolicyKind` with topics, readings, decisions, alerts and settings."""

import dataclasses
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from policies.policy import AlertKind, BuiltLate, Inhibition, PolicyKind
from policies.switching import NAME
from policies.switching import alert_kinds as kinds
from policies.switching.decisions import SwitchDecision, SwitchRecord
from policies.switching.readings import OBSERVED, SwitchBroker, SwitchCommand
from policies.switching.settings import SwitchingSettings
from policies.switching.state import SwitchingState

_EXECUTOR = "the switching executor"

_INHIBITIONS = (Inhibition(kinds.HALTED, (kinds.BLOCKED, kinds.DEGRADED)),)


def _add_holds(alert: AlertKind) -> AlertKind:
    """Begin the runbook of an alert with what ends each of its holds, and add the commands that it names."""
    ways = (
        f"If {hold.when}{'' if hold.bound.words == 'none' else f' (for {hold.bound.words})'}: {hold.ends_with}."
        for hold in kinds.HOLDS.values()
        if hold.alert == alert.name
    )
    remedy = " ".join([*ways, alert.remedy])
    ending = [each for each in ("resume", "pause", "abort", "rollback", "end") if f"`{each}`" in remedy]
    return dataclasses.replace(
        alert, remedy=remedy, commands=tuple(f"headgate switch {e} --cluster {{cluster}}" for e in ending)
    )


_ENDS = frozenset({"rollback_until_ms", "cleanup_from_ms"})
"""Until these instants nothing is deleted: after the clock was set back they stay."""


def limit_instants(value: Any, now_ms: int, name: str = "") -> Any:
    """Return a state, or a value of it, after the clock was set back: nothing happened, or is valid, after now."""
    if isinstance(value, Struct):
        fields = ((each, getattr(value, each)) for each in value.__struct_fields__)
        limited = {each: limit_instants(before, now_ms, each) for each, before in fields}
        return replace(value, **limited)
    if isinstance(value, tuple):
        return tuple(limit_instants(each, now_ms, name) for each in value)
    if isinstance(value, dict):
        return {key: limit_instants(each, now_ms, name) for key, each in value.items()}
    is_instant = isinstance(value, int) and name.endswith("_ms") and name not in _ENDS
    return min(value, now_ms) if is_instant else value


KIND = PolicyKind(
    name=NAME,
    observed={"observed.switches": OBSERVED, "commands": (SwitchCommand,)},
    decisions=(SwitchDecision, SwitchRecord),
    alerts=tuple(map(_add_holds, kinds.ALERTS)),
    inhibitions=_INHIBITIONS,
    settings=SwitchingSettings,
    state=SwitchingState,
    # An inventory counts only as a whole, and its parts come at once.
    most_step_bytes=64 * 1024 * 1024,
    state_version=1,
    build=BuiltLate("policies.switching.policy:SwitchingPolicy"),
    # No collector publishes the readings of a switch: operators, brokers and its executor do.
    written_by={
        **dict.fromkeys(OBSERVED, _EXECUTOR),
        SwitchCommand: "`headgate switch`",
        SwitchBroker: "each broker's agent",
    },
    paused_by="headgate switch pause",
    limit_instants=limit_instants,
    connectors="connectors.switching.registration:CONNECTORS",
)
