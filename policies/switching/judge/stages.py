"""Automatic progress of a switch: rows 6, 12, 17, 19 and 22, and the orders that each stage gives.

Nothing is ordered without the lease, while the switch is halted or paused, or while a foreign directive is in force.
Orders are given by ascending ledger id, a limited number at a time; irreversible steps are ordered ledger by ledger, on
observations made for that ledger.
"""

from collections.abc import Callable

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.events import open_new_clients
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import SwitchStatus
from policies.switching.state import UNDELETED, UNREVERTED, ClusterStatus, LedgerStage, SwitchAction, SwitchStage
from policies.switching.transition import Transition
from policies.units import counted_with, millis_of, name_some

_COPY_ACTIONS = (SwitchAction.COPY, SwitchAction.DELETE_COPY)
_NEEDS_BOTH = frozenset({SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.CLEANUP})
_OPEN = tuple(action for action in SwitchAction if action not in (SwitchAction.NONE, SwitchAction.SETTLED))
_PROMOTE_ACTIONS = (SwitchAction.PROMOTE, SwitchAction.ROLL_OVER, SwitchAction.REVERT)


def advance(facts: SwitchFacts, step: Transition) -> None:
    """Order the next steps of the switch, which need no new event; order nothing while the switch must wait."""
    switch = facts.state.switch
    if switch is None or facts.stands_still or guards.refuse_without_lease(facts):
        return
    if switch.recovering_ms >= 0:
        _ask_for_plan(facts, step)
    elif facts.needs_new_clients:
        open_new_clients(facts, SwitchReason.NOT_READY, step)
    elif switch.stage in _ROWS:
        has_impostor = bool({switch.source, switch.target}.intersection(facts.state.impostors))
        # An impostor must not get copies, nor stand for the cluster that has them.
        if switch.stage not in _NEEDS_BOTH or switch.kept or not has_impostor:
            _ROWS[switch.stage](facts, step)


def _ask_for_plan(facts: SwitchFacts, step: Transition) -> None:
    """After a lost checkpoint: order an inventory once both clusters are read; nothing else is ordered before it."""
    if facts.switch.awaiting is SwitchAction.NONE and facts.source_instance and facts.target_instance:
        step.update_switch(awaiting=SwitchAction.INVENTORY)
        step.take_inventory()


def _block(facts: SwitchFacts, why: str, sentence: str, step: Transition) -> None:
    """Record what blocks the switch; an empty reason unblocks it. Only a new reason is published."""
    if why != facts.switch.blocked:
        step.update_switch(blocked=why)
        if why:
            step.publish(SwitchVerdict.BLOCKED, SwitchReason.NOT_READY, sentence)


# --- going live (row 6)


def _triggered(facts: SwitchFacts, step: Transition) -> None:
    if facts.unreachable_before_moves:
        _reject(facts, step)
        return
    if guards.refuse_missing_acks(facts):
        _block(facts, "", "", step)
        return
    switch, limits, now_ms = facts.switch, facts.limits, facts.now_ms
    ids_collide = None if switch.bypassed else guards.refuse_taken_ids(facts, switch.source, switch.target)
    order_breaks = None if switch.bypassed else guards.refuse_broken_order(facts)
    unlike = guards.refuse_same_identity(facts, switch.source, switch.target)
    why = guards.refuse_writes_elsewhere(facts) or unlike or ""
    if not why and (ids_collide or order_breaks):
        _wait_for_ids(facts, ids_collide, order_breaks, step)
        return
    _block(facts, why, f"all brokers acked, but the switch does not go live: {why}", step)
    if why or guards.refuse_early_readings(facts):
        return
    count = len(facts.live_brokers)
    sentence = f"{'all ' if count > 1 else ''}{counted_with(count, 'broker', 'writes', 'write')} to {switch.target}"
    step.advance(
        SwitchStage.LIVE_DUAL_READ, SwitchReason.ALL_ACKED, sentence, live_ms=now_ms,
        rollback_until_ms=now_ms + millis_of(limits.rollback_window),
        cleanup_from_ms=now_ms + millis_of(max(limits.cleanup_after, limits.rollback_window)),
    )  # fmt: skip
    step.take_inventory()


def _wait_for_ids(facts: SwitchFacts, ids_collide: str | None, order_breaks: str | None, step: Transition) -> None:
    """Row 6, ids: wait for the ``HOB`` that the reason names; INV-3 needs only clients that are opened from now on.

    A client that is open remembers the lower ``HOB``, so a remedy counts only for clients opened since.
    """
    why = ids_collide or order_breaks or ""
    _block(facts, why, f"all brokers acked, but the switch does not go live: {why}", step)
    if not ids_collide and facts.generator(facts.switch.target) is not None:
        open_new_clients(facts, SwitchReason.NOT_READY, step)


def _reject(facts: SwitchFacts, step: Transition) -> None:
    """Row 7: a broker cannot make its client, and none has moved. Brokers return once they get greater ids there."""
    switch, reason = facts.switch, SwitchReason.CLIENT_INIT_FAILED
    if switch.home != switch.target and (why := _find_obstacle_to_return(facts)):
        _block(facts, why, f"brokers do not go back to {switch.home} yet: {why}", step)
        return
    failing = name_some([found.broker for found in facts.unreachable_before_moves])
    sentence = f"{failing} cannot reach {switch.target}; no broker said that it moved, so none will"
    step.advance(SwitchStage.REJECTED, reason, sentence, ended_ms=facts.now_ms, blocked="")
    step.direct_brokers(reason, switch.home)


# --- copying and promoting (rows 8, 12 and 17)


def _build(facts: SwitchFacts, step: Transition) -> None:
    _order_copies(facts, step)
    if not facts.plan.count(LedgerStage.PENDING, LedgerStage.COPYING) and not facts.awaits_unplanned:
        sentence = f"{facts.plan.count(LedgerStage.BUILT)} of {len(facts.plan)} ledgers are built"
        step.advance(SwitchStage.PROMOTE, SwitchReason.ALL_TERMINAL, sentence)


def _order_copies(facts: SwitchFacts, step: Transition) -> None:
    free = facts.limits.window - facts.plan.count_ordered(*_COPY_ACTIONS)
    for task in facts.plan.idle(free, LedgerStage.PENDING):
        step.order_ledger(task, SwitchReason.NEXT_IN_PLAN, SwitchAction.COPY)


def _promote(facts: SwitchFacts, step: Transition) -> None:
    _order_copies(facts, step)
    free = facts.limits.window - facts.plan.count_ordered(*_PROMOTE_ACTIONS)
    # A halt leaves ledgers at `promoting` without an order.
    for task in facts.plan.idle(free, LedgerStage.PROMOTING, LedgerStage.BUILT):
        rolls_over = task.remap and task.kind is LedgerKind.CURSOR
        action = SwitchAction.ROLL_OVER if rolls_over else SwitchAction.PROMOTE
        step.order_ledger(task, SwitchReason.NEXT_IN_PLAN, action)
    if facts.plan.count(LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT, LedgerStage.PROMOTING):
        return
    moved = facts.plan.count(LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER)
    sentence = f"{moved} of {len(facts.plan)} ledgers are promoted; they can be taken back for a while"
    step.advance(SwitchStage.HOLD, SwitchReason.ALL_TERMINAL, sentence, hold_ms=facts.now_ms)


# --- taking back (row 19)


def _rollback(facts: SwitchFacts, step: Transition) -> None:
    is_away = not facts.switch.attribution_only and guards.refuse_brokers_away(facts) is not None
    if is_away:
        _send_home(facts, step)
    free = facts.limits.window - facts.plan.count_ordered(*_PROMOTE_ACTIONS)
    unfinished = facts.plan.count_unfinished(*UNREVERTED)
    for task in facts.plan.idle(free, *UNREVERTED):
        if why := guards.refuse_missing_source(facts, task):
            step.put(replace(task, awaiting=SwitchAction.GIVEN_UP, reason=why))
        else:
            step.order_ledger(task, SwitchReason.COMMANDED, SwitchAction.REVERT)
    if unfinished or is_away:
        return
    _block(facts, "", "", step)
    if facts.switch.confirm_ms < 0:
        step.update_switch(confirm_ms=facts.now_ms)
        step.take_inventory()
    elif not facts.rollback_is_unconfirmed:
        _end_rollback(facts, step)


def _send_home(facts: SwitchFacts, step: Transition) -> None:
    """Direct brokers home once it is known that they get greater ids there; then wait for each of them."""
    directive, home = facts.state.directive, facts.switch.home
    if directive is not None and directive.target == home:
        _block(facts, "", "", step)
    elif why := _find_obstacle_to_return(facts):
        _block(facts, why, f"brokers do not go back to {home} yet: {why}", step)
    else:
        _block(facts, "", "", step)
        step.direct_brokers(SwitchReason.COMMANDED, home)


def _find_obstacle_to_return(facts: SwitchFacts) -> str:
    return (
        guards.refuse_unread_ids(facts, facts.switch.home)
        or guards.refuse_lower_ids_at_home(facts, facts.switch.home)
        or ""
    )


def _end_rollback(facts: SwitchFacts, step: Transition) -> None:
    """End the rollback, and name everything that was not taken back."""
    switch = facts.switch
    kept = [t.paths[0] for t in facts.plan.at(*UNREVERTED)]
    over = [t.paths[0] for t in facts.plan.at(LedgerStage.PROMOTED_VIA_ROLLOVER)]
    back = switch.settled.get(LedgerStage.REVERTED, 0) + facts.plan.count(LedgerStage.REVERTED)
    parts = [f"{counted_with(back, 'ledger', 'is', 'are')} attributed to {switch.source}"]
    parts += [f"given up: {name_some(kept)}"] if kept else []
    parts += [f"rolled over, so they stay in {switch.target}: {name_some(over)}"] if over else []
    if switch.unplanned_count:
        name = counted_with(switch.unplanned_count, "reference", "names", "name")
        parts.append(f"{name} {switch.target}: {name_some(switch.unplanned)}")
    sentence = "; ".join(parts if kept else [*parts, "our copies are deleted later"])
    stage = SwitchStage.ROLLED_BACK_WITH_FAILURES if kept else SwitchStage.ROLLED_BACK
    step.advance(stage, SwitchReason.ALL_TERMINAL, sentence, ended_ms=facts.now_ms)


def _delete_copies(facts: SwitchFacts, step: Transition) -> None:
    """Delete our copies of reverted ledgers once the window is over (INV-7); then settle the plan."""
    free = facts.limits.max_deletions - facts.plan.count_ordered(SwitchAction.DELETE_COPY)
    if free <= 0 or not facts.plan.count(LedgerStage.REVERTED) or guards.refuse_early_cleanup(facts):
        return
    found = facts.plan.idle(free, LedgerStage.REVERTED)
    for task in found:
        if task.copied and not guards.refuse_shared_copy(facts, task):
            step.order_ledger(task, SwitchReason.WINDOW_ELAPSED, SwitchAction.DELETE_COPY)
        else:
            step.put(replace(task, awaiting=SwitchAction.SETTLED))
    if not found and not facts.plan.count_ordered(*_OPEN) and not facts.plan.count(*UNREVERTED):
        step.settle()


# --- clean-up (rows 20 to 22)


def _cleanup(facts: SwitchFacts, step: Transition) -> None:
    if facts.switch.kept:
        is_idle = facts.switch.awaiting is SwitchAction.NONE and not facts.plan.count_ordered(SwitchAction.DELETE_OLD)
        if is_idle and not facts.inventory_is_old:
            step.write_status()
        return
    behind = guards.refuse_straying_brokers(facts)
    _block(facts, behind or "", f"the clean-up waits: {behind}", step)
    if behind:
        return
    free, busy = facts.limits.max_deletions - facts.plan.count_ordered(SwitchAction.DELETE_OLD), False
    for task in facts.plan.idle(free, LedgerStage.DELETE_INTENT, LedgerStage.PROMOTED):
        busy = True
        if why := guards.refuse_referenced_ledger(facts, task) or guards.refuse_unpromoted(task):
            if facts.inventory_is_old:
                return
            kept = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.NOT_READY.value)
            step.put(kept)
            sentence = f"ledger {task.ledger_id} is not deleted: {why}"
            step.publish_ledger(kept, SwitchVerdict.LEDGER, SwitchReason.NOT_READY, sentence)
        else:
            step.order_ledger(task, SwitchReason.COMMANDED, SwitchAction.DELETE_OLD)
    busy = busy or bool(facts.plan.count_unfinished(LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT))
    if busy or facts.switch.awaiting is not SwitchAction.NONE or facts.inventory_is_old:
        return
    if facts.switch.status_attempt == facts.switch.attempt:
        _finish(facts, step, status_failed=facts.switch.status_failed)
    else:
        step.write_status()


def judge_status(facts: SwitchFacts, result: SwitchStatus, step: Transition) -> None:
    """Row 22: one transaction makes the target active and the source deprecated."""
    switch = facts.state.switch
    if switch is None or switch.op == 0 or result.op > switch.op:
        sentence = f"no status was to be written as {result.op}"
        step.reject(RejectCode.INVALID_TRANSITION, sentence, "registry")
    elif result.op < switch.op or switch.awaiting is SwitchAction.NONE:
        return  # it was answered before
    elif not result.written:
        step.update_switch(status_failed=True)
        _finish(facts, step, status_failed=True)
    else:
        statuses = {switch.source: ClusterStatus.DEPRECATED, switch.target: ClusterStatus.ACTIVE}
        entries = tuple(replace(e, status=statuses.get(e.name, e.status)) for e in facts.state.entries)
        step.update(entries=entries, committed_epoch=switch.epoch)
        if guards.refuse_straying_brokers(facts) and not switch.kept:
            step.update_switch(awaiting=SwitchAction.NONE, status_attempt=switch.attempt)
        else:
            _finish(facts, step, status_failed=switch.status_failed)


def _finish(facts: SwitchFacts, step: Transition, *, status_failed: bool) -> None:
    switch, left = facts.switch, facts.left_behind
    reason = SwitchReason.STATUS_FAILED if status_failed else SwitchReason.ALL_TERMINAL
    trouble: list[str] = []
    stay = [str(t.ledger_id) for t in facts.plan.at(*UNDELETED)] if switch.kept else []
    are = counted_with(len(stay), "ledger", "is", "are")
    kept = f"; {are} kept in {switch.source}: {name_some(stay)}" if stay else ""
    if left:
        trouble.append(counted_with(left, "ledger", "stays", "stay") + " behind")
    if status_failed:
        trouble.append("a status could not be written")
    if switch.kept and (behind := guards.refuse_straying_brokers(facts)):
        trouble.append(behind)
    if switch.unplanned_count:
        name = counted_with(switch.unplanned_count, "reference", "names", "name")
        trouble.append(f"{name} {switch.source} that nobody planned for: {name_some(switch.unplanned)}")
    stage = SwitchStage.DONE_WITH_FAILURES if trouble else SwitchStage.DONE
    result = f" with failures: {'; '.join(trouble)}" if trouble else f": {switch.target} holds what {switch.source} did"
    sentence = f"the switch is done{result}{kept}"
    step.advance(stage, reason, sentence, ended_ms=facts.now_ms, awaiting=SwitchAction.NONE)
    if not trouble:
        step.settle()


_ROWS: dict[SwitchStage, Callable[[SwitchFacts, Transition], None]] = {
    SwitchStage.TRIGGERED: _triggered,
    SwitchStage.BUILD: _build,
    SwitchStage.PROMOTE: _promote,
    SwitchStage.ROLLBACK: _rollback,
    SwitchStage.ROLLED_BACK: _delete_copies,
    SwitchStage.ROLLED_BACK_WITH_FAILURES: _delete_copies,
    SwitchStage.ABORTED: _delete_copies,
    SwitchStage.CLEANUP: _cleanup,
}
