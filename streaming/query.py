"""The query: reads all observed topics and writes every policy's decisions."""

import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from policies.policy import TICKS
from policies.registry import COMMANDS, POLICIES, commands, observed_topics, topic_readers
from policies.units import millis_of, to_millis
from policies.wire import CONTENT_TYPE, KEPT_BYTES, MAX_RECORD_BYTES
from streaming.conf import SMALL_BATCH_TUNING
from streaming.host import PolicyHost
from streaming.operator import OUTPUT_SCHEMA, PolicyOperator, StepMark
from streaming.session import set_defaults
from streaming.settings import CheckpointPlace, SparkInternals, StreamSettings
from streaming.spark_internals import RawEvents, are_used

QUERY_NAME = "headgate"
BATCH_TIMES = "batch_times"
"""The observed metric with the number of a batch's observed records, and their oldest time."""

_LARGEST_REQUEST_BYTES = 8 * 1024 * 1024
"""Enough for the largest audit entry, the largest of all records."""

_SHORTEST_BATCH_MS = 150
_SHORTEST_WAIT_MS = 10

_REHEARSAL = "headgate-rehearsal"
_REHEARSAL_POLL_SECONDS = 0.1
_LONGEST_REHEARSAL_SECONDS = 120.0
"""If all topics are empty, there is no batch to rehearse with."""


@dataclass(frozen=True)
class Query:
    """The query of a prefix."""

    kafka: Mapping[str, str]
    """Client properties of the loop's own Kafka, as the Java client names them."""
    prefix: str
    checkpoint: CheckpointPlace
    host: PolicyHost
    settings: StreamSettings
    steps: StepMark | None = None
    """Marks each step; None: nobody on this machine watches."""

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start from the checkpoint, or from the oldest records when there is none."""
        interval_ms = set_polling_interval(spark, millis_of(self.settings.trigger_interval))
        writer = (
            self.decide(spark)
            .writeStream.format("kafka")
            .queryName(QUERY_NAME)
            .outputMode("append")
            .options(**self._options)
            .option("kafka.acks", "all")
            .option("kafka.max.request.size", str(_LARGEST_REQUEST_BYTES))
            .option("checkpointLocation", self.checkpoint.location)
            .trigger(processingTime=f"{interval_ms} milliseconds")
        )
        return writer.start()

    def rehearse(self, spark: SparkSession, over: threading.Event) -> bool:
        """Run one throw-away micro-batch, so that a stand-by's first real batch is fast; return whether it finished.

        Most of a query's first batch happens once per process: classes are loaded, code is compiled, Python workers
        import their modules. A stand-by does that while it waits, with the same query on a temporary checkpoint. It
        reads one record of each partition, as any consumer may, and discards the decisions. It is given up once `over`
        is set.
        """
        scratch: Path = spark.sparkContext._gateway.scratch.path  # type: ignore[union-attr]
        # Spark then reads one record of each partition.
        smallest = replace(self, settings=self.settings.model_copy(update={"max_records_per_batch": 1}))
        with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=scratch, ignore_cleanup_errors=True) as folder:
            query = (
                smallest.decide(spark)
                .writeStream.format("noop")
                .queryName(_REHEARSAL)
                .outputMode("append")
                .option("checkpointLocation", (Path(folder) / "checkpoint").as_uri())
                .trigger(processingTime="1 hour")
                .start()
            )
            until = time.monotonic() + _LONGEST_REHEARSAL_SECONDS
            try:
                while query.lastProgress is None:
                    if not query.isActive or time.monotonic() > until or over.wait(_REHEARSAL_POLL_SECONDS):
                        return False
                return True
            finally:
                query.stop()

    def decide(self, spark: SparkSession) -> DataFrame:
        """Return the decisions on all observed records, as rows for Kafka's sink."""
        set_defaults(spark, SMALL_BATCH_TUNING)
        routed = _routed(self._read(spark), self.prefix, self.host.clusters)
        if self.settings.shuffle_partitions == 1:
            # One state partition needs no shuffle: one stage less per batch.
            routed = routed.coalesce(1)
        outputs = routed.groupBy("policy", "cluster").transformWithState(
            statefulProcessor=PolicyOperator(self.host, self.prefix, self.settings.spark_internals, self.steps),
            outputStructType=OUTPUT_SCHEMA,
            outputMode="Append",
            timeMode="ProcessingTime",
        )
        header = fn.struct(fn.lit("content-type").alias("key"), fn.lit(CONTENT_TYPE).cast("binary").alias("value"))
        return outputs.withColumn("headers", fn.array(header))

    def _read(self, spark: SparkSession) -> DataFrame:
        reader = (
            spark.readStream.format("kafka")
            .options(**self._options)
            .option("subscribe", ",".join(f"{self.prefix}.{topic}" for topic in (*observed_topics(), TICKS)))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(self.settings.max_records_per_batch))
            # Spark asks for the newest offsets on the connection whose last fetch still waits for records, and Kafka
            # answers in turn. The default would cost each batch of a slow topic half a second. A batch reads only
            # records that exist already, so a fetch need not wait.
            .option("kafka.fetch.max.wait.ms", "1")
            # Readings are levels: the next one replaces those that retention deleted while the loop was down.
            .option("failOnDataLoss", "false")
            # A record of a transaction that was aborted was never published.
            .option("kafka.isolation.level", "read_committed")
        )
        return reader.load()

    @property
    def _options(self) -> dict[str, str]:
        """The client properties as Spark's connector names them."""
        return {f"kafka.{name}": value for name, value in self.kafka.items()}


def set_polling_interval(spark: SparkSession, interval_ms: int) -> int:
    """Set how often the session looks for records, and return the interval of its trigger in milliseconds.

    A trigger starts batches at multiples of its interval. If that is shorter than a batch, a batch with waiting records
    would still wait for the next multiple. So the trigger then starts batches at once (interval 0), and Spark waits
    only when it finds no record.
    """
    if interval_ms >= _SHORTEST_BATCH_MS:
        return interval_ms
    set_defaults(spark, {"spark.sql.streaming.pollingDelay": f"{max(interval_ms, _SHORTEST_WAIT_MS)}ms"})
    return 0


def _routed(records: DataFrame, prefix: str, clusters: frozenset[str] | None) -> DataFrame:
    """Add the state's keys to each record: the policies by topic, the cluster by content.

    A record that names no known cluster goes to the cluster '', so an invented name has no state. A record that is too
    large leaves the JVM only in part: a few kilobytes of compressed spaces may be gigabytes. A tick ends here: it
    has made the batch, in which every timer fires that is due.
    """
    value, size, appended = fn.col("value"), fn.length("value"), fn.unix_millis(fn.col("timestamp"))
    is_too_large = size > MAX_RECORD_BYTES
    named = fn.when(~is_too_large, fn.get_json_object(value.cast("string"), "$.data.cluster"))
    if clusters is not None:  # a column used twice would be parsed twice, which is a tenth of the JVM's work in a fleet
        named = fn.get(fn.filter(fn.array(named), lambda name: name.isin(sorted(clusters))), fn.lit(0))
    cut = fn.struct(size.alias("bytes"), fn.sha2(value, 256).alias("sha256"))
    routed = records.where(fn.col("topic") != f"{prefix}.{TICKS}").select(
        _readers(prefix, is_too_large).alias("policies"),
        fn.coalesce(named, fn.lit("")).alias("cluster"),
        fn.when(is_too_large, fn.substring(value, 1, KEPT_BYTES)).otherwise(value).alias("value"),
        "topic",
        "partition",
        "offset",
        appended.alias("appended_ms"),
        fn.when(is_too_large, cut).alias("cut"),
    )
    times = (fn.min("appended_ms").alias("oldest_ms"), fn.count(fn.lit(1)).alias("records"))
    observed = routed.observe(BATCH_TIMES, *times)
    # One row for each policy that reads the record.
    return observed.select(
        fn.explode("policies").alias("policy"), *(name for name in routed.columns if name != "policies")
    )


def _readers(prefix: str, is_too_large: Column) -> Column:
    """The policies that read the record's topic; for a command to any policy, the policy that it names."""
    text = fn.when(~is_too_large & (fn.col("topic") == f"{prefix}.{COMMANDS}"), fn.col("value").cast("string"))
    named = fn.get_json_object(text, "$.data.policy")
    is_for_any = fn.get_json_object(text, "$.type").isin([kind.event_type for kind in commands()])
    pairs = [
        column
        for topic, policies in topic_readers().items()
        for column in (fn.lit(f"{prefix}.{topic}"), fn.array(*map(fn.lit, policies)))
    ]
    of_topic = fn.create_map(*pairs)[fn.col("topic")]
    return fn.when(is_for_any & named.isin(sorted(POLICIES)), fn.array(named)).otherwise(of_topic)


# Spark's progress report after each micro-batch, for metrics and health.


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
    """Passes the progress of each batch of the query to a function, on a thread of Spark's."""

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
