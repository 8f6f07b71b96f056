"""One ZooKeeper session and one admin client for each watched cluster, shared by all parts that need them."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol, Self, TypeVar

from connectors.pulsar.admin import AdminApi
from connectors.zookeeper.session import ZooKeeperSession
from deploy.settings.application import Settings


class _Closeable(Protocol):
    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=_Closeable)


class Connections:
    """Makes each when it is first asked for, and ends those of a cluster when nobody uses it any more. Thread-safe.

    Args:
        settings: those of the clusters.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._users: Counter[str] = Counter()
        self._zookeepers: dict[str, ZooKeeperSession] = {}
        self._admins: dict[str, AdminApi] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        left: tuple[_Closeable, ...] = (*self._zookeepers.values(), *self._admins.values())
        for each in left:
            each.close()

    @contextmanager
    def used(self, clusters: Collection[str]) -> Iterator[None]:
        """Connections to these are used while the block runs; then those that nobody else uses are ended."""
        with self._lock:
            self._users.update(list(clusters))
        try:
            yield
        finally:
            for ended in self._ended(clusters):
                ended.close()

    def zookeeper(self, cluster: str) -> ZooKeeperSession | None:
        """The cluster's session; None where its ZooKeeper is not named."""
        connection = self._settings.clusters[cluster].zookeeper
        if connection is None:
            return None
        return self._kept(self._zookeepers, cluster, lambda: ZooKeeperSession(cluster, connection))

    def pulsar(self, cluster: str) -> AdminApi | None:
        """The cluster's admin client; None where its REST is not named."""
        connection = self._settings.clusters[cluster].pulsar
        if connection is None:
            return None
        return self._kept(self._admins, cluster, lambda: AdminApi(connection))

    def _kept(self, kept: dict[str, Connection], cluster: str, make: Callable[[], Connection]) -> Connection:
        with self._lock:
            if cluster not in kept:
                kept[cluster] = make()
            return kept[cluster]

    def _ended(self, clusters: Collection[str]) -> list[_Closeable]:
        """Those that nobody uses any more."""
        with self._lock:
            self._users.subtract(list(clusters))
            unused = [cluster for cluster in clusters if self._users[cluster] <= 0]
            kept: tuple[dict[str, ZooKeeperSession], dict[str, AdminApi]] = self._zookeepers, self._admins
            return [each.pop(cluster) for each in kept for cluster in unused if cluster in each]
