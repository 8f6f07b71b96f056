"""The plan from a complete inventory (row 8), and the ledgers that wait for an inventory."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from policies.switching.decisions import SwitchReason, SwitchVerdict
from policies.switching.events import InventorySeen
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    Change,
    DecisionDraft,
    DropTask,
    PutTask,
    UpdateSwitch,
    draft_ledger,
)
from policies.switching.judge.results import refuse_import
from policies.switching.ledgers import is_ours
from policies.switching.references import LedgerKind, Reference, with_ledger
from policies.switching.state import NEVER, LedgerStage, LedgerTask, Switch, SwitchAction, SwitchStage, plan_key
from policies.units import counted_with

_COUNTED = frozenset(
    {
        SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.ROLLBACK, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES,
    }
)  # fmt: skip
_PLANNING = frozenset({SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE})
_NAMED = 10
"""The most unplanned paths that the switch keeps by name."""


def judge_inventory(facts: SwitchFacts, seen: InventorySeen) -> Iterator[Change]:
    """While a plan is made: settle the ledgers that waited for an inventory, then plan those that are not planned."""
    switch = facts.state.switch
    if switch is not None and switch.recovering_ms >= 0:
        if not _shows_plan(facts, switch, seen):
            return
        yield from _recover_plan(facts, switch, seen)
    if switch is not None and switch.stage in _COUNTED and seen.at_ms > switch.ended_ms:
        yield from _count_unplanned(facts, switch, seen)
    if switch is None or switch.stage not in _PLANNING or seen.target != switch.target:
        return
    if seen.at_ms <= switch.live_ms or facts.stands_still or guards.holds_lease(facts):
        return
    dropped: dict[int, int] = {}
    for task, moved_to in _find_waiting(facts, seen):
        if moved_to is None:
            dropped[task.key] = task.op
            yield DropTask(task.key)
            continue
        stage = LedgerStage.PROMOTED_VIA_ROLLOVER
        moved = replace(task, stage=stage, awaiting=SwitchAction.NONE, target_id=moved_to.ledger_id, reason="")
        yield PutTask(moved)
        sentence = f"ledger {task.ledger_id} is {stage.value}"
        yield draft_ledger(moved, SwitchVerdict.LEDGER, SwitchReason.ROLLED_OVER, sentence)
    planned = _find_unplanned(facts, seen, dropped)
    source = facts.source_instance
    for task in planned:
        yield from _plan_ledger(facts, task, seen, source)
    if switch.stage is SwitchStage.LIVE_DUAL_READ:
        count = len(facts.plan) - len(dropped) + len(planned)
        sentence = f"{counted_with(count, 'ledger', 'is', 'are')} to move to {switch.target}"
        yield Advance(SwitchStage.BUILD, SwitchReason.INVENTORY_COMPLETE, sentence)


def _shows_plan(facts: SwitchFacts, switch: Switch, seen: InventorySeen) -> bool:
    is_since = seen.moved_too and seen.target == switch.target and seen.at_ms > switch.recovering_ms
    return is_since and bool(facts.source_instance and facts.target_instance)


def _recover_plan(facts: SwitchFacts, switch: Switch, seen: InventorySeen) -> Iterator[Change]:
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
        yield PutTask(task, numbered=True)
    yield UpdateSwitch({"recovering_ms": NEVER, "awaiting": SwitchAction.NONE})
    count = counted_with(len(paths), "ledger", "is", "are")
    sentence = f"the switch to {switch.target} is taken up at {switch.stage.value}: {count} promoted"
    yield DecisionDraft(SwitchVerdict.ADVANCE, SwitchReason.INVENTORY_COMPLETE, sentence)


def _count_unplanned(facts: SwitchFacts, switch: Switch, seen: InventorySeen) -> Iterator[Change]:
    """Count references that should no longer name the source or, after a rollback, the target.

    A cursor of the plan may live in another ledger by now. It counts, because that ledger was not planned.
    """
    is_rollback = switch.stage is SwitchStage.ROLLBACK
    owner = switch.target if is_rollback else switch.source
    planned = {(p, t.ledger_id) for t in facts.plan for p in t.paths} if not is_rollback else frozenset()
    naming = (r for r in with_ledger(seen.references) if facts.owner(r) == owner)
    paths = sorted({r.path for r in naming if (r.path, r.ledger_id) not in planned})
    if (tuple(paths[:_NAMED]), len(paths)) != (switch.unplanned, switch.unplanned_count):
        yield UpdateSwitch({"unplanned": tuple(paths[:_NAMED]), "unplanned_count": len(paths)})
    if is_rollback and 0 <= switch.confirm_ms < seen.at_ms:
        yield from _settle_failed(facts, switch, seen)


def _settle_failed(facts: SwitchFacts, switch: Switch, seen: InventorySeen) -> Iterator[Change]:
    """Row 19: a ledger whose order failed may have moved all the same: take it back; delete the others' copies."""
    moved = {(r.path, r.ledger_id) for r in with_ledger(seen.references) if facts.owner(r) == switch.target}
    for task in list(facts.plan.at(LedgerStage.BUILD_FAILED, LedgerStage.PROMOTE_DEFERRED)):
        target_id = task.ledger_id if task.target_id is None else task.target_id
        is_moved = any((path, target_id) in moved for path in task.paths)
        stage = LedgerStage.PROMOTING if is_moved else LedgerStage.REVERTED
        yield PutTask(replace(task, stage=stage, awaiting=SwitchAction.NONE, tries=0), numbered=True)
        if is_moved:
            yield UpdateSwitch({"confirm_ms": NEVER})


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


def _plan_ledger(facts: SwitchFacts, task: LedgerTask, seen: InventorySeen, source: str) -> Iterator[Change]:
    """Check INV-1 and INV-6 for one ledger. The caller looks up the instance id once, for up to a million ledgers."""
    if task.kind in facts.limits.remapped:
        # A cursor's owner makes its new ledger itself, so there is nothing to copy.
        stage = LedgerStage.BUILT if task.kind is LedgerKind.CURSOR else LedgerStage.PENDING
        yield PutTask(replace(task, stage=stage, cleared=True, remap=True))
        return
    found = seen.existing.get(task.ledger_id)
    if why := guards.import_is_disjoint(found, source):
        yield from refuse_import(facts, task, SwitchReason.FOREIGN_ID, why)
    elif why := guards.id_was_not_deleted(facts, task.ledger_id):
        yield from refuse_import(facts, task, SwitchReason.DELETED_ID, why)
    else:
        is_copied = found is not None and is_ours(found, source)
        yield PutTask(replace(task, cleared=found is None or is_copied, copied=is_copied))
