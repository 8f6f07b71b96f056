"""The counterfactuals of a decision: what ends an order or a refusal, and else what ends the most urgent hold."""

from policies.decisions import Otherwise
from policies.switching.decisions import ORDERS, SwitchDecision, SwitchVerdict
from policies.switching.judge.holds import Hold

_ADVANCE, _HALT = SwitchVerdict.ADVANCE.value, SwitchVerdict.HALT.value


def counterfactuals(decision: SwitchDecision, hold: Hold | None) -> tuple[Otherwise, ...]:
    """Return what would lead to another verdict.

    Args:
        hold: the most urgent hold after its step; None if nothing holds a switch up.
    """
    if decision.code is not None:
        return (Otherwise(_ADVANCE, f"this no longer holds: {decision.code.meaning}"),)
    if decision.verdict in ORDERS:
        done = f"an executor answers order {decision.op} that it is done" if decision.op else "the registry shows it"
        return Otherwise(_ADVANCE, done), Otherwise(_HALT, "it fails too often, or what is found is not as expected")
    if decision.verdict is SwitchVerdict.REMAP_REQUIRED:
        remap = "its id is free in the target, or `strategies` lets its kind be remapped"
        return (Otherwise(SwitchVerdict.START_COPY.value, remap),)
    if decision.verdict is SwitchVerdict.PREVIEW:
        return (Otherwise(_ADVANCE, "it is asked for without --dry-run"),)
    return hold_counterfactuals(hold)


def hold_counterfactuals(hold: Hold | None) -> tuple[Otherwise, ...]:
    """Return what ends a hold; without one, the switch goes on by itself, or an operator begins one."""
    if hold is None:
        return (Otherwise(_ADVANCE, "this stage is done, or an operator commands it"),)
    return (Otherwise(_ADVANCE, f"this ends: {hold.why} ({hold.ends_with})"),)
