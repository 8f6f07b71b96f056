"""Topics in memory, to be followed."""

from collections.abc import Callable, Sequence
from typing import Self

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from policies.units import to_millis
from tests.connectors.actuation.virtual_clock import NOON

CONNECTION = KafkaConnection(bootstrap_servers="nowhere:9092")


def record(topic: str, value: bytes | None, appended_ms: int = to_millis(NOON)) -> Record:
    return Record(topic, b"key", value, appended_ms)


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
