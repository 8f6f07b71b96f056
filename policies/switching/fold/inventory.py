"""Folds inventories: assembles them from their parts, and keeps a summary once the plan is made."""

from collections import Counter

import msgspec
from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.switching.events import InventorySeen
from policies.switching.fold.ledgers import ledger_of
from policies.switching.ledgers import Ledger
from policies.switching.readings import SwitchInventory, SwitchInventoryPart
from policies.switching.references import ANY_CLUSTER, Reference, StayingLedgers, owner_of, with_ledger
from policies.switching.state import (
    NEVER,
    InventoryAssembly,
    InventoryPart,
    InventorySummary,
    SwitchingState,
    SwitchStage,
    put,
)

_Content = tuple[tuple[Reference, ...], tuple[Ledger, ...]]
_CONTENT = msgspec.msgpack.Decoder(_Content)
_COUNTS_WHAT_IS_LEFT = frozenset(
    {SwitchStage.HOLD, SwitchStage.CLEANUP, SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES}
)


def assemble(
    known: InventoryAssembly | None, seen: Observation
) -> tuple[InventoryAssembly | None, InventorySeen | None]:
    """Put a part or manifest to those of its inventory; the whole inventory once nothing is missing.

    One inventory is put together at a time: a later one takes the place of one that is not complete.
    """
    reading = seen.reading
    if not isinstance(reading, SwitchInventoryPart | SwitchInventory):
        return known, None
    if reading.outcome is not Outcome.OK:
        return (None if known and known.inventory == reading.inventory else known), None
    if known is not None and known.inventory == reading.inventory and known.complete:
        return known, None
    if known is None or known.inventory != reading.inventory:
        if known is not None and seen.at_ms < known.at_ms:
            return known, None
        known = InventoryAssembly(reading.inventory, seen.at_ms)
    if isinstance(reading, SwitchInventory):
        known = replace(
            known, expected_parts=reading.parts, expected_references=reading.references, target=reading.target,
            began_ms=seen.at_ms - reading.took_ms,
            staying=tuple(
                StayingLedgers(s.kind, s.cluster, s.count, s.greatest_id, s.samples) for s in reading.staying
            ),
        )  # fmt: skip
    else:
        known = replace(known, parts=put(known.parts, _part(reading), "number"))
    known = replace(known, at_ms=max(known.at_ms, seen.at_ms))
    if not _is_whole(known):
        return known, None
    return InventoryAssembly(known.inventory, known.at_ms, complete=True), _whole(known)


def _part(reading: SwitchInventoryPart) -> InventoryPart:
    references = [Reference(r.kind, r.path, r.ledger_id, r.attribution, r.position) for r in reading.references]
    existing = [ledger for r in reading.existing if (ledger := ledger_of(r)) is not None]
    packed = msgspec.msgpack.encode((references, existing))
    return InventoryPart(reading.part, (), (), packed, len(references))


def _content(part: InventoryPart) -> _Content:
    return _CONTENT.decode(part.packed) if part.packed else (part.references, part.existing)


def _is_whole(known: InventoryAssembly) -> bool:
    numbers = [p.number for p in known.parts]
    count = sum(p.count or len(p.references) for p in known.parts)
    return (
        known.expected_parts is not None
        and numbers == list(range(known.expected_parts))
        and count == known.expected_references
    )


def _whole(known: InventoryAssembly) -> InventorySeen:
    parts = [_content(part) for part in known.parts]
    references = tuple(r for references, _ in parts for r in references)
    existing = {ledger.ledger_id: ledger for _, found in parts for ledger in found}
    return InventorySeen(references, known.began_ms, known.target, existing, known.staying)


def fold_inventory(state: SwitchingState, seen: InventorySeen) -> SwitchingState | None:
    """What is attributed to whom; None when it was read no later than what is known."""
    if state.inventory is not None and seen.at_ms <= state.inventory.at_ms:
        return None
    return replace(state, inventory=_summary(state, seen))


def _may_be_in_target(state: SwitchingState, staying: StayingLedgers) -> bool:
    """Topics do not say which cluster holds their ledgers: what they got since a switch began is the target's own."""
    switch = state.switch
    if switch is None or staying.cluster == switch.target:
        return switch is not None
    return staying.cluster == ANY_CLUSTER and staying.greatest_id >= switch.target_floor


def _summary(state: SwitchingState, seen: InventorySeen) -> InventorySummary:
    switch, bootstrap = state.switch, state.bootstrap
    owners = Counter(owner_of(r, bootstrap) or ANY_CLUSTER for r in with_ledger(seen.references))
    for staying in seen.staying:
        owners[staying.cluster] += staying.count
    target = switch.target if switch else None
    outside = [r.ledger_id for r in seen.references if target is None or owner_of(r, bootstrap) != target]
    outside += (s.greatest_id for s in seen.staying if not _may_be_in_target(state, s))
    old: set[int] = set()
    if switch is not None and switch.stage in _COUNTS_WHAT_IS_LEFT:
        old = {r.ledger_id for r in with_ledger(seen.references) if owner_of(r, bootstrap) == switch.source}
    greatest_id = max(outside, default=NEVER)
    return InventorySummary(seen.at_ms, dict(sorted(owners.items())), tuple(sorted(old)), greatest_id, seen.staying)
