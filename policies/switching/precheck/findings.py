"""Each reason why a switch is not ready, with its numbers, and what a person can do about it."""

from collections.abc import Iterator, Mapping, Set

from msgspec import Struct

from policies.closed_enum import ClosedEnum
from policies.switching.id_generators import hob_beyond, hob_name
from policies.switching.ledger_paths import Layout
from policies.switching.ledgers import HitClass
from policies.switching.precheck.snapshot import (
    PrecheckRules,
    Snapshot,
    TargetPolicy,
    are_one,
    greatest_referenced,
    id_floor,
    read_times_ms,
)
from policies.switching.references import with_ledger
from policies.units import MAX_INT64

SAMPLES = 10
"""So many ids stand for the others in a report."""


class FindingReason(ClosedEnum):
    """Why a switch is not ready."""

    FOREIGN_ID = (
        "foreign_id",
        "Ledgers that are not Headgate's stand at ids to import (in a dedicated target: anywhere).",
    )
    DELETED_ID = "deleted_id", "An id to import was deleted from the target before: bookies may still hold its entries."
    IDGEN_BEHIND = "idgen_behind", "The target would give ids that are taken; `hob` is where to advance it to."
    LAYOUT = "layout", "A layout is unknown or cannot hold every id, or a reference names no ledger that can be."
    ALIAS = "alias", "Source and target are one cluster under two names."
    SNAPSHOT_INCOMPLETE = "snapshot_incomplete", "Something could not be read."
    STALE = "stale", "What was read is older than `precheck_validity`."


class PrecheckFinding(Struct, array_like=True, frozen=True):
    """One reason why a switch is not ready, with its numbers."""

    reason: FindingReason
    detail: str
    """One sentence with what was found."""
    count: int = 0
    samples: tuple[int, ...] = ()
    """The least ledger ids it is about."""
    hob: int | None = None
    """The ``HOB`` to which the target's id generator must advance."""


def findings(
    seen: Snapshot, rules: PrecheckRules, wanted: Set[int], hits: Mapping[HitClass, Set[int]], now_ms: int
) -> Iterator[PrecheckFinding]:
    """Everything that is in the way of a switch; unknown is."""
    yield from _incomplete(seen, rules, wanted)
    yield from _stale(seen, rules, now_ms)
    yield from _identity(seen)
    yield from _layouts(seen, wanted)
    yield from _generators(seen)
    foreign, deleted = hits[HitClass.FOREIGN], wanted & seen.deleted
    if foreign:
        yield _about(FindingReason.FOREIGN_ID, foreign, f"exist in {seen.target.name} and are not headgate's copies")
    if deleted:
        yield _about(FindingReason.DELETED_ID, deleted, f"were deleted from {seen.target.name} and must not come back")


def _incomplete(seen: Snapshot, rules: PrecheckRules, wanted: Set[int]) -> Iterator[PrecheckFinding]:
    for cluster in (seen.source, seen.target):
        missing = [
            what
            for what, known in (("INSTANCEID", cluster.instance_id), ("root", cluster.root))
            if not known
        ] + (["id generator"] if cluster.generator is None else [])  # fmt: skip
        if missing:
            detail = f"{' and '.join(missing)} of {cluster.name} could not be read"
            yield PrecheckFinding(FindingReason.SNAPSHOT_INCOMPLETE, detail, len(missing))
    if not seen.references_complete:
        yield PrecheckFinding(FindingReason.SNAPSHOT_INCOMPLETE, "the list of what names ledgers is incomplete")
    if seen.bootstrap is None and (bare := [r for r in with_ledger(seen.references) if not r.attribution]):
        yield _about(
            FindingReason.SNAPSHOT_INCOMPLETE,
            {r.ledger_id for r in bare},
            "have no attribution and no bootstrap cluster is known",
        )
    if seen.existing is None:
        yield PrecheckFinding(
            FindingReason.SNAPSHOT_INCOMPLETE, f"the ledgers of {seen.target.name} could not be listed"
        )
    elif rules.policy is TargetPolicy.DEDICATED and not seen.existing.listed:
        yield PrecheckFinding(
            FindingReason.SNAPSHOT_INCOMPLETE, f"a dedicated target must be listed whole; {seen.target.name} was not"
        )
    elif unknown := seen.existing.leave_unknown(wanted):
        yield _about(FindingReason.SNAPSHOT_INCOMPLETE, unknown, f"were not looked up in {seen.target.name}")


def _stale(seen: Snapshot, rules: PrecheckRules, now_ms: int) -> Iterator[PrecheckFinding]:
    age_ms = now_ms - min(read_times_ms(seen))
    if age_ms >= rules.validity_ms:
        yield PrecheckFinding(
            FindingReason.STALE, f"the oldest reading is {age_ms} ms old; it counts for {rules.validity_ms} ms"
        )


def _identity(seen: Snapshot) -> Iterator[PrecheckFinding]:
    source, target = seen.source, seen.target
    if source.name == target.name or are_one(source, target):
        yield PrecheckFinding(
            FindingReason.ALIAS, f"{source.name} and {target.name} are one cluster: {source.instance_id}{source.root}"
        )


def _layouts(seen: Snapshot, wanted: Set[int]) -> Iterator[PrecheckFinding]:
    for cluster in (seen.source, seen.target):
        if cluster.layout is None:
            yield PrecheckFinding(
                FindingReason.LAYOUT, f"the layout of {cluster.name} is unknown or is not one of {', '.join(Layout)}"
            )
    if unfit := {i for i in wanted if not 0 <= i <= MAX_INT64}:
        yield _about(FindingReason.LAYOUT, unfit, "are no ledger ids that a layout can hold")


def _generators(seen: Snapshot) -> Iterator[PrecheckFinding]:
    source, target = seen.source.generator, seen.target.generator
    if source is None or target is None:
        return
    floor = id_floor(source, (greatest_referenced(seen),))
    if target.next_id <= floor:
        hob = hob_beyond(floor)
        yield PrecheckFinding(
            FindingReason.IDGEN_BEHIND,
            f"the next id of {seen.target.name} is {target.next_id}, but {seen.source.name} may give ids up to "
            f"{source.ceiling} and ids up to {floor} are taken",
            hob=hob,
        )


def _about(reason: FindingReason, ids: Set[int], what: str) -> PrecheckFinding:
    samples = least(ids)
    more = f" and {len(ids) - len(samples)} more" if len(ids) > len(samples) else ""
    return PrecheckFinding(reason, f"ledgers {', '.join(map(str, samples))}{more} {what}", len(ids), samples)


def least(ids: Set[int]) -> tuple[int, ...]:
    """Those that stand for the others."""
    return tuple(sorted(ids)[:SAMPLES])


_REMEDIES = {
    FindingReason.FOREIGN_ID: (
        "Take another target, or delete these ledgers from it if nobody needs them; for a target with "
        "other users set `policies.switching.target_policy` to `shared`, and for kinds whose ids are taken "
        "`policies.switching.strategies.<kind>` to `remap`."
    ),
    FindingReason.DELETED_ID: (
        "Set `policies.switching.strategies.<kind>` to `remap`, so that they get new ids: bookies may "
        "still hold entries of the deleted ones."
    ),
    FindingReason.IDGEN_BEHIND: (
        "Create the znode `<root>/idgen-long/{hob}` in the target's ZooKeeper (`idgen-long` "
        "before it), then let clients that already write to the target reconnect, since they remember the old place."
    ),
    FindingReason.LAYOUT: (
        "Use clusters whose LAYOUT is hierarchical or longhierarchical, and mend references whose ledger id is none."
    ),
    FindingReason.ALIAS: "Name another target: both addresses lead to the same cluster, so there is nothing to switch.",
    FindingReason.SNAPSHOT_INCOMPLETE: (
        "Make everything readable for headgate (both ZooKeepers, all that names ledgers), or name what need not be "
        "read in `clusters.<name>.bookkeeper.leave_out`, then run the precheck again."
    ),
    FindingReason.STALE: "Run the precheck again: what it read is too old to rely on.",
}


def explain(finding: PrecheckFinding) -> str:
    """What a person can do about a finding."""
    hob = hob_name(finding.hob) if finding.hob is not None else "HOB-<k>"
    return _REMEDIES[finding.reason].replace("{hob}", hob)
