"""Folds the registry in ZooKeeper, and which orchestrator holds the lease."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from policies.switching.events import LeaseSeen, RegistrySeen
from policies.switching.readings import SwitchLease, SwitchRegistry
from policies.switching.state import (
    NEVER,
    ClusterStatus,
    Directive,
    OrchestratorLease,
    RegistryEntry,
    SwitchingState,
)


@dataclass(frozen=True, slots=True)
class RegistryAgain:
    """The registry was read when it was known already."""

    versions: Mapping[str, int | None]
    """Of the znodes that are there, by name."""
    resolved: bool = False
    """Whether what somebody else had written there is gone."""


def lease_of(reading: SwitchLease, at_ms: int) -> LeaseSeen:
    """Its end counts from the record's time."""
    return LeaseSeen(OrchestratorLease(reading.token, reading.holder, at_ms + reading.valid_ms))


def registry_of(reading: SwitchRegistry, at_ms: int) -> RegistrySeen:
    """Sorted, and without a slash at the end of a root."""
    entries = (
        RegistryEntry(c.name, c.uri, c.instance_id, c.root.rstrip("/"), c.status, c.version)
        for c in sorted(reading.clusters, key=lambda c: c.name)
    )
    written = reading.directive
    directive = Directive(written.epoch, written.target) if written else None
    also_active = tuple(sorted(reading.active_as_proposed))
    return RegistrySeen(tuple(entries), reading.bootstrap, directive, reading.committed_epoch, at_ms, also_active)


def fold_registry(state: SwitchingState, seen: RegistrySeen) -> tuple[SwitchingState | None, RegistryAgain | None]:
    """The registry is taken over once, when it was never read; later on only the versions of its znodes are.

    What else differs from what was ordered is somebody else's. None: it was read before what is known.
    """
    if 0 <= seen.at_ms < state.registry_ms:
        return None, None
    state, before = replace(state, registry_ms=max(state.registry_ms, seen.at_ms)), state
    if not state.entries or _began_without(before, seen):
        return _take_over(state, seen)
    versions = {e.name: e.version for e in seen.entries}
    contested, by = _two_active(state, seen) or state.leaderless(), None
    if not contested and (by := _not_ours(state, seen)) is not None:
        contested = f"epoch {by.epoch} directs brokers to {by.target or 'another cluster'}, which nobody here ordered"
    again = replace(
        state,
        contested=contested,
        contested_by=by,
        entries=tuple(replace(e, version=versions.get(e.name)) for e in state.entries),
        removed=tuple(name for name in state.removed if name in versions),
    )
    return again, RegistryAgain(versions, resolved=bool(before.contested) and not contested)


def _take_over(state: SwitchingState, seen: RegistrySeen) -> tuple[SwitchingState, RegistryAgain | None]:
    read = {e.name: e.version for e in seen.entries}
    after = replace(
        state, entries=_taken_over(state, seen), bootstrap=seen.bootstrap or state.bootstrap,
        directive=seen.directive, committed_epoch=seen.committed_epoch,
        epoch=max(state.epoch, seen.directive.epoch if seen.directive else 0, seen.committed_epoch),
        # Where our checkpoint was lost, executors know orders of before: none of ours may have a number of theirs.
        ops=max(state.ops, seen.at_ms) if seen.entries else state.ops,
        removed=tuple(n for n in state.removed if n in read),
    )  # fmt: skip
    after = replace(after, contested=_two_active(state, seen) or after.leaderless())
    return after, RegistryAgain(read) if state.entries else None


def _began_without(before: SwitchingState, seen: RegistrySeen) -> bool:
    """Whether commands came before the first reading: what stands there is older than what they took for the first."""
    return before.registry_ms == NEVER and before.directive is None and bool(seen.entries)


def _taken_over(state: SwitchingState, seen: RegistrySeen) -> tuple[RegistryEntry, ...]:
    """What stands there; and what a command registered before that was read, which then was not the first one."""
    there = {e.name: e for e in seen.entries if e.name not in state.removed}
    is_led = any(e.status is ClusterStatus.ACTIVE for e in seen.entries)
    own = (replace(e, status=ClusterStatus.STANDBY) if is_led else e for e in state.entries if e.name not in there)
    return tuple(sorted((*there.values(), *own), key=lambda e: e.name))


def _two_active(state: SwitchingState, seen: RegistrySeen) -> str:
    entries = seen.entries or state.entries  # what we registered first may not be written because another is active
    ours = {e.name for e in entries if e.status is ClusterStatus.ACTIVE}
    active = sorted(ours.union(seen.also_active)) if ours else []
    return f"{' and '.join(active)} are active in the registry at once" if len(active) > 1 else ""


def _not_ours(state: SwitchingState, seen: RegistrySeen) -> Directive | None:
    """A directive later than all of ours, or another one of the same epoch; or the commit of a later one."""
    theirs, ours = seen.directive, state.directive
    if theirs is not None and theirs.epoch > state.epoch:
        return theirs
    if theirs is not None and ours is not None and theirs.epoch == ours.epoch and theirs.target != ours.target:
        return theirs
    return Directive(seen.committed_epoch, "") if seen.committed_epoch > state.epoch else None
