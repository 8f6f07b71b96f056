"""Converts rows between Arrow and Python by column, and writes the rows of many keys into one Arrow batch.

PySpark makes one Arrow batch per key, though most keys output nothing, and asks Arrow for each cell separately.
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
    import pyarrow  # at run time only where it is used: it starts threads, which the fork of a worker would lose

_ROWS_READ_TOGETHER = 64
"""Python copies these rows, and each may have megabytes."""
_MOST_ROWS = 256
_MOST_BYTES = 1 << 20
"""Limits of a written Arrow batch; its last row may exceed the bytes. The JVM waits for a whole batch."""


def convert_rows_by_column() -> None:
    """Replace the conversion of rows in this worker; call it before the worker reads the first row."""
    serializer: Any = TransformWithStateInPySparkRowSerializer
    serializer.load_stream, serializer.dump_stream = _load_stream, _dump_stream


def _load_stream(serializer: Any, stream: Any) -> Iterator[tuple[Mode, Any, Any]]:
    """Yield the worker's tasks: (mode, key, rows). Rows of one key follow each other."""
    import pyarrow

    batches = pyarrow.ipc.open_stream(stream)
    for key, rows in groupby(_rows_with_key(batches, serializer.key_offsets), key=itemgetter(0)):
        yield Mode.PROCESS_DATA, key, map(itemgetter(1), rows)
    yield Mode.PROCESS_TIMER, None, None
    yield Mode.COMPLETE, None, None


def _rows_with_key(batches: "Iterable[pyarrow.RecordBatch]", offsets: list[int]) -> Iterator[tuple[Any, Row]]:
    get_key: Any = (lambda row: (row[offsets[0]],)) if len(offsets) == 1 else itemgetter(*offsets)
    for batch in batches:
        named = Row(*batch.schema.names)
        for first in range(0, batch.num_rows, _ROWS_READ_TOGETHER):
            columns = (column.to_pylist() for column in batch.slice(first, _ROWS_READ_TOGETHER).columns)
            for row in zip(*columns, strict=True):
                yield get_key(row), named(*row)


def _dump_stream(serializer: Any, results: Iterable[Any], stream: Any) -> Any:
    """Write the results of all keys, each (rows, their type)."""
    return ArrowStreamUDFSerializer.dump_stream(serializer, _batches(results), stream)  # type: ignore[no-untyped-call]


def _batches(results: Iterable[Any]) -> "Iterator[tuple[pyarrow.RecordBatch, Any]]":
    """Yield at least one batch: the stream begins with the first."""
    arrow_type, rows, size = None, [], 0
    for ((result, spark_type),) in results:
        if arrow_type is None:
            arrow_type = to_arrow_type(spark_type, timezone="UTC", prefers_large_types=False)
        for row in result:
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
