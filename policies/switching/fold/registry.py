"""Folds the registry in ZooKeeper and the BookKeeper clusters that it names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from policies.switching.clusters import ClusterSnapshot, mark_written, raise_marks
from policies.switching.events import RegistrySeen
from policies.switching.progress import take_up
from policies.switching.state import NEVER, ClusterStatus, Directive, SwitchingState, put

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
    # A state of an older version has snapshots without marks. An advance would hide the ids of such a snapshot.
    marks = raise_marks(state.marks, known) if known is not None else state.marks
    marks, unread = raise_marks(marks, cluster), state.written_unread
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
