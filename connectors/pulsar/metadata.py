"""Who refers to which ledger, in the brokers' ZooKeeper: the schema locators and the cursors.

Sources: `SchemaStorageFormat.proto`, `MLDataFormats.proto` and `MetaStoreImpl` of Pulsar 4.2; where the cluster that
holds a ledger is named: PIP-477, revision 3 (`PositionInfo.properties`, `ManagedCursorInfo.cursorProperties`).
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from connectors.protobuf import build, optional, parse, repeated, required
from connectors.zookeeper.tree import Reader
from policies.switching.references import LedgerKind, Reference

SCHEMAS = "/schemas"
MANAGED_LEDGERS = "/managed-ledgers"
CLUSTER_PROPERTY = "_pulsar.bookieClusterName"
"""Names the BookKeeper cluster that holds a ledger."""

_MAGIC = b"\x47\x78"
_SIZE_BYTES = 4
_PERSISTENT = "persistent"
_MAX_BYTES = 2**26
"""Larger values no broker writes: ZooKeeper takes 1 MiB, and they are not compressed a hundredfold."""

_MESSAGES = build(
    "headgate.pulsar",
    {
        "SchemaLocator": {"info": required("IndexEntry", 1), "index": repeated("IndexEntry", 2)},
        "IndexEntry": {"version": required("int64", 1), "position": required("PositionInfo", 2)},
        "PositionInfo": {
            "ledgerId": required("int64", 1),
            "entryId": required("int64", 2),
            "properties": repeated("Property", 3),
        },
        "ManagedCursorInfo": {
            "cursorsLedgerId": required("int64", 1),
            "cursorProperties": repeated("Property", 8),
        },
        "ManagedCursorInfoMetadata": {
            "compressionType": required("CompressionType", 1),
            "uncompressedSize": required("int32", 2),
        },
        # `KeyValue` in the one file and `StringProperty` in the other are the same on the wire.
        "Property": {"name": optional("string", 1), "value": optional("string", 2)},
    },
    {"CompressionType": {"NONE": 0, "LZ4": 1, "ZLIB": 2, "ZSTD": 3, "SNAPPY": 4}},
)
_ARROW_CODECS = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
_NONE, _ZLIB = 0, 2


@dataclass(frozen=True, slots=True)
class Inventory:
    """All references that were found."""

    references: list[Reference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What could not be parsed or placed: with any, the references are not complete."""


def parse_locator(path: str, data: bytes) -> list[Reference]:
    """The ledgers that a schema locator names: that of the current version, and that of each version of the index.

    Raises:
        ValueError: it is no locator.
    """
    locator = locator_message(data)
    entries = [("info", locator.info), *((f"index/{n}", entry) for n, entry in enumerate(locator.index))]
    return [
        Reference(LedgerKind.SCHEMA, path, entry.position.ledgerId, attribution_of(entry.position.properties), position)
        for position, entry in entries
    ]


def parse_cursor(path: str, data: bytes) -> Reference:
    """The ledger that a cursor names, plain or compressed; -1 where it keeps none.

    Raises:
        ValueError: it is no cursor, or it cannot be decompressed.
    """
    cursor = cursor_message(data)
    return Reference(LedgerKind.CURSOR, path, cursor.cursorsLedgerId, attribution_of(cursor.cursorProperties))


def locator_message(data: bytes) -> Any:
    """A schema locator as a protobuf message; raises as `parse_locator` does."""
    return parse(_MESSAGES["SchemaLocator"], data)


def cursor_message(data: bytes) -> Any:
    """A cursor's info as a protobuf message; raises as `parse_cursor` does."""
    return parse(_MESSAGES["ManagedCursorInfo"], decompressed(data))


def attribution_of(properties: Iterable[Any]) -> str | None:
    """The cluster that the properties of a position name; None where they name none."""
    return next((each.value for each in properties if each.name == CLUSTER_PROPERTY), None) or None


def decompressed(data: bytes) -> bytes:
    """A managed ledger's or cursor's info as protobuf.

    Compressed it is 0x4778, the length of a header in four bytes, that header (protobuf, with the type of compression
    and the size), and the compressed info. No plain one begins so: no field has such a tag.

    Raises:
        ValueError: it is cut short, or damaged.
    """
    if not data.startswith(_MAGIC):
        return data
    start = len(_MAGIC) + _SIZE_BYTES
    end = start + int.from_bytes(data[len(_MAGIC) : start], "big")
    header = parse(_MESSAGES["ManagedCursorInfoMetadata"], data[start:end])
    if not 0 <= header.uncompressedSize <= _MAX_BYTES:
        raise ValueError(f"its size of {header.uncompressedSize} bytes cannot be true")
    plain = _decompress(header.compressionType, data[end:], header.uncompressedSize)
    if len(plain) != header.uncompressedSize:
        raise ValueError(f"decompressed it has {len(plain)} bytes, not {header.uncompressedSize}")
    return plain


def _decompress(compression: int, data: bytes, size: int) -> bytes:
    if compression == _NONE:
        return data
    try:
        if compression == _ZLIB:
            return zlib.decompressobj().decompress(data, size + 1)
        import pyarrow as pa  # takes 0.2 s to load, and most clusters do not compress

        return bytes(pa.decompress(data, size, codec=_ARROW_CODECS[compression], asbytes=True))
    except (zlib.error, OSError, ValueError) as error:
        raise ValueError(f"it cannot be decompressed: {error}") from None


def read_references(reader: Reader) -> Inventory:
    """Read all schema locators and cursors of a broker cluster.

    Costs a request for each schema and namespace, and for each topic one and one for each of its cursors. What goes
    away meanwhile is left out.

    Raises:
        UnreadError: a znode cannot be read; nothing is known then.
    """
    found = Inventory()
    for path, data in _locators(reader):
        _add(found, path, data, parse_locator)
    for path, data in _cursors(reader, found.problems):
        _add(found, path, data, lambda where, value: [parse_cursor(where, value)])
    return found


def _add(found: Inventory, path: str, data: bytes, read: Callable[[str, bytes], list[Reference]]) -> None:
    try:
        found.references.extend(read(path, data))
    except ValueError as error:
        found.problems.append(f"{path}: {error}")


def _locators(reader: Reader) -> Iterator[tuple[str, bytes]]:
    """Whatever holds something below the schemas' root: a tenant and a namespace do not."""
    ahead = [SCHEMAS]
    while ahead:
        folders = []
        for path, answer in reader.each(reader.client.get_async, ahead):
            data, children = _content(answer)
            if data:
                yield path, data
            if children:
                folders.append(path)
        ahead = list(_below(reader, folders))


def _cursors(reader: Reader, problems: list[str]) -> Iterator[tuple[str, bytes]]:
    """The children of all topics, which are those of each namespace's `persistent`."""
    topics = _below(reader, _domains(reader, problems))
    for path, answer in reader.each(reader.client.get_async, _below(reader, topics)):
        if answer is not None:
            yield path, answer[0]


def _domains(reader: Reader, problems: list[str]) -> list[str]:
    """`tenant/namespace/persistent`, and of Pulsar's first topic names `tenant/cluster/namespace/persistent`."""
    tenants = _below(reader, _empty(reader, [MANAGED_LEDGERS], problems))
    # Below a tenant are namespaces, or clusters with namespaces below them.
    inner = list(_below(reader, _empty(reader, _below(reader, _empty(reader, tenants, problems)), problems)))
    old_namespaces = [path for path in inner if not _is_domain(path)]
    innermost = list(_below(reader, _empty(reader, old_namespaces, problems)))
    problems += (f"{path}: is not where topics keep their cursors" for path in innermost if not _is_domain(path))
    return [path for path in (*inner, *innermost) if _is_domain(path)]


def _is_domain(path: str) -> bool:
    return path.endswith(f"/{_PERSISTENT}")


def _empty(reader: Reader, paths: Iterable[str], problems: list[str]) -> Iterator[str]:
    """Of nodes that only lead to topics, those that hold nothing: one that does is itself a managed ledger."""
    for path, answer in reader.each(reader.client.get_async, paths):
        if _content(answer)[0]:
            problems.append(f"{path}: is not where a topic keeps its managed ledger")
        elif answer is not None:
            yield path


def _below(reader: Reader, folders: Iterable[str]) -> Iterator[str]:
    """The children of nodes; of one that is gone, none."""
    for folder, names in reader.each(reader.client.get_children_async, folders):
        yield from (f"{folder}/{name}" for name in names or ())


def _content(answer: Any) -> tuple[bytes, int]:
    """What a node holds, and how many children it has."""
    return (b"", 0) if answer is None else (answer[0] or b"", answer[1].numChildren)
