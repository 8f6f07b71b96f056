"""Edits a schema locator or cursor: sets the cluster that holds a ledger, and the ledger's id there.

Nothing else changes. The messages are edited in place: on every level protobuf preserves unknown fields, and writes
them after the known ones. Pulsar reads the same message in any order of fields; repeated fields keep their order.

A compressed cursor is written uncompressed, which every Pulsar reads. Pulsar 4.2.4 cannot read properties of a
compressed cursor, because it looks for their text in a buffer that it has released (`refCnt: 0`), and then does not
load the topic. The topic's owner compresses the cursor again at its next write.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from connectors.pulsar.metadata import (
    CLUSTER_PROPERTY,
    attribution_of,
    cursor_message,
    locator_message,
    parse_cursor,
    parse_locator,
)
from policies.switching.ledgers import LedgerKind, Reference


class ValuePart(StrEnum):
    """The parts in which two values of a znode may differ."""

    ATTRIBUTION = "attribution"
    """The cluster that holds the ledger."""
    LEDGER_ID = "ledger_id"
    OTHER = "other"
    """Anything else: the attribution of other ledgers, an entry's id, other properties, a cursor's mark-delete …"""


@dataclass(frozen=True, slots=True)
class _ParsedValue:
    """A znode's parsed value."""

    message: Any
    fields: tuple["_LedgerField", ...]


@dataclass(frozen=True, slots=True)
class _LedgerField:
    """A field that names a ledger."""

    message: Any
    id_field: str
    properties_field: str

    @property
    def ledger_id(self) -> int:
        return int(getattr(self.message, self.id_field))

    @property
    def properties(self) -> Any:
        return getattr(self.message, self.properties_field)

    def attributes(self) -> list[Any]:
        """Return the properties that name the cluster."""
        return [each for each in self.properties if each.name == CLUSTER_PROPERTY]

    def take_out(self, *, whole: bool) -> tuple[int, list[str]]:
        """Clear the id and the names of the clusters, or `whole` attributes, and return id and names."""
        ledger_id, attributes = self.ledger_id, self.attributes()
        clusters = [each.value for each in attributes]
        self.message.ClearField(self.id_field)
        for each in attributes:
            if whole:
                self.properties.remove(each)
            else:
                each.ClearField("value")
        return ledger_id, clusters


def references_in(kind: LedgerKind, path: str, data: bytes) -> Sequence[Reference]:
    """Return the ledgers that a znode's value names. Raises ValueError if it is no locator, or no cursor."""
    return parse_locator(path, data) if kind is LedgerKind.SCHEMA else (parse_cursor(path, data),)


def set_attribution(
    kind: LedgerKind, data: bytes, ledger_id: int, owners: Collection[str | None], to: str, new_id: int | None = None
) -> bytes:
    """Return a znode's value with a ledger attributed to a cluster, wherever one of `owners` held it.

    Args:
        kind: a schema's locator, or a cursor.
        ledger_id: the ledger; positions with other ledgers stay.
        owners: the clusters to replace; None among them stands for no attribute.
        new_id: the ledger's id there; None for the same id. The ids of its entries stay.

    Raises:
        ValueError: it is no locator, or no cursor.
    """
    opened = _open(kind, data)
    same_ledger = [field for field in opened.fields if field.ledger_id == ledger_id]
    edited = [field for field in same_ledger if attribution_of(field.properties) in owners]
    for field in edited:
        # All duplicates are set: we would read the first one, and Pulsar, which makes a map of them, the last.
        for each in field.attributes() or [field.properties.add(name=CLUSTER_PROPERTY)]:
            each.value = to
        if new_id is not None:
            setattr(field.message, field.id_field, new_id)
    return bytes(opened.message.SerializeToString()) if edited else data


def difference(
    kind: LedgerKind, ledger_id: int, before: bytes, after: bytes, new_id: int | None = None
) -> tuple[ValuePart, ...]:
    """Return the parts in which two values of a znode differ, in the order of `ValuePart`; compression does not count.

    It is independent of the code that edits values, so that it finds unwanted effects of an edit.

    Args:
        kind: a schema's locators, or cursors.
        ledger_id: the ledger whose attribution is compared; the attribution of other ledgers is `other`.
        new_id: the ledger's id in the other cluster if it has another one there. Then attribution and id must change
            together, from the one id to the other; any other change of them is `other`.

    Raises:
        ValueError: one is no locator, or no cursor.
    """
    one, two = _open(kind, before), _open(kind, after)
    parts = set[ValuePart]()
    for left, right in zip(one.fields, two.fields, strict=False):
        is_new = (
            not left.attributes()
        )  # a new attribute is not another property; of an old one only the value may differ
        (id_before, clusters_before), (id_after, clusters_after) = (
            each.take_out(whole=is_new) for each in (left, right)
        )
        is_moved = clusters_before != clusters_after
        if new_id is not None and (is_moved or id_before != id_after):
            is_wanted = is_moved and (id_before, id_after) == (ledger_id, new_id)
            parts |= {ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID} if is_wanted else {ValuePart.OTHER}
        elif is_moved:
            parts.add(ValuePart.ATTRIBUTION if id_before == ledger_id else ValuePart.OTHER)
        if new_id is None and id_before != id_after:
            parts.add(ValuePart.LEDGER_ID)
    if one.message != two.message:
        parts.add(ValuePart.OTHER)
    return tuple(part for part in ValuePart if part in parts)


def _open(kind: LedgerKind, data: bytes) -> _ParsedValue:
    if kind is LedgerKind.CURSOR:
        cursor = cursor_message(data)
        return _ParsedValue(cursor, (_LedgerField(cursor, "cursorsLedgerId", "cursorProperties"),))
    locator = locator_message(data)
    positions = (entry.position for entry in (locator.info, *locator.index))
    return _ParsedValue(locator, tuple(_LedgerField(each, "ledgerId", "properties") for each in positions))
