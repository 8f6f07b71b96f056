"""One ZooKeeper session and one admin client for each watched cluster, shared by all components."""

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
    """Opens each connection on first use, and closes those of a cluster after its last user. Thread-safe."""

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
    def using(self, clusters: Collection[str]) -> Iterator[None]:
        """Use the connections of these clusters while the block runs; afterwards, close those without another user."""
        with self._lock:
            self._users.update(list(clusters))
        try:
            yield
        finally:
            for ended in self._release(clusters):
                ended.close()

    def zookeeper(self, cluster: str) -> ZooKeeperSession | None:
        """Return the cluster's ZooKeeper session; None if the settings name no ZooKeeper."""
        connection = self._settings.clusters[cluster].zookeeper
        if connection is None:
            return None
        return self._get_or_open(self._zookeepers, cluster, lambda: ZooKeeperSession(cluster, connection))

    def pulsar(self, cluster: str) -> AdminApi | None:
        """Return the cluster's admin client; None if the settings name no admin REST API."""
        connection = self._settings.clusters[cluster].pulsar
        if connection is None:
            return None
        return self._get_or_open(self._admins, cluster, lambda: AdminApi(connection))

    def _get_or_open(self, kept: dict[str, Connection], cluster: str, make: Callable[[], Connection]) -> Connection:
        with self._lock:
            if cluster not in kept:
                kept[cluster] = make()
            return kept[cluster]

    def _release(self, clusters: Collection[str]) -> list[_Closeable]:
        """Close the connections of clusters without users."""
        with self._lock:
            self._users.subtract(list(clusters))
            unused = [cluster for cluster in clusters if self._users[cluster] <= 0]
            kept: tuple[dict[str, ZooKeeperSession], dict[str, AdminApi]] = self._zookeepers, self._admins
            return [each.pop(cluster) for each in kept for cluster in unused if cluster in each]
