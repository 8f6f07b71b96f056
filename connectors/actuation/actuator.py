"""Follows one kind of decision, and has each cluster's decisions carried out on its own thread."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Generic, Protocol, TypeVar

import structlog

from connectors.actuation.decision_queue import Fenced
from connectors.actuation.worker import Worker
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason, EventReader
from policies.wire import Event as CloudEvent

_POLL_SECONDS = 0.2

Data = TypeVar("Data")
Publish = Callable[[str, str, bytes], None]
"""Hands a record (topic, key, value) over to the loop's Kafka; does not block."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LoopTopics:
    """The loop's own Kafka, and its topics (with their prefix) that every actuator reads and writes."""

    connection: KafkaConnection
    decided: str
    audit: str
    may_act: Callable[[str], bool] = lambda _: True
    """Whether a cluster is this process's to act on: to be asked before each act."""


class ClusterRunner(Protocol):
    """Who does what was decided for one cluster, such as a `Worker`."""

    def run(self, stop: Event) -> None:
        """Carry decisions out until `stop` is set and `wake` was called."""

    def wake(self) -> None:
        """Have `run` look at its stop event; from any thread."""


class Follower(ABC):
    """Follows topics, and has each cluster's decisions carried out on a thread of its own.

    Args:
        name: of the actuator, for people.
        client_id: how brokers' logs and quotas name it.
        topics: where the decisions are.
        workers: who carries them out, by cluster.
    """

    def __init__(self, name: str, client_id: str, topics: LoopTopics, workers: Mapping[str, ClusterRunner]) -> None:
        self._client_id = client_id
        self._topics = topics
        self._running = workers
        self._behind: str | None = f"the {name} has not started yet"

    def caught_up(self) -> str | None:
        """Readiness: None once the decisions in force are known."""
        return self._behind

    def run(self, stop: Event) -> None:
        """Have decisions carried out until `stop` is set. What was done then stays so.

        Raises:
            UserError: the connection's files cannot be used, or what `_prepare` found.
        """
        with self._tail(self._followed()) as tail:
            # Before any is carried out: a later one may have lifted it.
            self._catch_up(tail, stop, self._recall)
            if not stop.is_set():
                self._prepare(stop)
            if not stop.is_set():
                self._behind = None
                self._carry_out(tail, stop)

    @abstractmethod
    def _recall(self, record: Record) -> None:
        """Learn from a record that was there before this start."""

    @abstractmethod
    def _arrived(self, record: Record) -> None:
        """Hand a new record on."""

    def _followed(self) -> dict[str, timedelta | None]:
        """The topics, and how much of their past is read; None: all of it."""
        return {self._topics.decided: None}

    def _prepare(self, stop: Event) -> None:  # noqa: B027 - not all need it
        """Find out what else must be known before anything is carried out.

        Raises:
            UserError: it must not begin.
        """

    def _tail(self, histories: Mapping[str, timedelta | None]) -> Tail:
        return Tail(self._topics.connection, histories, self._client_id)

    def _catch_up(self, tail: Tail, stop: Event, learn: Callable[[Record], None]) -> None:
        while not tail.caught_up and not stop.is_set():
            for record in tail.poll(_POLL_SECONDS):
                learn(record)
            self._behind = tail.problem or tail.backlog

    def _carry_out(self, tail: Tail, stop: Event) -> None:
        ended = Event()
        with ThreadPoolExecutor(len(self._running), thread_name_prefix=self._client_id) as pool:
            running = [pool.submit(worker.run, ended) for worker in self._running.values()]
            try:
                while not stop.is_set():
                    for record in tail.poll(_POLL_SECONDS):
                        self._arrived(record)
                    for future in running:
                        if future.done():
                            future.result()
            finally:
                ended.set()
                for worker in self._running.values():
                    worker.wake()


class Actuator(Follower, Generic[Fenced]):
    """Follows one kind of decisions, and hands each to its cluster's worker."""

    def __init__(self, name: str, client_id: str, topics: LoopTopics, workers: Mapping[str, Worker[Fenced]]) -> None:
        super().__init__(name, client_id, topics, workers)
        self._workers = workers
        for cluster, worker in workers.items():
            worker.may_act = partial(topics.may_act, cluster)

    @abstractmethod
    def _decision(self, record: Record) -> Fenced | None:
        """The decision in a record; None when there is none."""

    def _recall(self, record: Record) -> None:
        if (decision := self._decision(record)) is not None and decision.cluster in self._workers:
            self._workers[decision.cluster].recall(decision, from_millis(record.appended_ms))

    def _arrived(self, record: Record) -> None:
        if (decision := self._decision(record)) is not None and decision.cluster in self._workers:
            self._workers[decision.cluster].arrived(decision, from_millis(record.appended_ms))


def parsed_event(reader: EventReader[Data], record: Record) -> CloudEvent[Data] | None:
    """What a record says; None when it is not for this reader, or cannot be read (which is logged)."""
    if record.value is None:
        return None  # deleted by somebody: what is in force stays so until it expires
    try:
        return reader.read(record.value)
    except BadRecordError as error:
        # The topics hold others' records too.
        if error.reason is not DeadLetterReason.UNKNOWN_TYPE:
            _log.warning("a record cannot be read", topic=record.topic, detail=str(error))
        return None


def parsed(reader: EventReader[Data], record: Record) -> Data | None:
    """The data of what a record says, likewise."""
    event = parsed_event(reader, record)
    return None if event is None else event.data
