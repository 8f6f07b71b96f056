"""The records of an inventory: its parts, each well below the record size limit, and the manifest that completes it.

The size of a part as JSON limits it, because topic names, subscription names and custom metadata can have any length.
"""

import re
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import unquote_plus

from msgspec import structs
from pydantic import ValidationError

from connectors.bookkeeper.cluster import FoundLedgers, read_cluster, read_layout, read_ledgers, read_lower_counters
from connectors.bookkeeper.settings import BookKeeperCluster, BookKeeperClusters
from connectors.pulsar.metadata import MANAGED_LEDGERS
from connectors.zookeeper.json_znodes import owner_member
from connectors.zookeeper.session import Reader, UnreadError, ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome, Reading
from policies.sessions.readings import NAMESPACES
from policies.switching.ledgers import ClusterSnapshot, Ledger, Reference, StayingLedgers
from policies.switching.readings import (
    LedgerReading,
    ReferenceReading,
    StayingReading,
    SwitchInventory,
    SwitchInventoryPart,
)
from policies.units import UserError

# Finds the broker that has loaded a topic, in the brokers' ZooKeeper.
#
# A topic belongs to the bundle of its namespace whose range contains the CRC32 of its name. The owner of a bundle has
# an ephemeral znode (`NamespaceBundles` and `OwnershipCache` of Pulsar 4.2). Brokers with the extensible load manager
# keep ownership elsewhere, so every topic of theirs seems to have no owner.

_CURSOR = re.compile(
    rf"{MANAGED_LEDGERS}/(?P<namespace>[^/]+/[^/]+(?:/[^/]+)?)/persistent/(?P<topic>[^/]+)/(?P<name>[^/]+)"
)
_BUNDLE = re.compile(r"0x(?P<lower>[0-9a-f]{8})_0x(?P<upper>[0-9a-f]{8})")
_LAST = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Cursor:
    """A subscription's cursor."""

    namespace: str
    """`tenant/namespace`; in Pulsar's first topic names `tenant/cluster/namespace`."""
    topic: str
    """The full name: `persistent://tenant/namespace/topic`."""
    name: str
    """The subscription's name."""


def parse_cursor(path: str) -> Cursor:
    """Return the cursor of a znode's path, in which the names of topic and subscription are URL-encoded.

    Raises:
        ValueError: the path is not a cursor's.
    """
    match = _CURSOR.fullmatch(path)
    if match is None:
        raise ValueError(f"{path} is not the znode of a cursor")
    topic = f"persistent://{match['namespace']}/{unquote_plus(match['topic'])}"
    return Cursor(match["namespace"], topic, unquote_plus(match["name"]))


def find_bundle(topic: str, bundles: Iterable[str]) -> str | None:
    """Return the bundle of a topic, such as `0x40000000_0x80000000`; None if none of the bundles contains it.

    During a split, a bundle and its halves exist together; they have the same owner.
    """
    hashed = zlib.crc32(topic.encode())
    ranges = (
        (int(match["lower"], 16), int(match["upper"], 16), match[0])
        for match in map(_BUNDLE.fullmatch, bundles)
        if match is not None
    )
    # The upper end belongs to the next bundle, except for the last bundle.
    fitting = [(upper - lower, name) for lower, upper, name in ranges if lower <= hashed < upper + (upper == _LAST)]
    return min(fitting)[1] if fitting else None


def find_topic_owner(reader: Reader, cursor: Cursor) -> str | None:
    """Return the broker that has loaded a cursor's topic, or may load it any time, as `host:port`; None if none.

    Raises:
        UnreadError: it cannot be read.
        ValueError: the bundle's znode does not name its owner.
    """
    folder = f"{NAMESPACES}/{cursor.namespace}"
    bundle = find_bundle(cursor.topic, reader.read(reader.client.get_children_async, folder) or ())
    answer = None if bundle is None else reader.read(reader.client.get_async, f"{folder}/{bundle}")
    if answer is None:
        return None
    member = owner_member(answer[0] or b"")
    if member is None:
        raise ValueError(f"{folder}/{bundle} does not name its owner")
    return member


# The ZooKeeper sessions of a broker cluster and of its BookKeeper clusters, one for each ensemble.

_READ_SECONDS = 10.0
_LOOKUP_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A BookKeeper cluster, and the session to its metadata."""

    name: str
    session: ZooKeeperSession
    ledgers_root: str
    """Below the chroot."""


class ClusterSessions:
    """The sessions of one broker cluster; close it, or use it as a context manager.

    Args:
        clusters: the BookKeeper clusters it may write to.
    """

    def __init__(self, cluster: str, brokers: ZooKeeperConnection, clusters: BookKeeperClusters) -> None:
        self._cluster = cluster
        self._connection = brokers
        self._clusters = clusters
        self._sessions: dict[ZooKeeperConnection, ZooKeeperSession] = {brokers: ZooKeeperSession(cluster, brokers)}
        for name in clusters.clusters:
            connection = self.connection(name)
            if connection not in self._sessions:
                self._sessions[connection] = ZooKeeperSession(f"{cluster}/{name}", connection)

    @property
    def brokers(self) -> ZooKeeperSession:
        """The session of the brokers' own ZooKeeper."""
        return self._sessions[self._connection]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all sessions."""
        for session in self._sessions.values():
            session.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all BookKeeper clusters."""
        return tuple(self._clusters.clusters)

    @property
    def bootstrap(self) -> str:
        """The BookKeeper cluster of the ledgers without attribution."""
        return self._clusters.bootstrap

    @property
    def leave_out(self) -> tuple[str, ...]:
        """Znodes that an inventory does not read."""
        return self._clusters.leave_out

    def connection(self, name: str) -> ZooKeeperConnection:
        """Return the connection to the ZooKeeper of a BookKeeper cluster. Raises as `find_metadata` does."""
        return self._find_cluster(name).zookeeper or self._connection

    def find_metadata(self, name: str) -> ClusterMetadata:
        """Return a BookKeeper cluster.

        Raises:
            UserError: the settings have no such cluster.
        """
        return ClusterMetadata(name, self._sessions[self.connection(name)], self._find_cluster(name).ledgers_root)

    def read_cluster(self, name: str) -> ClusterSnapshot:
        """Read the identity, layout and id generator of a BookKeeper cluster. Raises as `find_ledgers` does."""
        metadata = self.find_metadata(name)
        return read_cluster(metadata.session.reader(time_limit(_READ_SECONDS)), name, metadata.ledgers_root, 0)

    def read_lower_counters(self, name: str, hob: int | None) -> dict[int | None, int]:
        """Read the counters below the present one, see `identity.read_lower_counters`."""
        metadata = self.find_metadata(name)
        return read_lower_counters(metadata.session.reader(time_limit(_READ_SECONDS)), metadata.ledgers_root, hob)

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        """Look up ledgers of a BookKeeper cluster.

        Raises:
            UnreadError: a znode cannot be read, or the cluster's layout is unknown.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings have no such cluster.
        """
        metadata = self.find_metadata(name)
        reader = metadata.session.reader(time_limit(_READ_SECONDS + len(ledger_ids) * _LOOKUP_SECONDS))
        layout = read_layout(reader, metadata.ledgers_root)
        if layout is None:
            raise UnreadError(f"{metadata.ledgers_root}/LAYOUT", ValueError("it is unknown, or cannot be served"))
        return read_ledgers(reader, metadata.ledgers_root, layout, ledger_ids)

    def find_owner(self, path: str) -> str | None:
        """Return the broker that has loaded the topic of a cursor's znode, as `host:port`; None if there is none.

        Raises:
            UnreadError: it cannot be read.
            NotConnectedError: the brokers' ZooKeeper cannot be reached.
            ValueError: the path is not a cursor's, or the owner's name cannot be read.
        """
        return find_topic_owner(self.brokers.reader(time_limit(_READ_SECONDS)), parse_cursor(path))

    def _find_cluster(self, name: str) -> BookKeeperCluster:
        if name not in self._clusters.clusters:
            known = ", ".join(self._clusters.clusters)
            raise UserError(f"clusters.{self._cluster}.bookkeeper names no cluster {name}; it names {known}")
        return self._clusters.clusters[name]


def time_limit(seconds: float) -> Callable[[], float]:
    """Return a function that returns the rest of a time limit, which begins now."""
    until = time.monotonic() + seconds
    return lambda: until - time.monotonic()


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
    """Return a ledger for a record, as `LedgerReading.to_ledger` reads it."""
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
