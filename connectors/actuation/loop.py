"""Follows one kind of decisions, and has each cluster's carried out on a thread of its own."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

import structlog

from connectors.actuation.standing import D, Standing
from connectors.actuation.worker import Worker
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.wire import BadRecordError, DeadLetterReason, EventReader

_POLL_SECONDS = 0.2
_SLACK = timedelta(minutes=1)
"""Between our clock and Kafka's."""

Data = TypeVar("Data")
Done = tuple[str, str]
"""A decision that was carried out: (cluster, decision_id)."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Loop:
    """The loop's own Kafka, and its topics (with their prefix) that an actuator reads and writes."""

    connection: KafkaConnection
    decided: str
    audit: str


class Follower(Generic[D]):
    """Hands the decisions to those who carry them out.

    Args:
        name: of the actuator, in one word.
        loop: where the decisions are.
        decisions: reads them.
        workers: who carries them out, by cluster.
        done: which decision was carried out, by a record of the audit; null where to do one again does no harm.
    """

    def __init__(
        self,
        name: str,
        loop: Loop,
        decisions: EventReader[D],
        workers: Mapping[str, Worker[D]],
        done: Callable[[Record], Done | None] | None = None,
    ) -> None:
        self._name = name
        self._loop = loop
        self._decisions = decisions
        self._workers = workers
        self._done = done
        self._behind: str | None = f"the {name} actuator has not started yet"

    def caught_up(self) -> str | None:
        """Readiness: null once the decisions in force are known."""
        return self._behind

    def run(self, stop: threading.Event) -> None:
        """Have decisions carried out until `stop` is set.

        Raises:
            UserError: the connection's files cannot be used.
        """
        with self._tail(self._loop.decided, None) as tail:
            # Before any is carried out: a later one may have lifted it.
            self._catch_up(tail, stop, lambda record: self._hand_on(record, Standing.recall))
            if self._done is not None:
                self._recall_done(self._done, stop)
            if not stop.is_set():
                self._behind = None
                self._run(tail, stop)

    def _tail(self, topic: str, history: timedelta | None) -> Tail:
        return Tail(self._loop.connection, {topic: history}, f"headgate-{self._name}")

    def _catch_up(self, tail: Tail, stop: threading.Event, learn: Callable[[Record], None]) -> None:
        while not tail.caught_up and not stop.is_set():
            for record in tail.poll(_POLL_SECONDS):
                learn(record)
            self._behind = tail.problem or tail.backlog

    def _recall_done(self, done: Callable[[Record], Done | None], stop: threading.Event) -> None:
        """Learn what was carried out before this start: it may have come about again since, and rightly."""
        oldest = min((s for worker in self._workers.values() if (s := worker.standing.pending_since)), default=None)
        if oldest is None:
            return
        history = max(timedelta(0), datetime.now(UTC) - oldest) + _SLACK
        with self._tail(self._loop.audit, history) as tail:
            self._catch_up(tail, stop, lambda record: self._settle(done(record)))

    def _settle(self, done: Done | None) -> None:
        if done is not None and done[0] in self._workers:
            cluster, decision_id = done
            self._workers[cluster].standing.recall_done(decision_id)

    def _run(self, tail: Tail, stop: threading.Event) -> None:
        ended = threading.Event()
        with ThreadPoolExecutor(len(self._workers), thread_name_prefix=self._name) as pool:
            running = [pool.submit(worker.run, ended) for worker in self._workers.values()]
            try:
                while not stop.is_set():
                    for record in tail.poll(_POLL_SECONDS):
                        self._hand_on(record, Standing.arrived)
                    for future in running:
                        if future.done():
                            future.result()
            finally:
                ended.set()
                for worker in self._workers.values():
                    worker.standing.news.set()

    def _hand_on(self, record: Record, take: Callable[[Standing[D], D], None]) -> None:
        decision = parsed(self._decisions, record)
        if decision is not None and decision.cluster in self._workers:
            take(self._workers[decision.cluster].standing, decision)


def parsed(reader: EventReader[Data], record: Record) -> Data | None:
    """What a record says; null when it is not for this reader, or cannot be read (which is logged)."""
    if record.value is None:
        return None  # deleted by somebody: what is in force stays so until it expires
    try:
        return reader.read(record.value).data
    except BadRecordError as error:
        # The topics hold others' records too.
        if error.reason is not DeadLetterReason.UNKNOWN_TYPE:
            _log.warning("a record cannot be read", topic=record.topic, detail=str(error))
        return None
