"""The reasons why a switch is not ready, each with its numbers and a remedy."""

from collections.abc import Iterator, Mapping, Set
from datetime import timedelta

from msgspec import Struct

from policies.switching.clusters import are_same_cluster
from policies.switching.ledgers import (
    MAX_HOB,
    HitClass,
    Layout,
    LedgerKind,
    find_owner,
    hob_beyond,
    hob_name,
    with_ledger,
)
from policies.switching.precheck.snapshot import (
    PrecheckRules,
    PrecheckSnapshot,
    TargetPolicy,
    greatest_referenced,
    id_floor,
    ids_in_target,
    read_times_ms,
)
from policies.units import MAX_INT64, ClosedEnum, counted_with, format_duration, name_some

SAMPLES = 10
"""The most ids that a finding names."""


class FindingReason(ClosedEnum):
    """The reasons why a switch is not ready."""

    FOREIGN_ID = (
        "foreign_id",
        "Ledgers that Headgate did not make have ids to import (in a dedicated target: any id).",
    )
    DELETED_ID = "deleted_id", "An id to import was deleted from the target before: bookies may still hold its entries."
    IDGEN_BEHIND = "idgen_behind", "The target would give ids that are taken; advance it to `hob`."
    UNKNOWN_CLUSTER = "unknown_cluster", "References are attributed to a BookKeeper cluster that is not known."
    MISSING_LEDGER = "missing_ledger", "References are attributed to the target, which does not have their ledgers."
    AMBIGUOUS = "ambiguous", "One ledger id, or one cursor, is attributed to two clusters."
    LAYOUT = (
        "layout",
        "A layout is unknown or cannot hold every id, a reference names an impossible ledger id, or a znode of a "
        "dedicated target lies where its layout puts none.",
    )
    ALIAS = "alias", "Source and target are one cluster under two names."
    SNAPSHOT_INCOMPLETE = "snapshot_incomplete", "A value could not be read."
    FROM_THE_FUTURE = "from_the_future", "A reading is dated later than now, so its age is not known."
    STALE = "stale", "The oldest reading is older than `precheck_validity`."


class PrecheckFinding(Struct, array_like=True, frozen=True):
    """One reason why a switch is not ready, with its numbers."""

    reason: FindingReason
    detail: str
    """The finding in one sentence."""
    count: int = 0
    samples: tuple[int, ...] = ()
    """The least ledger ids of the finding."""
    hob: int | None = None
    """The ``HOB`` to which the target's id generator must advance."""


def findings(
    seen: PrecheckSnapshot, rules: PrecheckRules, wanted: Set[int], hits: Mapping[HitClass, Set[int]], now_ms: int
) -> Iterator[PrecheckFinding]:
    """Return every reason against a switch; an unknown value is one."""
    yield from _incomplete(seen, rules, wanted)
    yield from _stale(seen, rules, now_ms)
    yield from _identity(seen)
    yield from _attributions(seen)
    yield from _layouts(seen, wanted)
    yield from _generators(seen)
    foreign, deleted = hits[HitClass.FOREIGN], wanted & seen.deleted
    if foreign:
        yield _about(FindingReason.FOREIGN_ID, foreign, f"exist in {seen.target.name} and are not headgate's copies")
    if deleted:
        yield _about(FindingReason.DELETED_ID, deleted, f"were deleted from {seen.target.name} and must not come back")


def _incomplete(seen: PrecheckSnapshot, rules: PrecheckRules, wanted: Set[int]) -> Iterator[PrecheckFinding]:
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
    elif unknown := seen.existing.find_unknown(wanted | ids_in_target(seen)):
        yield _about(FindingReason.SNAPSHOT_INCOMPLETE, unknown, f"were not looked up in {seen.target.name}")


def _stale(seen: PrecheckSnapshot, rules: PrecheckRules, now_ms: int) -> Iterator[PrecheckFinding]:
    ahead_ms = max(read_times_ms(seen)) - now_ms
    if ahead_ms > 0:
        yield PrecheckFinding(
            FindingReason.FROM_THE_FUTURE,
            f"a reading is dated {format_duration(timedelta(milliseconds=ahead_ms))} later than now",
        )
    age_ms = now_ms - min(read_times_ms(seen))
    if age_ms >= rules.validity_ms:
        yield PrecheckFinding(
            FindingReason.STALE,
            f"the oldest reading is {format_duration(timedelta(milliseconds=age_ms))} old; it counts for "
            f"{format_duration(timedelta(milliseconds=rules.validity_ms))}",
        )


def _identity(seen: PrecheckSnapshot) -> Iterator[PrecheckFinding]:
    source, target = seen.source, seen.target
    if source.name == target.name or are_same_cluster(source, target):
        yield PrecheckFinding(
            FindingReason.ALIAS, f"{source.name} and {target.name} are one cluster: {source.instance_id}{source.root}"
        )


def _attributions(seen: PrecheckSnapshot) -> Iterator[PrecheckFinding]:
    """Every reference must name one known cluster, which has its ledger."""
    known = {seen.source.name, seen.target.name, seen.bootstrap, None, *seen.clusters}
    if strange := [r for r in with_ledger(seen.references) if find_owner(r, seen.bootstrap) not in known]:
        names = ", ".join(sorted({r.attribution or "" for r in strange})[:SAMPLES])
        what = f"are attributed to clusters that are not known: {names}"
        yield _about(FindingReason.UNKNOWN_CLUSTER, {r.ledger_id for r in strange}, what)
    if seen.existing is not None and seen.source.name != seen.target.name:
        missing = ids_in_target(seen) - seen.existing.ids - seen.existing.find_unknown(ids_in_target(seen))
        if missing:
            what = f"are attributed to {seen.target.name}, which does not have them"
            yield _about(FindingReason.MISSING_LEDGER, missing, what)
    if twice := _find_two_owners(seen):
        yield _about(FindingReason.AMBIGUOUS, twice, "or their cursors are attributed to two clusters")


def _find_two_owners(seen: PrecheckSnapshot) -> Set[int]:
    """Return ids that are attributed to two clusters, by themselves or by their cursor."""
    by_id: dict[int, set[str | None]] = {}
    by_cursor: dict[str, set[str | None]] = {}
    for reference in with_ledger(seen.references):
        owner = find_owner(reference, seen.bootstrap)
        by_id.setdefault(reference.ledger_id, set()).add(owner)
        if reference.kind is LedgerKind.CURSOR:
            by_cursor.setdefault(reference.path, set()).add(owner)
    return {
        r.ledger_id
        for r in with_ledger(seen.references)
        if len(by_id[r.ledger_id]) > 1 or len(by_cursor.get(r.path, ())) > 1
    }


def _layouts(seen: PrecheckSnapshot, wanted: Set[int]) -> Iterator[PrecheckFinding]:
    for cluster in (seen.source, seen.target):
        if cluster.layout is None and cluster.instance_id:  # else nothing could be read there: another finding
            yield PrecheckFinding(
                FindingReason.LAYOUT, f"the layout of {cluster.name} is unknown or is not one of {', '.join(Layout)}"
            )
    if misplaced := seen.existing and seen.existing.misplaced:
        lie = counted_with(len(misplaced), "znode", "lies", "lie")
        detail = f"{lie} where the layout of {seen.target.name} puts no ledger: {name_some(misplaced, SAMPLES)}"
        yield PrecheckFinding(FindingReason.LAYOUT, detail, len(misplaced))
    if unfit := {i for i in wanted if not 0 <= i <= MAX_INT64}:
        yield _about(FindingReason.LAYOUT, unfit, "are no ledger ids that a layout can hold")


def _generators(seen: PrecheckSnapshot) -> Iterator[PrecheckFinding]:
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
            hob=hob if hob <= MAX_HOB else None,
        )


def _about(reason: FindingReason, ids: Set[int], what: str) -> PrecheckFinding:
    samples = least(ids)
    more = f" and {len(ids) - len(samples)} more" if len(ids) > len(samples) else ""
    return PrecheckFinding(reason, f"ledgers {', '.join(map(str, samples))}{more} {what}", len(ids), samples)


def least(ids: Set[int]) -> tuple[int, ...]:
    """Return the least ids, as samples."""
    return tuple(sorted(ids)[:SAMPLES])


_REMEDIES = {
    FindingReason.FOREIGN_ID: (
        "For a target with other users, or one that an earlier switch left, set `policies.switching.target_policy` to "
        "`shared`, and for kinds whose ids are taken `policies.switching.strategies.<kind>` to `remap`. Or take "
        "another target. Delete no ledger that an earlier switch kept: it may be the last copy."
    ),
    FindingReason.DELETED_ID: (
        "Set `policies.switching.strategies.<kind>` to `remap`, so that they get new ids: bookies may still hold "
        "entries of the deleted ledgers."
    ),
    FindingReason.IDGEN_BEHIND: (
        "Create the znode `<root>/idgen-long/{hob}` in the target's ZooKeeper (`idgen-long` before it), then let "
        "clients that already write to the target reconnect, since they remember the old znode."
    ),
    FindingReason.UNKNOWN_CLUSTER: (
        "Register these clusters (`headgate switch register`) and add them to the settings, or correct the references."
    ),
    FindingReason.MISSING_LEDGER: (
        "Run the precheck again: a cursor may have begun a new ledger meanwhile. If the finding stays, the ledgers are "
        "lost: correct the references, or delete those subscriptions."
    ),
    FindingReason.AMBIGUOUS: (
        "Find out which cluster holds the right ledger (drive a switch that is done with failures on first), and "
        "correct the other references."
    ),
    FindingReason.FROM_THE_FUTURE: "Correct the clocks, then run the precheck again.",
    FindingReason.LAYOUT: (
        "Use clusters whose LAYOUT is hierarchical or longhierarchical, and correct references with an impossible id. "
        "If the named znodes of the target are ledgers of another layout, take another target: its bookies still hold "
        "their entries, by id alone. Move other znodes away from `ledgers_root`."
    ),
    FindingReason.ALIAS: "Name another target: both addresses lead to the same cluster.",
    FindingReason.SNAPSHOT_INCOMPLETE: (
        "Make both ZooKeepers and all references readable for Headgate, or list the znodes to skip in "
        "`clusters.<name>.bookkeeper.leave_out`, then run the precheck again."
    ),
    FindingReason.STALE: "Run the precheck again: its readings are too old.",
}


def find_remedy(finding: PrecheckFinding) -> str:
    """Return the remedy of a finding."""
    if finding.reason is FindingReason.IDGEN_BEHIND and finding.hob is None:
        return "Take another target: the ids that are taken reach into the last HOB there is, and none lies beyond."
    hob = hob_name(finding.hob) if finding.hob is not None else "HOB-<k>"
    return _REMEDIES[finding.reason].replace("{hob}", hob)
