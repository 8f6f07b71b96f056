"""Automatic progress of a switch, and how an operator leaves it: rows 6, 12, 17, 18, 19, 22, 27 and 31."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.events import open_new_clients
from policies.switching.judge.guards import Row
from policies.switching.ledgers import LedgerKind
from policies.switching.readings import SwitchCommand, SwitchStatus
from policies.switching.state import (
    ORDERED,
    REVERSIBLE,
    UNDELETED,
    UNDONE,
    UNREVERTED,
    ClusterStatus,
    LedgerStage,
    LedgerTask,
    SwitchAction,
    SwitchStage,
)
from policies.switching.transition import Transition
from policies.units import counted_with, format_instant, from_millis, millis_of, name_some

_COPY_ACTIONS = (SwitchAction.COPY, SwitchAction.DELETE_COPY)
_NEEDS_BOTH = frozenset({SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.CLEANUP})
_PROMOTE_ACTIONS = (SwitchAction.PROMOTE, SwitchAction.ROLL_OVER, SwitchAction.REVERT)


def advance(facts: SwitchFacts, step: Transition) -> None:
    """Order the next steps of the switch, which need no new event; order nothing while the switch must wait.

    New clients are no step: while clients of two ``HOB``s write, a topic that moves between their brokers gets a lower
    id. So a halt or a pause, which may last for days, does not hold them back.
    """
    switch = facts.state.switch
    if switch is None or facts.state.contested or guards.refuse_without_lease(facts):
        return
    if facts.needs_new_clients:
        open_new_clients(facts, step)
    elif facts.stands_still:
        return
    elif switch.recovering_ms >= 0:
        # After a lost checkpoint nothing is ordered before an inventory, and that once both clusters are read.
        if switch.awaiting is SwitchAction.NONE and facts.source_instance and facts.target_instance:
            step.update_switch(awaiting=SwitchAction.INVENTORY)
            step.take_inventory()
    elif switch.stage in _ROWS:
        has_impostor = bool({switch.source, switch.target}.intersection(facts.state.impostors))
        # An impostor must not get copies, nor stand for the cluster that has them.
        if switch.stage not in _NEEDS_BOTH or switch.kept or not has_impostor:
            _ROWS[switch.stage](facts, step)


def _block(facts: SwitchFacts, step: Transition, why: str = "", what: str = "") -> None:
    """Record what blocks the switch; an empty reason unblocks it. Only a new reason is published."""
    if why != facts.switch.blocked:
        step.update_switch(blocked=why)
        if why:
            step.publish(SwitchVerdict.BLOCKED, SwitchReason.NOT_READY, f"{what}: {why}")


def _triggered(facts: SwitchFacts, step: Transition) -> None:
    """Go live, or wait for the ``HOB`` that the reason names; INV-3 needs only clients that are opened from now on.

    A client that is open remembers the lower ``HOB``, so a remedy counts only for clients opened since.
    """
    if facts.unreachable_before_moves:
        _reject(facts, step)
        return
    if guards.refuse_missing_acks(facts):
        _block(facts, step)
        return
    switch, limits, now_ms, disorder = facts.switch, facts.limits, facts.now_ms, None
    why = guards.refuse_writes_elsewhere(facts) or guards.refuse_same_identity(facts, switch.source, switch.target)
    if not why and not switch.bypassed:
        why = guards.refuse_taken_ids(facts, switch.source, switch.target)
        disorder = None if why else guards.refuse_broken_order(facts)
    _block(facts, step, why or disorder or "", "all brokers acked, but the switch does not go live")
    if disorder:
        open_new_clients(facts, step)
    if why or disorder or guards.refuse_early_readings(facts):
        return
    count = len(facts.live_brokers)
    sentence = f"{'all ' if count > 1 else ''}{counted_with(count, 'broker', 'writes', 'write')} to {switch.target}"
    step.advance(
        SwitchStage.LIVE_DUAL_READ, SwitchReason.ALL_ACKED, sentence, live_ms=now_ms,
        rollback_until_ms=now_ms + millis_of(limits.rollback_window),
        cleanup_from_ms=now_ms + millis_of(max(limits.cleanup_after, limits.rollback_window)),
    )  # fmt: skip
    step.take_inventory()


def _reject(facts: SwitchFacts, step: Transition) -> None:
    """Row 7: a broker cannot make its client, and none has moved. Brokers return once they get greater ids there."""
    switch, reason = facts.switch, SwitchReason.CLIENT_INIT_FAILED
    if switch.home != switch.target and (why := guards.refuse_return(facts)):
        _block(facts, step, why, f"brokers do not go back to {switch.home} yet")
        return
    failing = name_some([found.broker for found in facts.unreachable_before_moves])
    sentence = f"{failing} cannot reach {switch.target}; no broker said that it moved, so none will"
    step.advance(SwitchStage.REJECTED, reason, sentence, ended_ms=facts.now_ms, blocked="")
    step.direct_brokers(reason, switch.home)


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


def _rollback(facts: SwitchFacts, step: Transition) -> None:
    """Take references back, and direct brokers home once it is known that they get greater ids there."""
    directive, home = facts.state.directive, facts.switch.home
    is_away = not facts.switch.attribution_only and guards.refuse_brokers_away(facts) is not None
    if is_away:
        is_directed = directive is not None and directive.target == home
        why = None if is_directed else guards.refuse_return(facts)
        _block(facts, step, why or "", f"brokers do not go back to {home} yet")
        if not why and not is_directed:
            step.direct_brokers(SwitchReason.COMMANDED, home)
    free = facts.limits.window - facts.plan.count_ordered(*_PROMOTE_ACTIONS)
    unfinished = facts.plan.count_unfinished(*UNREVERTED)
    for task in facts.plan.idle(free, *UNREVERTED):
        if guards.refuse_missing_source(facts, task):
            step.put(replace(task, awaiting=SwitchAction.GIVEN_UP))
        else:
            step.order_ledger(task, SwitchReason.COMMANDED, SwitchAction.REVERT)
    if unfinished or is_away:
        return
    _block(facts, step)
    if facts.switch.confirm_ms < 0:
        step.update_switch(confirm_ms=facts.now_ms)
        step.take_inventory()
    elif facts.has_inventory_after(facts.switch.confirm_ms):
        _end_rollback(facts, step)


def _end_rollback(facts: SwitchFacts, step: Transition) -> None:
    """End the rollback, and name everything that was not taken back."""
    switch = facts.switch
    kept = [t.paths[0] for t in facts.plan.at(*UNREVERTED)]
    over = [t.paths[0] for t in facts.plan.at(LedgerStage.PROMOTED_VIA_ROLLOVER)]
    back = switch.ledgers.get(LedgerStage.REVERTED, 0) + facts.plan.count(LedgerStage.REVERTED)
    named = counted_with(switch.unplanned_count, "reference", "names", "name")
    parts = [
        f"{counted_with(back, 'ledger', 'is', 'are')} attributed to {switch.source}",
        kept and f"given up: {name_some(kept)}",
        over and f"rolled over, so they stay in {switch.target}: {name_some(over)}",
        switch.unplanned_count and f"{named} {switch.target}: {name_some(switch.unplanned)}",
        not kept and "our copies are deleted later",
    ]
    stage = SwitchStage.ROLLED_BACK_WITH_FAILURES if kept else SwitchStage.ROLLED_BACK
    step.advance(stage, SwitchReason.ALL_TERMINAL, "; ".join(str(p) for p in parts if p), ended_ms=facts.now_ms)


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
            step.put(replace(task, awaiting=SwitchAction.GIVEN_UP))
    if not found and not facts.plan.count_ordered(*ORDERED) and not facts.plan.count(*UNREVERTED):
        step.settle()


def _cleanup(facts: SwitchFacts, step: Transition) -> None:
    if facts.switch.kept:
        is_idle = facts.switch.awaiting is SwitchAction.NONE and not facts.plan.count_ordered(SwitchAction.DELETE_OLD)
        if is_idle and not facts.inventory_is_old:
            _complete(facts, step)
        return
    behind = guards.refuse_straying_brokers(facts)
    _block(facts, step, behind or "", "the clean-up waits")
    if behind:
        return
    free, busy = facts.limits.max_deletions - facts.plan.count_ordered(SwitchAction.DELETE_OLD), False
    for task in facts.plan.idle(free, LedgerStage.DELETE_INTENT, LedgerStage.PROMOTED):
        busy = True
        if why := guards.refuse_referenced_ledger(facts, task) or guards.refuse_unpromoted(task):
            if facts.inventory_is_old:
                return
            kept = replace(task, awaiting=SwitchAction.GIVEN_UP)
            step.put(kept)
            sentence = f"ledger {task.ledger_id} is not deleted: {why}"
            step.publish_ledger(kept, SwitchVerdict.LEDGER, SwitchReason.NOT_READY, sentence)
        else:
            step.order_ledger(task, SwitchReason.COMMANDED, SwitchAction.DELETE_OLD)
    busy = busy or bool(facts.plan.count_unfinished(LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT))
    if not busy and facts.switch.awaiting is SwitchAction.NONE and not facts.inventory_is_old:
        _complete(facts, step)


def _complete(facts: SwitchFacts, step: Transition) -> None:
    """Write both statuses; once they are written, the switch is done."""
    if facts.state.committed_epoch == facts.switch.epoch:
        _finish(facts, step)
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
        _finish(step.facts(), step)
    else:
        statuses = {switch.source: ClusterStatus.DEPRECATED, switch.target: ClusterStatus.ACTIVE}
        entries = tuple(replace(e, status=statuses.get(e.name, e.status)) for e in facts.state.entries)
        step.update(entries=entries, committed_epoch=switch.epoch)
        step.update_switch(awaiting=SwitchAction.NONE)


def _finish(facts: SwitchFacts, step: Transition) -> None:
    switch, left = facts.switch, facts.left_behind
    reason = SwitchReason.STATUS_FAILED if switch.status_failed else SwitchReason.ALL_TERMINAL
    named = counted_with(switch.unplanned_count, "reference", "names", "name")
    found = (
        left and f"{counted_with(left, 'ledger', 'stays', 'stay')} behind",
        switch.status_failed and "a status could not be written",
        switch.kept and guards.refuse_straying_brokers(facts),
        switch.unplanned_count and f"{named} {switch.source} that nobody planned for: {name_some(switch.unplanned)}",
    )
    trouble = "; ".join(str(each) for each in found if each)
    stay = [str(t.ledger_id) for t in facts.plan.at(*UNDELETED)] if switch.kept else []
    are = counted_with(len(stay), "ledger", "is", "are")
    kept = f"; {are} kept in {switch.source}: {name_some(stay)}" if stay else ""
    stage = SwitchStage.DONE_WITH_FAILURES if trouble else SwitchStage.DONE
    result = f" with failures: {trouble}" if trouble else f": {switch.target} holds what {switch.source} did"
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


# The ways out.

_NOT_PROMOTED = frozenset({LedgerStage.PENDING, LedgerStage.COPYING, LedgerStage.BUILT})
_UNPROMOTED = _NOT_PROMOTED | {LedgerStage.PROMOTING}
_COMMANDED, _ABORTED = SwitchReason.COMMANDED, SwitchReason.ABORTED
_INVALID = RejectCode.INVALID_TRANSITION
_NOT_TAKEN_BACK = {
    SwitchStage.TRIGGERED: "the switch is not live: nothing is attributed yet",
    SwitchStage.ROLLBACK: "it is being rolled back",
    SwitchStage.DONE_WITH_FAILURES: "the switch is done_with_failures: once it is over, another one leads back",
}


def rollback(facts: SwitchFacts, command: SwitchCommand) -> Row:
    """Row 18: take promotions back and, if asked, send the brokers back.

    The switch is live and in its window, or undone, and its ledgers or brokers have not all come back.
    """
    switch, away = facts.state.switch, facts.state.active() != facts.state.committed()
    is_none = switch is None or (switch.stage is SwitchStage.REJECTED and not away)
    yield _INVALID, is_none and "there is no switch to roll back"
    yield RejectCode.CONTESTED, facts.state.contested
    switch = facts.switch
    # An operator may have given up the ledgers that stayed behind, after the registry had the target as active.
    was_done = switch.stage is SwitchStage.ABORTED and facts.state.committed() == switch.target
    is_known = facts.state.entry(switch.source) is not None
    way = f"`start --target {switch.source}`" if is_known else f"`register` {switch.source} again, and a switch"
    is_done = switch.stage is SwitchStage.DONE or was_done
    yield _INVALID, is_done and f"the switch is done: {way} leads back"
    yield _INVALID, _NOT_TAKEN_BACK.get(switch.stage)
    with_brokers = not command.args.attribution_only
    if switch.stage in UNDONE or switch.stage is SwitchStage.REJECTED:
        home = facts.state.committed()
        back = f"; with brokers, it brings them back to {home}" if home is not None and away else ""
        is_back = not (back and with_brokers) and not _find_retried(facts)
        yield _INVALID, is_back and f"the switch to {switch.target} is {switch.stage.value} already{back}"
        _roll_back_again(facts, (yield None), with_brokers=with_brokers)
        return
    yield RejectCode.WINDOW_EXPIRED, guards.refuse_closed_window(facts)
    yield RejectCode.CLEANUP_STARTED, switch.stage is SwitchStage.CLEANUP and "the clean-up has begun"
    yield RejectCode.CLEANUP_STARTED, guards.refuse_begun_deletion(facts)
    sentence = f"the switch to {switch.target} is rolled back"
    _roll_back(facts, sentence, _COMMANDED, (yield None), attribution_only=not with_brokers)


def _find_retried(facts: SwitchFacts) -> list[LedgerTask]:
    return [t for t in facts.plan.at(*UNREVERTED) if not guards.refuse_missing_source(facts, t)]


def _roll_back_again(facts: SwitchFacts, step: Transition, *, with_brokers: bool) -> None:
    home, left = facts.state.committed(), _find_retried(facts)
    if with_brokers and home is not None and facts.state.active() != home:
        step.advance(
            SwitchStage.ROLLBACK, _COMMANDED, f"brokers return to {home}",
            attribution_only=False, brokers_from=home, confirm_ms=-1, paused=False,
        )  # fmt: skip
    else:
        sentence = f"{counted_with(len(left), 'ledger', 'is', 'are')} tried again"
        step.advance(SwitchStage.ROLLBACK, _COMMANDED, sentence, confirm_ms=-1, paused=False)
    _reset_tasks(left, step)


def _roll_back(
    facts: SwitchFacts, sentence: str, reason: SwitchReason, step: Transition, *, attribution_only: bool
) -> None:
    """Begin a rollback: revert every promotion, and direct the brokers home unless `attribution_only`."""
    step.advance(
        SwitchStage.ROLLBACK, reason, sentence,
        halted="", paused=False, blocked="", confirm_ms=-1, attribution_only=attribution_only,
    )  # fmt: skip
    for task in list(facts.plan.at(*_NOT_PROMOTED)):
        # It was never promoted, so there is nothing to revert. A result that is still under way is late.
        step.put(replace(task, stage=LedgerStage.REVERTED, awaiting=SwitchAction.NONE, tries=0), numbered=True)
    _reset_tasks(facts.plan.at(*UNREVERTED), step)


def _reset_tasks(tasks: Iterable[LedgerTask], step: Transition) -> None:
    """Give ledgers a new number and all their tries, so that a revert can be ordered."""
    for task in list(tasks):
        step.put(replace(task, awaiting=SwitchAction.NONE, tries=0), numbered=True)


def abort(facts: SwitchFacts, _command: SwitchCommand) -> Row:
    """Row 27: before a switch is live only brokers are taken back, once the ids that the target gave are known."""
    live = facts.state.live_switch()
    yield _INVALID, live is None and "no switch is under way"
    yield RejectCode.CONTESTED, facts.state.contested
    live = facts.switch
    late = f"the switch to {live.target} is at {live.stage.value}: it can be aborted only before it is live"
    yield _INVALID, live.stage is not SwitchStage.TRIGGERED and late
    step = yield None
    if live.home == live.target:
        sentence = f"the switch to {live.target} is taken back; brokers wrote there before, and go on"
        _roll_back(facts, sentence, _ABORTED, step, attribution_only=True)
        return
    wait = guards.refuse_return(facts)
    then = f"; they are sent back as soon as this is mended: {wait}" if wait else ""
    sentence = f"the switch to {live.target} is taken back, and brokers return to {live.home}{then}"
    _roll_back(facts, sentence, _ABORTED, step, attribution_only=False)


def end(facts: SwitchFacts, command: SwitchCommand) -> Row:
    """Row 31: end a switch that cannot be taken back any more, or is in hold, as its stage allows."""
    live, delete = facts.state.live_switch(), command.args.delete
    yield _INVALID, live is None and "no switch is under way"
    yield RejectCode.CONTESTED, facts.state.contested
    live = facts.switch
    at = f"the switch is at {live.stage.value}"
    is_held = live.stage is SwitchStage.HOLD
    yield _INVALID, delete and not is_held and f"{at}: only in hold may it delete ledgers"
    is_final = guards.refuse_closed_window(facts) or guards.refuse_begun_deletion(facts)
    is_open = live.stage in REVERSIBLE and not is_held and not is_final
    yield _INVALID, is_open and f"the switch to {live.target} is at {live.stage.value}, and can be taken back"
    yield _INVALID, live.stage is SwitchStage.TRIGGERED and f"the switch to {live.target} is not live"
    is_unwritten = live.stage is SwitchStage.DONE_WITH_FAILURES and live.status_failed
    yield _INVALID, is_unwritten and "the registry is not written yet"
    if delete:
        yield _INVALID, guards.refuse_unknown_plan(facts)
        why = guards.refuse_straying_brokers(facts)
        yield RejectCode.BROKERS_BEHIND, why and f"{why}; without `--delete`, `end` keeps all ledgers"
    step = yield None
    if live.stage is SwitchStage.CLEANUP:
        _end_cleanup(facts, step)
    elif live.stage is SwitchStage.DONE_WITH_FAILURES:
        stay = counted_with(facts.left_behind, "ledger", "stays", "stay")
        _end(f"the switch to {live.target} is over; {stay} in {live.source}", step)
    elif live.stage is SwitchStage.ROLLBACK:
        # Name the references that were not taken back, and the brokers that did not go back.
        paths = [t.paths[0] for t in facts.plan.at(*UNREVERTED)]
        still = f"{name_some(paths)} not taken back" if paths else ""
        astray = None if live.attribution_only else guards.refuse_brokers_away(facts)
        left = "; ".join(filter(None, (still, astray))) or "nothing is left"
        _end(f"the rollback is ended where it stands: {left}", step)
    else:
        _end_live(facts, command, step)


def _end_cleanup(facts: SwitchFacts, step: Transition) -> None:
    """Deletions that an executor has begun come to their end; all other ledgers stay. A second `end` waits for none."""
    live = facts.switch
    stay = counted_with(facts.plan.count(*UNDELETED), "ledger", "stays", "stay") + f" in {live.source}"
    if live.kept:
        _end(f"the switch to {live.target} ends without a last inventory; {stay}, also in the registry", step)
        return
    step.update_switch(halted="", paused=False, kept=True, blocked="")
    step.publish(SwitchVerdict.ADVANCE, _ABORTED, f"nothing more is deleted: {stay}")
    for task in facts.plan.at(*UNDELETED):
        if task.awaiting is SwitchAction.NONE:
            step.put(replace(task, awaiting=SwitchAction.GIVEN_UP))


def _end_live(facts: SwitchFacts, command: SwitchCommand, step: Transition) -> None:
    """The copied ledgers stay in the source, or are deleted. Ledgers that have not moved stay behind."""
    live, delete = facts.switch, command.args.delete
    ids = [str(t.ledger_id) for t in facts.plan.at(*UNDELETED)]
    window = f"; the way back until {format_instant(from_millis(live.rollback_until_ms))} is given up"
    given_up = window if guards.refuse_closed_window(facts) is None else ""
    are, named = counted_with(len(ids), "ledger", "is", "are"), name_some(ids) or "none"
    if guards.refuse_unknown_plan(facts):
        are, named = "all copied ledgers are", "an inventory lists them"
    done, risk = ("to be deleted from", ", which cannot be undone") if delete else ("kept in", "")
    sentence = f"{live.stage.value} ends: {are} {done} {live.source}{risk}: {named}{given_up}"
    step.advance(
        SwitchStage.CLEANUP, _COMMANDED, sentence,
        cleanup_ms=facts.now_ms, halted="", paused=False, kept=not delete,
    )  # fmt: skip
    for task in list(facts.plan.at(*_UNPROMOTED)):
        # A result that is still under way is late.
        step.put(replace(task, awaiting=SwitchAction.GIVEN_UP), numbered=True)
    step.take_inventory()


def _end(sentence: str, step: Transition) -> None:
    step.advance(
        SwitchStage.ABORTED, _ABORTED, sentence,
        ended_ms=step.now_ms, halted="", paused=False, blocked="", awaiting=SwitchAction.NONE,
    )  # fmt: skip
