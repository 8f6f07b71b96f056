"""Is it safe to switch from one BookKeeper cluster to another: a report from what was read, and from nothing else.

Unknown means not ready. The report rests on four of the invariants: what is imported is absent in the target or ours
(INV-1), the target will only give ids beyond all that the source has given or will give (INV-2), the two are not one
cluster under two names, and their layouts can hold the ids (INV-4), no deleted id is created again (INV-6).
Source: specs/switching.md, Precheck.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
from msgspec import Struct

from policies.closed_enum import ClosedEnum
from policies.switching.id_generators import Generator, hob_beyond
from policies.switching.ledger_paths import Layout
from policies.switching.ledgers import NO_LEDGER, Hit, Intent, Ledger, hit_of
from policies.switching.references import Kind, Reference, owner_of, with_ledger
from policies.units import MAX_INT64

SAMPLES = 10
"""So many ids stand for the others in a report."""


class TargetPolicy(StrEnum):
    """What else may be in the target."""

    DEDICATED = "dedicated"
    """Nothing: every ledger that is not ours is in the way."""
    SHARED = "shared"
    """Anything that is not in the way of an id to import."""


class Reason(ClosedEnum):
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


class Cluster(Struct, array_like=True, frozen=True, kw_only=True):
    """What was read of a BookKeeper cluster. Null: it could not be read."""

    name: str
    instance_id: str | None
    """Its ``INSTANCEID``: with the root, what it *is*, however its address is spelled."""
    root: str | None
    """The path of its ledgers in its ZooKeeper."""
    layout: Layout | None
    generator: Generator | None
    read_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLedgers:
    """Which ledgers exist in the target."""

    ids: Set[int]
    """Those found."""
    read_ms: int
    listed: bool = False
    """Whether the whole cluster was listed, so that an id that is not among `ids` is absent."""
    looked_up: Set[int] = frozenset()
    """Where it was not listed: the ids that were looked for."""
    facts: Mapping[int, Ledger] = field(default_factory=dict)
    """By id, of those found under an id to import."""

    def leave_unknown(self, wanted: Set[int]) -> Set[int]:
        """The ids of which it is not known whether they exist."""
        return frozenset() if self.listed else wanted - self.looked_up - self.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a precheck rests on."""

    source: Cluster
    target: Cluster
    references: tuple[Reference, ...]
    references_complete: bool
    references_ms: int
    bootstrap: str | None
    """The cluster that references without attribution belong to."""
    existing: TargetLedgers | None
    source_facts: Mapping[int, Ledger] = field(default_factory=dict)
    """By id, of the source's ledgers that exist in the target as well."""
    journal: Mapping[int, Intent] = field(default_factory=dict)
    """By id, the copies that headgate began in the target."""
    deleted: Set[int] = frozenset()
    """Ids that were deleted from the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the user decided about a switch."""

    policy: TargetPolicy
    validity_ms: int
    """How long a reading, and so the report, counts."""
    remapped: frozenset[Kind] = frozenset()
    """Kinds whose ledgers get a new id, so that theirs need not be free."""


class Finding(Struct, array_like=True, frozen=True):
    """One reason why a switch is not ready, with its numbers."""

    reason: Reason
    detail: str
    """One sentence with what was found."""
    count: int = 0
    samples: tuple[int, ...] = ()
    """The least ledger ids it is about."""
    hob: int | None = None
    """The ``HOB`` to which the target's id generator must advance."""


class Hits(Struct, array_like=True, frozen=True):
    """The ledgers of one class that exist in the target."""

    count: int = 0
    samples: tuple[int, ...] = ()


class Report(Struct, array_like=True, frozen=True, kw_only=True):
    """The answer; its digest depends on nothing but what was found."""

    source: str
    target: str
    ready: bool
    source_next_id: int | None
    target_next_id: int | None
    ids_to_import: tuple[int, ...]
    """Sorted, each once."""
    hits: dict[Hit, Hits]
    greatest_id: int
    """The greatest id named outside the target; -1 when none is."""
    findings: tuple[Finding, ...]
    """Sorted; empty exactly when ready."""
    digest: str
    checked_ms: int
    expires_ms: int

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it is not ready, each once."""
        return tuple(dict.fromkeys(f.reason for f in self.findings))


def precheck(seen: Snapshot, rules: Rules, now_ms: int) -> Report:
    """Judge a snapshot.

    Args:
        seen: what was read; whatever is missing there counts against the switch.
        rules: what the user decided.
        now_ms: the moment, milliseconds since the epoch.
    """
    wanted = ids_to_import(seen, rules)
    hits = _hits(seen, rules, wanted)
    findings = tuple(sorted(_findings(seen, rules, wanted, hits, now_ms), key=lambda f: (f.reason.value, f.detail)))
    source_next, target_next = _next_id(seen.source), _next_id(seen.target)
    counted = {hit: Hits(len(ids), _samples(ids)) for hit, ids in hits.items()}
    content = (
        (seen.source.name, seen.source.instance_id, seen.source.root, seen.source.layout, source_next),
        (seen.target.name, seen.target.instance_id, seen.target.root, seen.target.layout, target_next),
        (rules.policy, sorted(rules.remapped)),
        sorted(wanted),
        {hit.value: sorted(ids) for hit, ids in hits.items()},
        greatest_referenced(seen),
        findings,
    )
    return Report(
        source=seen.source.name,
        target=seen.target.name,
        ready=not findings,
        source_next_id=source_next,
        target_next_id=target_next,
        ids_to_import=tuple(sorted(wanted)),
        hits=counted,
        greatest_id=greatest_referenced(seen),
        findings=findings,
        digest=hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest(),
        checked_ms=now_ms,
        expires_ms=min(now_ms, *_read_times(seen)) + rules.validity_ms,
    )


def ids_to_import(seen: Snapshot, rules: Rules) -> frozenset[int]:
    """The ledgers that are to exist in the target under the id they have in the source."""
    return frozenset(
        r.ledger_id
        for r in with_ledger(seen.references)
        if r.kind not in rules.remapped and owner_of(r, seen.bootstrap) == seen.source.name
    )


def greatest_referenced(seen: Snapshot) -> int:
    """The greatest id named outside the target; those within it are below its next one whatever they are."""
    outside = (r.ledger_id for r in seen.references if owner_of(r, seen.bootstrap) != seen.target.name)
    return max(outside, default=NO_LEDGER)


def id_floor(source: Generator, referenced: Iterable[int]) -> int:
    """The greatest id that the source has given or will give, or that is referenced: the target must lie beyond."""
    return max(source.ceiling, max(referenced, default=NO_LEDGER))


def _hits(seen: Snapshot, rules: Rules, wanted: Set[int]) -> dict[Hit, Set[int]]:
    """What exists in the target and matters, by class: a join of sets, so that only what exists is looked at."""
    found: dict[Hit, set[int]] = {hit: set() for hit in Hit}
    if seen.existing is not None:
        matters = seen.existing.ids if rules.policy is TargetPolicy.DEDICATED else wanted & seen.existing.ids
        for ledger_id in matters:
            found[_hit(seen, seen.existing, ledger_id)].add(ledger_id)
    return dict(found)


def _hit(seen: Snapshot, existing: TargetLedgers, ledger_id: int) -> Hit:
    facts, source, target = existing.facts.get(ledger_id), seen.source.instance_id, seen.target.instance_id
    if facts is None or source is None or target is None:
        return Hit.FOREIGN
    return hit_of(seen.source_facts.get(ledger_id), facts, seen.journal.get(ledger_id), source, target)


def _findings(
    seen: Snapshot, rules: Rules, wanted: Set[int], hits: Mapping[Hit, Set[int]], now_ms: int
) -> Iterator[Finding]:
    yield from _incomplete(seen, rules, wanted)
    yield from _stale(seen, rules, now_ms)
    yield from _identity(seen)
    yield from _layouts(seen, wanted)
    yield from _generators(seen)
    foreign, deleted = hits[Hit.FOREIGN], wanted & seen.deleted
    if foreign:
        yield _about(Reason.FOREIGN_ID, foreign, f"exist in {seen.target.name} and are not headgate's copies")
    if deleted:
        yield _about(Reason.DELETED_ID, deleted, f"were deleted from {seen.target.name} and must not come back")


def _incomplete(seen: Snapshot, rules: Rules, wanted: Set[int]) -> Iterator[Finding]:
    for cluster in (seen.source, seen.target):
        missing = [
            what
            for what, known in (("INSTANCEID", cluster.instance_id), ("root", cluster.root))
            if not known
        ] + (["id generator"] if cluster.generator is None else [])  # fmt: skip
        if missing:
            detail = f"{' and '.join(missing)} of {cluster.name} could not be read"
            yield Finding(Reason.SNAPSHOT_INCOMPLETE, detail, len(missing))
    if not seen.references_complete:
        yield Finding(Reason.SNAPSHOT_INCOMPLETE, "the list of schema locators and cursors is incomplete")
    if seen.bootstrap is None and (bare := [r for r in with_ledger(seen.references) if not r.attribution]):
        yield _about(
            Reason.SNAPSHOT_INCOMPLETE,
            {r.ledger_id for r in bare},
            "have no attribution and no bootstrap cluster is known",
        )
    if seen.existing is None:
        yield Finding(Reason.SNAPSHOT_INCOMPLETE, f"the ledgers of {seen.target.name} could not be listed")
    elif rules.policy is TargetPolicy.DEDICATED and not seen.existing.listed:
        yield Finding(
            Reason.SNAPSHOT_INCOMPLETE, f"a dedicated target must be listed whole; {seen.target.name} was not"
        )
    elif unknown := seen.existing.leave_unknown(wanted):
        yield _about(Reason.SNAPSHOT_INCOMPLETE, unknown, f"were not looked up in {seen.target.name}")


def _stale(seen: Snapshot, rules: Rules, now_ms: int) -> Iterator[Finding]:
    age_ms = now_ms - min(_read_times(seen))
    if age_ms >= rules.validity_ms:
        yield Finding(Reason.STALE, f"the oldest reading is {age_ms} ms old; it counts for {rules.validity_ms} ms")


def _identity(seen: Snapshot) -> Iterator[Finding]:
    source, target = seen.source, seen.target
    if source.name == target.name or are_one(source, target):
        yield Finding(
            Reason.ALIAS, f"{source.name} and {target.name} are one cluster: {source.instance_id}{source.root}"
        )


def are_one(one: Cluster, other: Cluster) -> bool:
    """Whether two clusters are the same one: by what they are, not by how they are spelled."""
    return (
        one.instance_id is not None
        and one.instance_id == other.instance_id
        and (one.root or "").rstrip("/") == (other.root or "").rstrip("/")
    )


def _layouts(seen: Snapshot, wanted: Set[int]) -> Iterator[Finding]:
    for cluster in (seen.source, seen.target):
        if cluster.layout is None:
            yield Finding(
                Reason.LAYOUT, f"the layout of {cluster.name} is unknown or is not one of {', '.join(Layout)}"
            )
    if unfit := {i for i in wanted if not 0 <= i <= MAX_INT64}:
        yield _about(Reason.LAYOUT, unfit, "are no ledger ids that a layout can hold")


def _generators(seen: Snapshot) -> Iterator[Finding]:
    source, target = seen.source.generator, seen.target.generator
    if source is None or target is None:
        return
    floor = id_floor(source, (greatest_referenced(seen),))
    if target.next_id <= floor:
        hob = hob_beyond(floor)
        yield Finding(
            Reason.IDGEN_BEHIND,
            f"the next id of {seen.target.name} is {target.next_id}, but {seen.source.name} may give ids up to "
            f"{source.ceiling} and ids up to {floor} are taken",
            hob=hob,
        )


def _about(reason: Reason, ids: Set[int], what: str) -> Finding:
    samples = _samples(ids)
    more = f" and {len(ids) - len(samples)} more" if len(ids) > len(samples) else ""
    return Finding(reason, f"ledgers {', '.join(map(str, samples))}{more} {what}", len(ids), samples)


def _samples(ids: Set[int]) -> tuple[int, ...]:
    return tuple(sorted(ids)[:SAMPLES])


def _next_id(cluster: Cluster) -> int | None:
    return cluster.generator.next_id if cluster.generator else None


def _read_times(seen: Snapshot) -> list[int]:
    times = [seen.source.read_ms, seen.target.read_ms, seen.references_ms]
    return times + ([seen.existing.read_ms] if seen.existing else [])
