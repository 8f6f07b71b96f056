"""The query: reads all observed topics and writes every policy's decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from policies.registry import COMMANDS, POLICIES, TO_EVERY_POLICY, observed_topics
from policies.signatures import HEADER, Signatures
from policies.timers import TICKS
from policies.units import millis_of
from policies.wire import CONTENT_TYPE, MAX_RECORD_BYTES
from streaming.batch_clock import BatchClock
from streaming.checkpoint_place import CheckpointPlace
from streaming.conf import OF_SMALL_BATCHES
from streaming.dead_letters import KEPT_BYTES
from streaming.host import PolicyHost
from streaming.operator import OUTPUT_SCHEMA, PolicyOperator
from streaming.session import set_unless_said
from streaming.settings import StreamSettings

QUERY_NAME = "headgate"
BATCH_TIMES = "batch_times"
"""Name of the observed metric that says how many observed records a batch has, and how old they are."""

_LARGEST_REQUEST_BYTES = 8 * 1024 * 1024
"""Room for the largest audit entry: no record is larger."""

_SHORTEST_BATCH_MS = 60
_SHORTEST_WAIT_MS = 10


@dataclass(frozen=True)
class Wiring:
    """Where the query reads and writes.

    Args:
        kafka: client properties of the loop's own Kafka, as the Java client names them.
        prefix: of all topics.
        checkpoint_dir: where state and position are kept; as text, a URI.
        clock: what batches' times are corrected by.
        signatures: by which records are believed, and signed; None: nobody signs.
    """

    kafka: Mapping[str, str]
    prefix: str
    checkpoint_dir: Path | str
    clock: BatchClock = field(default_factory=BatchClock)
    signatures: Signatures | None = None

    def options(self) -> dict[str, str]:
        """The client properties as Spark's connector wants them."""
        return {f"kafka.{name}": value for name, value in self.kafka.items()}


def start_query(spark: SparkSession, wiring: Wiring, host: PolicyHost, settings: StreamSettings) -> StreamingQuery:
    """Start the query from its checkpoint, or from the oldest records when there is none."""
    writer = (
        decided(spark, wiring, host, settings)
        .writeStream.format("kafka")
        .queryName(QUERY_NAME)
        .outputMode("append")
        .options(**wiring.options())
        .option("kafka.acks", "all")
        .option("kafka.max.request.size", str(_LARGEST_REQUEST_BYTES))
        .option("checkpointLocation", CheckpointPlace.of(wiring.checkpoint_dir).uri)
        .trigger(processingTime=f"{look_every(spark, millis_of(settings.trigger_interval))} milliseconds")
    )
    return writer.start()


def look_every(spark: SparkSession, interval_ms: int) -> int:
    """Have a session look for records so often; gives how many milliseconds apart its trigger is to start batches.

    It starts them at multiples of an interval. Where that is shorter than a batch, one that follows another would wait
    for the next multiple and gain nothing by it: then Spark is to start at once, and to wait where there is no record.
    """
    if interval_ms >= _SHORTEST_BATCH_MS:
        return interval_ms
    set_unless_said(spark, {"spark.sql.streaming.pollingDelay": f"{max(interval_ms, _SHORTEST_WAIT_MS)}ms"})
    return 0


def decided(spark: SparkSession, wiring: Wiring, host: PolicyHost, settings: StreamSettings) -> DataFrame:
    """All that is decided on what is observed, as Kafka's sink takes it."""
    set_unless_said(spark, OF_SMALL_BATCHES)
    routed = _routed(_source(spark, wiring, settings), wiring, host.clusters)
    if settings.shuffle_partitions == 1:
        # With one state partition there is nothing to shuffle: one stage less in each batch.
        routed = routed.coalesce(1)
    outputs = routed.groupBy("policy", "cluster").transformWithState(
        statefulProcessor=PolicyOperator(host, wiring.prefix, wiring.clock, wiring.signatures),
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Append",
        timeMode="ProcessingTime",
    )
    return outputs.withColumn("headers", _headers()).drop("signature")


def _source(spark: SparkSession, wiring: Wiring, settings: StreamSettings) -> DataFrame:
    topics = ",".join(f"{wiring.prefix}.{topic}" for topic in (*observed_topics(), TICKS))
    reader = (
        spark.readStream.format("kafka")
        .options(**wiring.options())
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.max_records_per_batch))
        # Spark asks for the newest offsets on the connection that still awaits records nobody will send before the next
        # batch; Kafka answers in turn, so half a second (the default) would be lost in each batch of a slow topic. A
        # batch reads only what is there already, so it never waits for more.
        .option("kafka.fetch.max.wait.ms", "1")
        # Readings are levels: what retention deleted while the loop was down is replaced by the next reading.
        .option("failOnDataLoss", "false")
        .option("includeHeaders", str(wiring.signatures is not None).lower())
    )
    return reader.load()


def _routed(records: DataFrame, wiring: Wiring, clusters: frozenset[str] | None) -> DataFrame:
    """With the key of its state: the policy by topic, the cluster by content.

    What names no cluster there is goes to the key '': no name that anybody invents has a state. What is too large to be
    read does not leave the JVM whole: a few kilobytes of compressed spaces may be gigabytes. A tick ends here, unless
    it names a key: that it came has made the batch, in which every timer fires that is due.
    """
    is_tick = fn.col("topic") == f"{wiring.prefix}.{TICKS}"
    of_tick = fn.get_json_object(fn.when(is_tick, fn.col("value").cast("string")), "$.data.policy")
    value, size, appended = fn.col("value"), fn.length("value"), fn.unix_millis(fn.col("timestamp"))
    is_too_large = size > MAX_RECORD_BYTES
    named = fn.when(~is_too_large, fn.get_json_object(value.cast("string"), "$.data.cluster"))
    known = named if clusters is None else fn.when(named.isin(sorted(clusters)), named)
    cut = fn.struct(size.alias("bytes"), fn.sha2(value, 256).alias("sha256"))
    routed = records.where(~is_tick | of_tick.isin(sorted(POLICIES))).select(
        fn.when(is_tick, of_tick).otherwise(_policy(wiring.prefix, is_too_large)).alias("policy"),
        fn.coalesce(known, fn.lit("")).alias("cluster"),
        fn.when(is_too_large, fn.substring(value, 1, KEPT_BYTES)).otherwise(value).alias("value"),
        "topic",
        "partition",
        "offset",
        appended.alias("appended_ms"),
        fn.when(is_too_large, cut).alias("cut"),
        *(() if wiring.signatures is None else ("key", _signature().alias("signature"))),
    )
    times = (
        fn.min("appended_ms").alias("oldest_ms"),
        fn.max("appended_ms").alias("newest_ms"),
        fn.count(fn.lit(1)).alias("records"),
    )
    return routed.observe(BATCH_TIMES, *times)


def _headers() -> Column:
    """What the record's value is, as CloudEvents wants it said beside it, and its signature where it has one."""
    content_type, signature = _header("content-type", fn.lit(CONTENT_TYPE)), _header(HEADER, fn.col("signature"))
    return fn.when(fn.col("signature").isNull(), fn.array(content_type)).otherwise(fn.array(content_type, signature))


def _header(name: str, value: Column) -> Column:
    return fn.struct(fn.lit(name).alias("key"), value.cast("binary").alias("value"))


def _signature() -> Column:
    """The header as it came; the last one, where somebody added another."""
    found = fn.filter("headers", lambda header: header["key"] == HEADER)
    return fn.try_element_at(found, fn.lit(-1))["value"].cast("string")


def _policy(prefix: str, is_too_large: Column) -> Column:
    """The one its topic belongs to; of a command to any policy the one it names."""
    text = fn.when(~is_too_large & (fn.col("topic") == f"{prefix}.{COMMANDS}"), fn.col("value").cast("string"))
    named = fn.get_json_object(text, "$.data.policy")
    is_for_any = fn.get_json_object(text, "$.type").isin([kind.event_type for kind in TO_EVERY_POLICY])
    return fn.when(is_for_any & named.isin(sorted(POLICIES)), named).otherwise(_policy_of_topic(prefix))


def _policy_of_topic(prefix: str) -> Column:
    pairs = [fn.lit(text) for topic, policy in observed_topics().items() for text in (f"{prefix}.{topic}", policy)]
    return fn.create_map(*pairs)[fn.col("topic")]
