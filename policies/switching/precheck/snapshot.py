"""The input of a precheck: two clusters as they were read, the references, and what the user decided."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

from policies.switching.clusters import ClusterSnapshot
from policies.switching.id_generators import IdGenerator
from policies.switching.ledgers import NO_LEDGER, CopyIntent, HitClass, Ledger, is_ours, same_ledger
from policies.switching.references import LedgerKind, Reference, StayingLedgers, owner_of, with_ledger


class TargetPolicy(StrEnum):
    """What else may be in the target."""

    DEDICATED = "dedicated"
    """Nothing: every ledger that is not ours is in the way."""
    SHARED = "shared"
    """Anything that is not in the way of an id to import."""


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
class PrecheckSnapshot:
    """All that a precheck rests on."""

    source: ClusterSnapshot
    target: ClusterSnapshot
    references: tuple[Reference, ...]
    references_complete: bool
    references_ms: int
    bootstrap: str | None
    """The cluster that references without attribution belong to."""
    existing: TargetLedgers | None
    source_facts: Mapping[int, Ledger] = field(default_factory=dict)
    """By id, of the source's ledgers that exist in the target as well."""
    journal: Mapping[int, CopyIntent] = field(default_factory=dict)
    """By id, the copies that headgate began in the target."""
    deleted: Set[int] = frozenset()
    """Ids that were deleted from the target."""
    staying: tuple[StayingLedgers, ...] = ()
    """What else names ledgers: it stays where it is."""
    left_out: tuple[str, ...] = ()
    """Znodes that were not read, as the settings say."""
    clusters: Set[str] = frozenset()
    """Names of all BookKeeper clusters that are known, beside these two and the bootstrap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecheckRules:
    """What the user decided about a switch."""

    policy: TargetPolicy
    validity_ms: int
    """How long a reading, and so the report, counts."""
    remapped: frozenset[LedgerKind] = frozenset()
    """Kinds whose ledgers get a new id, so that theirs need not be free."""
    skip_idgen: bool = False
    """In a lab: a target whose ids are behind is not in the way; every report says that this was so."""


def ids_to_import(seen: PrecheckSnapshot, rules: PrecheckRules) -> frozenset[int]:
    """The ledgers that are to exist in the target under the id they have in the source."""
    return frozenset(
        r.ledger_id
        for r in with_ledger(seen.references)
        if r.kind not in rules.remapped and owner_of(r, seen.bootstrap) == seen.source.name
    )


def ids_in_target(seen: PrecheckSnapshot) -> frozenset[int]:
    """The ledgers that references say the target has."""
    return frozenset(
        r.ledger_id for r in with_ledger(seen.references) if owner_of(r, seen.bootstrap) == seen.target.name
    )


def greatest_referenced(seen: PrecheckSnapshot) -> int:
    """The greatest id named outside the target; those within it are below its next one whatever they are."""
    outside = (r.ledger_id for r in seen.references if owner_of(r, seen.bootstrap) != seen.target.name)
    staying = (s.greatest_id for s in seen.staying if s.cluster != seen.target.name)
    return max((*outside, *staying), default=NO_LEDGER)


def id_floor(source: IdGenerator, referenced: Iterable[int]) -> int:
    """The greatest id that the source has given or will give, or that is referenced: the target must lie beyond."""
    return max(source.ceiling, max(referenced, default=NO_LEDGER))


def hits_by_class(seen: PrecheckSnapshot, rules: PrecheckRules, wanted: Set[int]) -> dict[HitClass, Set[int]]:
    """What exists in the target and matters, by class: a join of sets, so that only what exists is looked at."""
    found: dict[HitClass, set[int]] = {hit: set() for hit in HitClass}
    if seen.existing is not None:
        matters = seen.existing.ids if rules.policy is TargetPolicy.DEDICATED else wanted & seen.existing.ids
        for ledger_id in matters:
            found[_classify(seen, seen.existing, ledger_id)].add(ledger_id)
    return dict(found)


def _classify(seen: PrecheckSnapshot, existing: TargetLedgers, ledger_id: int) -> HitClass:
    copy, source, target = existing.facts.get(ledger_id), seen.source.instance_id, seen.target.instance_id
    if copy is None or source is None or target is None:
        return HitClass.FOREIGN
    if not is_ours(copy, seen.journal.get(ledger_id), source, target):
        return HitClass.FOREIGN
    original = seen.source_facts.get(ledger_id)
    is_complete = original is not None and same_ledger(original, copy)
    return HitClass.OURS_COMPLETE if is_complete else HitClass.OURS_PARTIAL


def read_times_ms(seen: PrecheckSnapshot) -> list[int]:
    """When each part of it was read."""
    times = [seen.source.read_ms, seen.target.read_ms, seen.references_ms]
    return times + ([seen.existing.read_ms] if seen.existing else [])
