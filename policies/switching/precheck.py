"""Judges whether a switch from one BookKeeper cluster to another is safe, from a snapshot of both and nothing else.

Unknown means not ready. The report rests on INV-1, INV-2, INV-4 and INV-6 (docs/design/switching.md, Invariants).
"""

import hashlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from policies.observations import Outcome
from policies.switching.ledgers import (
    MAX_HOB,
    NO_LEDGER,
    ClusterSnapshot,
    FindingReason,
    HitClass,
    Layout,
    Ledger,
    LedgerKind,
    Reference,
    StayingLedgers,
    TargetPolicy,
    are_same_cluster,
    find_owner,
    hob_beyond,
    hob_name,
    id_floor,
    is_ours,
    same_ledger,
    with_ledger,
)
from policies.switching.readings import FindingReading, HitCount, SwitchPrecheck
from policies.switching.settings import SwitchingSettings
from policies.units import MAX_INT64, counted_with, format_duration, millis_of, name_some


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLedgers:
    """The ledgers that exist in the target."""

    ids: Set[int]
    """The ids that were found."""
    read_ms: int
    listed: bool = False
    """Whether the whole cluster was listed, so that an id not in `ids` is absent."""
    looked_up: Set[int] = frozenset()
    """The ids that were looked up, if the cluster was not listed."""
    facts: Mapping[int, Ledger] = field(default_factory=dict)
    """The ledgers found under an id to import, by id."""
    misplaced: tuple[str, ...] = ()
    """The paths of znodes that the target's layout does not place, whether or not they show an id."""

    def find_unknown(self, wanted: Set[int]) -> Set[int]:
        """Return the ids that may or may not exist."""
        return frozenset() if self.listed else wanted - self.looked_up - self.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecheckSnapshot:
    """The readings of a precheck."""

    source: ClusterSnapshot
    target: ClusterSnapshot
    references: tuple[Reference, ...]
    references_complete: bool
    references_ms: int
    bootstrap: str | None
    """The cluster of references without attribution."""
    existing: TargetLedgers | None
    source_facts: Mapping[int, Ledger] = field(default_factory=dict)
    """The source's ledgers that exist in the target as well, by id."""
    deleted: Set[int] = frozenset()
    """Ids that were deleted from the target."""
    staying: tuple[StayingLedgers, ...] = ()
    """Ledgers that stay in their cluster."""
    left_out: tuple[str, ...] = ()
    """Znodes that the settings exclude from reading."""
    clusters: Set[str] = frozenset()
    """The names of all other known BookKeeper clusters."""
    problems: tuple[str, ...] = ()
    """Values that could not be read, one line each: place and reason."""


def ids_to_import(seen: PrecheckSnapshot, rules: SwitchingSettings) -> frozenset[int]:
    """Return the ledgers that are copied under their own id."""
    return frozenset(
        r.ledger_id
        for r in with_ledger(seen.references)
        if r.kind not in rules.remapped and find_owner(r, seen.bootstrap) == seen.source.name
    )


def ids_in_target(seen: PrecheckSnapshot) -> frozenset[int]:
    """Return the ledgers that are attributed to the target."""
    return frozenset(
        r.ledger_id for r in with_ledger(seen.references) if find_owner(r, seen.bootstrap) == seen.target.name
    )


def greatest_referenced(seen: PrecheckSnapshot) -> int:
    """Return the greatest id named outside the target. Ids within it are always below its next id."""
    outside = (r.ledger_id for r in seen.references if find_owner(r, seen.bootstrap) != seen.target.name)
    staying = (s.greatest_id for s in seen.staying if s.cluster != seen.target.name)
    return max((*outside, *staying), default=NO_LEDGER)


def hits_by_class(seen: PrecheckSnapshot, rules: SwitchingSettings, wanted: Set[int]) -> dict[HitClass, Set[int]]:
    """Classify the target's ledgers that matter. The join is by sets of ids, so only existing ledgers are examined."""
    found: dict[HitClass, set[int]] = {hit: set() for hit in HitClass}
    if seen.existing is not None:
        matters = seen.existing.ids if rules.target_policy is TargetPolicy.DEDICATED else wanted & seen.existing.ids
        moved = ids_in_target(seen)
        for ledger_id in matters:
            found[_classify(seen, seen.existing, ledger_id, is_moved=ledger_id in moved)].add(ledger_id)
    return dict(found)


def _classify(seen: PrecheckSnapshot, existing: TargetLedgers, ledger_id: int, *, is_moved: bool) -> HitClass:
    copy, source = existing.facts.get(ledger_id), seen.source.instance_id
    if copy is None or source is None or not is_ours(copy, source):
        return HitClass.FOREIGN
    original = seen.source_facts.get(ledger_id)
    is_complete = original is not None and same_ledger(original, copy)
    # The source's ledger of a promoted reference is not read; the journal has the digest by which the copy was proved.
    is_complete = is_complete or (is_moved and copy.entries_digest is not None)
    return HitClass.OURS_COMPLETE if is_complete else HitClass.OURS_PARTIAL


def read_times_ms(seen: PrecheckSnapshot) -> list[int]:
    """Return the time of each reading."""
    times = [seen.source.read_ms, seen.target.read_ms, seen.references_ms]
    return times + ([seen.existing.read_ms] if seen.existing else [])


SAMPLES = 10
"""The most ids that a finding names."""


def findings(
    seen: PrecheckSnapshot, rules: SwitchingSettings, wanted: Set[int], hits: Mapping[HitClass, Set[int]], now_ms: int
) -> Iterator[FindingReading]:
    """Return every reason against a switch; an unknown value is one."""
    yield from _incomplete(seen, rules, wanted)
    yield from _stale(seen, rules, now_ms)
    one, other = seen.source, seen.target
    if one.name == other.name or are_same_cluster(one, other):
        detail = f"{one.name} and {other.name} are one cluster: {one.instance_id}{one.root}"
        yield _find(FindingReason.ALIAS, detail)
    yield from _attributions(seen)
    yield from _layouts(seen, wanted)
    yield from _generators(seen)
    foreign, deleted = hits[HitClass.FOREIGN], wanted & seen.deleted
    if foreign:
        yield _about(FindingReason.FOREIGN_ID, foreign, f"exist in {seen.target.name} and are not headgate's copies")
    if deleted:
        yield _about(FindingReason.DELETED_ID, deleted, f"were deleted from {seen.target.name} and must not come back")


def _incomplete(seen: PrecheckSnapshot, rules: SwitchingSettings, wanted: Set[int]) -> Iterator[FindingReading]:
    for cluster in (seen.source, seen.target):
        read = {"INSTANCEID": cluster.instance_id, "root": cluster.root, "id generator": cluster.generator}
        if missing := [name for name, value in read.items() if not value]:
            detail = f"{' and '.join(missing)} of {cluster.name} could not be read"
            yield _find(FindingReason.SNAPSHOT_INCOMPLETE, detail, len(missing))
    if not seen.references_complete:
        yield _find(FindingReason.SNAPSHOT_INCOMPLETE, "the list of what names ledgers is incomplete")
    if seen.bootstrap is None and (bare := [r for r in with_ledger(seen.references) if not r.attribution]):
        yield _about(
            FindingReason.SNAPSHOT_INCOMPLETE,
            {r.ledger_id for r in bare},
            "have no attribution and no bootstrap cluster is known",
        )
    if seen.existing is None:
        yield _find(FindingReason.SNAPSHOT_INCOMPLETE, f"the ledgers of {seen.target.name} could not be listed")
    elif rules.target_policy is TargetPolicy.DEDICATED and not seen.existing.listed:
        yield _find(
            FindingReason.SNAPSHOT_INCOMPLETE, f"a dedicated target must be listed whole; {seen.target.name} was not"
        )
    elif unknown := seen.existing.find_unknown(wanted | ids_in_target(seen)):
        yield _about(FindingReason.SNAPSHOT_INCOMPLETE, unknown, f"were not looked up in {seen.target.name}")


def _stale(seen: PrecheckSnapshot, rules: SwitchingSettings, now_ms: int) -> Iterator[FindingReading]:
    ahead_ms = max(read_times_ms(seen)) - now_ms
    if ahead_ms > 0:
        yield _find(
            FindingReason.FROM_THE_FUTURE,
            f"a reading is dated {format_duration(timedelta(milliseconds=ahead_ms))} later than now",
        )
    age_ms = now_ms - min(read_times_ms(seen))
    if age_ms >= millis_of(rules.precheck_validity):
        yield _find(
            FindingReason.STALE,
            f"the oldest reading is {format_duration(timedelta(milliseconds=age_ms))} old; it counts for "
            f"{format_duration(rules.precheck_validity)}",
        )


def _attributions(seen: PrecheckSnapshot) -> Iterator[FindingReading]:
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


def _layouts(seen: PrecheckSnapshot, wanted: Set[int]) -> Iterator[FindingReading]:
    for cluster in (seen.source, seen.target):
        if cluster.layout is None and cluster.instance_id:  # else nothing could be read there: another finding
            yield _find(
                FindingReason.LAYOUT, f"the layout of {cluster.name} is unknown or is not one of {', '.join(Layout)}"
            )
    if misplaced := seen.existing and seen.existing.misplaced:
        lie = counted_with(len(misplaced), "znode", "lies", "lie")
        detail = f"{lie} where the layout of {seen.target.name} puts no ledger: {name_some(misplaced, SAMPLES)}"
        yield _find(FindingReason.LAYOUT, detail, len(misplaced))
    if unfit := {i for i in wanted if not 0 <= i <= MAX_INT64}:
        yield _about(FindingReason.LAYOUT, unfit, "are no ledger ids that a layout can hold")


def _generators(seen: PrecheckSnapshot) -> Iterator[FindingReading]:
    source, target = seen.source.generator, seen.target.generator
    if source is None or target is None:
        return
    floor = id_floor(source, (greatest_referenced(seen),))
    if target.next_id <= floor:
        hob = hob_beyond(floor)
        yield _find(
            FindingReason.IDGEN_BEHIND,
            f"the next id of {seen.target.name} is {target.next_id}, but {seen.source.name} may give ids up to "
            f"{source.ceiling} and ids up to {floor} are taken",
            hob=hob if hob <= MAX_HOB else None,
        )


def _find(
    reason: FindingReason, detail: str, count: int = 0, samples: tuple[int, ...] = (), *, hob: int | None = None
) -> FindingReading:
    remedy = find_remedy(reason, hob)
    return FindingReading(reason=reason, detail=detail, count=count, samples=samples, hob=hob, remedy=remedy)


def _about(reason: FindingReason, ids: Set[int], what: str) -> FindingReading:
    samples = least(ids)
    more = f" and {len(ids) - len(samples)} more" if len(ids) > len(samples) else ""
    return _find(reason, f"ledgers {', '.join(map(str, samples))}{more} {what}", len(ids), samples)


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


def find_remedy(reason: FindingReason, hob: int | None) -> str:
    """Return the remedy of a finding; the ``HOB`` to advance to, if one lies beyond, is that of ids that are behind."""
    if reason is FindingReason.IDGEN_BEHIND and hob is None:
        return "Take another target: the ids that are taken reach into the last HOB there is, and none lies beyond."
    return _REMEDIES[reason].replace("{hob}", hob_name(hob) if hob is not None else "HOB-<k>")


def precheck(cluster: str, seen: PrecheckSnapshot, rules: SwitchingSettings, now_ms: int) -> SwitchPrecheck:
    """Judge a snapshot; its digest depends on the findings and the rules, and not on the time."""
    wanted = ids_to_import(seen, rules)
    hits, greatest = hits_by_class(seen, rules, wanted), greatest_referenced(seen)
    found = tuple(sorted(findings(seen, rules, wanted, hits, now_ms), key=lambda f: (f.reason.value, f.detail)))
    # Ids could collide then; a collision, or an unknown value, cannot be bypassed.
    bypassed = tuple(f for f in found if rules.skip_idgen_precheck and f.reason is FindingReason.IDGEN_BEHIND)
    source_next, target_next = (c.generator.next_id if c.generator else None for c in (seen.source, seen.target))
    content = (
        (seen.source.name, seen.source.instance_id, seen.source.root, seen.source.layout, source_next),
        (seen.target.name, seen.target.instance_id, seen.target.root, seen.target.layout, target_next),
        (rules.target_policy, sorted(rules.remapped), seen.left_out, rules.skip_idgen_precheck),
        sorted(wanted),
        {hit.value: sorted(ids) for hit, ids in hits.items()},
        greatest,
        [(f.reason, f.detail, f.count, f.samples, f.hob) for f in found],
    )
    expires_ms = min(now_ms, *read_times_ms(seen)) + millis_of(rules.precheck_validity)
    return SwitchPrecheck(
        cluster=cluster, outcome=Outcome.OK, source=seen.source.name, target=seen.target.name,
        source_next_id=source_next, target_next_id=target_next, to_import=len(wanted),
        greatest_id=min(max(greatest, NO_LEDGER), MAX_INT64),  # an impossible id is a finding
        hits={hit: HitCount(count=len(ids), samples=least(ids)) for hit, ids in hits.items()}, findings=found,
        ready=len(found) == len(bypassed), bypassed=bool(bypassed), valid_ms=max(0, expires_ms - now_ms),
        digest=hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest(),
        staying=seen.staying, left_out=seen.left_out,
    )  # fmt: skip
