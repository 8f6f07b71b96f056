"""The collector for one watched BookKeeper cluster: its bookies, their groups, and who is promised which of them."""

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field

from connectors.outcome_log import OutcomeLog
from connectors.poll_metrics import PollMetrics
from connectors.schedule import ticks
from connectors.zookeeper.affinity import AffinityTree
from connectors.zookeeper.connection import ZnodePath
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of, outcome_of
from connectors.zookeeper.registrations import read_bookies, read_racks
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.tree import Reader
from policies.errors import UserError
from policies.isolation.readings import BookieAffinity, BookieRacks, Bookies
from policies.observations import Reading
from policies.units import PositiveDuration, parse_duration

SOURCE = "headgate/collector/zookeeper"
"""The CloudEvents `source` of what this collector reads."""

DEBOUNCE_SECONDS = 0.1
"""However many watches fire, the tree is read no more often than this."""

_OBSERVED = (UnreadError, NotConnectedError, UserError)

_log = structlog.get_logger(__name__)

Kind = TypeVar("Kind", bound=Reading)


class WatchedBookies(BaseModel):
    """What is watched in a cluster's metadata, and how often."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("5s"),
        description="From one reading of the bookies and their groups to the next; changes are mostly seen at once.",
    )
    affinity_interval: PositiveDuration = Field(
        default=parse_duration("30s"),
        description="From one reading of the namespaces' affinity to the next; with thousands of namespaces not short.",
    )
    ledgers_root: ZnodePath = Field(
        default="/ledgers", description="Where BookKeeper keeps its metadata, below the chroot."
    )
    bookies_path: ZnodePath = Field(
        default="/bookies", description="The node with the groups of bookies, below the chroot."
    )


class BookieCollector:
    """Reads one cluster over and over, at once when a watch fires, and hands on what it read, failures included.

    Args:
        cluster: its name in the settings.
        settings: what is watched.
        session: how to reach it; shared with others, so not closed here.
        publish: takes each reading as soon as it is known, from several threads; must not block.
        metrics: shared by all collectors of a process.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedBookies,
        session: ZooKeeperSession,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._session = session
        self._publish = publish
        self._metrics = metrics
        self._affinity = AffinityTree()
        self._outcome_log = OutcomeLog()
        self._polling = threading.Lock()
        self._polled_at = 0.0
        self._hints: SimpleQueue[bool] = SimpleQueue()
        self._stop = threading.Event()
        session.listen(self._hint)

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set; nothing that goes wrong in a poll ends it."""
        self._stop = stop
        helpers = [
            threading.Thread(target=target, name=f"{what} {self._cluster}", daemon=True)
            for what, target in (("hints", self._follow_hints), ("affinity", self._poll_affinity))
        ]
        for helper in helpers:
            helper.start()
        try:
            for _ in ticks(self._settings.poll_interval.total_seconds(), stop.wait):
                self._metrics.survives(self._cluster, self.poll_once)
        finally:
            stop.set()
            self._hints.put(item=False)
            for helper in helpers:
                helper.join()

    def poll_once(self) -> None:
        """Read the bookies and their groups, and publish both."""
        with self._polling:
            self._polled_at = time.monotonic()
            settings, cluster = self._settings, self._cluster
            self._read_all(
                min(self._session.connection.timeout_seconds, settings.poll_interval.total_seconds()),
                (
                    (Bookies, lambda reader: read_bookies(reader, cluster, settings.ledgers_root, self._hint)),
                    (BookieRacks, lambda reader: read_racks(reader, cluster, settings.bookies_path, self._hint)),
                ),
            )

    def poll_affinity_once(self) -> None:
        """Read the affinity of all namespaces, and publish it."""
        limit_seconds = self._settings.affinity_interval.total_seconds()
        self._read_all(limit_seconds, ((BookieAffinity, lambda reader: self._affinity.read(reader, self._cluster)),))

    def _read_all(
        self, limit_seconds: float, wanted: Sequence[tuple[type[Reading], Callable[[Reader], Reading]]]
    ) -> None:
        """Read several things within one time limit; each fails by itself."""
        started = time.monotonic()

        def left_seconds() -> float:
            return 0.0 if self._stop.is_set() else started + limit_seconds - time.monotonic()

        try:
            reader = self._session.reader(left_seconds)
        except _OBSERVED as error:
            for kind, _ in wanted:
                self._announce(self._failure(kind, error))
        else:
            for kind, read in wanted:
                self._announce(self._attempt(kind, read, reader))
        self._metrics.seconds.labels(self._cluster).observe(time.monotonic() - started)

    def _attempt(self, kind: type[Reading], read: Callable[[Reader], Reading], reader: Reader) -> Reading:
        try:
            return read(reader)
        except _OBSERVED as error:
            return self._failure(kind, error)

    def _failure(self, kind: type[Kind], error: BaseException) -> Kind:
        return kind(cluster=self._cluster, outcome=outcome_of(error), detail=detail_of(error))

    def _announce(self, reading: Reading) -> None:
        """Publish a reading, and log it when it ended in another way than the one before."""
        if self._stop.is_set():
            return  # it was cut short
        self._publish(reading)
        self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
        self._outcome_log.note(reading.event_type, reading, reading=reading.event_type)

    def _hint(self, _event: Any = None) -> None:
        """Something may have changed: what kazoo says of it is not relied upon."""
        self._hints.put(item=True)

    def _follow_hints(self) -> None:
        while self._hints.get():
            self._stop.wait(max(0.0, self._polled_at + DEBOUNCE_SECONDS - time.monotonic()))
            if self._stop.is_set() or not self._drain():
                return
            self._metrics.survives(self._cluster, self.poll_once)

    def _drain(self) -> bool:
        """Take the hints that the next poll covers; false when among them was the one to end."""
        try:
            while self._hints.get_nowait():
                pass
        except Empty:
            return True
        return False

    def _poll_affinity(self) -> None:
        for _ in ticks(self._settings.affinity_interval.total_seconds(), self._stop.wait):
            self._metrics.survives(self._cluster, self.poll_affinity_once)
