"""The registry as ZooKeeper has it, and which orchestrator holds the lease."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from policies.switching.events import LeaseSeen, RegistrySeen
from policies.switching.readings import SwitchLease, SwitchRegistry
from policies.switching.state import Directive, OrchestratorLease, RegistryEntry, SwitchingState


@dataclass(frozen=True, slots=True)
class RegistryAgain:
    """The registry was read when it was known already."""

    versions: Mapping[str, int | None]
    """Of the znodes that are there, by name."""


def lease_of(reading: SwitchLease, at_ms: int) -> LeaseSeen:
    """Its end counts from the record's time."""
    return LeaseSeen(OrchestratorLease(reading.token, reading.holder, at_ms + reading.valid_ms))


def registry_of(reading: SwitchRegistry) -> RegistrySeen:
    """Sorted, and without a slash at the end of a root."""
    entries = (
        RegistryEntry(c.name, c.uri, c.instance_id, c.root.rstrip("/"), c.status, c.version)
        for c in sorted(reading.clusters, key=lambda c: c.name)
    )
    written = reading.directive
    directive = Directive(written.epoch, written.target) if written else None
    return RegistrySeen(tuple(entries), reading.bootstrap, directive, reading.committed_epoch)


def fold_registry(state: SwitchingState, seen: RegistrySeen) -> tuple[SwitchingState, RegistryAgain | None]:
    """The registry is taken over once, when nothing is known yet; later on only the versions of its znodes are."""
    if not state.entries:
        directed = seen.directive.epoch if seen.directive else 0
        first = replace(
            state, entries=tuple(sorted(seen.entries, key=lambda e: e.name)),
            bootstrap=state.bootstrap or seen.bootstrap, directive=seen.directive,
            epoch=max(state.epoch, directed, seen.committed_epoch), committed_epoch=seen.committed_epoch,
        )  # fmt: skip
        return first, None
    versions = {e.name: e.version for e in seen.entries}
    again = replace(
        state,
        entries=tuple(replace(e, version=versions.get(e.name)) for e in state.entries),
        removed=tuple(name for name in state.removed if name in versions),
    )
    return again, RegistryAgain(versions)
