"""Everything in the brokers' ZooKeeper that refers to a ledger: schemas, cursors, topics, packages and functions.

Whatever is found and cannot be placed or parsed is a problem with its path, and an inventory with any problem is
incomplete. Only the settings can exclude a path, by its name; the inventory then says so.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Protocol

from connectors.pulsar.metadata import (
    MANAGED_LEDGERS,
    SCHEMAS,
    StayingReference,
    check_versions,
    parse_cursor,
    parse_cursor_extras,
    parse_locator,
    parse_segment,
    parse_topic,
)
from connectors.zookeeper.tree import Reader
from policies.switching.ledgers import NO_LEDGER
from policies.switching.references import ANY_CLUSTER, Reference, StayingKind, StayingLedgers

LOGS = "/pulsar"
"""Below it are the namespaces of DistributedLogs."""
_LOG_NAMESPACES = frozenset({"packages", "functions"})
_OF_NO_LEDGERS = frozenset({"migration-coordinator"})
"""What else brokers keep there: how far they are on their way to another metadata store."""
_LOG_MARK = b"BKDL"
"""A namespace of logs says so, whatever it is called."""

_PERSISTENT = "persistent"
_TOPICS_AT_ONCE = 10_000
SHARED_FROM = 20_000
"""From so many topics on it pays to start other processes."""
_TOPICS_A_PIECE = 2_000
SAMPLES = 3
"""So many znodes stand for the others."""

Holders = Callable[[Collection[int]], Mapping[str, Collection[int]]]
"""Gives by cluster which of some ledgers it has."""


@dataclass(slots=True)
class _Tally:
    count: int = 0
    greatest_id: int = NO_LEDGER
    samples: list[str] = field(default_factory=list)

    def add(self, path: str, ledger_id: int) -> None:
        self.count += 1
        self.greatest_id = max(self.greatest_id, ledger_id)
        if len(self.samples) < SAMPLES and path not in self.samples:
            self.samples.append(path)


@dataclass(slots=True)
class Inventory:
    """All references that were found."""

    references: list[Reference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What could not be parsed or placed: with any, the inventory is not complete."""
    left_out: list[str] = field(default_factory=list)
    """What was found and not read, as the settings say."""
    _topics: dict[tuple[StayingKind, str | None], _Tally] = field(default_factory=dict)
    _others: list[tuple[str, StayingReference]] = field(default_factory=list)

    def add(self, more: "Inventory") -> None:
        """What was found elsewhere in the same tree."""
        self.references += more.references
        self.problems += more.problems
        self.left_out += more.left_out
        self._others += more._others
        for key, tally in more._topics.items():
            _merge(self._topics.setdefault(key, _Tally()), tally)

    def add_staying(self, path: str, found: Iterable[StayingReference]) -> None:
        """Ledgers that stay where they are."""
        for each in found:
            if each.kind in _BY_LOOKUP:
                self._others.append((path, each))
            else:
                self._topics.setdefault((each.kind, each.attribution), _Tally()).add(path, each.ledger_id)

    def staying(self, bootstrap: str, holders: Holders) -> tuple[StayingLedgers, ...]:
        """What stays where it is, counted by kind and cluster.

        Args:
            bootstrap: the cluster that holds the topics' ledgers that say nothing.
            holders: asked for ledgers that have no attribution of their own; whoever has one, holds it, and what nobody
                has is gone.
        """
        tallies: dict[tuple[StayingKind, str], _Tally] = {}
        for (kind, attribution), tally in self._topics.items():
            _merge(tallies.setdefault((kind, attribution or bootstrap), _Tally()), tally)
        known = {each.ledger_id for _, each in self._others} - {NO_LEDGER}
        having = holders(known) if known else {}
        for path, each in self._others:
            clusters = [name for name, ids in having.items() if each.ledger_id in ids]
            for cluster in [ANY_CLUSTER] if each.ledger_id == NO_LEDGER else clusters:
                tallies.setdefault((each.kind, cluster), _Tally()).add(path, each.ledger_id)
        return tuple(
            StayingLedgers(kind, cluster, tally.count, tally.greatest_id, tuple(tally.samples))
            for (kind, cluster), tally in sorted(tallies.items(), key=lambda item: (item[0][0].value, item[0][1]))
        )


_BY_LOOKUP = frozenset({StayingKind.COMPACTED, StayingKind.DELAYED_INDEX, StayingKind.LOG})


def _merge(into: _Tally, more: _Tally) -> None:
    into.count += more.count
    into.greatest_id = max(into.greatest_id, more.greatest_id)
    into.samples = [*into.samples, *more.samples][:SAMPLES]


class Helpers(Protocol):
    """See `topic_readers.TopicReaders`."""

    def read(self, pieces: Iterable[list[str]], left_seconds: Callable[[], float]) -> Iterator[Inventory]:
        """What is found of topics, piece by piece in their order. Raises UnreadError."""
        ...


def read_references(reader: Reader, leave_out: Collection[str] = (), helpers: Helpers | None = None) -> Inventory:
    """Read all that names a ledger.

    Costs a request for each schema and namespace, two for each topic and one for each of its cursors. What goes away
    meanwhile is left out.

    Args:
        reader: of the brokers' ZooKeeper.
        leave_out: znodes that are not read, with all below them.
        helpers: read topics where there are very many; None: nobody helps.

    Raises:
        UnreadError: a znode cannot be read; nothing is known then.
    """
    return _Walk(reader, leave_out, helpers).read()


def read_topics(reader: Reader, topics: list[str], leave_out: Collection[str]) -> Inventory:
    """Read some topics alone, with their cursors. Raises as `read_references` does."""
    return _Walk(reader, leave_out).read_topics(topics)


class _Walk:
    def __init__(self, reader: Reader, leave_out: Collection[str], helpers: Helpers | None = None) -> None:
        self._reader = reader
        self._leave_out = frozenset(leave_out)
        self._helpers = helpers
        self._found = Inventory()

    def read(self) -> Inventory:
        self._read_schemas()
        self._read_all_topics()
        self._read_logs()
        return self._found

    def read_topics(self, topics: list[str]) -> Inventory:
        self._read_topics(topics)
        return self._found

    def _try(self, read: Callable[..., None], path: str, *node: Any) -> None:
        try:
            read(path, *node)
        except ValueError as error:
            self._found.problems.append(f"{path}: {error}")

    # --- schemas: whatever holds something below their root, as a tenant and a namespace do not

    def _read_schemas(self) -> None:
        for path, data in self._tree([SCHEMAS]):
            self._try(self._read_schema, path, data)

    def _read_schema(self, path: str, data: bytes) -> None:
        self._found.references += parse_locator(path, data)
        check_versions(data)

    # --- topics: the children of each namespace's `persistent`; and their cursors, which are their children

    def _read_all_topics(self) -> None:
        topics = self._below(self._domains())
        first = list(islice(topics, SHARED_FROM))
        left = chain(first, topics)
        if self._helpers is not None and len(first) == SHARED_FROM:
            for found in self._helpers.read(_pieces(left, _TOPICS_A_PIECE), self._reader.left_seconds):
                self._found.add(found)
        else:
            for some in _pieces(left, _TOPICS_AT_ONCE):
                self._read_topics(some)

    def _read_topics(self, some: list[str]) -> None:
        for path, answer in self._get(some):
            self._try(self._read_topic, path, _content(answer)[0])
        for path, answer in self._get(self._below(some)):
            if answer is not None:
                self._try(self._read_cursor, path, *answer)

    def _read_topic(self, path: str, data: bytes) -> None:
        self._found.add_staying(path, parse_topic(path, data))

    def _read_cursor(self, path: str, data: bytes, stat: Any) -> None:
        self._found.references.append(parse_cursor(path, data))
        self._found.add_staying(path, parse_cursor_extras(path, data))
        if stat.numChildren:
            raise ValueError("is a cursor, and nobody knows what lies below one")

    def _domains(self) -> list[str]:
        """`tenant/namespace/persistent`, and of Pulsar's first topic names `tenant/cluster/namespace/persistent`."""
        tenants = self._below(self._empty([MANAGED_LEDGERS]))
        # Below a tenant are namespaces, or clusters with namespaces below them.
        inner = list(self._below(self._empty(self._below(self._empty(tenants)))))
        old_namespaces = [path for path in inner if not _is_domain(path)]
        innermost = list(self._below(self._empty(old_namespaces)))
        self._found.problems += (
            f"{path}: is not where topics keep their cursors" for path in innermost if not _is_domain(path)
        )
        return [path for path in (*inner, *innermost) if _is_domain(path)]

    def _empty(self, paths: Iterable[str]) -> Iterator[str]:
        """Of nodes that only lead to topics, those that hold nothing: one that does is itself a managed ledger."""
        for path, answer in self._get(paths):
            if _content(answer)[0]:
                self._found.problems.append(f"{path}: is not where a topic keeps its managed ledger")
            elif answer is not None:
                yield path

    # --- the logs of packages and functions

    def _read_logs(self) -> None:
        for path, answer in self._get(list(self._below([LOGS]))):
            name, data = path.rpartition("/")[2], _content(answer)[0]
            is_log = name in _LOG_NAMESPACES or _LOG_MARK in data
            for below, value in self._tree([] if name in _OF_NO_LEDGERS else [path]):
                if is_log:
                    self._try(self._read_log_node, below, value)
                else:
                    self._found.problems.append(f"{below}: is not known to Headgate")

    def _read_log_node(self, path: str, data: bytes) -> None:
        segment = parse_segment(path, data)
        self._found.add_staying(path, () if segment is None else (segment,))

    # --- how

    def _tree(self, roots: list[str]) -> Iterator[tuple[str, bytes]]:
        """Every node at and below some that holds something."""
        ahead = roots
        while ahead:
            folders = []
            for path, answer in self._get(ahead):
                data, children = _content(answer)
                if data:
                    yield path, data
                if children:
                    folders.append(path)
            ahead = list(self._below(folders))

    def _get(self, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
        return self._reader.each(self._reader.client.get_async, paths)

    def _below(self, folders: Iterable[str]) -> Iterator[str]:
        """The children of nodes that are to be read; of one that is gone, none."""
        for folder, names in self._reader.each(self._reader.client.get_children_async, folders):
            for path in (f"{folder}/{name}" for name in names or ()):
                if path in self._leave_out:
                    self._found.left_out.append(path)
                else:
                    yield path


def _pieces(paths: Iterator[str], size: int) -> Iterator[list[str]]:
    while some := list(islice(paths, size)):
        yield some


def _is_domain(path: str) -> bool:
    return path.endswith(f"/{_PERSISTENT}")


def _content(answer: Any) -> tuple[bytes, int]:
    """What a node holds, and how many children it has."""
    return (b"", 0) if answer is None else (answer[0] or b"", answer[1].numChildren)
