"""Everything that replaces private parts of PySpark, with what each of them saves.

| private API replaced | what PySpark does | what it saves (measured) |
|---|---|---|
| `TransformWithStateInPySparkRowSerializer` | a batch per key, cell by cell | half a fleet's batch: 1.7 s, not 3.0 |
| `StreamingQueryListener._jlistener` | asks the JVM for each field of a progress | 135 ms of processor per batch |
| `StatefulProcessorApiClient` | waits for the JVM four times per key | a third of the latency: 277 ms, not 391 |

Measured for 1,000 clusters of 12 brokers, 3,000 readings per batch, if not said otherwise; docs/performance.md has the
other candidates.

They are used only if `stream.spark_internals` is `auto` and the running PySpark is one of `TESTED`. Otherwise the query
uses the public API alone, and decides the same, byte for byte (`tests/system/test_spark_internals.py`).
"""

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import pyspark
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import pickle_protocol
from pyspark.sql import Row
from pyspark.sql.pandas.serializers import ArrowStreamUDFSerializer, TransformWithStateInPySparkRowSerializer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, ValueState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode as Mode
from pyspark.sql.types import StructType

from streaming.settings import SparkInternals

if TYPE_CHECKING:
    import pyarrow  # at run time only where it is used: it starts threads, which the fork of a worker would lose


TESTED = frozenset({"4.2.1"})
"""Versions of PySpark with which these modules were tested."""


def are_used(setting: SparkInternals) -> bool:
    """Whether to use these modules in this process."""
    return setting is SparkInternals.AUTO and pyspark.__version__ in TESTED


# Converts rows between Arrow and Python by column, and writes the rows of many keys into one Arrow batch.
#
# PySpark makes one Arrow batch per key, though most keys output nothing, and asks Arrow for each cell separately.

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


# Hands a listener the JVM's own events, which PySpark would convert by a call to the JVM for each of their fields.


class RawEvents:
    """Mix this into a `StreamingQueryListener`; its methods then get Py4J's objects."""

    @property
    def _jlistener(self) -> Any:
        context = SparkContext._active_spark_context
        return context._jvm.PythonStreamingQueryListenerWrapper(self)  # type: ignore[union-attr]

    class Java:
        """The interface that Py4J implements with this class."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


# Sends Spark's state calls of a key together: one round trip to the JVM per key instead of four.
#
# Spark keeps the state in its JVM, and a Python worker waits for the answer of each call. Most answers only confirm
# success: the current key was set, a timer was set, a value was written. Those calls are sent with the next one that
# must wait, and their answers are read before its answer. Each batch ends with a call that waits, so every answer is
# read.

_HEAD, _VERSION = struct.Struct("!ii"), 0
"""Before each message, as PySpark writes it: version and length."""
_SUCCESS = (0, "", b"")
_MOST_UNREAD = 64
"""Answers that nobody reads fill the connection: then neither side could write."""


def pipeline_state_calls(handle: StatefulProcessorHandle, state: ValueState) -> Callable[[tuple[Any, ...]], None]:
    """Make the calls of one batch that only confirm success return at once; return such a call for `state.update`.

    If Spark refuses one of these calls, the next call that waits raises PySparkRuntimeError.
    """
    client: Any = handle._statefulProcessorApiClient
    client.__class__ = _PipeliningClient  # wrapped methods would be a cycle, which the frozen collector never finds
    client._watermark_timestamp = 0  # the query has no watermark; PySpark would ask the JVM for it with each key

    def update(value: tuple[Any, ...]) -> None:
        with client.deferred():
            state.update(value)

    return update


class _PipeliningClient(StatefulProcessorApiClient):
    _defers = False
    _unread = 0

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The calls inside do not wait for their answers."""
        self._defers = True
        try:
            yield
        finally:
            self._defers = False

    def _serialize_to_bytes(self, schema: StructType, data: tuple[Any, ...]) -> bytes:
        # PySpark searches each value for NumPy's types, and has a pickler that takes functions, too.
        return pickle.dumps(schema.toInternal(data), pickle_protocol)

    def set_implicit_key(self, key: tuple[Any, ...]) -> None:
        with self.deferred():
            super().set_implicit_key(key)

    def register_timer(self, expiry_time_stamp_ms: int) -> None:
        with self.deferred():
            super().register_timer(expiry_time_stamp_ms)

    def delete_timer(self, expiry_time_stamp_ms: int) -> None:
        with self.deferred():
            super().delete_timer(expiry_time_stamp_ms)

    def _send_proto_message(self, message: bytes) -> None:
        self.sockfile.write(_HEAD.pack(_VERSION, len(message)))
        self.sockfile.write(message)
        if not self._defers or self._unread >= _MOST_UNREAD:
            self.sockfile.flush()
            self._read_confirmations()

    def _receive_proto_message(self) -> tuple[int, str, bytes]:
        if not self._defers:
            return super()._receive_proto_message()
        self._unread += 1
        return _SUCCESS

    def _read_confirmations(self) -> None:
        unread, self._unread = self._unread, 0
        for _ in range(unread):
            status, error, _ = super()._receive_proto_message()
            if status != 0:
                raise PySparkRuntimeError(f"Spark refused an earlier call to the state: {error}")
