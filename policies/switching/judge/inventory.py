"""What belongs in the plan, from a complete inventory (row 8), and the ledgers that wait for an inventory."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from policies.switching.decisions import SwitchReason, SwitchVerdict
from policies.switching.events import InventorySeen
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    Change,
    DropTask,
    JournalIntent,
    PutTask,
    UpdateSwitch,
    of_ledger,
)
from policies.switching.judge.results import conflict
from policies.switching.ledgers import is_ours
from policies.switching.references import LedgerKind, Reference, with_ledger
from policies.switching.state import LedgerStage, LedgerTask, Switch, SwitchAction, SwitchStage, key_of
from policies.units import counted_with

_COUNTED = frozenset(
    {
        SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.ROLLBACK, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES,
    }
)  # fmt: skip
_NAMED = 10
"""So many paths stand for the others."""
_PLANNING = frozenset({SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE})


def inventory(facts: SwitchFacts, seen: InventorySeen) -> Iterator[Change]:
    """While a plan is made: what waited for an inventory, then what is not planned yet."""
    switch = facts.state.switch
    if switch is not None and switch.stage in _COUNTED:
        yield from _unplanned(facts, switch, seen)
    if switch is None or switch.stage not in _PLANNING or seen.target != switch.target:
        return
    if seen.at_ms <= switch.live_ms or facts.stands_still or guards.holds_lease(facts):
        return
    waiting = _waiting(facts, seen)
    for task, now in waiting:
        yield from _moved(task, now) if now is not None else (DropTask(task.key),)
    dropped = {task.key: task.op for task, now in waiting if now is None}
    planned = _new_tasks(facts, seen, dropped)
    between = (facts.source_instance, facts.target_instance)
    for task in planned:
        yield from _plan(facts, task, seen, between)
    if switch.stage is SwitchStage.LIVE_DUAL_READ:
        count = len(facts.plan) - len(dropped) + len(planned)
        sentence = f"{counted_with(count, 'ledger', 'is', 'are')} to move to {switch.target}"
        yield Advance(SwitchStage.BUILD, SwitchReason.INVENTORY_COMPLETE, sentence)


def _unplanned(facts: SwitchFacts, switch: Switch, seen: InventorySeen) -> Iterator[Change]:
    """What names the cluster that nothing should name any more: the source, or after a rollback the target.

    A cursor that was planned and went on there in another ledger was not planned as it is now.
    """
    back = switch.stage is SwitchStage.ROLLBACK
    owner = switch.target if back else switch.source
    planned = {(p, t.ledger_id) for t in facts.plan for p in t.paths} if not back else frozenset()
    naming = (r for r in with_ledger(seen.references) if facts.owner(r) == owner)
    paths = sorted({r.path for r in naming if (r.path, r.ledger_id) not in planned})
    if (tuple(paths[:_NAMED]), len(paths)) != (switch.unplanned, switch.unplanned_count):
        yield UpdateSwitch({"unplanned": tuple(paths[:_NAMED]), "unplanned_count": len(paths)})


# --- ledgers that wait for an inventory: rolled over to the target, or gone, or to be planned afresh


def _waiting(facts: SwitchFacts, seen: InventorySeen) -> list[tuple[LedgerTask, Reference | None]]:
    """Each with the reference by which its cursor lives in the target under another id; None where it does not."""
    tasks = [t for t in facts.plan if t.awaiting is SwitchAction.INVENTORY]
    at_path = {r.path: r for r in with_ledger(seen.references) if r.kind is LedgerKind.CURSOR} if tasks else {}
    return [(task, _reference_in_target(facts, task, at_path)) for task in tasks]


def _reference_in_target(facts: SwitchFacts, task: LedgerTask, at_path: Mapping[str, Reference]) -> Reference | None:
    now = next((at_path[p] for p in task.paths if p in at_path), None)
    if now is None or task.kind is not LedgerKind.CURSOR or now.ledger_id == task.ledger_id:
        return None
    return now if facts.owner(now) == facts.switch.target else None


def _moved(task: LedgerTask, now: Reference) -> Iterator[Change]:
    stage = LedgerStage.PROMOTED_VIA_ROLLOVER
    after = replace(task, stage=stage, awaiting=SwitchAction.NONE, target_id=now.ledger_id, reason="")
    yield PutTask(after)
    sentence = f"ledger {task.ledger_id} is {stage.value}"
    yield of_ledger(after, SwitchVerdict.LEDGER, SwitchReason.ROLLED_OVER, sentence)


# --- the plan


def _new_tasks(facts: SwitchFacts, seen: InventorySeen, dropped: Mapping[int, int]) -> list[LedgerTask]:
    """What is attributed to the source and not in the plan.

    Args:
        facts: as of before the inventory.
        seen: the inventory.
        dropped: the last order's number of each ledger taken out of the plan, so that late results stay late.
    """
    paths: dict[tuple[int, LedgerKind], set[str]] = {}
    for reference in with_ledger(seen.references):
        key = key_of(reference.ledger_id, reference.kind)
        known = facts.plan.get(key) is not None and key not in dropped
        if facts.owner(reference) == facts.switch.source and not known:
            paths.setdefault((reference.ledger_id, reference.kind), set()).add(reference.path)
    return [
        LedgerTask(ledger_id, kind, tuple(sorted(named)), op=dropped.get(key_of(ledger_id, kind), 0))
        for (ledger_id, kind), named in sorted(paths.items())
    ]


def _plan(facts: SwitchFacts, task: LedgerTask, seen: InventorySeen, between: tuple[str, str]) -> Iterator[Change]:
    """INV-1 and INV-6, ledger by ledger; of source and target is given what they are, as there may be a million."""
    if task.kind in facts.limits.remapped:
        # A cursor's owner makes its new ledger itself, so there is nothing to copy.
        stage = LedgerStage.BUILT if task.kind is LedgerKind.CURSOR else LedgerStage.PENDING
        yield PutTask(replace(task, stage=stage, cleared=True, remap=True))
        return
    source, target = between
    found, intent = seen.existing.get(task.ledger_id), facts.journal.get((target, task.ledger_id, task.remap))
    if found is not None and found.provenance == source:
        # The executor's own journal has its intent: ours may have been lost with the state.
        intent = facts.intent_to_copy(task)
        yield JournalIntent(task)
    if why := guards.import_is_disjoint(found, intent, source, target):
        yield from conflict(facts, task, SwitchReason.FOREIGN_ID, why)
    elif why := guards.id_was_not_deleted(facts, task.ledger_id):
        yield from conflict(facts, task, SwitchReason.DELETED_ID, why)
    else:
        yield PutTask(replace(task, cleared=found is None or is_ours(found, intent, source, target)))
