"""Follows the throttle decisions, and has each cluster's carried out on a thread of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from connectors.quotas.cluster import ClusterActuator, WatchedQuotas
from connectors.quotas.journal import Journal
from connectors.quotas.metrics import QuotaMetrics
from connectors.quotas.reports import Reports
from policies.errors import UserError
from policies.throttle.decision import ThrottleFactor
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_orders import order_of
from policies.wire import BadRecordError, Event, EventReader

_POLL_SECONDS = 0.2
_CATCH_UP_SECONDS = 30.0
_CLIENT_ID = "headgate-actuator"

Data = TypeVar("Data")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Loop:
    """The loop's own Kafka, and its topics (with their prefix) that the actuator reads and writes."""

    connection: KafkaConnection
    decided: str
    applied: str
    audit: str


class QuotaActuator:
    """Carries out the decisions for some clusters. One at a time should do so for a cluster.

    Args:
        loop: where the decisions are.
        clusters: whose.
        publish: hands a record (topic, key, value) over to the loop's Kafka; must not block.
        metrics: where it counts.
    """

    def __init__(
        self,
        loop: Loop,
        clusters: Sequence[WatchedQuotas],
        publish: Callable[[str, str, bytes], None],
        metrics: QuotaMetrics,
    ) -> None:
        self._loop = loop
        self._decisions = EventReader((ThrottleFactor,))
        self._notes = EventReader((AppliedQuota,))
        self._behind: str | None = "the actuator has not started yet"
        self._elsewhere: dict[str, set[str]] = {}
        self._workers = {w.cluster: self._worker(w, publish, metrics) for w in clusters}

    def _worker(
        self, watched: WatchedQuotas, publish: Callable[[str, str, bytes], None], metrics: QuotaMetrics
    ) -> ClusterActuator:
        def audit(key: str, value: bytes) -> None:
            publish(self._loop.audit, key, value)

        journal = Journal(self._loop.connection, self._loop.applied)
        return ClusterActuator(watched, journal, Reports(watched.cluster, audit, metrics), metrics)

    def caught_up(self) -> str | None:
        """Readiness: null once the decisions in force are known, and what was set before this start."""
        return self._behind

    def run(self, stop: threading.Event) -> None:
        """Carry decisions out until `stop` is set. Quotas then stay as they are: a restart must not open a gate.

        Raises:
            UserError: the settings do not fit a cluster, or the connection's files cannot be used.
        """
        with Tail(self._loop.connection, self._histories(), _CLIENT_ID) as tail:
            self._catch_up(tail, stop)
            if stop.is_set():
                return
            problems = [problem for worker in self._workers.values() if (problem := _problem(worker))]
            if problems:
                raise UserError("\n".join(problems))
            for cluster, entities in self._elsewhere.items():
                _log.warning("quotas are held on a cluster without any set", cluster=cluster, entities=sorted(entities))
            self._behind = None
            self._run(tail, stop)

    def release(self) -> None:
        """Put back all that was there before Headgate, on all clusters, and return.

        Raises:
            UserError: some of it could not be put back; the rest was.
        """
        gave_up = threading.Event()
        with Tail(self._loop.connection, self._histories(), _CLIENT_ID) as tail:
            watchdog = threading.Timer(_CATCH_UP_SECONDS, gave_up.set)
            watchdog.start()
            self._catch_up(tail, gave_up)
            watchdog.cancel()
            if gave_up.is_set():
                raise UserError(f"kafka: {tail.problem or tail.backlog}.")
        left = [f"{cluster}: it is not watched any more" for cluster in self._elsewhere]
        for cluster, worker in self._workers.items():
            if entities := worker.release(gave_up):
                left.append(f"{cluster}: {', '.join(map(str, entities))} (the log says why)")
        if left:
            raise UserError("\n".join(f"Quotas were not put back on {place}." for place in left))

    def _histories(self) -> dict[str, None]:
        return {self._loop.decided: None, self._loop.applied: None}

    def _catch_up(self, tail: Tail, stop: threading.Event) -> None:
        records: list[Record] = []
        while not tail.caught_up and not stop.is_set():
            records += tail.poll(_POLL_SECONDS)
            self._behind = tail.problem or tail.backlog
        # What was written down first: decisions pass the fence only beyond what was carried out.
        for note in self._latest_notes(records):
            if (worker := self._workers.get(note.cluster)) is not None:
                worker.standing.remember(note)
            elif note.held:
                self._elsewhere.setdefault(note.cluster, set()).add(str(note.entity))
        for record in records:
            if (decision := self._decision(record)) and (worker := self._workers.get(decision.cluster)):
                worker.standing.recall(order_of(decision))

    def _latest_notes(self, records: Sequence[Record]) -> list[AppliedQuota]:
        """One for each entity, by when they were written."""
        latest = {
            event.data.subject(): (record.appended_ms, event.data)
            for record in records
            if (event := self._note(record))
        }
        return [note for _, note in sorted(latest.values(), key=lambda written: written[0])]

    def _run(self, tail: Tail, stop: threading.Event) -> None:
        ended = threading.Event()
        with ThreadPoolExecutor(len(self._workers), thread_name_prefix="quotas") as pool:
            running = [pool.submit(worker.run, ended) for worker in self._workers.values()]
            try:
                while not stop.is_set():
                    for record in tail.poll(_POLL_SECONDS):
                        self._hand_on(record)
                    for future in running:
                        if future.done():
                            future.result()
            finally:
                ended.set()
                for worker in self._workers.values():
                    worker.standing.news.set()

    def _hand_on(self, record: Record) -> None:
        if decision := self._decision(record):
            if worker := self._workers.get(decision.cluster):
                worker.standing.arrived(order_of(decision), record.appended_ms)
        elif (event := self._note(record)) and (worker := self._workers.get(event.data.cluster)):
            worker.standing.learned(event.id, event.data)

    def _decision(self, record: Record) -> ThrottleFactor | None:
        event = self._read(self._decisions, record) if record.topic == self._loop.decided else None
        return event.data if event else None

    def _note(self, record: Record) -> Event[AppliedQuota] | None:
        return self._read(self._notes, record) if record.topic == self._loop.applied else None

    @staticmethod
    def _read(reader: EventReader[Data], record: Record) -> Event[Data] | None:
        if record.value is None:
            return None  # deleted by somebody: what is in force stays so until it expires
        try:
            return reader.read(record.value)
        except BadRecordError as error:
            _log.warning("a record cannot be read", topic=record.topic, detail=str(error))
            return None


def _problem(worker: ClusterActuator) -> str | None:
    try:
        worker.preflight()
    except UserError as error:
        return str(error)
    return None
