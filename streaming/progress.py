"""Spark's progress report after each micro-batch, for metrics and health."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from policies.units import to_millis
from streaming.query import BATCH_TIMES, QUERY_NAME
from streaming.settings import SparkInternals
from streaming.spark_internals import RawEvents, are_used


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One finished micro-batch."""

    batch_id: int
    duration_seconds: float
    input_records: int
    """Without ticks."""
    input_records_per_second: float
    lag_records: int
    """Records that the topics held beyond this batch when it began."""
    lag_seconds: float
    """The age of the oldest record of this batch when it began; 0 without records."""
    state_keys: int
    state_bytes: int
    began_ms: int = 0
    """When it began, by the driver's clock."""


class ProgressListener(StreamingQueryListener):
    """Passes the progress of each batch of the query to a function.

    Args:
        on_batch: called on a thread of Spark's after each micro-batch.
    """

    def __init__(self, on_batch: Callable[[BatchProgress], None]) -> None:
        self._on_batch = on_batch

    def onQueryStarted(self, event: Any) -> None:
        """Required by Spark."""

    def onQueryProgress(self, event: Any) -> None:
        """Pass the batch on, unless it is a rehearsal's."""
        # PySpark's event has the progress as an attribute, the JVM's as a method.
        progress = json.loads(event.progress().json() if callable(event.progress) else event.progress.json)
        if progress.get("name") == QUERY_NAME:
            self._on_batch(read_progress(progress))

    def onQueryIdle(self, event: Any) -> None:
        """Required by Spark."""

    def onQueryTerminated(self, event: Any) -> None:
        """Required by Spark; the supervisor itself awaits the end."""


class RawProgressListener(RawEvents, ProgressListener):
    """The same, from the JVM's own events."""


def listen(session: SparkSession, on_batch: Callable[[BatchProgress], None], setting: SparkInternals) -> None:
    """Call `on_batch`, on a thread of Spark's, after each batch of the session's queries."""
    listener = RawProgressListener(on_batch) if are_used(setting) else ProgressListener(on_batch)
    session.streams.addListener(listener)


def read_progress(progress: Mapping[str, Any]) -> BatchProgress:
    """Read Spark's progress in its JSON form; a field that a version leaves out counts as zero."""
    sources, operators = progress.get("sources") or [{}], progress.get("stateOperators") or []
    times = (progress.get("observedMetrics") or {}).get(BATCH_TIMES) or {}
    began_ms = to_millis(datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")))
    oldest_ms, records = times.get("oldest_ms"), int(times.get("records") or 0)
    return BatchProgress(
        batch_id=int(progress["batchId"]),
        duration_seconds=int(progress.get("batchDuration", 0)) / 1000,
        input_records=records,
        input_records_per_second=float(progress.get("inputRowsPerSecond", 0.0)),
        lag_records=int((sources[0].get("metrics") or {}).get("maxOffsetsBehindLatest", 0)),
        lag_seconds=0.0 if oldest_ms is None else max(0, began_ms - int(oldest_ms)) / 1000,
        state_keys=sum(int(o.get("numRowsTotal", 0)) for o in operators),
        state_bytes=sum(int(o.get("memoryUsedBytes", 0)) for o in operators),
        began_ms=began_ms,
    )
