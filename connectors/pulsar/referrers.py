"""Finds all references to ledgers in the brokers' ZooKeeper: schemas, cursors, topics, packages and functions.

A znode that is unknown or cannot be parsed is a problem with its path, and an inventory with a problem is incomplete.
Only the settings can exclude a path, by its name; the inventory then lists it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

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
from connectors.zookeeper.session import Reader
from policies.switching.ledgers import ANY_CLUSTER, NO_LEDGER, Reference, StayingKind, StayingLedgers

LOGS = "/pulsar"
"""The parent of the namespaces of DistributedLogs."""
_LOG_NAMESPACES = frozenset({"packages", "functions"})
_OF_NO_LEDGERS = frozenset({"migration-coordinator"})
"""Other nodes there: the brokers' progress of a migration to another metadata store."""
_LOG_MARK = b"BKDL"
"""A namespace of logs contains this mark, whatever its name."""

_PERSISTENT = "persistent"
_TOPICS_AT_ONCE = 10_000
SAMPLES = 3
"""Number of sample paths."""

Holders = Callable[[Collection[int]], Mapping[str, Collection[int]]]
"""Returns which of the given ledgers each cluster has."""


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
    """The references that were found."""

    references: list[Reference] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Znodes that are unknown or cannot be parsed; with any of them the inventory is incomplete."""
    left_out: list[str] = field(default_factory=list)
    """Paths that the settings exclude."""
    placed: dict[tuple[StayingKind, str], _Tally] = field(default_factory=dict)
    """Ledgers that a switch does not move, by kind and cluster."""
    unplaced: list[tuple[str, StayingReference]] = field(default_factory=list)
    """Paths and ledgers that a switch does not move, and of which no znode names the cluster."""

    def staying(self, holders: Holders) -> tuple[StayingLedgers, ...]:
        """Return the ledgers that a switch does not move, counted by kind and cluster.

        `holders` finds the clusters of the unplaced ones; a ledger that no cluster has does not count.
        """
        tallies, known = deepcopy(self.placed), {each.ledger_id for _, each in self.unplaced} - {NO_LEDGER}
        having = holders(known) if known else {}
        for path, each in self.unplaced:
            clusters = [name for name, ids in having.items() if each.ledger_id in ids]
            for cluster in [ANY_CLUSTER] if each.ledger_id == NO_LEDGER else clusters:
                tallies.setdefault((each.kind, cluster), _Tally()).add(path, each.ledger_id)
        return tuple(
            StayingLedgers(kind, cluster, tally.count, tally.greatest_id, tuple(tally.samples))
            for (kind, cluster), tally in sorted(tallies.items(), key=lambda item: (item[0][0].value, item[0][1]))
        )


def read_references(reader: Reader, bootstrap: str, leave_out: Collection[str] = ()) -> Inventory:
    """Read all references to ledgers.

    It costs one request for each schema and namespace, two for each topic and one for each cursor. Nodes that disappear
    meanwhile are omitted. Ledgers of topics without an attribution belong to the cluster `bootstrap`. Znodes in
    `leave_out` are skipped with all below them.

    Raises UnreadError if a znode cannot be read, so there is no inventory.
    """
    return _Walk(reader, bootstrap, leave_out).read()


class _Walk:
    def __init__(self, reader: Reader, bootstrap: str, leave_out: Collection[str]) -> None:
        self._reader = reader
        self._bootstrap = bootstrap
        self._leave_out = frozenset(leave_out)
        self._found = Inventory()

    def read(self) -> Inventory:
        # Every node with a value below their root is a schema; tenants and namespaces have no value.
        for path, data in self._tree([SCHEMAS]):
            with self._noting_problem(path):
                self._found.references += parse_locator(path, data)
                check_versions(data)
        topics = self._children(self._domains())
        while some := list(islice(topics, _TOPICS_AT_ONCE)):
            self._read_topics(some)
        self._read_logs()
        return self._found

    @contextmanager
    def _noting_problem(self, path: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            self._found.problems.append(f"{path}: {error}")

    # --- topics: the children of each namespace's `persistent`; cursors are the children of their topic

    def _read_topics(self, some: list[str]) -> None:
        for path, answer in self._get(some):
            with self._noting_problem(path):
                for each in parse_topic(path, _content(answer)[0]):
                    place = (each.kind, each.attribution or self._bootstrap)
                    self._found.placed.setdefault(place, _Tally()).add(path, each.ledger_id)
        for path, answer in self._get(self._children(some)):
            if answer is None:
                continue
            data, stat = answer
            with self._noting_problem(path):
                self._found.references.append(parse_cursor(path, data))
                self._found.unplaced += ((path, each) for each in parse_cursor_extras(path, data))
                if stat.numChildren:
                    raise ValueError("is a cursor, and its children are unknown to Headgate")

    def _domains(self) -> list[str]:
        """Return `tenant/namespace/persistent`, and with old names `tenant/cluster/namespace/persistent`."""
        tenants = self._children(self._empty([MANAGED_LEDGERS]))
        # A tenant has namespaces, or clusters with namespaces.
        inner = list(self._children(self._empty(self._children(self._empty(tenants)))))
        old_namespaces = [path for path in inner if not _is_domain(path)]
        innermost = list(self._children(self._empty(old_namespaces)))
        self._found.problems += (
            f"{path}: is not where topics keep their cursors" for path in innermost if not _is_domain(path)
        )
        return [path for path in (*inner, *innermost) if _is_domain(path)]

    def _empty(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the nodes without a value; a node above topics with a value would be a managed ledger itself."""
        for path, answer in self._get(paths):
            if _content(answer)[0]:
                self._found.problems.append(f"{path}: is not where a topic keeps its managed ledger")
            elif answer is not None:
                yield path

    # --- the logs of packages and functions

    def _read_logs(self) -> None:
        for path, answer in self._get(list(self._children([LOGS]))):
            name, data = path.rpartition("/")[2], _content(answer)[0]
            is_log = name in _LOG_NAMESPACES or _LOG_MARK in data
            for below, value in self._tree([] if name in _OF_NO_LEDGERS else [path]):
                with self._noting_problem(below):
                    if not is_log:
                        raise ValueError("is not known to Headgate")
                    if (segment := parse_segment(below, value)) is not None:
                        self._found.unplaced.append((below, segment))

    # --- nodes

    def _tree(self, roots: list[str]) -> Iterator[tuple[str, bytes]]:
        """Yield every node with a value at and below the roots."""
        ahead = roots
        while ahead:
            folders = []
            for path, answer in self._get(ahead):
                data, children = _content(answer)
                if data:
                    yield path, data
                if children:
                    folders.append(path)
            ahead = list(self._children(folders))

    def _get(self, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
        return self._reader.read_all(self._reader.client.get_async, paths)

    def _children(self, folders: Iterable[str]) -> Iterator[str]:
        """Yield the children of nodes, without excluded ones."""
        for folder, names in self._reader.read_all(self._reader.client.get_children_async, folders):
            for path in (f"{folder}/{name}" for name in names or ()):
                if path in self._leave_out:
                    self._found.left_out.append(path)
                else:
                    yield path


def _is_domain(path: str) -> bool:
    return path.endswith(f"/{_PERSISTENT}")


def _content(answer: Any) -> tuple[bytes, int]:
    """Return a node's value and its number of children."""
    return (b"", 0) if answer is None else (answer[0] or b"", answer[1].numChildren)
