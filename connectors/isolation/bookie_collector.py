"""What all collectors of bookies share, however they reach a cluster: when they read, and what they publish."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from pydantic import ValidationError

from connectors.collection.outcome_log import OutcomeLog
from connectors.collection.poll_metrics import PollMetrics
from connectors.collection.read_errors import DETAIL_LENGTH, ReadErrors, first_problem
from connectors.collection.schedule import ticks
from policies.isolation.readings import BookieAffinity, BookieRacks, Bookies
from policies.observations import Outcome, Reading

DEBOUNCE_SECONDS = 0.1
"""However often something hints at a change, the bookies are read no more often than this."""

LeftSeconds = Callable[[], float]
"""How long a reading may still take; nothing when the collector is to stop."""


Source = TypeVar("Source")
"""What one reading, or two that share a time limit, are read from."""


class BookieCollector(ABC, Generic[Source]):
    """Reads one cluster over and over, at once when something hints at a change, and hands on what it read.

    Three readings, failures included: the bookies and their groups one after the other, and the namespaces' affinity in
    a thread of its own, because thousands of namespaces must delay no reading of the bookies.

    Args:
        cluster: its name in the settings.
        poll_seconds: from one reading of the bookies and their groups to the next.
        poll_limit_seconds: how long both may take.
        affinity_seconds: from one reading of the affinity to the next, and how long one may take.
        errors: what reading may raise.
        publish: takes each reading as soon as it is known, from several threads; must not block.
        metrics: shared by all collectors of a process.
    """

    def __init__(
        self,
        cluster: str,
        *,
        poll_seconds: float,
        poll_limit_seconds: float,
        affinity_seconds: float,
        errors: ReadErrors,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
    ) -> None:
        self.cluster = cluster
        self._poll_seconds = poll_seconds
        self._poll_limit_seconds = poll_limit_seconds
        self._affinity_seconds = affinity_seconds
        self._errors = errors
        self._publish = publish
        self._metrics = metrics
        self._outcome_log = OutcomeLog()
        self._polling = threading.Lock()
        self._polled_at = 0.0
        self._hints: SimpleQueue[bool] = SimpleQueue()
        self._stop = threading.Event()

    @abstractmethod
    def connect(self, left_seconds: LeftSeconds) -> Source:
        """What the next readings are read from."""

    @abstractmethod
    def read_bookies(self, source: Source) -> Bookies:
        """Which bookies are registered."""

    @abstractmethod
    def read_racks(self, source: Source) -> BookieRacks:
        """In which groups they are."""

    @abstractmethod
    def read_affinity(self, source: Source) -> BookieAffinity:
        """Which groups the namespaces may use."""

    @abstractmethod
    def close(self) -> None:
        """Close what the collector opened itself."""

    def hint(self, _event: object = None) -> None:
        """Something may have changed: what is said of it is not relied upon. From any thread; never blocks."""
        self._hints.put(item=True)

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set; nothing that goes wrong in a poll ends it."""
        self._stop = stop
        helpers = [
            threading.Thread(target=target, name=f"{what} {self.cluster}", daemon=True)
            for what, target in (("hints", self._follow_hints), ("affinity", self._poll_affinity))
        ]
        for helper in helpers:
            helper.start()
        try:
            for _ in ticks(self._poll_seconds, stop.wait):
                self._metrics.run_poll(self.cluster, self.poll_once)
        finally:
            stop.set()
            self._hints.put(item=False)
            for helper in helpers:
                helper.join()
            self.close()

    def poll_once(self) -> None:
        """Read the bookies and their groups, and publish both; each fails by itself."""
        with self._polling:
            self._polled_at = time.monotonic()
            self._read(self._poll_limit_seconds, ((Bookies, self.read_bookies), (BookieRacks, self.read_racks)))

    def poll_affinity_once(self) -> None:
        """Read the affinity of all namespaces, and publish it."""
        self._read(self._affinity_seconds, ((BookieAffinity, self.read_affinity),))

    def _read(self, limit_seconds: float, wanted: Sequence[tuple[type[Reading], Callable[[Source], Reading]]]) -> None:
        """Read several things within one time limit."""
        started = time.monotonic()
        try:
            source = self.connect(lambda: 0.0 if self._stop.is_set() else started + limit_seconds - time.monotonic())
        except self._errors.expected as error:
            for kind, _ in wanted:
                self._announce(self._failure(kind, error))
        else:
            for kind, read in wanted:
                self._announce(self._attempt(kind, read, source))
        self._metrics.seconds.labels(self.cluster).observe(time.monotonic() - started)

    def _attempt(self, kind: type[Reading], read: Callable[[Source], Reading], source: Source) -> Reading:
        try:
            return read(source)
        except self._errors.expected as error:
            return self._failure(kind, error)
        except ValidationError as error:
            detail = f"more or longer than a reading may hold: {first_problem(error)}"[:DETAIL_LENGTH]
            return kind(cluster=self.cluster, outcome=Outcome.ERROR, detail=detail)

    def _failure(self, kind: type[Reading], error: BaseException) -> Reading:
        return kind(cluster=self.cluster, **self._errors.failure(error))

    def _announce(self, reading: Reading) -> None:
        """Publish a reading, and log it when it ended in another way than the one before."""
        if self._stop.is_set():
            return  # it was cut short
        self._publish(reading)
        self._metrics.polls.labels(self.cluster, reading.outcome.value).inc()
        self._outcome_log.note(reading.event_type, reading, reading=reading.event_type)

    def _follow_hints(self) -> None:
        while self._hints.get():
            self._stop.wait(max(0.0, self._polled_at + DEBOUNCE_SECONDS - time.monotonic()))
            if self._stop.is_set() or not self._drain():
                return
            self._metrics.run_poll(self.cluster, self.poll_once)

    def _drain(self) -> bool:
        """Take the hints that the next poll covers; false when among them was the one to end."""
        try:
            while self._hints.get_nowait():
                pass
        except Empty:
            return True
        return False

    def _poll_affinity(self) -> None:
        for _ in ticks(self._affinity_seconds, self._stop.wait):
            self._metrics.run_poll(self.cluster, self.poll_affinity_once)
