"""Reads the records of a batch for one key: the observations, in order, and a dead letter for every other record.

Pure, and the same for the query and for the replay of its batches.
"""

import heapq
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from policies.maintenance import PauseCommand
from policies.observations import Observation, Reading
from policies.registry import POLICIES, observed_topic, reading_types, topic_readers
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason, Event, EventReader, too_large
from streaming.dead_letters import DeadLetterLimiter
from streaming.host import PolicyHost
from streaming.order import Order
from streaming.records import ObservedRecord, Output

MOST_RECORDS = 5000
MOST_BYTES = 64 * 1024 * 1024
"""A batch takes no more of one cluster and partition, so that a flood for one cluster does not delay the others."""


class ReadRecord(NamedTuple):
    """A record and the event that was read from it."""

    record: ObservedRecord
    event: Event[Reading]


class Intake:
    """Takes the records of one key and batch.

    Args:
        host: knows the watched clusters.
        prefix: of all topics.
        key: (policy, cluster); the cluster is empty for records that name no known cluster.
        limiter: for the dead letters.
        order: for the effective times.
    """

    def __init__(
        self, host: PolicyHost, prefix: str, key: tuple[str, str], limiter: DeadLetterLimiter, order: Order
    ) -> None:
        self._host = host
        self._prefix = prefix
        self._policy, self._cluster = key
        self._takes: tuple[type[Reading], ...] = (*POLICIES[self._policy].takes, PauseCommand)
        self._limiter = limiter
        self._order = order
        self._windows: dict[tuple[str, int], _Window] = {}

    def take(self, records: Iterable[ObservedRecord]) -> Iterator[Output]:
        """Take records in any order, and return the dead letters."""
        for record in records:
            try:
                taken = ReadRecord(record, self._read(record))
            except BadRecordError as error:
                yield from self._refuse(record, error)
                continue
            if not isinstance(taken.event.data, self._takes):
                continue
            window = self._windows.setdefault((record.topic, record.partition), _Window())
            for dropped in window.add(taken):
                yield from self._refuse(dropped, _too_many(dropped))

    def observed(self) -> list[tuple[ObservedRecord, Observation]]:
        """The records taken, by partition and offset, each with its observation."""
        taken = sorted(
            (each for window in self._windows.values() for each in window.records()),
            key=lambda each: (each.record.topic, each.record.partition, each.record.offset),
        )
        return [(r, Observation(event.id, from_millis(self._order.effective_ms(r)), event.data)) for r, event in taken]

    def _refuse(self, record: ObservedRecord, error: BadRecordError) -> Iterator[Output]:
        """Make a dead letter, but only one of a topic that several policies read: that of the first policy."""
        readers = topic_readers()[record.topic.removeprefix(f"{self._prefix}.")]
        if self._policy not in readers[1:]:
            yield from self._limiter.put(record, error)

    def _read(self, record: ObservedRecord) -> Event[Reading]:
        if record.cut is not None:
            raise too_large(record.cut.bytes)
        self._order.require_signed(record)
        event = read_record(record.value or b"", record.topic.removeprefix(f"{self._prefix}."))
        require_watched(self._host, cluster := event.data.cluster)
        if cluster != self._cluster:
            raise BadRecordError(
                DeadLetterReason.CLUSTER_MISMATCH, f"data.cluster: '{cluster}' was routed as '{self._cluster}'"
            )
        require_pausable(event.data)
        record.appended_at()
        self._order.require_past(record)
        return event


class _Window:
    """The newest records of one partition; the order in which they come does not matter."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, ReadRecord]] = []
        self._bytes = 0
        self._dropped_offset = -1

    def add(self, taken: ReadRecord) -> Iterator[ObservedRecord]:
        """Add a record, and return those for which there is no room."""
        if taken.record.offset <= self._dropped_offset:
            yield taken.record
            return
        heapq.heappush(self._heap, (taken.record.offset, taken))
        self._bytes += len(taken.record.value or b"")
        while len(self._heap) > MOST_RECORDS or self._bytes > MOST_BYTES:
            self._dropped_offset, oldest = heapq.heappop(self._heap)
            self._bytes -= len(oldest.record.value or b"")
            yield oldest.record

    def records(self) -> Iterator[ReadRecord]:
        return (taken for _, taken in self._heap)


@cache
def reading_reader() -> EventReader[Reading]:
    """Decodes observed records of every registered kind; built once per process."""
    return EventReader(reading_types())


def read_record(value: bytes, topic: str | None) -> Event[Reading]:
    """Decode an observed record.

    Args:
        value: of the record.
        topic: of the record, without its prefix; None if it was read from a file.

    Raises:
        BadRecordError: it is no event, its type is unknown or belongs to another topic, or its data does not fit.
    """
    event = reading_reader().read(value)
    if topic is not None and (own := observed_topic(type(event.data))) != topic:
        raise BadRecordError(DeadLetterReason.WRONG_TOPIC, f"type: {event.type} belongs to {own}, not to {topic}")
    return event


def require_watched(host: PolicyHost, cluster: str) -> None:
    """Refuse a reading of a cluster that the settings do not name.

    Raises:
        BadRecordError: it is such.
    """
    if not host.knows(cluster):
        detail = f"data.cluster: '{cluster}' is not among the clusters of the settings"
        raise BadRecordError(DeadLetterReason.UNKNOWN_CLUSTER, detail, cluster)


def require_pausable(reading: Reading) -> None:
    """Refuse a pause command to an unknown policy, or to one that has a command of its own for it.

    Raises:
        BadRecordError: it is such.
    """
    if not isinstance(reading, PauseCommand):
        return
    if (kind := POLICIES.get(reading.policy)) is None:
        why = f"'{reading.policy}' is no policy: {', '.join(sorted(POLICIES))} are"
    elif kind.paused_by is not None:
        why = f"policy {reading.policy} is paused by `{kind.paused_by}`"
    else:
        return
    raise BadRecordError(DeadLetterReason.INVALID, f"data.policy: {why}")


def _too_many(record: ObservedRecord) -> BadRecordError:
    return BadRecordError(
        DeadLetterReason.TOO_MANY,
        f"more than {MOST_RECORDS} readings or {MOST_BYTES} bytes came at once: {record.position()}",
    )
