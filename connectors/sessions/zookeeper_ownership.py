"""The collector of ownership in one cluster: broker registrations, the leader, and the bundles of topics."""

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import structlog
from pydantic import BaseModel, ConfigDict, Field

from connectors.collection.change_filter import ChangeFilter
from connectors.collection.collector import Collector
from connectors.collection.poll_metrics import PollMetrics
from connectors.pulsar.admin import AdminApi
from connectors.sessions.broker_ownership import BrokerOwnership
from connectors.sessions.owned_nodes import OwnedNodes, parse_node
from connectors.zookeeper.outcomes import READ_ERRORS
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.tree import Reader
from policies.observations import Outcome, Reading
from policies.sessions.readings import (
    BROKERS,
    LEADER,
    NAMESPACES,
    UNCHANGED_TREE_INTERVAL,
    NodeKind,
    OwnedNode,
    Ownership,
    Ownerships,
)
from policies.units import PositiveDuration, parse_duration
from policies.wire import MAX_RECORD_BYTES

SOURCE = "headgate/collector/zookeeper-ownership"
"""The CloudEvents `source` of this collector's readings."""

READING_SECONDS = 30.0
"""Time limit for one reading of all trees: enough for 100,000 nodes."""

RECHECK_SECONDS = 60.0
"""Interval after which all values are read again, in case a watch was lost."""

_BUNDLE = re.compile(r"0x[0-9a-f]{8}_0x[0-9a-f]{8}")
# Upper bounds of a node's bytes in a record without its path and owner, and of a record's bytes without its nodes.
_NODE_BYTES = 300
_ENVELOPE_BYTES = 4096

_log = structlog.get_logger(__name__)


class WatchedOwnership(BaseModel):
    """Settings of the ownership collector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("2s"), description="Interval between readings; unchanged nodes cost little."
    )
    republish: PositiveDuration = Field(
        default=UNCHANGED_TREE_INTERVAL,
        description="An unchanged tree is published again after this time. A member that has come back may wait this "
        "long for decisions about its bundles.",
    )


class OwnershipCollector(Collector):
    """Reads two trees and the leader periodically, and publishes each as a whole when it has changed or is due.

    Args:
        session: the ZooKeeper session; shared with others, so not closed here.
        admin: the admin REST API, for brokers whose load manager keeps no ownership in ZooKeeper; shared, too.
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
        session.listen(self._forget_watches)

    def _poll(self) -> None:
        """Read all trees and the leader, and publish those that have changed or are due."""
        started, began_at = time.monotonic(), self._clock()
        if self._clock() - self._rechecked_at >= RECHECK_SECONDS:
            self._rechecked_at = self._clock()
            self._forget_watches()
        try:
            reader = self._session.reader(lambda: self._left_seconds(started))
        except READ_ERRORS.expected as error:
            self._publish_due([self._tree_failure(tree, error) for tree in self._trees], began_at)
            self._publish_due([self._leader_failure(error)], began_at)
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
        except READ_ERRORS.expected as error:
            return [self._tree_failure(tree, error)]
        return list(split_reading(self._cluster, tree.root, nodes, tree.branches))

    def _read_bundles(self, registered: Sequence[Ownerships], reader: Reader) -> list[Ownerships]:
        """Read the owners of bundles, from the brokers if ZooKeeper does not show them."""
        nodes = [node for reading in registered for node in reading.nodes]
        if not any(node.has_extensible_load_manager for node in nodes):
            return self._read_tree(self._bundles, reader)
        if self._clock() < self._asked_at + self._settings.republish.total_seconds():
            return []
        self._asked_at = self._clock()
        reading = self._brokers.read(nodes)
        if reading.outcome is not Outcome.OK:
            return [reading]
        return list(split_reading(self._cluster, NAMESPACES, reading.nodes, _list_tenants(reading.nodes)))

    def _read_leader(self, reader: Reader) -> Ownership:
        try:
            answer = reader.read(reader.client.get_async, LEADER)
        except READ_ERRORS.expected as error:
            return self._leader_failure(error)
        if answer is None:
            return Ownership(cluster=self._cluster, path=LEADER, kind=NodeKind.LEADER, exists=False)
        node = parse_node(LEADER, NodeKind.LEADER, *answer)
        return Ownership(cluster=self._cluster, **node.model_dump())

    def _tree_failure(self, tree: OwnedNodes, error: BaseException) -> Ownerships:
        return Ownerships(cluster=self._cluster, tree=tree.root, **READ_ERRORS.failure(error))

    def _leader_failure(self, error: BaseException) -> Ownership:
        return Ownership(cluster=self._cluster, path=LEADER, kind=NodeKind.LEADER, **READ_ERRORS.failure(error))

    def _publish_due(self, readings: Sequence[Ownership | Ownerships], fetched_at: float) -> None:
        if self._stop.is_set():
            return  # the readings were interrupted
        for reading in readings:
            self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
            key = reading.tree if isinstance(reading, Ownerships) else reading.path
            self._changed.publish_if_due(key, reading, fetched_at=fetched_at)

    def _forget_watches(self) -> None:
        for tree in self._trees:
            tree.forget_watches()


def _list_tenants(nodes: Sequence[OwnedNode]) -> list[str]:
    return sorted({"/".join(node.path.split("/")[:3]) for node in nodes})


def split_reading(cluster: str, tree: str, nodes: Sequence[OwnedNode], branches: Sequence[str]) -> Iterator[Ownerships]:
    """Yield the reading of a tree, or of each of its branches if one record cannot hold it.

    Args:
        branches: the paths of the tree's children, with and without nodes.
    """
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
