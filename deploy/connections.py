"""One ZooKeeper session and one admin client for each watched cluster, shared by all parts that need them."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol, Self, TypeVar

from connectors.pulsar.admin import AdminApi
from connectors.zookeeper.session import ZooKeeperSession
from deploy.settings import Settings


class _Closeable(Protocol):
    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=_Closeable)


class Connections:
    """Makes each when it is first asked for, and ends them all together: after the parts that use them.

    Args:
        settings: those of the clusters.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._zookeepers: dict[str, ZooKeeperSession] = {}
        self._admins: dict[str, AdminApi] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

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
        if cluster not in kept:
            kept[cluster] = make()
            self._stack.callback(kept[cluster].close)
        return kept[cluster]
