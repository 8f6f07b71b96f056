"""Parses and edits ledger references in Pulsar's znodes: schema locators, cursors, topics, segments of DistributedLog.

Sources: `SchemaStorageFormat.proto`, `MLDataFormats.proto` and `MetaStoreImpl` of Pulsar 4.2. The name of the cluster
that holds a ledger follows PIP-477, revision 3 (`PositionInfo.properties`, `ManagedCursorInfo.cursorProperties`,
`LedgerInfo.properties`). Segments follow `LogSegmentMetadata` of DistributedLog 4.17.
"""

import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from connectors.foreign_json import build, parse
from policies.switching.ledgers import NO_LEDGER, LedgerKind, Reference, StayingKind

SCHEMAS = "/schemas"
MANAGED_LEDGERS = "/managed-ledgers"
CLUSTER_PROPERTY = "_pulsar.bookieClusterName"
"""Names the BookKeeper cluster that holds a ledger."""

_TRANSACTION_LOG = "__transaction_log_"
_PENDING_ACK = "__transaction_pending_ack"
_COMPACTION = "__compaction"
_COMPACTED = "CompactedTopicLedger"
_DELAYED_INDEX = "#pulsar.internal.delayed.bucket"
_SEGMENTS = ("inprogress", "logrecs")
_LEAST_FIELDS = 3

_MAGIC = b"\x47\x78"
_SIZE_BYTES = 4
_MAX_BYTES = 2**26
"""Maximum size of a decompressed value. ZooKeeper accepts 1 MiB, and the compression is less than a hundredfold."""

_MESSAGES = build(
    "headgate.pulsar",
    {
        "SchemaLocator": {"info": "required IndexEntry 1", "index": "repeated IndexEntry 2"},
        "IndexEntry": {"version": "required int64 1", "position": "required PositionInfo 2"},
        "PositionInfo": {
            "ledgerId": "required int64 1",
            "entryId": "required int64 2",
            "properties": "repeated Property 3",
        },
        "ManagedCursorInfo": {
            "cursorsLedgerId": "required int64 1",
            "properties": "repeated LongProperty 5",
            "cursorProperties": "repeated Property 8",
        },
        "ManagedLedgerInfo": {"ledgerInfo": "repeated LedgerInfo 1"},
        "LedgerInfo": {
            "ledgerId": "optional int64 1",
            "offloadContext": "optional OffloadContext 5",
            "properties": "repeated Property 6",
        },
        "OffloadContext": {"complete": "optional bool 3", "bookkeeperDeleted": "optional bool 4"},
        "LongProperty": {"name": "optional string 1", "value": "optional int64 2"},
        # The header of a topic's info has another name and the same fields.
        "ManagedCursorInfoMetadata": {
            "compressionType": "required CompressionType 1",
            "uncompressedSize": "required int32 2",
        },
        # `KeyValue` in one file and `StringProperty` in the other are the same on the wire.
        "Property": {"name": "optional string 1", "value": "optional string 2"},
    },
    {"CompressionType": {"NONE": 0, "LZ4": 1, "ZLIB": 2, "ZSTD": 3, "SNAPPY": 4}},
)
_ARROW_CODECS = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
_NONE, _ZLIB = 0, 2


@dataclass(frozen=True, slots=True)
class StayingReference:
    """A reference to a ledger that a switch does not move."""

    kind: StayingKind
    ledger_id: int
    attribution: str | None = None
    """The cluster that the entry of a topic names; a ledger of another kind is searched in all clusters."""


def parse_locator(path: str, data: bytes) -> list[Reference]:
    """Return the ledgers that a schema locator names: of the current version, and of each version in the index.

    Raises ValueError if it is no locator.
    """
    locator = locator_message(data)
    entries = [("info", locator.info), *((f"index/{n}", entry) for n, entry in enumerate(locator.index))]
    return [
        Reference(LedgerKind.SCHEMA, path, entry.position.ledgerId, attribution_of(entry.position.properties), position)
        for position, entry in entries
    ]


def check_versions(data: bytes) -> None:
    """Check that a locator names every version. Schema entries name the previous ones, too, but are not read.

    Raises ValueError if the first versions are missing, so only schema entries name them.
    """
    versions = [entry.version for entry in locator_message(data).index]
    if versions and (first := min(versions)) > 0:
        raise ValueError(f"its versions before {first} are named inside schema entries only, which are not read")


def parse_cursor(path: str, data: bytes) -> Reference:
    """Return the ledger that a cursor names, plain or compressed; -1 if it has none.

    Raises ValueError if it is no cursor, or it cannot be decompressed.
    """
    cursor = cursor_message(data)
    return Reference(LedgerKind.CURSOR, path, cursor.cursorsLedgerId, attribution_of(cursor.cursorProperties))


def parse_topic(path: str, data: bytes) -> list[StayingReference]:
    """Return the ledgers that a topic names, without those that are offloaded and deleted from BookKeeper.

    Raises ValueError if it is no managed ledger, or it cannot be decompressed.
    """
    topic, kind = parse(_MESSAGES["ManagedLedgerInfo"], decompress(data)), StayingKind.TOPIC
    name = path.rpartition("/")[2]
    if name.startswith(_TRANSACTION_LOG):
        kind = StayingKind.TRANSACTION_LOG
    elif name.endswith(_PENDING_ACK):
        kind = StayingKind.PENDING_ACK
    # An empty entry names no ledger; any other entry must have an id.
    found = [each for each in topic.ledgerInfo if each.ByteSize()]
    if any(not each.HasField("ledgerId") for each in found):
        raise ValueError("one of its ledgers has no id")
    return [
        StayingReference(
            StayingKind.OFFLOADED if each.offloadContext.complete else kind,
            each.ledgerId,
            attribution_of(each.properties),
        )
        for each in found
        if not each.offloadContext.bookkeeperDeleted
    ]


def parse_cursor_extras(path: str, data: bytes) -> list[StayingReference]:
    """Return a cursor's other ledgers: those of its topic's compaction, and the indexes of its delayed messages.

    While a compaction's cursor has an open ledger, only that ledger names the newest compacted one. Then the result has
    one more reference, without an id. Raises ValueError if it is no cursor, or a ledger's id is malformed.
    """
    cursor = cursor_message(data)
    found = [
        StayingReference(StayingKind.DELAYED_INDEX, int(each.value))
        for each in cursor.cursorProperties
        if each.name.startswith(_DELAYED_INDEX)
    ]
    found += [
        StayingReference(StayingKind.COMPACTED, each.value) for each in cursor.properties if each.name == _COMPACTED
    ]
    if path.endswith(f"/{_COMPACTION}") and cursor.cursorsLedgerId != NO_LEDGER:
        found.append(StayingReference(StayingKind.COMPACTED, NO_LEDGER))
    return found


def parse_segment(path: str, data: bytes) -> StayingReference | None:
    """Return the ledger that a znode of a DistributedLog names, or None.

    A segment holds `version;ledger;first transaction;…`, an allocator the id of a ledger that is not used yet.

    Raises ValueError if a segment or an allocator has another content.
    """
    parent, _, name = path.rpartition("/")
    text = data.decode("ascii", errors="replace").strip()
    if name.startswith(_SEGMENTS):
        fields = text.split(";")
        if len(fields) < _LEAST_FIELDS or not fields[1].isdecimal():
            raise ValueError("it is no segment of a log")
        return StayingReference(StayingKind.LOG, int(fields[1]))
    if name == "allocation" or "/.allocation_pool/" in f"{parent}/":
        if not text.isdecimal():
            raise ValueError("it holds no ledger's id")
        return StayingReference(StayingKind.LOG, int(text))
    return None


def locator_message(data: bytes) -> Any:
    """Return a schema locator as a protobuf message; raises as `parse_locator` does."""
    return parse(_MESSAGES["SchemaLocator"], data)


def cursor_message(data: bytes) -> Any:
    """Return a cursor's info as a protobuf message; raises as `parse_cursor` does."""
    return parse(_MESSAGES["ManagedCursorInfo"], decompress(data))


def attribution_of(properties: Iterable[Any]) -> str | None:
    """Return the cluster that the properties of a position name, or None."""
    return next((each.value for each in properties if each.name == CLUSTER_PROPERTY), None) or None


def decompress(data: bytes) -> bytes:
    """Return a managed ledger's or cursor's info as protobuf.

    The compressed form is 0x4778, the length of a header in four bytes, the header (protobuf, with the type of
    compression and the size), and the compressed info. A plain info never starts with these bytes, because no field has
    such a tag. Raises ValueError if it is cut short, or damaged.
    """
    if not data.startswith(_MAGIC):
        return data
    start = len(_MAGIC) + _SIZE_BYTES
    end = start + int.from_bytes(data[len(_MAGIC) : start], "big")
    header = parse(_MESSAGES["ManagedCursorInfoMetadata"], data[start:end])
    if not 0 <= header.uncompressedSize <= _MAX_BYTES:
        raise ValueError(f"its size of {header.uncompressedSize} bytes cannot be true")
    plain = _expand(header.compressionType, data[end:], header.uncompressedSize)
    if len(plain) != header.uncompressedSize:
        raise ValueError(f"decompressed it has {len(plain)} bytes, not {header.uncompressedSize}")
    return plain


def _expand(compression: int, data: bytes, size: int) -> bytes:
    if compression == _NONE:
        return data
    try:
        if compression == _ZLIB:
            return zlib.decompressobj().decompress(data, size + 1)
        import pyarrow as pa  # takes 0.2 s to load, and most clusters do not compress

        return bytes(pa.decompress(data, size, codec=_ARROW_CODECS[compression], asbytes=True))
    except (zlib.error, OSError, ValueError) as error:
        raise ValueError(f"it cannot be decompressed: {error}") from None


# Edits a schema locator or cursor: sets the cluster that holds a ledger, and the ledger's id there.
#
# Nothing else changes. The messages are edited in place: on every level protobuf preserves unknown fields, and writes
# them after the known ones. Pulsar reads the same message in any order of fields; repeated fields keep their order.
#
# A compressed cursor is written uncompressed, which every Pulsar reads. Pulsar 4.2.4 cannot read properties of a
# compressed cursor, because it looks for their text in a buffer that it has released (`refCnt: 0`), and then does not
# load the topic. The topic's owner compresses the cursor again at its next write.


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
