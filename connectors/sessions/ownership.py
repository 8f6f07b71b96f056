"""The collector of ownership in one cluster: broker registrations, the leader, and the bundles of topics."""

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import structlog

from connectors.collection import ChangeFilter, Collector, PollMetrics
from connectors.http.rest import REST_READ_ERRORS
from connectors.pulsar.admin import CONCURRENCY, AdminApi
from connectors.pulsar.settings import is_member
from connectors.sessions.registration import WatchedOwnership
from connectors.zookeeper.json_znodes import digest, load_manager, owner_member
from connectors.zookeeper.server_admin import session_name
from connectors.zookeeper.session import ZOOKEEPER_READ_ERRORS, Reader, ZooKeeperSession
from policies.observations import Outcome, Reading
from policies.sessions.readings import (
    BROKERS,
    EXTENSIBLE_LOAD_MANAGER,
    LEADER,
    MAX_NAME,
    NAMESPACES,
    NodeKind,
    OwnedNode,
    Ownership,
    Ownerships,
)
from policies.wire import MAX_RECORD_BYTES

# Reads from the brokers which bundles they own, where ZooKeeper does not show it.
#
# With the extensible load manager (Pulsar 3 and 4), brokers register in ZooKeeper, but keep ownership in a topic.
# Each broker answers `GET /admin/v2/brokers/{cluster}/{broker}/ownedNamespaces` for itself; any other redirects to
# it. An answer belongs to the session of the broker's registration, which was read just before.

MAX_SILENCE_SECONDS = 60.0
"""Time after the last answer of any broker from which ownership as a whole is unknown.

All are asked through one broker. If that one pauses, all are silent, though they still own their bundles.
"""


class BrokerOwnership:
    """Asks all registered brokers of one cluster for their bundles. `cluster` is its name in Pulsar."""

    def __init__(self, cluster: str, admin: AdminApi | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._admin = admin
        self._clock = clock
        self._answered_at = -math.inf
        self._owned: dict[str, tuple[str, ...]] = {}
        """The last answer of each broker."""

    def read(self, registrations: Sequence[OwnedNode]) -> Ownerships:
        """Return the owners of all bundles.

        The bundles of a registered broker that does not answer exist, but their owner is unknown. If none has answered
        for `MAX_SILENCE_SECONDS`, the outcome is `unsupported`: this is no fault of ZooKeeper's.
        """
        if self._admin is None:
            return self._fail("set pulsar.admin_url, so that the brokers are asked which bundles they own")
        sessions = {name: node.session for node in registrations if is_member(name := node.path.rpartition("/")[2])}
        admin, failures = self._admin, []
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="owned bundles") as workers:
            asked = {name: workers.submit(admin.owned_bundles, self._cluster, name) for name in sorted(sessions)}
        self._owned = {name: self._owned.get(name, ()) for name in sessions}
        silent = set()
        for name, answer in asked.items():
            try:
                self._owned[name] = tuple(sorted(answer.result()))
            except REST_READ_ERRORS.expected as error:
                silent.add(name)
                failures.append(REST_READ_ERRORS.detail_of(error))
        if len(silent) < len(sessions):
            self._answered_at = self._clock()
        elif failures and self._clock() >= self._answered_at + MAX_SILENCE_SECONDS:
            return self._fail(f"no broker says which bundles it owns: {failures[0]}")
        nodes: dict[str, OwnedNode] = {}
        for name in sorted(sessions, key=lambda name: (name not in silent, name)):  # an answer overrides an old one
            for bundle in self._owned[name]:
                owner, session = (None, None) if name in silent else (name, sessions[name])
                path = f"{NAMESPACES}/{bundle}"
                nodes[path] = OwnedNode(path=path, kind=NodeKind.BUNDLE, owner_member=owner, session=session)
        return Ownerships(cluster=self._cluster, tree=NAMESPACES, nodes=tuple(nodes[path] for path in sorted(nodes)))

    def _fail(self, detail: str) -> Ownerships:
        detail = f"the brokers' load manager keeps no ownership in ZooKeeper: {detail}"
        return Ownerships(cluster=self._cluster, tree=NAMESPACES, outcome=Outcome.UNSUPPORTED, detail=detail)


# The ephemeral znodes of a tree, over many readings: each reading lists them, and reads only those that may differ.
#
# A listing shows the transaction of the last change among a znode's children, so a child that was deleted and created
# again under the same name between two readings is noticed. A listing does not show that a child's value was set: the
# next reading of all nodes finds it.


_Children = tuple[tuple[int, int], tuple[str, ...]]
"""The transaction of the last change of a node's children (pzxid) and the number of such changes (cversion); then the
paths of the leaves among them."""


class OwnedNodes:
    """Reads a tree. `is_leaf` tells by a node's name whether it is a leaf; other nodes are listed, too."""

    def __init__(self, root: str, kind: NodeKind, is_leaf: Callable[[str], bool]) -> None:
        self.root = root
        self._kind = kind
        self._is_leaf = is_leaf
        self._parents: dict[str, _Children] = {}
        self._nodes: dict[str, OwnedNode] = {}

    @property
    def branches(self) -> tuple[str, ...]:
        """The paths of the root's children that have children of their own, by the last reading."""
        parents = self._parents
        return tuple(sorted(path for path in parents if path != self.root and path.rpartition("/")[0] == self.root))

    def forget(self) -> None:
        """Read all nodes next time, not only those that were created since the last reading."""
        self._parents = {}

    def read(self, reader: Reader) -> tuple[OwnedNode, ...]:
        """Return all nodes in order of their paths; no nodes if the tree does not exist. Raises UnreadError."""
        parents = self._list(reader)
        leaves = {leaf for _, children in parents.values() for leaf in children}
        unchanged = {leaf for path, known in parents.items() if self._parents.get(path) == known for leaf in known[1]}
        good = unchanged & self._nodes.keys()
        self._nodes = {path: self._nodes[path] for path in good}
        for path, answer in reader.read_all(reader.client.get_async, sorted(leaves - good)):
            if answer is not None:
                self._nodes[path] = parse_node(path, self._kind, *answer)
        self._parents = parents
        return tuple(self._nodes[path] for path in sorted(self._nodes))

    def _list(self, reader: Reader) -> dict[str, _Children]:
        found: dict[str, _Children] = {}
        level = [self.root]
        while level:
            below: list[str] = []
            for path, answer in reader.read_all(partial(reader.client.get_children_async, include_data=True), level):
                if answer is None:
                    continue
                names, stat = answer
                leaves = (f"{path}/{name}" for name in names if self._is_leaf(name))
                below += [f"{path}/{name}" for name in names if not self._is_leaf(name)]
                found[path] = (stat.pzxid, stat.cversion), tuple(leaf for leaf in leaves if len(leaf) <= MAX_NAME)
            level = below
        return found


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


SOURCE = "headgate/collector/zookeeper-ownership"

READING_SECONDS = 30.0
"""Time limit for one reading of all trees: enough for 100,000 nodes."""

RECHECK_SECONDS = 60.0
"""Interval after which all values are read again, because a listing does not show that one was set."""

_BUNDLE = re.compile(r"0x[0-9a-f]{8}_0x[0-9a-f]{8}")
# Upper bounds of a node's bytes in a record without its path and owner, and of a record's bytes without its nodes.
_NODE_BYTES = 300
_ENVELOPE_BYTES = 4096

_log = structlog.get_logger(__name__)


class OwnershipCollector(Collector):
    """Reads two trees and the leader periodically, and publishes each as a whole when it has changed or is due.

    It asks `admin` for ownership if the brokers' load manager keeps none in ZooKeeper.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedOwnership,
        session: ZooKeeperSession,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        *,
        admin: AdminApi | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(cluster, settings.poll_interval, publish, metrics)
        self._settings = settings
        self._session = session
        self._clock = clock
        self._registrations = OwnedNodes(BROKERS, NodeKind.BROKER, lambda _: True)
        self._bundles = OwnedNodes(NAMESPACES, NodeKind.BUNDLE, lambda name: _BUNDLE.fullmatch(name) is not None)
        self._trees = (self._registrations, self._bundles)
        self._brokers = BrokerOwnership(cluster, admin, clock)
        self._asked_at = -math.inf
        self._changed = ChangeFilter(publish, settings.republish.total_seconds(), clock)
        self._rechecked_at = clock()

    def _poll(self) -> None:
        """Read both trees and the leader, and publish the readings that have changed or are due."""
        started, began_at = time.monotonic(), self._clock()
        if began_at - self._rechecked_at >= RECHECK_SECONDS:
            self._rechecked_at = began_at
            for tree in self._trees:
                tree.forget()
        try:
            reader = self._session.reader(lambda: self._left_seconds(started))
        except ZOOKEEPER_READ_ERRORS.expected as error:
            failures = [self._tree_failure(tree, error) for tree in self._trees]
            self._publish_due([*failures, self._leader_failure(error)], began_at)
        else:
            registered = self._read_tree(self._registrations, reader)
            self._publish_due(registered, began_at)
            began_at = self._clock()
            self._publish_due(self._read_bundles(registered, reader), began_at)
            began_at = self._clock()
            self._publish_due([self._read_leader(reader)], began_at)

    def _left_seconds(self, started: float) -> float:
        return 0.0 if self._stop.is_set() else started + READING_SECONDS - time.monotonic()

    def _read_tree(self, tree: OwnedNodes, reader: Reader) -> list[Ownerships]:
        try:
            nodes = tree.read(reader)
        except ZOOKEEPER_READ_ERRORS.expected as error:
            return [self._tree_failure(tree, error)]
        return list(split_reading(self._cluster, tree.root, nodes, tree.branches))

    def _read_bundles(self, registered: Sequence[Ownerships], reader: Reader) -> list[Ownerships]:
        """Read the owners of bundles, from the brokers if ZooKeeper does not show them."""
        nodes = [node for reading in registered for node in reading.nodes]
        if not any((node.load_manager or "").endswith(EXTENSIBLE_LOAD_MANAGER) for node in nodes):
            return self._read_tree(self._bundles, reader)
        if self._clock() < self._asked_at + self._settings.republish.total_seconds():
            return []
        self._asked_at = self._clock()
        reading = self._brokers.read(nodes)
        if reading.outcome is not Outcome.OK:
            return [reading]
        tenants = sorted({"/".join(node.path.split("/")[:3]) for node in reading.nodes})
        return list(split_reading(self._cluster, NAMESPACES, reading.nodes, tenants))

    def _read_leader(self, reader: Reader) -> Ownership:
        try:
            answer = reader.read(reader.client.get_async, LEADER)
        except ZOOKEEPER_READ_ERRORS.expected as error:
            return self._leader_failure(error)
        if answer is None:
            return Ownership(cluster=self._cluster, path=LEADER, kind=NodeKind.LEADER, exists=False)
        node = parse_node(LEADER, NodeKind.LEADER, *answer)
        return Ownership(cluster=self._cluster, **node.model_dump())

    def _tree_failure(self, tree: OwnedNodes, error: BaseException) -> Ownerships:
        return Ownerships(cluster=self._cluster, tree=tree.root, **ZOOKEEPER_READ_ERRORS.failure(error))

    def _leader_failure(self, error: BaseException) -> Ownership:
        return Ownership(
            cluster=self._cluster, path=LEADER, kind=NodeKind.LEADER, **ZOOKEEPER_READ_ERRORS.failure(error)
        )

    def _publish_due(self, readings: Sequence[Ownership | Ownerships], fetched_at: float) -> None:
        if self._stop.is_set():
            return  # the readings were interrupted
        for reading in readings:
            self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
            key = reading.tree if isinstance(reading, Ownerships) else reading.path
            self._changed.publish_if_due(key, reading, fetched_at=fetched_at)


def split_reading(cluster: str, tree: str, nodes: Sequence[OwnedNode], branches: Sequence[str]) -> Iterator[Ownerships]:
    """Yield the reading of a tree, or of each of its branches, with and without nodes, if a record cannot hold it."""
    if _fits(nodes):
        yield Ownerships(cluster=cluster, tree=tree, nodes=tuple(nodes))
        return
    of_branch: dict[str, list[OwnedNode]] = defaultdict(list)
    for node in nodes:
        of_branch[tree + "/" + node.path[len(tree) + 1 :].partition("/")[0]].append(node)
    for branch in branches:
        if _fits(of_branch[branch]):
            yield Ownerships(cluster=cluster, tree=branch, nodes=tuple(of_branch[branch]))
        else:
            detail = f"{len(of_branch[branch])} nodes are more than a record of {MAX_RECORD_BYTES} bytes can hold"
            yield Ownerships(cluster=cluster, tree=branch, outcome=Outcome.UNSUPPORTED, detail=detail)


def _fits(nodes: Sequence[OwnedNode]) -> bool:
    size = sum(_NODE_BYTES + len(node.path.encode()) + len((node.owner_member or "").encode()) for node in nodes)
    return size <= MAX_RECORD_BYTES - _ENVELOPE_BYTES
