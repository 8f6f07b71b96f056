"""One ZooKeeper session and one admin client for each watched cluster, shared by all components."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

from connectors.pulsar.admin import AdminApi
from connectors.zookeeper.connection import ZooKeeperConnection
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
        self._zookeepers: dict[tuple[str, object], ZooKeeperSession] = {}
        self._admins: dict[tuple[str, object], AdminApi] = {}

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

    def zookeeper(self, cluster: str, connection: ZooKeeperConnection | None = None) -> ZooKeeperSession | None:
        """Return the session of another ZooKeeper of the cluster, or of its own; None if the settings name none."""
        used = connection or self._settings.clusters[cluster].zookeeper
        if used is None:
            return None
        return self._get_or_open(self._zookeepers, (cluster, used), lambda: ZooKeeperSession(cluster, used))

    def pulsar(self, cluster: str) -> AdminApi | None:
        """Return the cluster's admin client; None if the settings name no admin REST API."""
        connection = self._settings.clusters[cluster].pulsar
        if connection is None:
            return None
        return self._get_or_open(self._admins, (cluster, None), lambda: AdminApi(connection))

    def _get_or_open(
        self, kept: dict[tuple[str, object], Connection], key: tuple[str, object], make: Callable[[], Connection]
    ) -> Connection:
        with self._lock:
            if key not in kept:
                kept[key] = make()
            return kept[key]

    def _release(self, clusters: Collection[str]) -> list[_Closeable]:
        """Close the connections of clusters without users."""
        with self._lock:
            self._users.subtract(list(clusters))
            unused = {cluster for cluster in clusters if self._users[cluster] <= 0}
            kept: tuple[dict[tuple[str, object], Any], ...] = self._zookeepers, self._admins
            return [each.pop(key) for each in kept for key in tuple(each) if key[0] in unused]
