"""Sends Spark's state calls of a key together: one round trip to the JVM per key instead of four.

Spark keeps the state in its JVM, and a Python worker waits for the answer of each call. Most answers only confirm
success: the current key was set, a timer was set, a value was written. Those calls are sent with the next one that must
wait, and their answers are read before its answer. Each batch ends with a call that waits, so every answer is read.
"""

import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import pickle_protocol
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, ValueState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import StructType

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
