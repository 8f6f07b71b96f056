"""What is seen of the world: brokers, clusters, the registry, the lease, inventories. Rows 3, 5, 7, 8 and 25.

Sightings are levels: the newest counts, an older or repeated one is counted and changes nothing (row 26).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.answers import conflict
from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.events import (
    BrokerSeen,
    ClusterSeen,
    InventorySeen,
    LeaseSeen,
    MembersSeen,
    Prechecked,
    RegistrySeen,
)
from policies.switching.intents import direct, issue_again, remove_registry, write_registry
from policies.switching.ledgers import is_ours
from policies.switching.references import LedgerKind, Reference, owner_of, with_ledger
from policies.switching.state import (
    NEVER,
    BrokerReport,
    InventorySummary,
    LedgerStage,
    LedgerTask,
    LiveBrokers,
    SwitchAction,
    SwitchStage,
    put,
)
from policies.switching.transition import Transition

_PLANNING = frozenset({SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE})
_COUNTS_WHAT_IS_LEFT = frozenset(
    {SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES}
)


def lease(transition: Transition, event: LeaseSeen) -> None:
    """Row 25: a newer orchestrator asks again for all that is open; an older one is turned away."""
    known, new = transition.state.lease, event.lease
    if why := guards.lease_is_newer(transition.state, new.token):
        transition.reject(RejectCode.INVALID_TRANSITION, why, "lease")
    elif known is not None and new.token == known.token and new.valid_until_ms <= known.valid_until_ms:
        transition.count("repeated")
    else:
        transition.update(lease=new)
        lapsed = known is None or new.token != known.token or transition.now_ms >= known.valid_until_ms
        if lapsed and transition.state.switch is not None:
            issue_again(transition, SwitchReason.LEASE_TAKEN)


def registry(transition: Transition, event: RegistrySeen) -> None:
    """The registry is taken over once, when nothing is known yet; later on only the versions of its znodes are.

    What it lacks is written again and what it should no longer have removed: nobody answers to those orders.
    """
    state = transition.state
    if not state.entries:
        directed = event.directive.epoch if event.directive else 0
        transition.update(
            entries=tuple(sorted(event.entries, key=lambda e: e.name)), bootstrap=state.bootstrap or event.bootstrap,
            directive=event.directive, epoch=max(state.epoch, directed, event.committed_epoch),
            committed_epoch=event.committed_epoch,
        )  # fmt: skip
        return
    versions = {e.name: e.version for e in event.entries}
    transition.update(
        entries=tuple(replace(e, version=versions.get(e.name)) for e in state.entries),
        removed=tuple(name for name in state.removed if name in versions),
    )
    if not guards.holds_lease(transition.state, transition.now_ms):
        for entry in transition.state.entries:
            if entry.name not in versions:
                write_registry(transition, entry, SwitchReason.NOT_SEEN)
        for name in transition.state.removed:
            remove_registry(transition, name, versions[name], SwitchReason.NOT_SEEN)


def members(transition: Transition, event: MembersSeen) -> None:
    """Who is alive."""
    if transition.state.members is not None and event.at_ms <= transition.state.members.at_ms:
        transition.count("repeated")
    else:
        transition.update(members=LiveBrokers(tuple(sorted(set(event.brokers))), event.at_ms))


def cluster(transition: Transition, event: ClusterSeen) -> None:
    """A BookKeeper cluster was read."""
    known = transition.state.cluster(event.cluster.name)
    if known is not None and event.cluster.read_ms <= known.read_ms:
        transition.count("repeated")
    elif (name := _impostor(transition, event)) is not None:
        transition.reject(
            RejectCode.NAME_CONFLICT, f"another cluster answers at the address of {name}", f"registry/{name}"
        )
    else:
        transition.update(clusters=put(transition.state.clusters, event.cluster))


def _impostor(transition: Transition, event: ClusterSeen) -> str | None:
    """The name under which another cluster answers than the one that was registered."""
    entry, seen = transition.state.entry(event.cluster.name), event.cluster
    if entry is None or seen.instance_id is None or seen.root is None:
        return None
    same = (entry.instance_id, entry.root) == (seen.instance_id, seen.root.rstrip("/"))
    return None if same else entry.name


def prechecked(transition: Transition, event: Prechecked) -> None:
    """Row 3: the report; a later one takes the place of an earlier one."""
    check, known = event.check, transition.state.check(event.check.target)
    stage = transition.state.stage(check.target, transition.now_ms)
    if known is not None and check.checked_ms <= known.checked_ms:
        transition.count("repeated")
    elif stage not in (SwitchStage.REGISTERED, SwitchStage.PRECHECKED):
        transition.reject(
            RejectCode.INVALID_TRANSITION, f"{check.target} is {stage.value}", f"prechecks/{check.target}"
        )
    else:
        transition.update(checks=put(transition.state.checks, check, "target"))
        says = "ready" if check.ready else f"not ready: {', '.join(dict.fromkeys(check.reasons))}"
        sentence = f"{check.target} is {says} (digest {check.digest[:12]})"
        details: dict[str, object] = {"digest": check.digest, "ready": check.ready, "target": check.target}
        transition.say(
            SwitchVerdict.ADVANCE,
            SwitchReason.COMMANDED,
            sentence,
            subject=f"prechecks/{check.target}",
            details=details,
        )


def broker(transition: Transition, event: BrokerSeen) -> None:
    """Rows 5 and 7: a broker follows the directive, or cannot."""
    known = next((b for b in transition.state.brokers if b.name == event.broker), None)
    if known is not None and event.sequence <= known.sequence:
        transition.count("repeated")
        return
    said = known or BrokerReport(event.broker, NEVER, NEVER)
    said = replace(said, sequence=event.sequence, at_ms=event.at_ms, writes=event.writes, reads=event.reads)
    switch = transition.state.live()
    if switch is not None and guards.epoch_is_current(switch, event.epoch):
        transition.count("stale_acks")
        transition.update(brokers=put(transition.state.brokers, said))
        return
    epoch = switch.epoch if switch is not None else event.epoch
    said = replace(said, failed_epoch=epoch) if event.failed else replace(said, acked_epoch=epoch)
    transition.update(brokers=put(transition.state.brokers, said))
    if event.failed and switch is not None:
        _client_init_failed(transition, event)


def _client_init_failed(transition: Transition, event: BrokerSeen) -> None:
    switch = transition.switch
    if switch.stage is SwitchStage.TRIGGERED and not any(
        b.acked_epoch == switch.epoch for b in transition.state.brokers
    ):
        sentence = f"{event.broker} cannot reach {switch.target}; no broker moved, so none will"
        transition.advance(SwitchStage.REJECTED, SwitchReason.CLIENT_INIT_FAILED, sentence, ended_ms=transition.now_ms)
        direct(transition, switch.source, SwitchReason.CLIENT_INIT_FAILED)
    elif not switch.degraded:
        transition.set_switch(degraded=True)
        sentence = f"{event.broker} cannot reach {switch.target}, others already write there: a person must decide"
        transition.say(SwitchVerdict.DEGRADED, SwitchReason.CLIENT_INIT_FAILED, sentence)


# --- the inventory (row 8)


def inventory(transition: Transition, event: InventorySeen) -> None:
    """All references: what is attributed to whom, and, while a plan is made, what belongs into it."""
    known, switch = transition.state.inventory, transition.state.switch
    if known is not None and event.at_ms <= known.at_ms:
        transition.count("repeated")
        return
    transition.update(inventory=_attributed(transition, event))
    if switch is None or switch.stage not in _PLANNING or event.target != switch.target:
        return
    if event.at_ms <= switch.live_ms or switch.halted or guards.holds_lease(transition.state, transition.now_ms):
        return
    _plan(transition, event, _settle_awaited(transition, event))
    if switch.stage is SwitchStage.LIVE_DUAL_READ:
        transition.advance(
            SwitchStage.BUILD,
            SwitchReason.INVENTORY_COMPLETE,
            f"{len(transition.plan)} ledgers are to move to {switch.target}",
        )


def _attributed(transition: Transition, event: InventorySeen) -> InventorySummary:
    switch, bootstrap = transition.state.switch, transition.state.bootstrap
    owners = Counter(owner_of(r, bootstrap) or "" for r in with_ledger(event.references))
    target = switch.target if switch else None
    outside = (r.ledger_id for r in event.references if target is None or owner_of(r, bootstrap) != target)
    keeps = switch is not None and switch.stage in _COUNTS_WHAT_IS_LEFT
    old = _ids(transition, event.references, switch.source) if switch is not None and keeps else set()
    return InventorySummary(event.at_ms, dict(sorted(owners.items())), tuple(sorted(old)), max(outside, default=NEVER))


def _ids(transition: Transition, references: Iterable[Reference], owner: str) -> set[int]:
    return {r.ledger_id for r in with_ledger(references) if owner_of(r, transition.state.bootstrap) == owner}


def _settle_awaited(transition: Transition, event: InventorySeen) -> dict[int, int]:
    """Ledgers that wait for an inventory: rolled over to the target, gone, or to be planned afresh.

    Returns:
        The last order's number of each ledger taken out of the plan, so that late answers stay late.
    """
    awaited, taken_out = [u for u in transition.plan if u.awaiting is SwitchAction.INVENTORY], {}
    if not awaited:
        return {}
    at_path = {r.path: r for r in with_ledger(event.references) if r.kind is LedgerKind.CURSOR}
    for task in awaited:
        now = next((at_path[p] for p in task.paths if p in at_path), None)
        moved = now is not None and owner_of(now, transition.state.bootstrap) == transition.switch.target
        if task.kind is LedgerKind.CURSOR and moved and now is not None and now.ledger_id != task.ledger_id:
            stage = LedgerStage.PROMOTED_VIA_ROLLOVER
            after = replace(task, stage=stage, awaiting=SwitchAction.NONE, target_id=now.ledger_id, reason="")
            transition.plan.put(after)
            transition.say_of(
                after, SwitchVerdict.LEDGER, SwitchReason.ROLLED_OVER, f"ledger {task.ledger_id} is {stage.value}"
            )
        else:
            transition.plan.drop(task.ledger_id)
            taken_out[task.ledger_id] = task.op
    return taken_out


def _plan(transition: Transition, event: InventorySeen, ops: Mapping[int, int]) -> None:
    """What is attributed to the source and not planned yet becomes part of the plan."""
    paths: dict[tuple[int, LedgerKind], set[str]] = {}
    for reference in with_ledger(event.references):
        owned = owner_of(reference, transition.state.bootstrap) == transition.switch.source
        if owned and transition.plan.get(reference.ledger_id) is None:
            paths.setdefault((reference.ledger_id, reference.kind), set()).add(reference.path)
    for (ledger_id, kind), named in sorted(paths.items()):
        _plan_one(transition, LedgerTask(ledger_id, kind, tuple(sorted(named)), op=ops.get(ledger_id, 0)), event)


def _plan_one(transition: Transition, task: LedgerTask, event: InventorySeen) -> None:
    """INV-1 and INV-6, ledger by ledger."""
    if task.kind in transition.limits.remapped:
        # A cursor's owner makes its new ledger itself, so there is nothing to copy.
        stage = LedgerStage.BUILT if task.kind is LedgerKind.CURSOR else LedgerStage.PENDING
        transition.plan.put(replace(task, stage=stage, cleared=True, remap=True))
        return
    source, target = (
        transition.instance(transition.switch.source) or "",
        transition.instance(transition.switch.target) or "",
    )
    found = event.existing.get(task.ledger_id)
    if found is not None and found.provenance == source:
        transition.journal(task)  # the executor's own journal has its intent: ours may have been lost with the state
    intent = transition.intent(task)
    if why := guards.import_is_disjoint(found, intent, source, target):
        conflict(transition, task, SwitchReason.FOREIGN_ID, why)
    elif why := guards.id_was_not_deleted(transition.state, target, task.ledger_id):
        conflict(transition, task, SwitchReason.DELETED_ID, why)
    else:
        cleared = found is None or is_ours(found, intent, source, target)
        transition.plan.put(replace(task, cleared=cleared))
