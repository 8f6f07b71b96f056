"""Topics in memory, to be followed in place of `Tail`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from connectors.kafka.tail import Record, Tail

Script = Iterator[tuple[list[Record], bool]]
"""Batches, each with whether the tail has caught up after it; between them a test may look."""


class ScriptedTail:
    """Hands out what a test's script gives; at its end it sets `stop`."""

    def __init__(self, stop: threading.Event) -> None:
        self.script: Script = iter(())
        self.caught_up = False
        self.problem: str | None = None
        self.backlog = "2 partitions are behind"
        self._stop = stop

    @contextmanager
    def __call__(self, *_: Any) -> Iterator["ScriptedTail"]:
        yield self

    def poll(self, _: float) -> list[Record]:
        records, caught_up = next(self.script, ([], None))
        if caught_up is None:
            self._stop.set()
        else:
            self.caught_up = caught_up
        return records


class FakeTail(Tail):
    """A tail of records in memory: first the history, a batch a poll, then `live`, one each poll; then it stops.

    Args:
        history: the batches that are there at the start.
        live: records after the start.
        at_end: called when there is nothing more.
    """

    def __init__(
        self,
        history: Sequence[Sequence[Record]],
        live: Sequence[Record] = (),
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._batches = [list(batch) for batch in history]
        self._live = list(live)
        self.at_end = at_end
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    @property
    def caught_up(self) -> bool:
        return not self._batches

    @property
    def problem(self) -> str | None:
        return None

    @property
    def backlog(self) -> str:
        return f"{len(self._batches)} batches behind"

    def poll(self, timeout_seconds: float) -> list[Record]:
        if self._batches:
            return self._batches.pop(0)
        if not self._live:
            self.at_end()
            return []
        return [self._live.pop(0)]
