"""Inventories, the lease, brokers and the registry: rows 1, 2, 5, 8, 23 and 25, and impostors."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import BrokerSeen, InventorySeen
from policies.switching.facts import SwitchFacts
from policies.switching.fold import Impostor, RegistryChecked
from policies.switching.judge import guards
from policies.switching.judge.results import (
    Advance,
    Change,
    Count,
    DecisionDraft,
    DirectBrokers,
    DropTask,
    OrderLedger,
    PutTask,
    Reject,
    RemoveRegistry,
    TakeInventory,
    Update,
    UpdateSwitch,
    WriteRegistry,
    WriteStatus,
    draft_ledger,
    refuse_import,
    reject,
)
from policies.switching.ledgers import LedgerKind, Reference, is_ours, with_ledger
from policies.switching.readings import SwitchCommand
from policies.switching.state import (
    NEVER,
    ClusterStatus,
    LedgerStage,
    LedgerTask,
    OrchestratorLease,
    RegistryEntry,
    Switch,
    SwitchAction,
    SwitchStage,
    plan_key,
    put,
)
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
    if seen.at_ms <= switch.live_ms or facts.stands_still or guards.refuse_without_lease(facts):
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
    if why := guards.refuse_foreign_ledger(found, source):
        yield from refuse_import(facts, task, SwitchReason.FOREIGN_ID, why)
    elif why := guards.refuse_deleted_id(facts, task.ledger_id):
        yield from refuse_import(facts, task, SwitchReason.DELETED_ID, why)
    else:
        is_copied = found is not None and is_ours(found, source)
        yield PutTask(replace(task, cleared=found is None or is_copied, copied=is_copied))


# The lease and the brokers: rows 5, 7 and 25, and the repetition of open orders.

_WITHOUT_LEDGER = frozenset(
    {
        SwitchAction.NONE,
        SwitchAction.INVENTORY,
        SwitchAction.GIVEN_UP,
        SwitchAction.SETTLED,
        SwitchAction.STATUS_NEW,
    }
)


def judge_lease(facts: SwitchFacts, new: OrchestratorLease) -> Iterator[Change]:
    """Row 25: a newer orchestrator repeats all open orders; an older one is rejected."""
    known = facts.state.lease
    if why := guards.refuse_older_lease(facts, new.token):
        yield Reject(RejectCode.INVALID_TRANSITION, why, "lease")
    elif known is not None and new.token == known.token and new.valid_until_ms <= known.valid_until_ms:
        yield Count("repeated")
    else:
        yield Update({"lease": new})
        lapsed = known is None or new.token != known.token or facts.now_ms >= known.valid_until_ms
        if lapsed and facts.state.switch is not None:
            yield from repeat_orders(facts, SwitchReason.LEASE_TAKEN)


def repeat_orders(facts: SwitchFacts, reason: SwitchReason, *, redirected: bool = False) -> Iterator[Change]:
    """Repeat every order without a result, under its number.

    Args:
        redirected: a new directive was just given, which no broker follows yet.
    """
    if not redirected:
        yield DirectBrokers(reason)
    is_behind = redirected or guards.refuse_straying_brokers(facts) is not None
    for task in [t for t in facts.plan if t.awaiting not in _WITHOUT_LEDGER]:
        if task.awaiting is SwitchAction.DELETE_OLD and is_behind:
            yield PutTask(replace(task, awaiting=SwitchAction.NONE), numbered=True)  # ordered once brokers follow
        else:
            yield OrderLedger(task, reason)
    # An inventory under the directive before does not count any more.
    is_void = redirected and facts.switch.stage is SwitchStage.CLEANUP
    if is_void or facts.needs_inventory or facts.plan.count_ordered(SwitchAction.INVENTORY):
        yield TakeInventory()
    if facts.switch.awaiting is SwitchAction.STATUS_NEW:
        yield WriteStatus(None, reason)


def open_new_clients(facts: SwitchFacts, reason: SwitchReason) -> Iterator[Change]:
    """Direct brokers again to the cluster that was advanced, so that they open new clients; repeat all open orders.

    Before a switch is live, INV-3 counts from the ids that new clients get.
    """
    switch, generator = facts.switch, facts.generator(facts.switch.target)
    if switch.stage is SwitchStage.TRIGGERED and generator is not None:
        yield UpdateSwitch({"target_floor": max(switch.target_floor, generator.next_id)})
    yield DirectBrokers(reason, facts.state.active())
    yield from repeat_orders(facts, reason, redirected=True)


def judge_broker(facts: SwitchFacts, seen: BrokerSeen) -> Iterator[Change]:
    """Row 5: a broker follows the directive; its ack counts in `facts`. A broker that cannot is judged in `stages`."""
    live = facts.state.live_switch()
    if live is None:
        return
    if seen.epoch != live.epoch:
        yield Count("stale_acks")
    elif not seen.failed and not live.moved:
        yield UpdateSwitch({"moved": True})


NO_NAME = "the command does not say which cluster it is about"
_ENDED = (SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES)


# --- register (row 1)


def register(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 1: the first cluster ever registered becomes active, and references without attribution belong to it."""
    state, args = facts.state, command.args
    if not args.name or not args.uri:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
        return
    if args.instance_id is None or args.root is None:
        yield reject(command, RejectCode.NOT_FOUND, f"no BookKeeper cluster could be read at {args.uri}")
        return
    known, root = state.entry(args.name), args.root.rstrip("/")
    # A cluster keeps the status that it has. The first one ever is active, every other new one a standby.
    usual = known.status if known else ClusterStatus.STANDBY if state.entries else ClusterStatus.ACTIVE
    status, version = args.status or usual, known.version if known else None
    entry = RegistryEntry(args.name, args.uri, args.instance_id, root, status, version)
    after = replace(state, entries=put(state.entries, entry))
    resolves = state.contested == state.leaderless() and not after.leaderless()
    if why := guards.refuse_taken_name(facts, entry.name, entry.instance_id, root):
        yield reject(command, RejectCode.NAME_CONFLICT, why)
    elif why := guards.refuse_known_identity(facts, entry.name, entry.instance_id, root):
        yield reject(command, RejectCode.URI_DUPLICATE, why)
    elif not resolves and (why := guards.refuse_contested(facts)):
        yield reject(command, RejectCode.CONTESTED, why)
    elif why := _refuse_status(facts, entry.name, args.status, usual):
        yield reject(command, RejectCode.INVALID_TRANSITION, why)
    elif _lacks_status_only(facts, entry.name, args.status):
        yield UpdateSwitch({"status_failed": False})
        yield WriteStatus(SwitchAction.STATUS_NEW)
    else:
        yield Update(
            {
                "entries": after.entries,
                "bootstrap": state.bootstrap or entry.name,
                "removed": tuple(name for name in state.removed if name != entry.name),
                "contested": "" if resolves else state.contested,
            }
        )
        yield WriteRegistry(entry, SwitchReason.COMMANDED)


def _refuse_status(facts: SwitchFacts, name: str, wanted: ClusterStatus | None, usual: ClusterStatus) -> guards.Refusal:
    """Return why a cluster cannot be registered with the status that the command names; None if it can."""
    state, live = facts.state, facts.state.live_switch()
    if not state.entries and wanted not in (None, ClusterStatus.ACTIVE):
        return "the first cluster is the one that brokers write to: it is registered as active"
    if wanted is None or wanted is usual or _lacks_status_only(facts, name, wanted):
        return None
    if wanted is ClusterStatus.ACTIVE:
        # Any cluster may become active if none is, no switch will make one active, and brokers write nowhere else.
        is_vacant = state.committed() is None and live is None and state.active() in (None, name)
        way = f"`start --target {name}`" if state.entry(name) else "`register` without `--status`, and then a switch,"
        sentence = f"{state.active() or 'none'} is active: {way} moves brokers"
        return None if is_vacant else guards.refuse_other_switch(facts) or sentence
    if wanted is ClusterStatus.DEPRECATED:
        return f"{name} is {usual.value}: a clean-up deprecates the cluster that brokers left"
    if usual is ClusterStatus.ACTIVE or state.active() == name:
        return f"{name} is active: a switch away from it ends that"
    if live is not None and name in (live.source, live.target):
        return f"the switch from {live.source} to {live.target} is not over"
    return None


def _lacks_status_only(facts: SwitchFacts, name: str, wanted: ClusterStatus | None) -> bool:
    """Whether brokers moved to the cluster for good, and only its status could not be written to the registry."""
    switch = facts.state.switch
    return (
        wanted is ClusterStatus.ACTIVE
        and switch is not None
        and switch.stage is SwitchStage.DONE_WITH_FAILURES
        and switch.status_failed
        and name == switch.target == facts.state.active()
    )


# --- unregister (row 2), close the client (row 23)


def unregister(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 2: remove a cluster that is not in use."""
    state, name = facts.state, command.args.name
    known = state.entry(name) if name else None
    if not name:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
    elif known is None:
        yield reject(command, RejectCode.NOT_FOUND, f"{name} is not registered")
    elif why := guards.refuse_contested(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif why := guards.refuse_cluster_in_use(facts, name):
        yield reject(command, RejectCode.IN_USE, f"{name} cannot be removed: {why}")
    else:
        yield Update(
            {
                "entries": tuple(e for e in state.entries if e.name != name),
                "checks": tuple(c for c in state.checks if c.target != name),
                "removed": tuple(sorted({*state.removed, name})),
                "clusters": tuple(c for c in state.clusters if c.name != name),
                "impostors": tuple(n for n in state.impostors if n != name),
            }
        )
        yield RemoveRegistry(name, known.version, SwitchReason.COMMANDED)


def close_client(facts: SwitchFacts, command: SwitchCommand) -> Iterator[Change]:
    """Row 23: let brokers close their client of a cluster that a switch has left."""
    name = command.args.name
    if not name:
        yield reject(command, RejectCode.NOT_FOUND, NO_NAME)
    elif why := _refuse_close(facts, name):
        yield reject(command, RejectCode.INVALID_TRANSITION, why)
    elif facts.state.entry(name) is None:
        yield reject(command, RejectCode.NOT_FOUND, f"{name} is not registered")
    elif why := guards.refuse_contested(facts):
        yield reject(command, RejectCode.CONTESTED, why)
    elif why := guards.refuse_read_cluster(facts, name):
        yield reject(command, RejectCode.CLIENT_IN_USE, why)
    else:
        sentence = f"nothing needs {name} any more: brokers may close their client"
        yield DecisionDraft(
            SwitchVerdict.CLOSE_CLIENT, SwitchReason.COMMANDED, sentence, subject=f"clients/{name}",
            details={"name": name},
        )  # fmt: skip


def _refuse_close(facts: SwitchFacts, name: str) -> guards.Refusal:
    """Return why no completed switch has left a cluster; None if one has.

    A cluster that an earlier switch left is deprecated, even if the last switch was undone.
    """
    switch, known = facts.state.switch, facts.state.entry(name)
    if switch is not None and switch.stage in _ENDED:
        return None
    if facts.state.live_switch() is not None:
        return f"the switch to {facts.switch.target} is not over"
    was_left = switch is not None and known is not None and known.status is ClusterStatus.DEPRECATED
    return None if was_left else f"no switch from {name} is done"


# --- readings of the registry and of clusters


def judge_registry(facts: SwitchFacts, seen: RegistryChecked) -> Iterator[Change]:
    """Order again what the registry lacks, and what it should no longer have: no executor answers these orders."""
    if facts.state.contested or guards.refuse_without_lease(facts):
        return
    if seen.resolved and facts.state.switch is not None:
        yield from repeat_orders(facts, SwitchReason.NOT_SEEN)
    for entry in facts.state.entries:
        if entry.name not in seen.versions:
            yield WriteRegistry(entry, SwitchReason.NOT_SEEN)
    for name in facts.state.removed:
        yield RemoveRegistry(name, seen.versions[name], SwitchReason.NOT_SEEN)


def judge_impostor(_facts: SwitchFacts, seen: Impostor) -> Iterator[Change]:
    """Reject readings from an address at which another cluster answers than was registered."""
    sentence = f"another cluster answers at the address of {seen.name}"
    yield Reject(RejectCode.NAME_CONFLICT, sentence, f"registry/{seen.name}")
