"""How a switch goes on by itself: rows 6, 12, 17, 19 and 22, and the orders for which a stage exists.

Nothing is ordered without the lease, nor while the switch is halted. Orders go out in the order of ledger ids, so many
at a time; what is irreversible is asked ledger by ledger, on observations made for it.
"""

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import StatusResult
from policies.switching.intents import ask, take_inventory, write_status
from policies.switching.references import LedgerKind
from policies.switching.state import FAILED, ClusterStatus, LedgerStage, LedgerTask, SwitchAction, SwitchStage, put
from policies.switching.transition import Transition

_COPY_ACTIONS = (SwitchAction.COPY, SwitchAction.DELETE_COPY)
_PROMOTE_ACTIONS = (SwitchAction.PROMOTE, SwitchAction.ROLL_OVER, SwitchAction.REVERT)


def go_on(transition: Transition) -> None:
    """Take the switch as far as it goes without hearing anything new."""
    while transition.state.switch is not None and not transition.switch.halted:
        stage = transition.switch.stage
        if guards.holds_lease(transition.state, transition.now_ms) or stage not in _STEPS:
            return
        _STEPS[stage](transition)
        if transition.switch.stage is stage:
            return


def _triggered(transition: Transition) -> None:
    """Row 6."""
    state, switch = transition.state, transition.switch
    if guards.all_brokers_acked(state, switch):
        if switch.blocked:
            transition.set_switch(blocked="")
        return
    why = (
        guards.none_writes_to_old(state, switch)
        or guards.future_is_disjoint(state, switch.source, switch.target)
        or guards.order_holds(state, switch)
        or guards.identities_differ(state, switch.source, switch.target)
        or ""
    )
    if why != switch.blocked:
        transition.set_switch(blocked=why)
        if why:
            transition.say(
                SwitchVerdict.BLOCKED,
                SwitchReason.NOT_READY,
                f"all brokers acked, but the switch does not go live: {why}",
            )
    if why or guards.read_since_acks(state, switch):
        return
    transition.advance(
        SwitchStage.LIVE_DUAL_READ,
        SwitchReason.ALL_ACKED,
        f"all {len(_members(transition))} brokers write to {switch.target}",
        live_ms=transition.now_ms,
        rollback_until_ms=transition.now_ms + transition.limits.rollback_window_ms,
        cleanup_from_ms=transition.now_ms
        + max(transition.limits.cleanup_after_ms, transition.limits.rollback_window_ms),
    )
    take_inventory(transition)


def _members(transition: Transition) -> tuple[str, ...]:
    return transition.state.members.brokers if transition.state.members else ()


def _build(transition: Transition) -> None:
    """Rows 8 and 12."""
    _order_copies(transition)
    if not transition.plan.count(LedgerStage.PENDING, LedgerStage.COPYING):
        built = transition.plan.count(LedgerStage.BUILT)
        transition.advance(
            SwitchStage.PROMOTE, SwitchReason.ALL_TERMINAL, f"{built} of {len(transition.plan)} ledgers are built"
        )


def _order_copies(transition: Transition) -> None:
    while transition.plan.asked(*_COPY_ACTIONS) < transition.limits.copy_concurrency:
        task = transition.plan.first(LedgerStage.PENDING)
        if task is None:
            return
        ask(transition, task, SwitchAction.COPY, SwitchReason.NEXT_IN_PLAN)


def _promote(transition: Transition) -> None:
    """Rows 12 and 17."""
    _order_copies(transition)
    while transition.plan.asked(*_PROMOTE_ACTIONS) < transition.limits.copy_concurrency:
        # One that is being promoted and of which nothing is asked was left so by a halt.
        task = transition.plan.first(LedgerStage.PROMOTING) or transition.plan.first(LedgerStage.BUILT)
        if task is None:
            break
        ask(transition, task, _way(task), SwitchReason.NEXT_IN_PLAN)
    if transition.plan.count(LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT, LedgerStage.PROMOTING):
        return
    moved = transition.plan.count(LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER)
    sentence = f"{moved} of {len(transition.plan)} ledgers are promoted; they can be taken back for a while"
    transition.advance(SwitchStage.HOLD, SwitchReason.ALL_TERMINAL, sentence, hold_ms=transition.now_ms)


def _way(task: LedgerTask) -> SwitchAction:
    return SwitchAction.ROLL_OVER if task.remap and task.kind is LedgerKind.CURSOR else SwitchAction.PROMOTE


def _rollback(transition: Transition) -> None:
    """Row 19."""
    while transition.plan.asked(*_PROMOTE_ACTIONS) < transition.limits.copy_concurrency:
        task = transition.plan.first(LedgerStage.PROMOTED) or transition.plan.first(LedgerStage.PROMOTING)
        if task is None:
            break
        ask(transition, task, SwitchAction.REVERT, SwitchReason.COMMANDED)
    if transition.plan.unfinished(LedgerStage.PROMOTED, LedgerStage.PROMOTING):
        return
    reverted = transition.plan.count(LedgerStage.REVERTED)
    sentence = f"{reverted} ledgers are attributed to {transition.switch.source}; our copies are deleted later"
    transition.advance(SwitchStage.ROLLED_BACK, SwitchReason.ALL_TERMINAL, sentence, ended_ms=transition.now_ms)


def _rolled_back(transition: Transition) -> None:
    """Row 19, the delayed part: our copies of what was taken back."""
    if guards.window_elapsed(transition.switch, transition.now_ms):
        return
    for task in list(transition.plan):
        if transition.plan.asked(SwitchAction.DELETE_COPY) >= transition.limits.max_deletions:
            return
        if not _is_left_over(task) or guards.is_recorded(task, transition.intent(task)):
            continue
        ask(transition, task, SwitchAction.DELETE_COPY, SwitchReason.WINDOW_ELAPSED)


def _is_left_over(task: LedgerTask) -> bool:
    return task.stage is LedgerStage.REVERTED and task.awaiting is SwitchAction.NONE


def _cleanup(transition: Transition) -> None:
    """Rows 20 to 22."""
    while transition.plan.asked(SwitchAction.DELETE_OLD) < transition.limits.max_deletions:
        task = transition.plan.first(LedgerStage.DELETE_INTENT) or transition.plan.first(LedgerStage.PROMOTED)
        if task is None or not _may_delete(transition, task):
            break
    busy = transition.plan.unfinished(LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT)
    if not busy and transition.switch.awaiting is SwitchAction.NONE:
        write_status(transition, SwitchAction.STATUS_OLD)


def _may_delete(transition: Transition, task: LedgerTask) -> bool:
    """Ask for a ledger's deletion, or give it up; false when nothing can be said before there is an inventory."""
    switch, inventory = transition.switch, transition.state.inventory
    if why := guards.is_unreferenced(transition.state, switch, task):
        if inventory is None or inventory.at_ms <= switch.cleanup_ms:
            return False
    elif not (why := guards.was_promoted(task)):
        ask(transition, task, SwitchAction.DELETE_OLD, SwitchReason.COMMANDED)
        return True
    after = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.NOT_READY.value)
    transition.plan.put(after)
    transition.say_of(
        after, SwitchVerdict.LEDGER, SwitchReason.NOT_READY, f"ledger {task.ledger_id} is not deleted: {why}"
    )
    return True


def status_done(transition: Transition, event: StatusResult) -> None:
    """Row 22: the old one is deprecated first, then the new one becomes active."""
    switch = transition.state.switch
    if switch is None or switch.op == 0 or event.op > switch.op:
        transition.reject(RejectCode.INVALID_TRANSITION, f"no status was to be written as {event.op}", "registry")
    elif event.op < switch.op or event.action is not switch.awaiting:
        transition.count("repeated")
    elif not event.ok:
        transition.set_switch(status_failed=True)
        _finish(transition)
    else:
        old = event.action is SwitchAction.STATUS_OLD
        name, status = (switch.source, ClusterStatus.DEPRECATED) if old else (switch.target, ClusterStatus.ACTIVE)
        entry = transition.state.entry(name)
        if entry is not None:
            transition.update(entries=put(transition.state.entries, replace(entry, status=status)))
        if old:
            write_status(transition, SwitchAction.STATUS_NEW)
        else:
            transition.update(committed_epoch=switch.epoch)
            _finish(transition)


def _finish(transition: Transition) -> None:
    left = transition.plan.count(*FAILED) + transition.plan.asked(SwitchAction.GIVEN_UP)
    switch = transition.switch
    failed = bool(left) or switch.status_failed
    moved = f"{switch.target} holds what {switch.source} did"
    trouble = f"{left} ledgers stay behind" if left else "a status could not be written"
    transition.advance(
        SwitchStage.DONE_WITH_FAILURES if failed else SwitchStage.DONE,
        SwitchReason.STATUS_FAILED if switch.status_failed else SwitchReason.ALL_TERMINAL,
        f"the switch is done with failures: {trouble}" if failed else f"the switch is done: {moved}",
        ended_ms=transition.now_ms, awaiting=SwitchAction.NONE,
    )  # fmt: skip
    if not failed:
        transition.settle_plan()


_STEPS = {
    SwitchStage.TRIGGERED: _triggered,
    SwitchStage.BUILD: _build,
    SwitchStage.PROMOTE: _promote,
    SwitchStage.ROLLBACK: _rollback,
    SwitchStage.ROLLED_BACK: _rolled_back,
    SwitchStage.CLEANUP: _cleanup,
}
