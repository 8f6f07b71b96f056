"""What a switch waits for: each wait has a bound, after which it is an alert, and the command that ends it.

Alerts, the record of the switch and `headgate switch status` are made from this list. `alerts` has the conditions
that are an alert at once: a halt, a contested registry, a missing lease, a broker that does not follow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.settings import DAY_MS
from policies.switching.state import REVERSIBLE, UNDONE, Switch, SwitchAction, SwitchStage

_ANSWER_MS = 600_000
"""The bound of an inventory or of an answer: both take minutes at most, with the largest fleets that were measured."""
_STATUSES = (SwitchAction.STATUS_OLD, SwitchAction.STATUS_NEW)
_NOT_OPEN = (SwitchAction.NONE, SwitchAction.GIVEN_UP, SwitchAction.SETTLED, SwitchAction.INVENTORY)
_OPEN = tuple(action for action in SwitchAction if action not in _NOT_OPEN)
_LEFT_THERE = UNDONE | {SwitchStage.REJECTED}


@dataclass(frozen=True, slots=True)
class SwitchWait:
    """One wait of a switch."""

    name: str
    why: str
    """What it waits for, as the end of "the switch waits"."""
    since_ms: int
    bound_ms: int
    ends_with: str
    """The commands that end it, of which at least one is accepted."""

    @property
    def due_ms(self) -> int:
        """When it becomes an alert."""
        return self.since_ms + self.bound_ms


def find_holds(facts: SwitchFacts) -> Iterator[SwitchWait]:
    """Return the waits of the last switch, the most urgent one first."""
    switch = facts.state.switch
    if switch is not None:
        # A state of an earlier version has no time of a pause or of a stage.
        waits = _find_waits(facts, switch)
        yield from (replace(wait, since_ms=max(wait.since_ms, switch.started_ms)) for wait in waits)


def _find_waits(facts: SwitchFacts, switch: Switch) -> Iterator[SwitchWait]:
    yield from _find_return(facts, switch)
    yield from _find_pause(facts, switch)
    if facts.stands_still:
        return
    if needs_inventory(facts) and switch.stage not in UNDONE:
        since_ms = max(switch.stage_ms, switch.confirm_ms, switch.started_ms, switch.recovering_ms)
        why = "for a complete inventory of all references: the executor's log names what it cannot read"
        yield SwitchWait("inventory", why, since_ms, _ANSWER_MS, _name_way(facts, needs_inventory=True))
    open_orders = facts.plan.count_ordered(*_OPEN) + (switch.awaiting in _STATUSES)
    if open_orders and switch.stage is not SwitchStage.ABORTED:
        why = f"for the executor's answers to {open_orders} orders"
        since_ms, ways = max(switch.progress_ms, switch.stage_ms), f"`pause` or {_name_way(facts)}"
        yield SwitchWait("answers", why, since_ms, _ANSWER_MS, ways)
    away, home = facts.state.active(), facts.state.committed()
    if switch.stage in _LEFT_THERE and away != home:
        why = f"while brokers write to {away}, which the registry does not show as active"
        ways = f"`rollback --with-brokers` (back to {home}) or `start --target {away}` (completes their move)"
        ways = ways if home is not None else f"`register --name {away} --status active`"
        yield SwitchWait("brokers-left", why, switch.ended_ms, DAY_MS, ways)
    if switch.stage is SwitchStage.HOLD:
        bound_ms = switch.cleanup_from_ms - switch.hold_ms + DAY_MS
        yield SwitchWait("hold", "in hold for an operator", switch.hold_ms, bound_ms, "`cleanup --execute` or `end`")


def _name_way(facts: SwitchFacts, *, needs_inventory: bool = False) -> str:
    """Name the commands that end a switch at its stage; some only lead to a stage that waits for an inventory, too."""
    is_reversible, is_recovering = facts.switch.stage in REVERSIBLE, facts.switch.recovering_ms >= 0
    is_final = bool(guards.before_rollback_end(facts) or guards.no_delete_intent(facts))
    first = "`end`" if is_reversible and is_final else "`abort`"
    is_step = needs_inventory and is_reversible and (is_final or is_recovering)
    return f"{first}, then `abort`" if is_step else first


def _find_return(facts: SwitchFacts, switch: Switch) -> Iterator[SwitchWait]:
    """Brokers are to go back, and do not yet."""
    if switch.blocked and (switch.returning or switch.stage is SwitchStage.ROLLBACK):
        since_ms = max(switch.stage_ms, switch.started_ms, facts.state.directed_ms)
        why = f"to send brokers back: {switch.blocked}"
        yield SwitchWait("return", why, since_ms, facts.limits.ack_timeout_ms, "`abort`")


def _find_pause(facts: SwitchFacts, switch: Switch) -> Iterator[SwitchWait]:
    if not switch.paused:
        return
    is_between = switch.stage is SwitchStage.TRIGGERED or (
        switch.stage is SwitchStage.ROLLBACK and not switch.attribution_only
    )
    if is_between and guards.brokers_follow(facts) is not None:
        why = "paused while brokers are between two clusters: topics that move between them may get lower ids"
        yield SwitchWait("pause", why, switch.paused_ms, facts.limits.ack_timeout_ms, "`resume`")
    else:
        yield SwitchWait("pause", "paused by an operator", switch.paused_ms, DAY_MS, "`resume`")


def needs_inventory(facts: SwitchFacts) -> bool:
    """Whether the switch cannot go on without an inventory that it does not have."""
    switch = facts.switch
    if switch.recovering_ms >= 0:
        return True
    match switch.stage:
        case SwitchStage.LIVE_DUAL_READ:
            return True
        case SwitchStage.BUILD:
            return facts.awaits_unplanned
        case SwitchStage.ROLLBACK:
            return switch.confirm_ms >= 0 and facts.rollback_is_unconfirmed
        case SwitchStage.CLEANUP:
            return facts.inventory_is_old
    return False
