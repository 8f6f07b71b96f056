"""Reads the records of a batch for one key: the observations, in order, and a dead letter for every other record.

Pure.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from policies.observations import Observation, Reading
from policies.pauses import PauseCommand
from policies.recovery import OpenAlerts
from policies.registry import POLICIES, observed_topic, reading_types, topic_readers
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason, Event, EventReader, ObservedRecord, Output, too_large
from streaming.clocks import Order
from streaming.dead_letters import DeadLetterLimiter
from streaming.host import PolicyHost

MOST_RECORDS = 5000
MOST_BYTES = 8 * 1024 * 1024
"""A step takes no more of one partition, the newest first, so that a flood for one cluster does not delay the others.
The largest cluster that a policy accepts publishes less at once; `PolicyKind.most_step_bytes` names exceptions."""
MOST_UNREAD_BYTES = 64 * 1024 * 1024
"""A batch parses no more of one partition: records that cannot be read use up nothing else."""


class ReadRecord(NamedTuple):
    """A record and the event that was read from it."""

    record: ObservedRecord
    event: Event[Reading]


class Intake:
    """Takes the records of one key and batch.

    Args:
        key: (policy, cluster); the cluster is empty for records that name no known cluster.
    """

    def __init__(
        self, host: PolicyHost, prefix: str, key: tuple[str, str], limiter: DeadLetterLimiter, order: Order
    ) -> None:
        self._host = host
        self._prefix = prefix
        self._policy, self._cluster = key
        self._takes: tuple[type[Reading], ...] = (*POLICIES[self._policy].takes, PauseCommand, OpenAlerts)
        self._most_bytes = POLICIES[self._policy].most_step_bytes or MOST_BYTES
        self._limiter = limiter
        self._order = order
        self._taken: list[ReadRecord] = []
        self.left_out = 0
        """Readings for which there was no room."""

    def accept(self, records: Iterable[ObservedRecord]) -> Iterator[Output]:
        """Accept records in any order, and return the dead letters."""
        windows: dict[tuple[str, int], _Window] = {}
        for record in records:
            try:
                if record.cut is not None:
                    raise too_large(record.cut.bytes)
            except BadRecordError as error:
                yield from self._refuse(record, error)
                continue
            window = windows.setdefault((record.topic, record.partition), _Window())
            for dropped in window.add(record):
                yield from self._leave_out(dropped)
        for _, window in sorted(windows.items()):
            yield from self._read_partition(window.records())

    def observed(self) -> list[tuple[ObservedRecord, Observation]]:
        """The records taken, by partition and offset, each with its observation."""
        taken = sorted(self._taken, key=lambda each: (each.record.topic, each.record.partition, each.record.offset))
        return [
            (r, Observation(event.id, from_millis(self._order.effective_ms(r)), event.data, event.source))
            for r, event in taken
        ]

    def _refuse(self, record: ObservedRecord, error: BadRecordError) -> Iterator[Output]:
        """Make a dead letter, but only one of a topic that several policies read: that of the first policy."""
        readers = topic_readers()[record.topic.removeprefix(f"{self._prefix}.")]
        if self._policy not in readers[1:]:
            yield from self._limiter.put(record, error)

    def _read_partition(self, records: Sequence[ObservedRecord]) -> Iterator[Output]:
        """Read the records of a partition, the newest first, while there is room."""
        taken: list[ReadRecord] = []
        bad: list[tuple[ObservedRecord, BadRecordError]] = []
        displaced: list[ObservedRecord] = []
        room_bytes = self._most_bytes
        for record in reversed(records):
            room_bytes -= len(record.value or b"")
            if displaced or len(taken) >= MOST_RECORDS or (room_bytes < 0 and taken):
                displaced.append(record)
                continue
            try:
                event = self._read(record)
            except BadRecordError as error:
                event = None
                bad.append((record, error))
            if event is not None and isinstance(event.data, self._takes):
                taken.append(ReadRecord(record, event))
            else:
                room_bytes += len(record.value or b"")
        self._taken += taken
        for record in reversed(displaced):
            yield from self._leave_out(record)
        for record, fault in reversed(bad):
            yield from self._refuse(record, fault)

    def _leave_out(self, record: ObservedRecord) -> Iterator[Output]:
        self.left_out += 1
        what = f"more than {MOST_RECORDS} readings or {self._most_bytes} bytes came at once: {record.position()}"
        yield from self._refuse(record, BadRecordError(DeadLetterReason.TOO_MANY, what))

    def _read(self, record: ObservedRecord) -> Event[Reading]:
        event = read_record(record.value or b"", record.topic.removeprefix(f"{self._prefix}."))
        require_watched(self._host, cluster := event.data.cluster)
        if cluster != self._cluster:
            raise BadRecordError(
                DeadLetterReason.CLUSTER_MISMATCH, f"data.cluster: '{cluster}' was routed as '{self._cluster}'"
            )
        require_pausable(event.data)
        record.appended_at()
        return event


class _Window:
    """The newest records of one partition; the order in which they come does not matter."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, ObservedRecord]] = []
        self._bytes = 0
        self._dropped_offset = -1

    def add(self, record: ObservedRecord) -> Iterator[ObservedRecord]:
        """Add a record, and return those for which there is no room."""
        if record.offset <= self._dropped_offset:
            yield record
            return
        heapq.heappush(self._heap, (record.offset, record))
        self._bytes += len(record.value or b"")
        while self._bytes > MOST_UNREAD_BYTES:
            self._dropped_offset, oldest = heapq.heappop(self._heap)
            self._bytes -= len(oldest.value or b"")
            yield oldest

    def records(self) -> list[ObservedRecord]:
        """Its records by offset."""
        return [record for _, record in sorted(self._heap, key=lambda each: each[0])]


@cache
def reading_reader() -> EventReader[Reading]:
    """Decodes observed records of every registered kind; built once per process."""
    return EventReader(reading_types())


def read_record(value: bytes, topic: str | None) -> Event[Reading]:
    """Decode an observed record.

    Args:
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
