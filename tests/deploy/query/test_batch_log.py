"""What is told of batches: each once it is done, none left out by a restart, the same bytes when told again."""

import json
import threading
from pathlib import Path
from typing import ClassVar

from connectors.kafka.publisher import Publisher
from deploy.query.batch_log import BatchLog
from policies.policy import BATCHES, Batch, Range
from policies.units import to_millis
from policies.wire import Event

LOG_DIRS = "observed.log-dirs"


def plan(checkpoint: Path, number: int, end: int | None, at_ms: int = 1000) -> None:
    """As Spark writes it, before the batch begins; of all topics one has records."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    conditions = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": at_ms + number})
    ends = {"h.ticks": {"0": number}} | ({f"h.{LOG_DIRS}": {"0": end}} if end is not None else {})
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{conditions}\n{json.dumps(ends)}")


class Told:
    """What a process tells."""

    def __init__(self, checkpoint: Path) -> None:
        self.ahead_ms: dict[int, int] = {}
        self._log = BatchLog(checkpoint, "h", Publishing, lambda number: self.ahead_ms.get(number, 0))
        self.records: list[bytes] = []

    def on_batch(self, number: int) -> None:
        self.records += self._log.events(number)

    @property
    def batches(self) -> list[Batch]:
        return [Event[Batch].model_validate_json(value).data for value in self.records]


class Publishing(Publisher):
    """Keeps what it is given."""

    said: ClassVar[list[tuple[str, str, bytes | None]]] = []

    def __init__(self) -> None:
        self.said.clear()

    def publish(self, topic: str, key: str, value: bytes | None) -> None:
        self.said.append((topic, key, value))

    def close(self, timeout_seconds: float = 0.0) -> None:
        self.said.append(("closed", "", None))


def test_a_batch_is_told_with_its_time_and_the_records_it_took(tmp_path: Path) -> None:
    told = Told(tmp_path)
    plan(tmp_path, 0, 7)
    told.on_batch(0)
    plan(tmp_path, 1, 9)
    told.ahead_ms[1] = 600
    told.on_batch(1)
    first, second = told.batches
    assert first.taken == (Range(topic=LOG_DIRS, partition=0, start=None, end=7),), "from the oldest there was"
    assert second.taken == (Range(topic=LOG_DIRS, partition=0, start=7, end=9),)
    assert (to_millis(first.at), to_millis(second.at)) == (1000, 401)


def test_a_batch_of_ticks_alone_takes_nothing_and_is_told(tmp_path: Path) -> None:
    told = Told(tmp_path)
    plan(tmp_path, 0, None)
    told.on_batch(0)
    assert [batch.taken for batch in told.batches] == [()]


def test_what_a_killed_process_had_not_told_the_next_one_tells_with_the_same_bytes(tmp_path: Path) -> None:
    first, second = Told(tmp_path), Told(tmp_path)
    for number in range(3):
        plan(tmp_path, number, number)
        first.on_batch(number)
    plan(tmp_path, 3, 3)
    plan(tmp_path, 4, 4)
    second.on_batch(4)
    assert [batch.number for batch in second.batches] == [0, 1, 2, 3, 4]
    assert second.records[:3] == first.records


def test_a_batch_is_not_told_where_the_plan_before_it_is_gone_or_damaged(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for number in (40, 41, 42):
        plan(tmp_path, number, number)
    (tmp_path / "offsets" / "42").write_text("")
    told.on_batch(42)
    assert [batch.number for batch in told.batches] == [41]
    told.on_batch(43)
    assert len(told.batches) == 1, "its plan is gone"


def test_a_new_checkpoint_is_told_from_its_beginning(tmp_path: Path) -> None:
    told = Told(tmp_path)
    plan(tmp_path, 5, 5)
    told.on_batch(5)
    (tmp_path / "offsets" / "5").unlink()
    plan(tmp_path, 0, 5, at_ms=9000)
    told.on_batch(0)
    assert [batch.number for batch in told.batches] == [0]


def test_what_is_done_is_published_under_one_key_and_what_is_left_at_the_end_too(tmp_path: Path) -> None:
    for number in range(3):
        plan(tmp_path, number, number)
    log, stop = BatchLog(tmp_path, "h", Publishing, lambda _: 0), threading.Event()
    for number in range(3):
        log.on_batch(number)
    stop.set()
    log.run(stop)
    *told, closed = Publishing.said
    assert [(topic, key) for topic, key, _ in told] == [(f"h.{BATCHES}", "query")] * 3
    assert closed[0] == "closed"
