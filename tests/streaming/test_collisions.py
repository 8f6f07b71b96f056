"""The collision join in a real Spark session, on rows as Kafka's source gives them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from connectors.switching.inventory import make_inventory
from deploy.java.jars import default_cache_dir, ensure_jars, spark_group
from policies.observations import Outcome, Reading
from policies.switching.clusters import ClusterSnapshot
from policies.switching.id_generators import IdGenerator
from policies.switching.ledger_paths import Layout
from policies.switching.ledgers import CopyIntent, HitClass, Ledger, LedgerState
from policies.switching.precheck.report import HitSamples, precheck
from policies.switching.precheck.snapshot import PrecheckRules, PrecheckSnapshot, TargetLedgers, TargetPolicy
from policies.switching.readings import SwitchInventory, SwitchInventoryPart
from policies.switching.references import LedgerKind, Reference
from policies.units import from_millis
from policies.wire import observation_event
from streaming.collisions import Collisions, Incomplete, Question, find_collisions
from streaming.conf import SMALL_BATCH_TUNING
from streaming.session import set_defaults, start_session, stop_session
from streaming.settings import StreamSettings
from tests.examples import examples

pytestmark = pytest.mark.streaming

CLUSTER, OLD, NEW, OTHER = "c1", "uuid-old", "uuid-new", "uuid-other"
SHARED = PrecheckRules(policy=TargetPolicy.SHARED, validity_ms=60_000)
DEDICATED = replace(SHARED, policy=TargetPolicy.DEDICATED)
QUESTION = Question(CLUSTER, "old", "old", SHARED, OLD)
NOW_MS = 1_700_000_000_000
SCHEMA = "value binary, partition int, offset bigint, timestamp timestamp"


@pytest.fixture(scope="module")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    jars = ensure_jars(spark_group(), default_cache_dir())  # an archive of classes is for all of its class path
    session = start_session(StreamSettings(driver_memory="512m"), jars, tmp_path_factory.mktemp("spark") / "spark.log")
    # Not as for millions of records (`tune`): what takes long here is to plan a job, and to plan it anew.
    set_defaults(session, SMALL_BATCH_TUNING)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    yield session
    stop_session(session)


def cursor(number: int, ledger_id: int | None = None, attribution: str | None = None) -> Reference:
    where = f"/managed-ledgers/t/n/persistent/topic-{number}/s"
    return Reference(LedgerKind.CURSOR, where, number if ledger_id is None else ledger_id, attribution)


def ledger(ledger_id: int, **more: Any) -> Ledger:
    plain: dict[str, Any] = {"state": LedgerState.CLOSED, "last_entry_id": 0, "length_bytes": 7, "created_ms": 1}
    return Ledger(ledger_id=ledger_id, **(plain | more))


def by_id(*ledgers: Ledger) -> dict[int, Ledger]:
    return {each.ledger_id: each for each in ledgers}


def told(
    references: Iterable[Reference],
    existing: Mapping[int, Ledger] | None = None,
    target_ids: Iterable[int] | None = None,
    inventory: str = "i1",
    target: str = "new",
) -> list[Reading]:
    return list(make_inventory(CLUSTER, inventory, references, existing or {}, target, 0, target_ids=target_ids))


def small_parts(readings: Sequence[Reading], size: int) -> list[Reading]:
    """The same inventory in parts of fewer references, and one for each ledger."""
    parts = [r for r in readings if isinstance(r, SwitchInventoryPart)]
    references = [r for p in parts for r in p.references]
    chunks: list[dict[str, Any]] = [
        {"references": tuple(references[i : i + size])} for i in range(0, len(references), size)
    ]
    ledgers = [{"existing": (ledger,)} for p in parts for ledger in p.existing]
    ids = [{"target_ids": p.target_ids} for p in parts]
    empty = {"references": (), "existing": (), "target_ids": None if parts[0].target_ids is None else ()}
    again: list[Reading] = [
        parts[0].model_copy(update={**empty, **content, "part": number})
        for number, content in enumerate((*chunks, *ledgers, *ids))
    ]
    return [*again, readings[-1].model_copy(update={"parts": len(again)})]


def record(reading: Reading) -> bytes:
    return observation_event(reading, id="e", source="test", time=from_millis(NOW_MS))


def rows(spark: SparkSession, values: Iterable[Reading | bytes | None]) -> DataFrame:
    """Records as they lie in a partition, a millisecond apart."""
    return spark.createDataFrame(
        [
            (
                bytearray(record(value)) if isinstance(value, Reading) else value and bytearray(value),
                0,
                offset,
                from_millis(NOW_MS) + timedelta(milliseconds=offset),
            )
            for offset, value in enumerate(values)
        ],
        SCHEMA,
    )


def found(
    spark: SparkSession, values: Iterable[Reading | bytes | None], question: Question = QUESTION
) -> Collisions | Incomplete:
    return find_collisions(rows(spark, values), question)


def whole(spark: SparkSession, values: Iterable[Reading | bytes | None], question: Question = QUESTION) -> Collisions:
    result = found(spark, values, question)
    assert isinstance(result, Collisions), result
    return result


REFERENCES = [cursor(n) for n in range(1, 31)]
PLAIN = small_parts(told(REFERENCES, by_id(ledger(7), ledger(20))), 4)


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> Collisions:
    """What is found in the plain set."""
    return whole(spark, PLAIN)


# --- what it finds


def test_a_ledger_that_exists_under_an_id_to_import_is_a_collision(plain: Collisions) -> None:
    assert not plain.free
    assert plain.hits == {
        HitClass.OURS_COMPLETE: HitSamples(),
        HitClass.OURS_PARTIAL: HitSamples(),
        HitClass.FOREIGN: HitSamples(2, (7, 20)),
    }
    assert (plain.references, plain.to_import, plain.target_ledgers, plain.greatest_id) == (30, 30, 2, 30)
    assert (plain.inventory, plain.target) == ("i1", "new")


def test_ids_that_are_free_are_no_collision(spark: SparkSession) -> None:
    assert whole(spark, told(REFERENCES)).free


def test_one_entry_ledgers_that_look_alike_are_foreign_all_the_same(spark: SparkSession) -> None:
    """Same id, one entry, same length, same metadata: what the precheck's spec calls no proof."""
    twin = ledger(7, last_entry_id=0, length_bytes=7, entries_digest="sha256:same")
    assert whole(spark, told(REFERENCES, by_id(twin))).hits[HitClass.FOREIGN] == HitSamples(1, (7,))


PROVENANCES = [
    ("not looked", None, HitClass.FOREIGN),
    ("not in the journal", "", HitClass.FOREIGN),
    ("from another source", OTHER, HitClass.FOREIGN),
    ("from this source", OLD, HitClass.OURS_PARTIAL),
]


@pytest.mark.parametrize(
    ("provenance", "hit"), [case[1:] for case in PROVENANCES], ids=[case[0] for case in PROVENANCES]
)
def test_ours_is_what_the_executors_journal_confirms(
    spark: SparkSession, provenance: str | None, hit: HitClass
) -> None:
    result = whole(spark, told(REFERENCES, by_id(ledger(7, provenance=provenance))))
    assert result.hits[hit] == HitSamples(1, (7,))
    assert sum(hits.count for hits in result.hits.values()) == 1
    unknown_source = replace(QUESTION, source_instance=None)
    blind = whole(spark, told(REFERENCES, by_id(ledger(7, provenance=provenance))), unknown_source)
    assert blind.hits[HitClass.FOREIGN].count == 1


def test_a_ledger_that_one_record_calls_ours_and_another_does_not_is_foreign(spark: SparkSession) -> None:
    part, _ = told([cursor(7)], by_id(ledger(7, provenance=OLD)))
    other, manifest = told([], by_id(ledger(7, provenance="")))
    both = [part, other.model_copy(update={"part": 1}), manifest.model_copy(update={"parts": 2, "references": 1})]
    assert whole(spark, both, QUESTION).hits[HitClass.FOREIGN] == HitSamples(1, (7,))


def test_the_ten_least_ids_stand_for_all(spark: SparkSession) -> None:
    existing = by_id(*(ledger(n) for n in range(30, 4, -1)))
    assert whole(spark, told(REFERENCES, existing)).hits[HitClass.FOREIGN] == HitSamples(26, tuple(range(5, 15)))


def test_an_id_alone_is_enough_to_collide(spark: SparkSession) -> None:
    result = whole(spark, told(REFERENCES, {}, target_ids=[99, 7]))
    assert (result.hits[HitClass.FOREIGN], result.target_ledgers) == (HitSamples(1, (7,)), 2)


def test_in_a_dedicated_target_every_foreign_ledger_is_in_the_way(spark: SparkSession) -> None:
    question = replace(QUESTION, rules=DEDICATED)
    result = whole(spark, told(REFERENCES, by_id(ledger(3, provenance=OLD)), target_ids=[3, 7, 99]), question)
    assert result.hits[HitClass.FOREIGN] == HitSamples(2, (7, 99))
    assert result.hits[HitClass.OURS_PARTIAL] == HitSamples(1, (3,))


# --- which set it uses


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_order_does_not_matter(spark: SparkSession, plain: Collisions, seed: int) -> None:
    shuffled = list(PLAIN)
    Random(seed).shuffle(shuffled)
    assert found(spark, shuffled) == plain


def test_repeated_records_count_once_and_the_last_one_counts(spark: SparkSession, plain: Collisions) -> None:
    stale = [
        part.model_copy(update={"references": part.references[:1], "existing": ()})
        for part in PLAIN
        if isinstance(part, SwitchInventoryPart)
    ]
    assert found(spark, [*stale, *PLAIN, *PLAIN, PLAIN[2]]) == plain


FIRST_MIDDLE_LAST = (0, len(PLAIN) // 2, len(PLAIN) - 1)


@pytest.mark.parametrize(
    "lost", [pytest.param(n, marks=[] if n in FIRST_MIDDLE_LAST else pytest.mark.long) for n in range(len(PLAIN))]
)
def test_without_any_one_of_its_records_there_is_no_result(spark: SparkSession, lost: int) -> None:
    result = found(spark, PLAIN[:lost] + PLAIN[lost + 1 :])
    assert isinstance(result, Incomplete), result
    assert result.inventory == "i1"


def changed(reading: Reading, **data: Any) -> bytes:
    event = json.loads(record(reading))
    event["data"] |= data
    return json.dumps(event).encode()


def failed(reading: Reading) -> Reading:
    return reading.model_copy(update={"outcome": Outcome.UNREACHABLE})


LEDGER = {"ledger_id": 7, "state": "closed", "last_entry_id": 0, "length_bytes": 7}
CURSOR = {"kind": "cursor", "path": "/p", "ledger_id": 1}
FEW = told(REFERENCES[:1], by_id(ledger(7)), target_ids=[7])
PART, MANIFEST = FEW

UNUSABLE: list[tuple[str, list[Reading | bytes | None]]] = [
    ("nothing", []),
    ("another cluster's", [reading.model_copy(update={"cluster": "c2"}) for reading in FEW]),
    ("garbage in place of a part", [b"\xff{", MANIFEST]),
    ("no value in place of a part", [None, MANIFEST]),
    ("a part cut short", [record(PART)[:-9], MANIFEST]),
    ("an id that is text", [changed(PART, references=[CURSOR | {"ledger_id": "x"}]), MANIFEST]),
    ("an id beyond 64 bits", [changed(PART, references=[CURSOR | {"ledger_id": 2**70}]), MANIFEST]),
    ("an id below all", [changed(PART, references=[CURSOR | {"ledger_id": -2}]), MANIFEST]),
    ("an unknown kind", [changed(PART, references=[CURSOR | {"kind": "topic"}]), MANIFEST]),
    ("no id of a ledger", [changed(PART, existing=[LEDGER | {"ledger_id": None}]), MANIFEST]),
    ("a ledger that is none", [changed(PART, existing=["x"]), MANIFEST]),
    ("ledgers that are none", [changed(PART, existing="x"), MANIFEST]),
    ("ids that are none", [changed(PART, target_ids=["x"]), MANIFEST]),
    ("references that are none", [changed(PART, references=7), MANIFEST]),
    ("a part of a failure", [failed(PART), MANIFEST]),
    ("a failed manifest", [PART, failed(MANIFEST)]),
    ("a failure later on", [*FEW, failed(MANIFEST)]),
    ("a manifest that cannot be read", [PART, changed(MANIFEST, parts="x")]),
    ("a manifest of fewer references", [PART, changed(MANIFEST, references=0)]),
    ("a manifest of more references", [PART, changed(MANIFEST, references=2)]),
    ("a manifest of fewer parts", [PART, changed(MANIFEST, parts=0)]),
    ("a part that its manifest does not know", [PART, PART.model_copy(update={"part": 1}), MANIFEST]),
    ("a part under another number", [PART.model_copy(update={"part": 1}), MANIFEST]),
    ("a target that nobody asked", [PART, changed(MANIFEST, target="")]),
    ("a newer one without its manifest", [*FEW, PART.model_copy(update={"inventory": "i2"})]),
]


@pytest.mark.parametrize("values", [case[1] for case in UNUSABLE], ids=[case[0] for case in UNUSABLE])
def test_a_set_that_is_not_whole_gives_no_result(spark: SparkSession, values: list[Reading | bytes | None]) -> None:
    assert isinstance(found(spark, values), Incomplete)


def test_the_set_those_were_made_of_is_whole(spark: SparkSession) -> None:
    assert whole(spark, FEW).target_ledgers == 1


def test_a_dedicated_target_that_was_not_listed_gives_no_result(spark: SparkSession) -> None:
    result = found(spark, PLAIN, replace(QUESTION, rules=DEDICATED))
    assert isinstance(result, Incomplete)
    assert result.detail == "a dedicated target must be listed whole; new was not"


def test_what_is_told_anew_after_a_failure_counts(spark: SparkSession, plain: Collisions) -> None:
    assert found(spark, [*PLAIN, failed(PLAIN[-1]), *PLAIN]) == plain


def test_the_newest_inventory_is_taken_unless_one_is_named(spark: SparkSession) -> None:
    values = [*told(REFERENCES[:2], {}, inventory="a"), *told(REFERENCES[:3], {}, inventory="b")]
    assert whole(spark, values).references == 3
    assert whole(spark, values, replace(QUESTION, inventory="a")).references == 2
    assert isinstance(found(spark, values, replace(QUESTION, inventory="z")), Incomplete)


def test_other_records_of_the_topic_do_not_matter(spark: SparkSession, plain: Collisions) -> None:
    others: list[Reading | bytes | None] = [None, b"{", b"[1]", failed(SwitchInventory(
        cluster=CLUSTER, outcome=Outcome.OK, inventory="i0")).model_copy(update={"cluster": "c2"})]  # fmt: skip
    assert found(spark, [*others, *PLAIN, *others]) == plain


# --- the precheck says the same

CLUSTERS = st.sampled_from([None, "old", "new", "older"])
FLEETS = st.lists(
    st.builds(
        Reference,
        st.sampled_from(LedgerKind),
        st.integers(0, 99).map(lambda n: f"/p{n}"),
        st.integers(-1, 25) | st.just(2**63 - 1),
        CLUSTERS,
    ),
    max_size=30,
)
TARGETS = st.dictionaries(st.integers(0, 30), st.sampled_from([None, "", OLD, OTHER, "id alone"]), max_size=15)
RULES = st.builds(
    PrecheckRules,
    policy=st.sampled_from(TargetPolicy),
    validity_ms=st.just(60_000),
    remapped=st.frozensets(st.sampled_from(LedgerKind)),
)


def cluster(name: str, instance_id: str) -> ClusterSnapshot:
    generator = IdGenerator(None, 2, 0)
    return ClusterSnapshot(
        name=name, instance_id=instance_id, root="/ledgers", layout=Layout.HIERARCHICAL, generator=generator,
        read_ms=NOW_MS,
    )  # fmt: skip


@examples(0.6)  # each is a job of Spark
@given(references=FLEETS, target=TARGETS, rules=RULES, size=st.integers(1, 9))
def test_the_batch_finds_what_the_precheck_finds(
    spark: SparkSession, references: list[Reference], target: dict[int, str | None], rules: PrecheckRules, size: int
) -> None:
    facts = {i: ledger(i, provenance=said) for i, said in target.items() if said != "id alone"}
    journal = {i: CopyIntent(i, said, NEW, NOW_MS) for i, said in target.items() if said in (OLD, OTHER)}
    listed = TargetLedgers(ids=frozenset(target), read_ms=NOW_MS, listed=True, facts=facts)
    report = precheck(
        PrecheckSnapshot(
            source=cluster("old", OLD), target=cluster("new", NEW), references=tuple(references),
            references_complete=True, references_ms=NOW_MS, bootstrap="old", existing=listed, journal=journal,
        ),
        rules,
        NOW_MS,
    )  # fmt: skip
    readings = small_parts(told(references, facts, target_ids=sorted(target)), size)
    result = whole(spark, readings, replace(QUESTION, rules=rules))
    assert result.hits == report.hits
    assert result.greatest_id == report.greatest_id
    assert result.to_import == len(report.ids_to_import)
    assert result.free == ("foreign_id" not in report.reasons)
