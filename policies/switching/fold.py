"""Folds readings: each kind updates a small read model of its own.

A reading shows a whole level, so the newest one counts. An older or repeated reading changes nothing but a counter
(row 26). No rule of the table is applied here: commands, leases, reports and results go on to the judge unchanged.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from policies.observations import Observation, Outcome, sort_observations
from policies.switching.clusters import ClusterSnapshot, mark_written, raise_marks
from policies.switching.events import (
    BrokerSeen,
    Event,
    InventorySeen,
    MembersSeen,
    RegistrySeen,
    TimePassed,
    to_event,
    to_ledger,
)
from policies.switching.ledgers import ANY_CLUSTER, Ledger, Reference, StayingLedgers, find_owner, with_ledger
from policies.switching.plan import take_up
from policies.switching.readings import SwitchCommand, SwitchInventory, SwitchInventoryPart
from policies.switching.state import (
    NEVER,
    BrokerReport,
    ClusterStatus,
    Directive,
    InventoryAssembly,
    InventoryPart,
    InventorySummary,
    LiveBrokers,
    SwitchingState,
    SwitchStage,
    put,
)

# Folds the registry in ZooKeeper and the BookKeeper clusters that it names.

_MOST_UNREAD = 64
"""Limit of `written_unread`: a forged report may name any cluster."""


@dataclass(frozen=True, slots=True)
class RegistryChecked:
    """A reading of the registry after the first one."""

    versions: Mapping[str, int | None]
    """The versions of the znodes that exist, by name."""
    resolved: bool = False
    """Whether a foreign entry or directive that contested the registry is gone."""


@dataclass(frozen=True, slots=True)
class Impostor:
    """At the address of a registered cluster, a cluster of another identity answers."""

    name: str


def fold_registry(state: SwitchingState, seen: RegistrySeen) -> tuple[SwitchingState | None, RegistryChecked | None]:
    """Adopt the registry from its first reading; from later ones take only the versions of its znodes.

    After the first reading the policy is the only writer, so any other difference was written by somebody else and
    contests the registry. The state is None if the reading is older than the last one.
    """
    if 0 <= seen.at_ms < state.registry_ms:
        return None, None
    state, before = replace(state, registry_ms=max(state.registry_ms, seen.at_ms)), state
    # Commands may come before the first reading: the registry is then older than the entries that they made.
    is_first = before.registry_ms == NEVER and before.directive is None and bool(seen.entries)
    if not state.entries or is_first or _shows_lost_progress(state, seen):
        return _adopt(state, seen)
    versions = {e.name: e.version for e in seen.entries}
    contested, by = _find_other_active(state, seen) or state.leaderless(), None
    if not contested and (by := _find_foreign_directive(state, seen)) is not None:
        contested = f"epoch {by.epoch} directs brokers to {by.target or 'another cluster'}, which nobody here ordered"
    state = mark_writes(state, {by.target} - {""} if by is not None else ())  # brokers were sent there
    shown, ours = seen.directive.epoch if seen.directive else NEVER, state.directive
    is_unwritten = ours is not None and max(shown, seen.committed_epoch) < ours.epoch
    after = replace(
        state,
        unseen_ms=max(state.unseen_ms, seen.at_ms) if is_unwritten else state.unseen_ms,
        contested=contested,
        contested_by=by,
        entries=tuple(replace(e, version=versions.get(e.name)) for e in state.entries),
        removed=tuple(name for name in state.removed if name in versions),
    )
    return after, RegistryChecked(versions, resolved=bool(before.contested) and not contested)


def _adopt(state: SwitchingState, seen: RegistrySeen) -> tuple[SwitchingState, RegistryChecked | None]:
    """Join the registry's entries with those that commands registered before it was first read.

    The first cluster ever registered is active. If the registry already has an active cluster, then the one that was
    registered early was not the first, and becomes a standby.
    """
    versions = {e.name: e.version for e in seen.entries}
    adopted = {e.name: e for e in seen.entries if e.name not in state.removed}
    has_active = any(e.status is ClusterStatus.ACTIVE for e in seen.entries)
    early = (e for e in state.entries if e.name not in adopted)
    own = (replace(e, status=ClusterStatus.STANDBY) if has_active else e for e in early)
    after = replace(
        state,
        entries=tuple(sorted((*adopted.values(), *own), key=lambda e: e.name)),
        bootstrap=seen.bootstrap or state.bootstrap,
        directive=seen.directive,
        committed_epoch=seen.committed_epoch,
        epoch=max(state.epoch, seen.directive.epoch if seen.directive else 0, seen.committed_epoch),
        # After a lost checkpoint executors remember earlier orders: a new order must not reuse one of their numbers.
        ops=max(state.ops, seen.at_ms) if seen.entries else state.ops,
        removed=tuple(n for n in state.removed if n in versions),
    )
    after = _take_up(after, seen)
    after = replace(after, contested=_find_other_active(after, seen) or after.leaderless())
    return after, RegistryChecked(versions) if state.entries else None


def _take_up(state: SwitchingState, seen: RegistrySeen) -> SwitchingState:
    switch, kept = take_up(seen.progress, seen.directive, seen.at_ms), seen.progress
    if kept is not None:
        # Also where another directive is in force now: the brokers had ids of all these clusters.
        state = mark_writes(state, {kept.source, kept.target, kept.brokers_from or kept.source})
    if switch is None or seen.progress is None or seen.directive is None:
        return state
    epoch = max(state.epoch, switch.epoch)
    judged_ms = seen.progress.commanded_ms
    return replace(state, switch=switch, judged_ms=judged_ms, directive=seen.directive, epoch=epoch)


def _shows_lost_progress(state: SwitchingState, seen: RegistrySeen) -> bool:
    """Whether the kept switch is ahead of ours: then ours was made of old records that came again.

    After a lost checkpoint the topics are read from their oldest record on. A recent `start` may fit once more, and an
    early registry or progress may be adopted. The kept one otherwise never has a later epoch, nor a later stage, nor
    another time of going live.
    """
    kept, shown, ours = seen.progress, seen.directive, state.switch
    if kept is None or shown is None or take_up(kept, shown, seen.at_ms) is None:
        return False
    if ours is None:
        return state.directive in (None, shown) or kept.epoch == shown.epoch
    is_other = kept.started_ms < ours.started_ms or (kept.live_ms >= 0 and kept.live_ms != ours.live_ms)
    is_later = kept.target == ours.target and (is_other or kept.stage_ms > ours.stage_ms)
    return kept.epoch > ours.epoch or (kept.epoch == ours.epoch and is_later)


def _find_other_active(state: SwitchingState, seen: RegistrySeen) -> str:
    """Return why the active cluster is not the one that we know; empty if it is, or if a commit may explain it."""
    entries = seen.entries or state.entries  # our first entry may still be unwritten because another one is active
    ours, known = {e.name for e in entries if e.status is ClusterStatus.ACTIVE}, state.committed()
    active = sorted(ours.union(seen.also_active)) if ours else []
    if len(active) > 1:
        return f"{' and '.join(active)} are active in the registry at once"
    is_shown = seen.committed_epoch == state.committed_epoch and known in {e.name for e in seen.entries}
    is_other = is_shown and active != [known]
    return f"{active[0] if active else 'no cluster'} is active in the registry, not {known}" if is_other else ""


def _find_foreign_directive(state: SwitchingState, seen: RegistrySeen) -> Directive | None:
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


def find_epoch(state: SwitchingState, reported: int | None, read_ms: int) -> int:
    """Return the directive's epoch that ZooKeeper had before a reading; -1 if none is known.

    An executor of an earlier version reports none. Its reading counts if it began after the directive was decided, and
    after the last look at a registry that did not have the directive yet.
    """
    if reported is not None:
        return reported
    is_since = state.directive is not None and read_ms > max(state.directed_ms, state.unseen_ms)
    return state.directive.epoch if state.directive is not None and is_since else NEVER


def fold_cluster(state: SwitchingState, cluster: ClusterSnapshot) -> tuple[SwitchingState | None, Impostor | None]:
    """Keep the cluster as last read. Of an impostor keep its name only, and report it once.

    The state is None if the reading is no newer than the last one.
    """
    known, entry = state.cluster(cluster.name), state.entry(cluster.name)
    others = tuple(n for n in state.impostors if n != cluster.name)
    if known is not None and not _is_newer(known, cluster):
        return None, None
    if (
        entry is not None and cluster.instance_id is not None and cluster.root is not None
        and (entry.instance_id, entry.root) != (cluster.instance_id, cluster.root.rstrip("/"))
    ):  # fmt: skip
        after = replace(state, impostors=tuple(sorted((*others, cluster.name))))
        return after, None if cluster.name in state.impostors else Impostor(cluster.name)
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
    epoch = find_epoch(state, cluster.epoch, cluster.read_ms)
    cluster = replace(
        cluster,
        epoch=epoch,
        raised_epoch=epoch if is_same and _is_raised(known, cluster) else known.raised_epoch if known else NEVER,
        lower_moved_ms=cluster.read_ms if is_moved else known.lower_moved_ms if known else NEVER,
    )
    clusters = put(state.clusters, cluster)
    return replace(state, clusters=clusters, marks=marks, impostors=others, written_unread=unread), None


def _is_newer(known: ClusterSnapshot, cluster: ClusterSnapshot) -> bool:
    """Whether a reading is later than the known one; of the same millisecond, the one with the greater ids is."""
    if cluster.read_ms != known.read_ms or cluster.generator is None or known.generator is None:
        return cluster.read_ms > known.read_ms
    return cluster.generator.next_id > known.generator.next_id


def _is_raised(known: ClusterSnapshot | None, cluster: ClusterSnapshot) -> bool:
    if known is None or known.generator is None or cluster.generator is None:
        return False
    return (cluster.generator.hob or 0) > (known.generator.hob or 0)


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


# Folds inventories: assembles them from their parts, and keeps a summary once the plan is made.

_CONTENT = msgspec.msgpack.Decoder(tuple[tuple[Reference, ...], tuple[Ledger, ...]])
_KEEPS_OLD_IDS = frozenset({SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES})


def assemble(
    known: InventoryAssembly | None, seen: Observation
) -> tuple[InventoryAssembly | None, InventorySeen | None]:
    """Add a part or a manifest to its inventory, and return the whole inventory once nothing is missing.

    One inventory is assembled at a time: a later one replaces one that is not complete.
    """
    reading = seen.reading
    if not isinstance(reading, SwitchInventoryPart | SwitchInventory):
        return known, None
    is_same = known is not None and known.inventory == reading.inventory
    if reading.outcome is not Outcome.OK:
        return (None if is_same else known), None
    if known is not None and (known.complete if is_same else seen.at_ms < known.at_ms):
        return known, None
    if known is None or not is_same:
        known = InventoryAssembly(reading.inventory, seen.at_ms)
    if isinstance(reading, SwitchInventory):
        known = replace(
            known, expected_parts=reading.parts, expected_references=reading.references, target=reading.target,
            began_ms=seen.at_ms - reading.took_ms,
            valid_ms=reading.valid_ms,
            moved_too=reading.moved_too,
            epoch=reading.epoch,
            staying=tuple(
                StayingLedgers(s.kind, s.cluster, s.count, s.greatest_id, s.samples) for s in reading.staying
            ),
        )  # fmt: skip
    else:
        known = replace(known, parts=put(known.parts, _pack_part(reading), "number"))
    known = replace(known, at_ms=max(known.at_ms, seen.at_ms))
    if not _is_whole(known):
        return known, None
    return InventoryAssembly(known.inventory, known.at_ms, complete=True), _join_parts(known)


def _pack_part(reading: SwitchInventoryPart) -> InventoryPart:
    references = [Reference(r.kind, r.path, r.ledger_id, r.attribution, r.position) for r in reading.references]
    existing = [ledger for r in reading.existing if (ledger := to_ledger(r)) is not None]
    return InventoryPart(reading.part, msgspec.msgpack.encode((references, existing)), len(references))


def _is_whole(known: InventoryAssembly) -> bool:
    count = sum(p.count for p in known.parts)
    return (
        known.expected_parts is not None
        and [p.number for p in known.parts] == list(range(known.expected_parts))
        and count == known.expected_references
    )


def _join_parts(known: InventoryAssembly) -> InventorySeen:
    parts = [_CONTENT.decode(p.packed) for p in known.parts]
    references = tuple(r for references, _ in parts for r in references)
    existing = {ledger.ledger_id: ledger for _, found in parts for ledger in found}
    return InventorySeen(
        references, known.began_ms, known.target, existing, known.staying, known.valid_ms, known.moved_too, known.epoch
    )


def fold_inventory(state: SwitchingState, seen: InventorySeen) -> SwitchingState | None:
    """Keep a summary of the inventory; None if it is no newer than the last one, or than the directive in force."""
    epoch = find_epoch(state, seen.epoch, seen.at_ms)
    is_early = state.directive is not None and epoch < state.directive.epoch
    if is_early or (state.inventory is not None and seen.at_ms <= state.inventory.at_ms):
        return None
    switch, bootstrap = state.switch, state.bootstrap
    owners = Counter(find_owner(r, bootstrap) or ANY_CLUSTER for r in with_ledger(seen.references))
    for staying in seen.staying:
        owners[staying.cluster] += staying.count
    target = switch.target if switch else None
    outside = [r.ledger_id for r in seen.references if target is None or find_owner(r, bootstrap) != target]
    outside += (s.greatest_id for s in seen.staying if not _may_be_in_target(state, s))
    old_ids: set[int] = set()
    if switch is not None and switch.stage in _KEEPS_OLD_IDS:
        old_ids = {r.ledger_id for r in with_ledger(seen.references) if find_owner(r, bootstrap) == switch.source}
    summary = InventorySummary(
        seen.at_ms,
        dict(sorted(owners.items())),
        tuple(sorted(old_ids)),
        max(outside, default=NEVER),
        seen.staying,
        seen.valid_ms,
        epoch,
    )
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
FoldedEvent = Event | RegistryChecked | Impostor
"""The event that is left for the judge once a reading is folded."""


def read(
    state: SwitchingState, observations: Sequence[Observation]
) -> tuple[SwitchingState, tuple[Event, ...], tuple[str, ...]]:
    """Return the state with the inventory parts kept so far, the events in order, and their observations' ids."""
    events: list[Event] = []
    ids: list[str] = []
    assembly, commanded_ms, commands = state.assembly, state.commanded_ms, state.commands
    for seen in sort_observations(tuple(observations)):
        if isinstance(seen.reading, SwitchCommand):
            if seen.at_ms <= state.judged_ms:
                commands = _remember(commands, seen.reading.idempotency_key)
                continue
            commanded_ms = max(commanded_ms, seen.at_ms)
        assembly, inventory = assemble(assembly, seen)
        event = inventory or to_event(seen)
        if event is not None:
            events.append(event)
            ids.append(seen.id)
    after = replace(state, assembly=assembly, commanded_ms=commanded_ms, commands=commands)
    return after, tuple(events), tuple(ids)


def _remember(commands: tuple[str, ...], key: str) -> tuple[str, ...]:
    return commands if key in commands else (*commands, key)[-REMEMBERED_COMMANDS:]


def fold(state: SwitchingState, event: Event) -> tuple[SwitchingState | None, FoldedEvent | None]:
    """Fold an event into its read model.

    Returns:
        The state after it, or None if the event is a repetition; and the event that is left for the judge.
    """
    match event:
        case SwitchCommand(idempotency_key=key):
            is_new = key not in state.commands
            return replace(state, commands=_remember(state.commands, key)) if is_new else None, event
        case RegistrySeen():
            return fold_registry(state, event)
        case MembersSeen():
            members = _fold_members(state, event)
            return (replace(state, members=members) if members else None), None
        case ClusterSnapshot():
            return fold_cluster(state, event)
        case BrokerSeen():
            return _fold_report(state, event)
        case InventorySeen():
            return fold_inventory(state, event), event
        case TimePassed():
            return state, None
    return state, event


def _fold_members(state: SwitchingState, seen: MembersSeen) -> LiveBrokers | None:
    known = state.members
    if known is not None and seen.at_ms <= known.at_ms:
        return None
    if seen.brokers is None:
        return replace(known, is_unread=True) if known is not None and not known.is_unread else None
    since = dict(zip(known.brokers, known.since_ms or [known.at_ms] * len(known.brokers), strict=True)) if known else {}
    brokers = tuple(sorted(set(seen.brokers)))
    since_ms = tuple(since.get(b, seen.at_ms) for b in brokers)
    return LiveBrokers(brokers, seen.at_ms, since_ms, find_epoch(state, seen.epoch, seen.at_ms))


def _fold_report(state: SwitchingState, seen: BrokerSeen) -> tuple[SwitchingState | None, BrokerSeen | None]:
    """Reports are levels, too: a broker follows the directive of its last report, so it can go back.

    A report that arrives after a later one still shows where the broker wrote: that cluster gave it ids.
    """
    before, state = state, mark_writes(state, seen.writes)
    known = next((b for b in state.brokers if b.name == seen.broker), None)
    if known is not None and seen.sequence <= known.sequence:
        return (state, None) if state != before else (None, None)
    report = known or BrokerReport(seen.broker, NEVER, NEVER)
    acked, failed = (NEVER, seen.epoch) if seen.failed else (seen.epoch, NEVER)
    is_unchanged = (report.acked_epoch, report.failed_epoch) == (acked, failed)
    directive = state.directive
    strays = directive is not None and seen.epoch == directive.epoch and bool(set(seen.writes) - {directive.target})
    report = BrokerReport(
        seen.broker, seen.sequence, seen.at_ms, acked, failed, seen.writes, seen.reads,
        report.since_ms if is_unchanged else seen.at_ms,
        seen.at_ms if strays else report.strayed_ms, seen.client_epoch,
    )  # fmt: skip
    return replace(state, brokers=put(state.brokers, report)), seen
