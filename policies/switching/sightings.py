"""What is seen of the world: brokers, clusters, the registry, the lease, inventories. Rows 3, 5, 7, 8 and 25.

Sightings are levels: the newest counts, an older or repeated one is counted and changes nothing (row 26).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.answers import conflict
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
from policies.switching.orders import Code, Verdict, Why
from policies.switching.references import Kind, Reference, owner_of, with_ledger
from policies.switching.state import (
    NEVER,
    Action,
    Attributed,
    Broker,
    LedgerStage,
    Members,
    Stage,
    Unit,
    put,
)
from policies.switching.turn import Turn

_PLANNING = frozenset({Stage.LIVE_DUAL_READ, Stage.BUILD, Stage.PROMOTE})
_COUNTS_WHAT_IS_LEFT = frozenset({Stage.HOLD, Stage.CLEANUP, Stage.DONE, Stage.DONE_WITH_FAILURES})


def lease(turn: Turn, event: LeaseSeen) -> None:
    """Row 25: a newer orchestrator asks again for all that is open; an older one is turned away."""
    known, new = turn.state.lease, event.lease
    if why := guards.lease_is_newer(turn.state, new.token):
        turn.reject(Code.INVALID_TRANSITION, why, "lease")
    elif known is not None and new.token == known.token and new.valid_until_ms <= known.valid_until_ms:
        turn.count("repeated")
    else:
        turn.update(lease=new)
        lapsed = known is None or new.token != known.token or turn.now_ms >= known.valid_until_ms
        if lapsed and turn.state.switch is not None:
            issue_again(turn, Why.LEASE_TAKEN)


def registry(turn: Turn, event: RegistrySeen) -> None:
    """The registry is taken over once, when nothing is known yet; later on only the versions of its znodes are.

    What it lacks is written again and what it should no longer have removed: nobody answers to those orders.
    """
    state = turn.state
    if not state.entries:
        directed = event.directive.epoch if event.directive else 0
        turn.update(
            entries=tuple(sorted(event.entries, key=lambda e: e.name)), bootstrap=state.bootstrap or event.bootstrap,
            directive=event.directive, epoch=max(state.epoch, directed, event.committed_epoch),
            committed_epoch=event.committed_epoch,
        )  # fmt: skip
        return
    versions = {e.name: e.version for e in event.entries}
    turn.update(
        entries=tuple(replace(e, version=versions.get(e.name)) for e in state.entries),
        removed=tuple(name for name in state.removed if name in versions),
    )
    if not guards.holds_lease(turn.state, turn.now_ms):
        for entry in turn.state.entries:
            if entry.name not in versions:
                write_registry(turn, entry, Why.NOT_SEEN)
        for name in turn.state.removed:
            remove_registry(turn, name, versions[name], Why.NOT_SEEN)


def members(turn: Turn, event: MembersSeen) -> None:
    """Who is alive."""
    if turn.state.members is not None and event.at_ms <= turn.state.members.at_ms:
        turn.count("repeated")
    else:
        turn.update(members=Members(tuple(sorted(set(event.brokers))), event.at_ms))


def cluster(turn: Turn, event: ClusterSeen) -> None:
    """A BookKeeper cluster was read."""
    known = turn.state.cluster(event.cluster.name)
    if known is not None and event.cluster.read_ms <= known.read_ms:
        turn.count("repeated")
    elif (name := _impostor(turn, event)) is not None:
        turn.reject(Code.NAME_CONFLICT, f"another cluster answers at the address of {name}", f"registry/{name}")
    else:
        turn.update(clusters=put(turn.state.clusters, event.cluster))


def _impostor(turn: Turn, event: ClusterSeen) -> str | None:
    """The name under which another cluster answers than the one that was registered."""
    entry, seen = turn.state.entry(event.cluster.name), event.cluster
    if entry is None or seen.instance_id is None or seen.root is None:
        return None
    same = (entry.instance_id, entry.root) == (seen.instance_id, seen.root.rstrip("/"))
    return None if same else entry.name


def prechecked(turn: Turn, event: Prechecked) -> None:
    """Row 3: the report; a later one takes the place of an earlier one."""
    check, known = event.check, turn.state.check(event.check.target)
    stage = turn.state.stage(check.target, turn.now_ms)
    if known is not None and check.checked_ms <= known.checked_ms:
        turn.count("repeated")
    elif stage not in (Stage.REGISTERED, Stage.PRECHECKED):
        turn.reject(Code.INVALID_TRANSITION, f"{check.target} is {stage.value}", f"prechecks/{check.target}")
    else:
        turn.update(checks=put(turn.state.checks, check, "target"))
        says = "ready" if check.ready else f"not ready: {', '.join(dict.fromkeys(check.reasons))}"
        sentence = f"{check.target} is {says} (digest {check.digest[:12]})"
        details: dict[str, object] = {"digest": check.digest, "ready": check.ready, "target": check.target}
        turn.say(Verdict.ADVANCE, Why.COMMANDED, sentence, subject=f"prechecks/{check.target}", details=details)


def broker(turn: Turn, event: BrokerSeen) -> None:
    """Rows 5 and 7: a broker follows the directive, or cannot."""
    known = next((b for b in turn.state.brokers if b.name == event.broker), None)
    if known is not None and event.sequence <= known.sequence:
        turn.count("repeated")
        return
    said = known or Broker(event.broker, NEVER, NEVER)
    said = replace(said, sequence=event.sequence, at_ms=event.at_ms, writes=event.writes, reads=event.reads)
    switch = turn.state.live()
    if switch is not None and guards.epoch_is_current(switch, event.epoch):
        turn.count("stale_acks")
        turn.update(brokers=put(turn.state.brokers, said))
        return
    epoch = switch.epoch if switch is not None else event.epoch
    said = replace(said, failed_epoch=epoch) if event.failed else replace(said, acked_epoch=epoch)
    turn.update(brokers=put(turn.state.brokers, said))
    if event.failed and switch is not None:
        _client_init_failed(turn, event)


def _client_init_failed(turn: Turn, event: BrokerSeen) -> None:
    switch = turn.switch
    if switch.stage is Stage.TRIGGERED and not any(b.acked_epoch == switch.epoch for b in turn.state.brokers):
        sentence = f"{event.broker} cannot reach {switch.target}; no broker moved, so none will"
        turn.advance(Stage.REJECTED, Why.CLIENT_INIT_FAILED, sentence, ended_ms=turn.now_ms)
        direct(turn, switch.source, Why.CLIENT_INIT_FAILED)
    elif not switch.degraded:
        turn.set_switch(degraded=True)
        sentence = f"{event.broker} cannot reach {switch.target}, others already write there: a person must decide"
        turn.say(Verdict.DEGRADED, Why.CLIENT_INIT_FAILED, sentence)


# --- the inventory (row 8)


def inventory(turn: Turn, event: InventorySeen) -> None:
    """All references: what is attributed to whom, and, while a plan is made, what belongs into it."""
    known, switch = turn.state.attributed, turn.state.switch
    if known is not None and event.at_ms <= known.at_ms:
        turn.count("repeated")
        return
    turn.update(attributed=_attributed(turn, event))
    if switch is None or switch.stage not in _PLANNING or event.target != switch.target:
        return
    if event.at_ms <= switch.live_ms or switch.halted or guards.holds_lease(turn.state, turn.now_ms):
        return
    _plan(turn, event, _settle_awaited(turn, event))
    if switch.stage is Stage.LIVE_DUAL_READ:
        turn.advance(Stage.BUILD, Why.INVENTORY_COMPLETE, f"{len(turn.plan)} ledgers are to move to {switch.target}")


def _attributed(turn: Turn, event: InventorySeen) -> Attributed:
    switch, bootstrap = turn.state.switch, turn.state.bootstrap
    owners = Counter(owner_of(r, bootstrap) or "" for r in with_ledger(event.references))
    target = switch.target if switch else None
    outside = (r.ledger_id for r in event.references if target is None or owner_of(r, bootstrap) != target)
    keeps = switch is not None and switch.stage in _COUNTS_WHAT_IS_LEFT
    old = _ids(turn, event.references, switch.source) if switch is not None and keeps else set()
    return Attributed(event.at_ms, dict(sorted(owners.items())), tuple(sorted(old)), max(outside, default=NEVER))


def _ids(turn: Turn, references: Iterable[Reference], owner: str) -> set[int]:
    return {r.ledger_id for r in with_ledger(references) if owner_of(r, turn.state.bootstrap) == owner}


def _settle_awaited(turn: Turn, event: InventorySeen) -> dict[int, int]:
    """Ledgers that wait for an inventory: rolled over to the target, gone, or to be planned afresh.

    Returns:
        The last order's number of each ledger taken out of the plan, so that late answers stay late.
    """
    awaited, taken_out = [u for u in turn.plan if u.awaiting is Action.INVENTORY], {}
    if not awaited:
        return {}
    at_path = {r.path: r for r in with_ledger(event.references) if r.kind is Kind.CURSOR}
    for unit in awaited:
        now = next((at_path[p] for p in unit.paths if p in at_path), None)
        moved = now is not None and owner_of(now, turn.state.bootstrap) == turn.switch.target
        if unit.kind is Kind.CURSOR and moved and now is not None and now.ledger_id != unit.ledger_id:
            stage = LedgerStage.PROMOTED_VIA_ROLLOVER
            after = replace(unit, stage=stage, awaiting=Action.NONE, target_id=now.ledger_id, reason="")
            turn.plan.put(after)
            turn.say_of(after, Verdict.LEDGER, Why.ROLLED_OVER, f"ledger {unit.ledger_id} is {stage.value}")
        else:
            turn.plan.drop(unit.ledger_id)
            taken_out[unit.ledger_id] = unit.op
    return taken_out


def _plan(turn: Turn, event: InventorySeen, ops: Mapping[int, int]) -> None:
    """What is attributed to the source and not planned yet becomes part of the plan."""
    paths: dict[tuple[int, Kind], set[str]] = {}
    for reference in with_ledger(event.references):
        owned = owner_of(reference, turn.state.bootstrap) == turn.switch.source
        if owned and turn.plan.get(reference.ledger_id) is None:
            paths.setdefault((reference.ledger_id, reference.kind), set()).add(reference.path)
    for (ledger_id, kind), named in sorted(paths.items()):
        _plan_one(turn, Unit(ledger_id, kind, tuple(sorted(named)), op=ops.get(ledger_id, 0)), event)


def _plan_one(turn: Turn, unit: Unit, event: InventorySeen) -> None:
    """INV-1 and INV-6, ledger by ledger."""
    if unit.kind in turn.limits.remapped:
        # A cursor's owner makes its new ledger itself, so there is nothing to copy.
        stage = LedgerStage.BUILT if unit.kind is Kind.CURSOR else LedgerStage.PENDING
        turn.plan.put(replace(unit, stage=stage, cleared=True, remap=True))
        return
    source, target = turn.instance(turn.switch.source) or "", turn.instance(turn.switch.target) or ""
    found = event.existing.get(unit.ledger_id)
    if found is not None and found.provenance == source:
        turn.journal(unit)  # the executor's own journal has its intent: ours may have been lost with the state
    intent = turn.intent(unit)
    if why := guards.import_is_disjoint(found, intent, source, target):
        conflict(turn, unit, Why.FOREIGN_ID, why)
    elif why := guards.id_was_not_deleted(turn.state, target, unit.ledger_id):
        conflict(turn, unit, Why.DELETED_ID, why)
    else:
        cleared = found is None or is_ours(found, intent, source, target)
        turn.plan.put(replace(unit, cleared=cleared))
