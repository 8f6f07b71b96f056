"""Folds readings: each kind updates a small read model of its own.

A reading shows a whole level, so the newest one counts. An older or repeated reading changes nothing (row 26). No rule
of the table is applied here: commands, leases, reports and results go on to the judge.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.switching.ledgers import (
    ANY_CLUSTER,
    ClusterSnapshot,
    Ledger,
    Reference,
    StayingLedgers,
    find_owner,
    mark_written,
    raise_marks,
    with_ledger,
)
from policies.switching.readings import (
    SwitchBroker,
    SwitchBrokers,
    SwitchCluster,
    SwitchCommand,
    SwitchInventory,
    SwitchInventoryPart,
    SwitchLease,
    SwitchLedger,
    SwitchPrecheck,
    SwitchRegistry,
    SwitchStatus,
)
from policies.switching.state import (
    LIVE,
    NEVER,
    PLANNING,
    BrokerReport,
    ClusterStatus,
    Directive,
    InventoryAssembly,
    InventorySummary,
    LiveBrokers,
    OrchestratorLease,
    PrecheckResult,
    SwitchingState,
    put,
    take_up,
)

_MOST_UNREAD = 64
"""Limit of `written_unread`: a forged report may name any cluster."""


def _fold_registry(state: SwitchingState, seen: SwitchRegistry, at_ms: int) -> "_Folded":
    """Take up the registry from its first reading; from later ones take only the versions of its znodes.

    After the first reading the policy is the only writer, so any other difference was written by somebody else and
    contests the registry.
    """
    if at_ms < state.registry_ms:
        return state, None
    state, before = replace(state, registry_ms=at_ms), state
    # Commands may come before the first reading: the registry is then older than the entries that they made.
    is_first = before.registry_ms == NEVER and before.directive is None and bool(seen.clusters)
    if not state.entries or is_first or _is_behind(state, seen):
        return _take_up(state, seen, at_ms)
    versions = {e.name: e.version for e in seen.clusters}
    contested, by = _find_other_active(state, seen) or state.leaderless(), None
    if not contested and (by := _find_foreign_directive(state, seen)) is not None:
        contested = f"epoch {by.epoch} directs brokers to {by.target or 'another cluster'}, which nobody here ordered"
    state = mark_writes(state, {by.target} - {""} if by is not None else ())  # brokers were sent there
    after = replace(
        state,
        contested=contested,
        contested_by=by,
        entries=tuple(replace(e, version=versions.get(e.name)) for e in state.entries),
        removed=tuple(name for name in state.removed if name in versions),
    )
    return after, seen


def _is_behind(state: SwitchingState, seen: SwitchRegistry) -> bool:
    """Whether our switch was made of old records that came again after a lost checkpoint: the kept one is ahead of it.

    A recent `start` may fit once more, and an early registry or progress may be adopted. The kept one otherwise never
    has a later epoch, nor a later stage, nor another time of going live.
    """
    kept, ours = seen.progress, state.switch
    if kept is None or take_up(kept, seen.directive, NEVER) is None:
        return False
    if ours is None or kept.epoch > ours.epoch:
        return ours is not None or state.directive in (None, seen.directive)
    is_other = kept.started_ms < ours.started_ms or (kept.live_ms >= 0 and kept.live_ms != ours.live_ms)
    is_later = kept.target == ours.target and (is_other or kept.stage_ms > ours.stage_ms)
    return kept.epoch == ours.epoch and is_later


def _take_up(state: SwitchingState, seen: SwitchRegistry, at_ms: int) -> "_Folded":
    """Go on from the registry and the progress beside it; keep the entries that commands registered before.

    The first cluster ever registered is active. If the registry already has an active cluster, then the one that was
    registered early was not the first, and becomes a standby.
    """
    versions, directive, kept = {e.name: e.version for e in seen.clusters}, seen.directive, seen.progress
    if kept is not None:
        # Also where another directive is in force now: the brokers had ids of all these clusters.
        state = mark_writes(state, {kept.source, kept.target, kept.brokers_from or kept.source})
    adopted = {e.name: replace(e, root=e.root.rstrip("/")) for e in seen.clusters if e.name not in state.removed}
    has_active = any(e.status is ClusterStatus.ACTIVE for e in seen.clusters)
    early = (e for e in state.entries if e.name not in adopted)
    own = (replace(e, status=ClusterStatus.STANDBY) if has_active else e for e in early)
    switch = take_up(kept, directive, at_ms)
    epochs = [state.epoch, seen.committed_epoch, *(each.epoch for each in (directive, switch) if each is not None)]
    after = replace(
        state,
        entries=tuple(sorted((*adopted.values(), *own), key=lambda e: e.name)),
        bootstrap=seen.bootstrap or state.bootstrap,
        directive=directive,
        committed_epoch=seen.committed_epoch,
        epoch=max(epochs),
        # After a lost checkpoint executors remember earlier orders: a new order must not reuse one of their numbers.
        ops=max(state.ops, at_ms) if seen.clusters else state.ops,
        removed=tuple(n for n in state.removed if n in versions),
        switch=switch or state.switch,
        judged_ms=kept.commanded_ms if kept is not None and switch is not None else state.judged_ms,
    )
    after = replace(after, contested=_find_other_active(after, seen) or after.leaderless())
    return after, seen


def _find_other_active(state: SwitchingState, seen: SwitchRegistry) -> str:
    """Return why the active cluster is not the one that we know; empty if it is, or if a commit may explain it."""
    entries = seen.clusters or state.entries  # our first entry may still be unwritten because another one is active
    ours, known = {e.name for e in entries if e.status is ClusterStatus.ACTIVE}, state.committed()
    active = sorted(ours)
    if len(active) > 1:
        return f"{' and '.join(active)} are active in the registry at once"
    is_shown = seen.committed_epoch == state.committed_epoch and known in {e.name for e in seen.clusters}
    is_other = is_shown and active != [known]
    return f"{active[0] if active else 'no cluster'} is active in the registry, not {known}" if is_other else ""


def _find_foreign_directive(state: SwitchingState, seen: SwitchRegistry) -> Directive | None:
    """Find a directive of a later epoch, another directive of our epoch, or the commit of a later epoch.

    Epochs in ZooKeeper only grow. So a foreign directive that was read once stays in force until ours is later: a
    reading without it is an older one, even if it arrives afterwards or carries the same millisecond.
    """
    shown, ours = (seen.directive, Directive(seen.committed_epoch, ""), state.contested_by), state.directive
    foreign = [
        d for d in shown
        if d is not None and (
            d.epoch > state.epoch or (ours is not None and d.epoch == ours.epoch and d.target not in ("", ours.target))
        )
    ]  # fmt: skip
    return max(foreign, key=lambda each: each.epoch, default=None)


def _fold_cluster(state: SwitchingState, seen: SwitchCluster, at_ms: int) -> "_Folded":
    """Keep the cluster as last read, dated by the reading's beginning; keep only the name of an impostor."""
    cluster = ClusterSnapshot(
        name=seen.name, instance_id=seen.instance_id, root=seen.root, layout=seen.layout, generator=seen.generator,
        read_ms=at_ms - seen.took_ms, epoch=_find_epoch(seen), lower_counters=len(seen.lower),
        lower_given=sum(each.given for each in seen.lower),
    )  # fmt: skip
    known, entry = state.cluster(cluster.name), state.entry(cluster.name)
    others = tuple(n for n in state.impostors if n != cluster.name)
    if known is not None and not _is_newer(known, cluster):
        return state, None
    if (
        entry is not None and cluster.instance_id is not None and cluster.root is not None
        and (entry.instance_id, entry.root) != (cluster.instance_id, cluster.root.rstrip("/"))
    ):  # fmt: skip
        return replace(state, impostors=tuple(sorted((*others, cluster.name)))), None
    marks, unread = raise_marks(state.marks, cluster), state.written_unread
    if cluster.name in unread and cluster.instance_id is not None:
        marks, unread = mark_written(marks, cluster, from_now=False), tuple(n for n in unread if n != cluster.name)
    is_same = known is not None and known.instance_id == cluster.instance_id
    # The present counter becomes a lower one when the cluster is advanced: that moves nothing.
    is_moved = (
        is_same
        and known is not None
        and (known.lower_counters == cluster.lower_counters and known.lower_given < cluster.lower_given)
    )
    before, hob = known.generator if known else None, (cluster.generator.hob or 0) if cluster.generator else 0
    is_raised = is_same and before is not None and hob > (before.hob or 0)
    cluster = replace(
        cluster,
        raised_epoch=cluster.epoch if is_raised else known.raised_epoch if known else NEVER,
        lower_moved_ms=cluster.read_ms if is_moved else known.lower_moved_ms if known else NEVER,
    )
    clusters = put(state.clusters, cluster)
    return replace(state, clusters=clusters, marks=marks, impostors=others, written_unread=unread), None


def _is_newer(known: ClusterSnapshot, cluster: ClusterSnapshot) -> bool:
    """Whether a reading is later than the known one; of the same millisecond, the one with the greater ids is."""
    if cluster.read_ms != known.read_ms or cluster.generator is None or known.generator is None:
        return cluster.read_ms > known.read_ms
    return cluster.generator.next_id > known.generator.next_id


def mark_writes(state: SwitchingState, names: Iterable[str]) -> SwitchingState:
    """Mark clusters that brokers wrote to, or were sent to. One that was not read yet is marked once it is."""
    marks, unread = state.marks, set(state.written_unread)
    for name in names:
        cluster = state.cluster(name)
        marks = mark_written(marks, cluster, from_now=False)
        unread |= {name} if cluster is None or cluster.instance_id is None else set()
    if (marks, len(unread)) == (state.marks, len(state.written_unread)):
        return state
    return replace(state, marks=marks, written_unread=tuple(sorted(unread)[:_MOST_UNREAD]))


def _find_epoch(seen: SwitchBrokers | SwitchCluster | SwitchInventory) -> int:
    """Return the directive's epoch that ZooKeeper showed before a reading; -1: not read, so it proves nothing."""
    return NEVER if seen.epoch is None else seen.epoch


# Inventories: assembled from their parts, then kept as a summary.

_CONTENT = msgspec.msgpack.Decoder(tuple[tuple[Reference, ...], tuple[Ledger, ...]])


@dataclass(frozen=True, slots=True)
class InventorySeen:
    """A complete inventory: all references that name a ledger, and which of the ledgers exist in the target."""

    manifest: SwitchInventory
    at_ms: int
    """When it began."""
    references: tuple[Reference, ...]
    existing: Mapping[int, Ledger]


def assemble(
    known: InventoryAssembly | None, reading: SwitchInventoryPart | SwitchInventory, at_ms: int
) -> tuple[InventoryAssembly | None, InventorySeen | None]:
    """Add a part or a manifest to its inventory, and return the whole inventory once nothing is missing.

    One inventory is assembled at a time: a later one replaces one that is not complete.
    """
    is_same = known is not None and known.inventory == reading.inventory
    if reading.outcome is not Outcome.OK:
        return (None if is_same else known), None
    if known is not None and (known.complete if is_same else at_ms < known.at_ms):
        return known, None
    if known is None or not is_same:
        known = InventoryAssembly(reading.inventory, at_ms)
    if isinstance(reading, SwitchInventory):
        known = replace(known, manifest=reading.model_dump_json(), began_ms=at_ms - reading.took_ms)
    else:
        packed = msgspec.msgpack.encode((reading.references, reading.existing))
        known = replace(known, parts=dict(sorted((known.parts | {reading.part: packed}).items())))
    known = replace(known, at_ms=max(known.at_ms, at_ms))
    whole = _join_parts(known)
    return (known if whole is None else InventoryAssembly(known.inventory, known.at_ms, complete=True)), whole


def _join_parts(known: InventoryAssembly) -> InventorySeen | None:
    """Return the whole inventory; None while its manifest, a part or a reference is missing."""
    if not known.manifest:
        return None
    manifest = SwitchInventory.model_validate_json(known.manifest)
    if list(known.parts) != list(range(manifest.parts)):
        return None
    parts = [_CONTENT.decode(packed) for packed in known.parts.values()]
    references = [r for references, _ in parts for r in references]
    if len(references) != manifest.references:
        return None
    existing = {ledger.ledger_id: ledger for _, found in parts for ledger in found}
    return InventorySeen(manifest, known.began_ms, tuple(with_ledger(references)), existing)


def summarize(state: SwitchingState, seen: InventorySeen) -> SwitchingState | None:
    """Keep a summary of the inventory; None if it is no newer than the last one, or than the directive in force."""
    manifest, epoch = seen.manifest, _find_epoch(seen.manifest)
    is_early = state.directive is not None and epoch < state.directive.epoch
    if is_early or (state.inventory is not None and seen.at_ms <= state.inventory.at_ms):
        return None
    switch, bootstrap = state.switch, state.bootstrap
    owners = Counter(find_owner(r, bootstrap) or ANY_CLUSTER for r in seen.references)
    for staying in manifest.staying:
        owners[staying.cluster] += staying.count
    target = switch.target if switch else ANY_CLUSTER
    outside = [r.ledger_id for r in seen.references if find_owner(r, bootstrap) != target]
    outside += (s.greatest_id for s in manifest.staying if not _may_be_in_target(state, s))
    old_ids: set[int] = set()
    if switch is not None and switch.stage in LIVE - PLANNING:
        old_ids = {r.ledger_id for r in seen.references if find_owner(r, bootstrap) == switch.source}
    counts, greatest = dict(sorted(owners.items())), max(outside, default=NEVER)
    summary = InventorySummary(
        seen.at_ms, counts, tuple(sorted(old_ids)), greatest, manifest.staying, manifest.valid_ms, epoch,
        manifest.attempt or 1,
    )  # fmt: skip
    return replace(state, inventory=summary)


def _may_be_in_target(state: SwitchingState, staying: StayingLedgers) -> bool:
    """Whether the greatest id may come from the target.

    A topic does not record which cluster holds its ledgers. The target gives ids from its floor on, so an id that a
    topic got since the switch began is the target's own.
    """
    switch = state.switch
    if switch is None or staying.cluster == switch.target:
        return switch is not None
    return staying.cluster == ANY_CLUSTER and staying.greatest_id >= switch.target_floor


REMEMBERED_COMMANDS = 1000
Judged = (
    SwitchCommand | OrchestratorLease | SwitchRegistry | SwitchBroker | PrecheckResult | InventorySeen | SwitchLedger
    | SwitchStatus
)  # fmt: skip
"""The events that the judge takes after the fold."""
_Folded = tuple[SwitchingState, Judged | None]
"""The state after a reading, and the judge's event, if there is one."""
_FAILED_TOO = SwitchBrokers | SwitchInventoryPart | SwitchInventory


def fold(state: SwitchingState, seen: Observation) -> _Folded:
    """Fold a reading into its read model. A failed one of live brokers or of an inventory counts, too."""
    reading = seen.reading
    is_read = reading.outcome is Outcome.OK or isinstance(reading, _FAILED_TOO)
    return _FOLDS[type(reading)](state, reading, seen.at_ms) if is_read else (state, None)


def _fold_command(state: SwitchingState, command: SwitchCommand, at_ms: int) -> _Folded:
    """After a lost checkpoint, commands come again from their topic: those that were judged before are only kept."""
    key, is_judged = command.idempotency_key, at_ms <= state.judged_ms
    if key in state.commands:
        return state, None
    after = replace(state, commands=(*state.commands, key)[-REMEMBERED_COMMANDS:])
    return (after, None) if is_judged else (replace(after, commanded_ms=max(after.commanded_ms, at_ms)), command)


def _fold_members(state: SwitchingState, seen: SwitchBrokers, at_ms: int) -> _Folded:
    known = state.members
    if known is not None and at_ms <= known.at_ms:
        return state, None
    if seen.outcome is not Outcome.OK:
        return replace(state, members=replace(known, is_unread=True)) if known is not None else state, None
    before_ms = known.since_ms if known else {}
    since_ms = {broker: before_ms.get(broker, at_ms) for broker in sorted(seen.brokers)}
    return replace(state, members=LiveBrokers(since_ms, at_ms, _find_epoch(seen))), None


def _fold_report(state: SwitchingState, seen: SwitchBroker, at_ms: int) -> _Folded:
    """Reports are levels, too: a broker follows the directive of its last report, so it can go back.

    A report that arrives after a later one still shows where the broker wrote: that cluster gave it ids.
    """
    state = mark_writes(state, seen.writes)
    known = next((b for b in state.brokers if b.name == seen.broker), None)
    if known is not None and seen.sequence <= known.sequence:
        return state, None
    report = known or BrokerReport(seen.broker, NEVER, NEVER)
    acked, failed = (NEVER, seen.epoch) if seen.client_init_failed else (seen.epoch, NEVER)
    is_unchanged = (report.acked_epoch, report.failed_epoch) == (acked, failed)
    directive = state.directive
    strays = directive is not None and seen.epoch == directive.epoch and bool(set(seen.writes) - {directive.target})
    report = BrokerReport(
        seen.broker, seen.sequence, at_ms, acked, failed, seen.writes, seen.reads,
        report.since_ms if is_unchanged else at_ms,
        at_ms if strays else report.strayed_ms, seen.client_epoch,
    )  # fmt: skip
    return replace(state, brokers=put(state.brokers, report)), seen


def _fold_inventory(state: SwitchingState, seen: SwitchInventoryPart | SwitchInventory, at_ms: int) -> _Folded:
    """Keep the parts until the inventory is whole, then its summary. An outdated inventory is not judged."""
    assembly, whole = assemble(state.assembly, seen, at_ms)
    state = replace(state, assembly=assembly)
    summarized = None if whole is None else summarize(state, whole)
    return (state, None) if summarized is None else (summarized, whole)


def _fold_precheck(state: SwitchingState, seen: SwitchPrecheck, at_ms: int) -> _Folded:
    """Reduce a report to what a start needs. The validity counts from the record's time."""
    return state, PrecheckResult(
        seen.source, seen.target, seen.ready, seen.digest, seen.reasons, at_ms, at_ms + seen.valid_ms, seen.greatest_id,
        seen.bypassed,
    )  # fmt: skip


_FOLDS: Mapping[type, Callable[[SwitchingState, Any, int], _Folded]] = {
    SwitchCommand: _fold_command,
    SwitchLease: lambda state, seen, at_ms: (state, OrchestratorLease(seen.token, seen.holder, at_ms + seen.valid_ms)),
    SwitchRegistry: _fold_registry,
    SwitchBrokers: _fold_members,
    SwitchBroker: _fold_report,
    SwitchCluster: _fold_cluster,
    SwitchPrecheck: _fold_precheck,
    SwitchInventoryPart: _fold_inventory,
    SwitchInventory: _fold_inventory,
    SwitchLedger: lambda state, seen, _: (state, seen),
    SwitchStatus: lambda state, seen, _: (state, seen),
}
