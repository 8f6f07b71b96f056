"""Finds ledgers to import whose ids exist in the target: the precheck's join, for references that outgrow one machine.

A Spark batch over the inventories in ``observed.switches``. The driver receives counts, the smallest ids and one
manifest, whatever the size; everything else stays distributed, on disk if necessary.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from policies.observations import Outcome
from policies.switching.ledgers import NO_LEDGER, HitClass
from policies.switching.precheck.findings import SAMPLES
from policies.switching.precheck.report import HitSamples
from policies.switching.precheck.snapshot import PrecheckRules, TargetPolicy
from policies.switching.readings import SwitchInventory, SwitchInventoryPart
from policies.switching.references import LedgerKind
from policies.wire import MAX_RECORD_BYTES, BadRecordError, EventReader

_HEADER = "type STRING, data STRUCT<cluster: STRING, outcome: STRING, inventory: STRING, part: INT>"
_PART = """
    data STRUCT<
        references: ARRAY<STRUCT<kind: STRING, path: STRING, ledger_id: BIGINT, attribution: STRING>>,
        existing: ARRAY<STRUCT<ledger_id: BIGINT, provenance: STRING>>,
        target_ids: ARRAY<BIGINT>
    >,
    _corrupt STRING
"""
_SPLITS_PER_CORE = 4
"""One cluster's records are in one partition of the topic, which would otherwise be one task."""
_MOST_PARTITIONS = 200

_MANIFESTS: EventReader[SwitchInventory] = EventReader([SwitchInventory])


@dataclass(frozen=True, slots=True)
class Question:
    """The inventory to examine, and the user's rules for the switch."""

    cluster: str
    """The broker cluster."""
    source: str
    bootstrap: str
    """The cluster that references without attribution belong to."""
    rules: PrecheckRules
    source_instance: str | None = None
    """The source's ``INSTANCEID``; None: unknown, so that nothing in the target is known to be ours."""
    inventory: str | None = None
    """None: the newest one."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """No result: an inventory is used only if all of it is there."""

    inventory: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collisions:
    """The collisions of a complete inventory; equal to the precheck's result on the same data."""

    inventory: str
    target: str
    references: int
    to_import: int
    """Different ids."""
    target_ledgers: int
    """Ledgers of the target that the inventory lists."""
    hits: dict[HitClass, HitSamples]
    """Headgate's own copies count as partial: only their entries show whether they are complete."""
    greatest_id: int
    """The greatest id named outside the target; -1 when none is."""

    @property
    def free(self) -> bool:
        """Whether there is no foreign ledger with an id to import."""
        return not self.hits[HitClass.FOREIGN].count


def read_records(spark: SparkSession, kafka: Mapping[str, str], topic: str) -> DataFrame:
    """Read all present records of a topic.

    Args:
        spark: a session for this alone: its tuning is changed to that of a batch.
        kafka: client properties, as the Java client names them.
        topic: its full name.
    """
    tune(spark)
    reader = (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in kafka.items()})
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("minPartitions", str(_SPLITS_PER_CORE * spark.sparkContext.defaultParallelism))
        # If retention deletes a part meanwhile, the inventory is incomplete.
        .option("failOnDataLoss", "false")
    )
    return reader.load()


def tune(spark: SparkSession) -> None:
    """Undo the query's tuning: in a batch, adaptive execution chooses the number of partitions by the data."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", str(_MOST_PARTITIONS))


def find_collisions(records: DataFrame, question: Question) -> Collisions | Incomplete:
    """Join the references of an inventory with the target's ledgers.

    Args:
        records: columns ``value binary, partition int, offset bigint, timestamp timestamp``, as of Kafka.
        question: the inventory and the rules.
    """
    records = records.where(fn.length("value") <= MAX_RECORD_BYTES)
    headers = _headers(records, question.cluster).persist()
    try:
        inventory = question.inventory or _newest(headers)
        if inventory is None:
            return Incomplete(None, f"the topic has no inventory of {question.cluster}")
        of_it = _since_failure(headers.where(fn.col("inventory") == inventory))
        manifest = _manifest(of_it)
        if manifest is None:
            return Incomplete(inventory, "its manifest is not there")
        parts = of_it.where("part IS NOT NULL").groupBy("part").agg(fn.max("position").alias("position"))
        if lacking := _lacking(parts, manifest):
            return Incomplete(inventory, lacking)
        chosen = parts.select("position.partition", "position.offset")
        return _join(records.join(fn.broadcast(chosen), ["partition", "offset"], "left_semi"), manifest, question)
    finally:
        headers.unpersist()


# --- which records make the inventory


def _headers(records: DataFrame, cluster: str) -> DataFrame:
    """The header of each record of an inventory; of a manifest the whole record, which is small."""
    event = fn.from_json(fn.col("value").cast("string"), _HEADER)
    is_manifest = fn.col("event.type") == SwitchInventory.event_type
    is_part = (fn.col("event.type") == SwitchInventoryPart.event_type) & fn.col("event.data.part").isNotNull()
    return (
        records.select(event.alias("event"), "value", fn.struct("timestamp", "partition", "offset").alias("position"))
        .where((is_manifest | is_part) & (fn.col("event.data.cluster") == cluster))
        .select(
            "event.data.inventory",
            (fn.col("event.data.outcome") == Outcome.OK.value).alias("ok"),
            fn.when(is_part, fn.col("event.data.part")).alias("part"),
            fn.when(is_manifest, fn.col("value")).alias("manifest"),
            "position",
        )
        .where("inventory IS NOT NULL AND ok IS NOT NULL")
    )


def _newest(headers: DataFrame) -> str | None:
    """The newest inventory, complete or not: an older one may be outdated."""
    row = headers.orderBy(fn.desc("position")).select("inventory").first()
    return row.inventory if row is not None else None


def _since_failure(headers: DataFrame) -> DataFrame:
    """The records after the last failure, which discards all earlier ones, as it does for the policy."""
    failed = headers.where("NOT ok").agg(fn.max("position").alias("failed"))
    later = headers.crossJoin(fn.broadcast(failed)).where("failed IS NULL OR position > failed")
    return later.drop("failed")


def _manifest(headers: DataFrame) -> SwitchInventory | None:
    """The last manifest, read as the policy reads it; None if it is missing or unreadable."""
    row = headers.where("manifest IS NOT NULL").orderBy(fn.desc("position")).select("manifest").first()
    try:
        return _MANIFESTS.read(bytes(row.manifest)).data if row is not None else None
    except BadRecordError:
        return None


def _lacking(parts: DataFrame, manifest: SwitchInventory) -> str | None:
    """Say which parts are missing of the manifest's 0, 1, …; None: all are there."""
    numbers = _only(parts.agg(fn.count("*").alias("count"), fn.min("part").alias("min"), fn.max("part").alias("max")))
    wanted = (manifest.parts, 0, manifest.parts - 1) if manifest.parts else (0, None, None)
    if (numbers["count"], numbers["min"], numbers["max"]) == wanted:
        return None
    return f"{numbers['count']} parts are there, and its manifest tells of {manifest.parts}"


# --- the join


def _join(records: DataFrame, manifest: SwitchInventory, question: Question) -> Collisions | Incomplete:
    mentions = _mentions(records, manifest.target, question)
    by_id = _by_id(mentions, question.rules.policy).persist()
    try:
        totals = _totals(by_id)
        if detail := _gaps(totals, manifest, question.rules.policy):
            return Incomplete(manifest.inventory, detail)
        counts = {HitClass.OURS_COMPLETE: 0, HitClass.OURS_PARTIAL: totals.ours, HitClass.FOREIGN: totals.foreign}
        return Collisions(
            inventory=manifest.inventory,
            target=manifest.target,
            references=totals.references,
            to_import=totals.to_import,
            target_ledgers=totals.target_ledgers,
            hits={hit: HitSamples(count, _samples(by_id, hit) if count else ()) for hit, count in counts.items()},
            greatest_id=totals.greatest_id if totals.greatest_id is not None else NO_LEDGER,
        )
    finally:
        by_id.unpersist()


def _mentions(records: DataFrame, target: str, question: Question) -> DataFrame:
    """One row wherever a part mentions a ledger, and one without a ledger for each part.

    References and ledgers go into one set of rows so that a part is read once, and grouping joins them.
    """
    options = {"columnNameOfCorruptRecord": "_corrupt"}
    parts = records.select(fn.from_json(fn.col("value").cast("string"), _PART, options).alias("event")).select(
        "event._corrupt",
        _array("references").alias("references"),
        _array("existing").alias("existing"),
        fn.col("event.data.target_ids").alias("target_ids"),
    )
    mentions = fn.concat(
        fn.transform("references", lambda each: _reference(each, target, question)),
        fn.transform("existing", lambda each: _existing(each, question.source_instance)),
        fn.transform(
            fn.coalesce("target_ids", fn.array()), lambda ledger_id: _mention(ledger_id, exists=fn.expr("TRUE"))
        ),
        fn.array(_mention(fn.lit(None), sound=_is_sound(), listed=fn.col("target_ids").isNotNull())),
    )
    return parts.select(fn.inline(mentions))


_FIELDS = {
    "is_reference": "boolean",
    "wanted": "boolean",
    "outside": "boolean",
    "exists": "boolean",
    "ours": "boolean",
    "sound": "boolean",
    "listed": "boolean",
}


def _mention(ledger_id: Column, **known: Column) -> Column:
    fields = (known.get(name, fn.lit(None)).cast(kind).alias(name) for name, kind in _FIELDS.items())
    return fn.struct(ledger_id.cast("bigint").alias("ledger_id"), *fields)


def _reference(reference: Column, target: str, question: Question) -> Column:
    owner = fn.coalesce(reference["attribution"], fn.lit(question.bootstrap))
    names_one = reference["ledger_id"] != NO_LEDGER
    remapped = [kind.value for kind in question.rules.remapped]
    return _mention(
        reference["ledger_id"],
        is_reference=fn.expr("TRUE"),
        wanted=names_one & (owner == question.source) & ~reference["kind"].isin(remapped),
        outside=owner != target,
    )


def _existing(ledger: Column, source_instance: str | None) -> Column:
    """A ledger is ours if the executor's own journal has it as a copy from this source; all others are foreign."""
    ours = fn.coalesce(ledger["provenance"] == fn.lit(source_instance), fn.expr("FALSE"))
    return _mention(ledger["ledger_id"], exists=fn.expr("TRUE"), ours=ours)


def _array(name: str) -> Column:
    return fn.coalesce(fn.col(f"event.data.{name}"), fn.array())


def _is_sound() -> Column:
    """Whether a part can be read to its last field, so that no ledger in it is overlooked."""
    kinds = [kind.value for kind in LedgerKind]
    return (
        fn.col("_corrupt").isNull()
        & fn.forall("references", lambda each: each["kind"].isin(kinds) & each["path"].isNotNull() & _is_id(each))
        & fn.forall("existing", _is_id)
        & fn.forall(fn.coalesce("target_ids", fn.array()), lambda ledger_id: ledger_id.isNotNull())
    )


def _is_id(each: Column) -> Column:
    return each["ledger_id"].isNotNull() & (each["ledger_id"] >= NO_LEDGER)


def _by_id(mentions: DataFrame, policy: TargetPolicy) -> DataFrame:
    """Group the mentions of each ledger id. A ledger is ours if all its mentions say so."""
    grouped = mentions.groupBy("ledger_id").agg(
        fn.count_if("is_reference").alias("references"),
        fn.count("sound").alias("parts"),
        fn.bool_and("sound").alias("sound"),
        fn.bool_and("listed").alias("listed"),
        *(fn.coalesce(fn.bool_or(name), fn.expr("FALSE")).alias(name) for name in ("wanted", "outside", "exists")),
        fn.coalesce(fn.bool_and("ours"), fn.expr("FALSE")).alias("ours"),
    )
    in_the_way = fn.col("exists") if policy is TargetPolicy.DEDICATED else fn.col("exists") & fn.col("wanted")
    hit = fn.when(fn.col("ours"), HitClass.OURS_PARTIAL.value).otherwise(HitClass.FOREIGN.value)
    return grouped.withColumn("hit", fn.when(in_the_way, hit))


def _totals(by_id: DataFrame) -> Row:
    return _only(
        by_id.agg(
            fn.coalesce(fn.sum("references"), fn.lit(0)).alias("references"),
            fn.coalesce(fn.sum("parts"), fn.lit(0)).alias("parts"),
            fn.bool_and("sound").alias("sound"),
            fn.bool_and("listed").alias("listed"),
            fn.count_if("wanted").alias("to_import"),
            fn.count_if("exists").alias("target_ledgers"),
            fn.max(fn.when(fn.col("outside"), fn.col("ledger_id"))).alias("greatest_id"),
            fn.count_if(fn.col("hit") == HitClass.OURS_PARTIAL.value).alias("ours"),
            fn.count_if(fn.col("hit") == HitClass.FOREIGN.value).alias("foreign"),
        )
    )


def _gaps(totals: Row, manifest: SwitchInventory, policy: TargetPolicy) -> str | None:
    """Why the inventory is incomplete after all; None: it is complete."""
    if totals.parts != manifest.parts:
        return f"{totals.parts} parts could be read, and its manifest tells of {manifest.parts}"
    if totals.sound is False:
        return "a part of it cannot be read"
    if totals.references != manifest.references:
        return f"{totals.references} references are there, and its manifest tells of {manifest.references}"
    if not manifest.target:
        return "it does not say which of the ledgers exist in a target"
    if policy is TargetPolicy.DEDICATED and not totals.listed:
        return f"a dedicated target must be listed whole; {manifest.target} was not"
    return None


def _samples(by_id: DataFrame, hit: HitClass) -> tuple[int, ...]:
    least = by_id.where(fn.col("hit") == hit.value).orderBy("ledger_id").limit(SAMPLES).select("ledger_id").collect()
    return tuple(row.ledger_id for row in least)


def _only(aggregate: DataFrame) -> Row:
    return aggregate.collect()[0]
