"""Automatic progress of a switch: rows 6, 12, 17, 19 and 22, and the orders that each stage gives.

Nothing is ordered without the lease, while the switch is halted or paused, or while a foreign directive is in force.
Orders are given by ascending ledger id, a limited number at a time; irreversible steps are ordered ledger by ledger, on
observations made for that ledger.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import StatusResult
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    AskExecutor,
    Change,
    Count,
    DecisionDraft,
    DirectBrokers,
    PutTask,
    Reject,
    SettlePlan,
    TakeInventory,
    Update,
    UpdateSwitch,
    WriteStatus,
    of_ledger,
)
from policies.switching.judge.ways_out import roll_back
from policies.switching.references import LedgerKind
from policies.switching.state import ClusterStatus, LedgerStage, LedgerTask, SwitchAction, SwitchStage, put
from policies.switching.watch import LIVE, Deviation, awaited, named
from policies.units import counted_with

_COPY_ACTIONS = (SwitchAction.COPY, SwitchAction.DELETE_COPY)
_UNDOABLE = LIVE - {SwitchStage.CLEANUP, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES} | {SwitchStage.TRIGGERED}
_ANY_ACTION = tuple(action for action in SwitchAction if action is not SwitchAction.NONE)
_NOT_TAKEN_BACK = (LedgerStage.PROMOTED, LedgerStage.PROMOTING)
_PROMOTE_ACTIONS = (SwitchAction.PROMOTE, SwitchAction.ROLL_OVER, SwitchAction.REVERT)


def go_on(facts: SwitchFacts) -> Iterator[Change]:
    """What the switch does next without hearing anything new; nothing when it must wait."""
    switch = facts.state.switch
    if switch is None or facts.stands_still or guards.holds_lease(facts):
        return iter(())
    if why := _must_be_undone(facts):
        return _undo(facts, why)
    step = _STEPS.get(switch.stage)
    return step(facts) if step else iter(())


def _triggered(facts: SwitchFacts) -> Iterator[Change]:
    """Row 6."""
    if guards.all_brokers_acked(facts):
        yield from _blocked(facts, "", "")
        return
    why = _not_ready(facts)
    yield from _blocked(facts, why, f"all brokers acked, but the switch does not go live: {why}")
    if not why and not guards.read_since_acks(facts):
        yield _go_live(facts)
        yield TakeInventory()


def _blocked(facts: SwitchFacts, why: str, sentence: str) -> Iterator[Change]:
    """What is in the way is said when it begins or becomes another."""
    if why != facts.switch.blocked:
        yield UpdateSwitch({"blocked": why})
        if why:
            yield DecisionDraft(SwitchVerdict.BLOCKED, SwitchReason.NOT_READY, sentence)


def _must_be_undone(facts: SwitchFacts) -> str:
    """Why brokers cannot follow, where the settings say that this undoes the switch, and undoing takes from nobody.

    Once all followed, one that is late is an alert; one that cannot make its client has nowhere to write.
    """
    stage = facts.switch.stage
    if not facts.limits.automatic_rollback or stage not in _UNDOABLE or guards.it_is_known_what_target_gave(facts):
        return ""
    is_live = stage is not SwitchStage.TRIGGERED
    late = tuple(d for d in awaited(facts.state) if (d.cannot or not is_live) and facts.now_ms >= _due_ms(facts, d))
    if not late or (not is_live and facts.cluster_read_ms(facts.switch.target) < min(_due_ms(facts, d) for d in late)):
        return ""  # some may have followed, and nobody heard of it, since what the target gave was last read
    may_not = guards.way_back_is_beyond(facts, facts.switch.home) or (is_live and guards.before_rollback_end(facts))
    return "" if may_not else named(late)


def _due_ms(facts: SwitchFacts, found: Deviation) -> int:
    """When a broker should have followed; one that cannot, before the switch is live, is not waited for."""
    at_once = found.cannot and facts.switch.stage is SwitchStage.TRIGGERED
    return found.since_ms + (0 if at_once else facts.limits.ack_timeout_ms)


def _undo(facts: SwitchFacts, why: str) -> Iterator[Change]:
    sentence = f"the switch to {facts.switch.target} is undone by itself: {why}"
    stay = facts.switch.home == facts.switch.target
    return roll_back(facts, sentence, SwitchReason.AUTOMATIC, attribution_only=stay)


def _not_ready(facts: SwitchFacts) -> str:
    """Why a switch that all brokers follow must not go live; empty when it may."""
    source, target = facts.switch.source, facts.switch.target
    bypassed = facts.switch.bypassed
    return (
        guards.none_writes_to_old(facts)
        or (None if bypassed else guards.future_is_disjoint(facts, source, target) or guards.order_holds(facts))
        or guards.identities_differ(facts, source, target)
        or ""
    )


def _go_live(facts: SwitchFacts) -> Advance:
    now_ms, limits = facts.now_ms, facts.limits
    count = len(facts.live_brokers(facts.switch.started_ms + 1))
    sentence = (
        f"{'all ' if count > 1 else ''}{counted_with(count, 'broker', 'writes', 'write')} to {facts.switch.target}"
    )
    windows = {
        "live_ms": now_ms,
        "rollback_until_ms": now_ms + limits.rollback_window_ms,
        "cleanup_from_ms": now_ms + max(limits.cleanup_after_ms, limits.rollback_window_ms),
    }
    return Advance(SwitchStage.LIVE_DUAL_READ, SwitchReason.ALL_ACKED, sentence, windows)


def _build(facts: SwitchFacts) -> Iterator[Change]:
    """Rows 8 and 12."""
    yield from _order_copies(facts)
    if not facts.plan.count(LedgerStage.PENDING, LedgerStage.COPYING) and not facts.awaits_what_was_unplanned:
        sentence = f"{facts.plan.count(LedgerStage.BUILT)} of {len(facts.plan)} ledgers are built"
        yield Advance(SwitchStage.PROMOTE, SwitchReason.ALL_TERMINAL, sentence)


def _order_copies(facts: SwitchFacts) -> Iterator[Change]:
    free = facts.limits.window - facts.plan.asked(*_COPY_ACTIONS)
    for task in facts.plan.idle(free, LedgerStage.PENDING):
        yield AskExecutor(task, SwitchAction.COPY, SwitchReason.NEXT_IN_PLAN)


def _promote(facts: SwitchFacts) -> Iterator[Change]:
    """Rows 12 and 17."""
    yield from _order_copies(facts)
    free = facts.limits.window - facts.plan.asked(*_PROMOTE_ACTIONS)
    # One that is being promoted and of which nothing is asked was left so by a halt.
    for task in facts.plan.idle(free, LedgerStage.PROMOTING, LedgerStage.BUILT):
        yield AskExecutor(task, _way(task), SwitchReason.NEXT_IN_PLAN)
    if facts.plan.count(LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT, LedgerStage.PROMOTING):
        return
    moved = facts.plan.count(LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER)
    sentence = f"{moved} of {len(facts.plan)} ledgers are promoted; they can be taken back for a while"
    yield Advance(SwitchStage.HOLD, SwitchReason.ALL_TERMINAL, sentence, {"hold_ms": facts.now_ms})


def _way(task: LedgerTask) -> SwitchAction:
    return SwitchAction.ROLL_OVER if task.remap and task.kind is LedgerKind.CURSOR else SwitchAction.PROMOTE


def _rollback(facts: SwitchFacts) -> Iterator[Change]:
    """Row 19."""
    free = facts.limits.window - facts.plan.asked(*_PROMOTE_ACTIONS)
    for task in facts.plan.idle(free, *_NOT_TAKEN_BACK):
        yield AskExecutor(task, SwitchAction.REVERT, SwitchReason.COMMANDED)
    if facts.plan.unfinished(*_NOT_TAKEN_BACK):
        return
    if not facts.switch.attribution_only and guards.brokers_are_home(facts):
        yield from _send_home(facts)
        return
    yield from _blocked(facts, "", "")
    if not _touched_references(facts):
        yield _rolled_back_now(facts)
    elif facts.switch.confirm_ms < 0:
        yield UpdateSwitch({"confirm_ms": facts.now_ms})
        yield TakeInventory()
    elif not facts.rollback_is_unconfirmed:
        yield _rolled_back_now(facts)


def _send_home(facts: SwitchFacts) -> Iterator[Change]:
    """Brokers are sent back once that is known to give them greater ids; then each of them is waited for."""
    directive, home = facts.state.directive, facts.switch.home
    if directive is not None and directive.target == home:
        yield from _blocked(facts, "", "")
    elif not guards.it_is_known_what_target_gave(facts):
        why = guards.way_back_is_beyond(facts, home) or ""
        yield from _blocked(facts, why, f"brokers do not go back to {home} yet: {why}")
        if not why:
            yield DirectBrokers(home, SwitchReason.COMMANDED)


def _touched_references(facts: SwitchFacts) -> bool:
    """Whether an executor was ever asked to attribute anything."""
    moved = (LedgerStage.PROMOTED_VIA_ROLLOVER, LedgerStage.PROMOTE_DEFERRED, LedgerStage.PROMOTED)
    return any(t.promoted_op or t.reverted_op or t.stage in moved for t in facts.plan)


def _rolled_back_now(facts: SwitchFacts) -> Advance:
    """With everything by name that was not taken back."""
    switch = facts.switch
    kept = [t for t in facts.plan if t.stage in _NOT_TAKEN_BACK]
    over = [t for t in facts.plan if t.stage is LedgerStage.PROMOTED_VIA_ROLLOVER]
    back = switch.settled.get(LedgerStage.REVERTED, 0) + facts.plan.count(LedgerStage.REVERTED)
    parts = [f"{counted_with(back, 'ledger', 'is', 'are')} attributed to {switch.source}"]
    parts += [f"given up: {_names([t.paths[0] for t in kept])}"] if kept else []
    parts += [f"rolled over, so they stay in {switch.target}: {_names([t.paths[0] for t in over])}"] if over else []
    if switch.unplanned_count:
        name = counted_with(switch.unplanned_count, "reference", "names", "name")
        parts.append(f"{name} {switch.target}: {_names(list(switch.unplanned))}")
    sentence = "; ".join([*parts, "our copies are deleted later"])
    return Advance(SwitchStage.ROLLED_BACK, SwitchReason.ALL_TERMINAL, sentence, {"ended_ms": facts.now_ms})


def _names(paths: list[str]) -> str:
    return ", ".join(paths[:10]) + (f" and {len(paths) - 10} more" if len(paths) > 10 else "")


def _rolled_back(facts: SwitchFacts) -> Iterator[Change]:
    """Row 19, the delayed part: our copies of what was taken back. Then nothing of the plan is needed any more."""
    free = facts.limits.max_deletions - facts.plan.asked(SwitchAction.DELETE_COPY)
    if free <= 0 or not facts.plan.count(LedgerStage.REVERTED) or guards.window_elapsed(facts):
        return
    found = list(islice(_left_over(facts), free))
    for task in found:
        yield AskExecutor(task, SwitchAction.DELETE_COPY, SwitchReason.WINDOW_ELAPSED)
    if not found and not facts.plan.asked(*_ANY_ACTION) and not facts.plan.count(*_NOT_TAKEN_BACK):
        yield SettlePlan()


def _left_over(facts: SwitchFacts) -> Iterator[LedgerTask]:
    """By the journal (INV-7), which only has copies that may be there: the plan is long."""
    instance = facts.target_instance
    for intent in facts.journal.since((instance, -1, False)):
        if intent.target != instance:
            return
        yield from (task for task in facts.plan.of(intent.ledger_id) if _is_left_over(facts, task, remap=intent.remap))


def _is_left_over(facts: SwitchFacts, task: LedgerTask, *, remap: bool) -> bool:
    if task.stage is not LedgerStage.REVERTED or task.awaiting is not SwitchAction.NONE:
        return False
    return task.remap == remap and not guards.nobody_shares_the_copy(facts, task)


def _cleanup(facts: SwitchFacts) -> Iterator[Change]:
    """Rows 20 to 22."""
    behind = guards.brokers_follow(facts)
    yield from _blocked(facts, behind or "", f"the clean-up waits: {behind}")
    if behind:
        return
    free, busy = facts.limits.max_deletions - facts.plan.asked(SwitchAction.DELETE_OLD), False
    for task in facts.plan.idle(free, LedgerStage.DELETE_INTENT, LedgerStage.PROMOTED):
        busy = True
        if why := guards.is_unreferenced(facts, task) or guards.was_promoted(task):
            if facts.inventory_is_old:
                return
            yield from _give_up(task, why)
        else:
            yield AskExecutor(task, SwitchAction.DELETE_OLD, SwitchReason.COMMANDED)
    busy = busy or bool(facts.plan.unfinished(LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT))
    if busy or facts.switch.awaiting is not SwitchAction.NONE or facts.inventory_is_old:
        return
    if facts.switch.status_attempt == facts.switch.attempt:
        yield from _finish(facts, status_failed=facts.switch.status_failed)
    else:
        yield WriteStatus(SwitchAction.STATUS_OLD)


def _give_up(task: LedgerTask, why: str) -> Iterator[Change]:
    after = replace(task, awaiting=SwitchAction.GIVEN_UP, reason=SwitchReason.NOT_READY.value)
    yield PutTask(after)
    sentence = f"ledger {task.ledger_id} is not deleted: {why}"
    yield of_ledger(after, SwitchVerdict.LEDGER, SwitchReason.NOT_READY, sentence)


_STEPS: dict[SwitchStage, Callable[[SwitchFacts], Iterator[Change]]] = {
    SwitchStage.TRIGGERED: _triggered,
    SwitchStage.BUILD: _build,
    SwitchStage.PROMOTE: _promote,
    SwitchStage.ROLLBACK: _rollback,
    SwitchStage.ROLLED_BACK: _rolled_back,
    SwitchStage.ABORTED: _rolled_back,
    SwitchStage.CLEANUP: _cleanup,
}


# --- the end (row 22)


def status_result(facts: SwitchFacts, result: StatusResult) -> Iterator[Change]:
    """The old one is deprecated first, then the new one becomes active."""
    switch = facts.state.switch
    if switch is None or switch.op == 0 or result.op > switch.op:
        sentence = f"no status was to be written as {result.op}"
        yield Reject(RejectCode.INVALID_TRANSITION, sentence, "registry")
    elif result.op < switch.op or result.action is not switch.awaiting:
        yield Count("repeated")
    elif not result.ok:
        yield UpdateSwitch({"status_failed": True})
        yield from _finish(facts, status_failed=True)
    elif result.action is SwitchAction.STATUS_OLD:
        yield from _set_status(facts, switch.source, ClusterStatus.DEPRECATED)
        yield WriteStatus(SwitchAction.STATUS_NEW)
    else:
        yield from _set_status(facts, switch.target, ClusterStatus.ACTIVE)
        yield Update({"committed_epoch": switch.epoch})
        if guards.brokers_follow(facts):
            yield UpdateSwitch({"awaiting": SwitchAction.NONE, "status_attempt": switch.attempt})
        else:
            yield from _finish(facts, status_failed=switch.status_failed)


def _set_status(facts: SwitchFacts, name: str, status: ClusterStatus) -> Iterator[Change]:
    entry = facts.state.entry(name)
    if entry is not None:
        yield Update({"entries": put(facts.state.entries, replace(entry, status=status))})


def _finish(facts: SwitchFacts, *, status_failed: bool) -> Iterator[Change]:
    switch, left = facts.switch, facts.left_behind
    ended = {"ended_ms": facts.now_ms, "awaiting": SwitchAction.NONE}
    reason = SwitchReason.STATUS_FAILED if status_failed else SwitchReason.ALL_TERMINAL
    unplanned = switch.unplanned_count
    if left or status_failed or unplanned:
        trouble = (
            counted_with(left, "ledger", "stays", "stay") + " behind"
            if left
            else "a status could not be written"
            if status_failed
            else ""
        )
        named_too = (
            f"{counted_with(unplanned, 'reference', 'names', 'name')} {switch.source} that nobody planned for: "
            f"{_names(list(switch.unplanned))}"
        )
        trouble = "; ".join(filter(None, (trouble, named_too if unplanned else "")))
        yield Advance(SwitchStage.DONE_WITH_FAILURES, reason, f"the switch is done with failures: {trouble}", ended)
    else:
        sentence = f"the switch is done: {switch.target} holds what {switch.source} did"
        yield Advance(SwitchStage.DONE, reason, sentence, ended)
        yield SettlePlan()
