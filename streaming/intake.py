"""Reads the records of a batch for one key: the observations, in order, and what becomes of every other record.

Pure, and the same for the query and for replays of its batches.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from policies.maintenance import PauseCommand
from policies.observations import Observation, Reading
from policies.units import from_millis
from policies.wire import BadRecordError, DeadLetterReason, Event, too_large
from streaming.dead_letters import ObservedRecord
from streaming.host import PolicyHost, read_record, require_pausable, unknown_cluster
from streaming.letter_box import LetterBox
from streaming.order import Order
from streaming.output import Output

MOST_RECORDS = 5000
MOST_BYTES = 64 * 1024 * 1024
"""A batch takes no more of one cluster and partition, so that a flood for one cluster does not hold others up."""


class Taken(NamedTuple):
    """A record that could be read."""

    record: ObservedRecord
    event: Event[Reading]


class Intake:
    """Takes the records of one key and batch.

    Args:
        host: says which clusters there are.
        prefix: of all topics.
        cluster: of the key; empty where no known cluster is named.
        box: for the dead letters.
        order: for the times.
    """

    def __init__(self, host: PolicyHost, prefix: str, cluster: str, box: LetterBox, order: Order) -> None:
        self._host = host
        self._prefix = prefix
        self._cluster = cluster
        self._box = box
        self._order = order
        self._windows: dict[tuple[str, int], _Window] = {}

    def take(self, records: Iterable[ObservedRecord]) -> Iterator[Output]:
        """Take records in, in whatever order; gives the dead letters."""
        for record in records:
            try:
                for left in self._keep(Taken(record, self._read(record))):
                    yield from self._box.put(left, _too_many(left))
            except BadRecordError as error:
                yield from self._box.put(record, error)

    def observed(self) -> list[tuple[ObservedRecord, Observation]]:
        """What was taken, by partition and offset, each with the time it counts from."""
        taken = sorted(
            (each for window in self._windows.values() for each in window.kept()),
            key=lambda each: (each.record.topic, each.record.partition, each.record.offset),
        )
        return [(r, Observation(event.id, from_millis(self._order.at_ms(r)), event.data)) for r, event in taken]

    def _read(self, record: ObservedRecord) -> Event[Reading]:
        if record.cut is not None:
            raise too_large(record.cut.bytes)
        self._order.believe(record)
        event = read_record(record.value or b"", record.topic.removeprefix(f"{self._prefix}."))
        name = event.data.cluster
        if not self._host.knows(name):
            raise unknown_cluster(name)
        if name != self._cluster:
            raise BadRecordError(
                DeadLetterReason.CLUSTER_MISMATCH, f"data.cluster: '{name}' was routed as '{self._cluster}'"
            )
        if isinstance(event.data, PauseCommand):
            require_pausable(event.data.policy)
        record.appended_at()
        self._order.check(record)
        return event

    def _keep(self, taken: Taken) -> Iterator[ObservedRecord]:
        """Keep it; gives what there is no room for."""
        window = self._windows.setdefault((taken.record.topic, taken.record.partition), _Window())
        return window.keep(taken)


class _Window:
    """The newest records of one partition.

    Whatever the order in which they come, the same are kept: those from some offset on.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, Taken]] = []
        self._bytes = 0
        self._floor = -1

    def keep(self, taken: Taken) -> Iterator[ObservedRecord]:
        if taken.record.offset <= self._floor:
            yield taken.record
            return
        heapq.heappush(self._heap, (taken.record.offset, taken))
        self._bytes += _size(taken)
        while len(self._heap) > MOST_RECORDS or self._bytes > MOST_BYTES:
            self._floor, oldest = heapq.heappop(self._heap)
            self._bytes -= _size(oldest)
            yield oldest.record

    def kept(self) -> Iterator[Taken]:
        return (taken for _, taken in self._heap)


def _size(taken: Taken) -> int:
    return len(taken.record.value or b"")


def _too_many(record: ObservedRecord) -> BadRecordError:
    return BadRecordError(
        DeadLetterReason.TOO_MANY,
        f"more than {MOST_RECORDS} readings or {MOST_BYTES} bytes came at once: {record.place()}",
    )
