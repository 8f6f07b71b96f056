"""Follows decisions, and has those of each cluster carried out on a thread of its own."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any, Generic, Protocol, TypeVar

import structlog

from connectors.actuation.worker import Fenced, PublishAudit, Worker
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.effects import report_key
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason, EventReader

_POLL_SECONDS = 0.2

Data = TypeVar("Data")
Publish = Callable[[str, str, bytes], None]
"""Publishes a record (topic, key, value) to the loop's Kafka, without blocking."""

_log = structlog.get_logger(__name__)


_flawed_topics: set[str] = set()
"""The topics with records that could not be read, each logged once: there may be 200,000, and a metric counts all."""


@dataclass(frozen=True)
class LoopTopics:
    """The loop's own Kafka, and the topics (with their prefix) that every actuator reads and writes."""

    connection: KafkaConnection
    decided: str
    audit: str
    may_act: Callable[[str], bool] = lambda _: True
    """Whether this process may act on a cluster; must be asked before each action."""
    reports: str = ""
    """The compacted topic of last reports; empty: they go to the audit only."""

    def reporter(self, publish: Publish) -> PublishAudit:
        """Return the function that publishes an actuator's reports."""

        def report(cluster: str, event: bytes) -> None:
            publish(self.audit, cluster, event)
            if self.reports:
                publish(self.reports, report_key(event), event)

        return report


class ClusterRunner(Protocol):
    """Carries out the decisions of one cluster, such as a `Worker`."""

    def run(self, stop: Event) -> None:
        """Carry out decisions until `stop` is set and `wake` was called."""

    def wake(self) -> None:
        """End a wait of `run`, so that it checks its stop event. May be called from any thread."""


class Follower(ABC):
    """Follows topics, and runs one thread for each cluster.

    Args:
        client_id: its name in brokers' logs and quotas.
        workers: carry decisions out, by cluster.
    """

    def __init__(self, name: str, client_id: str, topics: LoopTopics, workers: Mapping[str, ClusterRunner]) -> None:
        self._client_id = client_id
        self._topics = topics
        self._runners = workers
        self._behind: str | None = f"the {name} has not started yet"

    def caught_up(self) -> str | None:
        """Readiness: None once the decisions in force are known, else a sentence."""
        return self._behind

    def run(self, stop: Event) -> None:
        """Have decisions carried out until `stop` is set. Their effects stay.

        Raises:
            UserError: the connection's files cannot be used.
        """
        with self._open_tail(self._histories()) as tail:
            # The whole history first: a later record may have lifted an earlier decision.
            self._catch_up(tail, stop, self._recall)
            if not stop.is_set():
                self._prepare(stop)
            if not stop.is_set():
                self._behind = None
                self._carry_out(tail, stop)

    @abstractmethod
    def _recall(self, record: Record) -> None:
        """Process a record from before this start."""

    @abstractmethod
    def _receive(self, record: Record) -> None:
        """Process a new record."""

    def _histories(self) -> dict[str, timedelta | None]:
        """Return the topics to follow, and how far back each is read; None: from its beginning."""
        return {self._topics.decided: None}

    def _prepare(self, stop: Event) -> None:  # noqa: B027 - optional
        """Find out what must be known before anything is carried out."""

    def _open_tail(self, histories: Mapping[str, timedelta | None]) -> Tail:
        return Tail(self._topics.connection, histories, self._client_id)

    def _catch_up(self, tail: Tail, stop: Event, process: Callable[[Record], None]) -> None:
        while not tail.caught_up and not stop.is_set():
            for record in tail.poll(_POLL_SECONDS):
                process(record)
            self._behind = tail.problem or tail.backlog

    def _carry_out(self, tail: Tail, stop: Event) -> None:
        ended = Event()
        with ThreadPoolExecutor(len(self._runners), thread_name_prefix=self._client_id) as pool:
            futures = [pool.submit(runner.run, ended) for runner in self._runners.values()]
            try:
                while not stop.is_set():
                    for record in tail.poll(_POLL_SECONDS):
                        self._receive(record)
                    for future in futures:
                        if future.done():
                            future.result()
            finally:
                ended.set()
                for runner in self._runners.values():
                    runner.wake()


@dataclass(frozen=True)
class SideTopic(Generic[Data]):
    """A further topic that an actuator follows, whose events are no decisions."""

    name: str
    """The whole name, with its prefix."""
    reader: EventReader[Data]
    """Reads the events of interest."""
    take: Callable[[Data], None]
    """Called with each of them, on the actuator's thread."""
    history: timedelta | None = None
    """How far back it is read; None: from its beginning."""


class Actuator(Follower, Generic[Fenced]):
    """Follows one kind of decision, and passes each to its cluster's worker.

    Args:
        kind: the decisions to follow.
        side: a further topic to follow.
    """

    def __init__(
        self,
        name: str,
        client_id: str,
        topics: LoopTopics,
        workers: Mapping[str, Worker[Fenced]],
        kind: type[Fenced],
        side: SideTopic[Any] | None = None,
    ) -> None:
        super().__init__(name, client_id, topics, workers)
        self._workers = workers
        self._decisions: EventReader[Any] = EventReader((kind,))
        self._side = side
        for cluster, worker in workers.items():
            worker.may_act = partial(topics.may_act, cluster)

    def _histories(self) -> dict[str, timedelta | None]:
        return super()._histories() | ({} if self._side is None else {self._side.name: self._side.history})

    def _read_decision(self, record: Record) -> Fenced | None:
        """Return the decision in a record; None if it holds none."""
        if self._side is not None and record.topic == self._side.name:
            if (event := read_data(self._side.reader, record)) is not None:
                self._side.take(event)
            return None
        return read_data(self._decisions, record)

    def _recall(self, record: Record) -> None:
        if (decision := self._read_decision(record)) is not None and decision.cluster in self._workers:
            self._workers[decision.cluster].recall(decision, from_millis(record.appended_ms))

    def _receive(self, record: Record) -> None:
        if (decision := self._read_decision(record)) is not None and decision.cluster in self._workers:
            self._workers[decision.cluster].receive(decision, from_millis(record.appended_ms))


def read_data(reader: EventReader[Data], record: Record) -> Data | None:
    """Return the data of a record's event; None if the reader does not read its type, or it cannot be read."""
    if record.value is None:
        return None  # a deletion: the decision in force stays in force until it expires
    try:
        return reader.read(record.value).data
    except BadRecordError as error:
        # The topics hold events of other types, too.
        if error.reason is not DeadLetterReason.UNKNOWN_TYPE and record.topic not in _flawed_topics:
            _flawed_topics.add(record.topic)
            what = "records are ignored, another process writes to this topic: `headgate doctor` lists the writers"
            _log.warning(what, topic=record.topic, first=str(error))
        return None
