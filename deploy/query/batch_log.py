"""Publishes when each finished micro-batch began and how long it took, so that a live run can be replayed exactly.

The source is the checkpoint: Spark writes ``offsets/N`` before batch N begins, and keeps the last twenty. So a new
process publishes what a killed one had not published yet. While Kafka is away, the records wait.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from connectors.kafka.publisher import Publisher
from policies.policy import BATCHES, BATCHES_KEY, Batch, Range, batch_event
from policies.registry import observed_topics
from policies.units import from_millis

_LOOK_SECONDS = 0.5


class _Plan(NamedTuple):
    at_ms: int
    ends: Mapping[str, Mapping[str, int]]
    """Offsets by topic and partition."""


class BatchLog:
    """Publishes the finished batches of one checkpoint.

    Args:
        open_publisher: opens a publisher that loses nothing.
        ahead_ms_of: returns the clock correction of a batch.
    """

    def __init__(
        self,
        checkpoint_dir: Path,
        prefix: str,
        open_publisher: Callable[[], Publisher],
        ahead_ms_of: Callable[[int], int],
    ) -> None:
        self._offsets = checkpoint_dir / "offsets"
        self._prefix = prefix
        self._open_publisher = open_publisher
        self._ahead_ms_of = ahead_ms_of
        self._done: SimpleQueue[int] = SimpleQueue()
        self._published = -1

    def on_batch(self, number: int) -> None:
        """Note that batch `number` has finished."""
        self._done.put(number)

    def run(self, stop: threading.Event) -> None:
        """Publish finished batches until `stop` is set, then the rest."""
        with self._open_publisher() as publisher:
            while not stop.is_set() or not self._done.empty():
                with suppress(Empty):
                    for event in self.events(self._done.get(timeout=_LOOK_SECONDS)):
                        publisher.publish(f"{self._prefix}.{BATCHES}", BATCHES_KEY, event)

    def events(self, number: int) -> Iterator[bytes]:
        """Yield the event of a batch, and those of earlier batches that this process has not published."""
        if number <= self._published:
            self._published = -1  # a new checkpoint
        for each in range(self._first(number), number + 1):
            if (batch := self._batch(each)) is not None:
                yield batch_event(batch)
        self._published = number

    def _first(self, number: int) -> int:
        if self._published >= 0:
            return self._published + 1
        return min((int(p.name) for p in self._offsets.glob("*") if p.name.isdigit()), default=number)

    def _batch(self, number: int) -> Batch | None:
        """None if the plan before it, or the checkpoint, no longer exists."""
        plan, before = self._plan(number), self._plan(number - 1) if number else _Plan(0, {})
        if plan is None or before is None:
            return None
        taken = tuple(_ranges(plan, before, self._prefix))
        ahead_ms = self._ahead_ms_of(number)
        return Batch(number=number, at=from_millis(plan.at_ms - ahead_ms), clock_ahead_ms=ahead_ms, taken=taken)

    def _plan(self, number: int) -> _Plan | None:
        try:
            _, conditions, ends = (self._offsets / str(number)).read_text().splitlines()
            return _Plan(int(json.loads(conditions)["batchTimestampMs"]), json.loads(ends))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _ranges(plan: _Plan, before: _Plan, prefix: str) -> Iterator[Range]:
    for topic in sorted(observed_topics()):
        name = f"{prefix}.{topic}"
        earlier = before.ends.get(name, {})
        for partition, end in sorted(plan.ends.get(name, {}).items(), key=lambda each: int(each[0])):
            start = earlier.get(partition)
            if end != (start or 0):
                yield Range(topic=topic, partition=int(partition), start=start, end=end)
