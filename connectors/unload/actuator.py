"""Follows the sessions decisions, and has those about each cluster's bundles carried out on a thread of its own.

What a broker itself is to do (`shutdown`, `restart`) is for the platform it runs on: nothing here reads it.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.records import Record
from connectors.kafka.tail import Tail
from connectors.unload.cluster import ClusterUnloads, WatchedUnloads
from connectors.unload.metrics import UnloadMetrics
from connectors.unload.reports import Reports
from policies.sessions.decision import OwnershipDecision
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome
from policies.wire import BadRecordError, DeadLetterReason, EventReader

_POLL_SECONDS = 0.2
_CLIENT_ID = "headgate-unload"
_SLACK = timedelta(minutes=1)
"""Between our clock and Kafka's."""

Data = TypeVar("Data")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Loop:
    """The loop's own Kafka, and its topics (with their prefix) that the actuator reads and writes."""

    connection: KafkaConnection
    decided: str
    audit: str


class UnloadActuator:
    """Carries out the decisions about the bundles of some clusters.

    Args:
        loop: where the decisions are.
        clusters: whose.
        publish: hands a record (topic, key, value) over to the loop's Kafka; must not block.
        metrics: where it counts.
    """

    def __init__(
        self,
        loop: Loop,
        clusters: Sequence[WatchedUnloads],
        publish: Callable[[str, str, bytes], None],
        metrics: UnloadMetrics,
    ) -> None:
        self._loop = loop
        self._decisions = EventReader((OwnershipDecision,))
        self._reports = EventReader((BundleUnloaded, BundleReOwned))
        self._behind: str | None = "the unload actuator has not started yet"
        self._workers = {w.cluster: self._worker(w, publish, metrics) for w in clusters}

    def _worker(
        self, watched: WatchedUnloads, publish: Callable[[str, str, bytes], None], metrics: UnloadMetrics
    ) -> ClusterUnloads:
        def audit(key: str, value: bytes) -> None:
            publish(self._loop.audit, key, value)

        return ClusterUnloads(watched, Reports(watched.cluster, audit, metrics), metrics)

    def caught_up(self) -> str | None:
        """Readiness: null once the decisions in force are known."""
        return self._behind

    def run(self, stop: threading.Event) -> None:
        """Carry decisions out until `stop` is set.

        Raises:
            UserError: the connection's files cannot be used.
        """
        with Tail(self._loop.connection, {self._loop.decided: None}, _CLIENT_ID) as tail:
            self._catch_up(tail, stop)
            self._recall_done(stop)
            if not stop.is_set():
                self._behind = None
                self._run(tail, stop)

    def _catch_up(self, tail: Tail, stop: threading.Event) -> None:
        """Learn which decisions are in force before any is carried out: a later one may have lifted it."""
        while not tail.caught_up and not stop.is_set():
            for decision, worker in self._read(tail):
                worker.standing.recall(decision)
            self._behind = tail.problem or tail.backlog

    def _recall_done(self, stop: threading.Event) -> None:
        """Learn what was carried out before this start: the broker may serve the bundle again since, and rightly."""
        oldest = min((s for worker in self._workers.values() if (s := worker.standing.pending_since)), default=None)
        if oldest is None:
            return
        history = max(timedelta(0), datetime.now(UTC) - oldest) + _SLACK
        with Tail(self._loop.connection, {self._loop.audit: history}, _CLIENT_ID) as tail:
            while not tail.caught_up and not stop.is_set():
                for record in tail.poll(_POLL_SECONDS):
                    self._settle_done(record)
                self._behind = tail.problem or tail.backlog

    def _settle_done(self, record: Record) -> None:
        said = self._parsed(self._reports, record)
        if said is not None and said.outcome is UnloadOutcome.DONE and said.cluster in self._workers:
            self._workers[said.cluster].standing.recall_done(said.decision_id)

    def _run(self, tail: Tail, stop: threading.Event) -> None:
        ended = threading.Event()
        with ThreadPoolExecutor(len(self._workers), thread_name_prefix="unload") as pool:
            running = [pool.submit(worker.run, ended) for worker in self._workers.values()]
            try:
                while not stop.is_set():
                    for decision, worker in self._read(tail):
                        worker.standing.arrived(decision)
                    for future in running:
                        if future.done():
                            future.result()
            finally:
                ended.set()
                for worker in self._workers.values():
                    worker.standing.news.set()

    def _read(self, tail: Tail) -> list[tuple[OwnershipDecision, ClusterUnloads]]:
        """The next decisions, each with who is to carry it out."""
        records = tail.poll(_POLL_SECONDS)
        decisions = [decision for record in records if (decision := self._parsed(self._decisions, record))]
        return [(d, self._workers[d.cluster]) for d in decisions if d.cluster in self._workers]

    @staticmethod
    def _parsed(reader: EventReader[Data], record: Record) -> Data | None:
        if record.value is None:
            return None  # deleted by somebody: what is in force stays so until it expires
        try:
            return reader.read(record.value).data
        except BadRecordError as error:
            # The topics hold others' records too.
            if error.reason is not DeadLetterReason.UNKNOWN_TYPE:
                _log.warning("a record cannot be read", topic=record.topic, detail=str(error))
            return None
