"""Rows between Arrow and a worker: nothing lost, nothing in another order, and not a batch for each key."""

import io
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.pandas.serializers import TransformWithStateInPySparkRowSerializer
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode as Mode
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from streaming.spark_internals import convert_rows_by_column

IN = ("policy", "cluster", "value")
OUT = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])
OUT_NAMES = [field.name for field in OUT.fields]


@pytest.fixture(autouse=True)
def serializer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker's, of rows that are keyed by their first two columns."""
    for name in ("load_stream", "dump_stream"):
        monkeypatch.setattr(TransformWithStateInPySparkRowSerializer, name, None)
    convert_rows_by_column()
    return _serializer()


def _serializer() -> Any:
    made: Any = TransformWithStateInPySparkRowSerializer(arrow_max_records_per_batch=10)  # type: ignore[no-untyped-call]
    made.key_offsets = [0, 1]
    return made


def arrow(*batches: list[tuple[str, str, bytes]]) -> io.BytesIO:
    """A stream as the JVM writes it."""
    stream, schema = io.BytesIO(), pyarrow.schema(list(zip(IN, ("string", "string", "binary"), strict=True)))
    with pyarrow.ipc.new_stream(stream, schema) as writer:
        for batch in batches:
            columns = [list(column) for column in zip(*batch, strict=True)] or [[], [], []]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
    stream.seek(0)
    return stream


def written(serializer: Any, results: list[list[Row]]) -> list[list[dict[str, Any]]]:
    """What the JVM reads of each Arrow batch, of what each key gave."""
    stream = io.BytesIO()
    serializer.dump_stream(iter([(iter(rows), OUT)] for rows in results), stream)
    begins = struct.calcsize("!i")
    assert struct.unpack("!i", stream.getvalue()[:begins]) == (-6,), "the start of an Arrow stream"
    stream.seek(begins)
    return [[row["_0"] for row in batch.to_pylist()] for batch in pyarrow.ipc.open_stream(stream)]


def row(number: int, size: int = 1) -> Row:
    return Row(topic=f"t{number}", value=bytes(size))


def test_rows_come_by_key_and_then_the_timers_and_the_end(serializer: Any) -> None:
    one, two, three = ("throttle", "a", b"1"), ("throttle", "a", b"2"), ("throttle", "b", b"3")
    came = [(mode, key, [*(rows or ())]) for mode, key, rows in serializer.load_stream(arrow([one], [two, three]))]
    assert came == [
        (Mode.PROCESS_DATA, ("throttle", "a"), [Row(*IN)(*one), Row(*IN)(*two)]),
        (Mode.PROCESS_DATA, ("throttle", "b"), [Row(*IN)(*three)]),
        (Mode.PROCESS_TIMER, None, []),
        (Mode.COMPLETE, None, []),
    ]


def test_a_long_batch_is_read_to_its_end(serializer: Any) -> None:
    long = [("throttle", f"c{number // 50}", b"%d" % number) for number in range(1000)]
    keyed = [[*rows] for mode, _, rows in serializer.load_stream(arrow(long)) if mode is Mode.PROCESS_DATA]
    assert [len(rows) for rows in keyed] == [50] * 20
    assert [int(row.value) for rows in keyed for row in rows] == [*range(1000)]


def test_without_rows_timers_are_due_all_the_same(serializer: Any) -> None:
    assert [mode for mode, _, _ in serializer.load_stream(arrow([]))] == [Mode.PROCESS_TIMER, Mode.COMPLETE]


def test_keys_share_a_batch_on_the_way_out(serializer: Any) -> None:
    assert len(written(serializer, [[row(key)] for key in range(100)])) == 1


def test_who_has_nothing_to_say_still_opens_the_stream(serializer: Any) -> None:
    assert written(serializer, [[], []]) == [[]]


@pytest.mark.parametrize(
    ("rows", "size", "batches"),
    [
        pytest.param(1000, 10, 4, id="many small ones"),
        pytest.param(10, 300_000, 3, id="few large ones"),
        pytest.param(2, 4_000_000, 2, id="each larger than a batch should be"),
    ],
)
def test_a_batch_on_the_way_out_is_not_too_large(serializer: Any, rows: int, size: int, batches: int) -> None:
    found = [batch for batch in written(serializer, [[row(number, size) for number in range(rows)]]) if batch]
    assert len(found) == batches
    assert [each["topic"] for batch in found for each in batch] == [f"t{number}" for number in range(rows)]


@given(st.lists(st.lists(st.tuples(st.none() | st.text(), st.none() | st.binary())), min_size=1))  # timers are one
def test_all_that_keys_give_arrives_in_order(given_: list[list[tuple[str | None, bytes | None]]]) -> None:
    results = [[Row(**dict(zip(OUT_NAMES, each, strict=True))) for each in rows] for rows in given_]
    arrived: Iterator[dict[str, Any]] = (each for batch in written(_serializer(), results) for each in batch)
    assert [(each["topic"], each["value"]) for each in arrived] == [each for rows in given_ for each in rows]
