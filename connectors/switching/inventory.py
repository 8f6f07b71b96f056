"""An inventory as records: its parts, each well below the record size limit, and the manifest that completes it.

Parts are cut by their size as JSON, not by the number of references: topic names, subscription names and custom
metadata can have any length.
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
"""A part has no more references than so many."""
MAX_PART_BYTES = 256 * 1024
"""A part is full from so many bytes on; the last piece may go beyond by the one znode it comes from (at most 1 MiB)."""

_ID_BYTES = 20
"""An id has up to 19 digits, and a comma."""


@dataclass(slots=True)
class _Cut:
    """What the next part has so far."""

    references: list[ReferenceReading] = field(default_factory=list)
    existing: list[LedgerReading] = field(default_factory=list)
    target_ids: list[int] = field(default_factory=list)
    weight_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.weight_bytes >= MAX_PART_BYTES or len(self.references) >= MAX_PART_REFERENCES

    def add_reference(self, reference: Reference) -> None:
        reading = _reference(reference)
        self.references.append(reading)
        self.weight_bytes += len(reading.model_dump_json().encode())

    def add_ledger(self, ledger: Ledger) -> None:
        reading = ledger_reading(ledger)
        self.existing.append(reading)
        self.weight_bytes += len(reading.model_dump_json().encode())

    def add_id(self, ledger_id: int) -> None:
        self.target_ids.append(ledger_id)
        self.weight_bytes += _ID_BYTES


def inventory_readings(
    cluster: str,
    inventory: str,
    references: Iterable[Reference],
    existing: Mapping[int, Ledger],
    target: str,
    took_ms: int,
    *,
    target_ids: Iterable[int] | None = None,
    staying: Iterable[StayingLedgers] = (),
    left_out: Iterable[str] = (),
) -> Iterator[Reading]:
    """Give the parts of an inventory, and its manifest last. What is given is read as the parts are taken.

    Args:
        cluster: the broker cluster.
        inventory: a name that no other inventory of it has.
        references: all of them.
        existing: by id, the ledgers found in the target; each is in one part, with its first reference.
        target: the cluster that was asked for each ledger that is referred to; empty: none was.
        took_ms: how long reading all this took.
        target_ids: all ledgers of the target, with or without a reference; None: it was not listed.
        staying: what else names ledgers, counted.
        left_out: znodes that were not read, as the settings say.

    Raises:
        UserError: a reference does not fit the wire, such as one to a negative id.
    """
    parts = count = 0
    for cut in _cuts(references, existing, target_ids):
        yield SwitchInventoryPart(
            cluster=cluster,
            outcome=Outcome.OK,
            inventory=inventory,
            part=parts,
            references=tuple(cut.references),
            existing=tuple(cut.existing),
            target_ids=tuple(cut.target_ids) if target_ids is not None else None,
        )
        parts += 1
        count += len(cut.references)
    yield SwitchInventory(
        cluster=cluster,
        outcome=Outcome.OK,
        inventory=inventory,
        parts=parts,
        references=count,
        target=target,
        took_ms=took_ms,
        staying=tuple(StayingReading(**structs.asdict(each)) for each in staying),
        left_out=tuple(left_out),
    )


def _cuts(
    references: Iterable[Reference], existing: Mapping[int, Ledger], target_ids: Iterable[int] | None
) -> Iterator[_Cut]:
    """At least one: a target that was listed and is empty must have a part to say so."""
    cut, left = _Cut(), dict(existing)
    for reference in references:
        cut.add_reference(reference)
        if (ledger := left.pop(reference.ledger_id, None)) is not None:
            cut.add_ledger(ledger)
        if cut.is_full:
            yield cut
            cut = _Cut()
    for ledger in left.values():
        cut.add_ledger(ledger)
        if cut.is_full:
            yield cut
            cut = _Cut()
    for ledger_id in target_ids or ():
        cut.add_id(ledger_id)
        if cut.is_full:
            yield cut
            cut = _Cut()
    yield cut


def ledger_reading(ledger: Ledger) -> LedgerReading:
    """A ledger as it is on the wire; `policies.switching.events.to_ledger` reads it."""
    plain = structs.asdict(ledger)
    return LedgerReading(**(plain | {"custom_metadata": dict(ledger.custom_metadata)}))


def _reference(reference: Reference) -> ReferenceReading:
    try:
        return ReferenceReading(**structs.asdict(reference))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise UserError(
            f"{reference.path}: cannot be part of an inventory ({first['loc'][0]}: {first['msg']}); mend this znode"
        ) from None
