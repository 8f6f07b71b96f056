"""The one query: all observed topics in, every policy's decisions out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from policies.registry import observed_topics
from policies.timers import TICKS
from policies.units import millis_of
from policies.wire import CONTENT_TYPE
from streaming.host import PolicyHost
from streaming.operator import OUTPUT_SCHEMA, PolicyOperator
from streaming.settings import StreamSettings

QUERY_NAME = "headgate"
BATCH_TIMES = "batch_times"
"""Name of the observed metric that says how many observed records a batch has, and how old they are."""

_LARGEST_REQUEST_BYTES = 8 * 1024 * 1024
"""Room for the largest audit entry: no record is larger."""


@dataclass(frozen=True)
class Wiring:
    """Where the query reads and writes.

    Args:
        kafka: client properties of the loop's own Kafka, as the Java client names them.
        prefix: of all topics.
        checkpoint_dir: where state and position are kept.
    """

    kafka: Mapping[str, str]
    prefix: str
    checkpoint_dir: Path

    def options(self) -> dict[str, str]:
        """The client properties as Spark's connector wants them."""
        return {f"kafka.{name}": value for name, value in self.kafka.items()}


def start_query(spark: SparkSession, wiring: Wiring, host: PolicyHost, settings: StreamSettings) -> StreamingQuery:
    """Start the query from its checkpoint, or from the oldest records when there is none."""
    keyed = _routed(_source(spark, wiring, settings), wiring.prefix).groupBy("policy", "cluster")
    decided = keyed.transformWithState(
        statefulProcessor=PolicyOperator(host, wiring.prefix),
        outputStructType=OUTPUT_SCHEMA,
        outputMode="Append",
        timeMode="ProcessingTime",
    )
    writer = (
        decided.withColumn("headers", _content_type())
        .writeStream.format("kafka")
        .queryName(QUERY_NAME)
        .outputMode("append")
        .options(**wiring.options())
        .option("kafka.acks", "all")
        .option("kafka.max.request.size", str(_LARGEST_REQUEST_BYTES))
        .option("checkpointLocation", str(wiring.checkpoint_dir))
        .trigger(processingTime=f"{millis_of(settings.trigger_interval)} milliseconds")
    )
    return writer.start()


def _source(spark: SparkSession, wiring: Wiring, settings: StreamSettings) -> DataFrame:
    topics = ",".join(f"{wiring.prefix}.{topic}" for topic in (*observed_topics(), TICKS))
    reader = (
        spark.readStream.format("kafka")
        .options(**wiring.options())
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.max_records_per_batch))
        # Spark asks for the newest offsets on the connection that still awaits records nobody will send before the next
        # batch; Kafka answers in turn, so half a second (the default) would be lost in each batch of a slow topic.
        .option("kafka.fetch.max.wait.ms", "10")
        # Readings are levels: what retention deleted while the loop was down is replaced by the next reading.
        .option("failOnDataLoss", "false")
    )
    return reader.load()


def _routed(records: DataFrame, prefix: str) -> DataFrame:
    """With the key of its state: the policy by topic, the cluster by content (a record without one has the key '').

    A tick ends here: that it came has made the batch, in which every timer fires that is due.
    """
    appended = fn.unix_millis(fn.col("timestamp"))
    routed = records.where(fn.col("topic") != f"{prefix}.{TICKS}").select(
        _policy_of_topic(prefix).alias("policy"),
        fn.coalesce(fn.get_json_object(fn.col("value").cast("string"), "$.data.cluster"), fn.lit("")).alias("cluster"),
        "value",
        "topic",
        "partition",
        "offset",
        appended.alias("appended_ms"),
    )
    return routed.observe(BATCH_TIMES, fn.min("appended_ms").alias("oldest_ms"), fn.count(fn.lit(1)).alias("records"))


def _content_type() -> Column:
    """What the record's value is, as CloudEvents wants it said beside it."""
    value = fn.lit(CONTENT_TYPE).cast("binary")
    return fn.array(fn.struct(fn.lit("content-type").alias("key"), value.alias("value")))


def _policy_of_topic(prefix: str) -> Column:
    pairs = [fn.lit(text) for topic, policy in observed_topics().items() for text in (f"{prefix}.{topic}", policy)]
    return fn.create_map(*pairs)[fn.col("topic")]
