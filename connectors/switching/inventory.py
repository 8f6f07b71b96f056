"""The records of an inventory: its parts, each well below the record size limit, and the manifest that completes it.

The size of a part as JSON limits it, because topic names, subscription names and custom metadata can have any length.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import structs
from pydantic import ValidationError

from policies.errors import UserError
from policies.observations import Outcome, Reading
from policies.switching.ledgers import Ledger
from policies.switching.readings import (
    LedgerReading,
    ReferenceReading,
    StayingReading,
    SwitchInventory,
    SwitchInventoryPart,
)
from policies.switching.references import Reference, StayingLedgers

MAX_PART_REFERENCES = 1_000
"""Limit of the references in a part."""
MAX_PART_BYTES = 256 * 1024
"""A part is full at this size. Its last reference may exceed it by the size of one znode (at most 1 MiB)."""


@dataclass(slots=True)
class _PartBuilder:
    """The content of the next part."""

    references: list[ReferenceReading] = field(default_factory=list)
    existing: list[LedgerReading] = field(default_factory=list)
    weight_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.weight_bytes >= MAX_PART_BYTES or len(self.references) >= MAX_PART_REFERENCES

    def add_reference(self, reference: Reference) -> None:
        reading = _make_reference_reading(reference)
        self.references.append(reading)
        self.weight_bytes += len(reading.model_dump_json().encode())

    def add_ledger(self, ledger: Ledger) -> None:
        reading = make_ledger_reading(ledger)
        self.existing.append(reading)
        self.weight_bytes += len(reading.model_dump_json().encode())


def make_inventory(
    cluster: str,
    inventory: str,
    references: Iterable[Reference],
    existing: Mapping[int, Ledger],
    target: str,
    took_ms: int,
    *,
    staying: Iterable[StayingLedgers] = (),
    left_out: Iterable[str] = (),
    valid_ms: int = 1_200_000,
    moved_too: bool = False,
) -> Iterator[Reading]:
    """Yield the parts of an inventory, and its manifest last. The iterables are read while the parts are consumed.

    Args:
        inventory: a unique name.
        existing: the ledgers found in the target, by id; each is in one part, with its first reference.
        target: the cluster in which each referenced ledger was looked up; empty: none.
        staying: counts of other znodes that name ledgers.
        left_out: znodes that were not read, by the settings.
        valid_ms: how long it permits what deletes or forgets.
        moved_too: ledgers of references in the target were looked up, too.

    Raises:
        UserError: a reference does not fit a record, such as one to a negative id.
    """
    number = count = 0
    for part in _split_parts(references, existing):
        yield SwitchInventoryPart(
            cluster=cluster,
            outcome=Outcome.OK,
            inventory=inventory,
            part=number,
            references=tuple(part.references),
            existing=tuple(part.existing),
        )
        number += 1
        count += len(part.references)
    yield SwitchInventory(
        cluster=cluster,
        outcome=Outcome.OK,
        inventory=inventory,
        parts=number,
        references=count,
        target=target,
        took_ms=took_ms,
        staying=tuple(StayingReading(**structs.asdict(each)) for each in staying),
        left_out=tuple(left_out),
        valid_ms=valid_ms,
        moved_too=moved_too,
    )


def _split_parts(references: Iterable[Reference], existing: Mapping[int, Ledger]) -> Iterator[_PartBuilder]:
    """Yield at least one part."""
    part, left = _PartBuilder(), dict(existing)
    for reference in references:
        part.add_reference(reference)
        if (ledger := left.pop(reference.ledger_id, None)) is not None:
            part.add_ledger(ledger)
        if part.is_full:
            yield part
            part = _PartBuilder()
    for ledger in left.values():
        part.add_ledger(ledger)
        if part.is_full:
            yield part
            part = _PartBuilder()
    yield part


def make_ledger_reading(ledger: Ledger) -> LedgerReading:
    """Return a ledger for a record; `policies.switching.events.to_ledger` reads it."""
    plain = structs.asdict(ledger)
    return LedgerReading(**(plain | {"custom_metadata": dict(ledger.custom_metadata)}))


def _make_reference_reading(reference: Reference) -> ReferenceReading:
    try:
        return ReferenceReading(**structs.asdict(reference))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise UserError(
            f"{reference.path}: cannot be part of an inventory ({first['loc'][0]}: {first['msg']}); mend this znode"
        ) from None
