"""Edits a schema locator or cursor to say which cluster holds a ledger, and under which id; nothing else changes.

The messages are edited in place: protobuf keeps, on every level, the fields that a reader does not know, and writes
them after those it knows; Pulsar reads the same message, whatever the order of its fields. Repeated ones keep theirs.

A compressed cursor is written uncompressed, which every Pulsar reads. From a compressed one Pulsar 4.2.4 cannot read
any properties (it looks for their text in a buffer that it has released, `refCnt: 0`), and then does not load the
topic. Its owner compresses it again at its next write.
"""

from collections.abc import Collection, Iterator, Sequence
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
from policies.switching.references import LedgerKind, Reference


class ValuePart(StrEnum):
    """What may differ between two values of a znode."""

    ATTRIBUTION = "attribution"
    """Which cluster holds the ledger in question."""
    LEDGER_ID = "ledger_id"
    ENTRY_ID = "entry_id"
    PROPERTIES = "properties"
    OTHER = "other"
    """Anything else: what other ledgers are attributed to, another number of positions, a cursor's mark-delete …"""


@dataclass(frozen=True, slots=True)
class _ParsedValue:
    """A znode's value, taken apart."""

    message: Any
    fields: tuple["_LedgerField", ...]


@dataclass(frozen=True, slots=True)
class _LedgerField:
    """Where a value names a ledger."""

    message: Any
    id_field: str
    properties_field: str

    @property
    def ledger_id(self) -> int:
        return int(getattr(self.message, self.id_field))

    @property
    def properties(self) -> Any:
        return getattr(self.message, self.properties_field)


def references_in(kind: LedgerKind, path: str, data: bytes) -> Sequence[Reference]:
    """What the value of a znode refers to.

    Raises:
        ValueError: it is no locator, or no cursor.
    """
    return parse_locator(path, data) if kind is LedgerKind.SCHEMA else (parse_cursor(path, data),)


def attributed(
    kind: LedgerKind, data: bytes, ledger_id: int, owners: Collection[str | None], to: str, new_id: int | None = None
) -> bytes:
    """The value of a znode with a ledger attributed to a cluster, wherever it was attributed to one of some owners.

    Args:
        kind: whether it is a schema's locator, or a cursor.
        data: the value.
        ledger_id: the ledger; positions that name others stay.
        owners: clusters; None among them stands for no attribute.
        to: the cluster.
        new_id: the ledger's id there; None: the same one. The ids of its entries stay.

    Raises:
        ValueError: it is no locator, or no cursor.
    """
    opened = _open(kind, data)
    mine = [field for field in opened.fields if field.ledger_id == ledger_id]
    edited = [field for field in mine if attribution_of(field.properties) in owners]
    for field in edited:
        _set(field.properties, to)
        if new_id is not None:
            setattr(field.message, field.id_field, new_id)
    return bytes(opened.message.SerializeToString()) if edited else data


def _set(properties: Any, to: str) -> None:
    # Were there two, we would read the first and Pulsar, which makes a map of them, the last.
    present = [each for each in properties if each.name == CLUSTER_PROPERTY]
    for each in present or [properties.add(name=CLUSTER_PROPERTY)]:
        each.value = to


def difference(
    kind: LedgerKind, ledger_id: int, before: bytes, after: bytes, new_id: int | None = None
) -> tuple[ValuePart, ...]:
    """What differs between two values of a znode, in the order of `ValuePart`; compressed or not makes no difference.

    It knows nothing of how values are edited, so that it finds what an edit should not have done.

    Args:
        kind: whether they are a schema's locators, or cursors.
        ledger_id: the ledger whose attribution is meant; that of others is `other`.
        before: the one value.
        after: the other value.
        new_id: the id that the ledger has in the other cluster, where that is another one: then attribution and id
            differ together, from this id to that one, or it is `other`.

    Raises:
        ValueError: one is no locator, or no cursor.
    """
    one, two = _open(kind, before), _open(kind, after)
    parts = set() if len(one.fields) == len(two.fields) else {ValuePart.OTHER}
    for left, right in zip(one.fields, two.fields, strict=False):
        parts.update(_differs(left, right, ledger_id, new_id))
    if _rest(one) != _rest(two):
        parts.add(ValuePart.OTHER)
    return tuple(part for part in ValuePart if part in parts)


def _differs(left: _LedgerField, right: _LedgerField, ledger_id: int, new_id: int | None) -> Iterator[ValuePart]:
    if _entry_id(left) != _entry_id(right):
        yield ValuePart.ENTRY_ID
    clusters, others = _halves(left.properties)
    clusters_then, others_then = _halves(right.properties)
    ids = (left.ledger_id, right.ledger_id)
    moved = [each.value for each in clusters] != [each.value for each in clusters_then]
    if new_id is None:
        yield from _moved(ids, ledger_id, moved)
    elif moved or ids[0] != ids[1]:
        is_meant = moved and ids == (ledger_id, new_id)
        yield from (ValuePart.ATTRIBUTION, ValuePart.LEDGER_ID) if is_meant else (ValuePart.OTHER,)
    # An attribute that there was not is no other property; of one that there was, only the value may differ.
    if others != others_then or (clusters and _bare(clusters) != _bare(clusters_then)):
        yield ValuePart.PROPERTIES


def _moved(ids: tuple[int, int], ledger_id: int, moved: bool) -> Iterator[ValuePart]:
    if ids[0] != ids[1]:
        yield ValuePart.LEDGER_ID
    if moved:
        yield ValuePart.ATTRIBUTION if ids[0] == ledger_id else ValuePart.OTHER


def _entry_id(field: _LedgerField) -> int | None:
    return getattr(field.message, "entryId", None)


def _halves(properties: Any) -> tuple[list[Any], list[Any]]:
    """The attributes, and the other properties."""
    clusters = [each for each in properties if each.name == CLUSTER_PROPERTY]
    return clusters, [each for each in properties if each.name != CLUSTER_PROPERTY]


def _bare(clusters: list[Any]) -> list[Any]:
    copies = [type(each).FromString(each.SerializeToString()) for each in clusters]
    for each in copies:
        each.ClearField("value")
    return copies


def _rest(opened: _ParsedValue) -> Any:
    """What is left once that which has a name of its own is taken away."""
    for field in opened.fields:
        for name in (field.id_field, "entryId", field.properties_field):
            if name in field.message.DESCRIPTOR.fields_by_name:
                field.message.ClearField(name)
    return opened.message


def _open(kind: LedgerKind, data: bytes) -> _ParsedValue:
    if kind is LedgerKind.CURSOR:
        cursor = cursor_message(data)
        return _ParsedValue(cursor, (_LedgerField(cursor, "cursorsLedgerId", "cursorProperties"),))
    locator = locator_message(data)
    positions = (entry.position for entry in (locator.info, *locator.index))
    return _ParsedValue(locator, tuple(_LedgerField(each, "ledgerId", "properties") for each in positions))
