"""Folds BookKeeper clusters (identity, next ledger id) and the reports of prechecks."""

from dataclasses import dataclass

from msgspec.structs import replace

from policies.switching.events import ClusterSeen, Prechecked
from policies.switching.id_generators import IdGenerator
from policies.switching.id_marks import marked
from policies.switching.precheck.snapshot import ClusterSnapshot
from policies.switching.readings import SwitchCluster, SwitchPrecheck
from policies.switching.state import PrecheckResult, RegistryEntry, SwitchingState, put


@dataclass(frozen=True, slots=True)
class Impostor:
    """Another cluster answers under a name than the one that was registered."""

    name: str


def cluster_of(reading: SwitchCluster, at_ms: int) -> ClusterSeen:
    """A cluster, as of when its reading began."""
    read = reading.generator
    seen = ClusterSnapshot(
        name=reading.name,
        instance_id=reading.instance_id,
        root=reading.root,
        layout=reading.layout,
        generator=IdGenerator(read.hob, read.cversion, read.num_children) if read else None,
        read_ms=at_ms - reading.took_ms,
    )
    return ClusterSeen(seen)


def precheck_of(reading: SwitchPrecheck, at_ms: int) -> Prechecked:
    """The report, as far as the machine asks it."""
    check = PrecheckResult(
        source=reading.source,
        target=reading.target,
        ready=reading.ready,
        digest=reading.digest,
        reasons=tuple(dict.fromkeys(f.reason for f in reading.findings)),
        checked_ms=at_ms,
        expires_ms=at_ms + reading.valid_ms,
        greatest_id=reading.greatest_id,
        bypassed=reading.bypassed,
    )
    return Prechecked(check)


def fold_cluster(state: SwitchingState, seen: ClusterSeen) -> tuple[SwitchingState | None, Impostor | None]:
    """The cluster as last read; None when this was read no later. Of an impostor only that it is one, told once."""
    name = seen.cluster.name
    known, others = state.cluster(name), tuple(n for n in state.impostors if n != name)
    if known is not None and seen.cluster.read_ms <= known.read_ms:
        return None, None
    if _is_another(state.entry(name), seen.cluster):
        told = replace(state, impostors=tuple(sorted((*others, name))))
        return told, None if name in state.impostors else Impostor(name)
    # What was read before there were marks counts as well: else an advance would hide what it gave.
    marks = marked(state.marks, known) if known is not None else state.marks
    clusters, marks = put(state.clusters, seen.cluster), marked(marks, seen.cluster)
    return replace(state, clusters=clusters, marks=marks, impostors=others), None


def _is_another(registered: RegistryEntry | None, seen: ClusterSnapshot) -> bool:
    if registered is None or seen.instance_id is None or seen.root is None:
        return False
    return (registered.instance_id, registered.root) != (seen.instance_id, seen.root.rstrip("/"))
