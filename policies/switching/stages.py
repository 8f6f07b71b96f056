"""How a switch goes on by itself: rows 6, 12, 17, 19 and 22, and the orders for which a stage exists.

Nothing is ordered without the lease, nor while the switch is halted. Orders go out in the order of ledger ids, so many
at a time; what is irreversible is asked ledger by ledger, on observations made for it.
"""

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.events import StatusDone
from policies.switching.intents import ask, take_inventory, write_status
from policies.switching.orders import Code, Verdict, Why
from policies.switching.references import Kind
from policies.switching.state import FAILED, Action, LedgerStage, Stage, Status, Unit, put
from policies.switching.turn import Turn

_COPY_ACTIONS = (Action.COPY, Action.DELETE_COPY)
_PROMOTE_ACTIONS = (Action.PROMOTE, Action.ROLL_OVER, Action.REVERT)


def go_on(turn: Turn) -> None:
    """Take the switch as far as it goes without hearing anything new."""
    while turn.state.switch is not None and not turn.switch.halted:
        stage = turn.switch.stage
        if guards.holds_lease(turn.state, turn.now_ms) or stage not in _STEPS:
            return
        _STEPS[stage](turn)
        if turn.switch.stage is stage:
            return


def _triggered(turn: Turn) -> None:
    """Row 6."""
    state, switch = turn.state, turn.switch
    if guards.all_brokers_acked(state, switch):
        if switch.blocked:
            turn.set_switch(blocked="")
        return
    why = (
        guards.none_writes_to_old(state, switch)
        or guards.future_is_disjoint(state, switch.source, switch.target)
        or guards.order_holds(state, switch)
        or guards.identities_differ(state, switch.source, switch.target)
        or ""
    )
    if why != switch.blocked:
        turn.set_switch(blocked=why)
        if why:
            turn.say(Verdict.BLOCKED, Why.NOT_READY, f"all brokers acked, but the switch does not go live: {why}")
    if why or guards.read_since_acks(state, switch):
        return
    turn.advance(
        Stage.LIVE_DUAL_READ, Why.ALL_ACKED, f"all {len(_members(turn))} brokers write to {switch.target}",
        live_ms=turn.now_ms, rollback_until_ms=turn.now_ms + turn.limits.rollback_window_ms,
        cleanup_from_ms=turn.now_ms + max(turn.limits.cleanup_after_ms, turn.limits.rollback_window_ms),
    )  # fmt: skip
    take_inventory(turn)


def _members(turn: Turn) -> tuple[str, ...]:
    return turn.state.members.brokers if turn.state.members else ()


def _build(turn: Turn) -> None:
    """Rows 8 and 12."""
    _order_copies(turn)
    if not turn.plan.count(LedgerStage.PENDING, LedgerStage.COPYING):
        built = turn.plan.count(LedgerStage.BUILT)
        turn.advance(Stage.PROMOTE, Why.ALL_TERMINAL, f"{built} of {len(turn.plan)} ledgers are built")


def _order_copies(turn: Turn) -> None:
    while turn.plan.asked(*_COPY_ACTIONS) < turn.limits.copy_concurrency:
        unit = turn.plan.first(LedgerStage.PENDING)
        if unit is None:
            return
        ask(turn, unit, Action.COPY, Why.NEXT_IN_PLAN)


def _promote(turn: Turn) -> None:
    """Rows 12 and 17."""
    _order_copies(turn)
    while turn.plan.asked(*_PROMOTE_ACTIONS) < turn.limits.copy_concurrency:
        # One that is being promoted and of which nothing is asked was left so by a halt.
        unit = turn.plan.first(LedgerStage.PROMOTING) or turn.plan.first(LedgerStage.BUILT)
        if unit is None:
            break
        ask(turn, unit, _way(unit), Why.NEXT_IN_PLAN)
    if turn.plan.count(LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT, LedgerStage.PROMOTING):
        return
    moved = turn.plan.count(LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER)
    sentence = f"{moved} of {len(turn.plan)} ledgers are promoted; they can be taken back for a while"
    turn.advance(Stage.HOLD, Why.ALL_TERMINAL, sentence, hold_ms=turn.now_ms)


def _way(unit: Unit) -> Action:
    return Action.ROLL_OVER if unit.remap and unit.kind is Kind.CURSOR else Action.PROMOTE


def _rollback(turn: Turn) -> None:
    """Row 19."""
    while turn.plan.asked(*_PROMOTE_ACTIONS) < turn.limits.copy_concurrency:
        unit = turn.plan.first(LedgerStage.PROMOTED) or turn.plan.first(LedgerStage.PROMOTING)
        if unit is None:
            break
        ask(turn, unit, Action.REVERT, Why.COMMANDED)
    if turn.plan.unfinished(LedgerStage.PROMOTED, LedgerStage.PROMOTING):
        return
    reverted = turn.plan.count(LedgerStage.REVERTED)
    sentence = f"{reverted} ledgers are attributed to {turn.switch.source}; our copies are deleted later"
    turn.advance(Stage.ROLLED_BACK, Why.ALL_TERMINAL, sentence, ended_ms=turn.now_ms)


def _rolled_back(turn: Turn) -> None:
    """Row 19, the delayed part: our copies of what was taken back."""
    if guards.window_elapsed(turn.switch, turn.now_ms):
        return
    for unit in list(turn.plan):
        if turn.plan.asked(Action.DELETE_COPY) >= turn.limits.max_deletions:
            return
        if not _is_left_over(unit) or guards.is_recorded(unit, turn.intent(unit)):
            continue
        ask(turn, unit, Action.DELETE_COPY, Why.WINDOW_ELAPSED)


def _is_left_over(unit: Unit) -> bool:
    return unit.stage is LedgerStage.REVERTED and unit.awaiting is Action.NONE


def _cleanup(turn: Turn) -> None:
    """Rows 20 to 22."""
    while turn.plan.asked(Action.DELETE_OLD) < turn.limits.max_deletions:
        unit = turn.plan.first(LedgerStage.DELETE_INTENT) or turn.plan.first(LedgerStage.PROMOTED)
        if unit is None or not _may_delete(turn, unit):
            break
    busy = turn.plan.unfinished(LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT)
    if not busy and turn.switch.awaiting is Action.NONE:
        write_status(turn, Action.STATUS_OLD)


def _may_delete(turn: Turn, unit: Unit) -> bool:
    """Ask for a ledger's deletion, or give it up; false when nothing can be said before there is an inventory."""
    switch, attributed = turn.switch, turn.state.attributed
    if why := guards.is_unreferenced(turn.state, switch, unit):
        if attributed is None or attributed.at_ms <= switch.cleanup_ms:
            return False
    elif not (why := guards.was_promoted(unit)):
        ask(turn, unit, Action.DELETE_OLD, Why.COMMANDED)
        return True
    after = replace(unit, awaiting=Action.GIVEN_UP, reason=Why.NOT_READY.value)
    turn.plan.put(after)
    turn.say_of(after, Verdict.LEDGER, Why.NOT_READY, f"ledger {unit.ledger_id} is not deleted: {why}")
    return True


def status_done(turn: Turn, event: StatusDone) -> None:
    """Row 22: the old one is deprecated first, then the new one becomes active."""
    switch = turn.state.switch
    if switch is None or switch.op == 0 or event.op > switch.op:
        turn.reject(Code.INVALID_TRANSITION, f"no status was to be written as {event.op}", "registry")
    elif event.op < switch.op or event.action is not switch.awaiting:
        turn.count("repeated")
    elif not event.ok:
        turn.set_switch(status_failed=True)
        _finish(turn)
    else:
        old = event.action is Action.STATUS_OLD
        name, status = (switch.source, Status.DEPRECATED) if old else (switch.target, Status.ACTIVE)
        entry = turn.state.entry(name)
        if entry is not None:
            turn.update(entries=put(turn.state.entries, replace(entry, status=status)))
        if old:
            write_status(turn, Action.STATUS_NEW)
        else:
            turn.update(committed_epoch=switch.epoch)
            _finish(turn)


def _finish(turn: Turn) -> None:
    left = turn.plan.count(*FAILED) + turn.plan.asked(Action.GIVEN_UP)
    switch = turn.switch
    failed = bool(left) or switch.status_failed
    moved = f"{switch.target} holds what {switch.source} did"
    trouble = f"{left} ledgers stay behind" if left else "a status could not be written"
    turn.advance(
        Stage.DONE_WITH_FAILURES if failed else Stage.DONE,
        Why.STATUS_FAILED if switch.status_failed else Why.ALL_TERMINAL,
        f"the switch is done with failures: {trouble}" if failed else f"the switch is done: {moved}",
        ended_ms=turn.now_ms, awaiting=Action.NONE,
    )  # fmt: skip
    if not failed:
        turn.settle_plan()


_STEPS = {
    Stage.TRIGGERED: _triggered,
    Stage.BUILD: _build,
    Stage.PROMOTE: _promote,
    Stage.ROLLBACK: _rollback,
    Stage.ROLLED_BACK: _rolled_back,
    Stage.CLEANUP: _cleanup,
}
