"""The base of both collectors of bookies: when they read, and how they publish."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from pydantic import ValidationError

from connectors.collection.collector import Collector
from connectors.collection.poll_metrics import PollMetrics
from connectors.collection.read_errors import DETAIL_LENGTH, ReadErrors, first_problem
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.observations import Outcome, Reading

DEBOUNCE_SECONDS = 0.1
"""Shortest time between two readings of the bookies, however many hints arrive."""

LeftSeconds = Callable[[], float]
"""Returns the time left for a reading; 0 once the collector must stop."""

Source = TypeVar("Source")
"""The client of one reading, or of two that share a time limit."""


class BookieCollector(Collector, Generic[Source]):
    """Reads one cluster periodically, and at once after a hint at a change; publishes each reading, failures included.

    The bookies and their groups are read one after the other. The namespaces' affinity is read in a thread of its own,
    because thousands of namespaces must not delay the readings of bookies.

    Args:
        poll_interval: interval between readings of the bookies and their groups.
        poll_limit_seconds: time limit of both together.
        affinity_seconds: interval between readings of the affinity, and time limit of each.
        publish: called with each reading from several threads; must not block.
    """

    def __init__(
        self,
        cluster: str,
        *,
        poll_interval: timedelta,
        poll_limit_seconds: float,
        affinity_seconds: float,
        errors: ReadErrors,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        super().__init__(cluster, poll_interval, publish, metrics)
        self._poll_limit_seconds = poll_limit_seconds
        self._affinity_seconds = affinity_seconds
        self._errors = errors
        self._polling = threading.Lock()
        self._polled_at = 0.0
        self._hinted = threading.Event()

    @abstractmethod
    def connect(self, left_seconds: LeftSeconds) -> Source:
        """Return the client of the next readings."""

    @abstractmethod
    def read_bookies(self, source: Source) -> Bookies:
        """Read the registered bookies."""

    @abstractmethod
    def read_racks(self, source: Source) -> BookieRacks:
        """Read the groups of the bookies."""

    @abstractmethod
    def read_affinity(self, source: Source) -> BookieAffinity:
        """Read the groups that the namespaces may use."""

    def hint(self, _event: object = None) -> None:
        """Request a reading, because something may have changed. From any thread; never blocks."""
        self._hinted.set()

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set, whatever goes wrong in a poll."""
        self._stop = stop
        helpers = [
            threading.Thread(target=target, name=f"{name} {self._cluster}", daemon=True)
            for name, target in (("hints", self._follow_hints), ("affinity", self._poll_affinity))
        ]
        for helper in helpers:
            helper.start()
        try:
            self._metrics.run_polls(self._cluster, self._poll_seconds, stop, self.poll_once)
        finally:
            stop.set()
            self._hinted.set()
            for helper in helpers:
                helper.join()
            self.close()

    def poll_once(self) -> None:
        """Read and publish the bookies and their groups. One can fail without the other."""
        with self._polling:
            self._polled_at = time.monotonic()
            super().poll_once()

    def _poll(self) -> None:
        self._read(self._poll_limit_seconds, ((Bookies, self.read_bookies), (BookieRacks, self.read_racks)))

    def poll_affinity_once(self) -> None:
        """Read and publish the affinity of all namespaces."""
        self._measure(lambda: self._read(self._affinity_seconds, ((BookieAffinity, self.read_affinity),)))

    def _read(self, limit_seconds: float, wanted: Sequence[tuple[type[Reading], Callable[[Source], Reading]]]) -> None:
        started = time.monotonic()
        try:
            source = self.connect(lambda: 0.0 if self._stop.is_set() else started + limit_seconds - time.monotonic())
        except self._errors.expected as error:
            for kind, _ in wanted:
                self._publish_reading(self._failure(kind, error), reading=kind.event_type)
        else:
            for kind, read in wanted:
                self._publish_reading(self._read_one(kind, read, source), reading=kind.event_type)

    def _read_one(self, kind: type[Reading], read: Callable[[Source], Reading], source: Source) -> Reading:
        try:
            return read(source)
        except self._errors.expected as error:
            return self._failure(kind, error)
        except ValidationError as error:
            detail = f"more or longer than a reading may hold: {first_problem(error)}"[:DETAIL_LENGTH]
            return kind(cluster=self._cluster, outcome=Outcome.ERROR, detail=detail)

    def _failure(self, kind: type[Reading], error: BaseException) -> Reading:
        return kind(cluster=self._cluster, **self._errors.failure(error))

    def _follow_hints(self) -> None:
        while self._hinted.wait():
            self._stop.wait(max(0.0, self._polled_at + DEBOUNCE_SECONDS - time.monotonic()))
            self._hinted.clear()  # the next poll covers the hints until now
            if self._stop.is_set():
                return
            self._metrics.run_poll(self._cluster, self.poll_once)

    def _poll_affinity(self) -> None:
        self._metrics.run_polls(self._cluster, self._affinity_seconds, self._stop, self.poll_affinity_once)
