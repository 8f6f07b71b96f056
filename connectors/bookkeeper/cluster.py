"""Reads a BookKeeper cluster from ZooKeeper: its identity, its id generator, and its ledgers with their metadata.

BookKeeper makes ledger ids from sequential znodes below ``idgen``, and once ``idgen-long`` exists, below its largest
child ``HOB-k``. The counters are read without drawing an id. Source: `ZkLedgerIdGenerator` and
`LongZkLedgerIdGenerator` of BookKeeper 4.18.

A ledger's znode holds the line ``BookieMetadataFormatVersion<tab><n>`` and then its metadata: for version 2 (up to
BookKeeper 4.8) in protobuf's text format, for version 3 as protobuf after its length. Source: `LedgerMetadataSerDe`
and `DataFormats.proto` of BookKeeper 4.18.
"""

import base64
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, NamedTuple

from google.protobuf import proto, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from msgspec import structs

from connectors.bookkeeper.copy_journal import PROVENANCE, CopiedLedger, CopyJournal, OtherSourceError
from connectors.foreign_json import build, checked
from connectors.zookeeper.session import IN_FLIGHT, Reader, UnreadError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.ledgers import (
    EMPTY_LONG,
    EMPTY_SHORT,
    MAX_HOB,
    NO_LEDGER,
    ClusterSnapshot,
    IdGenerator,
    Layout,
    Ledger,
    LedgerState,
    hob_name,
    id_at,
    id_of_any_layout,
    next_sequence,
    parse_layout,
    path_of,
)
from policies.units import MAX_INT64, UserError

_HOB = re.compile(r"HOB-(\d+)", re.ASCII)


def read_cluster(reader: Reader, root: str, name: str) -> ClusterSnapshot:
    """Read a cluster's identity, layout and id generator, as of the time before the first read.

    `root` is below the chroot.

    Raises UserError if the root does not exist, UnreadError if a znode cannot be read.
    """
    read_ms = now_ms()
    reader.read(reader.client.sync_async, root)  # a follower that lags behind would return old counters
    if reader.read(reader.client.exists_async, root) is None:
        raise UserError(f"there is no node {reader.client.chroot}{root}: set ledgers_root of {name} to BookKeeper's.")
    return ClusterSnapshot(
        name=name,
        instance_id=_text(reader, f"{root}/INSTANCEID"),
        # With the chroot, so that a place has the same name for all spellings of the servers.
        root=f"{reader.client.chroot}{root}",
        layout=read_layout(reader, root),
        generator=read_generator(reader, root),
        read_ms=read_ms,
    )


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def read_layout(reader: Reader, root: str) -> Layout | None:
    """Return the layout of its ledgers; None if it is unknown or not supported."""
    text = _text(reader, f"{root}/LAYOUT")
    return None if text is None else parse_layout(text)


def metadata_service_uri(connection: ZooKeeperConnection, root: str, layout: Layout) -> str:
    """Return the address of a cluster's metadata, such as ``zk+hierarchical://zk-1:2181;zk-2:2181/pulsar/ledgers``.

    The connection's credentials are not used. `root` is the path of its ledgers below the chroot, such as ``/ledgers``.
    """
    # BookKeeper splits at semicolons; a comma would be part of a host's name.
    return f"zk+{layout.value}://{';'.join(connection.hosts())}{connection.chroot}{root.rstrip('/')}"


def read_generator(reader: Reader, root: str) -> IdGenerator | None:
    """Return the present counters of the id generator; None if they make no sense.

    Raises UnreadError if a znode cannot be read.
    """
    exists, long_path = reader.client.exists_async, f"{root}/idgen-long"
    if reader.read(exists, long_path) is None:
        return _generator(None, reader.read(exists, f"{root}/idgen")) or EMPTY_SHORT
    children = reader.read(reader.client.get_children_async, long_path) or ()
    hob = max((int(match[1]) for name in children if (match := _HOB.fullmatch(name))), default=None)
    if hob is None:
        return EMPTY_LONG
    return _generator(hob, reader.read(exists, f"{long_path}/{hob_name(hob)}")) if hob <= MAX_HOB else None


def read_lower_counters(reader: Reader, root: str, hob: int | None) -> dict[int | None, int]:
    """Return how many ids each counter below the present one gave, by the k of its `HOB-k`; None stands for `idgen`.

    A client that stays connected remembers its counter after the cluster was advanced. Raises as `read_generator` does.
    """
    if hob is None:
        return {}
    exists, long_path = reader.client.exists_async, f"{root}/idgen-long"
    names = reader.read(reader.client.get_children_async, long_path) or ()
    lower = sorted(int(match[1]) for name in names if (match := _HOB.fullmatch(name)) and int(match[1]) < hob)
    paths: dict[int | None, str] = {None: f"{root}/idgen", **{each: f"{long_path}/{hob_name(each)}" for each in lower}}
    found = dict(reader.read_all(exists, paths.values()))
    stats = {each: found[path] for each, path in paths.items()}
    return {each: next_sequence(stat.cversion, stat.numChildren) for each, stat in stats.items() if stat is not None}


def _generator(hob: int | None, stat: Any) -> IdGenerator | None:
    return None if stat is None else IdGenerator(hob, stat.cversion, stat.numChildren)


def _text(reader: Reader, path: str) -> str | None:
    answer = reader.read(reader.client.get_async, path)
    try:
        return answer and (answer[0].decode().strip() or None)
    except UnicodeDecodeError:
        return None


MAX_LISTED = 5_000_000
"""Maximum number of listed ledgers of a target that should hold only copies; they take 500 MB."""

WORTH_LISTING = 16
"""Number of ids in one folder from which listing it (at most 10,000 names) is cheaper than a request for each."""

_FOLDER = re.compile(r"\d+", re.ASCII)
"""A folder of ledgers."""
_OWN_PATHS = frozenset(
    f"/{name}" for name in ("available", "cookies", "idgen", "idgen-long", "INSTANCEID", "LAYOUT", "underreplication")
)
"""BookKeeper's own znodes below the root."""
_HEADER = re.compile(rb"BookieMetadataFormatVersion\t(\d{1,10})\n")

# The text format rejects undeclared fields, so all fields of `DataFormats.proto` are declared.
_METADATA = build(
    "headgate.bookkeeper",
    {
        "LedgerMetadataFormat": {
            "quorumSize": "required int32 1",
            "ensembleSize": "required int32 2",
            "length": "required int64 3",
            "lastEntryId": "optional int64 4",
            "state": "required State 5",
            "segment": "repeated Segment 6",
            "digestType": "optional DigestType 7",
            "password": "optional bytes 8",
            "ackQuorumSize": "optional int32 9",
            "ctime": "optional int64 10",
            "customMetadata": "repeated cMetadataMapEntry 11",
            "cToken": "optional int64 12",
        },
        "Segment": {"ensembleMember": "repeated string 1", "firstEntryId": "required int64 2"},
        "cMetadataMapEntry": {"key": "optional string 1", "value": "optional bytes 2"},
    },
    {
        "State": {"OPEN": 1, "IN_RECOVERY": 2, "CLOSED": 3},
        "DigestType": {"CRC32": 1, "HMAC": 2, "CRC32C": 3, "DUMMY": 4},
    },
)["LedgerMetadataFormat"]
_STATES = {1: LedgerState.OPEN, 2: LedgerState.IN_RECOVERY, 3: LedgerState.CLOSED}


@dataclass(frozen=True, slots=True)
class FoundLedgers:
    """The existing ledgers."""

    ids: set[int] = field(default_factory=set)
    facts: dict[int, Ledger] = field(default_factory=dict)
    """By id; without those whose metadata cannot be parsed."""
    provenances: dict[int, str] = field(default_factory=dict)
    """By id, the provenance property that marks a copy of Headgate; only the journal can confirm it."""
    problems: list[str] = field(default_factory=list)
    """The parse errors."""

    def add(self, ledger_id: int, data: bytes, created_ms: int) -> None:
        """Add a ledger.

        Raises:
            ValueError: the metadata has another version or is malformed; the message quotes none of it.
        """
        self.ids.add(ledger_id)
        metadata = _metadata(data)
        self.facts[ledger_id] = _ledger(ledger_id, metadata, created_ms)
        marks = (each.value for each in metadata.customMetadata if each.key == PROVENANCE)
        if (mark := next(marks, None)) is not None:
            self.provenances[ledger_id] = mark.decode(errors="replace")


def _ledger(ledger_id: int, metadata: Any, created_ms: int) -> Ledger:
    closed = _STATES[metadata.state] is LedgerState.CLOSED
    has_ack_quorum = metadata.HasField("ackQuorumSize")
    return Ledger(
        ledger_id=ledger_id,
        state=_STATES[metadata.state],
        # BookKeeper itself uses these only for a closed ledger.
        last_entry_id=metadata.lastEntryId if closed else -1,
        length_bytes=metadata.length if closed else 0,
        # The mark of our copies is not part of the copied ledger.
        custom_metadata={
            each.key: base64.b64encode(each.value).decode()
            for each in metadata.customMetadata
            if each.key != PROVENANCE
        },
        ensemble_size=metadata.ensembleSize,
        write_quorum=metadata.quorumSize,
        ack_quorum=metadata.ackQuorumSize if has_ack_quorum else metadata.quorumSize,
        created_ms=created_ms,
    )


def _metadata(data: bytes) -> Any:
    header = _HEADER.match(data)
    if header is None:
        raise ValueError("it does not begin with BookieMetadataFormatVersion")
    version, body = int(header[1]), data[header.end() :]
    if version not in (2, 3):
        raise ValueError(f"its metadata is of version {version}; 2 and 3 are known")
    try:
        if version == 2:
            metadata = text_format.Parse(body.decode(), _METADATA())
        else:
            metadata = proto.parse_length_prefixed(_METADATA, BytesIO(body)) or _METADATA()
    except (DecodeError, text_format.ParseError, ValueError):  # ValueError if it is cut short or not UTF-8
        raise ValueError(f"its metadata of version {version} cannot be parsed") from None
    return checked(metadata)


def read_ledgers(reader: Reader, root: str, layout: Layout, ledger_ids: Iterable[int]) -> FoundLedgers:
    """Read ledgers by id; impossible ids do not exist. Raises UnreadError if a znode cannot be read."""
    places = {root + path_of(layout, i): i for i in sorted(set(ledger_ids)) if NO_LEDGER < i <= MAX_INT64}
    found = FoundLedgers()
    for path, answer in reader.read_all(reader.client.get_async, _existing_paths(reader, places)):
        if answer is None:
            continue
        data, stat = answer
        try:
            found.add(places[path], data, stat.ctime)
        except ValueError as error:
            found.problems.append(f"{reader.client.chroot}{path}: {error}")
    return found


def _existing_paths(reader: Reader, paths: Iterable[str]) -> list[str]:
    """Drop missing ledgers of folders with many requested ledgers, by listing the folder."""
    by_folder: dict[str, set[str]] = {}
    for path in paths:
        by_folder.setdefault(path.rpartition("/")[0], set()).add(path)
    many = [folder for folder, inside in by_folder.items() if len(inside) >= WORTH_LISTING]
    for folder, names in reader.read_all(reader.client.get_children_async, many):
        by_folder[folder] &= {f"{folder}/{name}" for name in names or ()}
    return [path for inside in by_folder.values() for path in sorted(inside)]


class ListedLedgers(NamedTuple):
    """The ledgers of a whole cluster."""

    ids: frozenset[int]
    """Bookies keep entries by id alone, so a ledger counts whatever layout its path is of."""
    misplaced: tuple[str, ...] = ()
    """The paths where the layout puts no ledger and BookKeeper nothing else."""


def list_ledgers(reader: Reader, root: str, layout: Layout, most: int = MAX_LISTED) -> ListedLedgers:
    """List all ledgers of a cluster, with one request for each folder, which may hold thousands of ledgers.

    Raises UnreadError if a znode cannot be read, or there are more than `most` ledgers.
    """
    found, misplaced, ahead = set[int](), list[str](), [root]
    while ahead:
        if len(found) + len(misplaced) > most:
            raise UnreadError(f"{reader.client.chroot}{root}", ValueError(f"more than {most:,} ledgers are there"))
        # Depth first, so that the list of open folders stays short.
        batch, ahead = ahead[-IN_FLIGHT:], ahead[:-IN_FLIGHT]
        for folder, names in reader.read_all(reader.client.get_children_async, batch):
            for name in names or ():
                path = f"{folder}/{name}".removeprefix(root)
                ledger_id = id_at(layout, path)
                if ledger_id is not None:
                    found.add(ledger_id)
                elif _FOLDER.fullmatch(name):
                    ahead.append(root + path)
                elif path not in _OWN_PATHS and not path.startswith("/ID-"):
                    misplaced.append(path)
    found.update(ledger_id for path in misplaced if (ledger_id := id_of_any_layout(path)) is not None)
    return ListedLedgers(frozenset(found), tuple(f"{reader.client.chroot}{root}{path}" for path in misplaced))


NOT_OURS = ""


def confirm_provenance(found: FoundLedgers, journal: CopyJournal) -> tuple[dict[int, Ledger], dict[int, CopiedLedger]]:
    """Return the ledgers of a target with their confirmed provenance, and the proved copies.

    It costs one request for each ledger with a provenance property. Raises ZnodeError if the journal cannot be read.
    """
    ledgers, proved = {}, {}
    for ledger_id, ledger in found.facts.items():
        mark, record = found.provenances.get(ledger_id), None
        if mark is not None:
            with suppress(OtherSourceError):
                record = journal.find(ledger_id)
        is_ours = record is not None and record.provenance == mark
        ledgers[ledger_id] = structs.replace(ledger, provenance=record.source if record and is_ours else NOT_OURS)
        if record is not None and is_ours and record.copied is not None:
            proved[ledger_id] = record.copied
    return ledgers, proved
