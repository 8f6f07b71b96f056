"""Converts rows between Arrow and Python by column, with as many keys per Arrow batch on the way out as on the way in.

Spark itself makes one Arrow batch per key, though most keys output nothing, and asks Arrow for each cell separately;
together that is a sixth of the worker's time for a fleet's batch.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.pandas.serializers import ArrowStreamUDFSerializer, TransformWithStateInPySparkRowSerializer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode as Mode

if TYPE_CHECKING:
    import pyarrow  # else only where it is used: it starts threads, which the fork of a worker would lose

_READ_AT_ONCE = 64
"""Rows: each may have megabytes, of which Python makes a copy."""
_MOST_ROWS = 256
_MOST_BYTES = 1 << 20
"""Of an Arrow batch on the way out, but for its last row: the JVM goes on with a batch when it has all of it."""


def use_columns() -> None:
    """Have each worker of this process read and write rows so; before it reads the first."""
    serializer: Any = TransformWithStateInPySparkRowSerializer
    serializer.load_stream, serializer.dump_stream = _load, _dump


def _load(serializer: Any, stream: Any) -> Iterator[tuple[Mode, Any, Any]]:
    """What the worker is to do: (mode, key, rows); rows of one key come one after the other."""
    import pyarrow

    batches = pyarrow.ipc.open_stream(stream)
    for key, keyed in groupby(_keyed(batches, serializer.key_offsets), key=itemgetter(0)):
        yield Mode.PROCESS_DATA, key, map(itemgetter(1), keyed)
    yield Mode.PROCESS_TIMER, None, None
    yield Mode.COMPLETE, None, None


def _keyed(batches: "Iterable[pyarrow.RecordBatch]", offsets: list[int]) -> Iterator[tuple[Any, Row]]:
    key_of: Any = (lambda row: (row[offsets[0]],)) if len(offsets) == 1 else itemgetter(*offsets)
    for batch in batches:
        named = Row(*batch.schema.names)
        for first in range(0, batch.num_rows, _READ_AT_ONCE):
            columns = (column.to_pylist() for column in batch.slice(first, _READ_AT_ONCE).columns)
            for row in zip(*columns, strict=True):
                yield key_of(row), named(*row)


def _dump(serializer: Any, results: Iterable[Any], stream: Any) -> Any:
    """Write what all keys gave: (rows, their type) of each."""
    return ArrowStreamUDFSerializer.dump_stream(serializer, _batches(results), stream)  # type: ignore[no-untyped-call]


def _batches(results: Iterable[Any]) -> "Iterator[tuple[pyarrow.RecordBatch, Any]]":
    """At least one, as the stream's start comes with the first."""
    arrow_type, rows, size = None, [], 0
    for ((of_key, spark_type),) in results:
        if arrow_type is None:
            arrow_type = to_arrow_type(spark_type, timezone="UTC", prefers_large_types=False)
        for row in of_key:
            rows.append(row)
            size += sum(len(cell) for cell in row if cell is not None)
            if len(rows) >= _MOST_ROWS or size >= _MOST_BYTES:
                yield _batch(rows, arrow_type), arrow_type
                rows, size = [], 0
    if arrow_type is not None:
        yield _batch(rows, arrow_type), arrow_type


def _batch(rows: list[Row], arrow_type: Any) -> "pyarrow.RecordBatch":
    import pyarrow

    columns = [pyarrow.array([row[field.name] for row in rows], field.type) for field in arrow_type]
    return pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(list(arrow_type)))
