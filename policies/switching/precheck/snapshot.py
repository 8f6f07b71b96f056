"""The input of a precheck: two clusters as read, the references, and the user's rules."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

from policies.switching.clusters import ClusterSnapshot
from policies.switching.ledgers import (
    NO_LEDGER,
    HitClass,
    IdGenerator,
    Ledger,
    LedgerKind,
    Reference,
    StayingLedgers,
    find_owner,
    is_ours,
    same_ledger,
    with_ledger,
)


class TargetPolicy(StrEnum):
    """Whether other ledgers may exist in the target."""

    DEDICATED = "dedicated"
    """No other ledger: every one that is not ours is a finding."""
    SHARED = "shared"
    """Any ledger whose id is not to be imported."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecheckRules:
    """The user's rules for a switch."""

    policy: TargetPolicy
    validity_ms: int
    """How long a reading counts, and with it the report."""
    remapped: frozenset[LedgerKind] = frozenset()
    """Kinds whose copies get a new id, so the old id need not be free in the target."""
    skip_idgen: bool = False
    """In a lab: a target whose ids are behind counts as ready, and every report shows it."""


def ids_to_import(seen: PrecheckSnapshot, rules: PrecheckRules) -> frozenset[int]:
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


def id_floor(source: IdGenerator, referenced: Iterable[int]) -> int:
    """Return the id beyond which the target must lie: all that the source may give, and all referenced ids."""
    return max(source.ceiling, max(referenced, default=NO_LEDGER))


def hits_by_class(seen: PrecheckSnapshot, rules: PrecheckRules, wanted: Set[int]) -> dict[HitClass, Set[int]]:
    """Classify the target's ledgers that matter. The join is by sets of ids, so only existing ledgers are examined."""
    found: dict[HitClass, set[int]] = {hit: set() for hit in HitClass}
    if seen.existing is not None:
        matters = seen.existing.ids if rules.policy is TargetPolicy.DEDICATED else wanted & seen.existing.ids
        moved = ids_in_target(seen)
        for ledger_id in matters:
            found[_classify(seen, seen.existing, ledger_id, is_moved=ledger_id in moved)].add(ledger_id)
    return dict(found)


def _classify(seen: PrecheckSnapshot, existing: TargetLedgers, ledger_id: int, *, is_moved: bool) -> HitClass:
    copy, source, target = existing.facts.get(ledger_id), seen.source.instance_id, seen.target.instance_id
    if copy is None or source is None or target is None:
        return HitClass.FOREIGN
    if not is_ours(copy, source):
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
