"""Folds inventories: assembles them from their parts, and keeps a summary once the plan is made."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from policies.observations import Outcome
from policies.switching.ledgers import ANY_CLUSTER, Ledger, Reference, StayingLedgers, find_owner, with_ledger
from policies.switching.readings import SwitchInventory, SwitchInventoryPart
from policies.switching.state import (
    NEVER,
    InventoryAssembly,
    InventoryPart,
    InventorySummary,
    SwitchingState,
    SwitchStage,
    put,
)

_CONTENT = msgspec.msgpack.Decoder(tuple[tuple[Reference, ...], tuple[Ledger, ...]])
_KEEPS_OLD_IDS = frozenset({SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES})


@dataclass(frozen=True, slots=True)
class InventorySeen:
    """A complete inventory: all references, and which of their ledgers exist in the target."""

    references: tuple[Reference, ...]
    at_ms: int
    target: str = ""
    """The cluster in which each ledger was looked up; empty if none was."""
    existing: Mapping[int, Ledger] = field(default_factory=dict)
    staying: tuple[StayingLedgers, ...] = ()
    """Counts of the ledgers that are neither copied nor attributed."""
    valid_ms: int = 1_200_000
    moved_too: bool = False
    """Whether ledgers of references in the target were looked up, too."""
    epoch: int | None = None
    """The epoch of the directive that ZooKeeper had before the reading; None: not reported."""


def assemble(
    known: InventoryAssembly | None, reading: SwitchInventoryPart | SwitchInventory, at_ms: int
) -> tuple[InventoryAssembly | None, InventorySeen | None]:
    """Add a part or a manifest to its inventory, and return the whole inventory once nothing is missing.

    One inventory is assembled at a time: a later one replaces one that is not complete.
    """
    is_same = known is not None and known.inventory == reading.inventory
    if reading.outcome is not Outcome.OK:
        return (None if is_same else known), None
    if known is not None and (known.complete if is_same else at_ms < known.at_ms):
        return known, None
    if known is None or not is_same:
        known = InventoryAssembly(reading.inventory, at_ms)
    if isinstance(reading, SwitchInventory):
        known = replace(
            known, expected_parts=reading.parts, expected_references=reading.references, target=reading.target,
            began_ms=at_ms - reading.took_ms,
            valid_ms=reading.valid_ms,
            moved_too=reading.moved_too,
            epoch=reading.epoch,
            staying=tuple(
                StayingLedgers(s.kind, s.cluster, s.count, s.greatest_id, s.samples) for s in reading.staying
            ),
        )  # fmt: skip
    else:
        known = replace(known, parts=put(known.parts, _pack_part(reading), "number"))
    known = replace(known, at_ms=max(known.at_ms, at_ms))
    if not _is_whole(known):
        return known, None
    return InventoryAssembly(known.inventory, known.at_ms, complete=True), _join_parts(known)


def _pack_part(reading: SwitchInventoryPart) -> InventoryPart:
    references = [Reference(r.kind, r.path, r.ledger_id, r.attribution, r.position) for r in reading.references]
    existing = [each.to_ledger() for each in reading.existing]
    return InventoryPart(reading.part, msgspec.msgpack.encode((references, existing)), len(references))


def _is_whole(known: InventoryAssembly) -> bool:
    count = sum(p.count for p in known.parts)
    return (
        known.expected_parts is not None
        and [p.number for p in known.parts] == list(range(known.expected_parts))
        and count == known.expected_references
    )


def _join_parts(known: InventoryAssembly) -> InventorySeen:
    parts = [_CONTENT.decode(p.packed) for p in known.parts]
    references = tuple(r for references, _ in parts for r in references)
    existing = {ledger.ledger_id: ledger for _, found in parts for ledger in found}
    return InventorySeen(
        references, known.began_ms, known.target, existing, known.staying, known.valid_ms, known.moved_too, known.epoch
    )


def find_epoch(state: SwitchingState, reported: int | None, read_ms: int) -> int:
    """Return the directive's epoch that ZooKeeper had before a reading; -1 if none is known.

    An executor of an earlier version reports none. Its reading counts if it began after the directive was decided, and
    after the last look at a registry that did not have the directive yet.
    """
    if reported is not None:
        return reported
    is_since = state.directive is not None and read_ms > max(state.directed_ms, state.unseen_ms)
    return state.directive.epoch if state.directive is not None and is_since else NEVER


def summarize(state: SwitchingState, seen: InventorySeen) -> SwitchingState | None:
    """Keep a summary of the inventory; None if it is no newer than the last one, or than the directive in force."""
    epoch = find_epoch(state, seen.epoch, seen.at_ms)
    is_early = state.directive is not None and epoch < state.directive.epoch
    if is_early or (state.inventory is not None and seen.at_ms <= state.inventory.at_ms):
        return None
    switch, bootstrap = state.switch, state.bootstrap
    owners = Counter(find_owner(r, bootstrap) or ANY_CLUSTER for r in with_ledger(seen.references))
    for staying in seen.staying:
        owners[staying.cluster] += staying.count
    target = switch.target if switch else None
    outside = [r.ledger_id for r in seen.references if target is None or find_owner(r, bootstrap) != target]
    outside += (s.greatest_id for s in seen.staying if not _may_be_in_target(state, s))
    old_ids: set[int] = set()
    if switch is not None and switch.stage in _KEEPS_OLD_IDS:
        old_ids = {r.ledger_id for r in with_ledger(seen.references) if find_owner(r, bootstrap) == switch.source}
    summary = InventorySummary(
        seen.at_ms,
        dict(sorted(owners.items())),
        tuple(sorted(old_ids)),
        max(outside, default=NEVER),
        seen.staying,
        seen.valid_ms,
        epoch,
    )
    return replace(state, inventory=summary)


def _may_be_in_target(state: SwitchingState, staying: StayingLedgers) -> bool:
    """Whether the greatest id may come from the target.

    A topic does not record which cluster holds its ledgers. The target gives ids from its floor on, so an id that a
    topic got since the switch began is the target's own.
    """
    switch = state.switch
    if switch is None or staying.cluster == switch.target:
        return switch is not None
    return staying.cluster == ANY_CLUSTER and staying.greatest_id >= switch.target_floor
