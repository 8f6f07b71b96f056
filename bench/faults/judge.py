"""Holds what the loop wrote against an undisturbed run over the same input.

The undisturbed run is the policies' own code over the observed topics, in the batches of the checkpoint's plans,
without Spark, Kafka or faults. A consumer that drops repeated ids must have seen each of its records once, none
missing, none other, and never one id with two contents. And the levels of the invented clusters are those that were
fed, in their order.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from bench.faults.records import Reader, StoredRecord
from policies.registry import AUDIT, DEAD_LETTERS, decided_topics
from policies.wire import AUDIT_TYPE, ObservedRecord
from streaming.host import PolicyHost
from tests.system.undisturbed import Batch, Undisturbed

_TOLERANCE = 2e-6


class Faulty(NamedTuple):
    """The faults found so far."""

    lost: tuple[str, ...]
    """Records of the undisturbed run that the loop did not write."""
    wrong: tuple[str, ...]


class Judge:
    """Compares the topics with an undisturbed run, whenever it is called."""

    def __init__(self, reader: Reader, prefix: str, host: PolicyHost) -> None:
        self._reader = reader
        self._prefix = prefix
        self._run = Undisturbed(host, prefix)
        self._batches = 0
        self._expected: dict[str, bytes] = {}
        self._written: dict[str, bytes] = {}
        self._seen: dict[str, int] = defaultdict(int)
        self._last: int | None = None
        self._began_ms: int | None = None
        self.is_blind = True
        """Whether nothing is compared until the query begins a new run."""
        self._since: set[str] = set()
        self.wrong: list[str] = []

    def look(self) -> Faulty:
        """Compare the records since the last call with those of the undisturbed run."""
        self._reader.read()
        for topic in (*decided_topics(), DEAD_LETTERS, AUDIT):
            for record in self._new(topic):
                self._written_was(record)
        batches, self._batches = self._reader.batches[self._batches :], len(self._reader.batches)
        for batch in batches:
            self._batch_was(batch)
        if self.is_blind:
            return Faulty((), tuple(self.wrong))
        lost = tuple(f"{id_} is missing" for id_ in self._expected.keys() - self._written.keys())
        other = tuple(
            f"{id_} is none of the undisturbed run"
            for id_ in self._written.keys() - self._expected.keys() - self._since
        )
        return Faulty(lost, (*self.wrong, *other))

    def look_away(self) -> None:
        """Compare nothing until a run begins: offsets start at 0 again, or a checkpoint or its plans may be lost."""
        self.is_blind = True

    def forgive(self, faulty: Faulty) -> None:
        """End a fault: report no difference twice, and excuse no further one."""
        self.wrong.clear()
        missing = self._expected.keys() - self._written.keys() if faulty.lost else set()
        self._written.update({id_: self._expected[id_] for id_ in missing})
        self._since |= self._written.keys() - self._expected.keys()

    def _new(self, topic: str) -> list[StoredRecord]:
        """The records since the last call."""
        records = self._reader.of[topic]
        first = min(self._seen[topic], len(records))
        self._seen[topic] = len(records)
        return records[first:]

    def _written_was(self, record: StoredRecord) -> None:
        if record.value is None:
            return
        if record.topic == AUDIT and record.event["type"] != AUDIT_TYPE:
            return  # an actuator's
        id_ = f"{record.topic}/{record.event['id']}"
        if self._written.setdefault(id_, record.value) != record.value:
            self.wrong.append(f"{id_} came back with another content")

    def _batch_was(self, batch: Batch) -> None:
        begins = batch.number == 0 and batch.at_ms != self._began_ms
        if begins:
            # The previous run may have ended before it recorded its last batch.
            self._since = self._written.keys() - self._expected.keys() if self._last is not None else set()
            self._began_ms, self.is_blind = batch.at_ms, False
        elif self._last is None or batch.number <= self._last:
            return
        elif batch.number != self._last + 1 and not self.is_blind:
            self.wrong.append(f"after batch {self._last} comes {batch.number}")
        self._last = batch.number
        if not self.is_blind:
            self._expect(batch, begins=begins)

    def _expect(self, batch: Batch, *, begins: bool) -> None:
        for turn in self._run.step(batch, self._take_batch(batch), begins=begins):
            for topic, _, value in turn.outputs:
                id_ = f"{topic}/{json.loads(value)['id']}"
                if self._expected.setdefault(id_, value) != value:
                    self.wrong.append(f"{id_} has two contents in the undisturbed run")
                if id_ in self._written and self._written[id_] != value:
                    self.wrong.append(f"{id_} has another content than in the undisturbed run")

    def _take_batch(self, batch: Batch) -> Iterator[ObservedRecord]:
        for range_ in batch.taken:
            records = self._reader.of[range_.topic]
            # One partition, never compacted: offsets are places.
            for kept in records[range_.start : range_.end]:
                name = f"{self._prefix}.{kept.topic}"
                yield ObservedRecord(name, 0, kept.offset, kept.appended_ms, kept.value)


def out_of_order(levels: list[float], fed: list[float]) -> str | None:
    """The first level that is not part of the fed levels in their order, or None. A batch may merge levels."""
    place = 0
    for level in levels:
        while place < len(fed) and abs(fed[place] - level) > _TOLERANCE:
            place += 1
        if place == len(fed):
            return f"{level} was not said after what came before it"
    return None
