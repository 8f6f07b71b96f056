"""Follows the isolation decisions, and has each cluster's quarantines carried out on a thread of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.records import Record
from connectors.kafka.tail import Tail
from connectors.quarantine.cluster import ClusterQuarantine, WatchedRacks
from connectors.quarantine.metrics import QuarantineMetrics
from connectors.quarantine.reports import Reports
from policies.isolation.decision import BookieQuarantine
from policies.wire import BadRecordError, DeadLetterReason, EventReader

_POLL_SECONDS = 0.2
_CLIENT_ID = "headgate-quarantine"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Loop:
    """The loop's own Kafka, and its topics (with their prefix) that the actuator reads and writes."""

    connection: KafkaConnection
    decided: str
    audit: str


class QuarantineActuator:
    """Carries out the decisions for some clusters. Two at a time do no harm: each write counts on what it has read.

    Args:
        loop: where the decisions are.
        clusters: whose.
        publish: hands a record (topic, key, value) over to the loop's Kafka; must not block.
        metrics: where it counts.
    """

    def __init__(
        self,
        loop: Loop,
        clusters: Sequence[WatchedRacks],
        publish: Callable[[str, str, bytes], None],
        metrics: QuarantineMetrics,
    ) -> None:
        self._loop = loop
        self._decisions = EventReader((BookieQuarantine,))
        self._behind: str | None = "the quarantine actuator has not started yet"
        self._workers = {w.cluster: self._worker(w, publish, metrics) for w in clusters}

    def _worker(
        self, watched: WatchedRacks, publish: Callable[[str, str, bytes], None], metrics: QuarantineMetrics
    ) -> ClusterQuarantine:
        def audit(key: str, value: bytes) -> None:
            publish(self._loop.audit, key, value)

        return ClusterQuarantine(watched, Reports(watched.cluster, audit, metrics), metrics)

    def caught_up(self) -> str | None:
        """Readiness: null once the decisions in force are known."""
        return self._behind

    def run(self, stop: threading.Event) -> None:
        """Carry decisions out until `stop` is set. Who is in quarantine then stays there.

        Raises:
            UserError: the connection's files cannot be used.
        """
        with Tail(self._loop.connection, {self._loop.decided: None}, _CLIENT_ID) as tail:
            self._catch_up(tail, stop)
            if not stop.is_set():
                self._behind = None
                self._run(tail, stop)

    def _catch_up(self, tail: Tail, stop: threading.Event) -> None:
        """Learn which decisions are in force before any is carried out: a later one may have lifted it."""
        while not tail.caught_up and not stop.is_set():
            for decision, worker in self._read(tail):
                worker.standing.recall(decision)
            self._behind = tail.problem or tail.backlog

    def _run(self, tail: Tail, stop: threading.Event) -> None:
        ended = threading.Event()
        with ThreadPoolExecutor(len(self._workers), thread_name_prefix="quarantine") as pool:
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

    def _read(self, tail: Tail) -> list[tuple[BookieQuarantine, ClusterQuarantine]]:
        """The next decisions, each with who is to carry it out."""
        decisions = [decision for record in tail.poll(_POLL_SECONDS) if (decision := self._decision(record))]
        return [(d, self._workers[d.cluster]) for d in decisions if d.cluster in self._workers]

    def _decision(self, record: Record) -> BookieQuarantine | None:
        if record.value is None:
            return None  # deleted by somebody: what is in force stays so until it expires
        try:
            return self._decisions.read(record.value).data
        except BadRecordError as error:
            # The topic holds the placements too.
            if error.reason is not DeadLetterReason.UNKNOWN_TYPE:
                _log.warning("a record cannot be read", topic=record.topic, detail=str(error))
            return None
