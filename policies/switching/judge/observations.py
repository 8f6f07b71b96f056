"""Inventories, the lease and reports of brokers: rows 5, 7, 8 and 25, and the repetition of open orders."""

from collections.abc import Mapping

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.inventory import InventorySeen
from policies.switching.judge import guards
from policies.switching.judge.results import refuse_import
from policies.switching.ledgers import LedgerKind, Reference, is_ours, with_ledger
from policies.switching.readings import SwitchBroker
from policies.switching.state import (
    NEVER,
    LedgerStage,
    LedgerTask,
    OrchestratorLease,
    Switch,
    SwitchAction,
    SwitchStage,
    plan_key,
)
from policies.switching.transition import Transition
from policies.units import counted_with

# The plan from a complete inventory (row 8), and the ledgers that wait for an inventory.

_COUNTED = frozenset(
    {
        SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.ROLLBACK, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES,
    }
)  # fmt: skip
_PLANNING = frozenset({SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE})
_NAMED = 10
"""The most unplanned paths that the switch keeps by name."""


def judge_inventory(facts: SwitchFacts, seen: InventorySeen, step: Transition) -> None:
    """While a plan is made: settle the ledgers that waited for an inventory, then plan those that are not planned."""
    switch, known = facts.state.switch, len(facts.plan)
    if switch is not None and switch.recovering_ms >= 0:
        if not _shows_plan(facts, switch, seen):
            return
        _recover_plan(facts, switch, seen, step)
    if switch is not None and switch.stage in _COUNTED and seen.at_ms > switch.ended_ms:
        _count_unplanned(facts, switch, seen, step)
    if switch is None or switch.stage not in _PLANNING or seen.target != switch.target:
        return
    if seen.at_ms <= switch.live_ms or facts.stands_still or guards.refuse_without_lease(facts):
        return
    dropped: dict[int, int] = {}
    for task, moved_to in _find_waiting(facts, seen):
        if moved_to is None:
            dropped[task.key] = task.op
            step.drop(task.key)
            continue
        stage = LedgerStage.PROMOTED_VIA_ROLLOVER
        moved = replace(task, stage=stage, awaiting=SwitchAction.NONE, target_id=moved_to.ledger_id, reason="")
        step.put(moved)
        sentence = f"ledger {task.ledger_id} is {stage.value}"
        step.publish_ledger(moved, SwitchVerdict.LEDGER, SwitchReason.ROLLED_OVER, sentence)
    planned = _find_unplanned(facts, seen, dropped)
    source = facts.source_instance
    for task in planned:
        _plan_ledger(facts, task, seen, source, step)
    if switch.stage is SwitchStage.LIVE_DUAL_READ:
        count = known - len(dropped) + len(planned)
        sentence = f"{counted_with(count, 'ledger', 'is', 'are')} to move to {switch.target}"
        step.advance(SwitchStage.BUILD, SwitchReason.INVENTORY_COMPLETE, sentence)


def _shows_plan(facts: SwitchFacts, switch: Switch, seen: InventorySeen) -> bool:
    is_since = seen.moved_too and seen.target == switch.target and seen.at_ms > switch.recovering_ms
    return is_since and bool(facts.source_instance and facts.target_instance)


def _recover_plan(facts: SwitchFacts, switch: Switch, seen: InventorySeen, step: Transition) -> None:
    """After a lost checkpoint: references that name Headgate's own copies in the target were promoted.

    While a plan is made, a ledger that is also named in the source is planned there again.
    """
    left = {(r.ledger_id, r.kind) for r in with_ledger(seen.references) if facts.owner(r) == switch.source}
    paths: dict[tuple[int, LedgerKind], set[str]] = {}
    for reference in with_ledger(seen.references):
        found = seen.existing.get(reference.ledger_id)
        is_copy = found is not None and found.provenance == facts.source_instance
        is_planned = switch.stage in _PLANNING and (reference.ledger_id, reference.kind) in left
        if facts.owner(reference) == switch.target and is_copy and not is_planned:
            paths.setdefault((reference.ledger_id, reference.kind), set()).add(reference.path)
    for (ledger_id, kind), named in sorted(paths.items()):
        # A clean-up that had begun may have deleted it from the source: then nothing may be taken back.
        stage = LedgerStage.PROMOTED if switch.cleanup_ms < 0 else LedgerStage.DELETE_INTENT
        task = LedgerTask(ledger_id, kind, tuple(sorted(named)), stage, cleared=True, promoted_op=1, copied=True)
        step.put(task, numbered=True)
    step.update_switch(recovering_ms=NEVER, awaiting=SwitchAction.NONE)
    count = counted_with(len(paths), "ledger", "is", "are")
    sentence = f"the switch to {switch.target} is taken up at {switch.stage.value}: {count} promoted"
    step.publish(SwitchVerdict.ADVANCE, SwitchReason.INVENTORY_COMPLETE, sentence)


def _count_unplanned(facts: SwitchFacts, switch: Switch, seen: InventorySeen, step: Transition) -> None:
    """Count references that should no longer name the source or, after a rollback, the target.

    A cursor of the plan may live in another ledger by now. It counts, because that ledger was not planned.
    """
    is_rollback = switch.stage is SwitchStage.ROLLBACK
    owner = switch.target if is_rollback else switch.source
    planned = {(p, t.ledger_id) for t in facts.plan for p in t.paths} if not is_rollback else frozenset()
    naming = (r for r in with_ledger(seen.references) if facts.owner(r) == owner)
    paths = sorted({r.path for r in naming if (r.path, r.ledger_id) not in planned})
    if (tuple(paths[:_NAMED]), len(paths)) != (switch.unplanned, switch.unplanned_count):
        step.update_switch(unplanned=tuple(paths[:_NAMED]), unplanned_count=len(paths))
    if is_rollback and 0 <= switch.confirm_ms < seen.at_ms:
        _settle_failed(facts, switch, seen, step)


def _settle_failed(facts: SwitchFacts, switch: Switch, seen: InventorySeen, step: Transition) -> None:
    """Row 19: a ledger whose order failed may have moved all the same: take it back; delete the others' copies."""
    moved = {(r.path, r.ledger_id) for r in with_ledger(seen.references) if facts.owner(r) == switch.target}
    for task in list(facts.plan.at(LedgerStage.BUILD_FAILED, LedgerStage.PROMOTE_DEFERRED)):
        target_id = task.ledger_id if task.target_id is None else task.target_id
        is_moved = any((path, target_id) in moved for path in task.paths)
        stage = LedgerStage.PROMOTING if is_moved else LedgerStage.REVERTED
        step.put(replace(task, stage=stage, awaiting=SwitchAction.NONE, tries=0), numbered=True)
        if is_moved:
            step.update_switch(confirm_ms=NEVER)


def _find_waiting(facts: SwitchFacts, seen: InventorySeen) -> list[tuple[LedgerTask, Reference | None]]:
    """Pair each ledger that waits for an inventory with its cursor's reference in the target.

    The reference is None if the cursor did not roll over to the target: the ledger is gone, or is planned again.
    """
    tasks = [t for t in facts.plan if t.awaiting is SwitchAction.INVENTORY]
    cursors = {r.path: r for r in with_ledger(seen.references) if r.kind is LedgerKind.CURSOR} if tasks else {}
    found: list[tuple[LedgerTask, Reference | None]] = []
    for task in tasks:
        now = next((cursors[p] for p in task.paths if p in cursors), None)
        rolled_over = task.kind is LedgerKind.CURSOR and now is not None and now.ledger_id != task.ledger_id
        in_target = now is not None and facts.owner(now) == facts.switch.target
        found.append((task, now if rolled_over and in_target else None))
    return found


def _find_unplanned(facts: SwitchFacts, seen: InventorySeen, dropped: Mapping[int, int]) -> list[LedgerTask]:
    """Return the ledgers that are attributed to the source and not in the plan.

    Args:
        facts: as of before the inventory.
        dropped: the last order's number of each ledger taken out of the plan, so that late results stay late.
    """
    paths: dict[tuple[int, LedgerKind], set[str]] = {}
    for reference in with_ledger(seen.references):
        key = plan_key(reference.ledger_id, reference.kind)
        is_planned = facts.plan.get(key) is not None and key not in dropped
        if facts.owner(reference) == facts.switch.source and not is_planned:
            paths.setdefault((reference.ledger_id, reference.kind), set()).add(reference.path)
    return [
        LedgerTask(ledger_id, kind, tuple(sorted(named)), op=dropped.get(plan_key(ledger_id, kind), 0))
        for (ledger_id, kind), named in sorted(paths.items())
    ]


def _plan_ledger(facts: SwitchFacts, task: LedgerTask, seen: InventorySeen, source: str, step: Transition) -> None:
    """Check INV-1 and INV-6 for one ledger. The caller looks up the instance id once, for up to a million ledgers."""
    if task.kind in facts.limits.remapped:
        # A cursor's owner makes its new ledger itself, so there is nothing to copy.
        stage = LedgerStage.BUILT if task.kind is LedgerKind.CURSOR else LedgerStage.PENDING
        step.put(replace(task, stage=stage, cleared=True, remap=True))
        return
    found = seen.existing.get(task.ledger_id)
    if why := guards.refuse_foreign_ledger(found, source):
        refuse_import(facts, task, SwitchReason.FOREIGN_ID, why, step)
    elif why := guards.refuse_deleted_id(facts, task.ledger_id):
        refuse_import(facts, task, SwitchReason.DELETED_ID, why, step)
    else:
        is_copied = found is not None and is_ours(found, source)
        step.put(replace(task, cleared=found is None or is_copied, copied=is_copied))


# The lease and the brokers: rows 5, 7 and 25, and the repetition of open orders.

_WITHOUT_LEDGER = frozenset(
    {SwitchAction.NONE, SwitchAction.INVENTORY, SwitchAction.GIVEN_UP, SwitchAction.SETTLED, SwitchAction.STATUS_NEW}
)


def judge_lease(facts: SwitchFacts, new: OrchestratorLease, step: Transition) -> None:
    """Row 25: a newer orchestrator repeats all open orders; an older one is rejected."""
    known = facts.state.lease
    if why := guards.refuse_older_lease(facts, new.token):
        step.reject(RejectCode.INVALID_TRANSITION, why, "lease")
    elif known is not None and new.token == known.token and new.valid_until_ms <= known.valid_until_ms:
        return  # it is known
    else:
        step.update(lease=new)
        lapsed = known is None or new.token != known.token or facts.now_ms >= known.valid_until_ms
        if lapsed and facts.state.switch is not None:
            repeat_orders(facts, SwitchReason.LEASE_TAKEN, step)


def repeat_orders(facts: SwitchFacts, reason: SwitchReason, step: Transition, *, redirected: bool = False) -> None:
    """Repeat every order without a result, under its number.

    Args:
        redirected: a new directive was just given, which no broker follows yet.
    """
    if not redirected:
        step.direct_brokers(reason)
    is_behind = redirected or guards.refuse_straying_brokers(facts) is not None
    for task in [t for t in facts.plan if t.awaiting not in _WITHOUT_LEDGER]:
        if task.awaiting is SwitchAction.DELETE_OLD and is_behind:
            step.put(replace(task, awaiting=SwitchAction.NONE), numbered=True)  # ordered once brokers follow
        else:
            step.order_ledger(task, reason)
    # An inventory under the directive before does not count any more.
    is_void = redirected and facts.switch.stage is SwitchStage.CLEANUP
    if is_void or facts.needs_inventory or facts.plan.count_ordered(SwitchAction.INVENTORY):
        step.take_inventory()
    if facts.switch.awaiting is SwitchAction.STATUS_NEW:
        step.write_status(reason, again=True)


def open_new_clients(facts: SwitchFacts, reason: SwitchReason, step: Transition) -> None:
    """Direct brokers again to the cluster that was advanced, so that they open new clients; repeat all open orders.

    Before a switch is live, INV-3 counts from the ids that new clients get.
    """
    switch, generator = facts.switch, facts.generator(facts.switch.target)
    if switch.stage is SwitchStage.TRIGGERED and generator is not None:
        step.update_switch(target_floor=max(switch.target_floor, generator.next_id))
    step.direct_brokers(reason, facts.state.active())
    repeat_orders(facts, reason, step, redirected=True)


def judge_broker(facts: SwitchFacts, seen: SwitchBroker, step: Transition) -> None:
    """Row 5: a broker follows the directive; its ack counts in `facts`. A broker that cannot is judged in `stages`."""
    live = facts.state.live_switch()
    if live is not None and seen.epoch == live.epoch and not seen.client_init_failed and not live.moved:
        step.update_switch(moved=True)
