"""When the query looks for records, and which ones it reads."""

import copy
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

import pyspark
import pytest

from streaming import query as module
from streaming.host import PolicyHost
from streaming.query import (
    BatchProgress,
    ProgressListener,
    Query,
    RawProgressListener,
    listen,
    read_progress,
    set_polling_interval,
)
from streaming.settings import CheckpointPlace, SparkInternals, StreamSettings
from tests.cases import for_each

POLLING_DELAY = "spark.sql.streaming.pollingDelay"
QUERY = Query({}, "headgate", CheckpointPlace.parse("/srv/checkpoint"), PolicyHost(), StreamSettings())


@for_each(
    ("interval_ms", "apart_ms", "waits"),
    [
        pytest.param(20, 0, "20ms", id="shorter than any batch: batches follow each other, and it waits for records"),
        pytest.param(149, 0, "149ms", id="a little shorter"),
        pytest.param(0, 0, "10ms", id="never without a wait"),
        pytest.param(150, 150, None, id="as long as a short batch: they begin at its multiples"),
        pytest.param(10_000, 10_000, None, id="much longer"),
    ],
)
def test_batches_wait_for_records_or_the_interval_not_both(interval_ms: int, apart_ms: int, waits: str | None) -> None:
    session = MagicMock()
    session.sparkContext.getConf().contains.return_value = False
    assert set_polling_interval(session, interval_ms) == apart_ms
    assert session.conf.set.call_args_list == ([] if waits is None else [call(POLLING_DELAY, waits)])


def test_a_record_of_an_aborted_transaction_is_not_read() -> None:
    reader = MagicMock()
    for method in (reader.format, reader.options, reader.option):
        method.return_value = reader
    QUERY._read(MagicMock(readStream=reader))
    assert call("kafka.isolation.level", "read_committed") in reader.option.call_args_list


# --- A rehearsal: how it ends, and that nothing of it stays. On real servers: tests/system/test_high_availability.py.


class Started:
    """A query that Spark runs; it has a checkpoint while it runs."""

    def __init__(self, *, batch_after: int | None = None, fails: bool = False) -> None:
        self.asked = 0
        self.isActive = not fails
        self.writer = MagicMock()
        for method in (self.writer.format, self.writer.queryName, self.writer.outputMode, self.writer.trigger):
            method.return_value = self.writer
        self.writer.option.side_effect = self._option
        self.writer.start.return_value = self
        self.stop = MagicMock()
        self._batch_after = batch_after

    def _option(self, _name: str, checkpoint: str) -> MagicMock:
        self.checkpoint = Path(checkpoint.removeprefix("file://"))
        self.checkpoint.mkdir()
        return self.writer

    @property
    def lastProgress(self) -> object | None:  # noqa: N802 - Spark's name
        self.asked += 1
        return object() if self._batch_after is not None and self.asked > self._batch_after else None


def rehearsed(
    monkeypatch: pytest.MonkeyPatch, scratch: Path, started: Started, over: threading.Event | None = None
) -> bool:
    def decide(query: Query, _spark: object) -> Any:
        assert query.settings.max_records_per_batch == 1
        return SimpleNamespace(writeStream=started.writer)

    monkeypatch.setattr(Query, "decide", decide)
    monkeypatch.setattr(module, "_REHEARSAL_POLL_SECONDS", 0.0)
    spark = MagicMock()
    spark.sparkContext._gateway.scratch.path = scratch
    return QUERY.rehearse(spark, over or threading.Event())


def test_it_is_a_batch_that_goes_nowhere_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = Started(batch_after=2)
    assert rehearsed(monkeypatch, tmp_path, started)
    started.writer.format.assert_called_once_with("noop")
    assert started.writer.queryName.call_args != call("headgate"), "else its batch would be taken for the query's"
    assert started.checkpoint.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []
    started.stop.assert_called_once()


def test_it_is_given_up_when_the_query_is_to_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    over, started = threading.Event(), Started()
    over.set()
    assert not rehearsed(monkeypatch, tmp_path, started, over)
    assert started.asked == 1
    started.stop.assert_called_once()


@for_each(("started", "longest_seconds"), [(Started(), 0.0), (Started(fails=True), 60.0)])
def test_it_ends_where_no_batch_comes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: Started, longest_seconds: float
) -> None:
    monkeypatch.setattr(module, "_LONGEST_REHEARSAL_SECONDS", longest_seconds)
    assert not rehearsed(monkeypatch, tmp_path, started)
    started.stop.assert_called_once()


# --- What is read from Spark's progress of a micro-batch.


# As Spark 4.2 gives it for this query, shortened in the middle.
RECORDED: dict[str, Any] = {
    "id": "9c0f43c8-3a02-4f73-8f6a-91a30d2b0e8a",
    "runId": "7d1c2e64-1f29-44c5-8b44-0c26f4a3d1c9",
    "name": "headgate",
    "timestamp": "2026-11-21T08:00:00.600Z",
    "batchId": 17,
    "batchDuration": 183,
    "numInputRows": 4,  # a tick among them
    "inputRowsPerSecond": 27.27,
    "processedRowsPerSecond": 16.39,
    "durationMs": {"addBatch": 121, "commitOffsets": 11, "triggerExecution": 183, "walCommit": 9},
    "stateOperators": [
        {
            "operatorName": "transformWithStateInPySparkExec",
            "numRowsTotal": 4,
            "numRowsUpdated": 2,
            "memoryUsedBytes": 51200,
            "numShufflePartitions": 1,
            "customMetrics": {"numValueStateVars": 1, "timerProcessingTimeMs": 3},
        }
    ],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[headgate.observed.log-dirs]]",
            "startOffset": {"headgate.observed.log-dirs": {"0": 40}},
            "endOffset": {"headgate.observed.log-dirs": {"0": 43}},
            "latestOffset": {"headgate.observed.log-dirs": {"0": 48}},
            "numInputRows": 4,
            "metrics": {"avgOffsetsBehindLatest": "5.0", "maxOffsetsBehindLatest": "5", "minOffsetsBehindLatest": "5"},
        }
    ],
    "sink": {"description": "org.apache.spark.sql.kafka010.KafkaSourceProvider", "numOutputRows": 6},
    "observedMetrics": {"batch_times": {"oldest_ms": 1795248000100, "records": 3}},
}

WHOLE = BatchProgress(
    batch_id=17, duration_seconds=0.183, input_records=3, input_records_per_second=27.27, lag_records=5,
    lag_seconds=0.5, state_keys=4, state_bytes=51200, began_ms=1795248000600,
)  # fmt: skip


def without(*path: str | int) -> dict[str, Any]:
    """The recorded progress without what stands at this path."""
    progress = copy.deepcopy(RECORDED)
    node: Any = progress
    for part in path[:-1]:
        node = node[part]
    del node[path[-1]]
    return progress


def test_a_whole_progress_is_read() -> None:
    assert read_progress(RECORDED) == WHOLE


@for_each(
    ("progress", "field"),
    [
        (without("batchDuration"), "duration_seconds"),
        (without("observedMetrics", "batch_times", "records"), "input_records"),
        (without("inputRowsPerSecond"), "input_records_per_second"),
        (without("sources"), "lag_records"),
        (RECORDED | {"sources": []}, "lag_records"),
        (without("sources", 0, "metrics"), "lag_records"),
        (without("sources", 0, "metrics", "maxOffsetsBehindLatest"), "lag_records"),
        (RECORDED | {"sources": [{"metrics": None}]}, "lag_records"),
        (without("observedMetrics", "batch_times", "oldest_ms"), "lag_seconds"),
        (without("stateOperators", 0, "numRowsTotal"), "state_keys"),
        (without("stateOperators", 0, "memoryUsedBytes"), "state_bytes"),
    ],
)
def test_what_is_left_out_counts_as_nothing_and_spoils_nothing_else(progress: dict[str, Any], field: str) -> None:
    read = read_progress(progress)
    assert getattr(read, field) == 0
    others = {name for name in WHOLE.__slots__ if name != field}
    assert {name: getattr(read, name) for name in others} == {name: getattr(WHOLE, name) for name in others}


def test_all_state_operators_count() -> None:
    twice = RECORDED | {"stateOperators": RECORDED["stateOperators"] * 2}
    read = read_progress(twice)
    assert (read.state_keys, read.state_bytes) == (8, 102400)


class Event:
    """As the JVM's: a batch of the query of this name."""

    def __init__(self, name: str) -> None:
        self.asked = 0
        self._name = name

    def progress(self) -> "Event":
        return self

    def json(self) -> str:
        self.asked += 1
        return json.dumps({"name": self._name, "timestamp": "2026-11-21T08:00:00.000Z", "batchId": 3})


def test_the_listener_asks_for_json_once_and_hands_the_batch_on_but_none_of_a_rehearsal() -> None:
    batches: list[BatchProgress] = []
    listener, event = ProgressListener(batches.append), Event("headgate")
    listener.onQueryStarted(event)
    listener.onQueryProgress(event)
    listener.onQueryIdle(event)
    listener.onQueryTerminated(event)
    listener.onQueryProgress(Event("headgate-rehearsal"))
    assert batches == [BatchProgress(3, 0.0, 0, 0.0, 0, 0.0, 0, 0, 1795248000000)]
    assert event.asked == 1


def test_pysparks_own_event_has_the_progress_as_an_attribute() -> None:
    batches: list[BatchProgress] = []
    progress = SimpleNamespace(json=Event("headgate").json())
    ProgressListener(batches.append).onQueryProgress(SimpleNamespace(progress=progress))
    assert [batch.batch_id for batch in batches] == [3]


@for_each(
    ("setting", "version", "kind"),
    [
        (SparkInternals.AUTO, "4.2.1", RawProgressListener),
        (SparkInternals.AUTO, "9.9.9", ProgressListener),
        (SparkInternals.OFF, "4.2.1", ProgressListener),
    ],
)
def test_the_jvms_own_events_are_used_with_tested_versions_only(
    monkeypatch: pytest.MonkeyPatch, setting: SparkInternals, version: str, kind: type
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    session = MagicMock()
    listen(session, lambda batch: None, setting)
    (added,) = session.streams.addListener.call_args.args
    assert type(added) is kind
