"""The ledger copiers of one broker cluster: one for each move from a BookKeeper cluster to another."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from connectors.bookkeeper.copier import LedgerCopier
from connectors.bookkeeper.copy_clusters import LedgerCluster, Replication, metadata_service_uri
from connectors.bookkeeper.copy_journal import COPIES, CopyJournal, ZnodeCopyJournal
from connectors.bookkeeper.gateway import BookKeeperJvm
from connectors.switching.places import Places
from connectors.zookeeper.outcomes import UnreadError


@dataclass(frozen=True)
class CopySettings:
    """What holds for all copies."""

    concurrency: int
    timeout: timedelta
    replication: Replication | None
    password: bytes


@dataclass(frozen=True)
class Move:
    """A copier, and the journal of its copies."""

    copier: LedgerCopier
    journal: CopyJournal


class Copiers:
    """Makes each copier when it is first needed. Safe to use from many threads; close it.

    Args:
        places: where the clusters are.
        settings: of the copies.
        jvm: makes the JVM with BookKeeper's client, when there is something to copy.
    """

    def __init__(self, places: Places, settings: CopySettings, jvm: Callable[[], BookKeeperJvm]) -> None:
        self._places = places
        self._settings = settings
        self._jvm = jvm
        self._lock = threading.Lock()
        self._moves: dict[tuple[str, str], Move] = {}

    def between(self, source: str, target: str) -> Move:
        """The copier of a move.

        Raises:
            UnreadError: a cluster's identity cannot be read.
            NotConnectedError: its ZooKeeper cannot be reached.
            UserError: the settings name no such cluster, or what they name is not one, or both are the same.
        """
        with self._lock:
            if (source, target) not in self._moves:
                self._moves[(source, target)] = self._make(source, target)
            return self._moves[(source, target)]

    def close(self) -> None:
        """Close their clients."""
        with self._lock:
            moves, self._moves = self._moves, {}
        for move in moves.values():
            move.copier.close()

    def _make(self, source: str, target: str) -> Move:
        one, other = self._cluster(source), self._cluster(target)
        journal = ZnodeCopyJournal(self._places.brokers, COPIES, source=one.instance_id, target=other.instance_id)
        copier = LedgerCopier(
            self._jvm(), one, other, journal, replication=self._settings.replication,
            concurrency=self._settings.concurrency, timeout=self._settings.timeout,
        )  # fmt: skip
        return Move(copier, journal)

    def _cluster(self, name: str) -> LedgerCluster:
        place, seen = self._places.place(name), self._places.read(name)
        if seen.instance_id is None or seen.layout is None:
            raise UnreadError(f"{place.ledgers_root}/INSTANCEID", ValueError("its identity or layout is unknown"))
        uri = metadata_service_uri(self._places.connection(name), place.ledgers_root, seen.layout)
        return LedgerCluster(seen.instance_id, uri, password=self._settings.password)
