"""The ephemeral znodes of a tree, over many readings: each reading lists them, and reads only those that may differ.

A listing shows the transaction of the last change among a znode's children, so a child that was deleted and created
again under the same name between two readings is noticed. A listing does not show that a child's value was set. Watches
hint at that; after a lost watch, the next reading of all nodes finds it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from connectors.zookeeper.owners import digest, load_manager, owner_member
from connectors.zookeeper.server_status import session_name
from connectors.zookeeper.tree import Reader
from policies.sessions.readings import MAX_NAME, NodeKind, OwnedNode


@dataclass(slots=True)
class _Parent:
    last_change: tuple[int, int]
    """The transaction of the last change of its children (pzxid), and the number of such changes (cversion)."""
    children: tuple[str, ...]


@dataclass(slots=True)
class _Listing:
    parents: dict[str, _Parent] = field(default_factory=dict)
    leaves: set[str] = field(default_factory=set)


class OwnedNodes:
    """Reads a tree. For one thread, but `forget_watches` may be called from any.

    Args:
        root: the tree's path, below the chroot.
        is_leaf: whether a node is a leaf, by its name; other nodes are listed, too.
    """

    def __init__(self, root: str, kind: NodeKind, is_leaf: Callable[[str], bool]) -> None:
        self.root = root
        self._kind = kind
        self._is_leaf = is_leaf
        self._parents: dict[str, _Parent] = {}
        self._nodes: dict[str, OwnedNode] = {}
        self._lock = threading.Lock()
        self._hinted: set[str] = set()
        self._read_all = False

    @property
    def branches(self) -> tuple[str, ...]:
        """The paths of the root's children that have children of their own, by the last reading."""
        parents = self._parents
        return tuple(sorted(path for path in parents if path != self.root and path.rpartition("/")[0] == self.root))

    def forget_watches(self) -> None:
        """Read all nodes next time, because watches may have been lost."""
        with self._lock:
            self._read_all = True

    def read(self, reader: Reader) -> tuple[OwnedNode, ...]:
        """Return all nodes in order of their paths; no nodes if the tree does not exist.

        Raises:
            UnreadError: some node cannot be read.
        """
        with self._lock:
            hinted, self._hinted = self._hinted, set()
            read_all, self._read_all = self._read_all, False
        try:
            found = self._list(reader)
            stale = self._find_stale(found, hinted, read_all=read_all)
            good = found.leaves - stale
            self._nodes = {path: node for path, node in self._nodes.items() if path in good}
            self._read_nodes(reader, sorted(stale))
        except BaseException:
            with self._lock:
                self._hinted |= hinted
                self._read_all |= read_all
            raise
        self._parents = found.parents
        return tuple(self._nodes[path] for path in sorted(self._nodes))

    def _list(self, reader: Reader) -> _Listing:
        def ask(path: str) -> Any:
            return reader.client.get_children_async(path, include_data=True)

        found, level = _Listing(), [self.root]
        while level:
            below: list[str] = []
            for path, answer in reader.read_all(ask, level):
                if answer is None:
                    continue
                names, stat = answer
                leaves = [f"{path}/{name}" for name in names if self._is_leaf(name)]
                below += [f"{path}/{name}" for name in names if not self._is_leaf(name)]
                found.parents[path] = _Parent((stat.pzxid, stat.cversion), tuple(leaves))
                found.leaves.update(leaf for leaf in leaves if len(leaf) <= MAX_NAME)
            level = below
        return found

    def _find_stale(self, found: _Listing, hinted: set[str], *, read_all: bool) -> set[str]:
        if read_all:
            return set(found.leaves)
        stale = (found.leaves & hinted) | {path for path in found.leaves if path not in self._nodes}
        for path, parent in found.parents.items():
            before = self._parents.get(path)
            if before is None or before.last_change != parent.last_change:
                stale.update(found.leaves.intersection(parent.children))
        return stale

    def _read_nodes(self, reader: Reader, paths: list[str]) -> None:
        def ask(path: str) -> Any:
            return reader.client.get_async(path, watch=self._hint)

        for path, answer in reader.read_all(ask, paths):
            if answer is not None:
                self._nodes[path] = parse_node(path, self._kind, *answer)

    def _hint(self, event: Any) -> None:
        with self._lock:
            if event.path is None:
                self._read_all = True
            else:
                self._hinted.add(event.path)


def parse_node(path: str, kind: NodeKind, value: bytes, stat: Any) -> OwnedNode:
    """Return a node from its value and stat. A broker's registration has the broker's name in its path."""
    is_ephemeral = stat.ephemeralOwner != 0
    return OwnedNode(
        path=path,
        kind=kind,
        ephemeral=is_ephemeral,
        owner_member=path.rpartition("/")[2] if kind is NodeKind.BROKER else owner_member(value),
        value_digest=digest(value),
        session=session_name(stat.ephemeralOwner) if is_ephemeral else None,
        czxid=stat.czxid,
        version=stat.version,
        load_manager=load_manager(value) if kind is NodeKind.BROKER else None,
    )
